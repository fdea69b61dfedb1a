"""Entries of params.yaml: a corpus id goes in, one entry is added or removed, comments survive."""

import re
from pathlib import Path

import yaml

from cog.atomic import write_text_atomically
from cog.cards import check_corpus_id
from cog.errors import ParamsError

_SECTION = re.compile(r"corpora:[ \t]*(?:\{\}|null|~)?[ \t]*(#.*)?")


def add_corpus_entry(path: Path, corpus_id: str, root: str) -> bool:
    """Let the pipeline build a corpus.

    :param path: params.yaml.
    :param corpus_id: The corpus.
    :param root: Id of the card that names its source.
    :returns: Whether the file changed; False if the entry was there.
    :raises ParamsError: If the file is not as expected, or has another entry of this id.
    """
    check_corpus_id(corpus_id)
    text, corpora = _load(path)
    if corpus_id in corpora:
        if corpora[corpus_id] == {"root": root}:
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
    lines[end:end] = [f"{indent}{corpus_id}:\n", f"{indent}  root: {root}\n"]
    _save(path, "".join(lines), wanted={**corpora, corpus_id: {"root": root}})
    return True


def remove_corpus_entry(path: Path, corpus_id: str) -> bool:
    """Let the pipeline build a corpus no longer.

    :param path: params.yaml.
    :param corpus_id: The corpus.
    :returns: Whether the file changed; False if there was no entry.
    :raises ParamsError: If the file is not as expected.
    """
    text, corpora = _load(path)
    if corpus_id not in corpora:
        return False
    lines = text.splitlines(keepends=True)
    section, end = _find_section(path, lines)
    indent = _find_indent(lines[section + 1 : end])
    keys = (f"{indent}{key}:" for key in (corpus_id, f"'{corpus_id}'", f'"{corpus_id}"'))
    prefixes = tuple(keys)
    first = next((i for i in range(section + 1, end) if lines[i].startswith(prefixes)), None)
    if first is None:
        raise _refuse(path, f"corpora.{corpus_id} is not on a line of its own")
    last = first + 1
    while last < end and lines[last].startswith(f"{indent} "):
        last += 1
    del lines[first:last]
    wanted = {key: value for key, value in corpora.items() if key != corpus_id}
    if not wanted:
        lines[section] = lines[section].replace("corpora:", "corpora: {}", 1)
    _save(path, "".join(lines), wanted=wanted)
    return True


def remove_lock_entries(path: Path, corpus_id: str) -> bool:
    """Let DVC forget the stages of a corpus.

    :param path: dvc.lock; it may be missing.
    :param corpus_id: The corpus.
    :returns: Whether the file changed.
    :raises ParamsError: If the file is not YAML.
    """
    if not path.is_file():
        return False
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        wanted = f"{path.name} must be as DVC writes it"
        raise ParamsError(wanted, found=str(error), run="dvc repro", about=path.name) from error
    stages = (content or {}).get("stages") or {}
    gone = [name for name in stages if name.endswith(f"@{corpus_id}")]
    for name in gone:
        del stages[name]
    if gone:
        write_text_atomically(path, yaml.safe_dump(content, sort_keys=False))
    return bool(gone)


def _load(path: Path) -> tuple[str, dict[str, object]]:
    try:
        text = path.read_bytes().decode("utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _refuse(path, str(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("corpora") or {}, dict):
        raise _refuse(path, "no mapping corpora")
    return text, content.get("corpora") or {}


def _find_section(path: Path, lines: list[str]) -> tuple[int, int]:
    # The section's line, and one past the last line that belongs to it.
    section = next((i for i, line in enumerate(lines) if _SECTION.fullmatch(line.rstrip())), None)
    if section is None:
        raise _refuse(path, "no line `corpora:`")
    end = section + 1
    for index in range(section + 1, len(lines)):
        line = lines[index]
        if line[0] in " \t" and line.strip():
            end = index + 1
        elif line.strip() and line[0] != "#":
            break
    return section, end


def _find_indent(lines: list[str]) -> str:
    for line in lines:
        stripped = line.lstrip(" ")
        if stripped.strip() and not stripped.startswith("#"):
            return line[: len(line) - len(stripped)]
    return "  "


def _save(path: Path, text: str, *, wanted: dict[str, object]) -> None:
    # Editing lines is only right if YAML reads what was meant.
    if (yaml.safe_load(text).get("corpora") or {}) != wanted:
        raise _refuse(path, "a layout of the section corpora that cannot be edited line by line")
    write_text_atomically(path, text)


def _refuse(path: Path, found: str) -> ParamsError:
    return ParamsError(
        f"{path.name} must have a section corpora with one entry per corpus",
        found=found,
        run=f"edit corpora in {path.name} by hand",
        about="corpora",
    )
