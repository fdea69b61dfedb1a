import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cog.training.batch import Batch, check_batch
from cog.training.batches import BatchRules, BatchSource, PhraseLengths, iter_batches
from cog.training.examples import ExampleStore
from cog.training.sampler import SamplerSettings
from cog.training.tensors import to_tensors
from cog.training.validation import count_written
from tests.training.making import make_store
from tests.training.trained import CPU, make_trainable


def make_source(
    store: ExampleStore, *, begin: int | None = 0, size: int = 12, context: int = 0
) -> BatchSource:
    return BatchSource(
        folder=store.folder,
        chunks=np.arange(store.num_chunks),
        vectors_path=None,
        sampler=SamplerSettings(num_chunks=size, num_seeds=size, max_of_document=4, seed=1),
        rules=BatchRules(begin, PhraseLengths(2, 8), 1, context, 0.5, True, 0.5),
    )


def is_equal(left: Batch, right: Batch) -> bool:
    return all(
        np.array_equal(getattr(left, field.name), getattr(right, field.name))
        for field in fields(Batch)
    )


def test_batches_are_whole_and_every_label_is_the_text_that_follows(
    tiny_model: Path, tmp_path: Path
) -> None:
    store = make_store(tiny_model, tmp_path)
    source = make_source(store)
    num_phrases = 0
    for made in iter_batches(source, range(3), num_workers=0):
        batch = made.batch
        check_batch(batch)
        assert len(made.documents) > 1
        firsts = np.searchsorted(batch.word_chunks, np.arange(batch.num_chunks))
        words = [
            tuple(row[mask][1:])
            for row, mask in zip(batch.token_ids, batch.token_mask, strict=True)
        ]
        by_tokens = {tuple(store.get(c).words.token_ids): c for c in range(store.num_chunks)}
        for query in np.flatnonzero(batch.is_phrase):
            num_phrases += 1
            row, position = batch.query_chunks[query], batch.query_positions[query]
            own = store.get(by_tokens[words[row]]).words
            rest = own.text[own.word_bytes[np.searchsorted(own.word_tokens, position)] :]
            spans = batch.positive_spans[
                batch.positive_offsets[query] : batch.positive_offsets[query + 1]
            ]
            for span in spans:
                word, k = divmod(int(span), 7)
                chunk = batch.word_chunks[word]
                other = store.get(by_tokens[words[chunk]]).words
                assert other.document != own.document
                assert rest.startswith(other.phrase_text(word - firsts[chunk], k + 2))
    assert num_phrases > 30


def test_number_of_workers_does_not_change_batches(tiny_model: Path, tmp_path: Path) -> None:
    source = make_source(make_store(tiny_model, tmp_path))
    here = list(iter_batches(source, range(4), num_workers=0))
    there = list(iter_batches(source, range(4), num_workers=2))
    assert [each.number for each in there] == [0, 1, 2, 3]
    assert all(is_equal(a.batch, b.batch) for a, b in zip(here, there, strict=True))
    assert not is_equal(here[0].batch, here[1].batch)


def test_without_a_begin_token_the_first_column_is_text(tiny_model: Path, tmp_path: Path) -> None:
    store = make_store(tiny_model, tmp_path)
    made = next(iter_batches(make_source(store, begin=None), range(1), num_workers=0))
    check_batch(made.batch)
    lengths = {len(store.get(chunk).words.token_ids) for chunk in range(store.num_chunks)}
    assert set(made.batch.token_mask.sum(1).tolist()) <= lengths


@pytest.mark.parametrize("begin", [0, None])
def test_prefixes_begin_with_the_text_before_the_chunk(
    tiny_model: Path, tmp_path: Path, begin: int | None
) -> None:
    store = make_store(tiny_model, tmp_path)
    num_begin = 0 if begin is None else 1
    made = [
        next(iter_batches(make_source(store, begin=begin, context=n), range(1), num_workers=0))
        for n in (0, 20, 1000)
    ]
    plain = made[0].batch
    by_tokens = {tuple(store.get(c).words.token_ids): c for c in range(store.num_chunks)}
    rows = [
        tuple(row[mask][num_begin:])
        for row, mask in zip(plain.token_ids, plain.token_mask, strict=True)
    ]
    chunks = [by_tokens[row] for row in rows]
    assert len({int(store.documents[chunk]) for chunk in chunks}) < len(chunks)
    for max_tokens, numbered in ((20, made[1]), (1000, made[2])):
        batch = numbered.batch
        check_batch(batch)
        num_before = 0
        for place, chunk in enumerate(chunks):
            earlier = [c for c in range(chunk) if store.documents[c] == store.documents[chunk]]
            text = [token for c in earlier for token in store.get(c).words.token_ids.tolist()]
            row = batch.token_ids[place][batch.token_mask[place]].tolist()
            wanted = [*text[-max_tokens:], *rows[place]]
            assert row[num_begin:] == wanted
            num_before += min(len(text), max_tokens)
            is_bare = begin is None and not text
            assert batch.target_starts[place] == len(row) - len(rows[place]) + is_bare
        assert num_before > 0
        at = (batch.query_chunks, batch.query_positions)
        assert np.array_equal(batch.token_ids[at[0], at[1] + 1], plain.gold_tokens)
        unchanged = {f.name for f in fields(Batch)} - {
            *("token_ids", "token_mask", "target_starts", "query_positions")
        }
        assert all(np.array_equal(getattr(batch, n), getattr(plain, n)) for n in unchanged)
        assert begin is None or batch.num_tokens == plain.num_tokens


def test_text_before_a_chunk_is_read_and_not_learnt(tiny_model: Path, tmp_path: Path) -> None:
    source = make_source(make_store(tiny_model, tmp_path), context=20)
    batch = next(iter_batches(source, range(1), num_workers=0)).batch
    model = make_trainable(tiny_model, prefix_lora_rank=2).eval()
    total = 0.0
    with torch.no_grad():
        for row, mask, start in zip(
            batch.token_ids, batch.token_mask, batch.target_starts, strict=True
        ):
            ids = torch.from_numpy(row[mask])
            shares = model.lm(input_ids=ids[None]).logits[0].log_softmax(1)
            total -= float(shares[torch.arange(start - 1, len(ids) - 1), ids[start:]].sum())
        found = float(model(to_tensors(batch, model.losses, CPU)).token)
    assert found == pytest.approx(total / batch.num_tokens, rel=1e-5)


@pytest.mark.parametrize(
    ("begin", "context", "is_whole"),
    [(0, 0, True), (0, 20, True), (None, 0, True), (None, 20, False)],
)
def test_tokens_that_choices_write_are_counted(
    tiny_model: Path, tmp_path: Path, begin: int | None, context: int, is_whole: bool
) -> None:
    store = make_store(tiny_model, tmp_path)
    batches = []
    for max_tokens in (0, context):
        source = make_source(store, begin=begin, context=max_tokens)
        rules = replace(source.rules, min_prefix_tokens=0, inner_share=1.0, inner_of_copies=False)
        made = next(iter_batches(replace(source, rules=rules), range(1), num_workers=0))
        batches.append(made.batch)
    plain, batch = batches
    by_tokens = {tuple(store.get(c).words.token_ids): c for c in range(store.num_chunks)}
    num_begin = 0 if begin is None else 1
    rows = [
        tuple(row[mask][num_begin:])
        for row, mask in zip(plain.token_ids, plain.token_mask, strict=True)
    ]
    firsts = np.searchsorted(batch.word_chunks, np.arange(batch.num_chunks))
    num_written = 0
    for query in range(batch.num_queries):
        if not batch.is_phrase[query]:
            num_written += 1
            continue
        word, k = divmod(int(batch.positive_spans[batch.positive_offsets[query]]), 7)
        chunk = batch.word_chunks[word]
        bounds = store.get(by_tokens[rows[chunk]]).words.word_tokens
        first = word - firsts[chunk]
        num_written += int(bounds[first + k + 2] - bounds[first])
    assert batch.is_phrase.any()
    assert count_written(batch) == num_written
    assert (num_written == batch.num_tokens) is is_whole


def test_worker_needs_no_torch() -> None:
    code = "import sys, cog.training.batches\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
