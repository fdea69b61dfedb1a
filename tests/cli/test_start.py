"""What a process imports before it writes: packages that take seconds, and that nothing needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from tests.built_project import build_village
from tests.calling import call
from tests.model_fixtures import make_tiny_model

NEEDLESS = (
    "accelerate",
    "datasets",
    "faiss",
    "lancedb",
    "matplotlib",
    "mlflow",
    "scipy",
    "sklearn",
    "torch._dynamo",
    "transformers",
)
GENERATE = """
from cog.cli.main import cli
words = ["generate", "--prefix", "The baker of", "--max-new-tokens", "4"]
cli.main(["--project", sys.argv[1], *words], standalone_mode=False)
"""
SERVE = """
from cog.params import load_params
from cog.paths import find_project
from cog.serve.app import make_app
from cog.serve.engine import Engine
from cog.serve.settings import ServeSettings
import cog.serve.run
paths, settings = find_project(Path(sys.argv[1])), ServeSettings(port=0)
engine = Engine(paths, load_params(paths.params), settings=settings)
make_app(engine, settings)
engine.warm()
assert engine.indexes.num_open == 1
engine.stop()
"""


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> ProjectPaths:
    """A project whose model is of the kinds that are read without transformers."""
    root = tmp_path_factory.mktemp("start")
    model = make_tiny_model(root / "model", architecture="llama")
    paths = build_village(root / "project", model)
    call(paths, "switch", "village")
    return paths


@pytest.mark.parametrize("code", [GENERATE, SERVE], ids=["generate", "serve"])
def test_nothing_is_imported_that_is_not_needed(
    village: ProjectPaths, repository: Path, code: str
) -> None:
    code = f"import sys\nfrom pathlib import Path\n{code}"
    code += f"print([n for n in {NEEDLESS!r} if n in sys.modules], file=sys.stderr)\n"
    run = subprocess.run(
        [sys.executable, "-c", code, str(village.root)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1] == "[]"
