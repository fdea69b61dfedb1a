"""The benchmark of decoding on the tiny project."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from benchmarks import decode
from cog.paths import ProjectPaths
from tests.tiny_project import write_yaml


def test_default_precision_and_float32_are_measured_in_one_run(
    village: ProjectPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = shutil.copytree(village.root, tmp_path / "project")
    content = yaml.safe_load((root / "params.yaml").read_text())
    content["generate"]["precision"] = "bfloat16"
    write_yaml(root / "params.yaml", content)
    monkeypatch.setattr(decode, "ROOT", root)
    words = ["decode", "--corpus", "village", "--prompts", "2", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr("sys.argv", words)
    decode.main()
    result = json.loads(capsys.readouterr().out)
    assert result["precision"] == "bfloat16"
    for name in ("ratio_batch_1", "ratio_batch_2"):
        assert result[name] > 0
        assert result[f"{name}_float32"] > 0
    assert result["bytes"]["candidates_per_prompt"] > 0
    assert result["ratio_llama_1"] is None  # the village's base is no GGUF file
