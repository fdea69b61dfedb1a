"""Sources of type ``url``: files, archives, checksums that are kept, and what is refused."""

import gzip
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cog import download
from cog.cards import Card, format_card, parse_card
from cog.corpus.fetch import fetch_corpus
from cog.corpus.sources import SourceRecord
from cog.errors import AssetError, CorpusError, InvalidCardError, RegistryError
from cog.params import FetchParams
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.registry import load_fetched
from tests.calling import call, call_json, refusal
from tests.corpus.building import make_card, make_content
from tests.test_archives import make_archive
from tests.web_server import WebServer, run_server

TEXT = b"The old mill stands by the river.\nIts wheel has not turned for years.\n"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WebServer]:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    with run_server() as server:
        yield server


def make_web_card(*urls: str, **rules: Any) -> Card:  # noqa: ANN401
    return make_card(source={"type": "url", "urls": list(urls), **rules})


def fetch(project: ProjectPaths, card: Card) -> SourceRecord:
    return fetch_corpus(
        card,
        corpus_paths=project.corpus(card.id),
        source=None,
        params=FetchParams(retries=1, timeout_seconds=30),
        progress=SilentProgress(),
    )


def test_files_and_members_of_archives_lie_in_raw(
    web: WebServer, project: ProjectPaths, tmp_path: Path
) -> None:
    packed = {"set/en.txt": TEXT, "set/de.txt": b"Die alte"}
    first = make_archive(tmp_path / "first.zip", packed).read_bytes()
    second = make_archive(tmp_path / "second.tar.gz", packed).read_bytes()
    card = make_web_card(
        web.put("/plain.txt.gz?version=2", gzip.compress(TEXT)).replace("?version=2", ""),
        web.put("/first.zip", first),
        web.put("/second.tar.gz", second),
        members=["en.txt"],
    )
    web.put("/plain.txt.gz", gzip.compress(TEXT))
    record = fetch(project, card)
    raw = project.corpus(card.id).raw
    names = ["plain.txt.gz", "first/set/en.txt", "second/set/en.txt"]
    assert [entry.name for entry in record.files] == names
    assert (raw / "first/set/en.txt").read_bytes() == TEXT
    assert record.origin == "url"
    alone = fetch(project, make_web_card(f"{web.address}/first.zip", members=["*/en.txt"]))
    assert [entry.name for entry in alone.files] == ["set/en.txt"]


def test_a_file_is_kept_in_mind_and_refused_when_it_changes(
    web: WebServer, project: ProjectPaths, tmp_path: Path
) -> None:
    address = web.put("/en.txt", TEXT)
    fetch(project, make_web_card(address))
    assert load_fetched(project) == {address: hashlib.sha256(TEXT).hexdigest()}
    web.put("/en.txt", b"Something else.\n")
    fetch(project, make_web_card(address))  # from the cache
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(AssetError, match=r"as registry/fetched.yaml says; found: sha256 \w+; the"):
        fetch(project, make_web_card(address))
    assert (project.corpus("village").raw / "en.txt").read_bytes() == TEXT
    project.fetched.unlink()
    fetch(project, make_web_card(address))
    assert (project.corpus("village").raw / "en.txt").read_bytes() == b"Something else.\n"
    project.fetched.write_text("- no mapping\n")
    with pytest.raises(RegistryError, match=r"fetched.yaml must be a mapping.*rm registry/"):
        fetch(project, make_web_card(address))


def test_a_checksum_in_the_card_is_held(web: WebServer, project: ProjectPaths) -> None:
    address = web.put("/en.txt", TEXT)
    right = hashlib.sha256(TEXT).hexdigest()
    fetch(project, make_web_card(f"{address}#sha256={right}"))
    assert load_fetched(project) == {}
    with pytest.raises(AssetError, match=f"must have sha256 {'0' * 64}, as village.yaml says"):
        fetch(project, make_web_card(f"{address}#sha256={'0' * 64}"))


def test_what_is_refused_leaves_the_old_files(web: WebServer, project: ProjectPaths) -> None:
    fetch(project, make_web_card(web.put("/en.txt", TEXT)))
    with pytest.raises(AssetError, match="must have 10 bytes at most"):
        fetch(project, make_web_card(web.put("/two.txt", TEXT), max_bytes=10))
    with pytest.raises(CorpusError, match=r"names of their own.*found: en.txt, 2 times"):
        fetch(project, make_web_card(f"{web.address}/en.txt", web.put("/other/en.txt", TEXT)))
    raw = project.corpus("village").raw
    assert (raw / "en.txt").read_bytes() == TEXT
    assert [path.name for path in raw.parent.iterdir()] == ["raw"]
    assert list(load_fetched(project)) == [f"{web.address}/en.txt"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"urls": "ftp://example.org/a"},
            "urls must be http or https addresses, each with #sha256",
        ),
        ({"urls": "https://user:key@example.org/a"}, "urls must be http or https addresses"),
        ({"urls": "https://example.org/a#sha256=1"}, "urls must be http or https addresses"),
        ({"urls": "https://example.org/a b"}, "urls must be http or https addresses"),
        ({"urls": []}, "urls must be http or https addresses"),
        ({}, "urls is needed for type url"),
        ({"urls": "https://example.org/a.zip"}, "members must name the files to take of archives"),
        ({"urls": "https://example.org/a.txt", "members": "*"}, "members must name the files"),
        ({"urls": "https://example.org/a", "max_bytes": 0}, "max_bytes must be a whole number"),
        ({"urls": "https://example.org/a", "path": "a"}, "path is no field of type url"),
    ],
)
def test_cards_that_name_no_file_are_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCardError) as caught:
        parse_card(make_content(source={"type": "url", **source}), "village.yaml")
    assert message in str(caught.value)


def test_a_card_is_read_as_it_is_written() -> None:
    card = make_web_card("https://example.org/a.zip", members=["*.txt"], max_bytes=10)
    content = yaml.safe_load(yaml.safe_dump(format_card(card)))
    assert set(content["source"]) == {"type", "urls", "members", "max_bytes"}
    assert parse_card(content, "village.yaml") == card


def test_a_corpus_is_added_by_its_address(
    web: WebServer, project: ProjectPaths, tmp_path: Path
) -> None:
    packed = make_archive(tmp_path / "a.zip", {"set/a.txt": TEXT, "set/b.md": b"b"}).read_bytes()
    words = ("corpus", "add", "reports", web.put("/a.zip", packed), "--members", "*.txt")
    assert call(project, *words).exception is None
    found = call_json(project, "corpus", "show", "reports")["card"]
    assert found["source"]["urls"] == f"{web.address}/a.zip"
    assert (found["format"]["kind"], found["format"]["documents"]) == ("text", "file")
    fetched = call_json(project, "corpus", "fetch", "reports")
    assert [each["name"] for each in fetched["files"]] == ["set/a.txt"]
    assert call(project, "corpus", "add", "lines", web.put("/b.txt", TEXT)).exception is None
    assert call_json(project, "corpus", "show", "lines")["card"]["format"]["documents"] == (
        "blank-line"
    )
    error = refusal(project, "corpus", "add", "odd", f"{web.address}/data?id=3")
    assert error.run.startswith("pass --format KIND")
