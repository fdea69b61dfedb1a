"""Removing a corpus leaves no trace, and a trial leaves everything."""

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from cog.card_source import Source
from cog.corpus.dvc_cache import find_cached_files
from cog.corpus.removal import remove_corpus
from cog.doctor.corpora import find_strays
from cog.dvc_lock import remove_stages
from cog.errors import CorpusNotFoundError, ProjectError, RegistryError
from cog.paths import ProjectPaths
from cog.records import Active
from cog.registry import (
    load_active,
    load_card,
    load_fetched,
    load_previous,
    record_fetched,
    save_card,
    switch_active,
)
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
    return {"cmd": "true", "outs": [out(f"corpora/{corpus_id}/{name}", md5)]}


def out(path: str, md5: str) -> dict[str, object]:
    return {"path": path, "md5": md5, "hash": "md5", "size": 1}


def commit(paths: ProjectPaths) -> None:
    for words in (("init", "-q"), ("add", "dvc.lock", "dvc.yaml"), ("commit", "-qm", "x")):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(paths.root), *names, *words], check=True)


@pytest.fixture
def full(project: ProjectPaths) -> ProjectPaths:
    """A project whose corpora left traces everywhere; the hamlet shares one file."""
    cache = project.root / ".dvc" / "cache"
    outs = {"fetch": "raw", "prepare": "documents.parquet", "index": "index"}
    do = {
        stage: {"cmd": "true", "outs": [f"corpora/${{item}}/{name}"]}
        for stage, name in outs.items()
    }
    stages_of = {name: {"foreach": ["hamlet", "village"], "do": each} for name, each in do.items()}
    write_yaml(project.root / "dvc.yaml", {"stages": stages_of})
    write_lock(project, {"index@hamlet": stage("hamlet", "index", put_folder(cache, b"old"))})
    commit(project)
    stages = {
        "fetch@hamlet": stage("hamlet", "raw", put_folder(cache, b"shared", b"own")),
        "prepare@hamlet": stage("hamlet", "documents.parquet", put(cache, b"texts")),
        "fetch@village": stage("village", "raw", put_folder(cache, b"shared")),
    }
    write_lock(project, stages)
    (project.workflows / "training").mkdir(parents=True)
    stages = {"segment@hamlet": stage("hamlet", "segments.json", put(cache, b"phrases"))}
    lock = {"schema": "2.0", "stages": stages}
    write_yaml(project.workflows / "training" / "dvc.lock", lock)
    for corpus_id in ("hamlet", "village"):
        folder = project.corpus(corpus_id).root
        (folder / "evaluations" / "run").mkdir(parents=True)
        content = json.dumps({"prompt_corpus": "hamlet" if corpus_id == "village" else "village"})
        (folder / "evaluations" / "run" / "run.json").write_text(content)
        project.locks.mkdir(parents=True, exist_ok=True)
        (project.locks / f"{corpus_id}-build.lock").touch()
    (project.locks / "hamlet-two-build.lock").touch()
    (project.root / "corpora" / "village+hamlet" / "evaluations").mkdir(parents=True)
    with Repo(str(project.root)):
        pass  # what any command of DVC writes besides
    for corpus, index in (("hamlet", "1"), ("village+hamlet", "2+1"), ("village", "2")):
        switch_active(project, Active(corpus, index, "m", "now"))
    return project


def write_lock(project: ProjectPaths, stages: dict[str, dict[str, object]]) -> None:
    project.dvc_lock.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))


def snapshot(paths: ProjectPaths) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(paths.root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(paths.root.rglob("*"))
        if path.is_file() and path.name != "pipeline.lock"
    }


def test_a_trial_changes_nothing_and_says_what_would_go(full: ProjectPaths) -> None:
    before = snapshot(full)
    planned = remove_corpus(full, "hamlet", is_trial=True)
    assert snapshot(full) == before
    assert remove_corpus(full, "hamlet", is_trial=False) == planned
    assert planned[:2] == ["registry/cards/hamlet.yaml", "corpora/hamlet"]
    assert "the entry hamlet of registry/pipeline.yaml" in planned
    assert "the stages of hamlet in dvc.lock" in planned
    assert "the stages of hamlet in workflows/training/dvc.lock" in planned
    assert "2 earlier switches to hamlet in registry/active.yaml" in planned
    assert planned[-1].startswith("DVC's cache: 3 files")


def test_nothing_is_left_of_a_removed_corpus(full: ProjectPaths) -> None:
    history = full.history.read_bytes()
    remove_corpus(full, "hamlet", is_trial=False)
    left = snapshot(full)
    named = {
        name for name, (content, _) in left.items() if b"hamlet" in content and ".git/" not in name
    }
    assert named == {"registry/history.jsonl", "dvc.yaml"}
    assert full.history.read_bytes() == history
    assert [name for name in left if "hamlet" in name] == [".cog/locks/hamlet-two-build.lock"]
    cached = {content for name, (content, _) in left.items() if "files/md5" in name}
    assert cached >= {b"shared", b"old"}  # of the village, and of a commit
    assert not cached & {b"own", b"texts"}
    active = load_active(full)
    assert active is not None
    assert active.corpus == "village"
    assert load_previous(full) == ()


def test_checksums_of_files_that_only_the_corpus_has_are_forgotten(full: ProjectPaths) -> None:
    addresses = [f"https://example.org/{name}.txt" for name in ("own", "shared", "other")]
    for corpus_id, urls in (("web", addresses[:2]), ("two", addresses[1:2])):
        source = Source("url", urls=tuple(urls))
        save_card(full, replace(load_card(full, "village"), id=corpus_id, source=source))
    record_fetched(full, dict.fromkeys(addresses, "0" * 64))
    assert f"registry/fetched.yaml: {addresses[0]}" in remove_corpus(full, "web", is_trial=True)
    remove_corpus(full, "web", is_trial=False)
    assert list(load_fetched(full)) == sorted(addresses[1:])


def test_checksums_of_a_corpus_whose_card_is_shipped_are_forgotten(full: ProjectPaths) -> None:
    card = load_card(full, "law-mt")
    assert card.source is not None
    assert not full.card("law-mt").exists()
    record_fetched(full, {url.partition("#")[0]: "0" * 64 for url in card.source.urls})
    remove_corpus(full, "law-mt", is_trial=False)
    assert load_fetched(full) == {}
    assert not full.fetched.exists()


def keep_by_dvc_file(paths: ProjectPaths, md5: str) -> None:
    write_yaml(paths.root / "copy.bin.dvc", {"outs": [out("copy.bin", md5)]})


def keep_by_lock_below(paths: ProjectPaths, md5: str) -> None:
    folder = paths.root / "more"
    folder.mkdir()
    write_yaml(folder / "dvc.yaml", {"stages": {"x": {"cmd": "true", "outs": ["copy.bin"]}}})
    stages = {"x": {"cmd": "true", "outs": [out("copy.bin", md5)]}}
    write_yaml(folder / "dvc.lock", {"schema": "2.0", "stages": stages})


def keep_by_revision(paths: ProjectPaths, _md5: str) -> None:
    commit(paths)


def keep_by_version_of_another(paths: ProjectPaths, md5: str) -> None:
    line = {"manifest_md5": md5, "index_md5": "0" * 32 + ".dir"}
    paths.corpus("village").recorded.write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    "keep", [keep_by_dvc_file, keep_by_lock_below, keep_by_revision, keep_by_version_of_another]
)
def test_what_anything_else_needs_stays_in_the_cache(
    full: ProjectPaths, keep: Callable[[ProjectPaths, str], None]
) -> None:
    cache = full.root / ".dvc" / "cache"
    keep(full, put(cache, b"texts"))
    remove_corpus(full, "hamlet", is_trial=False)
    cached = {path.read_bytes() for path in (cache / "files").rglob("*") if path.is_file()}
    assert b"texts" in cached
    assert (b"own" in cached) == (keep is keep_by_revision)


def test_a_corpus_of_another_branch_keeps_what_is_cached(full: ProjectPaths) -> None:
    git = ["git", "-C", str(full.root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "add", "registry/cards"], check=True)
    subprocess.run([*git, "commit", "-qm", "cards"], check=True)
    full.card("hamlet").unlink()
    found = [each for each in find_strays(full) if each.about == "corpora/hamlet"]
    assert [each.run for each in found] == ["rm -r corpora/hamlet"]
    assert "git revision" in found[0].problem
    assert not any("cache" in line for line in remove_corpus(full, "hamlet", is_trial=False))


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

    def look(path: Path, *words: object) -> None:
        for name in ("hamlet-build.lock", "hamlet-versions.lock"):
            with (full.locks / name).open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(path)
        remove_stages(path, "hamlet")

    monkeypatch.setattr("cog.corpus.removal.remove_stages", look)
    planned = call_json(full, "corpus", "remove", "hamlet", "--dry-run")["removed"]
    assert call_json(full, "corpus", "remove", "hamlet")["removed"] == planned
    assert seen == list(full.iter_dvc_locks())
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


def test_a_lock_that_cannot_be_read_is_refused_before_anything_goes(full: ProjectPaths) -> None:
    full.dvc_lock.write_text("words")
    before = snapshot(full)
    with pytest.raises(ProjectError, match="dvc.lock must be as DVC writes it"):
        remove_corpus(full, "hamlet", is_trial=False)
    assert snapshot(full) == before
