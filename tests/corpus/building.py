"""A corpus out of a few bytes: card fields and files go in, a prepared corpus comes out."""

import copy
import re
import sqlite3
from pathlib import Path
from typing import Any

from cog.cards import Card, parse_card
from cog.corpus.documents import DocumentStore
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.corpus.report import PrepareReport
from cog.params import FetchParams, PrepareParams
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from cog.records import Document
from tests.tiny_project import VILLAGE_CARD

ROW_FIELDS = {"id": "id", "title": "name", "text": "body", "url": None, "licence": "terms"}
ROWS = [
    {"id": "a", "name": "Mill", "body": "The old mill.", "terms": "CC0-1.0"},
    {"id": "b", "name": "", "body": "A stone bridge — “four” arches.\nTwo lines.", "terms": ""},
]


def make_content(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A card's content: text files, one document a line; dotted names (with __) change it."""
    content = copy.deepcopy(VILLAGE_CARD)
    content["format"].update(kind="text", documents="line")
    content["format"]["fields"] = dict.fromkeys(content["format"]["fields"])
    content["filters"]["min_words"] = 1
    content["prompts"] = None
    for name, value in changes.items():
        *path, last = name.split("__")
        node = content
        for key in path:
            node = node[key]
        node[last] = value
    return content


def make_card(**changes: Any) -> Card:  # noqa: ANN401
    """A card as ``make_content`` makes it."""
    return parse_card(make_content(**changes), "village.yaml")


def tokenise(text: str) -> list[tuple[int, int]]:
    """Tokens are words with the white space before them."""
    return [match.span() for match in re.finditer(r"\s*\S+", text)]


def prepare(
    tmp_path: Path, files: dict[str, bytes], card: Card, *, prompt_tokens: int = 2
) -> tuple[PrepareReport, list[Document], CorpusPaths]:
    """Fetch files with --source and prepare them."""
    folder = tmp_path / "given"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    source = folder / next(iter(files)) if len(files) == 1 else folder
    corpus_paths = CorpusPaths(tmp_path / "corpora" / card.id)
    fetch_corpus(
        card,
        corpus_paths=corpus_paths,
        source=source,
        params=FetchParams(retries=0, timeout_seconds=1),
        progress=SilentProgress(),
    )
    report = prepare_corpus(
        card,
        corpus_paths=corpus_paths,
        tokenise=tokenise,
        progress=SilentProgress(),
        params=PrepareParams(prompt_tokens, 3),
    )
    return report, list(DocumentStore(corpus_paths.documents).iter_documents()), corpus_paths


def encode_sqlite(tmp_path: Path) -> bytes:
    path = tmp_path / "made.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id, name, body, terms)")
        connection.executemany("INSERT INTO t VALUES (:id, :name, :body, :terms)", ROWS)
    connection.close()
    return path.read_bytes()


def make_row_card(kind: str, **changes: Any) -> Any:  # noqa: ANN401
    query = "SELECT id, name, body, terms FROM t ORDER BY id" if kind == "sqlite" else None
    return make_card(
        format__kind=kind,
        format__documents="row",
        format__fields=ROW_FIELDS,
        format__url="https://example.org/{id}",
        **{"format__query": query} | changes,
    )
