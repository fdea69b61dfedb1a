"""Files over HTTP from a server that resumes, cuts off, lies, changes its files and redirects."""

import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cog import assets, download
from cog.download import Limits, name_file
from cog.errors import AssetError
from cog.progress import SILENT, Progress
from tests.told import Told
from tests.web_server import WebServer, run_server

DATA = random.Random(0).randbytes(700_000)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with run_server() as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "urls"


def fetch(
    address: str,
    *,
    sha256: str | None = None,
    max_bytes: int = 10**6,
    retries: int = 2,
    timeout_seconds: int = 30,
    notes: Progress = SILENT,
) -> Path:
    return assets.fetch_url(
        address,
        sha256=sha256,
        pinned_in="the card",
        limits=Limits(max_bytes, retries, timeout_seconds),
        progress=notes,
    )


def refusal(cache: Path, address: str, **wishes: object) -> str:
    """Fetch what must be refused in one line, and leave nothing but the lock behind."""
    with pytest.raises(AssetError) as caught:
        fetch(address, **wishes)  # type: ignore[arg-type]
    key = hashlib.sha256(address.encode()).hexdigest()
    assert [each.name for each in cache.iterdir() if key in each.name] == [f".{key}.lock"]
    message = str(caught.value)
    assert message.startswith(address)
    assert "\n" not in message
    return message.removeprefix(address)


def test_a_file_is_fetched_once(web: WebServer, cache: Path) -> None:
    address = web.put("/set/a%20b.txt", DATA)
    file = fetch(address)
    assert (file.name, file.read_bytes()) == ("a b.txt", DATA)
    assert fetch(address, sha256=hashlib.sha256(DATA).hexdigest()) == file
    assert len(web.asked) == 1
    assert sorted(each.name.startswith(".") for each in cache.iterdir()) == [False, True]


def test_what_was_cut_off_goes_on(web: WebServer, cache: Path) -> None:
    address = web.put("/a.txt", DATA, cut_after=300_000)
    notes = Told()
    assert fetch(address, retries=1, notes=notes).read_bytes() == DATA
    assert [asked for _, asked in web.asked] == ["", "bytes=300000-", "bytes=600000-"]
    assert notes.lines[1] == "the answer ended after 300,000 of 700,000 bytes: trying again"


@pytest.mark.parametrize("rules", [{"has_ranges": False}, {"tag": ""}, {"tag": 'W/"1"'}])
def test_without_ranges_or_a_tag_it_begins_anew(
    web: WebServer, cache: Path, rules: dict[str, object]
) -> None:
    address = web.put("/a.txt", DATA, cut_after=300_000, num_cuts=1, **rules)
    assert fetch(address).read_bytes() == DATA


def test_a_file_that_changed_in_between_is_not_mixed(web: WebServer, cache: Path) -> None:
    address = web.put("/a.txt", DATA, cut_after=300_000, num_cuts=1)
    key = hashlib.sha256(address.encode()).hexdigest()
    cache.mkdir(parents=True)
    (cache / f".{key}.part").write_bytes(b"of another file")
    (cache / f".{key}.part.tag").write_text('"0"')
    assert fetch(address).read_bytes() == DATA
    assert not list(cache.glob("*.tag"))
    (cache / f".{key}.part").write_bytes(DATA + b"longer than the file is now")
    (cache / f".{key}.part.tag").write_text('"1"')
    assert fetch(address).read_bytes() == DATA


def test_an_address_where_nobody_answers_is_told_without_numbers(cache: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    assert refusal(cache, f"http://127.0.0.1:{port}/a.txt", retries=0) == (
        " must be within reach, and whole; found: Connection refused; next: try again later"
    )


def test_what_ends_early_each_time_is_refused(web: WebServer, cache: Path) -> None:
    address = web.put("/a.txt", DATA, cut_after=300_000, has_ranges=False)
    assert refusal(cache, address) == (
        " must be within reach, and whole; found: the answer ended after 300,000 of 700,000 bytes;"
        " next: try again later"
    )
    assert len(web.asked) == 3  # one that brought something, and two tries more
    claimed = web.put("/b.txt", DATA, claims=900_000)
    assert "ended after 700,000 of 900,000 bytes" in refusal(cache, claimed, retries=0)


def test_what_is_larger_than_said_is_refused(web: WebServer, cache: Path) -> None:
    stated = refusal(cache, web.put("/a.txt", DATA), max_bytes=500_000)
    assert stated == (
        " must have 500,000 bytes at most; found: 700,000 or more; next: raise source.max_bytes"
        " in the card if that is right"
    )
    unstated = refusal(cache, web.put("/b.txt", DATA, claims=-1), max_bytes=500_000)
    assert "must have 500,000 bytes at most" in unstated


def test_a_checksum_must_fit(web: WebServer, cache: Path) -> None:
    address = web.put("/a.txt", DATA)
    assert "as the card says; found: sha256 " in refusal(cache, address, sha256="0" * 64)
    right = hashlib.sha256(DATA).hexdigest()
    file = fetch(address, sha256=right)
    file.write_bytes(b"damaged")
    assert fetch(address, sha256=right).read_bytes() == DATA


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"<p>log in</p>", "text/html; charset=utf-8"),
        (b"\n <!DOCTYPE HTML><p>log in</p>", "application/octet-stream"),
    ],
)
def test_a_page_is_no_data(web: WebServer, cache: Path, content: bytes, content_type: str) -> None:
    address = web.put("/a.txt", content, content_type=content_type)
    assert "must give data; found: an HTML page" in refusal(cache, address)
    page = web.put("/a.html", content, content_type=content_type)
    assert fetch(page).read_bytes() == content


def test_a_redirect_to_a_file_is_refused(web: WebServer, cache: Path) -> None:
    message = refusal(cache, web.put("/a.txt", location="file:///a"))
    assert message.startswith(" must be where it is said to be; found: 302 ")
    assert "'file:///a' is not allowed" in message


@pytest.mark.parametrize("target", ["https://127.0.0.1/a", "ftp://127.0.0.1/a"])
def test_a_redirect_to_another_scheme_is_refused(web: WebServer, cache: Path, target: str) -> None:
    message = refusal(cache, web.put("/a.txt", location=target))
    assert message.startswith(f" must not lead from http to another scheme; found: {target}")


def test_a_redirect_is_followed_and_a_circle_is_not(web: WebServer, cache: Path) -> None:
    web.put("/b.txt", DATA)
    assert fetch(web.put("/a.txt", location="/b.txt")).read_bytes() == DATA
    assert "must be where it is said to be" in refusal(cache, web.put("/c", location="/c"))


def test_refusals_of_the_server_are_told(web: WebServer, cache: Path) -> None:
    missing = refusal(cache, f"{web.address}/gone.txt")
    assert missing.startswith(" must be there; found: 404 ")
    assert len(web.asked) == 1
    busy = web.put("/a.txt", DATA, status=[503, 429])
    assert fetch(busy).read_bytes() == DATA
    web.asked.clear()
    assert "found: 500" in refusal(cache, web.put("/b.txt", DATA, status=[500] * 9))
    assert len(web.asked) == 3


def test_a_host_out_of_reach_is_told(web: WebServer, cache: Path) -> None:
    assert "must be within reach" in refusal(cache, "http://127.0.0.1:1/a.txt", retries=0)


def test_a_killed_process_left_what_the_next_goes_on_with(web: WebServer, cache: Path) -> None:
    address = web.put("/a.txt", DATA, cut_after=300_000, num_cuts=1)
    code = (
        "import sys\n"
        "from cog import assets, download\n"
        "download.PAUSE_SECONDS = 60\n"
        "assets.fetch_url(sys.argv[1], sha256=None, pinned_in='', "
        "limits=download.Limits(10**6, 9, 60))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, address], env=dict(os.environ))
    part = cache / f".{hashlib.sha256(address.encode()).hexdigest()}.part"
    while process.poll() is None and (not part.exists() or part.stat().st_size < 300_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert fetch(address).read_bytes() == DATA
    assert [asked for _, asked in web.asked] == ["", "bytes=300000-"]


def test_names_of_files() -> None:
    for address, name in (
        ("https://example.org/set/en.txt.gz", "en.txt.gz"),
        ("https://example.org/en.txt?version=3", "en.txt"),
        ("https://example.org", "data"),
        ("https://example.org/a%2Fb", "data"),
        ("https://example.org/%00", "data"),
        ("https://example.org/..%2f", "data"),
        ("https://example.org/..", "data"),
    ):
        assert name_file(address) == name
