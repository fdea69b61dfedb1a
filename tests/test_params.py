from pathlib import Path
from typing import Any

import pytest
import yaml

from cog.errors import ParamsError
from cog.params import CorpusEntry, load_params

ROOT = Path(__file__).parents[1]


@pytest.fixture
def content() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    return loaded


def write(folder: Path, content: object) -> Path:
    path = folder / "params.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_load_params_reads_the_project_s_own_file() -> None:
    params = load_params(ROOT / "params.yaml")
    assert params.corpora["wiki-mini"] == CorpusEntry(root="wiki-lead")
    assert params.model == "models/cog-v0"
    assert params.index.vector_dtype == "int8"
    assert params.generate.decoding.max_new_tokens == 128


def test_a_setting_that_an_older_file_does_not_name_is_as_it_was(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    for name in ("span_words", "min_bits", "copy_once"):
        del content["generate"][name]
    decoding = load_params(write(tmp_path, content)).generate.decoding
    assert (decoding.span_words, decoding.min_bits, decoding.copy_once) == (0, 0.0, False)
    del content["generate"]["top_p"]
    with pytest.raises(ParamsError, match="generate needs the key 'top_p'"):
        load_params(write(tmp_path, content))


def test_load_params_takes_a_whole_number_for_a_float(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    content["generate"]["phrase_bias"] = -2
    phrase_bias = load_params(write(tmp_path, content)).generate.decoding.phrase_bias
    assert phrase_bias == -2.0
    assert isinstance(phrase_bias, float)


@pytest.mark.parametrize("layers", [22, [22, 0.5], ["last"], [True]])
def test_a_list_holds_values_of_its_type(
    tmp_path: Path, content: dict[str, Any], layers: object
) -> None:
    content["evaluate"]["featuriser_layers"] = layers
    wanted = r"evaluate.featuriser_layers must be of type list\[int\]; found: "
    with pytest.raises(ParamsError, match=wanted):
        load_params(write(tmp_path, content))


def test_load_params_allows_no_corpora(tmp_path: Path, content: dict[str, Any]) -> None:
    content["corpora"] = None
    assert load_params(write(tmp_path, content)).corpora == {}


def test_unknown_key_is_refused_naming_the_nearest(tmp_path: Path, content: dict[str, Any]) -> None:
    content["generate"]["top_pp"] = 0.9
    with pytest.raises(ParamsError, match=r"generate has no key 'top_pp'.*'top_p'"):
        load_params(write(tmp_path, content))


def test_unknown_section_is_refused_naming_the_nearest(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    content["indx"] = content.pop("index")
    with pytest.raises(ParamsError, match=r"'indx'.*'index'"):
        load_params(write(tmp_path, content))


@pytest.mark.parametrize("section", ["fetch", "prepare", "index", "generate", "model", "corpora"])
def test_missing_section_is_refused(tmp_path: Path, content: dict[str, Any], section: str) -> None:
    del content[section]
    with pytest.raises(ParamsError, match=f"needs the key '{section}'"):
        load_params(write(tmp_path, content))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("fetch", "retries", "3"),
        ("index", "batch_tokens", 1.5),
        ("index", "batch_tokens", True),
        ("generate", "top_p", "0.9"),
        ("generate", "decoding", None),
    ],
)
def test_wrong_type_is_refused(
    tmp_path: Path, content: dict[str, Any], section: str, key: str, value: object
) -> None:
    content[section][key] = value
    with pytest.raises(ParamsError, match=rf"{section}\.{key} must be of type"):
        load_params(write(tmp_path, content))


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        (["wiki-mini"], "corpora must map"),
        ({"wiki-mini": None}, "must be a mapping"),
        ({"wiki-mini": {"root": "a", "rot": "b"}}, "no key 'rot'"),
        ({"wiki-mini": {}}, "needs the key 'root'"),
    ],
)
def test_malformed_corpora_are_refused(
    tmp_path: Path, content: dict[str, Any], corpora: object, message: str
) -> None:
    content["corpora"] = corpora
    with pytest.raises(ParamsError, match=message):
        load_params(write(tmp_path, content))


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
