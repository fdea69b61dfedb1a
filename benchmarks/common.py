"""What the benchmarks share: timing, memory, and the one JSON line they end with."""

import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def measure(function: Callable[[], object], *, repeats: int) -> float:
    """Time a call.

    :param function: What to call.
    :param repeats: Number of timed calls, after one that is not timed.
    :returns: Median seconds.
    """
    function()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def peak_bytes() -> int:
    """Peak resident memory of this process so far.

    :returns: Bytes.
    """
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def describe_machine() -> dict[str, Any]:
    """What the figures were taken on.

    :returns: Processor, threads and versions.
    """
    import torch
    import transformers

    return {
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def say(message: str) -> None:
    """Report progress on stderr.

    :param message: One line.
    """
    print(message, file=sys.stderr, flush=True)


def report(result: dict[str, Any]) -> None:
    """Print the result as the last line of stdout.

    :param result: JSON-ready figures; numbers are rounded to four significant digits.
    """
    print(json.dumps(_rounded({**result, "machine": describe_machine()})), flush=True)


def _rounded(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
