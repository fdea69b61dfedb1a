"""YAML: plain values, and what is refused before it fills memory."""

from pathlib import Path

import pytest

from cog.yaml_file import MAX_REPEATED, YamlError, load_yaml, parse_yaml

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{depth}: &a{depth} [{', '.join([f'*a{depth - 1}'] * 9)}]\n" for depth in range(1, 30)
)
CONFLICT = "a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> other\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, f"aliases that stand for more than {MAX_REPEATED} values"),
        ("a: &a\n  b: *a\n", "line 1: an alias of a value that it stands in"),
        ("a: 1\na: 2\n", "line 2: the key 'a' stands twice"),
        (CONFLICT, "line 2: a conflict that a merge of git left"),
        ("a: [1\nb: 2\n", r"line \d: "),
        ("[" * 5000, "YAML|nest|depth|line"),
        ("a: 2026-13-45", "a value that YAML cannot build"),
        ("{}: 1\n? [a]\n: 2\n", "unhashable"),
        ("!!python/object/apply:os.getcwd []", "constructor for the tag"),
    ],
)
def test_what_is_refused_is_one_line(text: str, message: str) -> None:
    with pytest.raises(YamlError, match=message) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


def test_aliases_of_a_few_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: [1, 2]}\nb: {<<: *base, c: *base}\nd: caf\u00e9\n", "utf-8")
    base = {"a": [1, 2]}
    assert load_yaml(path) == {"base": base, "b": {"a": [1, 2], "c": base}, "d": "caf\u00e9"}
    path.write_bytes(b"a: \xe9\n")
    with pytest.raises(YamlError, match="byte 3 is not UTF-8"):
        load_yaml(path)
