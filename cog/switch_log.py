"""The log of switches: a change goes in, a line is added; lines are never rewritten."""

import getpass
import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from cog.atomic import append_text
from cog.git import run_git
from cog.paths import ProjectPaths
from cog.records import Active

OUTSIDE = "(not by cog: active.yaml was changed or restored)"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history."""

    time: str  # when, ISO 8601 in UTC
    who: str  # git's user, or the machine's
    command: str  # what was called
    before: dict[str, str] | None  # what was active, as active.yaml has it; None if nothing was
    after: dict[str, str] | None  # what was active from then on


def load_history(paths: ProjectPaths) -> tuple[list[HistoryEntry], int]:
    """Read who switched on what when, oldest first; and the number of unreadable lines."""
    entries, num_broken = [], 0
    lines = paths.history.read_bytes().splitlines() if paths.history.is_file() else []
    for line in lines:
        try:
            entries.append(_read_entry(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError):
            num_broken += bool(line.strip())
    return entries, num_broken


def _read_entry(content: Any) -> HistoryEntry:  # noqa: ANN401
    entry = HistoryEntry(**{each.name: content[each.name] for each in _ENTRY})
    texts: list[object] = [entry.time, entry.who, entry.command]
    for active in (entry.before, entry.after):
        texts += [active[name] for name in _IDENTITY] if active is not None else []
    if not all(isinstance(each, str) for each in texts):
        raise TypeError("not as it is written")
    return entry


_ENTRY = fields(HistoryEntry)
_IDENTITY = ("corpus", "index", "model", "switched_at")


def is_same(first: dict[str, str] | None, second: dict[str, str] | None) -> bool:
    """Whether two entries say that the same was active; older ones know no folder of the model."""
    if first is None or second is None:
        return first is second
    return all(first.get(name) == second.get(name) for name in _IDENTITY)


def log_change(paths: ProjectPaths, old: Active | None, new: Active, *, command: str) -> None:
    """Add a line, unless the log says it; what happened without one gets a line of its own.

    Without one happens an edit, or a switch that was killed; where that is said again, the line
    is of what was said (``old`` is ``new`` then). The caller holds the lock of what is active.
    """
    entries, _ = load_history(paths)
    last = entries[-1].after if entries else None
    before, after = asdict(old) if old else None, asdict(new)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = []
    if not is_same(last, before) and not is_same(before, after):
        lines.append(HistoryEntry(now, "unknown", OUTSIDE, last, before))
        last = before
    if not is_same(last, after):
        lines.append(HistoryEntry(now, _get_user(paths), command, last, after))
    if lines:
        text = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in lines)
        append_text(paths.history, text)


def _get_user(paths: ProjectPaths) -> str:
    name, email = (run_git(paths.root, "config", f"user.{key}") for key in ("name", "email"))
    if name or email:
        return f"{name} <{email}>".strip() if email else name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
