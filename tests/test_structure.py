"""What holds the project together: same words, caps, documentation, complete pipelines."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
import yaml

from cog.cli.main import LazyCommands, cli
from cog.extras import EXTRAS
from cog.params import Params
from cog.paths import ProjectPaths
from cog.pipeline_file import LAYOUT, VERSIONS, load_pipeline
from cog.registry import load_card

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / "workflows").glob("*/dvc.yaml"))
STAGES = {
    name: stage
    for path in (ROOT / "dvc.yaml", *WORKFLOWS)
    for name, stage in yaml.safe_load(path.read_text(encoding="utf-8"))["stages"].items()
}
# what only carries elsewhere what another stage wrote has neither settings nor a version
MOVES = {name for name, stage in STAGES.items() if not {"outs", "metrics"} & set(stage["do"])}
CODE_FOLDERS = ("cog", "benchmarks", "scripts", "tests")
SOURCES = sorted(path for name in CODE_FOLDERS for path in (ROOT / name).rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
WRITTEN = {".py", ".md", ".yaml", ".toml", ".txt", ".sh", ".json", ".cfg", ""}


def tracked_files() -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in found.stdout.split("\0") if name]


def list_names(group: click.Group) -> list[str]:
    return group.list_commands(click.Context(group))


def iter_commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    found = [(name, command)]
    if isinstance(command, click.Group):
        for child_name in list_names(command):
            child = command.get_command(click.Context(command), child_name)
            assert child is not None
            found += iter_commands(child, f"{name} {child_name}")
    return found


def test_stages_are_sections_and_versions() -> None:
    kinds = get_type_hints(Params)
    making = set(STAGES) - MOVES
    assert set(kinds) == {*making, "model"} == {*VERSIONS, "model"}
    assert all(kinds[name].__name__ == f"{name.capitalize()}Params" for name in making)
    assert {"push"} == MOVES


@pytest.mark.parametrize("stage", STAGES)
def test_stage_is_a_command_that_depends_on_data_section_and_version(stage: str) -> None:
    content = STAGES[stage]
    assert content["foreach"] == "${corpora}"
    do = content["do"]
    assert do["cmd"].startswith("cog ")
    words = do["cmd"].replace("${key}", "wiki-mini").split()[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    command.make_context(command.name, words)  # its words are right
    version = {"registry/pipeline.yaml": [f"versions.{stage}"]}
    assert stage in MOVES or (stage in do["params"] and version in do["params"])
    allowed = ("${", "corpora/")
    assert all(dep.startswith(allowed) for dep in do["deps"])
    assert ("${watched}" in do["deps"]) == ("model" in do["params"])


def test_the_file_of_the_pipeline_is_of_these_versions() -> None:
    content = load_pipeline(ProjectPaths(ROOT))
    assert (content.layout, content.versions) == (LAYOUT, VERSIONS)
    assert content.watched == "models/cog-v0"


@pytest.mark.parametrize("folder", [path.parent for path in WORKFLOWS], ids=lambda path: path.name)
def test_pipelines_beside_the_main_one_say_what_they_do(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    for stage in yaml.safe_load((folder / "dvc.yaml").read_text(encoding="utf-8"))["stages"]:
        assert f"dvc repro workflows/{folder.name}/dvc.yaml:{stage}@" in page


def test_every_corpus_built_has_a_card_and_names_its_root() -> None:
    paths = ProjectPaths(ROOT)
    corpora = load_pipeline(paths).corpora
    assert corpora
    for corpus_id, entry in corpora.items():
        assert load_card(paths, corpus_id).root == entry.root


def test_cards_write_every_key_that_the_pipeline_reads() -> None:
    wanted = {
        key
        for stage in STAGES.values()
        for entry in stage["do"]["params"]
        if isinstance(entry, dict)
        for file, keys in entry.items()
        if file.startswith("registry/cards/")
        for key in keys
    }
    cards = sorted((ROOT / "registry" / "cards").glob("*.yaml"))
    assert cards
    for card in cards:
        missing = wanted - set(yaml.safe_load(card.read_text(encoding="utf-8")))
        assert missing == set(), card.name


def test_every_command_has_help_and_is_documented_with_its_options() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    modules = (ROOT / "cog" / "cli").glob("*.py")
    defining = {
        m.stem for m in modules if re.search(r"^(def )?command\b", m.read_text(), re.MULTILINE)
    }
    commands = iter_commands(cli, "cog")
    lazy = [each for _, each in commands if isinstance(each, LazyCommands)]
    names = {f"{each.modules}{name}" for each in lazy for name in list_names(each)}
    assert {f"cog.cli.{name}" for name in defining} == {name.replace("-", "_") for name in names}
    for name, command in commands:
        assert command.help, f"{name} has no help"
        assert f"`{name}" in page, f"docs/cli.md lacks {name}"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                for option in parameter.opts:
                    assert f"`{option}" in page, f"docs/cli.md lacks {option} of {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def iter_public(tree: ast.Module) -> list[ast.FunctionDef]:
    bodies: list[list[ast.stmt]] = [tree.body]
    bodies += [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    return [
        node
        for body in bodies
        for node in body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if not any(ast.unparse(each) == "overload" for each in node.decorator_list)
    ]


LIBRARY = [path for path in SOURCES if path.parts[len(ROOT.parts)] == "cog"]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_functions_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no module docstring"
    for node in iter_public(tree):
        assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_nothing_names_a_path_of_a_machine_or_a_registry_host() -> None:
    pattern = re.compile(
        r"(?<![\w.])/(?:home|Users|root|work|opt|mnt|tmp)/\w"
        r"|https?://[\w.]*(?:pypi|pythonhosted|index)[\w.]*/simple"
    )
    for path in tracked_files():
        if path.suffix in WRITTEN and path.is_file() and path != Path(__file__):
            found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{path.relative_to(ROOT)} names {found.group()}"  # type: ignore[union-attr]


def test_constraints_pin_every_dependency() -> None:
    import tomllib

    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for name in extras for each in extras[name])]
    names = {re.split(r"[<>=\[; ]", name)[0].lower().replace("_", "-") for name in wanted}
    names -= {"copy-generator", "faiss-gpu"}  # the latter in the place of faiss-cpu
    assert names - pinned == set()


HEAVY = (
    "torch",
    "transformers",
    "lancedb",
    "lance",
    "datasets",
    "faiss",
    "mlflow",
    "pyarrow",
    "ray",
)


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["switch", "--help"], ["rollback", "--help"], ["status", "--help"]],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from cog.cli.main import cli\n"
        f"cli.main({words!r}, standalone_mode=False)\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_extras_are_whole_and_name_what_they_bring() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = set(re.split(r"[\[,\]]", extras["all"][0])[1:-1])
    assert set(extras) == listed | {"all", "dev", "gpu", "mauve"}
    assert any("[all" in name for name in extras["dev"])
    assert set(EXTRAS.values()) <= set(extras)
    imported = {
        "scikit_learn": "sklearn",
        "faiss_cpu": "faiss",
    }  # where the name is another than that of the package
    brought = [
        re.split("[<>=]", each)[0].replace("-", "_") for name in listed for each in extras[name]
    ]
    assert {imported.get(name, name) for name in brought} <= set(EXTRAS)
    always = {re.split("[<>=]", each)[0].replace("-", "_") for each in project["dependencies"]}
    assert not always & set(EXTRAS)
