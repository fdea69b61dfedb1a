"""Text and examples for the tests of training."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cog.model.config import load_config
from cog.params import load_params
from cog.profiles import RandomBase
from cog.progress import SilentProgress
from cog.records import Document
from cog.training.building import ExampleSettings, TrainingText, build_examples
from cog.training.examples import ExampleStore
from cog.training.initial_model import Recipe, load_recipe
from cog.training.job import TrainJob
from cog.training.schedule import Budget

ROOT = Path(__file__).parents[2]

PHRASES = (
    "the council of the upper village",
    "on the proposal of the old miller",
    "in accordance with the rules of the market",
    "the left bank of the winding river",
    "after the great flood of that spring",
    "every third Thursday before the noon bell",
)
NAMES = ("Anna", "Bruno", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
VERBS = ("met", "painted", "measured", "left", "described", "crossed", "sold", "heard")


def iter_village(num_documents: int, *, num_sentences: int = 6) -> Iterator[Document]:
    """Documents in which the same phrases stand again and again, each between other words."""
    for number in range(num_documents):
        sentences = []
        for place in range(num_sentences):
            key = number * num_sentences + place
            name, verb = NAMES[key % 8], VERBS[(key // 8 + number) % 8]
            first, second = PHRASES[key % 6], PHRASES[(key + 1 + number % 3) % 6]
            sentences.append(f"{name} {verb} {first} and wrote {key} letters {second}.")
        yield Document(f"d{number}", f"Title {number}", " ".join(sentences), "", "", f"t:{number}")


def make_settings(model: Path, *, max_chunk_tokens: int = 48) -> ExampleSettings:
    """Settings for the bases of a tiny model."""
    limits = {"max_chunk_tokens": max_chunk_tokens, "min_chunk_tokens": 8, "max_pieces": 126}
    config = replace(load_config(model), **limits)
    return ExampleSettings(model / "prefix", model / "phrase", config)


def make_store(model: Path, folder: Path, *, num_documents: int = 12) -> ExampleStore:
    """Examples of a village."""
    return build_examples(
        TrainingText(lambda: iter_village(num_documents), f"village-{num_documents}"),
        settings=make_settings(model),
        folder=folder,
        num_workers=0,
        progress=SilentProgress(),
    )


def make_recipe(**loop: Any) -> Recipe:  # noqa: ANN401
    """The profile `tiny`, made smaller still; fields of its loop, or ``head_width``, may change."""
    head_width = loop.pop("head_width", 32)
    recipe = load_recipe(load_params(ROOT / "params.yaml").train, "tiny")
    small = RandomBase("llama", 32, 1, 2, 400, 128)
    phrase = RandomBase("bert", 32, 1, 2, 600, 128)
    model = replace(
        recipe.model,
        prefix_base=small,
        phrase_base=phrase,
        retriever_base=phrase,
        head_width=head_width,
        max_chunk_tokens=32,
        min_chunk_tokens=8,
    )
    quick = replace(recipe.loop, chunks_per_batch=8, seeds_per_batch=8, checkpoint_steps=4)
    return replace(recipe, model=model, loop=replace(quick, **loop))


def make_job(out: Path, **given: Any) -> TrainJob:  # noqa: ANN401
    """A short run on a village; fields may change, ``steps`` and ``seconds`` are of its budget."""
    budget = Budget(given.pop("steps", None), given.pop("seconds", None))
    job = TrainJob(
        recipe=make_recipe(),
        text=TrainingText(lambda: iter_village(24), "village-24"),
        source=None,
        objective="copy",
        budget=budget,
        out=out,
        is_resumed=False,
        device="cpu",
        num_workers=0,
        seed=0,
        about={"data": "a village"},
    )
    return replace(job, **given)


def read_losses(out: Path) -> dict[int, float]:
    """The losses that a run wrote, by step."""
    lines = (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    content = [json.loads(line) for line in lines]
    return {line["step"]: line["loss"] for line in content if "loss" in line}
