"""The model of a switch: a fingerprint goes in, the folder that holds that model comes out.

``params.yaml`` says which model builds; what is switched on keeps the one it was switched on with.
"""

from collections.abc import Iterable
from pathlib import Path

from cog.dvc_lock import load_outs
from cog.errors import CheckpointError, IndexMismatchError
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.records import Active

MAX_NAMED = 3  # folders that a message names


def get_active_model(paths: ProjectPaths, params: Params, active: Active) -> Path:
    """Find the folder that holds the model of what is active: the recorded, else any other."""
    names = [active.model_folder or params.model, params.model]
    return paths.model(find_model(paths, names, active.model, corpus_id=active.corpus))


def find_model(
    paths: ProjectPaths, names: Iterable[str], fingerprint: str, *, corpus_id: str
) -> str:
    """Find the folder whose model has a fingerprint: one that is named, else one in ``models/``."""
    found = {}
    others = [path.relative_to(paths.root).as_posix() for path in sorted(paths.models.glob("*/"))]
    for name in dict.fromkeys([*names, *others]):
        other = _describe(paths.model(name))
        if other == fingerprint:
            return name
        found[name] = other if " " in other else f"model {other[:16]}"
    first = next(iter(found))
    known = [f"{name}: {each}" for name, each in found.items()][:MAX_NAMED]
    raise IndexMismatchError(
        f"corpus {corpus_id} needs model {fingerprint[:16]}, as it was switched on or built with",
        found=", ".join(known),
        run=f"{_restore(paths, first)}, or cog switch --corpus {corpus_id}",
    )


def _describe(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    try:
        return fingerprint_model(folder)
    except CheckpointError as error:
        return f"no model ({error.wanted}; {error.found})"


def _restore(paths: ProjectPaths, name: str) -> str:
    is_in_dvc = (paths.root / f"{name}.dvc").is_file() or name in load_outs(paths.dvc_lock)
    if is_in_dvc:
        return f"dvc checkout {name} at the git revision that had it"
    return f"git checkout REVISION -- {name} (git log -- {name} lists them)"
