"""One file over HTTP, for ``cog.assets``: an address goes in, the whole file comes out, resumed."""

import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cog.errors import AssetError
from cog.version import __version__

BLOCK_BYTES = 1 << 18
SOCKET_SECONDS = 60  # without a byte
PAUSE_SECONDS = 1.0  # before the first further try, then twice as long, and so on
MAX_PAUSE_SECONDS = 30.0
TRY_AGAIN = (408, 429)  # of the refusals
_HTML = (b"<!doctype html", b"<html")
_HTML_ENDINGS = (".html", ".htm", ".xhtml")


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a download."""

    max_bytes: int  # size of the file, at most
    retries: int  # number of tries in a row that may bring nothing
    timeout_seconds: int  # seconds after which one try is given up


def name_file(address: str) -> str:
    """The last part of an address, as a file's name; ``data`` where it is none."""
    name = unquote(PurePosixPath(urlsplit(address).path).name)
    is_name = name.isprintable() and "/" not in name and len(name) <= 200 and name.strip(".")
    return name if is_name else "data"


def download_file(address: str, path: Path, *, limits: Limits, say: Callable[[str], None]) -> None:
    """Fetch a file, or what is missing of one that was broken off by a kill.

    A file that is refused is removed: one that is too large, a page instead of data, or elsewhere.
    """
    best, left, pause = _get_size(path), limits.retries, PAUSE_SECONDS
    try:
        while problem := _try(address, path, limits):
            if _get_size(path) > best:
                best, left, pause = _get_size(path), limits.retries, PAUSE_SECONDS
            if not left:
                raise _refuse(
                    address, "must be within reach, and whole", problem, run="try again later"
                )
            left -= 1
            say(f"{problem}: trying again")
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
    except (AssetError, OSError):  # a full disk, too; after a kill the rest is fetched
        path.unlink(missing_ok=True)
        _get_tag_path(path).unlink(missing_ok=True)
        raise
    _get_tag_path(path).unlink(missing_ok=True)


def _try(address: str, path: Path, limits: Limits) -> str:
    # one try; what went wrong, empty if nothing did
    tag_path = _get_tag_path(path)
    begun, tag = _get_size(path), tag_path.read_text() if tag_path.exists() else ""
    headers = {"User-Agent": f"cog/{__version__}", "Accept-Encoding": "identity"}
    if begun and tag:  # the rest of the same file, else all of it
        headers |= {"Range": f"bytes={begun}-", "If-Range": tag}
    timeout = min(SOCKET_SECONDS, limits.timeout_seconds)
    deadline = time.monotonic() + limits.timeout_seconds
    try:
        response = build_opener(_Redirects()).open(
            Request(address, headers=headers), timeout=timeout
        )
    except HTTPError as error:
        return _explain_status(error, address, path)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        stated = reason.strerror if isinstance(reason, OSError) else ""  # without its number
        return stated or str(reason) or type(reason).__name__
    with response:
        try:
            return _receive(response, address, path, limits=limits, deadline=deadline)
        except _BrokenOffError as error:
            return str(error)


def _receive(
    response: http.client.HTTPResponse, address: str, path: Path, *, limits: Limits, deadline: float
) -> str:
    content_type = response.headers.get_content_type()
    length = response.headers.get("Content-Length", "")
    begun = _get_size(path) if response.status == 206 else 0
    stated = response.headers.get("Content-Range", "")
    if begun and not stated.startswith(f"bytes {begun}-"):
        path.unlink()
        return f"another part of the file came than was asked for ({stated or 'not said which'})"
    total = begun + int(length) if length.isdecimal() else None
    _check_size(total or 0, address, limits)
    if not begun:
        _get_tag_path(path).write_text(_find_tag(response))
    with path.open("ab" if begun else "wb") as file:
        size = begun
        while block := _read(response):
            if not size:
                _check_data(block, content_type, address)
            size += len(block)
            _check_size(size, address, limits)
            file.write(block)
            if time.monotonic() > deadline:
                return f"no end after {limits.timeout_seconds} s (fetch.timeout_seconds)"
    return "" if total in (None, size) else f"the answer ended after {size:,} of {total:,} bytes"


class _BrokenOffError(Exception):
    pass


def _read(response: http.client.HTTPResponse) -> bytes:
    # what the network raises is told apart from what the disk does
    try:
        return response.read(BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from None


def _find_tag(response: http.client.HTTPResponse) -> str:
    # what tells the server that the rest of this very file is wanted; a weak tag may not
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _check_size(num_bytes: int, address: str, limits: Limits) -> None:
    if num_bytes > limits.max_bytes:
        raise _refuse(
            address,
            f"must have {limits.max_bytes:,} bytes at most",
            f"{num_bytes:,} or more",
            run="raise source.max_bytes in the card if that is right",
        )


def _check_data(begin: bytes, content_type: str, address: str) -> None:
    is_page = content_type in ("text/html", "application/xhtml+xml")
    is_page |= begin.lstrip()[:32].lower().startswith(_HTML)
    if is_page and not name_file(address).lower().endswith(_HTML_ENDINGS):
        raise _refuse(
            address, "must give data", "an HTML page", run="look at it in a browser: it may say why"
        )


def _explain_status(error: HTTPError, address: str, path: Path) -> str:
    with error:
        found = f"{error.code} {error.reason}".strip()
        if 300 <= error.code < 400:
            raise _refuse(address, "must be where it is said to be", found) from None
        if error.code == 416:  # there is no such rest: the file is another one now
            path.unlink(missing_ok=True)
        elif 400 <= error.code < 500 and error.code not in TRY_AGAIN:
            raise _refuse(
                address, "must be there", found, run="mend source.urls in the card"
            ) from None
        return found


class _Redirects(HTTPRedirectHandler):
    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Any:  # noqa: ANN401
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if before != after:
            fp.close()
            raise _refuse(
                req.full_url,
                f"must not lead from {before} to another scheme",
                newurl,
                run="write that address in the card if it is to be trusted",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse(address: str, wanted: str, found: str, *, run: str = "") -> AssetError:
    return AssetError(f"{address} {wanted}", found=found, run=run)


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _get_tag_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.tag")
