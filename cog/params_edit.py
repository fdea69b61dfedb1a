"""Entries of params.yaml: a corpus id goes in, entries are added or removed, comments survive."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cog.atomic import write_text_atomically
from cog.cards import check_corpus_id
from cog.dvc_lock import is_readable
from cog.errors import ParamsError
from cog.yaml_file import YamlError, load_yaml, parse_yaml

CORPORA = "corpora"

_PLAIN = re.compile(r"[a-z.][a-z][a-z0-9./_-]*")
_TRUTH_VALUES = ("false", "no", "null", "off", "on", "true", "yes", ".inf", ".nan")
_FLOW = re.compile(rf"([ \t]*{CORPORA}:[ \t]*)\{{.*\}}([ \t]*(?:#.*)?)")
_SECTION = re.compile(r"corpora:[ \t]*(?:\{\}|null|~)?[ \t]*(#.*)?")


def add_corpus_entry(path: Path, corpus_id: str, root: str, source: str) -> bool:
    """Let the pipeline build a corpus.

    :param path: params.yaml; the caller keeps others from editing it.
    :param corpus_id: The corpus.
    :param root: Id of the card that names its source.
    :param source: What is watched for changes.
    :returns: Whether the file changed; False if the entry was there.
    :raises ParamsError: If the file is not as expected, or has another entry of this id.
    """
    check_corpus_id(corpus_id)
    text, content = _load(path)
    corpora = content.get(CORPORA) or {}
    entry = {"root": root, "source": source}
    if corpus_id in corpora:
        if corpora[corpus_id] == entry:
            return False
        raise _refuse(path, f"another entry corpora.{corpus_id}: {corpora[corpus_id]}")
    lines = text.splitlines(keepends=True)
    section, end = _find_section(path, lines)
    indent = _find_indent(lines[section + 1 : end])
    comment = _SECTION.fullmatch(lines[section].rstrip("\r\n"))
    assert comment is not None
    lines[section] = "corpora:" + (f" {comment[1]}" if comment[1] else "") + "\n"
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += "\n"
    added = [f"{indent}  {key}: {_quote(value)}\n" for key, value in entry.items()]
    lines[end:end] = [f"{indent}{_quote(corpus_id)}:\n", *added]
    wanted = {**content, CORPORA: {**corpora, corpus_id: entry}}
    _save(path, "".join(lines), wanted=wanted)
    return True


def remove_corpus_entries(path: Path, corpus_id: str) -> list[str]:
    """Let the pipeline build a corpus, and what else it makes of it, no longer.

    Gives the entries that went, as ``find_corpus_entries`` names them. Raises ``ParamsError`` if
    the file is not as expected; nothing is changed then.
    """
    text, content = _load(path)
    entries = _find_entries(content, corpus_id)
    lines = text.splitlines(keepends=True)
    for keys in entries:
        holder = content
        for key in keys:
            holder = holder[key]
        del holder[corpus_id]
        _remove_lines(path, lines, keys, corpus_id=corpus_id, left=holder)
    if entries:
        _save(path, "".join(lines), wanted=content)
    return [".".join((*keys, corpus_id)) for keys in entries]


def find_corpus_entries(path: Path, corpus_id: str) -> list[str]:
    """Name the entries of a corpus: what is built of it, and what else the pipeline makes of it.

    Gives dotted paths, such as ``corpora.law`` and ``train.corpora.law``. Raises ``ParamsError`` if
    the file is not as expected.
    """
    entries = _find_entries(_load(path)[1], corpus_id)
    return [".".join((*keys, corpus_id)) for keys in entries]


def remove_lock_entries(path: Path, corpus_id: str) -> bool:
    """Let DVC forget the stages of a corpus.

    :param path: dvc.lock; it may be missing.
    :param corpus_id: The corpus.
    :returns: Whether the file changed.
    :raises ParamsError: If DVC cannot read the file.
    """
    if not is_readable(path):
        raise ParamsError(
            f"{path.name} must be as DVC writes it",
            found="another content",
            run=f"git checkout HEAD {path.name}, or rm {path.name}",
            about=path.name,
        )
    if not path.is_file():
        return False
    content = load_yaml(path)
    gone = [name for name in content["stages"] if str(name).endswith(f"@{corpus_id}")]
    for name in gone:
        del content["stages"][name]
    if gone:
        write_text_atomically(path, yaml.safe_dump(content, sort_keys=False))
    return bool(gone)


def _load(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_bytes().decode("utf-8")
        content = parse_yaml(text)
    except (OSError, UnicodeDecodeError, YamlError) as error:
        raise _refuse(path, str(error)) from None
    if not isinstance(content, dict) or not isinstance(content.get("corpora") or {}, dict):
        raise _refuse(path, "no mapping corpora")
    return text, content


def _find_entries(content: dict[str, Any], corpus_id: str) -> list[tuple[str, ...]]:
    # where an entry stands: at the top, or in the section of a stage that is run for some corpora
    found: list[tuple[str, ...]] = []
    if corpus_id in (content.get(CORPORA) or {}):
        found.append((CORPORA,))
    for name, section in content.items():
        corpora = section.get(CORPORA) if isinstance(section, dict) and name != CORPORA else None
        if isinstance(corpora, dict) and corpus_id in corpora:
            found.append((name, CORPORA))
    return found


def _remove_lines(
    path: Path, lines: list[str], keys: Sequence[str], *, corpus_id: str, left: dict[str, Any]
) -> None:
    dotted = ".".join((*keys, corpus_id))
    place, end = -1, len(lines)
    for key in keys:
        start = re.compile(rf"[ \t]*{re.escape(key)}:")
        first = next((i for i in range(place + 1, end) if start.match(lines[i])), None)
        if first is None:
            raise _refuse(path, f"no line `{key}:` for {dotted}")
        place, end = first, _find_end(lines, first)
    flow = _FLOW.fullmatch(lines[place].rstrip("\r\n"))
    if flow is not None:
        text = yaml.safe_dump(left, default_flow_style=True, sort_keys=False, width=1 << 20).strip()
        lines[place] = f"{flow[1]}{text}{flow[2]}\n"
        return
    indent = _find_indent(lines[place + 1 : end])
    names = (f"{indent}{name}:" for name in (corpus_id, f"'{corpus_id}'", f'"{corpus_id}"'))
    prefixes = tuple(names)
    first = next((i for i in range(place + 1, end) if lines[i].startswith(prefixes)), None)
    if first is None:
        raise _refuse(path, f"{dotted} is not on a line of its own")
    last = first + 1
    while last < end and lines[last].startswith(f"{indent} "):
        last += 1
    del lines[first:last]
    if not left:
        lines[place] = lines[place].replace(f"{CORPORA}:", f"{CORPORA}: {{}}", 1)


def _quote(text: str) -> str:
    # PyYAML reads YAML 1.1 and DVC 1.2, which differ in what is a number or a truth value: 1e5, no
    is_plain = _PLAIN.fullmatch(text) and text not in _TRUTH_VALUES
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _find_section(path: Path, lines: list[str]) -> tuple[int, int]:
    # The section's line, and one past the last line that belongs to it.
    section = next((i for i, line in enumerate(lines) if _SECTION.fullmatch(line.rstrip())), None)
    if section is None:
        raise _refuse(path, "no line `corpora:`")
    return section, _find_end(lines, section)


def _find_end(lines: list[str], place: int) -> int:
    # One past the last line that belongs to the key of a line: those that are further in.
    depth = _get_depth(lines[place])
    end = place + 1
    for index in range(place + 1, len(lines)):
        line = lines[index]
        if line.strip() and _get_depth(line) > depth:
            end = index + 1
        elif line.strip() and line.lstrip()[0] != "#":
            break
    return end


def _get_depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _find_indent(lines: list[str]) -> str:
    for line in lines:
        stripped = line.lstrip(" ")
        if stripped.strip() and not stripped.startswith("#"):
            return line[: len(line) - len(stripped)]
    return "  "


def _save(path: Path, text: str, *, wanted: dict[str, Any]) -> None:
    # Editing lines is only right if YAML reads what was meant.
    try:
        is_meant = _fill(parse_yaml(text)) == _fill(wanted)
    except YamlError:
        is_meant = False
    if not is_meant:
        raise _refuse(path, "a layout of the section corpora that cannot be edited line by line")
    write_text_atomically(path, text)


def _fill(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, CORPORA: content.get(CORPORA) or {}}


def _refuse(path: Path, found: str) -> ParamsError:
    return ParamsError(
        f"{path.name} must have a section corpora with one entry per corpus",
        found=found,
        run=f"edit corpora in {path.name} by hand",
        about="corpora",
    )
