"""llama.cpp as a peer: a stand-in for its library, in an interpreter of its own."""

import hashlib
import json
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from benchmarks import decode
from benchmarks.common import ROOT
from benchmarks.llama import PACKAGE, open_llama
from cog.profiles import HubBase, WheelBase
from cog.records import Decoding

GGUF = b"GGUF, and then weights"
STAND_IN = """
import json, sys
from itertools import count

__version__ = "7.1"
print("what a library prints is no answer")

def llama_print_system_info():
    return b"AVX512 = 1"

class Llama:
    def __init__(self, path, **options):
        self.calls = []
        assert open(path, "rb").read() == b"GGUF, and then weights"
        assert options["n_threads"] == options["n_threads_batch"] == 3

    def reset(self):
        self.calls.append("reset")

    def set_seed(self, seed):
        self.calls.append(seed)

    def generate(self, ids, **options):
        print(json.dumps([self.calls, ids, options]), file=sys.stderr)
        return count()
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """A base whose wheel is in the cache."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/tiny.gguf", GGUF)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "wheels" / sha256
    folder.mkdir(parents=True)
    wheel.rename(folder / wheel.name)
    return WheelBase("tiny", "1.0", sha256, "tiny/tiny.gguf")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An interpreter that has nothing but what lies in ``library``."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/library" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


def test_prompts_are_continued_by_another_interpreter(
    base: WheelBase, bare_python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "llama_cpp.py").write_text(STAND_IN)
    nucleus = Decoding(method="nucleus", seed=5, max_new_tokens=9, top_p=0.9, temperature=0.7)
    greedy = Decoding(method="greedy", seed=6, max_new_tokens=2)
    with open_llama(base, python=str(bare_python), threads=3) as peer:
        assert peer is not None
        assert peer.about == {"version": "7.1", "features": "AVX512 = 1"}
        assert peer.run([1, 2, 3], nucleus) > 0
        assert peer.run([4], greedy) > 0
    assert peer.process.returncode == 0
    printed = capfd.readouterr()
    assert printed.out == ""
    first, second = map(json.loads, printed.err.splitlines()[-2:])
    plain = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    assert first == [["reset", 5], [1, 2, 3], {**plain, "top_p": 0.9, "temp": 0.7}]
    assert second[0] == ["reset", 5, "reset", 6]
    assert second[2]["temp"] == 0


def test_an_interpreter_without_it_is_told_in_one_line(
    base: WheelBase, bare_python: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_llama(base, python=str(bare_python), threads=1) as peer:
        assert peer is None
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert f"next: {bare_python} -m pip install {PACKAGE} " in printed.err
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["dependency-groups"]["benchmarks"][0].startswith(f"{PACKAGE}>=")


def test_a_base_that_is_no_gguf_is_told_in_one_line(
    bare_python: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_llama(HubBase("prefix", "main"), python=str(bare_python), threads=1) as peer:
        assert peer is None
    assert capfd.readouterr().err.startswith("llama.cpp is not measured: it needs a base that")


def test_a_worker_that_dies_ends_the_benchmark(
    base: WheelBase, tmp_path: Path, bare_python: Path
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "llama_cpp.py").write_text("raise SystemExit(9)")
    with (
        pytest.raises(SystemExit, match="ended with code 9"),
        open_llama(base, python=str(bare_python), threads=1),
    ):
        pass


def test_what_is_no_interpreter_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["decode", "--llama-python", "no/such/python"])
    with pytest.raises(SystemExit):
        decode.main()
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith("--llama-python must be an interpreter; found: no/such/python")
