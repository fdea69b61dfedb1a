"""Files from the web: a card's addresses go in, their files, or what archives hold, lie in raw/."""

import shutil
from collections import Counter
from pathlib import Path

from cog.archives import is_archive, unpack_members
from cog.assets import fetch_url
from cog.card_source import DEFAULT_MAX_BYTES, Source
from cog.corpus.sources import SOURCE_FILE
from cog.download import Limits
from cog.errors import CorpusError
from cog.hashing import hash_file
from cog.params import FetchParams
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.registry import load_fetched, record_fetched


def save_addresses(
    source: Source,
    raw: Path,
    *,
    card_file: str,
    project: ProjectPaths,
    params: FetchParams,
    progress: Progress,
) -> list[str]:
    """Fetch the files of a source of type ``url``; archives are unpacked.

    What has no checksum in the card is kept in mind as it comes first; another is refused later.
    """
    limits = Limits(source.max_bytes or DEFAULT_MAX_BYTES, params.retries, params.timeout_seconds)
    known = load_fetched(project)
    new: dict[str, str] = {}
    names: list[str] = []
    for stated in source.urls:
        address, _, pin = stated.partition("#sha256=")
        file = fetch_url(
            address,
            sha256=pin or known.get(address),
            pinned_in=card_file if pin else project.fetched.relative_to(project.root).as_posix(),
            limits=limits,
            progress=progress,
        )
        if not pin and address not in known:
            new[address] = hash_file(file)
        names += _place(file, raw, source=source, max_bytes=limits.max_bytes)
    _check_names(names)
    if new:
        record_fetched(project, new)
    return names


def _place(file: Path, raw: Path, *, source: Source, max_bytes: int) -> list[str]:
    if not is_archive(file.name):
        shutil.copyfile(file, raw / file.name)
        return [file.name]
    # of several archives, which may hold the same names, each has a folder
    folder = f"{file.name.partition('.')[0]}/" if len(source.urls) > 1 else ""
    names = unpack_members(file, source.members, raw / folder, max_bytes=max_bytes)
    return [f"{folder}{name}" for name in names]


def _check_names(names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1 or name == SOURCE_FILE:
            raise CorpusError(
                f"files of a source must have names of their own, and not {SOURCE_FILE}",
                found=f"{name}, {count} times",
                run="leave one of them out of source.urls, or rename it where it lies",
            )
