"""Losses: hidden states, word vectors and labels go in, losses per query come out.

Tables of scores exist for a few rows at a time.
"""

CPU_ELEMENTS = 2**25  # scores that exist at once
GPU_ELEMENTS = 2**27  # fewer, larger passes; half a gigabyte


def max_elements_on(device_type: str) -> int:
    """Number of scores that exist at once."""
    return CPU_ELEMENTS if device_type == "cpu" else GPU_ELEMENTS
