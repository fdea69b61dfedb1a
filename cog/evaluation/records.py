"""Records of an evaluation: plain values; nothing here reads, writes or computes."""

from dataclasses import dataclass
from typing import Any

from cog.errors import EvaluationError
from cog.evaluation.protocol import Protocol, parse_protocol
from cog.records import CORPUS, FLOAT32, PROMPT, VOCABULARY, Decoding, Generation, Segment

FORMAT_VERSION = 1
ANY_ERROR = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class EvaluatedText:
    """One generation beside the text that really follows its prompt.

    :param prompt_id: Id of the prompt, unique in its corpus.
    :param reference: The text that follows, cut as the protocol says.
    :param generation: What was written instead, with its citations.
    """

    prompt_id: str
    reference: str
    generation: Generation

    def to_json(self) -> dict[str, Any]:
        """The text as stored: a generation with two more keys.

        :returns: A JSON-ready object.
        """
        return {
            "prompt_id": self.prompt_id,
            **self.generation.to_json(),
            "reference": self.reference,
        }


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The generations of one seed.

    :param seed: The seed.
    :param texts: One per prompt; the order of the prompts is the same for all seeds.
    """

    seed: int
    texts: tuple[EvaluatedText, ...]


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One score.

    :param name: ``group/name``, such as ``quality/mauve``; the last part is unique.
    :param mean: The score: the mean over seeds.
    :param low: Lower end of its 95 % interval.
    :param high: Upper end.
    :param num_texts: Number of generations per seed that it rests on.
    :param per_seed: The score of each seed, in the order of the protocol's seeds; one value for a
        score that no seed changes.
    :param per_prompt: Mean over seeds for each prompt, in the order of the prompts; empty for a
        score of all texts together, such as MAUVE. What paired comparisons take.
    :param is_higher_better: True, False, or None for a score that only describes.
    :param note: A warning to be shown with it; empty if there is none.
    """

    name: str
    mean: float
    low: float
    high: float
    num_texts: int
    per_seed: tuple[float, ...]
    per_prompt: tuple[float, ...]
    is_higher_better: bool | None
    note: str

    def to_json(self) -> dict[str, Any]:
        """The score as plain values.

        :returns: A JSON-ready object.
        """
        return {
            "name": self.name,
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "num_texts": self.num_texts,
            "per_seed": list(self.per_seed),
            "per_prompt": list(self.per_prompt),
            "is_higher_better": self.is_higher_better,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One evaluation: what was measured, under which protocol, and what came out.

    :param corpus: Id of the corpus that was copied from.
    :param prompt_corpus: Id of the corpus whose held-out prompts were continued.
    :param system: What wrote the texts: ``cog``.
    :param index: Digest of the index.
    :param documents: Digest of the documents.
    :param model: Fingerprint of the model.
    :param num_index_words: Number of words in the index.
    :param num_held_out: Number of prompts that the corpus holds out.
    :param num_qualifying: Number of those that are long enough.
    :param protocol: The protocol.
    :param seeds: The generations, per seed.
    :param metrics: The scores.
    :param seconds: Seconds per part of the evaluation.
    :param created_at: When, ISO 8601 in UTC.
    """

    corpus: str
    prompt_corpus: str
    system: str
    index: str
    documents: str
    model: str
    num_index_words: int
    num_held_out: int
    num_qualifying: int
    protocol: Protocol
    seeds: tuple[SeedResult, ...]
    metrics: tuple[MetricValue, ...]
    seconds: dict[str, float]
    created_at: str

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        """The prompts, in order.

        :returns: Their ids.
        """
        return tuple(text.prompt_id for text in self.seeds[0].texts)

    def find_metric(self, name: str) -> MetricValue | None:
        """Find a score.

        :param name: Its name, whole or the part after the ``/``.
        :returns: The score, or None.
        """
        for metric in self.metrics:
            if name in (metric.name, metric.name.rpartition("/")[2]):
                return metric
        return None

    def to_json(self) -> dict[str, Any]:
        """The evaluation as it is stored.

        :returns: A JSON-ready object.
        """
        return {
            "format_version": FORMAT_VERSION,
            **self.summary_to_json(),
            "seeds": [
                {"seed": result.seed, "texts": [text.to_json() for text in result.texts]}
                for result in self.seeds
            ],
        }

    def summary_to_json(self) -> dict[str, Any]:
        """The evaluation without its texts, as the command line writes it.

        :returns: A JSON-ready object.
        """
        return {
            "corpus": self.corpus,
            "prompt_corpus": self.prompt_corpus,
            "system": self.system,
            "index": self.index,
            "documents": self.documents,
            "model": self.model,
            "num_index_words": self.num_index_words,
            "num_held_out": self.num_held_out,
            "num_qualifying": self.num_qualifying,
            "protocol": self.protocol.digest,
            "protocol_fields": self.protocol.to_json(),
            "metrics": [metric.to_json() for metric in self.metrics],
            "seconds": self.seconds,
            "created_at": self.created_at,
        }


def parse_result(content: dict[str, Any], *, where: str) -> EvaluationResult:
    """Read an evaluation as :meth:`EvaluationResult.to_json` writes it.

    :param content: The object.
    :param where: Name of the file, for the message.
    :returns: The evaluation.
    :raises EvaluationError: If it is malformed or of another version.
    """
    try:
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version {content['format_version']}")
        plain = {
            name: content[name]
            for name in EvaluationResult.__dataclass_fields__
            if name not in ("protocol", "seeds", "metrics")
        }
        return EvaluationResult(
            **plain,
            protocol=parse_protocol(content["protocol_fields"]),
            seeds=tuple(
                SeedResult(each["seed"], tuple(map(parse_text, each["texts"])))
                for each in content["seeds"]
            ),
            metrics=tuple(_parse_metric(each) for each in content["metrics"]),
        )
    except ANY_ERROR as error:
        raise EvaluationError(
            f"{where} must be an evaluation that this version of cog wrote",
            found=f"{type(error).__name__}: {error}",
            run="cog evaluate --corpus ID",
            about=where,
        ) from error


def parse_text(content: dict[str, Any]) -> EvaluatedText:
    """Read a text as :meth:`EvaluatedText.to_json` writes it.

    :param content: The object.
    :returns: The text.
    """
    return EvaluatedText(content["prompt_id"], content["reference"], parse_generation(content))


def parse_generation(content: dict[str, Any]) -> Generation:
    """Read a generation as :meth:`~cog.records.Generation.to_json` writes it.

    :param content: The object; keys that are not a generation's are ignored.
    :returns: The generation.
    """
    names = ("prefix", "text", "corpus", "index", "model", "num_steps", "num_tokens", "seconds")
    return Generation(
        **{name: content[name] for name in names},
        decoding=Decoding(**content["decoding"]),
        segments=tuple(_parse_segment(each) for each in content["segments"]),
        precision=content.get("precision", FLOAT32),
    )


def _parse_segment(content: dict[str, Any]) -> Segment:
    plain = {name: value for name, value in content.items() if name != "from"}
    if content["from"] not in (CORPUS, VOCABULARY, PROMPT):
        raise ValueError(f"a segment from {content['from']!r}")
    return Segment(origin=content["from"], **plain)


def _parse_metric(content: dict[str, Any]) -> MetricValue:
    values = dict(content)
    for name in ("per_seed", "per_prompt"):
        values[name] = tuple(values[name])
    return MetricValue(**values)
