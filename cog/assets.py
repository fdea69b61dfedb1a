"""One door for everything fetched: a pinned name goes in, a checked file in the cache comes out.

The cache (``COG_CACHE``, else ``~/.cache/cog``) holds ``wheels/<sha256>/``, ``converted/<key>/``
and ``hub/``. An entry is made in a hidden folder beside its place and renamed into it, under one
lock per entry: a killed process leaves at most a hidden folder, which the next one removes.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cog.atomic import share
from cog.cards import PIN_FORMS
from cog.errors import AssetError, advise_on_writing
from cog.paths import get_cache_folder, is_below, is_member
from cog.progress import Progress

RETRIES = 3
TIMEOUT_SECONDS = 600


def fetch_wheel(
    *,
    package: str,
    version: str,
    sha256: str,
    retries: int = RETRIES,
    timeout_seconds: int = TIMEOUT_SECONDS,
    progress: Progress | None = None,
) -> Path:
    """Fetch a wheel as a file; it is never installed or imported.

    :param package: Distribution name.
    :param version: Exact version.
    :param sha256: Checksum the file must have, 64 hexadecimal digits.
    :param retries: Number of times a broken connection is tried again.
    :param timeout_seconds: Seconds after which the download is given up.
    :param progress: Told about waiting and fetching; None for silence.
    :returns: The wheel in the cache.
    :raises AssetError: If it cannot be fetched, or is not what the checksum says.
    """
    for key, value in (("package", package), ("version", version), ("sha256", sha256)):
        form = PIN_FORMS[key]
        if not form.allows(value):
            message = f"the {key} of a wheel must be {form.wanted}"
            run = "mend it where it is pinned"
            raise AssetError(message, found=repr(value), run=run, about=package)
    name = f"{package} {version}"

    def download(folder: Path) -> None:
        _say(progress, f"fetching {name}")
        _pip_download(
            f"{package}=={version}", folder, retries=retries, timeout_seconds=timeout_seconds
        )
        wheel = _only_wheel(folder)
        if wheel is None:
            raise AssetError(
                f"{name} must come as one wheel", found="no wheel for it", about=package
            )
        found = _digest_file(wheel)
        if found != sha256:
            raise AssetError(
                f"{wheel.name} must have sha256 {sha256}",
                found=f"sha256 {found}; the file was thrown away",
                run="correct the checksum where it is pinned if the new file is to be trusted",
                about=package,
            )

    def is_whole(folder: Path) -> bool:
        wheel = _only_wheel(folder)
        return wheel is not None and _digest_file(wheel) == sha256

    folder = _make_once(
        get_cache_folder() / "wheels" / sha256,
        build=download,
        is_whole=is_whole,
        name=name,
        progress=progress,
    )
    return next(folder.glob("*.whl"))


def extract_members(wheel: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Read files out of a wheel, one at a time, in the order of their names.

    :param wheel: A wheel, or any other zip archive.
    :param patterns: Names inside it, as ``cog.paths.is_member`` reads them.
    :yields: Name and content of each member that a pattern matches.
    :raises AssetError: If the archive is damaged, a pattern matches nothing, or a name points out
        of the archive.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
            for pattern in patterns:
                if not any(is_member(name, [pattern]) for name in names):
                    raise AssetError(
                        f"{wheel.name} must hold {pattern}",
                        found=f"no such member among {len(names)}",
                        about=pattern,
                    )
            for name in names:
                if is_member(name, patterns):
                    if not is_below(name):
                        raise AssetError(
                            f"members of {wheel.name} must stay inside it", found=name, about=name
                        )
                    yield name, archive.read(name)
    except (zipfile.BadZipFile, FileNotFoundError) as error:
        raise AssetError(
            f"{wheel.name} must be a zip archive", found=str(error), about=str(wheel)
        ) from error


def fetch_hub_model(name: str, revision: str) -> Path:
    """Fetch a model from a hub; what a branch or a tag once stood for here, it stands for later.

    :param name: Name on the hub.
    :param revision: Branch, tag or commit.
    :returns: A folder with the model's files, named by the commit.
    :raises AssetError: If the hub is out of reach or has no such model, and the cache neither.
    """
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
            found=_first_line(str(error)) or type(error).__name__,
            run="check the network and the name, or name a local folder",
            about=name,
        ) from error
    return Path(folder)


def convert_cached(
    key: str, build: Callable[[Path], None], *, progress: Progress | None = None
) -> Path:
    """Make a folder once and keep it.

    :param key: Name of the entry; everything that decides its content belongs into it.
    :param build: Fills the empty folder it is given.
    :param progress: Told about waiting; None for silence.
    :returns: The finished folder in the cache.
    :raises ValueError: If the key is no plain file name.
    """
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
    progress: Progress | None,
) -> Path:
    if folder.is_dir() and is_whole(folder):
        _remove_unfinished(folder)
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(folder.parent / f".{folder.name}.lock", name=name, progress=progress):
            if folder.is_dir() and is_whole(folder):
                return folder
            _remove_unfinished(folder)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}~", dir=folder.parent))
            try:
                build(unfinished)
                share(unfinished)
                if folder.exists():
                    shutil.rmtree(folder)
                unfinished.replace(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise AssetError(
            f"{name} must be written to the cache folder {folder.parent}",
            found=str(error),
            run=f"{advise_on_writing(error)}, or set COG_CACHE to another folder",
            about=str(folder),
        ) from error
    return folder


def _remove_unfinished(folder: Path) -> None:
    # what killed processes left; a pip that outlived its parent may still fill one for a while
    for unfinished in folder.parent.glob(f".{folder.name}~*"):
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _hold_lock(path: Path, *, name: str, progress: Progress | None) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(progress, f"waiting for another process that makes {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pip_download(requirement: str, folder: Path, *, retries: int, timeout_seconds: int) -> None:
    words = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--ignore-requires-python", "--disable-pip-version-check", "--no-input", "--quiet"),
        *("--retries", str(retries), "--dest", str(folder), "--", requirement),
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
        found = "" if done.returncode == 0 else _last_error(done.stderr)
    except subprocess.TimeoutExpired:
        found = f"no end after {timeout_seconds} s (fetch.timeout_seconds)"
    if not found:
        return
    run = "check the network and the package registry that pip is set up for, then try again"
    if "No module named pip" in found:
        run = f"{sys.executable} -m ensurepip"
    raise AssetError(
        f"{requirement} must be fetched once with pip", found=found, run=run, about=requirement
    )


def _last_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed and said nothing"])[-1]


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _only_wheel(folder: Path) -> Path | None:
    wheels = sorted(folder.glob("*.whl"))
    return wheels[0] if len(wheels) == 1 else None


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(progress: Progress | None, message: str) -> None:
    if progress is not None:
        progress.say(message)
