"""Segmenting a built corpus: the report, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cog.errors import CorpusError, IndexMismatchError, IndexNotBuiltError
from cog.params import Params, load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.training.segmentation.job import Segmentation, SegmentReport, segment_corpus
from tests.index.hash_model import make_documents, write_corpus


@pytest.fixture
def built(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    return ProjectPaths(shutil.copytree(village.root, tmp_path / "copy"))


def get_params(paths: ProjectPaths, *, source: str = "corpus", top_k: int = 4) -> Params:
    params = load_params(paths.params)
    section = replace(params.segment, source=source, top_k_documents=top_k)
    return replace(params, segment=section)


def segment(paths: ProjectPaths, *, source: str = "corpus", top_k: int = 4) -> Segmentation:
    params = get_params(paths, source=source, top_k=top_k)
    return segment_corpus(paths, "village", params=params, progress=SilentProgress())


@pytest.mark.parametrize("source", ["corpus", "retrieved"])
def test_counts_agree_and_are_kept(built: ProjectPaths, source: str) -> None:
    done = segment(built, source=source)
    report = done.report
    assert report.num_phrases == sum(report.lengths.values()) > 0
    assert report.copied_words == sum(int(words) * n for words, n in report.lengths.items())
    assert 0 < report.copied_share < 1
    assert set(done.seconds) == {"read", "match", "total"}
    assert done.words_per_second > 0
    content = built.corpus("village").segments.read_text(encoding="utf-8")
    assert SegmentReport(**json.loads(content)) == report
    assert segment(built, source=source).report == report


def test_all_chunks_near_copy_no_more_than_every_document(built: ProjectPaths) -> None:
    exact = segment(built).report
    everything = segment(built, source="retrieved", top_k=10_000).report
    few = segment(built, source="retrieved", top_k=1).report
    assert few.copied_words < everything.copied_words <= exact.copied_words
    assert (exact.index_digest, exact.top_k_documents) == ("", 0)
    assert everything.top_k_documents == 10_000
    assert everything.num_words == exact.num_words


def test_one_document_copies_nothing(built: ProjectPaths) -> None:
    write_corpus(built.corpus("village"), make_documents(1), prefixes=[])
    report = segment(built).report
    assert (report.num_documents, report.num_phrases, report.copied_share) == (1, 0, 0.0)


def test_what_is_missing_is_named(built: ProjectPaths) -> None:
    paths = built.corpus("village")
    write_corpus(paths, make_documents(3), prefixes=[])
    with pytest.raises(IndexMismatchError, match="cog index build village"):
        segment(built, source="retrieved")
    paths.manifest.unlink()
    with pytest.raises(IndexNotBuiltError, match="cog index build village"):
        segment(built, source="retrieved")
    write_corpus(paths, [], prefixes=[])
    with pytest.raises(CorpusError, match="must hold documents to segment"):
        segment(built)
    paths.documents.unlink()
    with pytest.raises(CorpusError, match="cog corpus prepare village"):
        segment(built)
    assert not paths.segments.exists()
