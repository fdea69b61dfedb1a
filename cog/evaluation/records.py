"""Records of an evaluation: plain values; nothing here reads, writes or computes."""

from dataclasses import asdict, dataclass
from typing import Any

from cog.baselines.system import System, parse_system
from cog.errors import EvaluationError
from cog.evaluation.protocol import Protocol, parse_protocol
from cog.records import CORPUS, FLOAT32, VOCABULARY, Decoding, Generation, Segment

FORMAT_VERSION = 2
ANY_ERROR = (KeyError, TypeError, ValueError, AttributeError)
Rows = tuple[tuple[float, ...], ...]
SHOWN = ("mean", "low", "high", "reference", "num_texts", "note")  # of a score


@dataclass(frozen=True, slots=True)
class EvaluatedText:
    """One generation beside the text that really follows its prompt."""

    prompt_id: str
    reference: str
    generation: Generation

    def to_json(self) -> dict[str, Any]:
        """The text as stored: a generation with two more keys."""
        about = {"prompt_id": self.prompt_id}
        return {**about, **self.generation.to_json(), "reference": self.reference}


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The generations of one seed."""

    seed: int
    texts: tuple[EvaluatedText, ...]  # one per prompt, in the order of all seeds


@dataclass(frozen=True, slots=True)
class Score:
    """One score."""

    name: str  # `group/name`, such as `quality/mauve`; the last part is unique
    mean: float
    low: float  # lower end of its 95 % interval; the score itself where there is none
    high: float
    reference: float | None  # the same score of what really follows; None if it has none
    num_texts: int
    num_documents: int  # that they are of, which are what is independent; of batches for speed
    per_seed: tuple[float, ...]  # one value for a score that no seed changes
    # what each text, or batch, gives to it, in the order of the prompts; the metric combines their
    # sums, and comparisons resample them
    rows: Rows
    reference_rows: Rows
    note: str  # a warning to be shown with it; empty if there is none

    def to_json(self) -> dict[str, Any]:
        """The score as plain values."""
        return asdict(self)

    def summary_to_json(self) -> dict[str, Any]:
        """The score without what it was made from."""
        content = self.to_json()
        del content["rows"], content["reference_rows"]
        return content


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One evaluation: what was run, how it was measured, and what came out."""

    system: System
    protocol: Protocol
    prompt_corpus: str  # id of the corpus whose held-out prompts were continued
    num_held_out: int
    num_qualifying: int
    prompt_ids: tuple[str, ...]
    document_ids: tuple[str, ...]
    prompts_digest: str
    seeds: tuple[SeedResult, ...]  # none if no score needed texts
    scores: tuple[Score, ...]
    seconds: dict[str, float]
    created_at: str  # when, ISO 8601 in UTC

    @property
    def corpus(self) -> str:
        """Id of the corpus that was copied from, or searched."""
        return self.system.corpus

    def find_score(self, name: str) -> Score | None:
        """Find a score by its name, whole or the part after the ``/``."""
        for score in self.scores:
            if name in (score.name, score.name.rpartition("/")[2]):
                return score
        return None

    def to_json(self) -> dict[str, Any]:
        """The evaluation as it is stored."""
        return {
            "format_version": FORMAT_VERSION,
            **self.summary_to_json(),
            "prompt_ids": list(self.prompt_ids),
            "document_ids": list(self.document_ids),
            "scores": [score.to_json() for score in self.scores],
            "seeds": [
                {"seed": result.seed, "texts": [text.to_json() for text in result.texts]}
                for result in self.seeds
            ],
        }

    def summary_to_json(self) -> dict[str, Any]:
        """The evaluation without its texts, as the command line writes it."""
        return {
            "system": self.system.to_json(),
            "protocol": self.protocol.to_json(),
            "digests": {"system": self.system.digest, "protocol": self.protocol.digest},
            "prompt_corpus": self.prompt_corpus,
            "num_held_out": self.num_held_out,
            "num_qualifying": self.num_qualifying,
            "num_prompts": len(self.prompt_ids),
            "prompts_digest": self.prompts_digest,
            "scores": [score.summary_to_json() for score in self.scores],
            "seconds": self.seconds,
            "created_at": self.created_at,
        }


def parse_result(content: dict[str, Any], *, where: str) -> EvaluationResult:
    """Read an evaluation as :meth:`EvaluationResult.to_json` writes it."""
    try:
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version {content['format_version']}")
        names = ("prompt_corpus", "num_held_out", "num_qualifying", "prompts_digest", "seconds")
        return EvaluationResult(
            **{name: content[name] for name in (*names, "created_at")},
            prompt_ids=tuple(content["prompt_ids"]),
            document_ids=tuple(content["document_ids"]),
            system=parse_system(content["system"]),
            protocol=parse_protocol(content["protocol"]),
            seeds=tuple(
                SeedResult(each["seed"], tuple(map(parse_text, each["texts"])))
                for each in content["seeds"]
            ),
            scores=tuple(_parse_score(each) for each in content["scores"]),
        )
    except ANY_ERROR as error:
        raise EvaluationError(
            f"{where} must be an evaluation that this version of cog wrote",
            found=f"{type(error).__name__}: {error}",
            run="cog evaluate --corpus ID",
            about=where,
        ) from error


def parse_text(content: dict[str, Any]) -> EvaluatedText:
    """Read a text as :meth:`EvaluatedText.to_json` writes it."""
    return EvaluatedText(content["prompt_id"], content["reference"], parse_generation(content))


def parse_generation(content: dict[str, Any]) -> Generation:
    """Read a generation as :meth:`~cog.records.Generation.to_json` writes it, among other keys."""
    names = ("prefix", "text", "corpus", "index", "model", "num_steps", "num_tokens", "seconds")
    return Generation(
        **{name: content[name] for name in names},
        decoding=Decoding(**content["decoding"]),
        segments=tuple(_parse_segment(each) for each in content["segments"]),
        precision=content.get("precision", FLOAT32),
    )


def _parse_segment(content: dict[str, Any]) -> Segment:
    plain = {name: value for name, value in content.items() if name != "from"}
    if content["from"] not in (CORPUS, VOCABULARY):
        raise ValueError(f"a segment from {content['from']!r}")
    return Segment(origin=content["from"], **plain)


def _parse_score(content: dict[str, Any]) -> Score:
    values = dict(content)
    values["per_seed"] = tuple(values["per_seed"])
    for name in ("rows", "reference_rows"):
        values[name] = tuple(map(tuple, values[name]))
    return Score(**values)
