"""registry/pipeline.yaml: entries come and go; what a later or an older cog wrote is told."""

import pytest
import yaml

from cog.errors import ProjectError, RegistryError
from cog.paths import ProjectPaths
from cog.pipeline_file import (
    LAYOUT,
    VERSIONS,
    CorpusEntry,
    PipelineFile,
    add_corpus_entry,
    find_watched,
    load_pipeline,
    remove_corpus_entry,
    save_pipeline,
)


def test_entries_are_added_and_removed(project: ProjectPaths) -> None:
    before = project.pipeline_file.read_bytes()
    entry = CorpusEntry("village", "texts/a b.txt")
    for _ in range(2):
        add_corpus_entry(project, "new", entry)
        assert load_pipeline(project).corpora["new"] == entry
    with pytest.raises(RegistryError, match="id"):
        add_corpus_entry(project, "New one", entry)
    for _ in range(2):
        remove_corpus_entry(project, "new")
        assert project.pipeline_file.read_bytes() == before


def test_an_empty_file_is_a_project_that_builds_nothing(project: ProjectPaths) -> None:
    save_pipeline(project, PipelineFile())
    found = load_pipeline(project)
    assert (found, found.corpora, found.versions) == (PipelineFile(), {}, VERSIONS)
    assert yaml.safe_load(project.pipeline_file.read_text())["files"] == {}


@pytest.mark.parametrize(
    "corpus_id", ["1e5", "08", "0o7", "0x1f", "1-2", "2024", "2024-01-01", "no", "on", "null"]
)
def test_ids_are_read_as_text_by_dvc_and_by_pyyaml(project: ProjectPaths, corpus_id: str) -> None:
    from dvc.utils.serialize import load_yaml

    add_corpus_entry(project, corpus_id, CorpusEntry(corpus_id, "texts/No"))
    wanted = {"root": corpus_id, "source": "texts/No"}
    text = project.pipeline_file.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["corpora"][corpus_id] == wanted
    assert load_yaml(str(project.pipeline_file))["corpora"][corpus_id] == wanted
    assert load_pipeline(project).corpora[corpus_id] == CorpusEntry(**wanted)


def test_projects_of_another_cog_say_what_to_run(project: ProjectPaths) -> None:
    for text in (
        f"layout: {LAYOUT + 1}\nnew: {{}}\n",
        f"layout: {LAYOUT}\nversions: {{index: {VERSIONS['index'] + 1}}}\n",
    ):
        project.pipeline_file.write_text(text)
        with pytest.raises(ProjectError, match="next: pip install --upgrade copy-generator"):
            load_pipeline(project)
    for text in ("[", "layout: one\n", "- a\n"):
        project.pipeline_file.write_text(text)
        with pytest.raises(ProjectError, match=r"pipeline\.yaml.* next: git checkout HEAD"):
            load_pipeline(project)
    project.pipeline_file.unlink()
    with pytest.raises(ProjectError, match="of an older cog; next: cog upgrade"):
        load_pipeline(project)


def test_a_model_of_the_project_is_watched_and_no_other(project: ProjectPaths) -> None:
    assert find_watched(project, "cog-v0") == ".dvcignore"
    (project.models / "mine").mkdir(parents=True)
    assert find_watched(project, "mine") == find_watched(project, "models/mine") == "models/mine"
