"""Every setting of params.yaml: the parameters of a project go in, names with meanings come out."""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from cog.params import Params
from cog.reading import read_meanings
from cog.records import Decoding

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    section: str  # section of params.yaml; empty for what stands at the top
    name: str  # its name there
    meaning: str  # what it means
    value: Any  # what holds in the project
    default: Any  # what holds where params.yaml does not say


def list_settings(params: Params) -> list[Setting]:
    """Describe the settings of a project, in the order of their records."""
    found: list[Setting] = []
    for each in fields(Params):
        value, default = getattr(params, each.name), getattr(Params(), each.name)
        if not is_dataclass(default):
            meaning = read_meanings(Params)[each.name]
            found.append(Setting("", each.name, meaning, value, default))
            continue
        found += _describe_section(each.name, value, default)
    return found


def _describe_section(section: str, value: Any, default: Any) -> Iterator[Setting]:  # noqa: ANN401
    meanings = read_meanings(type(default))
    for each in fields(default):
        here, there = getattr(value, each.name), getattr(default, each.name)
        if not isinstance(there, Decoding):
            here, there = _make_plain(here), _make_plain(there)
            yield Setting(section, each.name, meanings[each.name], here, there)
            continue
        for setting in _describe_section(section, here, there):  # they stand in the section itself
            name = "decoding" if setting.name == "method" else setting.name
            yield Setting(section, name, setting.meaning, setting.value, setting.default)


def _make_plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {name: asdict(each) for name, each in value.items()}
    return value


def format_settings(settings: list[Setting]) -> str:
    """Write settings as params.yaml has them, each with its meaning."""
    lines: list[str] = []
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            lines += ["", f"{section}:"]
        indent = "  " if section else ""
        told = f" (default: {_write(setting.default)})" if setting.value != setting.default else ""
        meaning = f"{setting.meaning.removesuffix('.')}{told}"
        line = f"{indent}{setting.name}: {_write(setting.value)}"
        if len(line) + len(meaning) + 3 <= WIDTH:
            lines.append(f"{line} # {meaning}")
        else:
            begin = f"{indent}# "
            lines += textwrap.wrap(
                meaning,
                WIDTH,
                initial_indent=begin,
                subsequent_indent=begin,
                break_on_hyphens=False,
            )
            lines.append(line)
    return "\n".join(lines) + "\n"


def _write(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9./_-]*", value) and value != "off":
        return value
    return json.dumps(value, ensure_ascii=False)
