"""The examples of docs/serve.md, as they stand, but for the port."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cog.cli.serve import command
from tests.serve.serving import WAIT, RunningServer

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def read_example(language: str, server: RunningServer) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(found) == 1
    example = str(found[0])
    assert "http://127.0.0.1:8000" in example
    return example.replace("http://127.0.0.1:8000", server.url)


def run(words: list[str], stdin: str) -> str:
    done = subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_of_curl_runs(server: RunningServer) -> None:
    out = run(["bash", "-e"], read_example("sh", server))
    assert '"object":"text_completion"' in out


def test_the_example_of_python_runs(server: RunningServer) -> None:
    out = run([sys.executable, "-"], read_example("python", server))
    assert " from " in out


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_example_of_javascript_runs(server: RunningServer) -> None:
    out = run(["node", "--input-type=module", "-"], read_example("js", server))
    assert out.strip()


def test_every_limit_has_an_option_that_is_told() -> None:
    page = PAGE.read_text("utf-8")
    for name in ("--max-waiting", "--max-indexes", "--max-texts", "--max-tokens", "--max-seconds"):
        assert any(name in option.opts for option in command.params)
        assert f"`{name}`" in page
