"""Batches that are made of examples, read back token by token and word by word."""

import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cog.profiles import LoopProfile
from cog.training.batches import Batch, BatchSource, iter_batches
from cog.training.examples import ExampleStore
from cog.training.objective import count_written
from cog.training.sampler import SamplerSettings
from cog.training.segmentation.records import BatchRules
from cog.training.tensors import to_tensors
from tests.training.making import make_store
from tests.training.trained import CPU, make_trainable

LOOP = LoopProfile(min_prefix_tokens=1, context_tokens=0, inner_share=0.5, common_weight=0.5)
RULES = BatchRules(
    begin_token_id=0, min_phrase_words=2, max_phrase_words=8, loop=LOOP, inner_of_copies=True
)
BAND = 7  # phrases of 2 to 8 words


@pytest.fixture(scope="module")
def store(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> ExampleStore:
    return make_store(tiny_model, tmp_path_factory.mktemp("examples"))


def make_source(store: ExampleStore, **rules: object) -> BatchSource:
    loop = {name: rules.pop(name) for name in list(rules) if hasattr(LOOP, name)}
    return BatchSource(
        folder=store.folder,
        chunks=np.arange(store.num_chunks),
        vectors_path=None,
        sampler=SamplerSettings(num_chunks=12, num_seeds=12, max_of_document=4, seed=1),
        rules=replace(RULES, loop=replace(LOOP, **loop), **rules),  # type: ignore[arg-type]
    )


def make_batch(store: ExampleStore, **rules: object) -> Batch:
    return next(iter_batches(make_source(store, **rules), range(1), num_workers=0))


def find_chunks(store: ExampleStore, batch: Batch, *, num_begin: int = 1) -> list[int]:
    """The chunks that a batch without text before them is made of."""
    numbers = {tuple(store.get(c).token_ids): c for c in range(store.num_chunks)}
    rows = zip(batch.token_ids, batch.token_mask, strict=True)
    return [numbers[tuple(row[mask][num_begin:])] for row, mask in rows]


def find_span(batch: Batch, flat: int) -> tuple[int, int, int]:
    """Row, first word in its chunk and number of words of a span."""
    word, k = divmod(flat, BAND)
    row = int(batch.labels.word_chunks[word])
    return row, word - int(np.searchsorted(batch.labels.word_chunks, row)), k + 2


def is_equal(left: Batch, right: Batch) -> bool:
    sides = zip(flatten(left), flatten(right), strict=True)
    return all(np.array_equal(a, b) for a, b in sides)


def flatten(batch: Batch) -> tuple[np.ndarray, ...]:
    *own, labels = astuple(batch)
    return *own, *labels


def test_batches_are_whole_and_every_label_is_the_text_that_follows(store: ExampleStore) -> None:
    num_phrases = 0
    for batch in iter_batches(make_source(store), range(3), num_workers=0):
        labels = batch.labels
        assert len(batch.documents) > 1
        examples = [store.get(chunk) for chunk in find_chunks(store, batch)]
        for name in ("piece_ids", "start_pieces", "end_pieces"):
            wanted = np.concatenate([getattr(each, name) for each in examples])
            found = getattr(batch, name)
            np.testing.assert_array_equal(
                found[batch.piece_mask] if name == "piece_ids" else found, wanted
            )
        for query in np.flatnonzero(labels.is_phrase):
            num_phrases += 1
            own = examples[labels.query_chunks[query]]
            first = np.searchsorted(own.word_tokens, labels.query_positions[query])
            rest = own.text[own.word_bytes[first] :]
            a, b = labels.positive_offsets[query : query + 2]
            for flat in labels.positive_spans[a:b].tolist():
                row, word, num_words = find_span(batch, flat)
                other = examples[row]
                assert other.document != own.document
                begin, end = other.word_bytes[[word, word + num_words]]
                assert rest.startswith(other.text[begin:end])
    assert num_phrases > 30


def test_number_of_workers_does_not_change_batches(store: ExampleStore) -> None:
    source = make_source(store)
    here = list(iter_batches(source, range(4), num_workers=0))
    there = list(iter_batches(source, range(4), num_workers=2))
    assert [each.number for each in there] == [0, 1, 2, 3]
    assert all(is_equal(a, b) for a, b in zip(here, there, strict=True))
    assert not np.array_equal(here[0].token_ids, here[1].token_ids)


@pytest.mark.parametrize("begin", [0, None])
def test_prefixes_begin_with_the_text_before_the_chunk(
    store: ExampleStore, begin: int | None
) -> None:
    num_begin = 0 if begin is None else 1
    plain = make_batch(store, begin_token_id=begin)
    chunks = find_chunks(store, plain, num_begin=num_begin)
    assert len({int(store.documents[chunk]) for chunk in chunks}) < len(chunks)
    for max_tokens in (20, 1000):
        batch = make_batch(store, begin_token_id=begin, context_tokens=max_tokens)
        num_before = 0
        for place, chunk in enumerate(chunks):
            own = store.get(chunk).token_ids.tolist()
            earlier = [c for c in range(chunk) if store.documents[c] == store.documents[chunk]]
            text = [token for c in earlier for token in store.get(c).token_ids.tolist()]
            row = batch.token_ids[place][batch.token_mask[place]].tolist()
            assert row[num_begin:] == [*text[-max_tokens:], *own]
            num_before += min(len(text), max_tokens)
            is_bare = begin is None and not text
            assert batch.target_starts[place] == len(row) - len(own) + is_bare
        assert num_before > 0
        rows, columns = batch.labels.query_chunks, batch.labels.query_positions
        assert np.array_equal(batch.token_ids[rows, columns + 1], plain.labels.gold_tokens)
        same = ("token_ids", "token_mask", "target_starts")
        labels = replace(batch.labels, query_positions=plain.labels.query_positions)
        again = replace(batch, labels=labels, **{name: getattr(plain, name) for name in same})
        assert is_equal(again, plain)
        assert begin is None or batch.num_tokens == plain.num_tokens


def test_text_before_a_chunk_is_read_and_not_learnt(tiny_model: Path, store: ExampleStore) -> None:
    batch = make_batch(store, context_tokens=20)
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
    store: ExampleStore, begin: int | None, context: int, is_whole: bool
) -> None:
    rules = {"begin_token_id": begin, "min_prefix_tokens": 0}
    rules |= {"inner_share": 1.0, "inner_of_copies": False}
    plain = make_batch(store, **rules)
    batch = make_batch(store, context_tokens=context, **rules)
    chunks = find_chunks(store, plain, num_begin=0 if begin is None else 1)
    num_written = int((~batch.labels.is_phrase).sum())
    for query in np.flatnonzero(batch.labels.is_phrase):
        first_positive = batch.labels.positive_offsets[query]
        row, word, num_words = find_span(batch, int(batch.labels.positive_spans[first_positive]))
        bounds = store.get(chunks[row]).word_tokens
        num_written += int(bounds[word + num_words] - bounds[word])
    assert batch.labels.is_phrase.any()
    assert count_written(batch) == num_written
    assert (num_written == batch.num_tokens) is is_whole


def test_worker_needs_no_torch() -> None:
    code = "import sys, cog.training.batches\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
