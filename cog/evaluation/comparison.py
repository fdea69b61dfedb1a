"""Records of a comparison: plain values; nothing here reads, writes or computes scores."""

from dataclasses import asdict, dataclass
from typing import Any

from cog.evaluation.protocol import Protocol
from cog.evaluation.statistics import Difference


@dataclass(frozen=True, slots=True)
class Row:
    """One score of one evaluation.

    :param label: What tells the evaluation from the others.
    :param corpus: Corpus that was copied from.
    :param prompt_corpus: Corpus whose prompts were continued.
    :param system: What wrote the texts.
    :param differs: The rules of the protocol that are compared, with their values.
    :param index: Digest of the index.
    :param num_index_words: Number of words in the index.
    :param metric: Name of the score.
    :param mean: The score.
    :param low: Lower end of its 95 % interval.
    :param high: Upper end.
    :param num_texts: Number of texts per seed that it rests on.
    :param is_better: Whether it is better than every other one by more than chance.
    :param note: A warning to be shown with it; empty if there is none.
    """

    label: str
    corpus: str
    prompt_corpus: str
    system: str
    differs: dict[str, Any]
    index: str
    num_index_words: int
    metric: str
    mean: float
    low: float
    high: float
    num_texts: int
    is_better: bool
    note: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations compared by one score.

    :param metric: Name of the score.
    :param first: Label of the first evaluation.
    :param second: Label of the second.
    :param difference: The first minus the second, and how often the first is the better one (the
        higher one, of a score that only describes); None if chance cannot be told: too few texts,
        or no spread.
    :param is_significant: Whether it is more than chance, all pairs of this score taken together
        (Holm's correction).
    :param better: Label of the better one; None if the difference is not significant, or if the
        score only describes.
    :param note: A warning to be shown with it; empty if there is none.
    """

    metric: str
    first: str
    second: str
    difference: Difference | None
    is_significant: bool
    better: str | None
    note: str

    def to_json(self) -> dict[str, Any]:
        """The pair as the command line writes it.

        :returns: A JSON-ready object.
        """
        return {
            "metric": self.metric,
            "first": self.first,
            "second": self.second,
            "difference": None if self.difference is None else asdict(self.difference),
            "is_significant": self.is_significant,
            "better": self.better,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Evaluations side by side.

    :param protocol: The protocol of all of them; where rules are compared, that of the first.
    :param across: Names of the rules that are compared, and so may differ.
    :param labels: One per evaluation, in the order asked.
    :param rows: Every score of every evaluation, score by score.
    :param pairs: Every pair of evaluations, score by score.
    """

    protocol: Protocol
    across: tuple[str, ...]
    labels: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]

    @property
    def digest(self) -> str:
        """Digest of the rules that all evaluations share.

        :returns: 64 hex digits; the protocol's own unless rules are compared.
        """
        return self.protocol.digest_without(self.across)

    @property
    def rules(self) -> dict[str, Any]:
        """The rules that all evaluations share.

        :returns: Plain values by name.
        """
        rules = self.protocol.to_json()
        return {name: value for name, value in rules.items() if name not in self.across}

    @property
    def notes(self) -> list[str]:
        """What is to be known beside the numbers.

        :returns: Warnings, each once.
        """
        found = [*(row.note for row in self.rows), *(pair.note for pair in self.pairs)]
        return [note for note in dict.fromkeys(found) if note]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores, in order.

        :returns: Their names.
        """
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    @property
    def prompts(self) -> str:
        """Whose prompts were continued.

        :returns: A corpus id, or that each corpus continued its own or what its label says.
        """
        used = {row.prompt_corpus for row in self.rows}
        if len(used) == 1:
            return used.pop()
        is_own = all(row.prompt_corpus == row.corpus for row in self.rows)
        return "each corpus's own" if is_own else "as named"

    def get_rows(self, metric: str) -> list[Row]:
        """One score of every evaluation.

        :param metric: Its name.
        :returns: Rows in the order of the labels.
        """
        return [row for row in self.rows if row.metric == metric]

    def to_json(self) -> dict[str, Any]:
        """The comparison as the command line writes it.

        :returns: A JSON-ready object.
        """
        return {
            "protocol": self.digest,
            "protocol_fields": self.rules,
            "across": list(self.across),
            "rows": [asdict(row) for row in self.rows],
            "pairs": [pair.to_json() for pair in self.pairs],
        }
