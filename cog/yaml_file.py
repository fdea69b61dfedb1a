"""YAML files: a path goes in, plain values come out; what would fill memory is refused.

Every YAML file is read here: cards, params.yaml, models' configs and dvc.lock may be anybody's.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cog.errors import CogError

MAX_REPEATED = 100_000  # values that aliases stand for; nine lines of them can mean billions

_CONFLICT = re.compile(r"^<<<<<<< ", re.MULTILINE)

# The C parser is ten times faster; PyYAML may be built without it.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """A text is not YAML, or not such as is read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """What a file holds, and the text that says so."""

    content: Any
    text: str

    def find_line(self, keys: tuple[str, ...]) -> int | None:
        """Find the line of a value, from 1, or of the nearest mapping around a missing one."""
        node, line = yaml.compose(self.text, Loader=_SafeLoader), None
        for key in keys:
            pair = _find_pair(node, key)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        return line


def load_yaml(path: Path) -> Any:  # noqa: ANN401
    """Read a file of plain values.

    Raises ``YamlError`` if it is not UTF-8 or not YAML, a key stands twice, or aliases stand for
    more than ``MAX_REPEATED`` values.
    """
    return parse_yaml(_read_text(path))


def open_yaml(
    path: Path, *, name: str, error: type[CogError], wanted: str = "must be YAML", run: str = ""
) -> YamlFile:
    """Read a file as ``load_yaml`` does; what is no YAML is refused by a stated failure."""
    try:
        text = _read_text(path)
        return YamlFile(parse_yaml(text), text)
    except YamlError as problem:
        raise error(f"{name} {wanted}", found=str(problem), run=run) from None


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"byte {error.start} is not UTF-8") from None


def parse_yaml(text: str) -> Any:  # noqa: ANN401
    """Read a text, as ``load_yaml`` reads a file."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        conflict = _CONFLICT.search(text)
        if conflict is not None:
            line = text.count("\n", 0, conflict.start()) + 1
            raise YamlError(f"line {line}: a conflict that a merge of git left") from None
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise YamlError(f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, ValueError) as error:
        # What PyYAML's constructors raise at 2026-13-45, `!!int ""` or a thousand brackets.
        raise YamlError(f"a value that YAML cannot build ({error})") from None


def _find_pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for name, value in node.value:
        if name.value == key:
            return name, value
    for name, value in node.value:
        if name.tag == "tag:yaml.org,2002:merge":
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if (pair := _find_pair(each, key)) is not None:
                    return pair
    return None


class _Loader(_SafeLoader):  # type: ignore[misc]
    def construct_document(self, node: yaml.Node) -> Any:  # noqa: ANN401
        sizes: dict[int, int] = {}
        if _measure(node, sizes) - len(sizes) > MAX_REPEATED:
            problem = f"aliases that stand for more than {MAX_REPEATED} values"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        built: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return built


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    # Number of values below a node, itself among them, were every alias written out.
    number = sizes.setdefault(id(node), 0)
    if number:
        return number
    below = node.value if isinstance(node, yaml.CollectionNode) else []
    for each in below:
        for child in each if isinstance(each, tuple) else (each,):
            if sizes.get(id(child)) == 0:  # it is being measured: this alias stands in it
                problem = "an alias of a value that it stands in"
                raise yaml.constructor.ConstructorError(None, None, problem, child.start_mark)
            number += _measure(child, sizes)
    sizes[id(node)] = number + 1
    return number + 1
