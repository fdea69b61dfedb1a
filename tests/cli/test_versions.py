"""``cog corpus versions`` and ``diff``, and switching back to what DVC's cache or remote holds."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.index.records import Manifest
from cog.index.versions import recorded
from cog.index.versions.recorded import record_version
from cog.locks import is_locked
from cog.paths import VERSIONS, ProjectPaths
from cog.progress import SilentProgress
from tests.calling import call, call_json, refusal
from tests.index.hash_model import (
    build_in,
    make_documents,
    make_text,
    write_corpus,
)
from tests.tiny_project import write_yaml

STAGES = {
    "stages": {
        "index": {
            "cmd": "true",
            "outs": [
                {"corpora/village/index": {"persist": True}},
                {"corpora/village/manifest.json": {"persist": True}},
            ],
        }
    }
}


def run(project: ProjectPaths, *words: str) -> str:
    folder = Path(sys.executable).parent
    done = subprocess.run(
        words,
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rebuild(project: ProjectPaths) -> str:
    record_version(project, "village")
    return build_in(project, "village")


def build_version(project: ProjectPaths, num_documents: int, *, is_committed: bool = True) -> str:
    """Build a version, give it to DVC, and commit dvc.lock."""
    write_corpus(project.corpus("village"), make_documents(num_documents))
    digest = rebuild(project)
    run(project, "dvc", "commit", "--force", "--quiet")
    if "[core]" in (project.root / ".dvc" / "config").read_text():  # a default remote
        run(project, "dvc", "push", "--quiet")
    if is_committed:
        run(project, "git", "add", "dvc.lock", "dvc.yaml")
        run(project, "git", "commit", "--quiet", "-m", f"{num_documents} documents")
    return digest


@pytest.fixture
def tracked(project: ProjectPaths, tiny_model: Path) -> ProjectPaths:
    """A project under git and DVC; nothing is built."""
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    write_yaml(project.root / "dvc.yaml", STAGES)
    run(project, "git", "init", "--quiet", "--initial-branch", "main")
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        run(project, "git", "config", key, value)
    run(project, "dvc", "init", "--quiet")
    return project


def verify(project: ProjectPaths, digest: str) -> None:
    with open_index(project.corpus("village"), digests={"village": digest}) as index:
        assert verify_index(index, progress=SilentProgress()).digest == digest


def test_older_versions_come_back_from_the_cache_and_the_remote(
    tracked: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull, pulled = recorded._pull, []

    def pull_unheld(paths: ProjectPaths, corpus_id: str, checksums: list[str]) -> None:
        pulled.extend(checksums)
        assert not is_locked(paths.corpus(corpus_id).lock(VERSIONS)), "others wait for a download"
        pull(paths, corpus_id, checksums)

    monkeypatch.setattr(recorded, "_pull", pull_unheld)
    remote = tracked.root.parent / "remote"
    run(tracked, "dvc", "remote", "add", "--default", "store", str(remote))
    first = build_version(tracked, 5)
    second = build_version(tracked, 6, is_committed=False)  # known by the line of the next build
    third = build_version(tracked, 7)
    assert len({first, second, third}) == 3
    listed = {each["digest"]: each for each in call_json(tracked, "corpus", "versions", "village")}
    assert {digest: each["documents"] for digest, each in listed.items()} == {
        first: 5,
        second: 6,
        third: 7,
    }
    head, before = run(tracked, "git", "log", "--format=%H").split()
    assert [listed[each]["revision"] for each in (first, second, third)] == [before, None, head]
    assert listed[third]["where"] == ["in place", "dvc cache"]
    assert listed[first]["where"] == listed[second]["where"] == ["dvc cache"]

    assert call_json(tracked, "switch", "--corpus", "village")["to"]["index"] == third
    for name, wanted in ((second[:8], second), (before[:10], first), ("HEAD", third)):
        switched = call_json(tracked, "switch", "--corpus", "village", "--index", name)
        assert switched["to"]["index"] == wanted
        assert call_json(tracked, "status")["intact"] is True
        verify(tracked, wanted)
    assert call_json(tracked, "rollback")["to"]["index"] == first
    assert call_json(tracked, "rollback")["to"]["index"] == second
    assert json.loads(tracked.corpus("village").manifest.read_text())["digest"] == third

    shutil.rmtree(tracked.root / ".dvc" / "cache")
    shutil.rmtree(tracked.corpus("village").versions)
    listed = {
        each["revision"]: each for each in call_json(tracked, "corpus", "versions", "village")
    }
    assert listed[before]["where"] == ["dvc remote, if pushed"]
    assert listed[before]["digest"] is None
    error = refusal(tracked, "switch", "--corpus", "village", "--index", "0" * 12)
    assert error.run == "cog corpus versions village"
    for name, wanted in ((first[:12], first), (second[:12], second)):
        switched = call_json(tracked, "switch", "--corpus", "village", "--index", name)
        assert switched["to"]["index"] == wanted
        verify(tracked, wanted)
    assert len(pulled) > 4

    run(tracked, "dvc", "remote", "modify", "store", "url", str(remote.with_name("nowhere")))
    shutil.rmtree(tracked.root / ".dvc" / "cache")
    shutil.rmtree(tracked.corpus("village").versions)
    error = refusal(tracked, "switch", "--corpus", "village", "--index", before)
    assert "remote" in error.wanted


@pytest.mark.slow
def test_damaged_copy_in_the_cache_is_refused(tracked: ProjectPaths) -> None:
    first = build_version(tracked, 5)
    build_version(tracked, 6)
    cached = [
        path for path in (tracked.root / ".dvc" / "cache" / "files").rglob("*") if path.is_file()
    ]
    for path in cached:
        if path.stat().st_size > 4096 and b"\0" in path.read_bytes():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    error = refusal(tracked, "switch", "--corpus", "village", "--index", first)
    assert "other files" in error.found
    assert not tracked.active.exists()
    assert list(tracked.corpus("village").versions.iterdir()) == []


def test_unknown_versions_are_refused(project: ProjectPaths, tiny_model: Path) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    write_corpus(project.corpus("village"), make_documents(5))
    rebuild(project)
    for name in ("", "zz", "f" * 64, "--all", "main~5"):
        error = refusal(project, "switch", "--corpus", "village", "--index", name)
        assert error.run == "cog corpus versions village"


def test_versions_of_a_project_without_git_are_those_at_hand(
    project: ProjectPaths, tiny_model: Path
) -> None:
    assert "cog index build village" in call(project, "corpus", "versions", "village").stdout
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    write_corpus(project.corpus("village"), make_documents(5))
    old = rebuild(project)
    call(project, "switch", "--corpus", "village")
    write_corpus(project.corpus("village"), make_documents(6))
    new = rebuild(project)
    found = call_json(project, "corpus", "versions", "village")
    assert [(each["digest"], each["where"], each["is_active"]) for each in found] == [
        (new, ["in place"], False),
        (old, ["kept"], True),
    ]
    lines = call(project, "corpus", "versions", "village").stdout.splitlines()
    assert [line[:18] for line in lines] == [f"  {new[:16]}", f"* {old[:16]}"]


def test_diff_names_documents_words_licences_and_chunks(
    project: ProjectPaths, tiny_model: Path
) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    corpus = project.corpus("village")
    documents = make_documents(6)
    write_corpus(corpus, documents)
    found = call_json(project, "corpus", "diff", "village")
    assert (found["before"], len(found["added"]), found["reason"]) == (
        None,
        6,
        "there is no index",
    )
    build_real(project)
    documents[0] = replace(documents[0], text=make_text(60, seed=99))
    documents[1] = replace(documents[1], licence="MIT")
    write_corpus(corpus, [*documents[:-1], make_documents(8)[7]])
    found = call_json(project, "corpus", "diff", "village")
    assert found["added"] == ["document-7"]
    assert found["removed"] == ["document-5"]
    assert found["changed"] == ["document-0", "document-1"]
    assert (found["num_same"], found["words"]) == (3, [360, 360])
    assert found["licences"] == {"CC0-1.0": [6, 5], "MIT": [0, 1]}
    assert 0 < found["num_encoded"] < found["num_chunks"] / 2
    before = found["before"]
    report = build_real(project)
    assert report.num_encoded == found["num_encoded"]
    assert report.num_chunks == found["num_chunks"]
    text = call(project, "corpus", "diff", "village").stdout
    assert "0 of" in text
    error = refusal(project, "corpus", "diff", "village", before)  # replaced, and never kept
    assert error.run == "cog corpus versions village"
    digest = report.digest
    assert call_json(project, "corpus", "diff", "village", digest, digest)["num_same"] == 6


def build_real(project: ProjectPaths) -> Manifest:
    from cog.index.project import build_corpus_index
    from cog.params import load_params

    params = load_params(project.params)
    report = build_corpus_index(project, "village", params=params, progress=SilentProgress())
    return report.manifest


def test_bad_names_are_refused_in_one_line(project: ProjectPaths) -> None:
    for words in (
        ("versions", "nowhere"),
        ("diff", "nowhere"),
        ("diff", "village", "abc"),
        ("diff", "village", "prepared"),
    ):
        assert "\n" not in str(refusal(project, "corpus", *words))


def set_keep_versions(project: ProjectPaths, number: int) -> None:
    content = yaml.safe_load(project.params.read_text())
    content["index"]["keep_versions"] = number
    write_yaml(project.params, content)


def test_the_last_replaced_versions_stay_beside_those_that_are_switched_on(
    project: ProjectPaths, tiny_model: Path
) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    set_keep_versions(project, 2)
    digests = []
    for number in range(5):
        write_corpus(project.corpus("village"), make_documents(5 + number))
        digests.append(rebuild(project))
        if number == 0:
            call_json(project, "switch", "--corpus", "village")
    found = call_json(project, "corpus", "versions", "village")
    wanted = [(digests[4], "in place"), *((digests[i], "kept") for i in (3, 2, 0))]
    assert [(each["digest"], each["where"][0]) for each in found] == wanted
    assert "the last 2 others" in call(project, "corpus", "versions", "village").stderr
    assert rebuild(project) == digests[4]  # up to date: nothing is replaced, nothing goes
    assert len(call_json(project, "corpus", "versions", "village")) == 4
    assert call_json(project, "switch", "--corpus", "village", "--index", digests[2])["changed"]
    verify(project, digests[2])
    assert call_json(project, "corpus", "diff", "village", digests[3], digests[4])["added"] == [
        "document-8"
    ]
    assert not call_json(project, "doctor", "village", "--quick")["findings"]
    set_keep_versions(project, 0)
    findings = call_json(project, "doctor", "village", "--quick")["findings"]
    assert [(each["kind"], each["run"]) for each in findings] == [
        ("orphan", "cog index build village")
    ]
    assert rebuild(project) == digests[4]
    found = call_json(project, "corpus", "versions", "village")
    assert [each["digest"] for each in found] == [digests[4], digests[2], digests[0]]
    set_keep_versions(project, -1)
    assert "a whole number from 0" in str(refusal(project, "corpus", "versions", "village"))


def test_no_version_goes_while_it_is_unknown_what_is_switched_on(
    project: ProjectPaths, tiny_model: Path
) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    write_corpus(project.corpus("village"), make_documents(5))
    old = rebuild(project)
    call_json(project, "switch", "--corpus", "village")
    record = project.active.read_bytes()
    project.active.write_text("active: [")
    for number in (6, 7):
        write_corpus(project.corpus("village"), make_documents(number))
        rebuild(project)
    project.active.write_bytes(record)
    assert call_json(project, "status")["active"]["index"] == old
    verify(project, old)
