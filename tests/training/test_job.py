import itertools
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cog.errors import CheckpointError, TrainingError
from cog.model.config import load_config
from cog.model.load import load_index_model, load_model
from cog.profiles import HubBase
from cog.progress import SilentProgress
from cog.records import Document
from cog.training import job as job_module
from cog.training.building import TrainingText
from cog.training.checkpoint import find_checkpoints
from cog.training.initial_model import OpenedModel, Recipe
from cog.training.job import TrainJob, TrainReport, train
from cog.training.model import Losses
from tests.model_fixtures import make_tiny_model
from tests.told import Told
from tests.training.making import iter_village, make_job, make_recipe, read_losses


def run(job: TrainJob) -> TrainReport:
    return train(job, progress=SilentProgress(), log=None)


def is_loadable(folder: Path) -> bool:
    load_index_model(folder)
    return load_model(folder).fingerprint != ""


def make_long_recipe(*, interval: int) -> Recipe:
    recipe = make_recipe(checkpoint_steps=interval, accumulation_steps=2, validation_steps=2)
    return replace(recipe, model=replace(recipe.model, dropout=0.1))  # random states count too


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainReport]:
    """A run that never stopped, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    return folder, run(make_job(folder, recipe=make_long_recipe(interval=100), steps=7))


@pytest.mark.parametrize(("interval", "kept"), [(3, ["step-00000003"]), (6, [])])
def test_run_that_goes_on_has_the_losses_of_one_that_never_stopped(
    tmp_path: Path, whole: tuple[Path, TrainReport], interval: int, kept: list[str]
) -> None:
    recipe, parts = make_long_recipe(interval=interval), tmp_path / "model"
    with pytest.raises(MemoryError):
        train(make_job(parts, recipe=recipe, steps=7), progress=Told(break_at=5), log=None)
    assert is_loadable(parts)
    assert [each.name for each in find_checkpoints(parts / "run" / "checkpoints")] == kept
    found = run(make_job(parts, recipe=recipe, steps=7, is_resumed=True))
    folder, wanted = whole
    assert read_losses(parts) == read_losses(folder)
    assert list(read_losses(parts)) == [1, 2, 3, 4, 5, 6, 7]
    assert found.fingerprint == wanted.fingerprint
    assert found.validation == wanted.validation != {}


def test_finished_run_that_is_resumed_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for validation_steps in (2, 3):  # the last step has its validation, or one is made at the end
        recipe = make_recipe(validation_steps=validation_steps)
        first = run(make_job(out, recipe=recipe, steps=4))
        card, lines = (
            (out / name).read_text(encoding="utf-8") for name in ("README.md", "run/metrics.jsonl")
        )
        assert "| loss |" in card
        assert "| validation/token_loss |" in card
        again = run(make_job(out, recipe=recipe, steps=4, is_resumed=True))
        assert (again.steps, again.fingerprint) == (4, first.fingerprint)
        assert (again.metrics, again.validation) == (first.metrics, first.validation)
        assert (out / "README.md").read_text(encoding="utf-8") == card
        assert (out / "run" / "metrics.jsonl").read_text(encoding="utf-8") == lines
        shutil.rmtree(out)


def test_run_by_seconds_ends_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = itertools.count()  # every look at the clock finds a hundredth of a second gone
    monkeypatch.setattr("cog.training.reporting.time.monotonic", lambda: next(reads) / 100)
    report = run(make_job(tmp_path / "out", seconds=0.7))
    assert report.reason == "budget"
    assert 0.5 < report.seconds < 0.8  # those of the last step that was finished
    assert 3 < report.steps < 20
    assert report.metrics["rate_factor"] < 1
    assert is_loadable(tmp_path / "out")


def test_signal_ends_with_a_model_and_a_checkpoint(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask(step: int, _metrics: Mapping[str, float]) -> None:
        if step == 10 and not asked:
            asked.append(step)
            os.kill(os.getpid(), signal.SIGTERM)

    job = make_job(tmp_path / "out", steps=1000)
    report = train(job, progress=SilentProgress(), log=ask)
    assert (report.reason, report.steps) == ("SIGTERM", 10)
    assert is_loadable(tmp_path / "out")
    newest = find_checkpoints(tmp_path / "out" / "run" / "checkpoints")[-1]
    assert newest.name == "step-00000010"


def spoil(monkeypatch: pytest.MonkeyPatch, *, at: int) -> None:
    """Let the loss be undefined at one step."""
    opening = job_module.open_model

    def open_spoilt(*words: Any, **named: Any) -> OpenedModel:  # noqa: ANN401
        opened = opening(*words, **named)
        calls: list[int] = []

        def change(_module: object, _inputs: object, losses: Losses) -> Losses:
            calls.append(1)
            factor = torch.nan if len(calls) == at else 1.0
            return replace(losses, total=losses.total * factor)

        opened.model.register_forward_hook(change)
        return opened

    monkeypatch.setattr(job_module, "open_model", open_spoilt)


def test_undefined_loss_stops_names_the_documents_and_keeps_the_last_good_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(checkpoint_steps=2)
    spoil(monkeypatch, at=4)
    with pytest.raises(
        TrainingError, match=r"finite at step 4; found: loss nan, .* on batch 3 of Title \d+ \(t:"
    ):
        run(make_job(tmp_path / "out", recipe=recipe, steps=4))
    names = [path.name for path in find_checkpoints(tmp_path / "out" / "run" / "checkpoints")]
    assert names == ["step-00000002"]
    assert list(read_losses(tmp_path / "out")) == [1, 2, 3]
    assert is_loadable(tmp_path / "out")
    weights = load_index_model(tmp_path / "out").phrase_encoder.start.l1.weight
    assert bool(weights.isfinite().all())


def test_batch_is_named_also_if_the_model_cannot_be_written(tmp_path: Path) -> None:
    recipe = make_recipe(checkpoint_steps=1)
    rates = replace(recipe.model.rates, prefix=1e30, phrase=1e30, heads=1e30, projection=1e30)
    wild = replace(recipe, model=replace(recipe.model, rates=rates))
    told = Told()
    with pytest.raises(TrainingError, match=r"finite at step 2; found: .* on batch 1 of Title"):
        train(make_job(tmp_path / "out", recipe=wild, steps=4), progress=told, log=None)
    assert any(line.startswith("model not written: trained weights must") for line in told.lines)


def test_folder_of_another_run_or_model_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(make_job(out, steps=1))
    with pytest.raises(CheckpointError, match="free for a new run; found: step-00000001"):
        run(make_job(out, steps=1))
    recipe = make_recipe()
    other = replace(recipe, model=replace(recipe.model, head_width=64))
    with pytest.raises(
        CheckpointError, match="with head_width 64, .*; found: .* with head_width 32"
    ):
        run(make_job(out, steps=2, recipe=other, is_resumed=True))
    text = TrainingText(lambda: iter_village(20), "village-20")
    with pytest.raises(CheckpointError, match="a run on this text"):
        run(make_job(out, steps=2, text=text, is_resumed=True))
    (out / "run").rename(tmp_path / "elsewhere")
    before = (out / "config.yaml").read_bytes()
    for is_resumed, found in ((False, "a model in it;"), (True, "a model in it, and no run to")):
        with pytest.raises(CheckpointError, match=f"free for a new model; found: {found}"):
            run(make_job(out, steps=1, is_resumed=is_resumed))
    assert (out / "config.yaml").read_bytes() == before


def test_resuming_nothing_begins(tmp_path: Path) -> None:
    told = Told()
    job = make_job(tmp_path / "out", steps=1, is_resumed=True)
    assert train(job, progress=told, log=None).steps == 1
    assert "nothing to resume: training begins at the start" in told.lines


def test_model_goes_on_from_another(tmp_path: Path) -> None:
    first = run(make_job(tmp_path / "first", steps=30))
    second = run(make_job(tmp_path / "second", steps=1, source=tmp_path / "first"))
    assert is_loadable(tmp_path / "second")
    assert second.metrics["token_loss"] < read_losses(tmp_path / "first")[1]
    assert second.metrics["loss"] == pytest.approx(first.metrics["loss"], rel=0.2)


def test_model_that_goes_on_in_its_own_folder_keeps_its_bases(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(make_job(out, steps=1))
    shutil.rmtree(out / "run" / "checkpoints")
    assert run(make_job(out, steps=1, source=out, is_resumed=True)).steps == 1
    assert is_loadable(out)


def test_tokens_alone_can_be_learnt(tmp_path: Path) -> None:
    report = run(make_job(tmp_path / "out", steps=3, objective="tokens"))
    assert report.metrics["phrase_loss"] == 0
    assert report.metrics["loss"] == report.metrics["token_loss"]
    assert load_model(tmp_path / "out").fingerprint == report.fingerprint


def test_prefixes_longer_than_a_chunk_are_learnt(tmp_path: Path) -> None:
    recipe = make_recipe(context_tokens=64)
    report = run(make_job(tmp_path / "out", steps=2, recipe=recipe))
    plain = run(make_job(tmp_path / "plain", steps=2))
    assert report.num_tokens == plain.num_tokens
    assert report.metrics["loss"] != plain.metrics["loss"]
    recipe = make_recipe(context_tokens=32)
    with pytest.raises(CheckpointError, match="with context_tokens 32; found: .* 64"):
        run(make_job(tmp_path / "out", steps=3, recipe=recipe, is_resumed=True))


def make_text(*texts: str) -> TrainingText:
    documents = [Document(str(i), "", text, "", "", "") for i, text in enumerate(texts)]
    return TrainingText(lambda: documents, repr(texts))


UNLIKE = ("Bread is made from flour.", "Rain falls upon stones!", "Who sleeps there?")
LONG = {"max_pieces": 127}


@pytest.mark.parametrize(
    ("texts", "model", "loop", "message"),
    [
        (["One text. " * 9], {}, {}, "two documents or more: .*; found: 1 with words"),
        (UNLIKE, {}, {}, "occur in two documents; .*--objective tokens"),
        ([], {}, {"held_out_share": 0.98}, r"beside those held out .*; found: 1 of 24; .*0\.98"),
        ([], {}, {"context_tokens": 128}, "found: 128 positions for 161; next: lower train.prof"),
        ([], {"begin_token_id": 5000}, {}, r"begin_token_id must be below .* \(\d+\); found: 5000"),
        ([], LONG, {}, r"\(127\) .* fit into the phrase encoder; found: 128 positions"),
        ([], LONG, {"seeds_per_batch": 2}, r"fit into the retriever; found: 128 positions"),
    ],
)
def test_what_cannot_be_learnt_is_refused(
    tmp_path: Path, texts: list[str], model: dict[str, Any], loop: dict[str, Any], message: str
) -> None:
    recipe = make_recipe(**loop)
    job = make_job(
        tmp_path / "out", steps=1, recipe=replace(recipe, model=replace(recipe.model, **model))
    )
    with pytest.raises(TrainingError, match=message):
        run(replace(job, text=make_text(*texts)) if texts else job)


def test_text_without_a_repeated_phrase_teaches_tokens(tmp_path: Path) -> None:
    job = make_job(tmp_path / "out", steps=1, text=make_text(*UNLIKE), objective="tokens")
    assert run(job).steps == 1


def test_what_a_refused_run_left_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="two documents or more"):
        run(make_job(tmp_path / "out", steps=1, text=make_text("One text of a few words.")))
    found = run(make_job(tmp_path / "out", steps=1))
    wanted = run(make_job(tmp_path / "fresh" / "out", steps=1))
    assert found.fingerprint == wanted.fingerprint
    tokenizers = [tmp_path / name / "bases/prefix/tokenizer.json" for name in ("out", "fresh/out")]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()


def test_bases_of_one_name_are_told_apart(tmp_path: Path) -> None:
    source = make_tiny_model(tmp_path / "source")
    config = source / "config.yaml"
    content = config.read_text(encoding="utf-8")
    for name in ("prefix", "phrase"):
        (source / f"the-{name}").mkdir()
        (source / name).rename(source / f"the-{name}" / "model")
        content = content.replace(f"_base: {name}\n", f"_base: the-{name}/model\n")
    config.write_text(content, encoding="utf-8")
    run(make_job(tmp_path / "out", steps=1, source=source))
    assert is_loadable(tmp_path / "out")
    bases = sorted(path.name for path in (tmp_path / "out" / "bases").iterdir())
    assert bases == ["phrase", "prefix"]  # the retriever's is the phrase encoder's


def test_base_elsewhere_on_the_machine_is_named_not_copied(tmp_path: Path) -> None:
    source = make_tiny_model(tmp_path / "source")
    elsewhere = (source / "phrase").rename(tmp_path / "elsewhere")
    config = source / "config.yaml"
    content = config.read_text(encoding="utf-8")
    config.write_text(content.replace("_base: phrase\n", f"_base: {elsewhere}\n"), encoding="utf-8")
    run(make_job(tmp_path / "out", steps=1, source=source))
    assert load_config(tmp_path / "out").phrase_base == HubBase(str(elsewhere), "main")
    assert [path.name for path in (tmp_path / "out" / "bases").iterdir()] == ["prefix"]
    assert is_loadable(tmp_path / "out")


@pytest.mark.parametrize(
    "text", ["On day {} we met the old miller again.", "We met the old miller on day {}"]
)
def test_documents_shorter_than_a_chunk_are_learnt_from(tmp_path: Path, text: str) -> None:
    texts = [text.format(i) for i in range(12)]
    report = run(make_job(tmp_path / "out", steps=2, text=make_text(*texts)))
    assert report.metrics["phrase_share"] > 0
