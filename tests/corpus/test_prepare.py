"""Raw files become documents: every kind, every way to be wrong, and counts that add up."""

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cog.corpus.documents import DocumentStore, digest_records, documents_digest, load_prompts
from cog.corpus.prepare import prepare_corpus
from cog.errors import CorpusError
from cog.params import PrepareParams
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.corpus.building import (
    ROWS,
    encode_sqlite,
    make_card,
    make_row_card,
    prepare,
    tokenise,
)


def encode_csv() -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def encode_parquet(values: list[dict[str, Any]] = ROWS) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(values), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "name", "numbers"),
    [
        ("jsonl", "a.jsonl", (1, 2)),
        ("json", "a.json", (1, 2)),
        ("csv", "a.csv", (2, 3)),
        ("parquet", "a.parquet", (1, 2)),
        ("sqlite", "a.db", (1, 2)),
    ],
)
def test_every_kind_with_rows_gives_the_same_documents(
    tmp_path: Path, kind: str, name: str, numbers: tuple[int, int]
) -> None:
    content = {
        "jsonl": lambda: "\n".join(map(json.dumps, ROWS)).encode(),
        "json": lambda: json.dumps({row["id"]: row for row in ROWS}).encode(),
        "csv": encode_csv,
        "parquet": encode_parquet,
        "sqlite": lambda: encode_sqlite(tmp_path),
    }[kind]()
    report, documents, _ = prepare(tmp_path, {name: content}, make_row_card(kind))
    assert [document.text for document in documents] == [row["body"] for row in ROWS]
    assert [document.document_id for document in documents] == ["a", "b"]
    assert [document.title for document in documents] == ["Mill", ""]
    assert [document.licence for document in documents] == ["CC0-1.0", "CC0-1.0"]
    assert documents[0].url == "https://example.org/a"
    assert [document.source for document in documents] == [f"{name}:{n}" for n in numbers]
    assert report.num_read == 2


def test_lines_of_text_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    content = "one two\n\n one two \nx\n" + "w " * 9 + "\n\r\nthree four\n"
    card = make_card(filters={"min_words": 2, "max_words": 8})
    report, documents, _ = prepare(tmp_path, {"a.txt": content.encode()}, card)
    assert [document.text for document in documents] == ["one two", "three four"]
    assert [document.document_id for document in documents] == ["a:1", "a:7"]
    assert {reason: count for reason, count in report.skipped.items() if count} == {
        "empty": 2,
        "duplicate": 1,
        "too-short": 1,
        "too-long": 1,
    }
    assert report.num_read == 7 == report.num_documents + sum(report.skipped.values())
    assert report.num_words == 4
    assert report.num_characters == 17


def test_duplicates_stay_if_the_card_says_so(tmp_path: Path) -> None:
    card = make_card(deduplicate="none")
    report, documents, _ = prepare(tmp_path, {"a.txt": b"same\nsame\n"}, card)
    assert [document.text for document in documents] == ["same", "same"]
    assert report.skipped["duplicate"] == 0


def test_a_byte_order_mark_is_in_the_report(tmp_path: Path) -> None:
    report, documents, _ = prepare(tmp_path, {"a.txt": "\ufeffone".encode()}, make_card())
    assert documents[0].text == "one"
    assert report.notes == ("byte-order mark stripped from a.txt",)
    assert report.normaliser == "plain-v1"


def test_files_of_a_folder_are_documents_with_their_stems(tmp_path: Path) -> None:
    files = {"x/b.txt": b"two", "x/a.txt": b"one", "x/y/a.txt": b"three", "x/.hid.txt": b"no"}
    card = make_card(format__documents="file")
    _, documents, _ = prepare(tmp_path, files, card)
    assert [(each.document_id, each.source) for each in documents] == [
        ("a", "x/a.txt:1"),
        ("b", "x/b.txt:1"),
        ("y/a", "x/y/a.txt:1"),
    ]


@pytest.mark.parametrize("content", [b"", b"\n \n\t\n", "\ufeff".encode()])
def test_a_corpus_without_a_document_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CorpusError, match="corpus village must have at least one document"):
        prepare(tmp_path, {"a.txt": content}, make_card())
    assert not CorpusPaths(tmp_path / "corpora" / "village").documents.exists()


BAD_LINES = [
    ('{"id": "c", "body": ', r"not JSON: Expecting value"),
    ("[1, 2]", r"an object is needed, not list"),
    ('{"id": "c", "body": null}', r"field 'body' must be a text, not null"),
    ('{"id": "c"}', r"field 'body' is missing"),
    ('{"id": "c", "\\ud800": 1}', r"field 'body' is missing among id, \\ud800 "),
    ('{"id": "c", "body": 7}', r"field 'body' must be a text, not int"),
    ('{"id": null, "body": "x"}', r"field 'id' must be an id, not null"),
    ('{"body": "x"}', r"field 'id' must be an id, not missing"),
    ('{"id": true, "body": "x"}', r"field 'id' must be an id, not True"),
    ('{"id": "", "body": "x"}', r"an id has 1 to 512 printable characters, not ''"),
    ('{"id": "c\\n", "body": "x"}', r"an id has 1 to 512 printable characters"),
    ('{"id": "c", "body": "a \\ud800 b"}', r"lone surrogate U\+D800 in the text"),
    ('{"id": "c", "name": "\\udfff", "body": "b"}', r"lone surrogate U\+DFFF in the title"),
    ('{"id": "c", "body": "a\\u0000b"}', r"NUL at character 1 of the text"),
    ('{"id": "a", "body": "another text"}', r"the id 'a' was there before"),
    ("[" * 100_000, r"not JSON"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_a_bad_record_stops_with_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    content = f"{json.dumps(ROWS[0])}\n\n{line}\n".encode()
    with pytest.raises(CorpusError, match=rf"a.jsonl:3 must be a usable record; found: {problem}"):
        prepare(tmp_path, {"a.jsonl": content}, make_row_card("jsonl"))


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_a_bad_record_is_counted_if_the_card_says_skip(
    tmp_path: Path, line: str, problem: str
) -> None:
    content = f"{json.dumps(ROWS[0])}\n{line}\n".encode()
    card = make_row_card("jsonl", format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.jsonl": content}, card)
    assert [document.document_id for document in documents] == ["a"]
    assert report.skipped["malformed"] == 1
    assert report.notes[0].startswith("skipped a.jsonl:2: ")


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("csv", "a.csv", b"id,name\n1,x\n", r"a.csv must have the column 'body'; found: id, name"),
        ("csv", "a.csv", b"id,name,body,terms\n1,x\n", r"a.csv:2 .* 2 cells under 4 columns"),
        ("csv", "a.csv", b'id,name,body,terms\n1,x,"y\n', r"a.csv:2 must be CSV"),
        ("json", "a.json", b'{"a": ', r"a.json must be JSON; found: Expecting value: line 1"),
        ("json", "a.json", b"3", r"must be JSON; found: a list of objects or a mapping .* not int"),
        ("json", "a.json", b'["x"]', r"a.json:1 .* an object is needed, not str"),
        ("parquet", "a.parquet", b"PAR1", r"a.parquet must be a Parquet file"),
        ("parquet", "a.parquet", encode_parquet([{"id": 1}]), r"must have the column 'name'"),
        ("sqlite", "a.db", b"no database", r"a.db must be a SQLite database"),
        ("jsonl", "a.jsonl", b'{"id": "\xe9"}', r"byte 0xe9 at byte offset 8"),
    ],
)
def test_a_file_that_is_not_what_the_card_says_is_named(
    tmp_path: Path, kind: str, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        prepare(tmp_path, {name: content}, make_row_card(kind))


def test_nul_in_a_text_file_points_to_the_encoding(tmp_path: Path) -> None:
    content = "text".encode("utf-16-le")
    with pytest.raises(CorpusError, match=r"NUL at character 1 of the text \(a UTF-16 file\?"):
        prepare(tmp_path, {"a.txt": content}, make_card())


def test_json_rows_know_their_key(tmp_path: Path) -> None:
    card = make_card(
        format__kind="json",
        format__documents="row",
        format__fields__id="@key",
        format__fields__text=["head", "body"],
    )
    content = json.dumps({"k1": {"head": "H", "body": "B"}}).encode()
    _, documents, _ = prepare(tmp_path, {"a.json": content}, card)
    assert (documents[0].document_id, documents[0].text) == ("k1", "H\nB")


def test_rows_may_be_lines(tmp_path: Path) -> None:
    lines = ["", " = Mill = \n", "", " The mill , old . \n", " = = Wheel = = \n", " It turned . \n"]
    card = make_card(
        format__kind="parquet",
        format__documents="heading",
        format__heading="wikitext",
        format__fields__text="text",
        format__local={"kind": "text", "documents": "heading", "heading": "wikitext"},
        normaliser="wikitext-v1",
    )
    content = encode_parquet([{"text": line} for line in lines])
    _, from_hub, _ = prepare(tmp_path / "1", {"a.parquet": content}, card)
    _, from_file, _ = prepare(
        tmp_path / "2", {"a.tokens": "\n".join(line.rstrip("\n") for line in lines).encode()}, card
    )
    assert [(each.title, each.text) for each in from_hub] == [
        ("Mill", "The mill, old.\nWheel\nIt turned.")
    ]
    assert [(e.title, e.text) for e in from_hub] == [(e.title, e.text) for e in from_file]


def make_lines(count: int) -> bytes:
    return "".join(f"line {number} has six whole words\n" for number in range(count)).encode()


def test_subsets_are_nested_and_share_their_prompts(tmp_path: Path) -> None:
    seen: list[set[str]] = []
    prompts = []
    for proportion in (0.05, 0.3, 0.9, 1.0):
        card = make_card(
            subset={"proportion": proportion, "seed": 0}, prompts={"held_out": 0.1, "seed": 0}
        )
        report, documents, paths = prepare(
            tmp_path / str(proportion), {"a.txt": make_lines(1000)}, card
        )
        seen.append({document.document_id for document in documents})
        prompts.append(load_prompts(paths.prompts))
        assert report.skipped["held-out"] == len(prompts[-1])
    assert seen[0] < seen[1] < seen[2]
    assert seen[2] == seen[3]  # the last tenth is held out of both
    assert abs(len(seen[1]) - 300) < 50
    assert all(each == prompts[0] for each in prompts)
    assert not {prompt.document_id for prompt in prompts[0]} & seen[3]


def test_shards_hold_each_document_of_a_subset_once(tmp_path: Path) -> None:
    found: list[set[str]] = []
    for shard in (None, *({"number": number, "of": 3} for number in (1, 2, 3))):
        card = make_card(
            subset={"proportion": 0.7, "seed": 0, "shard": shard},
            prompts={"held_out": 0.1, "seed": 0},
        )
        _, documents, _ = prepare(tmp_path / str(len(found)), {"a.txt": make_lines(1000)}, card)
        found.append({document.document_id for document in documents})
    whole, *shards = found
    assert sorted(each for shard in shards for each in shard) == sorted(whole)
    assert all(abs(len(shard) - len(whole) / 3) < 60 for shard in shards)


def test_another_seed_chooses_others(tmp_path: Path) -> None:
    ids = []
    for seed in (0, 1):
        card = make_card(subset={"proportion": 0.5, "seed": seed})
        _, documents, _ = prepare(tmp_path / str(seed), {"a.txt": make_lines(100)}, card)
        ids.append({document.document_id for document in documents})
    assert ids[0] != ids[1]


def test_prompts_are_windows_of_their_document(tmp_path: Path) -> None:
    text = " ".join(f"w{number}" for number in range(13))
    content = f"{text}\nkept\n".encode()
    for seed in range(100):  # a seed that holds the first line out, and not the second
        card = make_card(prompts={"held_out": 0.5, "seed": seed})
        try:
            _, documents, paths = prepare(tmp_path, {"a.txt": content}, card)
        except CorpusError:
            continue
        if [document.text for document in documents] == ["kept"]:
            break
    prompts = load_prompts(paths.prompts)
    assert [prompt.prompt_id for prompt in prompts] == ["a:1#0", "a:1#1"]
    assert [prompt.prefix for prompt in prompts] == ["w0 w1", " w5 w6"]
    assert [prompt.reference for prompt in prompts] == [" w2 w3 w4", " w7 w8 w9"]
    for prompt in prompts:
        assert text[prompt.char_start : prompt.char_end] == prompt.prefix + prompt.reference


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    card = make_card(prompts={"held_out": 0.2, "seed": 0})
    kept = []
    for name in ("1", "2"):
        _, documents, paths = prepare(tmp_path / name, {"a.txt": make_lines(50)}, card)
        kept.append((paths.documents.read_bytes(), paths.prompts.read_bytes()))
        assert documents_digest(paths.documents) == digest_records(documents)
    assert kept[0] == kept[1]


def test_a_failed_run_leaves_the_old_documents(tmp_path: Path) -> None:
    report, _, paths = prepare(tmp_path, {"a.txt": b"one\n"}, make_card())
    with pytest.raises(CorpusError):
        prepare(tmp_path, {"a.txt": b"two\n\x00\n"}, make_card())
    assert documents_digest(paths.documents) == report.digest
    assert sorted(path.name for path in paths.root.iterdir()) == [
        "documents.parquet",
        "prompts.parquet",
        "raw",
    ]


def test_raw_files_that_are_gone_name_the_command(tmp_path: Path) -> None:
    _, _, paths = prepare(tmp_path, {"a.txt": b"one\n"}, make_card())
    (paths.raw / "a.txt").unlink()
    with pytest.raises(CorpusError, match=r"a.txt is missing .* cog corpus fetch village"):
        prepare_corpus(
            make_card(),
            corpus_paths=paths,
            tokenise=tokenise,
            progress=SilentProgress(),
            params=PrepareParams(2, 3),
        )


def test_no_prompts_are_said(tmp_path: Path) -> None:
    card = make_card(prompts={"held_out": 0.3, "seed": 0})
    report, _, _ = prepare(tmp_path, {"a.txt": make_lines(20)}, card, prompt_tokens=50)
    assert report.num_prompts == 0
    assert report.notes[-1].startswith("no prompts")
    num_held_out = report.skipped["held-out"]
    assert 0 < num_held_out == 20 - report.num_documents
    assert f"{num_held_out} held out (0 prompts, {num_held_out} too" in report.describe()[0]


def test_documents_are_streamed_and_found(tmp_path: Path) -> None:
    _, documents, paths = prepare(tmp_path, {"a.txt": make_lines(9000)}, make_card())
    store = DocumentStore(paths.documents)
    assert store.num_documents == 9000
    for place in (0, 4095, 4096, 8999):
        assert store.get_document(documents[place].document_id) == documents[place]
    with pytest.raises(CorpusError, match="no document 'none'"):
        store.get_document("none")
    with pytest.raises(CorpusError, match="corpus other needs documents.parquet"):
        DocumentStore(tmp_path / "other" / "documents.parquet")
    paths.documents.write_bytes(b"x")
    with pytest.raises(CorpusError, match="must be a Parquet file"):
        DocumentStore(paths.documents)
    with pytest.raises(CorpusError, match="must have the columns"):
        DocumentStore(paths.prompts)


class Told(SilentProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.amounts: list[int] = []

    def advance(self, amount: int) -> None:
        self.amounts.append(amount)


def test_progress_is_told_of_every_document_and_not_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(f"The mill number {number} stands." for number in range(3000))
    _, _, corpus_paths = prepare(tmp_path, {"a.txt": lines.encode()}, make_card())
    reads = itertools.count()  # every look at the clock finds a millisecond gone
    monkeypatch.setattr("cog.corpus.prepare.time.monotonic", lambda: next(reads) / 1000)
    told = Told()
    prepare_corpus(
        make_card(),
        corpus_paths=corpus_paths,
        tokenise=tokenise,
        progress=told,
        params=PrepareParams(2, 3),
    )
    assert sum(told.amounts) == 3000
    assert 20 <= len(told.amounts) <= 40  # ten a second, of three seconds
