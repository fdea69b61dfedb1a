"""Checks of what is installed: another ``cog``, and an MLflow that is not of its database."""

import importlib.util
import re
import sqlite3
from collections.abc import Iterator
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

from cog.doctor.records import Finding
from cog.extras import DISTRIBUTION

NAME = "cog"


def check_install() -> Iterator[Finding]:
    """Check that no other distribution brings a package or a command of the same name."""
    packages = {_tidy(each) for each in packages_distributions().get(NAME, ())}
    for other in sorted(packages - {DISTRIBUTION}):
        yield Finding(
            "install",
            other,
            f"it installs a package {NAME} into the same folder: files of both are mixed",
            f"pip uninstall {other} {DISTRIBUTION}, then pip install {DISTRIBUTION}",
        )
    scripts = entry_points(group="console_scripts", name=NAME)
    commands = {_tidy(each.dist.name) for each in scripts if each.dist is not None}
    for other in sorted(commands - packages - {DISTRIBUTION}):
        yield Finding(
            "install",
            other,
            f"it installs a command {NAME}, too: which one runs depends on the order",
            f"call {DISTRIBUTION} in the place of {NAME}, or pip uninstall {other}",
        )


def _tidy(name: str) -> str:
    return name.lower().replace("_", "-")


_REVISION = re.compile(r'^revision = "(\w+)"', re.MULTILINE)
_BEFORE = re.compile(r'^down_revision = "(\w+)"', re.MULTILINE)


def find_schema_problem(database: sqlite3.Connection, name: str) -> tuple[str, str]:
    """Hold the version of a database against the migrations that the installed MLflow brings.

    Gives what is wrong, and the command that mends it; both empty if nothing is.
    """
    row = database.execute("SELECT version_num FROM alembic_version").fetchone()
    version = row[0] if row else "none"
    texts = [path.read_text(encoding="utf-8") for path in _list_migrations()]
    known = {match[1] for text in texts if (match := _REVISION.search(text))}
    latest = known - {match[1] for text in texts if (match := _BEFORE.search(text))}
    if not latest or version in latest:
        return "", ""
    if version in known:
        problem = f"the database has schema {version} of an older MLflow"
        return problem, f"cp {name} {name}.old && mlflow db upgrade sqlite:///{name}"
    return f"the database has schema {version}, which this MLflow does not know", (
        "pip install --upgrade mlflow"
    )


def _list_migrations() -> list[Path]:
    # found, not imported: MLflow takes seconds to load
    spec = importlib.util.find_spec("mlflow")
    folders = spec.submodule_search_locations or [] if spec is not None else []
    return [
        path for each in folders for path in Path(each).glob("store/db_migrations/versions/*.py")
    ]
