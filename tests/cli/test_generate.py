"""``cog generate`` on the built tiny project, as a user runs it."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.corpus.documents import DocumentStore
from cog.errors import CogError, GenerationError, NothingActiveError
from cog.paths import ProjectPaths
from tests.choices import assert_same_choices, record_choices

KEYS = [
    "prefix",
    "text",
    "corpus",
    "index",
    "model",
    "precision",
    "decoding",
    "num_steps",
    "num_passes",
    "num_tokens",
    "seconds",
    "segments",
]
COPY_KEYS = [
    "text",
    "from",
    "corpus",
    "document_id",
    "title",
    "char_start",
    "char_end",
    "licence",
    "url",
    "probability",
    "information",
]


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def run(paths: ProjectPaths, *words: str, stdin: str | bytes | None = None) -> Result:
    command = ["--project", str(paths.root), "generate", *words]
    return CliRunner().invoke(cli, command, input=stdin, standalone_mode=False)


def json_lines(result: Result) -> list[dict[str, Any]]:
    assert result.exception is None, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def error_of(result: Result, kind: type[CogError]) -> str:
    assert isinstance(result.exception, kind), result.exception
    message = str(result.exception)
    assert "\n" not in message
    return message


def test_json_holds_the_contract(village: ProjectPaths) -> None:
    result = run(
        village, "--corpus", "village", "--prefix", "The old mill", "--json", "--phrase-bias", "3"
    )
    (line,) = json_lines(result)
    assert list(line) == KEYS
    assert line["text"] == "".join(segment["text"] for segment in line["segments"])
    assert line["num_tokens"] == 12
    assert set(line["seconds"]) == {"retrieve", "gather", "decode"}
    assert {"method": "nucleus", "top_p": 0.95, "seed": 0}.items() <= line["decoding"].items()
    store = DocumentStore(village.corpus("village").documents)
    copies = [segment for segment in line["segments"] if segment["from"] == "corpus"]
    assert copies
    for segment in copies:
        assert list(segment) == COPY_KEYS
        text = store.get_document(segment["document_id"]).text
        assert text[segment["char_start"] : segment["char_end"]] == segment["text"]
    for segment in line["segments"]:
        if segment["from"] == "vocabulary":
            assert list(segment) == ["text", "from", "probability"]


def test_precision_is_told_with_the_text_and_never_with_its_sources(village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--prefix", "The old mill", "--json", "--phrase-bias", "3")
    (line,) = json_lines(run(village, *words, "--precision", "bfloat16"))
    assert line["precision"] == "bfloat16"
    copies = [segment for segment in line["segments"] if segment["from"] == "corpus"]
    assert copies
    assert all(list(segment) == COPY_KEYS for segment in copies)


def test_num_return_counts_seeds_up(village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--prefix", "The", "--seed", "5", "--json")
    with record_choices() as found:
        lines = json_lines(run(village, *words, "--num-return", "3"))
    assert [line["decoding"]["seed"] for line in lines] == [5, 6, 7]
    assert len({line["text"] for line in lines}) == 3
    with record_choices() as alone:
        for seed in ("5", "6", "7"):
            json_lines(run(village, *words, "--seed", seed))
    assert_same_choices(found, alone)


def test_input_is_read_from_a_file_and_from_a_pipe(village: ProjectPaths, tmp_path: Path) -> None:
    lines = ['\ufeff{"prefix": "The old mill", "id": 7}', "", '{"prefix": "", "extra": 1}']
    content = "\n".join([*lines, '{"prefix": "A"}'])
    path = tmp_path / "prefixes.jsonl"
    path.write_text(content, encoding="utf-8")
    words = ("--corpus", "village", "--json", "--batch-size", "2", "--decoding", "greedy")
    from_file = json_lines(run(village, *words, "--input", str(path)))
    from_pipe = json_lines(run(village, *words, "--input", "-", stdin=content))
    assert [line["prefix"] for line in from_file] == ["The old mill", "", "A"]
    assert from_file[0]["id"] == 7
    assert [line["text"] for line in from_file] == [line["text"] for line in from_pipe]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prefix": "ok"}\nnot json\n', "line 2 must be a JSON object"),
        (b'{"text": "no prefix"}\n', 'line 1 must be a JSON object with a text "prefix"'),
        (b'["prefix"]\n', "line 1"),
        (b'{"prefix": 3}\n', "line 1"),
        ('{"prefix": "café"}\n'.encode("latin-1"), "must be UTF-8; found: byte 0xe9 at offset 15"),
    ],
)
def test_bad_lines_are_named(village: ProjectPaths, content: bytes, message: str) -> None:
    result = run(village, "--corpus", "village", "--input", "-", "--batch-size", "1", stdin=content)
    assert message in error_of(result, GenerationError)


def test_texts_before_a_bad_line_are_kept(village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--json", "--batch-size", "1", "--input", "-")
    result = run(village, *words, stdin='{"prefix": "The"}\nnot json\n')
    assert isinstance(result.exception, GenerationError)
    assert json.loads(result.stdout)["prefix"] == "The"


def test_a_prefix_that_cannot_be_used_ends_alone(village: ProjectPaths) -> None:
    content = b'{"prefix": "The", "id": 1}\n{"prefix": "a\\ud800"}\n{"prefix": "mill", "id": 3}\n'
    words = ("--corpus", "village", "--json", "--max-new-tokens", "3", "--input", "-")
    result = run(village, *words, "--batch-size", "2", stdin=content)
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [1, 3]
    assert "standard input, line 2: a prefix must be Unicode text" in result.stderr
    assert "found: 1 that are not" in error_of(result, GenerationError)


def test_missing_input_file_is_said(village: ProjectPaths) -> None:
    result = run(village, "--corpus", "village", "--input", "nowhere.jsonl")
    assert "nowhere.jsonl: No such file" in error_of(result, GenerationError)


@pytest.mark.parametrize("words", [(), ("--prefix", "a", "--input", "-")])
def test_one_source_of_prefixes_is_needed(village: ProjectPaths, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["--project", str(village.root), "generate", *words])
    assert result.exit_code == 2
    assert "either --prefix TEXT or --input" in result.stderr


def test_nothing_active_is_said(village: ProjectPaths) -> None:
    assert "next: cog switch --corpus village" in error_of(
        run(village, "--prefix", "a"), NothingActiveError
    )


def test_corpus_without_an_index_is_said(village: ProjectPaths) -> None:
    assert "cog index build hamlet" in error_of(
        run(village, "--corpus", "hamlet", "--prefix", "a"), CogError
    )


def test_unknown_corpus_is_said(village: ProjectPaths) -> None:
    assert "vilage" in error_of(run(village, "--corpus", "vilage", "--prefix", "a"), CogError)


MANY = ("--corpus", "village", "--prefix", "The old mill", "--phrase-bias", "3")
MANY_TOKENS = (*MANY, "--max-new-tokens", "40")


def test_text_for_people_numbers_copies_and_lists_sources(village: ProjectPaths) -> None:
    shown = run(village, *MANY).stdout
    (line,) = json_lines(run(village, *MANY, "--json"))
    first = next(segment for segment in line["segments"] if segment["from"] == "corpus")
    assert f"{first['text']}[1]" in shown
    assert re.search(rf"^\[1[],].*{first['title']} · {first['document_id']}", shown, re.MULTILINE)
    assert "12 tokens in" in shown


def test_sources_says_how_many_documents_are_listed(village: ProjectPaths) -> None:
    (line,) = json_lines(run(village, *MANY_TOKENS, "--json"))
    num_documents = len({each.get("document_id") for each in line["segments"]} - {None})
    assert num_documents > 2
    for mode in ((), ("--stream",)):
        for given, wanted in (("0", 0), ("1", 1), ("all", num_documents), ("99", num_documents)):
            shown = run(village, *MANY_TOKENS, *mode, "--sources", given).stdout
            assert shown.count(" · CC0-1.0") == wanted
            is_part = 0 < wanted < num_documents
            assert (
                f"and {num_documents - wanted} more documents: --sources all" in shown
            ) == is_part
    (alone,) = json_lines(run(village, *MANY_TOKENS, "--json", "--sources", "0"))
    assert alone["segments"] == line["segments"]


@pytest.mark.parametrize("given", ["-1", "many", "1.5", ""])
def test_other_numbers_of_sources_are_refused(village: ProjectPaths, given: str) -> None:
    result = CliRunner().invoke(
        cli, ["--project", str(village.root), "generate", *MANY, "--sources", given]
    )
    assert result.exit_code == 2
    error = (
        f"Error: Invalid value for '--sources': {given!r} is neither a number from 0 on nor 'all'."
    )
    assert result.stderr.splitlines()[-1] == error


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("mode", [(), ("--stream",)], ids=["whole", "stream"])
def test_a_terminal_shows_what_fits(
    village: ProjectPaths, monkeypatch: pytest.MonkeyPatch, mode: tuple[str, ...], columns: int
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "12")
    cli.main(
        ["--project", str(village.root), "generate", *MANY_TOKENS, *mode], standalone_mode=False
    )
    shown = terminal.getvalue()
    assert "\x1b[38;5;37m" in shown
    lines = re.sub(r"\x1b(\[[\d;]*m|\]8;.*?\x1b\\)", "", shown).split("\n")
    after = lines[lines.index("") :] if mode else lines
    assert all(len(line) <= columns for line in after)
    listed = [line for line in after if re.match("“" if mode else r"\[", line)]
    assert len(listed) >= 3
    assert len(listed) == 3 or len(lines) <= 12


def test_stream_shows_the_same_text(village: ProjectPaths) -> None:
    (line,) = json_lines(run(village, *MANY, "--json"))
    assert run(village, *MANY, "--stream").stdout.startswith(line["prefix"] + line["text"] + "\n\n")
    *segments, whole = json_lines(run(village, *MANY, "--stream", "--json"))
    assert segments == line["segments"] == whole["segments"]


def test_denied_licence_leaves_nothing_here(village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--prefix", "a")
    assert "must leave something" in error_of(
        run(village, *words, "--deny-licence", "cc0-1.0"), GenerationError
    )
    assert "no document of licence 'MIT'" in error_of(
        run(village, *words, "--allow-licence", "MIT"), GenerationError
    )
    assert json_lines(run(village, *words, "--allow-licence", "CC0-1.0", "--json"))


def test_prefix_longer_than_the_model_reads_is_said(village: ProjectPaths) -> None:
    result = run(village, "--corpus", "village", "--prefix", "word " * 1000, "--json")
    assert "tokens of a prefix are beyond the model's context" in result.stderr
    assert json_lines(result)[0]["num_tokens"] == 12


def test_any_setting_can_be_set(village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--prefix", "The old", "--json")
    settings = ("--set", "span_words=3", "--set", "copy_once=true", "--set", "trust=0.5")
    (content,) = json_lines(run(village, *words, *settings))
    found = [content["decoding"][name] for name in ("span_words", "copy_once", "trust")]
    assert found == [3, True, 0.5]
    for setting, message in (
        ("span_word=3", "span_word is no known key; did you mean span_words?"),
        ("span_words=3.5", "span_words must be a whole number from 0 to 1000000000, found 3.5"),
        ("copy_once=yes", "copy_once must be true or false, found 'yes'"),
        ("trust", "trust must be a number from 0 to 1000000, found ''"),
        ("trust=-1", "trust must be a number from 0 to 1000000, found -1"),
        ("top_p=nan", "top_p must be a number above 0 and up to 1, found nan"),
    ):
        assert message in str(run(village, *words, "--set", setting).exception)
