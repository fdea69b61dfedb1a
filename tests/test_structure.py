"""What holds the project together: same words, caps, documentation, a complete dvc.yaml."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import click
import grimp
import pytest
import yaml

from cog.cli.main import COMMANDS, cli
from cog.params import Params, load_params

ROOT = Path(__file__).parents[1]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
STAGES = sorted(PIPELINE)
CODE_FOLDERS = ("cog", "workflows", "benchmarks", "scripts", "tests")
SOURCES = sorted(path for name in CODE_FOLDERS for path in (ROOT / name).rglob("*.py"))
# stages that run on corpora of their own list, none unless asked
UNLESS_ASKED = {"datastore": "datastore", "retro": "retro", "segment": "train", "train": "train"}
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


def iter_commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    found = [(name, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None
            found += iter_commands(child, f"{name} {child_name}")
    return found


def test_stages_are_scripts_are_sections() -> None:
    scripts = sorted(path.stem for path in (ROOT / "workflows").glob("*.py"))
    assert scripts == STAGES
    kinds = get_type_hints(Params)
    assert set(kinds) == {*STAGES, "corpora", "model"}
    assert all(kinds[name].__name__ == f"{name.capitalize()}Params" for name in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_runs_its_script_and_reads_its_section(stage: str) -> None:
    content = PIPELINE[stage]
    wanted = f"${{{UNLESS_ASKED[stage]}.corpora}}" if stage in UNLESS_ASKED else "${corpora}"
    assert content["foreach"] == wanted
    assert content["do"]["cmd"] == f"python workflows/{stage}.py ${{key}}"
    sections = {str(entry).partition(".")[0] for entry in content["do"]["params"]}
    assert stage in sections


@pytest.mark.parametrize("stage", STAGES)
def test_deps_cover_the_transitive_imports_of_the_script(stage: str) -> None:
    script = ROOT / "workflows" / f"{stage}.py"
    graph = grimp.build_graph("cog", cache_dir=None)
    names = imported_modules(script, set(graph.modules))
    needed = set(names)
    for name in names:
        needed |= graph.find_upstream_modules(name)
    deps = [ROOT / dep for dep in PIPELINE[stage]["do"]["deps"] if "$" not in dep]
    for dep in deps:
        assert dep.exists(), f"{stage}: {dep} is not there"
    files = {module_file(name) for name in needed} | {script}
    uncovered = sorted(
        str(file.relative_to(ROOT))
        for file in files
        if file.name != "__init__.py" and not any(file.is_relative_to(dep) for dep in deps)
    )
    assert uncovered == [], f"add to deps of {stage} in dvc.yaml"


def imported_modules(script: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    assert found, f"{script.name} imports nothing of cog"
    return found


def module_file(name: str) -> Path:
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_corpus_built_has_a_card_and_names_its_root() -> None:
    from cog.paths import ProjectPaths
    from cog.registry import load_card

    paths = ProjectPaths(ROOT)
    corpora = load_params(paths.params).corpora
    assert corpora
    for corpus_id, entry in corpora.items():
        assert load_card(paths, corpus_id).root == entry.root


def test_cards_write_every_key_that_the_pipeline_reads() -> None:
    wanted = {
        key
        for stage in PIPELINE.values()
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
        m.stem for m in modules if re.search(r"^def command\(", m.read_text(), re.MULTILINE)
    }
    assert set(COMMANDS) == defining
    for name, command in iter_commands(cli, "cog"):
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


LIBRARY = [path for path in SOURCES if path.parts[len(ROOT.parts)] in ("cog", "workflows")]


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
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=\[; ]", name)[0].lower().replace("_", "-") for name in wanted}
    assert names - pinned == set()


HEAVY = ("torch", "transformers", "lancedb", "lance", "datasets", "faiss", "mlflow", "pyarrow")


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
