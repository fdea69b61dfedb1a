"""Seconds of one whole training step of the default model, and where they go.

Run: ``python -m benchmarks.train_step [--chunks 16] [--steps 2] [--data FILE]``; without a file the
text is made up. Wanted on two cores: under 30 seconds.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.corpus.text_files import digest_text_files, iter_text_documents
from cog.params import load_params
from cog.progress import SilentProgress
from cog.records import Document
from cog.training.batches import Batch, iter_batches
from cog.training.building import TrainingText
from cog.training.initial_model import OpenedModel, Recipe, find_bases, load_recipe, open_model
from cog.training.preparing import prepare_data
from cog.training.reporting import get_peak_flops
from cog.training.tensors import to_tensors

WANTED_SECONDS = 30.0
PARTS = ("data", "forward", "backward", "optimiser")
WORDS = ("river", "council", "market", "baker", "bridge", "village", "flood", "stone", "miller")


def iter_made_up(num_documents: int) -> Iterator[Document]:
    """Text of nine words in many orders, long enough for whole chunks.

    :param num_documents: Number of documents.
    :yields: Documents.
    """
    for number in range(num_documents):
        words = [f"the {WORDS[(number * 7 + i * i) % 9]}" for i in range(400)]
        yield Document(str(number), "", " and ".join(words), "", "", "")


def synchronise(device: torch.device) -> float:
    """Wait for the device.

    :param device: The device.
    :returns: The time.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Stopwatch:
    """Seconds of the parts of steps; the first step is not counted.

    :param device: Where the steps run.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = self._cpu_began = 0.0
        self.seconds = dict.fromkeys((*PARTS, "cpu"), 0.0)
        self.is_counting = False

    def start(self) -> None:
        """Begin a step."""
        self._began, self._cpu_began = synchronise(self._device), time.process_time()

    def stop(self, part: str) -> None:
        """End a part of a step.

        :param part: Its name.
        """
        now, cpu_now = synchronise(self._device), time.process_time()
        if self.is_counting:
            self.seconds[part] += now - self._began
            self.seconds["cpu"] += cpu_now - self._cpu_began
        self._began, self._cpu_began = now, cpu_now


def measure_steps(
    num_chunks: int, num_steps: int, text: TrainingText, folder: Path
) -> dict[str, float]:
    """Take steps and time their parts.

    :param num_chunks: Number of chunks of a batch.
    :param num_steps: Number of steps that are timed, after one that is not.
    :param text: What is trained on.
    :param folder: Where examples are kept.
    :returns: Mean seconds by part, and speeds.
    """
    recipe = load_recipe(load_params(ROOT / "params.yaml").train, "smollm2-minilm")
    recipe = replace(recipe, loop=replace(recipe.loop, chunks_per_batch=num_chunks))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bases = find_bases(recipe, None, out=folder / "model", text=text, seed=0, is_new=True)
    data = prepare_data(
        text,
        bases,
        recipe.loop,
        folder=folder,
        device=device.type,
        num_workers=0,
        seed=0,
        progress=SilentProgress(),
    )
    opened = open_model(bases, recipe, objective="copy", device=device)
    watch = Stopwatch(device)
    batches = iter_batches(data.train, range(num_steps + 1), num_workers=0)
    num_tokens, operations = take_steps(opened, recipe, batches, watch)
    peak, _ = get_peak_flops(device)
    seconds = {part: value / num_steps for part, value in watch.seconds.items()}
    whole = sum(seconds[part] for part in PARTS)
    return {
        "step_seconds": whole,
        **{f"{part}_seconds": value for part, value in seconds.items()},
        "tokens_per_second": num_tokens / num_steps / whole,
        "peak_share": operations / num_steps / whole / peak,
    }


def take_steps(
    opened: OpenedModel, recipe: Recipe, batches: Iterator[Batch], watch: Stopwatch
) -> tuple[int, float]:
    """Take a step on each batch.

    :param opened: The model.
    :param recipe: The profile.
    :param batches: The batches; the first is not counted.
    :param watch: Times the parts.
    :returns: Number of tokens, and of floating point operations.
    """
    model = opened.model.train()
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameter_groups(recipe.model.rates))
    num_tokens, operations = 0, 0.0
    watch.start()
    for batch in batches:
        tensors = to_tensors(batch, recipe.model.losses, device)
        watch.stop("data")
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses = model(tensors)
        watch.stop("forward")
        losses.total.backward()
        watch.stop("backward")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        watch.stop("optimiser")
        say(f"batch {batch.number}: loss {losses.total.item():.3f}")
        if watch.is_counting:
            num_tokens += batch.num_tokens
            operations += opened.count_operations(batch)
        watch.is_counting = True
        watch.start()
    return num_tokens, operations


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    text = TrainingText(lambda: iter_made_up(given.chunks * 2), f"made up {given.chunks}")
    if given.data is not None:
        files = [given.data]
        text = TrainingText(lambda: iter_text_documents(files), digest_text_files(files))
    with tempfile.TemporaryDirectory() as folder:
        found = measure_steps(given.chunks, given.steps, text, Path(folder))
    report(
        {
            "benchmark": "train_step",
            "chunks": given.chunks,
            **found,
            "wanted_seconds": WANTED_SECONDS,
            "peak_bytes": peak_bytes(),
        }
    )


if __name__ == "__main__":
    main()
