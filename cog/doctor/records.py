"""Records of the doctor: plain values; nothing here reads or computes."""

from dataclasses import dataclass

from cog.errors import CogError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    :param kind: What sort of thing: ``card``, ``pipeline``, ``raw``, ``documents``, ``counts``,
        ``index``, ``recall``, ``orphan``, ``lock``, ``active``, ``model``, ``dvc``, ``mlflow``,
        ``install`` or ``disk``.
    :param about: What it is about: a corpus id, or a path in the project.
    :param problem: What is wrong, one line.
    :param run: The command, or the edit, that mends it.
    """

    kind: str
    about: str
    problem: str
    run: str


def from_error(kind: str, about: str, error: CogError, *, run: str = "") -> Finding:
    """Make a finding of a stated failure, with its own command unless one is given."""
    found = f" (found: {error.found})" if error.found else ""
    problem = " ".join(f"{error.wanted}{found}".split())
    return Finding(kind, about, problem, run or error.run or "cog status")
