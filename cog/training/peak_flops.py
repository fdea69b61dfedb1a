"""How fast a device can be: its name goes in, floating point operations per second come out."""

import time

import torch

from cog.progress import Progress

# dense bf16 tensor-core peaks from the makers' data sheets; the first name that fits counts
KNOWN_PEAKS = {
    "B200": 2250e12,
    "H200": 989.4e12,
    "GH200": 989.4e12,
    "H100 PCIe": 756.5e12,
    "H100": 989.4e12,
    "L40S": 362e12,
    "A100": 312e12,
    "L40": 181e12,
    "L4": 121e12,
}
MEASURED_SIZE = {"cpu": 768, "cuda": 8192}
MEASURED_ROUNDS = 5


def tell_peak_flops(device: torch.device, progress: Progress, *, is_half: bool = False) -> float:
    """Find the peak of a device, and say it and where it is from."""
    peak, where = get_peak_flops(device, is_half=is_half)
    progress.say(f"peak of the device: {peak / 1e12:,.2f} TFLOP/s ({where})")
    return peak


def get_peak_flops(device: torch.device, *, is_half: bool = False) -> tuple[float, str]:
    """Find the peak of a device.

    A processor is measured in bf16 if ``is_half``. Second comes where the figure is from.
    """
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for known, peak in KNOWN_PEAKS.items():
            if known in name:
                return peak, f"{name}, data sheet, dense bf16"
    return _measure_peak_flops(device, is_half=is_half), "matrix product, measured"


def _measure_peak_flops(device: torch.device, *, is_half: bool) -> float:
    # the best of a few products of square matrices, which no real step can beat by much
    size = MEASURED_SIZE.get(device.type, 1024)
    kind = torch.bfloat16 if is_half or device.type == "cuda" else torch.float32
    left = torch.ones(size, size, dtype=kind, device=device)
    best = float("inf")
    for _ in range(MEASURED_ROUNDS):
        started = time.perf_counter()
        product = left @ left
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        del product
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
