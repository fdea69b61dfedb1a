"""Fixtures of the index tests: a corpus of 40 documents and its index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cog.index.read.reader import PhraseIndex, open_index
from cog.paths import CorpusPaths
from tests.index.hash_model import build, make_documents, write_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusPaths:
    corpus_paths = CorpusPaths(tmp_path / "corpora" / "tiny")
    write_corpus(corpus_paths, make_documents(40), num_skipped=2)
    return corpus_paths


@pytest.fixture
def index(corpus: CorpusPaths) -> Iterator[PhraseIndex]:
    build(corpus)
    with open_index(corpus) as opened:
        yield opened
