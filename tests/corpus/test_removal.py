"""Removing a corpus leaves no trace, and a trial leaves everything."""

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cog.corpus.dvc_cache import find_cached_files
from cog.corpus.removal import remove_corpus
from cog.errors import CorpusNotFoundError, ParamsError, RegistryError
from cog.params_edit import remove_lock_entries
from cog.paths import ProjectPaths
from cog.records import Active
from cog.registry import forget_previous, load_active, load_previous, switch_active
from tests.calling import call_json
from tests.tiny_project import write_yaml


def put(cache: Path, content: bytes, *, suffix: str = "") -> str:
    md5 = hashlib.md5(content).hexdigest() + suffix
    path = cache / "files" / "md5" / md5[:2] / md5[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o444)
    return md5


def put_folder(cache: Path, *contents: bytes) -> str:
    entries = [{"md5": put(cache, each), "relpath": str(i)} for i, each in enumerate(contents)]
    return put(cache, json.dumps(entries).encode(), suffix=".dir")


def stage(corpus_id: str, name: str, md5: str) -> dict[str, object]:
    return {"cmd": "true", "outs": [{"path": f"corpora/{corpus_id}/{name}", "md5": md5}]}


def commit(paths: ProjectPaths) -> None:
    for words in (("init", "-q"), ("add", "dvc.lock"), ("commit", "-qm", "x")):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(paths.root), *names, *words], check=True)


@pytest.fixture
def full(project: ProjectPaths) -> ProjectPaths:
    """A project whose corpora left traces everywhere; the hamlet shares one file."""
    cache = project.root / ".dvc" / "cache"
    write_lock(project, {"index@hamlet": stage("hamlet", "index", put_folder(cache, b"old"))})
    commit(project)
    stages = {
        "fetch@hamlet": stage("hamlet", "raw", put_folder(cache, b"shared", b"own")),
        "prepare@hamlet": stage("hamlet", "documents.parquet", put(cache, b"texts")),
        "fetch@village": stage("village", "raw", put_folder(cache, b"shared")),
    }
    write_lock(project, stages)
    params = yaml.safe_load(project.params.read_text())
    for section in ("datastore", "retro", "train"):
        params[section]["corpora"] = {"hamlet": {}}
    write_yaml(project.params, params)
    for corpus_id in ("hamlet", "village"):
        run = cache / "runs" / "ab" / corpus_id / "cd"
        run.parent.mkdir(parents=True)
        run.write_text(yaml.safe_dump(stage(corpus_id, "raw", "x")))
        folder = project.corpus(corpus_id).root
        (folder / "evaluations" / "run").mkdir(parents=True)
        content = json.dumps({"prompt_corpus": "hamlet" if corpus_id == "village" else "village"})
        (folder / "evaluations" / "run" / "run.json").write_text(content)
        project.locks.mkdir(parents=True, exist_ok=True)
        (project.locks / f"{corpus_id}-build.lock").touch()
    (project.locks / "hamlet-two-build.lock").touch()
    (project.root / "corpora" / "village+hamlet" / "evaluations").mkdir(parents=True)
    for corpus, index in (("hamlet", "1"), ("village+hamlet", "2+1"), ("village", "2")):
        switch_active(project, Active(corpus, index, "m", "now"))
    return project


def write_lock(project: ProjectPaths, stages: dict[str, dict[str, object]]) -> None:
    project.dvc_lock.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))


def snapshot(paths: ProjectPaths) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(paths.root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(paths.root.rglob("*"))
        if path.is_file()
    }


def test_a_trial_changes_nothing_and_says_what_would_go(full: ProjectPaths) -> None:
    before = snapshot(full)
    planned = remove_corpus(full, "hamlet", is_trial=True)
    assert snapshot(full) == before
    assert remove_corpus(full, "hamlet", is_trial=False) == planned
    assert planned[:2] == ["registry/cards/hamlet.yaml", "corpora/hamlet"]
    for name in ("", "datastore.", "retro.", "train."):
        assert f"params.yaml: {name}corpora.hamlet" in planned
    assert "dvc.lock: stages of hamlet" in planned
    assert "registry/active.yaml: 2 earlier switches to hamlet" in planned
    assert planned[-1].startswith("DVC's cache: 6 files")


def test_nothing_is_left_of_a_removed_corpus(full: ProjectPaths) -> None:
    history = full.history.read_bytes()
    remove_corpus(full, "hamlet", is_trial=False)
    left = snapshot(full)
    named = {
        name for name, (content, _) in left.items() if b"hamlet" in content and ".git/" not in name
    }
    assert named == {"registry/history.jsonl"}
    assert full.history.read_bytes() == history
    assert [name for name in left if "hamlet" in name] == [".cog/locks/hamlet-two-build.lock"]
    cached = {content for name, (content, _) in left.items() if "files/md5" in name}
    assert b"shared" in cached
    assert not cached & {b"own", b"old", b"texts"}
    active = load_active(full)
    assert active is not None
    assert active.corpus == "village"
    assert load_previous(full) == ()


def test_a_cache_that_other_projects_may_use_is_left_alone(full: ProjectPaths) -> None:
    (full.root / ".dvc" / "config").write_text("[cache]\n    dir = ../../shared\n")
    shutil.copytree(full.root / ".dvc" / "cache", full.root.parent / "shared")
    assert find_cached_files(full, "hamlet") == []


def test_what_is_switched_on_meanwhile_is_not_removed(full: ProjectPaths) -> None:
    @contextlib.contextmanager
    def hold() -> Iterator[None]:  # as a process that had the locks until now
        switch_active(full, Active("hamlet", "1", "m", "now"))
        yield

    with pytest.raises(RegistryError, match="must not be active"):
        remove_corpus(full, "hamlet", is_trial=False, hold=hold)
    assert full.card("hamlet").is_file()
    assert full.corpus("hamlet").root.is_dir()


def test_nobody_builds_a_corpus_or_switches_to_it_while_it_goes(
    full: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(path: Path, *words: object) -> bool:
        for name in ("hamlet-build.lock", "hamlet-versions.lock"):
            with (full.locks / name).open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(path)
        return remove_lock_entries(path, "hamlet")

    monkeypatch.setattr("cog.corpus.removal.remove_lock_entries", look)
    planned = call_json(full, "corpus", "remove", "hamlet", "--dry-run")["removed"]
    assert call_json(full, "corpus", "remove", "hamlet")["removed"] == planned
    assert seen == [full.dvc_lock]
    assert [path.name for path in full.locks.glob("hamlet*")] == ["hamlet-two-build.lock"]


def test_a_corpus_in_the_active_union_is_not_removed(full: ProjectPaths) -> None:
    switch_active(full, Active("village+hamlet", "2+1", "m", "now"))
    with pytest.raises(RegistryError, match="must not be active.*village.hamlet is switched on"):
        remove_corpus(full, "hamlet", is_trial=False)


def test_what_is_half_removed_can_be_removed(full: ProjectPaths) -> None:
    full.card("hamlet").unlink()
    assert "corpora/hamlet" in remove_corpus(full, "hamlet", is_trial=False)
    with pytest.raises(CorpusNotFoundError):
        remove_corpus(full, "hamlet", is_trial=False)
    assert forget_previous(full, "hamlet") == 0


def test_a_lock_that_cannot_be_read_is_refused_before_anything_goes(full: ProjectPaths) -> None:
    full.dvc_lock.write_text("words")
    before = snapshot(full)
    with pytest.raises(ParamsError, match="dvc.lock must be as DVC writes it"):
        remove_corpus(full, "hamlet", is_trial=False)
    assert snapshot(full) == before
