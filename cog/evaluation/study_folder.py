"""Blind studies at rest: cases, key, raters and answers go into a folder, and come out of it.

The folder is what ``cog paper study blind`` writes, so a study is the same in a spreadsheet and
on a page: ``sheet.csv`` and ``key.json``, and below ``answers/`` a sheet per rater.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cog.atomic import write_text_atomically
from cog.errors import EvaluationError
from cog.evaluation.blind import (
    ANSWERS,
    QUESTIONS,
    Item,
    Key,
    parse_key,
    read_items,
    read_sheet,
    write_answers,
    write_sheet,
)
from cog.locks import hold_lock
from cog.paths import ProjectPaths

KEY_NAME, CSV_NAME = "key.json", "sheet.csv"
RATERS_NAME, ANSWERS_FOLDER = "raters.json", "answers"
TOKEN_BYTES = 12
MAX_NAME = 64  # characters of a rater's name

Answers = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Rater:
    """Somebody who judges."""

    name: str
    token: str  # what their link holds, which nobody can guess; their sheet is named after it


def save_study(folder: Path, items: Sequence[Item], key: Key, *, is_forced: bool = False) -> None:
    """Write a study: a sheet for graders, and the key that they do not get."""
    if (folder / KEY_NAME).exists() and not is_forced:
        raise EvaluationError(
            "a study's key must not be lost",
            found=f"one in {folder}",
            run="choose another --output, or pass --force",
            about=str(folder),
        )
    write_text_atomically(folder / CSV_NAME, write_sheet(items))
    # last, since it is what makes a folder a study: one that is killed here can be run again
    write_text_atomically(folder / KEY_NAME, json.dumps(key.to_json(), indent=1))


def list_studies(paths: ProjectPaths) -> list[str]:
    """Name the studies of a project."""
    return sorted(each.parent.name for each in paths.studies.glob(f"*/{KEY_NAME}"))


class Study:
    """A study of a project, by the name of its folder."""

    def __init__(self, paths: ProjectPaths, name: str) -> None:
        if name not in list_studies(paths):
            raise EvaluationError(
                f"a study must be one of {paths.studies.name}/",
                found=repr(name[:80]),
                run="cog paper study blind --systems A B",
                about=name[:80],
            )
        self.name = name
        self._paths = paths
        self._folder = paths.studies / name
        where = f"{paths.studies.name}/{name}"
        self.key = parse_key(read_text(self._folder / KEY_NAME), where=f"{where}/{KEY_NAME}")
        self._where = f"{where}/{CSV_NAME}"

    @property
    def num_cases(self) -> int:
        """Number of its cases."""
        return len(self.key.first_is_left)

    def load_items(self) -> list[Item]:
        """Read the cases."""
        return read_items(read_text(self._folder / CSV_NAME), where=self._where, key=self.key)

    def load_raters(self) -> list[Rater]:
        """Say who judges."""
        path = self._folder / RATERS_NAME
        if not path.is_file():
            return []
        try:
            content = json.loads(read_text(path))
            found = "" if isinstance(content, dict) else type(content).__name__
            found = found or ", ".join(k for k, v in content.items() if not isinstance(v, str))
        except ValueError as error:
            found = str(error)
        if found:
            raise EvaluationError(
                f"{path.parent.name}/{path.name} must give each rater's name a token",
                found=found,
                run=f"mend {path}; without it nobody's link works, and no answer is lost",
                about=self.name,
            )
        return [Rater(name, token) for name, token in content.items()]

    def add_rater(self, name: str) -> Rater:
        """Let somebody judge; who does so already is found again."""
        name = " ".join(name.split())
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise EvaluationError(
                f"a rater's name must be one line of 1 to {MAX_NAME} characters",
                found=repr(name[:MAX_NAME]),
            )
        with hold_lock(self._paths.locks / "studies.lock"):
            raters = {each.name: each.token for each in self.load_raters()}
            token = raters.setdefault(name, secrets.token_urlsafe(TOKEN_BYTES))
            write_text_atomically(
                self._folder / RATERS_NAME, json.dumps(raters, ensure_ascii=False, indent=1)
            )
        return Rater(name, token)

    def find_rater(self, token: str) -> Rater | None:
        """Find who brings a token."""
        given = token.encode("utf-8", "replace")
        known = self.load_raters()
        return next((a for a in known if secrets.compare_digest(a.token.encode(), given)), None)

    def load_answers(self, rater: Rater) -> Answers:
        """Read what somebody has answered, by item and question."""
        path = self._get_sheet(rater)
        if not path.is_file():
            return {}
        found = read_sheet(read_text(path), where=path.name, key=self.key)
        return {item: answers for item, answers in found.items() if answers}

    def answer(self, rater: Rater, *, item: str, question: str, answer: str | None) -> Answers:
        """Keep one answer, ``A``, ``B`` or ``N``, or take it back; gives all of the rater."""
        checks = (
            ("item", item, tuple(self.key.first_is_left)),
            ("question", question, QUESTIONS),
            ("answer", answer, (*ANSWERS, None)),
        )
        for name, given, known in checks:
            if given not in known:
                raise EvaluationError(f"{name} must be the study's", found=repr(given)[:80])
        with hold_lock(self._paths.locks / "studies.lock"):
            answers = self.load_answers(rater)
            own = answers.setdefault(item, {})
            own.pop(question, None)
            if answer is not None:
                own[question] = answer
            write_text_atomically(self._get_sheet(rater), write_answers(self.key, answers))
        return answers

    def _get_sheet(self, rater: Rater) -> Path:
        return self._folder / ANSWERS_FOLDER / f"{rater.token}.csv"


def read_text(path: Path) -> str:
    """Read a file of a study."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"{path.name} must be a text file in UTF-8",
            found=str(error),
            about=str(path),
        ) from error
