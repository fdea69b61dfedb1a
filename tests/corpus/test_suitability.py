"""Whether a model suits a corpus: languages, token rates, and the warnings they give."""

from dataclasses import dataclass

from cog.corpus.suitability import MAX_TEXTS, TextSample, measure_suitability
from cog.records import Document

ENGLISH = "The old mill stands at the end of the village, and the river that runs by it is slow."
GERMAN = (
    "Die alte Mühle steht am Ende des Dorfes, und der Fluss, der an ihr vorbeifließt, ist träge."
)


@dataclass(frozen=True, slots=True)
class Counts:
    num_tokens: int
    num_pieces: int
    num_unknown: int


def sample(*texts: str) -> TextSample:
    kept = TextSample()
    for number, text in enumerate(texts):
        kept.add(Document(str(number), "", text, "", "", ""))
    return kept


def by_character(text: str) -> Counts:
    return Counts(len(text), len(text), text.count("ß") + text.count("ü"))


def by_word(text: str) -> Counts:
    return Counts(len(text.split()), len(text.split()), 0)


def test_a_text_that_suits_gives_no_warning() -> None:
    found = measure_suitability(sample(ENGLISH, ENGLISH), language="en-GB", count_pieces=by_word)
    assert (found.num_sampled, found.languages, found.tokens_per_word) == (2, {"en": 1.0}, 1.0)
    assert found.unknown_pieces == 0.0
    assert found.warnings == ()


def test_another_language_and_a_tokenizer_that_does_not_suit_are_said() -> None:
    found = measure_suitability(
        sample(GERMAN, GERMAN, ENGLISH), language="en", count_pieces=by_character
    )
    assert found.languages == {"de": 0.667, "en": 0.333}
    assert [warning.split(":")[0] for warning in found.warnings] == [
        "the card says language en, the documents look like de 67%, en 33%",
        "the model's tokenizer does not suit the text",
        "the phrase encoder does not know 1.5% of the pieces of the text (up to 1% is usual)",
    ]


def test_without_a_model_the_language_is_told() -> None:
    found = measure_suitability(sample(GERMAN), language="de", count_pieces=None)
    assert (found.languages, found.tokens_per_word, found.warnings) == ({"de": 1.0}, None, ())


def test_a_sample_is_even_and_bounded() -> None:
    kept = sample(*(str(number) for number in range(10 * MAX_TEXTS)))
    texts = [int(text) for text in kept]
    assert MAX_TEXTS / 2 <= len(texts) <= MAX_TEXTS
    steps = {second - first for first, second in zip(texts, texts[1:], strict=False)}
    assert len(steps) == 1
    assert texts[-1] >= 9 * MAX_TEXTS
