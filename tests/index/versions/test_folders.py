"""Kept versions: what is kept never becomes less, and what goes is what nothing needs."""

import shutil
from dataclasses import replace

import pytest

from cog.atomic import open_staging
from cog.index.read.reader import open_index
from cog.index.versions.folders import (
    Keep,
    add_version,
    find_version,
    iter_kept,
    keep_version,
    prune_versions,
)
from cog.index.versions.manifest import load_manifest
from cog.paths import CorpusPaths
from tests.index.hash_model import build


def test_a_whole_kept_copy_is_not_replaced_by_a_manifest(
    corpus: CorpusPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = build(corpus).manifest
    keep = Keep(frozenset([manifest.digest]), 0)
    keep_version(corpus, keep, successor="f" * 64)
    shutil.rmtree(corpus.index / manifest.folder)  # as after a pull without tables
    monkeypatch.setenv("COG_INDEX_URI", "s3://bucket/indexes")
    keep_version(corpus, keep, successor="f" * 64)
    place = corpus.version(manifest.digest[:16])
    assert (place.index / manifest.folder).is_dir()
    corpus.manifest.unlink()
    with open_index(corpus, digests={"tiny": manifest.digest}) as index:
        assert not index.parts[0].is_remote
        assert index.num_documents == 40


def test_a_damaged_kept_copy_is_replaced_by_a_whole_one(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    place = corpus.version(manifest.digest[:16])
    for _ in range(2):
        add_version(corpus, manifest, corpus.index / manifest.folder)
        assert find_version(replace(corpus, root=corpus.root), manifest.digest) is not None
        assert load_manifest(place) == manifest
        name = next(iter(manifest.files))
        assert (place.index / manifest.folder / name).is_file()
        (place.index / manifest.folder / name).unlink()
    assert [path.name for path in corpus.versions.iterdir()] == [manifest.digest[:16]]


def test_what_another_process_brings_back_is_not_pruned(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    add_version(corpus, manifest, corpus.index / manifest.folder)
    with open_staging(corpus.versions / "cached") as staging:
        (staging / "tiny" / "index" / "0").mkdir(parents=True)
        prune_versions(corpus, Keep(frozenset(), 0))
        assert [path.name for path in corpus.versions.iterdir()] == [staging.name]
        assert (staging / "tiny" / "index" / "0").is_dir()


def test_what_two_killed_processes_left_is_pruned_together(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    for digest in ("a" * 64, "b" * 64):
        add_version(corpus, replace(manifest, digest=digest), corpus.index / manifest.folder)
        left = corpus.versions / f".{digest[:16]}~{'0' * 12}"
        (left / "gone").mkdir(parents=True)
    prune_versions(corpus, Keep(frozenset({"b" * 64}), 0))
    assert [path.name for path in corpus.versions.iterdir()] == ["b" * 16]


def test_a_version_under_another_name_is_none(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    add_version(corpus, manifest, corpus.index / manifest.folder)
    assert [kept.digest for _, kept in iter_kept(corpus)] == [manifest.digest]
    kept = corpus.versions / manifest.digest[:16]
    kept.rename(kept.with_name("backup"))  # it was offered, and looked for without end
    assert list(iter_kept(corpus)) == []
