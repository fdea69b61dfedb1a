"""Card files of every kind of wrong: no traceback, one line, and what is read can be kept."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cog.errors import CogError
from cog.paths import ProjectPaths
from cog.registry import load_card, save_card
from tests.corpus.building import make_content
from tests.fuzz.running import run_cog
from tests.tiny_project import HAMLET_CARD, make_project

ALL = {"max_examples": 5000, "deadline": None, "derandomize": True, "database": None}
FEW = {**ALL, "max_examples": 100}
QUIET = {"suppress_health_check": list(HealthCheck)}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["utf-8", "detect", "rot13", "../x", "text", "row", "near", "(", "a\nb", "é"])
    | st.sampled_from(
        ["wikitext", "village", "plain-v1", "html-v1+plain-v1", "+", "\x00", "x" * 999]
    )
    | st.dates()
    | st.binary(max_size=4)
)
values = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3)
    ),
    max_leaves=8,
)


def list_paths(content: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths = []
    for key, value in content.items():
        paths.append((*prefix, key))
        if isinstance(value, dict):
            paths += list_paths(value, (*prefix, key))
    return paths


BASES = [
    make_content(),
    make_content(format__schema={"body": "text?"}, subset={"proportion": 0.5, "seed": 0}),
    {**HAMLET_CARD, "id": "village"},
]
PATHS = sorted({path for base in BASES for path in list_paths(base)})


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    """A card in which up to four fields are gone, new, or hold something else."""
    content = copy.deepcopy(draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(0, 4))):
        path = draw(st.sampled_from(PATHS))
        node: Any = content
        for key in path[:-1]:
            node = node.get(key) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            continue
        change = draw(st.sampled_from(("set", "set", "drop", "rename")))
        if change == "set":
            node[path[-1]] = draw(values)
        elif change == "drop":
            node.pop(path[-1], None)
        else:
            node[draw(st.text(max_size=8))] = node.pop(path[-1], None)
    return content


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    """The bytes of a card file in which a few are cut out, put in or repeated."""
    text = yaml.safe_dump(draw(st.sampled_from(BASES)), allow_unicode=True, sort_keys=False)
    content = text.encode(
        draw(st.sampled_from(("utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252")))
    )
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        new = draw(
            st.binary(max_size=6)
            | st.sampled_from(
                [b"&a ", b"*a", b"<<: ", b"? ", b"!!int ", b"\t", b"- ", b"{[", b"\x85"]
            )
            | st.sampled_from(
                [b"!!timestamp ", b"2026-99-99", b"1e999", b"0x", b"%YAML 9\n", b"---\n"]
            )
            | st.sampled_from([b'"\\ud800"', b"|2+\n", b"\xe2\x80\xa8", b"9" * 5000, b"[" * 2000])
        )
        content = content[:start] + new + content[end:]
    return content


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project; its card `village` is written anew for every example."""
    return make_project(tmp_path_factory.mktemp("fuzz") / "project").root


def check_file(root: Path, content: bytes) -> None:
    paths = ProjectPaths(root)
    shutil.rmtree(paths.corpus("village").root, ignore_errors=True)
    paths.card("village").write_bytes(content)
    try:
        card = load_card(paths, "village")
    except CogError:
        card = None
    listed = json.loads(run_cog(root, ["corpus", "list", "--json"]).stdout)
    assert [row["error"] is None for row in listed if row["id"] == "village"] == [card is not None]
    validated = run_cog(root, ["corpus", "validate", "village", "--json"])
    shown = run_cog(root, ["corpus", "show", "village"])
    if card is None:
        assert validated.error
        assert shown.error
        return
    save_card(paths, card)
    assert load_card(paths, "village") == card
    run_cog(root, ["corpus", "fetch", "village", "--source", str(root / "texts")])


@pytest.mark.slow
@settings(**ALL, **QUIET)
@given(contents())
def test_no_content_of_a_card_gives_a_traceback(root: Path, content: dict[str, Any]) -> None:
    check_file(
        root, yaml.dump(content, allow_unicode=True, sort_keys=False).encode("utf-8", "replace")
    )


@pytest.mark.slow
@settings(**ALL, **QUIET)
@given(broken_files())
def test_no_bytes_of_a_card_file_give_a_traceback(root: Path, content: bytes) -> None:
    check_file(root, content)


@settings(**FEW, **QUIET)
@given(contents())
def test_few_contents_of_a_card_give_no_traceback(root: Path, content: dict[str, Any]) -> None:
    check_file(
        root, yaml.dump(content, allow_unicode=True, sort_keys=False).encode("utf-8", "replace")
    )


@settings(**FEW, **QUIET)
@given(broken_files())
def test_few_bytes_of_a_card_file_give_no_traceback(root: Path, content: bytes) -> None:
    check_file(root, content)
