"""A package that is not installed is named with what installs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cog.errors import MissingPackageError
from cog.extras import EXTRAS, explain_missing
from cog.paths import ProjectPaths

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["mlflow.entities", "dvc.repo", "starlette"])
def test_a_missing_package_is_told_with_its_extra(name: str) -> None:
    told = str(explain_missing(ModuleNotFoundError(f"No module named {name!r}", name=name)))
    package = name.partition(".")[0]
    assert told.startswith(f"this needs the package {package}; found: it is not installed; next: ")
    assert told.endswith(f"pip install 'copy-generator[{EXTRAS[package]}]'")


def test_what_no_extra_brings_is_no_stated_failure() -> None:
    assert explain_missing(ModuleNotFoundError("No module named 'cog.x'", name="cog.x")) is None


def test_the_command_line_tells_it_in_one_line() -> None:
    code = (
        "import sys\nfrom cog.cli import main as command\nsys.modules['mlflow'] = None\n"
        "def fail(**_):\n    import mlflow\n"
        "command.cli.main = fail\ncommand.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("next: pip install 'copy-generator[evaluate]'\n")
    assert done.stderr.count("\n") == 1


def test_nothing_is_evaluated_that_could_not_be_logged(
    project: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cog.evaluation.tracking import choose_uri

    choose_uri(project)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"\[evaluate\]"):
        choose_uri(project)


def test_no_extra_brings_what_is_installed_anyway() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    core = {re.split(r"\W", each)[0] for each in project["dependencies"]}
    assert core.isdisjoint(EXTRAS)
    assert "gguf" in core  # without which the default model is not read
