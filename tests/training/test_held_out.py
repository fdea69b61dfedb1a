"""What validation says of a model is what decoding makes of the same text with its folder."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cog.decoding.candidates import find_phrases
from cog.decoding.distribution import next_choice
from cog.index.records import GatheredChunks
from cog.model.load import CogModel, IndexModel, load_index_model, load_model
from cog.paths import get_cache_folder
from cog.progress import SilentProgress
from cog.training.batches import Batch, iter_batches
from cog.training.building import TrainingText
from cog.training.examples import Example, ExampleStore
from cog.training.initial_model import find_bases
from cog.training.job import TrainJob, train
from cog.training.preparing import prepare_data
from tests.model_fixtures import make_tiny_model
from tests.training.making import iter_village, make_job, make_recipe

CPU = torch.device("cpu")
TEXT = TrainingText(lambda: iter_village(24, num_sentences=1), "village-24-1")  # a chunk each


def load_validation(job: TrainJob) -> tuple[ExampleStore, list[Batch]]:
    """The batches that a run measures its model on, made again."""
    bases = find_bases(
        job.recipe, job.source, out=job.out, text=job.text, seed=job.seed, is_new=False
    )
    data = prepare_data(
        job.text,
        bases,
        job.recipe.loop,
        folder=get_cache_folder() / "examples",
        device="cpu",
        num_workers=0,
        seed=job.seed,
        progress=SilentProgress(),
    )
    assert data.held_out is not None
    return data.store, list(iter_batches(data.held_out, [0], num_workers=0))


def gather(model: IndexModel, examples: list[Example]) -> GatheredChunks:
    """Chunks as an index gives them, vectors as the loaded phrase encoder makes them."""
    texts = [each.text.decode() for each in examples]
    bounds = [each.word_bytes for each in examples]
    spans = []
    for text, ends in zip(texts, bounds, strict=True):
        assert text.isascii()
        words = [text[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
        skipped = np.array([len(word) - len(word.lstrip(" ")) for word in words])
        spans.append(np.stack([ends[:-1] + skipped, ends[1:]], axis=1).astype(np.int32))
    vectors = model.phrase_encoder.encode_chunks(texts, spans)
    lengths = [each.num_words for each in examples]
    num_words = sum(lengths)
    empty = np.zeros((num_words, 2), dtype=np.int64)
    return GatheredChunks(
        chunk_ids=np.arange(len(examples)),
        document_ordinals=np.arange(len(examples)),
        word_offsets=np.concatenate([[0], np.cumsum(lengths)]),
        start_vectors=np.concatenate([each.start for each in vectors]),
        end_vectors=np.concatenate([each.end for each in vectors]),
        start_scales=np.ones(num_words, dtype=np.float32),
        end_scales=np.ones(num_words, dtype=np.float32),
        word_flags=np.concatenate([each.word_flags for each in examples]),
        word_hashes=np.concatenate([each.word_hashes for each in examples]),
        word_chars=empty.astype(np.int32),
        word_tokens=empty,
        token_ids=np.zeros(0, dtype=np.int32),
    )


@torch.no_grad()
def measure_loaded(
    model: CogModel, index: IndexModel, store: ExampleStore, batch: Batch
) -> dict[str, float]:
    """The figures of validation, from the loaded folder and the functions of decoding."""
    config = model.config
    by_tokens = {tuple(e.token_ids): e for e in map(store.get, range(store.num_chunks))}
    rows = [batch.token_ids[i][batch.token_mask[i]][1:] for i in range(batch.num_chunks)]
    examples = [by_tokens[tuple(row)] for row in rows]
    encoder, token_sum, segment_sum = model.prefix_encoder, 0.0, 0.0
    for chunk, row in enumerate(rows):
        states = encoder.append(
            encoder.new_cache(batch=1, capacity=64), [[config.begin_token_id, *row.tolist()]]
        )
        logits = encoder.token_logits(states)
        shares = logits[:-1].log_softmax(1)
        token_sum -= float(shares[torch.arange(len(row)), torch.from_numpy(row)].sum())
        others = gather(index, examples[:chunk] + examples[chunk + 1 :])
        phrases = find_phrases(
            others, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )
        begins, ends = phrases.begin_words.numpy(), phrases.end_words.numpy()
        start, end = encoder.phrase_queries(states)
        for query in np.flatnonzero(batch.labels.query_chunks == chunk):
            at = int(batch.labels.query_positions[query])
            scores = phrases.score(
                torch.from_numpy(others.start_vectors[begins]) @ start[at],
                torch.from_numpy(others.end_vectors[ends]) @ end[at],
            )
            choice = next_choice(logits[at], scores, phrases)
            label = int(batch.labels.gold_tokens[query])
            if batch.labels.is_phrase[query]:
                span = int(batch.labels.positive_spans[batch.labels.positive_offsets[query]])
                width = batch.labels.span_mask.shape[1]
                label = len(logits[at]) + find_text(phrases, *divmod(span, width), batch, chunk)
            segment_sum += np.log(choice.probability(label))
    num_tokens = sum(len(row) for row in rows)
    return {
        "validation/token_loss": token_sum / num_tokens,
        "validation/segment_log_probability": segment_sum / num_tokens,
    }


def find_text(phrases, word: int, k: int, batch, chunk: int) -> int:  # noqa: ANN001
    """Number of the text of a span, among phrases of all chunks but one."""
    first = int((batch.labels.word_chunks[:word] != chunk).sum())
    spans = [phrases.span(phrase) for phrase in range(len(phrases))]
    phrase = spans.index((first, first + k + 1))
    texts = range(phrases.num_texts)
    return next(text for text in texts if phrase in phrases.occurrences(text))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_model_that_training_goes_on_from_is_measured_as_its_folder_is(
    tmp_path: Path, architecture: str
) -> None:
    source = make_tiny_model(tmp_path / "source", architecture=architecture)
    recipe = make_recipe(held_out_share=0.4, checkpoint_steps=1)
    job = make_job(tmp_path / "out", recipe=recipe, source=source, text=TEXT, steps=1)
    report = train(job, progress=SilentProgress(), log=None)
    store, (batch,) = load_validation(job)
    assert batch.labels.is_phrase.any()
    wanted = measure_loaded(load_model(source), load_index_model(source), store, batch)
    found = report.validation_before
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
    name = "validation/segment_log_probability"
    assert report.validation[name] != pytest.approx(wanted[name], rel=1e-3)
    lines = (job.out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {"step": 0, **found}
    card = (job.out / "README.md").read_text(encoding="utf-8")
    figure = found[name]
    assert f"| validation/segment_log_probability at step 0 | {figure:.4f} |" in card
