"""Queries of cards: they read, and come to an end."""

from pathlib import Path

import pytest

from cog.corpus import tables
from cog.errors import CorpusError
from tests.corpus.building import encode_sqlite, make_row_card, prepare


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT absent FROM t", "no such column: absent"),
        ("VACUUM INTO '{target}'", "a query that does more than read"),
        ("ATTACH 'file:{target}?mode=rwc' AS other", "a query that does more than read"),
        ("INSERT INTO t SELECT * FROM t", "a query that does more than read"),
        ("CREATE TEMP TABLE other AS SELECT * FROM t", "a query that does more than read"),
        ("PRAGMA journal_mode = DELETE", "a query that does more than read"),
        ("{endless} SELECT count(*) FROM n", "no further row within"),
        (
            "{endless} SELECT x AS id, '' AS name, 'one' AS body, 0 AS terms FROM n",
            "more rows than the file has bytes",
        ),
    ],
)
def test_a_query_only_reads_and_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, found: str
) -> None:
    if "count" in query:
        monkeypatch.setattr(tables, "SECONDS_PER_ROW", 0)
    target = tmp_path / "written"
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
    query = query.format(target=target, endless=endless)
    card = make_row_card("sqlite", format__query=query)
    with pytest.raises(CorpusError, match=f"{found}.*; next: mend format.query"):
        prepare(tmp_path, {"a.db": encode_sqlite(tmp_path)}, card)
    assert not target.exists()


def test_a_query_may_walk_trees_and_take_lists_apart(tmp_path: Path) -> None:
    query = """WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2)
        SELECT x AS id, '' AS name, value AS body, '' AS terms
        FROM n JOIN json_each('["a", "b"]') ON x = key + 1"""
    card = make_row_card("sqlite", format__query=query)
    _, documents, _ = prepare(tmp_path, {"a.db": encode_sqlite(tmp_path)}, card)
    assert [document.text for document in documents] == ["a", "b"]
