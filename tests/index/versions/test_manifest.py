"""The manifest: round trip, and every way in which it or its folder can be wrong."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from cog.errors import IndexMismatchError, IndexNotBuiltError
from cog.index.records import Manifest
from cog.index.versions.manifest import check_index, load_manifest
from cog.paths import CorpusPaths
from tests.index.hash_model import build


def check(corpus: CorpusPaths, model: str | None = None) -> Manifest:
    return check_index(corpus, model_fingerprint=model, documents_digest=None)


@pytest.fixture
def built(corpus: CorpusPaths) -> Manifest:
    return build(corpus).manifest


def test_manifest_comes_back_as_it_was(corpus: CorpusPaths, built: Manifest) -> None:
    assert load_manifest(corpus) == built
    assert check(corpus, "a" * 64) == built


def test_missing_manifest_names_the_command(corpus: CorpusPaths) -> None:
    with pytest.raises(IndexNotBuiltError) as caught:
        check(corpus)
    assert caught.value.run == "cog index build tiny"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format_version": "1"}', b"\x00" * 100]
)
@pytest.mark.usefixtures("built")
def test_corrupt_manifest_is_refused(corpus: CorpusPaths, content: bytes) -> None:
    corpus.manifest.write_bytes(content)
    with pytest.raises(IndexMismatchError) as caught:
        check(corpus)
    assert caught.value.run == "cog index build tiny --force"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.usefixtures("built")
def test_older_format_names_the_build_that_may_reuse(corpus: CorpusPaths, version: int) -> None:
    corpus.manifest.write_text(json.dumps({"format_version": version}))
    with pytest.raises(IndexMismatchError, match=f"format 3.*found: format {version}") as caught:
        check(corpus)
    assert caught.value.run == "cog index build tiny"


def set_key(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content.__setitem__(key, value)


def set_file(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["files"].update({name: {"size_bytes": 1, "sha256": "0" * 64}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("format_version", 99), "format 99"),
        (set_key("num_chunks", "many"), "num_chunks must be a whole number; found: 'many'"),
        (set_key("vectors", None), "vectors must be a mapping; found: null"),
        (set_key("folder", "../../elsewhere"), "named by a digest"),
        (set_key("folder", "0123456789abcdef"), "no such folder"),
        (set_key("digest", "../" * 30), "a digest of 64 hex digits"),
        (set_file("../../elsewhere"), r"files below its folder; found: '\.\./"),
        (set_file("/elsewhere"), "files below its folder; found: '/"),
        (set_key("extra", 1), "extra is no known key"),
        (lambda content: content.pop("search"), "search is missing"),
        (
            lambda content: content["seconds"].update(total="1"),
            "total must be a number; found: '1'",
        ),
    ],
)
@pytest.mark.usefixtures("built")
def test_wrong_manifest_is_refused(
    corpus: CorpusPaths, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    content = json.loads(corpus.manifest.read_text())
    change(content)
    corpus.manifest.write_text(json.dumps(content))
    with pytest.raises(IndexMismatchError, match=message):
        check(corpus)


def test_missing_version_folder_is_refused(corpus: CorpusPaths, built: Manifest) -> None:
    shutil.rmtree(corpus.index / built.folder)
    with pytest.raises(IndexMismatchError, match="cog index build tiny"):
        check(corpus)


def test_missing_and_short_files_are_refused(corpus: CorpusPaths, built: Manifest) -> None:
    path = corpus.index / built.folder / next(name for name in built.files if "data/" in name)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(IndexMismatchError, match=f"{len(content) - 1} bytes"):
        check(corpus)
    path.unlink()
    with pytest.raises(IndexMismatchError, match="no such file"):
        check(corpus)


def test_another_model_is_refused_naming_both(corpus: CorpusPaths, built: Manifest) -> None:
    with pytest.raises(IndexMismatchError) as caught:
        check(corpus, "e" * 64)
    assert "e" * 16 in str(caught.value)
    assert built.model[:16] in str(caught.value)
