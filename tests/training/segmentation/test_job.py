"""Segmenting a built corpus: the report, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

from cog.errors import CorpusError
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.training.segmentation.job import Segmentation, SegmentReport, segment_corpus
from tests.index.hash_model import make_documents, write_corpus


@pytest.fixture
def built(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    return ProjectPaths(shutil.copytree(village.root, tmp_path / "copy"))


def segment(paths: ProjectPaths) -> Segmentation:
    return segment_corpus(
        paths, "village", params=load_params(paths.params), progress=SilentProgress()
    )


def test_counts_agree_and_are_kept(built: ProjectPaths) -> None:
    done = segment(built)
    report = done.report
    assert report.num_phrases == sum(report.lengths.values()) > 0
    assert report.copied_words == sum(int(words) * n for words, n in report.lengths.items())
    assert 0 < report.copied_share < 1
    assert set(done.seconds) == {"read", "match", "total"}
    assert done.words_per_second > 0
    content = built.corpus("village").segments.read_text(encoding="utf-8")
    assert SegmentReport(**json.loads(content)) == report
    assert segment(built).report == report


def test_one_document_copies_nothing(built: ProjectPaths) -> None:
    write_corpus(built.corpus("village"), make_documents(1), prefixes=[])
    report = segment(built).report
    assert (report.num_documents, report.num_phrases, report.copied_share) == (1, 0, 0.0)


def test_what_is_missing_is_named(built: ProjectPaths) -> None:
    paths = built.corpus("village")
    write_corpus(paths, [], prefixes=[])
    with pytest.raises(CorpusError, match="must hold documents to segment"):
        segment(built)
    paths.documents.unlink()
    with pytest.raises(CorpusError, match="cog corpus prepare village"):
        segment(built)
    assert not paths.segments.exists()
