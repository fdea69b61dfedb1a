"""``cog switch``, ``status`` and ``rollback``: what changes, is refused, and is not loaded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cog.errors import (
    CorpusNotFoundError,
    IndexMismatchError,
    IndexNotBuiltError,
    NothingActiveError,
)
from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.index.records import Manifest
from cog.index.versions import activation
from cog.index.versions.folders import hold_versions_lock
from cog.index.versions.manifest import load_manifest
from cog.model.fingerprint import fingerprint_model
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import Active
from cog.registry import load_active, load_previous
from tests.calling import call, call_json, refusal
from tests.index.hash_model import HashModel, build, build_in, make_documents, write_corpus


@pytest.fixture
def built(project: ProjectPaths, tiny_model: Path) -> ProjectPaths:
    """A project with an index of each of its two corpora."""
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    for corpus_id, num_documents in (("village", 6), ("hamlet", 3)):
        write_corpus(project.corpus(corpus_id), make_documents(num_documents))
        build_in(project, corpus_id)
    return project


def test_switch_says_what_changed(built: ProjectPaths) -> None:
    first = call_json(built, "switch", "--corpus", "village")
    assert (first["changed"], first["from"], first["to"]["corpus"]) == (True, None, "village")
    result = call(built, "switch", "--corpus", "hamlet")
    digests = [first["to"]["index"][:16], call_json(built, "status")["active"]["index"][:16]]
    assert result.stdout == f"village (index {digests[0]}) -> hamlet (index {digests[1]})\n"


def test_switch_to_what_is_active_changes_nothing(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    before = built.active.read_bytes()
    assert call_json(built, "switch", "--corpus", "village")["changed"] is False
    assert "active already" in call(built, "switch", "--corpus", "village").stdout
    assert built.active.read_bytes() == before


def test_switch_to_a_digest_or_its_beginning(built: ProjectPaths) -> None:
    digest = call_json(built, "switch", "--corpus", "village")["to"]["index"]
    for wanted in (digest, digest[:6], digest[:6].upper()):
        assert call(built, "switch", "--corpus", "village", "--index", wanted).exit_code == 0
    for wanted in ("", "g", digest[1:9], digest + "0"):
        error = refusal(built, "switch", "--corpus", "village", "--index", wanted)
        assert isinstance(error, IndexMismatchError)
        assert digest[:16] in error.found


def test_switch_without_an_index_names_the_command(built: ProjectPaths) -> None:
    built.corpus("hamlet").manifest.unlink()
    error = refusal(built, "switch", "--corpus", "hamlet")
    assert isinstance(error, IndexNotBuiltError)
    assert error.run == "cog index build hamlet"
    assert not built.active.exists()


def test_switch_to_a_damaged_index_keeps_what_is_active(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    before = built.active.read_bytes()
    next(built.corpus("hamlet").index.rglob("*.lance/data/*.lance")).write_bytes(b"")
    error = refusal(built, "switch", "--corpus", "hamlet")
    assert error.run == "cog index build hamlet --force"
    assert built.active.read_bytes() == before


def test_switch_to_an_index_of_another_model_names_both(built: ProjectPaths) -> None:
    build(built.corpus("village"), model=HashModel(fingerprint="f" * 64))
    error = refusal(built, "switch", "--corpus", "village")
    assert fingerprint_model(built.root / "models" / "tiny")[:16] in error.wanted
    assert "f" * 16 in error.found


def test_the_corpus_may_be_the_argument(built: ProjectPaths) -> None:
    assert call_json(built, "switch", "village")["to"]["corpus"] == "village"
    assert call(built, "switch").exit_code == 2
    assert call(built, "switch", "village", "--corpus", "village").exit_code == 2


@pytest.mark.parametrize("corpus_id", ["nowhere", "../village", "", "Village"])
def test_switch_to_an_unknown_corpus_is_refused(built: ProjectPaths, corpus_id: str) -> None:
    error = refusal(built, "switch", "--corpus", corpus_id)
    assert isinstance(error, CorpusNotFoundError) or "id" in str(error)


def test_status_before_any_switch_says_what_to_run(built: ProjectPaths) -> None:
    result = call(built, "status")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "nothing is active",
        "next     cog switch --corpus hamlet",
    ]
    assert call_json(built, "status")["active"] is None
    assert call_json(built, "status")["intact"] is None


def test_status_of_an_intact_index(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    status = call_json(built, "status")
    assert status["intact"] is True
    assert status["documents"] == 6
    assert status["next"] is status["problem"] is None
    assert "intact   yes: 6 documents" in call(built, "status").stdout


def test_status_of_a_broken_index_exits_1_with_the_command(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    shutil.rmtree(built.corpus("village").index)
    result = call(built, "status", "--json")
    assert result.exit_code == 1
    status = json.loads(result.stdout)
    assert status["intact"] is False
    assert status["next"] == "cog index build village"
    assert status["active"]["corpus"] == "village"
    text = call(built, "status")
    assert text.exit_code == 1
    assert "intact   no: " in text.stdout


def test_status_of_an_index_of_an_older_format_names_the_build(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    manifest = built.corpus("village").manifest
    manifest.write_text(manifest.read_text().replace('"format_version": 3', '"format_version": 2'))
    status = call_json(built, "status")
    assert status["intact"] is False
    assert status["problem"].endswith("needs an index of format 3 (found: format 2)")
    assert status["next"] == "cog index build village"
    assert "intact   no: corpus village needs" in call(built, "status").stdout
    assert refusal(built, "switch", "--corpus", "village").run == "cog index build village"
    build_in(built, "village")
    assert call_json(built, "status")["next"] is None  # the same digest again


def test_rebuild_leaves_what_is_active_in_use_until_a_switch(built: ProjectPaths) -> None:
    old = call_json(built, "switch", "--corpus", "village")["to"]["index"]
    write_corpus(built.corpus("village"), make_documents(7))
    new = build_in(built, "village")
    status = call_json(built, "status")
    assert (status["active"]["index"], status["intact"], status["documents"]) == (old, True, 6)
    assert status["next"] == "cog switch --corpus village"
    with open_index(built.corpus("village"), digests={"village": old}) as index:
        assert verify_index(index, progress=SilentProgress()).digest == old
    assert call_json(built, "switch", "--corpus", "village")["to"]["index"] == new
    assert call_json(built, "status")["next"] is None


def test_version_that_is_gone_is_told_with_the_command(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    write_corpus(built.corpus("village"), make_documents(7))
    build_in(built, "village")
    shutil.rmtree(built.corpus("village").versions)
    status = json.loads(call(built, "status", "--json").stdout)
    assert (status["intact"], status["next"]) == (False, "cog switch --corpus village")


def test_status_of_a_malformed_record_exits_1(built: ProjectPaths) -> None:
    built.active.write_text("active: [")
    result = call(built, "status", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["intact"] is False


def test_rollback_goes_back_step_by_step(built: ProjectPaths) -> None:
    for corpus_id in ("village", "hamlet", "village"):
        call(built, "switch", "--corpus", corpus_id)
    assert call_json(built, "rollback")["to"]["corpus"] == "hamlet"
    *lines, last = built.history.read_text().splitlines()
    later = json.dumps(json.loads(last) | {"time": "2099-01-01T00:00:00+00:00"})
    built.history.write_text("\n".join([*lines, later, ""]))
    assert "since    2099-01-01T00:00:00+00:00" in call(built, "status").stdout
    back = call_json(built, "rollback")
    assert (back["from"]["corpus"], back["to"]["corpus"]) == ("hamlet", "village")
    assert isinstance(refusal(built, "rollback"), NothingActiveError)
    assert call_json(built, "status")["active"]["corpus"] == "village"


def test_rollback_before_any_switch_is_refused(built: ProjectPaths) -> None:
    assert refusal(built, "rollback").run == "cog status"


def test_rollback_goes_back_to_an_index_that_was_replaced(built: ProjectPaths) -> None:
    old = call_json(built, "switch", "--corpus", "village")["to"]
    call(built, "switch", "--corpus", "hamlet")
    for num_documents in (7, 8):
        write_corpus(built.corpus("village"), make_documents(num_documents))
        build_in(built, "village")
    assert call_json(built, "rollback")["to"] == old
    assert call_json(built, "status")["documents"] == 6


def test_kept_versions_go_when_nothing_points_to_them(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    versions = built.corpus("village").versions
    digests = []
    for num_documents in (7, 8, 9):
        write_corpus(built.corpus("village"), make_documents(num_documents))
        digests.append(build_in(built, "village"))
        call(built, "switch", "--corpus", "village")
        assert len(list(versions.iterdir())) == 1  # what a rollback goes back to
    assert [path.name for path in versions.iterdir()] == [digests[1][:16]]
    assert call_json(built, "rollback")["to"]["index"] == digests[1]


def test_reader_pins_its_version_through_rebuilds_and_switches(built: ProjectPaths) -> None:
    corpus = built.corpus("village")
    old = call_json(built, "switch", "--corpus", "village")["to"]["index"]
    with open_index(corpus, digests={"village": old}) as index:
        before = index.gather_chunks(np.arange(index.num_chunks))
        for num_documents in (7, 8, 9):
            write_corpus(corpus, make_documents(num_documents))
            build_in(built, "village")
            call(built, "switch", "--corpus", "village")
            after = index.gather_chunks(np.arange(index.num_chunks))
            np.testing.assert_array_equal(after.word_hashes, before.word_hashes)
            assert index.get_documents([5])[5].document_id == "document-5"
        assert (corpus.index / index.parts[0].manifest.folder).is_dir()
    write_corpus(corpus, make_documents(10))
    build_in(built, "village")
    call(built, "switch", "--corpus", "village")
    left = {path.name for path in [*corpus.index.iterdir(), *corpus.versions.iterdir()]}
    assert old[:16] not in left


def test_rollback_to_an_index_that_is_gone_is_refused(built: ProjectPaths) -> None:
    call(built, "switch", "--corpus", "village")
    call(built, "switch", "--corpus", "hamlet")
    before = built.active.read_bytes()
    write_corpus(built.corpus("village"), make_documents(7))
    build_in(built, "village")
    shutil.rmtree(built.corpus("village").versions)
    error = refusal(built, "rollback")
    assert error.run == "cog corpus versions village"
    assert built.active.read_bytes() == before


def run_cog(project: ProjectPaths, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cog.cli.main", "--project", str(project.root), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_rollback_is_refused_if_another_process_switches_while_it_checks(
    built: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for corpus_id in ("village", "hamlet"):
        call(built, "switch", corpus_id)
    check = activation._check_active

    def check_while_another_switches(paths: ProjectPaths, active: Active) -> list[Manifest]:
        # the versions of village are held, those of hamlet are not
        build_in(built, "hamlet")
        other = run_cog(built, "switch", "hamlet")
        assert other.communicate()[1] == ""
        return check(paths, active)

    write_corpus(built.corpus("hamlet"), make_documents(4))
    monkeypatch.setattr(activation, "_check_active", check_while_another_switches)
    error = refusal(built, "rollback")
    assert isinstance(error, NothingActiveError)
    assert "at the same time" in error.found
    active = load_active(built)
    assert active is not None
    assert (active.corpus, active.index) == ("hamlet", load_manifest(built.corpus("hamlet")).digest)
    assert [each.corpus for each in load_previous(built)] == ["hamlet", "village"]


def test_who_is_waited_for_is_told(built: ProjectPaths) -> None:
    with hold_versions_lock(built.corpus("village"), say=None):
        waiting = run_cog(built, "switch", "village")
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
        assert line.startswith("cog: another process changes the versions of village (pid ")
        assert line.endswith("waiting for it\n")
    output, errors = waiting.communicate()
    assert (waiting.returncode, errors) == (0, "")
    assert output.startswith("nothing -> village")


HEAVY = ("torch", "lancedb", "lance", "pyarrow", "transformers", "faiss", "datasets")


LIGHT = (["switch", "--corpus", "village"], ["status"], ["rollback"], ["index", "info", "village"])


@pytest.mark.parametrize("words", LIGHT)
def test_nothing_heavy_is_loaded(built: ProjectPaths, repository: Path, words: list[str]) -> None:
    call(built, "switch", "--corpus", "village")
    call(built, "switch", "--corpus", "hamlet")
    code = (
        "import sys\nfrom cog.cli.main import cli\n"
        f"cli.main({['--project', str(built.root), *words]!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert result.stderr == "[]\n"
