"""Losses: hidden states, word vectors and labels go in, losses per query come out.

Tables of scores exist for a few rows at a time.
"""

from collections.abc import Iterator

CPU_ELEMENTS = 2**25  # scores that exist at once
GPU_ELEMENTS = 2**27  # fewer, larger passes; half a gigabyte


def iter_passes(num_rows: int, *, row_size: int, device_type: str) -> Iterator[slice]:
    """Rows whose scores exist at once: so many as suit the device, one at least."""
    num_elements = CPU_ELEMENTS if device_type == "cpu" else GPU_ELEMENTS
    step = max(1, num_elements // max(1, row_size))
    for begin in range(0, num_rows, step):
        yield slice(begin, min(begin + step, num_rows))
