"""Another distribution that calls itself cog is found."""

from pathlib import Path

import pytest

from cog.doctor.install import check_install


def install(folder: Path, name: str, *, package: str, script: str) -> None:
    place = folder / f"{name}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (place / "top_level.txt").write_text(f"{package}\n")
    (place / "entry_points.txt").write_text(f"[console_scripts]\n{script} = {package}.x:main\n")


def test_nothing_else_is_cog_here() -> None:
    assert list(check_install()) == []


def test_others_are_named_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "cog", package="cog", script="cog")
    install(tmp_path, "cogapp", package="cogapp", script="cog")
    install(tmp_path, "other", package="other", script="other")
    monkeypatch.syspath_prepend(str(tmp_path))
    package, command = check_install()
    assert (package.about, command.about) == ("cog", "cogapp")
    assert package.run == "pip uninstall cog copy-generator, then pip install copy-generator"
    assert "call copy-generator in the place of cog" in command.run
