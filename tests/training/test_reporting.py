import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from cog.training.reporting import Meter, MetricsFile, get_peak_flops
from cog.training.run_folder import watch_signals
from cog.training.schedule import Budget
from tests.told import Told


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a meter reads, so that no test waits or hurries."""
    now = [100.0]
    monkeypatch.setattr("cog.training.reporting.time.monotonic", lambda: now[0])
    return now


def test_metrics_file_is_cut_to_where_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    file = MetricsFile(path, step=0)
    for step in range(1, 6):
        file.write(step, {"loss": float(step)})
    with path.open("a") as broken:
        broken.write('{"step": 6, "lo')  # what a killed run leaves
    MetricsFile(path, step=3).write(4, {"loss": 0.5})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1), (2, 2), (3, 3), (4, 0.5)]
    MetricsFile(path, step=0)
    assert path.read_text() == ""


def test_speed_is_said_early_and_the_bar_counts_steps(clock: list[float]) -> None:
    told = Told()
    meter = Meter(Budget(12, None), told, peak_flops=1e9, first_step=100, used_seconds=5.0)
    for step in range(101, 113):
        clock[0] += 0.5
        meter.count(step=step, num_tokens=10, operations=1e3)
        meter.say({"loss": 2.0, "token_loss": 1.5, "phrase_loss": 0.5})
    assert told.amount == 12
    assert told.lines[0].startswith("step 101: loss 2.000 token_loss 1.500 phrase_loss 0.500 · ")
    assert told.lines[1] == "first 10 steps: 2.00 steps per second"
    assert "tokens/s" in told.lines[2]
    assert "of peak" in told.lines[2]
    assert "s left" in told.lines[2]
    assert len(told.lines) == 3
    assert meter.seconds == pytest.approx(11.0)
    clock[0] += 20.0  # a slow step is told of
    meter.count(step=113, num_tokens=10, operations=1e3)
    meter.say({"loss": 1.0})
    assert told.lines[3].startswith("step 113: loss 1.000 · ")


def test_bar_of_a_run_by_seconds_counts_seconds(clock: list[float]) -> None:
    told = Told()
    meter = Meter(Budget(None, 60.0), told, peak_flops=1e9, first_step=0, used_seconds=0.5)
    for step in range(1, 11):
        clock[0] += 0.7
        meter.count(step=step, num_tokens=70, operations=7e7)
    assert told.amount == 7
    assert meter.seconds_left() == pytest.approx(60 - 7.5)
    assert meter.tokens_per_second == pytest.approx(100)
    assert meter.steps_per_second == pytest.approx(1 / 0.7)
    assert meter.peak_share == pytest.approx(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with watch_signals() as stop:
        assert stop.name == ""
        os.kill(os.getpid(), number)
        assert stop.name == number.name
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    found: list[str] = []

    def look() -> None:
        with watch_signals() as stop:
            found.append(stop.name)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [""]


def test_peak_of_a_processor_is_measured() -> None:
    peak, where = get_peak_flops(torch.device("cpu"))
    assert 1e8 < peak < 1e14
    assert "measured" in where


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [("NVIDIA H100 80GB HBM3", 989.4), ("NVIDIA H100 PCIe", 756.5), ("NVIDIA H200", 989.4)],
)
def test_peak_of_a_known_gpu_is_the_data_sheets(
    monkeypatch: pytest.MonkeyPatch, name: str, teraflops: float
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: name)
    peak, where = get_peak_flops(torch.device("cuda"))
    assert peak == teraflops * 1e12
    assert name in where
