"""The Python interface on a built project: corpora, switching, generators, and what they refuse."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cog
from cog.api.generator import Generator
from cog.api.project import Project
from cog.decoding.settings import Settings
from cog.errors import (
    CorpusError,
    CorpusNotFoundError,
    GenerationError,
    IndexNotBuiltError,
    MissingPackageError,
    NothingActiveError,
    ProjectError,
)
from cog.paths import ProjectPaths
from cog.records import CORPUS, Decoding
from tests.calling import call_json
from tests.choices import assert_same_choices, record_choices

PREFIX = "The old mill"


@pytest.fixture(scope="module")
def project(village: ProjectPaths) -> Project:
    return cog.open(village.root)


@pytest.fixture(scope="module")
def generator(project: Project) -> Iterator[Generator]:
    with project.generator("village", device="cpu") as opened:
        yield opened


def test_importing_loads_nothing_slow() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport cog\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['cog']\n"


def test_opening_a_project_settles_how_torch_waits_before_it_is_loaded(
    project: Project, tmp_path: Path
) -> None:
    code = (
        "import os, sys, cog\ncog.open('.')\n"
        "print('torch' in sys.modules, os.environ['OMP_WAIT_POLICY'],"
        " os.environ['GOMP_SPINCOUNT'], os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    )
    environment = {"PATH": os.environ["PATH"], "COG_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "PASSIVE", "3000", str(tmp_path / "torch")]


def test_a_project_is_found_from_a_folder_below_it(project: Project, tmp_path: Path) -> None:
    assert cog.open(project.folder / "registry").folder == project.folder
    with pytest.raises(ProjectError) as caught:
        cog.open(tmp_path)
    assert isinstance(caught.value, cog.CogError)


def test_corpora_give_documents_prompts_and_counts(project: Project, village: ProjectPaths) -> None:
    assert [(each.id, each.is_indexed) for each in project.corpora] == [
        ("hamlet", False),
        ("village", True),
    ]
    corpus = project.corpus("village")
    documents = list(corpus.documents())
    assert corpus.title == "A village"
    assert corpus.card["source"]["path"] == "texts/village.jsonl"
    assert corpus.document(documents[-1].document_id) == documents[-1]
    held_out = {prompt.document_id for prompt in corpus.prompts()}
    assert held_out
    assert not held_out & {each.document_id for each in documents}
    counted = json.loads(json.dumps(corpus.stats()))
    assert counted == call_json(village, "corpus", "stats", "village")
    (version,) = corpus.versions()
    assert version.documents == len(documents)
    assert (
        repr(project.corpora) == "[<cog corpus hamlet: not built>, <cog corpus village: indexed>]"
    )


def test_the_tables_of_an_index_open_in_lancedb(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = project.corpus("village")
    tables = corpus.tables()
    found = tables.open_table("documents").to_arrow().column("text").to_pylist()
    assert found == [each.text for each in corpus.documents()]
    (version,) = corpus.versions()
    assert tables.open_table("chunks").count_rows() == version.chunks
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'copy-generator\[lancedb\]'"):
        corpus.tables()


def test_tables_that_are_on_an_object_store_are_not_made_here(
    village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shutil.copytree(village.root, tmp_path / "project")
    shutil.rmtree(root / "corpora" / "village" / "index")
    monkeypatch.setenv("COG_INDEX_URI", "s3://nowhere/indexes")
    with pytest.raises(IndexNotBuiltError, match="next: cog index pull village --tables"):
        cog.open(root).corpus("village").tables()
    assert not (root / "corpora" / "village" / "index").exists()


def test_a_base_model_of_another_kind_names_the_extra_that_it_needs(village: ProjectPaths) -> None:
    code = (
        "import sys, cog\nsys.modules['transformers'] = None\n"
        "try:\n    cog.open(sys.argv[1]).generator('village', device='cpu')\n"
        "except cog.CogError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code, str(village.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "this needs the package transformers; found: it is not installed; "
        "next: pip install 'copy-generator[train]'\n"
    )


def test_what_is_missing_is_refused_as_on_the_command_line(project: Project) -> None:
    with pytest.raises(CorpusNotFoundError, match="next: cog corpus list"):
        project.corpus("town")
    with pytest.raises(CorpusError, match="corpus hamlet needs documents.parquet"):
        project.corpus("hamlet").documents()
    with pytest.raises(NothingActiveError, match="a corpus must be switched on or named"):
        project.generator()


def test_switching_and_rolling_back(tmp_path: Path, village: ProjectPaths) -> None:
    import shutil

    project = cog.open(shutil.copytree(village.root, tmp_path / "own"))
    assert project.active is None
    assert project.status.run == "cog switch --corpus village"
    change = project.switch("village")
    assert project.active == change.after
    assert change.before is None
    assert not project.switch("village").is_change
    with pytest.raises(NothingActiveError):
        project.rollback()


def test_a_text_is_what_the_command_line_writes(
    generator: Generator, village: ProjectPaths
) -> None:
    words = ("--corpus", "village", "--prefix", PREFIX, "--phrase-bias", "3", "--seed", "4")
    with record_choices() as wanted:
        line = call_json(village, "generate", *words)
    with record_choices() as found:
        text = generator.generate(PREFIX, phrase_bias=3, seed=4)
    assert_same_choices(found, wanted)
    content = json.loads(json.dumps(text.to_dict()))
    assert list(content) == list(line)
    assert content["decoding"] == line["decoding"]
    assert str(text) == PREFIX + "".join(segment.text for segment in text.segments)
    assert text.citations
    assert [each for each in text.segments if each.origin == CORPUS] == list(text.citations)
    copies = [copy for source in text.sources for copy in source.copies]
    assert sorted(copies, key=text.segments.index) == list(text.citations)


def test_lists_and_numbers_of_texts_give_lists(generator: Generator) -> None:
    texts = generator.generate([PREFIX, ""], num_return=2, seed=7)
    assert [(each.prefix, each.generation.decoding.seed) for each in texts] == [
        (PREFIX, 7),
        (PREFIX, 8),
        ("", 7),
        ("", 8),
    ]
    assert len(generator.generate(PREFIX, num_return=1)) == 1
    assert generator.generate([]) == []
    (long,) = generator.generate(["word " * 1000])
    assert long.num_unread_tokens > 0


def test_a_stream_gives_the_segments_of_its_text(generator: Generator) -> None:
    stream = generator.stream(PREFIX, decoding="greedy", phrase_bias=3)
    segments = tuple(stream)
    assert segments == stream.text.segments
    assert list(stream) == []
    assert stream.text.text == generator.generate(PREFIX, decoding="greedy", phrase_bias=3).text


def test_a_stream_that_is_closed_ends(generator: Generator) -> None:
    stream = generator.stream(PREFIX, max_new_tokens=60)
    stream.close()
    with pytest.raises(GenerationError, match="must be written to its end; found: a closed stream"):
        _ = stream.text
    assert generator.generate(PREFIX).generation.num_tokens == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_q": 1}, "top_q is no known key; next: did you mean top_p?"),
        ({"top_p": 7}, "top_p must be a number above 0 and up to 1; found: 7"),
        ({"decoding": "beam"}, "method must be one of greedy, nucleus; found: 'beam'"),
        ({"verify": "off", "verify_threshold": 0.5}, "verify_threshold needs verify to be"),
        ({"verify": "off", "min_token_probability": 0.5}, "goes without verify"),
        ({"max_new_tokens": 10**6}, "max_new_tokens must be a whole number from 1 to"),
        ({"num_return": 0}, "num_return must be 1 or more; found: 0"),
    ],
)
def test_wrong_settings_are_refused(
    generator: Generator, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(GenerationError) as caught:
        generator.generate(PREFIX, **settings)  # type: ignore[call-overload]
    assert message in str(caught.value)
    with pytest.raises(GenerationError, match="a prefix must be a text; found: 3"):
        generator.generate([PREFIX, 3])  # type: ignore[list-item]


def test_a_rule_brings_its_threshold(generator: Generator) -> None:
    found = generator.settings(verify="relative")
    assert (found.verify, found.verify_threshold) == ("relative", 0.001)
    assert generator.settings(min_token_probability=0.0).verify == "off"


def test_every_setting_is_a_keyword() -> None:
    names = {"decoding" if name == "method" else name for name in Decoding.__dataclass_fields__}
    assert set(Settings.__annotations__) == names | {"min_token_probability"}


def test_a_closed_generator_writes_nothing(project: Project) -> None:
    opened = project.generator("village", device="cpu")
    opened.close()
    with pytest.raises(GenerationError, match="a generator must be open to write"):
        opened.generate(PREFIX)
    with pytest.raises(GenerationError, match="a generator must be open to write"):
        opened.stream(PREFIX)
    with pytest.raises(GenerationError, match="precision must be one of"):
        project.generator("village", precision="float8")
