"""Records that cross folders: plain values; nothing here reads, writes or computes."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from cog.reading import Count, FieldError, Natural, OneOf, Range, Share, Text

CORPUS = "corpus"
VOCABULARY = "vocabulary"
DECODER_VERSION = 4  # raised when the same settings give other texts
CITATION = ("corpus", "document_id", "title", "char_start", "char_end", "licence", "url")
OFF = "off"
ABSOLUTE = "absolute"
RELATIVE = "relative"
ENTROPY = "entropy"
GREEDY, NUCLEUS = METHODS = ("greedy", "nucleus")
AUTO, FLOAT32, BFLOAT16, INT8 = PRECISIONS = ("auto", "float32", "bfloat16", "int8")
VERIFY_RULES = (OFF, ABSOLUTE, RELATIVE, ENTROPY)
LARGEST = 1_000_000  # of a setting, so that no sum of scores overflows
_Weight = Annotated[float, Range(at_least=0, at_most=LARGEST)]
_Number = Annotated[int, Range(at_least=0, at_most=10**9)]


@dataclass(frozen=True, slots=True)
class Document:
    """One text with an id."""

    document_id: str  # unique inside its corpus, stable between builds
    title: str  # what a person calls it; may be empty
    text: str  # the normalised text; every offset in cog counts its characters
    url: str  # where it can be read; may be empty
    licence: str  # SPDX id or a name
    source: str  # file or archive member, and the line or row in it, as `name:number`


@dataclass(frozen=True, slots=True)
class Prompt:
    """A window of a document that is held out of the index."""

    prompt_id: str  # unique inside its corpus
    document_id: str  # the held-out document
    prefix: str  # the first tokens of the window, as text
    reference: str  # the tokens that follow, as text
    char_start: int  # where the prefix begins in the document
    char_end: int  # where the reference ends in the document


@dataclass(frozen=True, slots=True)
class Active:
    """What is switched on."""

    corpus: Text  # corpus id, or several joined with `+`
    index: Text  # digest of the index, of each part of a union
    model: Text  # fingerprint of the model
    switched_at: Text  # when, ISO 8601 in UTC
    # where the model lay, relative to the project; empty where the record does not say, and then
    # that of params.yaml
    model_folder: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What is switched on, whenever that was."""
        return self.corpus, self.index, self.model

    @property
    def corpora(self) -> list[str]:
        """The corpora it names: one, or the parts of a union."""
        return self.corpus.split("+")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a text is written; the one record of these settings, whose defaults are the paper's.

    :param method: ``greedy`` or ``nucleus``.
    :param top_p: Mass of the nucleus; ignored by greedy.
    :param seed: Seed of the text's own random stream.
    :param max_new_tokens: Exact number of prefix-encoder tokens to append.
    :param top_k_documents: Number of chunks retrieved per prompt; 0 copies nothing.
    :param phrase_bias: Added to the score of every phrase: higher copies more.
    :param verify: How unlikely a token may be to the prefix encoder: ``off``, or less than
        ``verify_threshold`` (``absolute``), than that times the best token's probability
        (``relative``), or than what the entropy allows (``entropy``) is too unlikely.
    :param verify_threshold: The threshold of that rule; 0 writes what was chosen.
    :param temperature: Divides all scores before a draw, 1 leaves them; ignored by greedy.
    :param max_verbatim_words: Longest run of words that a copy may share with one place of a
        document; 0 for no limit.
    :param pool_bias: Whether ``phrase_bias`` counts from the size of the pool: less the logarithm
        of its phrases over those of a training batch.
    :param span_words: Number of words that a draft goes on at its source, at most.
    :param span_ratio: Share of the best token's probability that a token after the chosen phrase
        must have, 0 to 1.
    :param far_ratio: Share of it that every token of a copy must have, for each unit of similarity
        that the prompt's nearest document is below ``relevance_level``. Where it must have some,
        what is too little for a copy is not written at all: a token is chosen instead.
    :param min_bits: Information of a copy, at least: the sum over its words, in bits.
    :param copy_once: Whether a word of a document, or a passage that stands in several, is copied
        into a text once at most.
    :param relevance_weight: Weight of a document's similarity to the prompt, less
        ``relevance_level``, in the score of its phrases.
    :param relevance_level: Similarity from which a document counts as about the same thing.
    :param guard_names: Whether documents below ``relevance_level`` bring no names, numbers or
        beginnings of sentences that the text does not have.
    :param first_token_weight: Weight of the log-probability of a phrase's first token under the
        prefix encoder in its score.
    :param context_weight: Added to a phrase's score for every token before it, beyond two and up to
        ten, that is also what the text ends with.
    :param trust: How many nats verification's floor falls by for every token of unbroken agreement
        with the source beyond three.
    :param no_repeat_ngram: Number of tokens of a passage that is written once at most, prefix
        included; 0 for no limit.
    """

    method: Annotated[str, OneOf(METHODS)] = NUCLEUS
    top_p: Annotated[float, Range(above=0, at_most=1)] = 0.95
    seed: Natural = 0
    max_new_tokens: Count = 128
    top_k_documents: _Number = 1024
    phrase_bias: Annotated[float, Range(at_least=-LARGEST, at_most=LARGEST)] = 0.0
    verify: Annotated[str, OneOf(VERIFY_RULES)] = OFF
    verify_threshold: _Weight = 0.0
    temperature: Annotated[float, Range(at_least=0.01, at_most=100)] = 1.0
    max_verbatim_words: _Number = 0
    pool_bias: bool = False
    span_words: _Number = 0
    span_ratio: Share = 0.0
    far_ratio: _Weight = 0.0
    min_bits: _Weight = 0.0
    copy_once: bool = False
    relevance_weight: _Weight = 0.0
    relevance_level: Annotated[float, Range(at_least=-1, at_most=1)] = 0.0
    guard_names: bool = False
    first_token_weight: _Weight = 0.0
    context_weight: _Weight = 0.0
    trust: _Weight = 0.0
    no_repeat_ngram: _Number = 0

    @property
    def is_verified(self) -> bool:
        """Whether the prefix encoder has a say in what is written."""
        return self.verify != OFF and self.verify_threshold > 0.0


def check_threshold(decoding: Decoding) -> None:
    """Refuse, by ``FieldError``, a threshold that has no meaning under its rule."""
    if decoding.verify != ENTROPY and decoding.verify_threshold > 1:
        wanted = f"must be a number from 0 to 1 for {decoding.verify}"
        raise FieldError("verify_threshold", wanted=wanted, found=str(decoding.verify_threshold))


@dataclass(frozen=True, slots=True)
class Segment:
    """What one decoding step appended."""

    text: str  # for a corpus segment `document.text[char_start:char_end]`
    origin: str  # `corpus` or `vocabulary` (`from` in JSON)
    # of the choice under the joint distribution, before truncation; under the vocabulary alone
    # where a copy was cut or refused. Of neighbours that are one copy, the product; words that a
    # draft went on by count as 1
    probability: float
    document_id: str | None = None  # None, as are all that follow, unless it is of a corpus
    title: str | None = None  # of the source document, as what follows
    char_start: int | None = None  # first character of the copy in it
    char_end: int | None = None  # one past the last
    licence: str | None = None
    url: str | None = None
    corpus: str | None = None
    # bits of the copied words, by their share of the index; None where unknown
    information: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The segment as the command line writes it."""
        told = {"text": self.text, "from": self.origin}
        if self.origin == VOCABULARY:
            return told | {"probability": self.probability}
        cited = {name: getattr(self, name) for name in CITATION}
        more = {"probability": self.probability, "information": self.information}
        return told | cited | more


@dataclass(frozen=True, slots=True)
class Generation:
    """One generated text with its citations."""

    prefix: str  # the text that was continued
    text: str  # the continuation; the join of the segments' texts
    corpus: str
    index: str  # its digest
    model: str  # its fingerprint
    decoding: Decoding
    num_steps: int  # drafts of which something was written
    num_tokens: int  # prefix-encoder tokens appended
    seconds: dict[str, float]  # by part: `retrieve`, `gather`, `decode`
    segments: tuple[Segment, ...]  # what each step appended, in order
    precision: str = FLOAT32  # of the prefix encoder: `float32`, `bfloat16` or `int8`
    # forward passes that read what was drafted, fewer than steps where guesses were right: it hangs
    # on the machine and on company in a batch, and no text on it. 0 where it is not counted
    num_passes: int = field(default=0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The generation as the command line writes it."""
        return {
            "prefix": self.prefix,
            "text": self.text,
            "corpus": self.corpus,
            "index": self.index,
            "model": self.model,
            "precision": self.precision,
            "decoding": asdict(self.decoding),
            "num_steps": self.num_steps,
            "num_passes": self.num_passes,
            "num_tokens": self.num_tokens,
            "seconds": self.seconds,
            "segments": [segment.to_json() for segment in self.segments],
        }
