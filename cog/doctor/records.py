"""Records of the doctor: plain values; nothing here reads or computes."""

from dataclasses import dataclass

from cog.errors import CogError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    # what sort of thing: `card`, `pipeline`, `raw`, `documents`, `counts`, `index`, `recall`,
    # `orphan`, `lock`, `active`, `model`, `dvc`, `mlflow`, `install` or `disk`
    kind: str
    about: str  # what it is about: a corpus id, or a path in the project
    problem: str  # what is wrong, one line
    run: str  # the command, or the edit, that mends it


def from_error(kind: str, about: str, error: CogError, *, run: str = "") -> Finding:
    """Make a finding of a stated failure, with its own command unless one is given."""
    found = f" (found: {error.found})" if error.found else ""
    problem = " ".join(f"{error.wanted}{found}".split())
    return Finding(kind, about, problem, run or error.run or "cog status")
