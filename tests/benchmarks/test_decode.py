"""The benchmark of decoding on the tiny project."""

import json

import pytest
import torch

from benchmarks import decode
from cog.paths import ProjectPaths


def test_default_precision_and_float32_are_measured_in_one_run(
    village: ProjectPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(decode, "ROOT", village.root)
    words = ["decode", "--corpus", "village", "--prompts", "2", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr("sys.argv", words)
    decode.main()
    result = json.loads(capsys.readouterr().out)
    assert result["precision"] == "bfloat16"
    for name in ("ratio_batch_1", "ratio_batch_2"):
        assert result[name] > 0
        assert result[f"{name}_float32"] > 0
    assert result["bytes"]["candidates_per_prompt"] > 0
