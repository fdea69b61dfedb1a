"""The index of a project's corpus with a real (tiny) model: built, opened, verified."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from cog.corpus.documents import find_documents_digest
from cog.errors import CorpusError
from cog.index.project import build_corpus_index, count_corpus_words, verify_corpus_index
from cog.index.read.reader import open_index
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_index_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from tests.index.hash_model import make_documents, write_corpus


@pytest.fixture
def village(project: ProjectPaths, tiny_model: Path) -> ProjectPaths:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    write_corpus(project.corpus("village"), make_documents(12, num_words=150))
    return project


def test_real_model_builds_what_it_encodes(village: ProjectPaths) -> None:
    params = load_params(village.params)
    assert count_corpus_words(village, "village") == 12 * 150
    progress = SilentProgress()
    report = build_corpus_index(village, "village", params=params, progress=progress)
    model_folder = village.root / "models" / "tiny"
    assert report.manifest.model == fingerprint_model(model_folder)
    assert (
        verify_corpus_index(village, "village", params=params, progress=progress).num_words
        == report.manifest.num_words
    )
    model = load_index_model(model_folder)
    with open_index(
        village.corpus("village"),
        model_fingerprint=report.manifest.model,
        documents_digest_of=find_documents_digest,
    ) as index:
        chunk_id = index.num_chunks // 2
        gathered = index.gather_chunks(np.array([chunk_id]))
        (ordinal,) = gathered.document_ordinals.tolist()
        text = index.get_documents([ordinal])[ordinal].text
        start, end = gathered.word_chars[0, 0], gathered.word_chars[-1, 1]
        chunk, spans = text[start:end], gathered.word_chars - start
        spans[:, 0] += [chunk[a] == " " for a in spans[:, 0]]
        (exact,) = model.phrase_encoder.encode_chunks([chunk], [spans])
        for stored, scales, vectors in (
            (gathered.start_vectors, gathered.start_scales, exact.start),
            (gathered.end_vectors, gathered.end_scales, exact.end),
        ):
            restored = stored * scales[:, None]
            assert (np.abs(restored - vectors) <= 0.51 * scales[:, None] + 1e-4).all()
        np.testing.assert_array_equal(
            gathered.token_ids, model.splitter.encode(text)[_find_tokens(gathered, text, model)]
        )


def _find_tokens(gathered, text, model) -> slice:  # noqa: ANN001
    words = model.splitter.split(text)
    first = int(np.searchsorted(words.word_chars, gathered.word_chars[0, 0]))
    last = int(np.searchsorted(words.word_chars, gathered.word_chars[-1, 1]))
    return slice(int(words.word_tokens[first]), int(words.word_tokens[last]))


def test_second_build_loads_no_model(village: ProjectPaths) -> None:
    params = load_params(village.params)
    progress = SilentProgress()
    assert build_corpus_index(village, "village", params=params, progress=progress).is_new
    again = build_corpus_index(
        village, "village", params=params, progress=progress, device="no such device"
    )
    assert not again.is_new


def test_unprepared_corpus_is_refused(village: ProjectPaths) -> None:
    with pytest.raises(CorpusError, match="prepare"):
        count_corpus_words(village, "hamlet")
