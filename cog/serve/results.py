"""``/api/results``: the evaluations that a project keeps, grouped by what may be compared."""

from functools import lru_cache
from typing import Any

from starlette.requests import Request

from cog.evaluation.overview import load_overview
from cog.index.versions.activation import get_status
from cog.paths import ProjectPaths
from cog.serve.engine import Engine

Stamps = tuple[tuple[str, int], ...]


def tell_results(engine: Engine, _request: Request) -> dict[str, Any]:
    """Groups of evaluations with their scores."""
    return _load(engine.paths, _stamp(engine.paths))


@lru_cache(maxsize=1)  # intervals of differences take seconds
def _load(paths: ProjectPaths, _stamps: Stamps) -> dict[str, Any]:
    overview = load_overview(paths)
    return {
        "groups": [group.to_json() for group in overview.groups],
        "notes": overview.notes,
        "problems": list(overview.problems),
        "run": _name_first(paths),
    }


def _stamp(paths: ProjectPaths) -> Stamps:
    # changes with every evaluation that is kept, every index that is built and every run
    files = [*paths.corpora.glob("*/evaluations/*.json"), *paths.corpora.glob("*/evaluation.json")]
    files += [*paths.corpora.glob("*/manifest.json"), paths.runs_database]
    return tuple((str(each), each.stat().st_mtime_ns) for each in sorted(files) if each.is_file())


def _name_first(paths: ProjectPaths) -> str:
    status = get_status(paths)
    if status.active is None or status.is_broken:
        return status.run or "cog status"
    return f"cog evaluate --corpus {status.active.corpus}"
