"""The check on a GPU machine, where there is none."""

import subprocess
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so(repository: Path) -> None:
    run = subprocess.run(
        [repository / "scripts" / "gpu_check.sh"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("gpu_check: a GPU that torch can use is needed; found: none")
    assert run.stderr.count("\n") == 1
