import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from cog.errors import ParamsError
from cog.params import Params, load_params
from cog.profiles import LoopProfile, load_shipped_profiles
from cog.reading import read_record
from cog.settings import format_settings, list_settings

ROOT = Path(__file__).parents[1]
PROFILES = yaml.safe_load((ROOT / "cog" / "profiles.yaml").read_text(encoding="utf-8"))
WHOLE = format_settings(list_settings(Params()))


@pytest.fixture
def content() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(WHOLE)
    return loaded


def write(folder: Path, content: object) -> Path:
    path = folder / "params.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_load_params_reads_the_project_s_own_file() -> None:
    params = load_params(ROOT / "params.yaml")
    assert params.model == "cog-v0"
    assert params.index.vector_dtype == "int8"
    assert params.generate.decoding.max_new_tokens == 128


def test_the_project_s_own_file_is_short_and_has_every_section() -> None:
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert list(yaml.safe_load(text)) == list(yaml.safe_load(WHOLE))


def test_whole_file_is_the_defaults_with_their_meaning(tmp_path: Path) -> None:
    assert load_params(write(tmp_path, WHOLE)) == Params()
    assert all(setting.meaning for setting in list_settings(Params()))
    assert max(map(len, WHOLE.splitlines())) <= 100


def test_load_params_takes_a_whole_number_for_a_float(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    content["generate"]["phrase_bias"] = -2
    phrase_bias = load_params(write(tmp_path, content)).generate.decoding.phrase_bias
    assert phrase_bias == -2.0
    assert isinstance(phrase_bias, float)


def test_what_is_missing_has_its_default(content: dict[str, Any]) -> None:
    whole = read_record(Params, content, error=ParamsError)
    for name in set(content) - {"model"}:
        assert read_record(Params, {**content, name: None}, error=ParamsError) == whole
        for key in content[name]:
            section = {other: value for other, value in content[name].items() if other != key}
            assert read_record(Params, {**content, name: section}, error=ParamsError) == whole
    assert read_record(Params, {"generate": None}, error=ParamsError) == Params()
    assert load_shipped_profiles()["smollm2-minilm"].loop == LoopProfile()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "top_p: 0.95",
            "top_pp: 0.9",
            "generate.top_pp is no known key; .* did you mean top_p?",
        ),
        ("index:", "indx:", "indx is no known key; next: did you mean index?"),
        ("retries: 3", "retries: '3'", "fetch.retries must be a whole number from 0; found: '3'"),
        ("commit_chunks: 2048", "commit_chunks: true", "a whole number from 1; found: True"),
        ("commit_chunks: 2048", "commit_chunks: 1.5", "a whole number from 1; found: 1.5"),
        (
            "int8 #",
            "int4 #",
            "index.vector_dtype must be one of int8, float16, compact; found: 'int4'",
        ),
        ("top_p: 0.95", "top_p: 7", "must be a number above 0 and up to 1; found: 7"),
        ("top_p: 0.95", "top_p: '0.9'", "must be a number above 0 and up to 1; found: '0.9'"),
        ("top_p: 0.95", "top_p: .nan", "must be a number above 0 and up to 1; found: nan"),
        ("decoding: nucleus", "decoding: beam", "generate.decoding must be one of greedy, nucleus"),
        ("decoding: nucleus", "decoding:", "generate.decoding must be one of .*; found: null"),
        (
            "threshold: 0.0002",
            "threshold: 2",
            "must be a number from 0 to 1 for absolute",
        ),
        ("batch_size: 50", "batch_size: 0", "evaluate.batch_size must be a whole number from 1"),
        ("prompt_tokens: 32 #", "prompt_tokens: 0 #", "prepare.prompt_tokens must be a whole"),
        ("[22, 29]", "[22, 0.5]", r"must be a list of whole numbers; found: \[22, 0.5\]"),
        ("[22, 29]", "22", "evaluate.featuriser_layers must be a list of whole numbers; found: 22"),
        ("overlap_tokens: 128", "overlap_tokens: 256", r"must be below context_tokens \(256\)"),
        ("window_tokens: 256", "window_tokens: 64", r"must be above chunk_tokens \(64\)"),
        ("learning_rate: 0.001", "learning_rate: fast", "must be a number above 0; found: 'fast'"),
        ("num_neighbours: 2", "num_neighbours: 0", "retro.num_neighbours must be a whole number"),
        ("held_out_share: 0.05", "held_out_share: 1.0", "a number from 0 to below 1; found: 1.0"),
        ("distance_scale: 0.00785", "distance_scale: 0", "must be a number above 0; found: 0"),
        ("weight: 0.118", "weight: -.inf", "datastore.weight must be a number from 0 to 1"),
        ("top_k: 1024", "top_k: 0", "datastore.top_k must be a whole number from 1; found: 0"),
        ("source: corpus", "source: near", "segment.source must be one of corpus"),
        ("precision: auto", "precision: half", "must be one of auto, float32, bfloat16"),
        ("model: cog-v0", "model: 2024", "must be a text; found: 2024; next: put it in q"),
        ("profile: smollm2", "profiel: smollm2", "train.profiel is no known key; .* profile?"),
    ],
)
def test_a_wrong_value_is_told_with_file_and_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    before, found, after = WHOLE.partition(old)
    assert found
    path = write(tmp_path, f"{before}{new}{after}")
    line = before.count("\n") + 1
    with pytest.raises(ParamsError, match=rf"^params\.yaml, line {line}: .*{message}"):
        load_params(path)


def test_a_merged_value_is_told_with_the_line_where_it_stands(tmp_path: Path) -> None:
    profiles = (ROOT / "cog" / "profiles.yaml").read_text(encoding="utf-8")
    text = "train:\n  profiles:\n" + textwrap.indent(profiles, "    ")
    before, _, after = text.partition("max_of_document: 8")
    path = write(tmp_path, f"{before}max_of_document: 0{after}")
    line = before.count("\n") + 1
    with pytest.raises(ParamsError, match=rf"line {line}: .*loop.max_of_document must"):
        load_params(path)


@pytest.mark.parametrize("written", ["1e-3", "1E-3", "1.0e-3", "0.001"])
def test_a_number_with_an_exponent_needs_no_point(tmp_path: Path, written: str) -> None:
    text = f"retro: {{learning_rate: {written}}}\n"
    assert load_params(write(tmp_path, text)).retro.learning_rate == 0.001


def test_off_is_no_truth_value(tmp_path: Path) -> None:
    assert (
        load_params(write(tmp_path, "generate: {verify: off}\n")).generate.decoding.verify == "off"
    )


@pytest.mark.parametrize("section", ["", "datastore", "retro", "train"])
def test_a_file_of_an_older_cog_is_upgraded(tmp_path: Path, section: str) -> None:
    corpora = {"corpora": {"wiki-mini": {"root": "wiki-lead"}}}
    path = write(tmp_path, {section: corpora} if section else corpora)
    dotted = f"{section}.corpora" if section else "corpora"
    with pytest.raises(ParamsError, match=rf"found: {dotted}: .*; next: cog upgrade$"):
        load_params(path)


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "a\n"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ParamsError, match=r"params\.yaml must be"):
        load_params(write(tmp_path, text))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="no such file"):
        load_params(tmp_path / "params.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(b"model: caf\xe9\n")
    with pytest.raises(ParamsError, match="must be YAML"):
        load_params(path)
