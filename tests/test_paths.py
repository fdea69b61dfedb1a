from pathlib import Path

import pytest

from cog.errors import AssetError, ProjectError
from cog.paths import CorpusPaths, ProjectPaths, _Below, find_project, get_cache_folder


def make_project(root: Path) -> Path:
    (root / "registry").mkdir(parents=True)
    (root / "params.yaml").touch()
    return root


def test_find_project_looks_upwards(tmp_path: Path) -> None:
    root = make_project(tmp_path / "project")
    below = root / "a" / "b"
    below.mkdir(parents=True)
    assert find_project(root) == find_project(below) == ProjectPaths(root.resolve())


def test_find_project_takes_the_nearest(tmp_path: Path) -> None:
    make_project(tmp_path)
    inner = make_project(tmp_path / "inner")
    assert find_project(inner).root == inner.resolve()


@pytest.mark.parametrize("missing", ["params.yaml", "registry"])
def test_find_project_needs_both_params_and_registry(tmp_path: Path, missing: str) -> None:
    root = make_project(tmp_path / "project")
    path = root / missing
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(ProjectError, match="--project DIR, or make one: cog init"):
        find_project(root)


def test_paths_of_a_project(tmp_path: Path) -> None:
    paths = ProjectPaths(tmp_path)
    assert paths.card("law-mt") == tmp_path / "registry/cards/law-mt.yaml"
    assert paths.active == tmp_path / "registry/active.yaml"
    assert paths.locks == tmp_path / ".cog/locks"
    assert paths.params == tmp_path / "params.yaml"


def test_paths_of_a_corpus_are_all_below_it(tmp_path: Path) -> None:
    corpus = ProjectPaths(tmp_path).corpus("law-mt")
    names = [name for name, kind in vars(CorpusPaths).items() if isinstance(kind, _Below)]
    assert len(names) > 8
    found = {getattr(corpus, name) for name in names}
    assert len(found) == len(names)  # no name stands for two things
    assert all(path.parent == tmp_path / "corpora/law-mt" for path in found)


def test_cache_folder_is_cog_cache_or_below_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "c"))
    assert get_cache_folder() == tmp_path / "c"
    monkeypatch.delenv("COG_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_cache_folder() == tmp_path / ".cache/cog"


def test_who_has_no_home_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COG_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError()))
    with pytest.raises(AssetError, match="next: export COG_CACHE=DIR"):
        get_cache_folder()
