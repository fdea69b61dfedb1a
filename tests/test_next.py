"""What messages say is to be run next: it is known, it runs, and what was asked works after it."""

import ast
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml

from cog.cli.main import SECTIONS, cli
from cog.errors import CogError
from cog.paths import ProjectPaths
from cog.pipeline_file import remove_corpus_entry
from tests.calling import call, call_json
from tests.tiny_project import make_project, write_yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "cog").rglob("*.py"))]
COMMANDS = [name for commands in SECTIONS.values() for name in commands]
CLAUSES = re.compile(r", | && |; |: | \(|\)|`| and (?=cog )")
MEANT = re.compile(rf"\bnext: |^cog ({'|'.join(COMMANDS)}) ")
OTHERS = ("dvc ", "git ", "mlflow ", "pip ", "ray ", "run pip")  # whose options are their own


def read_texts(node: ast.AST) -> list[str]:
    """The texts that an expression may become; what is filled in is X."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else ["X"]
    if isinstance(node, ast.IfExp):
        return read_texts(node.body) + read_texts(node.orelse)
    if isinstance(node, ast.FormattedValue):
        return read_texts(node.value)
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            texts = [before + after for before in texts for after in read_texts(part)]
        return texts
    return ["X"]


def iter_hints(path: Path) -> Iterator[tuple[int, str]]:
    """What a module says is to be run, with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.keyword | ast.Assign):
            targets = getattr(node, "targets", [])
            names = [getattr(node, "arg", ""), *(getattr(target, "id", "") for target in targets)]
            found = [node.value] if "run" in names else []
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
            found = node.args[3:]
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            found = [node] if any(MEANT.search(text) for text in read_texts(node)) else []
        for each in found:
            for text in read_texts(each):
                yield node.lineno if hasattr(node, "lineno") else 0, text.rpartition("next: ")[2]


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words that are left."""
    command: click.Command = cli
    with click.Context(cli) as context:
        while isinstance(command, click.Group) and words and re.match(r"[a-z]", words[0]):
            below = command.get_command(context, words[0])
            assert below is not None, f"no command {' '.join(words)}"
            command, words = below, words[1:]
    return command, words


def list_options(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def list_all_options() -> set[str]:
    options: set[str] = set()
    waiting = [find_command([name])[0] for name in COMMANDS]
    while waiting:
        command = waiting.pop()
        options |= list_options(command)
        if isinstance(command, click.Group):
            context = click.Context(command)
            below = (command.get_command(context, n) for n in command.list_commands(context))
            waiting += [each for each in below if each is not None]
    return options | list_options(cli)


ALL_OPTIONS = list_all_options()


@pytest.mark.parametrize("name", SOURCES)
def test_a_command_that_is_to_be_run_next_is_known(name: str) -> None:
    for line, hint in iter_hints(ROOT / name):
        assert "<" not in hint, f"{name}:{line}: a shell takes {hint} for a file"
        for clause in CLAUSES.split(hint):
            match = re.search(r"\bcog ([a-z].*)", clause)
            known, words = ALL_OPTIONS, clause.split()
            if match is not None and match[1].split()[0] in COMMANDS:
                command, words = find_command(match[1].split())
                is_group = isinstance(command, click.Group)  # whose first command may be left out
                known = ALL_OPTIONS if is_group else list_options(command)
            elif clause.startswith("cog ") and match is not None:
                pytest.fail(f"{name}:{line}: no command {clause}")
            if clause.startswith(OTHERS):
                continue
            options = [word.rstrip(".,") for word in words if re.match(r"--[a-z]", word)]
            assert {each.split("=")[0] for each in options} <= known, f"{name}:{line}: {clause}"


def run_next(paths: ProjectPaths, hint: str) -> None:
    """Run what is printed, the first of several ways; each command may name another first."""
    first = re.split(r", or |, and | \(", hint)[0].replace("DIR_OR_FILE", "texts/village.jsonl")
    for step in re.split(r" && |, then ", first):
        words = shlex.split(step)
        words = [str(paths.root / w) if w == "texts/village.jsonl" else w for w in words]
        if words[0] == "cog":
            follow(paths, words[1:])
        else:
            subprocess.run(words, cwd=paths.root, check=True)


def follow(paths: ProjectPaths, words: list[str]) -> None:
    """Call a command; where it is refused, what it says is run, and it is called again."""
    for _ in range(4):
        result = call(paths, *words)
        if result.exit_code == 0:
            return
        assert isinstance(result.exception, CogError), (words, result.exception, result.output)
        assert result.exception.run, result.exception
        run_next(paths, result.exception.run)
    pytest.fail(f"{words}: {result.exception}")


@pytest.fixture
def unbuilt(tmp_path: Path, tiny_model: Path) -> ProjectPaths:
    """A project with its model, in a folder whose name an address would spell otherwise."""
    paths = make_project(tmp_path / "a%20b #c")
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    return paths


@pytest.fixture
def built(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    """A copy of a built project."""
    return ProjectPaths(Path(shutil.copytree(village.root, tmp_path / "a%20b #c")))


def leave_out(paths: ProjectPaths) -> None:
    """The pipeline does not know the corpus."""
    remove_corpus_entry(paths, "village")


def ask_for_source(paths: ProjectPaths) -> None:
    """The card leaves it to its user where the files are."""
    card = yaml.safe_load(paths.card("village").read_text(encoding="utf-8"))
    write_yaml(paths.card("village"), card | {"source": {"type": "files", "path": None}})


def fetch(paths: ProjectPaths) -> None:
    assert call(paths, "corpus", "fetch", "village").exit_code == 0


def prepare(paths: ProjectPaths) -> None:
    fetch(paths)
    assert call(paths, "corpus", "prepare", "village").exit_code == 0


def nothing(paths: ProjectPaths) -> None:
    pass


GENERATE = "generate --prefix The --max-new-tokens 4 --device cpu"


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (nothing, "switch village"),
        (leave_out, "corpus documents village"),
        (ask_for_source, "corpus duplicates village"),
        (fetch, f"{GENERATE} --corpus village"),
        (fetch, "paper segment --corpus village"),
        (prepare, "index verify village"),
        (nothing, "corpus prepare hamlet"),
        (prepare, GENERATE),
    ],
)
def test_what_is_not_built_is_built_by_what_is_printed(
    unbuilt: ProjectPaths, state: Callable[[ProjectPaths], None], asked: str
) -> None:
    state(unbuilt)
    follow(unbuilt, asked.split())


def test_the_status_leads_to_a_corpus_that_is_switched_on(unbuilt: ProjectPaths) -> None:
    for _ in range(3):
        if hint := call_json(unbuilt, "status")["next"]:
            run_next(unbuilt, hint)
    assert call_json(unbuilt, "status")["active"]["corpus"] == "village"


def damage_documents(paths: ProjectPaths) -> None:
    paths.corpus("village").documents.write_bytes(b"PAR1")


def damage_raw(paths: ProjectPaths) -> None:
    paths.corpus("village").documents.unlink()
    (paths.corpus("village").raw / "village.jsonl").write_bytes(b"")


def damage_manifest(paths: ProjectPaths) -> None:
    path = paths.corpus("village").manifest
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_chunks": -1}))


def damage_tuning(paths: ProjectPaths) -> None:
    paths.corpus("village").tuning.write_text('{"format_version": 1}')


def damage_index(paths: ProjectPaths) -> None:
    path = max(paths.corpus("village").index.rglob("*.lance"), key=lambda each: each.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def damage_texts(paths: ProjectPaths) -> None:
    assert call(paths, *f"{EVALUATE} --no-track".split()).exit_code == 0
    (path,) = paths.corpus("village").evaluations.rglob("seed-0.jsonl")
    path.write_bytes(b"?" + path.read_bytes())


EVALUATE = "evaluate --corpus village --device cpu --metric repetition"


@pytest.mark.parametrize(
    ("damage", "asked"),
    [
        (damage_index, "index verify village"),
        (damage_texts, f"{EVALUATE} --no-track"),
        (nothing, "paper datastore info village"),
        (nothing, f"{EVALUATE} --no-track --system knn-lm"),
        (damage_documents, "corpus stats village"),
        (damage_raw, "corpus prepare village"),
        (damage_manifest, "switch village"),
        (damage_tuning, f"{GENERATE} --corpus village"),
        (nothing, "corpus remove village"),
    ],
)
def test_what_is_damaged_is_mended_by_what_is_printed(
    built: ProjectPaths, damage: Callable[[ProjectPaths], None], asked: str
) -> None:
    damage(built)
    follow(built, asked.split())


@pytest.mark.parametrize(
    "asked",
    [
        "rollback",
        "switch nothing",
        "corpus show nothing",
        "corpus remove nothing",
        "corpus show village --document nothing",
        "switch village --index 0123456789abcdef",
        "corpus diff village 0123456789abcdef",
    ],
)
def test_what_is_not_there_names_a_command_that_lists_what_is(
    built: ProjectPaths, asked: str
) -> None:
    error = call(built, *asked.split()).exception
    assert isinstance(error, CogError), error
    run_next(built, error.run)
