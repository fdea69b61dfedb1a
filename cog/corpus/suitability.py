"""Whether a model suits a corpus: sampled texts go in, languages, rates and warnings come out."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cog.records import Document

MAX_TEXTS = 512
MAX_CHARACTERS = 2000  # of one text
MAX_TOKENS_PER_WORD = 2.5
MAX_UNKNOWN = 0.01
MIN_LANGUAGE = 0.5

_MAX_LANGUAGES = 5


@dataclass(frozen=True, slots=True)
class PieceCounts:
    """How a model's tokenizers cut a text."""

    num_tokens: int  # of the prefix encoder
    num_pieces: int  # of the phrase encoder
    num_unknown: int  # pieces that stand for what the phrase encoder does not know


CountPieces = Callable[[str], PieceCounts]


@dataclass(frozen=True, slots=True)
class Suitability:
    """What a sample of a corpus says of its language and of the model's tokenizers."""

    num_sampled: int
    # share of the documents by language, largest first; ISO 639-1 codes
    languages: dict[str, float]
    # prefix-encoder tokens per white-space separated word; None if unknown
    tokens_per_word: float | None
    # share of the phrase encoder's pieces that are unknown to it; None if unknown
    unknown_pieces: float | None
    warnings: tuple[str, ...]  # what a person should know, one line each


class TextSample:
    """Keeps the beginnings of evenly spread documents of a stream, whatever its length."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._step = 1
        self._num_seen = 0

    def add(self, document: Document) -> None:
        """Look at a document."""
        if self._num_seen % self._step == 0:
            self._texts.append(document.text[:MAX_CHARACTERS])
            if len(self._texts) >= 2 * MAX_TEXTS:
                self._texts = self._texts[::2]
                self._step *= 2
        self._num_seen += 1

    def __iter__(self) -> Iterator[str]:
        step = -(-len(self._texts) // MAX_TEXTS) or 1
        return iter(self._texts[::step])


def measure_suitability(
    sample: TextSample, *, language: str, count_pieces: CountPieces | None
) -> Suitability:
    """Tell the languages of a sample and how well the model's tokenizers cut it."""
    texts = list(sample)
    languages = _tell_languages(texts)
    tokens_per_word = unknown = None
    if count_pieces is not None and texts:
        counts = [count_pieces(text) for text in texts]
        num_words = sum(len(text.split()) for text in texts)
        tokens_per_word = round(sum(each.num_tokens for each in counts) / max(1, num_words), 2)
        num_pieces = sum(each.num_pieces for each in counts)
        unknown = round(sum(each.num_unknown for each in counts) / max(1, num_pieces), 4)
    warnings = [*_warn_of_language(languages, language), *_warn_of_tokens(tokens_per_word, unknown)]
    return Suitability(len(texts), languages, tokens_per_word, unknown, tuple(warnings))


def _tell_languages(texts: list[str]) -> dict[str, float]:
    import py3langid

    found = Counter(py3langid.classify(text)[0] for text in texts)
    shares = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(count / len(texts), 3) for name, count in shares[:_MAX_LANGUAGES]}


def _warn_of_language(languages: dict[str, float], language: str) -> Iterator[str]:
    stated = language.split("-")[0].lower()
    if languages and languages.get(stated, 0.0) < MIN_LANGUAGE:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in languages.items())
        yield f"the card says language {language}, the documents look like {shares}"


def _warn_of_tokens(tokens_per_word: float | None, unknown: float | None) -> Iterator[str]:
    if tokens_per_word is not None and tokens_per_word > MAX_TOKENS_PER_WORD:
        yield (
            f"the model's tokenizer does not suit the text: {tokens_per_word} tokens a word"
            f" (up to {MAX_TOKENS_PER_WORD} is usual)"
        )
    if unknown is not None and unknown > MAX_UNKNOWN:
        yield (
            f"the phrase encoder does not know {unknown:.1%} of the pieces of the text"
            f" (up to {MAX_UNKNOWN:.0%} is usual): phrases of them cannot be copied"
        )
