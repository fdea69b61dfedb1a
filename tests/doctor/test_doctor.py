"""``cog doctor``: each thing is broken for real, named, and mended by the command it prints."""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.doctor import project
from cog.doctor.project import check_mlflow
from cog.index.project import build_corpus_index
from cog.index.tables import store
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, add_corpus_entry
from cog.progress import SilentProgress
from tests.built_project import build_corpus


@pytest.fixture
def sick(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    """A copy of a built project, active and committed, for a test to break."""
    root = tmp_path / "project"
    shutil.copytree(village.root, root)
    paths = ProjectPaths(root)
    call(paths, "switch", "--corpus", "village")
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "registry", "params.yaml", "models"), ("commit", "-qmx")):
        subprocess.run(["git", "-C", str(root), *names, *words], check=True)
    return paths


def call(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), *words])


def examine(paths: ProjectPaths, *words: str) -> list[dict[str, str]]:
    result = call(paths, "doctor", "--json", *words)
    content: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (1 if content["findings"] else 0), result.exception
    assert content["is_well"] == (not content["findings"])
    return list(content["findings"])


def snapshot(paths: ProjectPaths) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(paths.root)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
        )
        for path in sorted(paths.root.rglob("*"))
    }


def manifest_of(paths: ProjectPaths) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(paths.corpus("village").manifest.read_text())
    return content


def change_manifest(paths: ProjectPaths, change: Callable[[dict[str, Any]], object]) -> None:
    content = manifest_of(paths)
    change(content)
    paths.corpus("village").manifest.write_text(json.dumps(content))


def index_file(paths: ProjectPaths) -> Path:
    files = manifest_of(paths)["files"]
    name = max(files, key=lambda each: files[each]["size_bytes"])
    return paths.corpus("village").index / manifest_of(paths)["folder"] / name


def break_card(paths: ProjectPaths) -> None:
    with paths.card("village").open("a") as file:
        file.write("colour: red\n")


def break_entry(paths: ProjectPaths) -> None:
    add_corpus_entry(paths, "ghost", CorpusEntry("ghost"))


def break_source(paths: ProjectPaths) -> None:
    file = paths.root / "texts" / "village.jsonl"
    file.write_bytes(file.read_bytes() + b"\n")


def break_raw(paths: ProjectPaths) -> None:
    file = next(each for each in paths.corpus("village").raw.iterdir() if each.suffix == ".jsonl")
    file.write_bytes(file.read_bytes() + b" ")


def break_documents(paths: ProjectPaths) -> None:
    path = paths.corpus("village").documents
    path.write_bytes(path.read_bytes()[:-10])


def break_prompts(paths: ProjectPaths) -> None:
    path = paths.corpus("village").prompts
    path.write_bytes(path.read_bytes()[:-10])


def break_later_prompts(paths: ProjectPaths) -> None:
    # as after a kill between the prompts and the documents of another card
    from cog.corpus.documents import PROMPT_SCHEMA, RecordWriter, load_prompts

    path = paths.corpus("village").prompts
    prompts = load_prompts(path)
    with RecordWriter(path, PROMPT_SCHEMA) as writer:
        writer.write(prompts[0])
        writer.finish(None)


def break_counts(paths: ProjectPaths) -> None:
    change_manifest(paths, lambda content: content["documents"].update(num_in=99))


def break_recall(paths: ProjectPaths) -> None:
    change_manifest(paths, lambda content: content["search"].update(recall=0.3))


def break_bytes(paths: ProjectPaths) -> None:
    content = bytearray(index_file(paths).read_bytes())
    content[len(content) // 2] ^= 0xFF
    index_file(paths).write_bytes(content)


def break_size(paths: ProjectPaths) -> None:
    index_file(paths).write_bytes(b"")


def break_manifest(paths: ProjectPaths) -> None:
    paths.corpus("village").manifest.write_text("{")


def break_fingerprint(paths: ProjectPaths) -> None:
    change_manifest(paths, lambda content: content.update(model="f" * 64))


def break_building(paths: ProjectPaths) -> None:
    (paths.corpus("village").index / ".0ab+0123456789ab" / "words.lance").mkdir(parents=True)


def break_staging(paths: ProjectPaths) -> None:
    (paths.corpus("village").root / ".raw~0123456789ab").mkdir()


def break_stray(paths: ProjectPaths) -> None:
    (paths.root / "corpora" / "nobody" / "raw").mkdir(parents=True)


def break_odd_stray(paths: ProjectPaths) -> None:
    (paths.root / "corpora" / "my notes").mkdir(parents=True)


def break_active(paths: ProjectPaths) -> None:
    paths.active.write_text(paths.active.read_text().replace("index: ", "index: 0"))


def break_model(paths: ProjectPaths) -> None:
    (paths.root / "models" / "tiny" / "config.yaml").unlink()


def break_rwlock(paths: ProjectPaths) -> None:
    lock = paths.root / ".dvc" / "tmp" / "rwlock"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"corpora": {"write": {"pid": 4194999, "cmd": "dvc repro"}}}))


def write_lock(paths: ProjectPaths, path: str, md5: str) -> None:
    stage = {"cmd": "true", "outs": [{"path": path, "md5": md5}]}
    paths.dvc_lock.write_text(yaml.safe_dump({"schema": "2.0", "stages": {"index@village": stage}}))


def break_dvc_out(paths: ProjectPaths) -> None:
    write_lock(paths, "corpora/village/generations.jsonl", "0" * 32)


def break_dvc_manifest(paths: ProjectPaths) -> None:
    write_lock(paths, "corpora/village/manifest.json", hashlib.md5(b"old").hexdigest())


def break_dvc_lock(paths: ProjectPaths) -> None:
    paths.dvc_lock.write_text("stages: {a: {outs: [\n")


def break_dvc_lock_otherwise(paths: ProjectPaths) -> None:
    paths.dvc_lock.write_text("words\n")


def break_runs(paths: ProjectPaths) -> None:
    paths.runs_database.write_bytes(b"this is no database " * 100)


def break_disk(paths: ProjectPaths) -> None:
    files = manifest_of(paths)["files"]
    name = next(iter(files))
    change_manifest(paths, lambda content: content["files"][name].update(size_bytes=10**16))


# what breaks it, the kind and what it is about, and whether running the printed command mends it
CASES: list[tuple[Callable[[ProjectPaths], None], str, str, bool]] = [
    (break_card, "card", "village", True),
    (break_entry, "pipeline", "ghost", True),
    (break_source, "source", "village", False),  # needs a pipeline
    (break_raw, "raw", "village", True),
    (break_documents, "documents", "village", True),
    (break_prompts, "documents", "village", True),
    (break_later_prompts, "documents", "village", True),
    (break_counts, "counts", "village", True),
    (break_recall, "recall", "village", True),
    (break_bytes, "index", "village", True),
    (break_size, "index", "village", True),
    (break_manifest, "index", "village", True),
    (break_fingerprint, "index", "village", True),
    (break_building, "orphan", "corpora/village/index/.0ab+0123456789ab", True),
    (break_staging, "orphan", "corpora/village/.raw~0123456789ab", True),
    (break_stray, "orphan", "corpora/nobody", True),
    (break_odd_stray, "orphan", "corpora/my notes", True),
    (break_active, "active", "registry/active.yaml", True),
    (break_model, "model", "models/tiny", True),
    (break_rwlock, "lock", ".dvc/tmp/rwlock", True),
    (break_dvc_out, "dvc", "corpora/village/generations.jsonl", False),  # needs a pipeline
    (break_dvc_manifest, "dvc", "corpora/village/manifest.json", False),
    (break_dvc_lock, "dvc", "dvc.lock", True),
    (break_dvc_lock_otherwise, "dvc", "dvc.lock", True),
    (break_runs, "mlflow", "mlflow.db", True),
    (break_disk, "disk", ".", False),
]


def mend(paths: ProjectPaths, run: str) -> None:
    # the first alternative of "git checkout X, or edit it", the last of "git checkout X, or rm X"
    parts = run.split(", or ")
    command = parts[-1] if len(parts) > 1 and parts[-1].startswith("rm ") else parts[0]
    words = shlex.split(command.split(", then ")[0])
    if words[0] == "cog":
        result = call(paths, *words[1:])
        assert result.exit_code == 0, (result.exception, result.output)
    else:
        subprocess.run(words, cwd=paths.root, check=True)


def test_nothing_is_wrong_with_a_built_project(sick: ProjectPaths) -> None:
    assert examine(sick) == []
    assert call(sick, "doctor").stdout == "nothing is wrong\n"
    assert examine(sick, "village") == []


SLOW = {break_counts, break_size, break_manifest, break_fingerprint}  # built again, as recall is
PARAMETERS = [
    pytest.param(*case, id=case[0].__name__, marks=[pytest.mark.slow] * (case[0] in SLOW))
    for case in CASES
]


@pytest.mark.parametrize(("damage", "kind", "about", "is_mended"), PARAMETERS)
def test_what_is_broken_is_named_and_mended(
    sick: ProjectPaths,
    damage: Callable[[ProjectPaths], None],
    kind: str,
    about: str,
    is_mended: bool,
) -> None:
    damage(sick)
    before = snapshot(sick)
    findings = examine(sick)
    assert snapshot(sick) == before  # not a byte, not a time
    assert (kind, about) in {(each["kind"], each["about"]) for each in findings}, findings
    assert all(each["run"] and "\n" not in each["problem"] for each in findings)
    for _ in range(4):  # a mended file may need what is built from it mended
        if is_mended and findings:
            mend(sick, findings[0]["run"])
            findings = examine(sick)
    assert findings == [] or not is_mended


def test_a_database_of_another_mlflow_is_named_and_mended(
    project: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base
    from sqlalchemy import create_engine

    uri = f"sqlite:///{project.runs_database}"
    engine = create_engine(uri)
    Base.metadata.create_all(engine)  # as MLflow begins a database
    command.upgrade(_get_alembic_config(uri), "head-1")
    engine.dispose()
    (found,) = check_mlflow(project)
    assert "of an older MLflow" in found.problem
    folder = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", folder, prepend=os.pathsep)
    subprocess.run(found.run, shell=True, cwd=project.root, check=True)
    assert list(check_mlflow(project)) == []
    assert (project.root / "mlflow.db.old").is_file()
    with contextlib.closing(sqlite3.connect(project.runs_database)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    (found,) = check_mlflow(project)
    assert (found.run, "does not know" in found.problem) == ("pip install --upgrade mlflow", True)


def test_vectors_that_are_not_finite_are_named(sick: ProjectPaths) -> None:
    folder = sick.corpus("village").index / manifest_of(sick)["folder"]
    table = lancedb.connect(str(folder)).open_table("words")
    rows = table.to_arrow().to_pylist()
    rows[0]["start_scales"] = b"\x00\x00\xc0\x7f" + rows[0]["start_scales"][4:]  # NaN
    schema = table.schema
    table.delete("true")
    table.add(pa.Table.from_pylist(rows, schema=schema))
    files = {
        path.relative_to(folder).as_posix(): {
            "size_bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    change_manifest(sick, lambda content: content.update(files=files))
    (found,) = [each for each in examine(sick) if each["kind"] == "index"]
    assert "finite" in found["problem"]
    assert examine(sick, "--quick") == []


def test_a_running_build_is_no_finding(sick: ProjectPaths) -> None:
    from cog.index.versions.folders import hold_build_lock

    break_building(sick)
    with hold_build_lock(sick.corpus("village"), say=None):
        assert examine(sick) == []


def test_a_build_that_ends_meanwhile_is_no_finding(
    sick: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store.ROWS_PER_BATCH, store.WORDS, 4)  # so that there are rows left to read
    built: list[str] = []

    class Building(SilentProgress):
        def advance(self, amount: int) -> None:
            if not built:  # rows are being read
                report = build_corpus_index(
                    sick,
                    "village",
                    params=load_params(sick.params),
                    progress=SilentProgress(),
                    force=True,
                )
                built.append(report.manifest.folder)

    before = manifest_of(sick)["folder"]
    assert project.examine(sick, "village", progress=Building(), is_quick=False) == []
    assert built not in ([], [before])


def test_runs_in_a_folder_of_files_are_named(
    sick: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    (found,) = examine(sick)
    assert found["kind"] == "mlflow"
    assert found["run"].startswith("mlflow migrate-filestore")


def test_one_corpus_can_be_named(sick: ProjectPaths) -> None:
    build_corpus(sick, "hamlet")
    break_counts(sick)
    assert examine(sick, "hamlet") == []
    assert len(examine(sick, "village")) == 1
    result = call(sick, "doctor", "nowhere")
    assert "needs a card" in str(result.exception)
    for name in ("/etc", "../registry", "village+hamlet"):
        assert "a corpus id has" in str(call(sick, "doctor", name).exception)
