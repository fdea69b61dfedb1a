"""JSON in blocks of any size: the same items as the whole text, and errors that know their line."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cog.corpus import json_stream
from cog.corpus.json_stream import KEY_FIELD, JsonError, iter_items

items = st.lists(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=6),
        lambda below: (
            st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=5,
)


def cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(items, st.integers(1, 60), st.sampled_from([None, 1]))
def test_blocks_do_not_change_what_is_read(
    values: list[Any], size: int, indent: int | None
) -> None:
    assert list(iter_items(iter(cut(json.dumps(values, indent=indent), size)))) == values
    mapping = {str(number): {"value": value} for number, value in enumerate(values)}
    found = list(iter_items(iter(cut(json.dumps(mapping, indent=indent), size))))
    assert found == [{**value, KEY_FIELD: key} for key, value in mapping.items()]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value: line 1"),
        ('[{"a": 1},\n{"b": }]', "Expecting value: line 2"),
        ('[{"a": 1}\n\n{"b": 2}]', "Expecting ',': line 3"),
        ('[{"a": "x', "Unterminated string starting at: line 1"),
        ('{"a": {}}\n{"b": {}}', r"Extra data \(format.kind: jsonl, .*: line 2"),
        ("{1: 2}", "Expecting property name enclosed in double quotes: line 1"),
        ("[1, 2", "Expecting ',': line 1"),
        ("3", "a list of objects or a mapping to objects, not int"),
        ("[" * 5000, "recursion"),
        ("[" + "9" * 5000 + "]", "4300"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, message: str, size: int) -> None:
    with pytest.raises(JsonError, match=message):
        list(iter_items(iter(cut(text, size))))


def test_an_object_that_never_ends_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_LINE_CHARACTERS", 1000)
    read = 0

    def blocks() -> Any:  # noqa: ANN401
        nonlocal read
        yield '[{"a": "'
        while True:
            read += 100
            yield "x" * 100

    with pytest.raises(JsonError, match="an object of over 1000 characters"):
        list(iter_items(blocks()))
    assert read < 5000
