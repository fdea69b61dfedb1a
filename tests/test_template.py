"""Projects are made, left alone and upgraded; nothing that a person wrote is lost."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from cog.cli.main import cli
from cog.errors import CogError, ProjectError
from cog.params import Params, load_params
from cog.paths import ProjectPaths, get_shipped
from cog.pipeline_file import LAYOUT, VERSIONS, load_pipeline, save_pipeline
from cog.registry import iter_corpus_ids, load_card, load_resolved_card
from cog.template import FIRST_CORPORA, Plan, add_shipped, init_project, upgrade_project


@pytest.fixture
def made(tmp_path: Path) -> ProjectPaths:
    init_project(tmp_path / "mine")
    return ProjectPaths(tmp_path / "mine")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git/" not in f"{path.relative_to(folder)}/"
    }


def age(paths: ProjectPaths, name: str, text: str) -> None:
    """Make a file one that an older cog wrote and nobody edited."""
    from cog.template import _digest

    content = load_pipeline(paths)
    (paths.root / name).write_text(text, encoding="utf-8")
    save_pipeline(paths, replace(content, files={**content.files, name: _digest(text)}))


def test_a_new_project_is_thin_whole_and_not_committed(made: ProjectPaths) -> None:
    assert load_params(made.params) == Params()
    content = load_pipeline(made)
    assert tuple(content.corpora) == FIRST_CORPORA
    assert (content.layout, content.versions) == (LAYOUT, VERSIONS)
    assert content.watched == ".dvcignore"  # the model lies in the package
    assert set(iter_corpus_ids(made)) == {"wiki-lead", "wiki-mini", "eu-law-mini"}
    assert not made.models.exists()
    log = ["git", "-C", str(made.root), "rev-parse", "HEAD"]
    assert subprocess.run(log, capture_output=True, check=False).returncode != 0


def test_a_second_time_nothing_changes(made: ProjectPaths) -> None:
    before = snapshot(made.root)
    assert init_project(made.root, is_trial=True).is_empty
    assert init_project(made.root).is_empty
    assert upgrade_project(made).is_empty
    assert snapshot(made.root) == before


def test_a_trial_writes_nothing(tmp_path: Path) -> None:
    plan = init_project(tmp_path / "mine", is_trial=True)
    assert "dvc.yaml" in plan.describe()
    assert not (tmp_path / "mine").exists()


def test_files_of_the_same_names_stay(tmp_path: Path) -> None:
    for name in ("params.yaml", ".gitignore"):
        (tmp_path / name).write_text("lr: 1\n")
    plan = init_project(tmp_path)
    assert (tmp_path / "params.yaml").read_text() == "lr: 1\n"
    assert (tmp_path / "params.yaml.new").read_text() == get_shipped("params.yaml").read_text()
    assert any("params.yaml is yours and stays" in note for note in plan.notes)
    assert init_project(tmp_path).is_empty  # it is told once


def test_an_edited_file_stays_and_an_untouched_one_is_renewed(made: ProjectPaths) -> None:
    age(made, "dvc.yaml", "stages: {}\n")
    age(made, "params.yaml", "model: cog-v0\n")
    made.params.write_text("model: mine\n")
    with pytest.raises(ProjectError, match="next: cog upgrade"):
        init_project(made.root)
    plan = upgrade_project(made)
    assert made.pipeline.read_text() == get_shipped("dvc.yaml").read_text()
    assert made.params.read_text() == "model: mine\n"
    assert set(plan.texts) == {"dvc.yaml", "params.yaml.new"}
    assert upgrade_project(made).is_empty


def test_later_versions_of_outputs_are_told(made: ProjectPaths) -> None:
    older = {**VERSIONS, "prepare": 0}
    save_pipeline(made, replace(load_pipeline(made), versions=older))
    with pytest.raises(ProjectError, match="next: cog upgrade"):
        init_project(made.root)
    assert upgrade_project(made).notes == ("dvc repro runs again: prepare",)
    assert load_pipeline(made).versions == VERSIONS


def test_a_project_before_there_was_init_is_upgraded(made: ProjectPaths) -> None:
    made.pipeline_file.unlink()
    content = yaml.safe_load(made.params.read_text(encoding="utf-8"))
    text = "corpora: # what is built\n  wiki-mini:\n    root: wiki-lead\n\n# mine\n"
    text += yaml.safe_dump({**content, "datastore": {"top_k": 7}}, sort_keys=False)
    text = text.replace("  top_k: 7\n", "  corpora: {wiki-mini: {}} # some\n  top_k: 7\n")
    made.params.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["--project", str(made.root), "corpus", "list"])
    assert "of an older cog; next: cog upgrade" in str(done.exception)
    with pytest.raises(CogError, match="next: cog upgrade"):
        load_params(made.params)
    plan = upgrade_project(made)
    note = "params.yaml says which corpora are built: mv params.yaml.new params.yaml"
    assert plan.notes == (note,)
    assert upgrade_project(made).notes == (note,)  # until it is done
    assert made.params.read_text(encoding="utf-8") == text
    assert list(load_pipeline(made).corpora) == ["wiki-mini"]
    (made.root / "params.yaml.new").replace(made.params)
    assert load_params(made.params).datastore.top_k == 7
    assert "# mine\n" in made.params.read_text(encoding="utf-8")
    assert upgrade_project(made) == Plan({}, None, ())


def test_an_entry_that_no_longer_fits_its_card_is_renewed(made: ProjectPaths) -> None:
    card = yaml.safe_load(made.card("wiki-lead").read_text(encoding="utf-8"))
    card["source"] = {"type": "files", "path": "texts", "members": None}
    made.card("wiki-lead").write_text(yaml.safe_dump(card, sort_keys=False), encoding="utf-8")
    upgrade_project(made)
    assert load_pipeline(made).corpora["wiki-mini"].source == "texts"


def test_a_project_does_not_lie_in_another_and_is_not_of_a_later_cog(made: ProjectPaths) -> None:
    with pytest.raises(ProjectError, match="must not lie in another project"):
        init_project(made.root / "texts")
    made.pipeline_file.write_text(f"layout: {LAYOUT + 1}\n")
    for upgrade in (lambda: init_project(made.root), lambda: upgrade_project(made)):
        with pytest.raises(ProjectError, match="a later cog made it; next: pip install"):
            upgrade()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProjectError, match="Not a directory; next: name another place"):
        init_project(tmp_path / "file" / "mine")
    assert not (tmp_path / "file" / "mine").exists()


def test_without_git_dvc_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    init_project(tmp_path / "mine")
    local = tmp_path / "mine" / ".dvc" / "config.local"
    assert "no_scm = true" in local.read_text()
    assert not (tmp_path / "mine" / ".git").exists()
    monkeypatch.undo()
    init_project(tmp_path / "mine")  # git is there now
    assert not local.exists()
    assert (tmp_path / "mine" / ".git").is_dir()


def test_a_checkout_around_it_is_used(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    init_project(tmp_path / "mine")
    assert not (tmp_path / "mine" / ".git").exists()


def test_pipelines_beside_the_main_one_are_added_and_renewed(made: ProjectPaths) -> None:
    with pytest.raises(
        ProjectError, match="must be one of baselines, scale-out, training; found: none"
    ):
        init_project(made.root, workflows=["none"])
    names = [f"workflows/baselines/{name}" for name in ("dvc.yaml", "README.md")]
    assert init_project(made.root, workflows=["baselines"]).describe() == names
    assert init_project(made.root).is_empty
    before = load_pipeline(made)
    age(made, names[0], "# of an older version\n")
    assert upgrade_project(made).describe() == names[:1]
    assert load_pipeline(made) == before


def test_two_at_once_make_one_project(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cog.cli.main", "init", str(tmp_path / "mine")]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == ""
    assert "dvc.yaml" in said[1]
    assert init_project(tmp_path / "mine").is_empty


def test_shipped_cards_are_found_and_taken_over(made: ProjectPaths) -> None:
    assert load_card(made, "law-mt").id == "law-mt"
    assert add_shipped(made, "en-wiki-1pct")
    assert (
        made.card("en-wiki").read_bytes() == get_shipped("registry/cards/en-wiki.yaml").read_bytes()
    )
    assert load_pipeline(made).corpora["en-wiki-1pct"].root == "en-wiki"
    assert not add_shipped(made, "en-wiki-1pct")
    shutil.copy(made.card("wiki-mini"), made.card("wiki-lead"))  # a card of the project goes first
    with pytest.raises(CogError):
        load_resolved_card(made, "wiki-lead")


def test_the_model_of_the_package_is_found_unless_the_project_has_one(made: ProjectPaths) -> None:
    shipped = get_shipped("models", "cog-v0")
    assert made.model("cog-v0") == made.model("models/cog-v0") == shipped
    shutil.copytree(shipped, made.models / "cog-v0", copy_function=os.link)
    assert made.model("cog-v0") == made.models / "cog-v0"
    upgrade_project(made)
    assert load_pipeline(made).watched == "models/cog-v0"


def test_this_repository_is_a_project_as_init_makes_it(repository: Path) -> None:
    assert upgrade_project(ProjectPaths(repository), is_trial=True).is_empty


def test_commands_say_what_they_did(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["init", str(tmp_path), "--check"]).exit_code == 1
    done = runner.invoke(cli, ["init", str(tmp_path)])
    assert done.exit_code == 0
    assert "dvc.yaml\n" in done.stdout
    assert "cog demo" in done.stderr
    assert runner.invoke(cli, ["init", str(tmp_path), "--check"]).exit_code == 0
    again = runner.invoke(cli, ["--project", str(tmp_path), "upgrade", "--check"])
    assert (again.exit_code, again.stdout) == (0, "")
