"""The profile `tiny` for real: it learns, and what it learnt is to copy."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from cog.cli.main import cli
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.training.building import TrainingText
from cog.training.initial_model import load_recipe
from cog.training.job import train
from tests.built_project import build_corpus
from tests.tiny_project import make_project
from tests.training.making import PHRASES, ROOT, iter_village, make_job, read_losses

NUM_STEPS = 50
PREFIXES = ("Anna met", "Clara measured", "Hugo heard")


def write_with(model: Path, paths: ProjectPaths) -> list[str]:
    """Index the village with a model and let it write."""
    shutil.copytree(model, paths.root / "models" / "tiny", ignore=shutil.ignore_patterns("run"))
    with (paths.root / "texts" / "village.jsonl").open("w", encoding="utf-8") as file:
        for each in iter_village(24):
            row = {"id": each.document_id, "title": each.title, "text": each.text}
            file.write(json.dumps(row) + "\n")
    build_corpus(paths, "village")
    texts = []
    for prefix in PREFIXES:
        words = ["--corpus", "village", "--prefix", prefix, "--decoding", "greedy", "--json"]
        command = ["--project", str(paths.root), "generate", *words, "--max-new-tokens", "24"]
        result = CliRunner().invoke(cli, command, standalone_mode=False)
        assert result.exception is None, result.exception
        segments = json.loads(result.stdout)["segments"]
        texts += [each["text"].strip() for each in segments if each["from"] == "corpus"]
    return texts


def test_tiny_halves_its_loss_and_then_copies_planted_phrases(
    tmp_path: Path,
) -> None:
    recipe = load_recipe(load_params(ROOT / "params.yaml").train, "tiny")
    # no validation here, and held-out documents would be few
    recipe = replace(recipe, loop=replace(recipe.loop, validation_batches=0))
    still = replace(recipe.model.rates, prefix=0.0, phrase=0.0, heads=0.0, projection=0.0)
    untrained = replace(recipe, model=replace(recipe.model, rates=still))
    text = TrainingText(lambda: iter_village(60), "village-60")
    whole = {}
    for name, used, num_steps in (("before", untrained, 1), ("after", recipe, NUM_STEPS)):
        job = make_job(tmp_path / name / "model", recipe=used, steps=num_steps, text=text)
        train(job, progress=SilentProgress(), log=None)
        copied = write_with(job.out, make_project(tmp_path / name / "project"))
        whole[name] = [phrase for each in copied for phrase in PHRASES if phrase in each]
    losses = read_losses(tmp_path / "after" / "model")
    assert losses[NUM_STEPS] < 0.5 * losses[1]
    assert whole["before"] == []
    assert len(whole["after"]) >= len(PREFIXES)
    assert len(set(whole["after"])) >= 2
