"""Segmenting a built corpus: the file, its report, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cog.corpus.documents import DocumentStore
from cog.errors import CorpusError, IndexMismatchError, IndexNotBuiltError
from cog.params import Params, load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.training.segmentation.job import Segmentation, segment_corpus
from cog.training.segmentation.store import SegmentWriter, iter_segments, load_segment_report
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
def test_every_phrase_is_the_slice_it_points_to(built: ProjectPaths, source: str) -> None:
    done = segment(built, source=source)
    path = built.corpus("village").segments
    store = DocumentStore(built.corpus("village").documents)
    texts = {document.document_id: document.text for document in store.iter_documents()}
    rows = list(iter_segments(path))
    assert [row.document_id for row in rows] == list(texts)
    phrases = [(row.document_id, phrase) for row in rows for phrase in row.phrases]
    assert phrases
    for document_id, phrase in phrases:
        assert phrase.source_document_id != document_id
        written = texts[document_id][phrase.char_start : phrase.char_end]
        source_text = texts[phrase.source_document_id]
        assert written == source_text[phrase.source_char_start : phrase.source_char_end]
    for row in rows:
        ends = [0, *(phrase.char_end for phrase in row.phrases)]
        assert all(phrase.char_start >= end for phrase, end in zip(row.phrases, ends, strict=False))
    report = load_segment_report(path)
    assert report == done.report
    assert report.num_phrases == len(phrases) == sum(report.lengths.values())
    assert report.copied_words == sum(phrase.num_words for _, phrase in phrases)
    assert report.num_words == sum(row.num_words for row in rows)
    assert 0 < report.copied_share < 1
    assert set(done.seconds) == {"read", "match", "write", "total"}
    assert done.words_per_second > 0


def test_all_chunks_near_copy_no_more_than_every_document(built: ProjectPaths) -> None:
    exact = segment(built).report
    everything = segment(built, source="retrieved", top_k=10_000).report
    few = segment(built, source="retrieved", top_k=1).report
    assert few.copied_words < everything.copied_words <= exact.copied_words
    assert (exact.index_digest, exact.top_k_documents) == ("", 0)
    assert everything.top_k_documents == 10_000
    assert everything.num_words == exact.num_words


def test_the_same_run_writes_the_same_bytes(built: ProjectPaths) -> None:
    path = built.corpus("village").segments
    first = segment(built).report
    content = path.read_bytes()
    assert segment(built).report == first
    assert path.read_bytes() == content
    assert segment(built, source="retrieved").report.digest != first.digest


def test_one_document_copies_nothing(built: ProjectPaths) -> None:
    write_corpus(built.corpus("village"), make_documents(1), prefixes=[])
    report = segment(built).report
    assert (report.num_documents, report.num_phrases, report.copied_share) == (1, 0, 0.0)
    (row,) = iter_segments(built.corpus("village").segments)
    assert row.phrases == ()


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


def test_a_run_that_breaks_leaves_the_old_file(built: ProjectPaths) -> None:
    path = built.corpus("village").segments
    segment(built)
    before = path.read_bytes()
    with pytest.raises(RuntimeError), SegmentWriter(path):
        raise RuntimeError
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.glob(".segments*")] == []


def test_another_file_is_refused(built: ProjectPaths) -> None:
    path = built.corpus("village").segments
    with pytest.raises(CorpusError, match="cog segment --corpus village"):
        load_segment_report(path)
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(CorpusError, match="cog segment --corpus village"):
        list(iter_segments(path))
    shutil.copy(built.corpus("village").documents, path)
    with pytest.raises(CorpusError, match="found: the columns"):
        load_segment_report(path)
    segment(built)
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    with pytest.raises(CorpusError, match="next: cog segment"):
        load_segment_report(path)
