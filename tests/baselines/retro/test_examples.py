"""Examples: neighbours are of other documents, found once; a pass takes every window once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cog.baselines.retro.batches import RetroBatches
from cog.baselines.retro.config import make_config
from cog.baselines.retro.examples import RetroExamples, load_examples
from cog.baselines.retro.neighbours import NeighbourSource
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel
from cog.params import RetroParams
from cog.progress import SilentProgress

SIZE = 8  # tokens of a chunk in the tiny project


def test_windows_without_neighbours_are_not_learnt_from(examples: RetroExamples) -> None:
    every = examples.list_learnable()
    assert sorted([*every, *examples.held_out]) == list(range(len(examples.documents)))
    neighbours = examples.neighbours.copy()
    first, last = examples.chunk_offsets[every[1] : every[1] + 2]
    neighbours[first:last] = -1
    neighbours[examples.chunk_offsets[every[2]]] = -1  # one of its chunks only
    poorer = replace(examples, neighbours=neighbours)
    assert poorer.list_learnable().tolist() == [every[0], *every[2:]]


def test_examples_leave_out_the_own_document_and_what_is_held_out(
    examples: RetroExamples, village_index: PhraseIndex
) -> None:
    owners = village_index.chunk_documents()
    held_out = examples.documents[examples.held_out]
    assert len(held_out) > 0
    for number in range(len(examples.documents)):
        found = examples.get_neighbours(number)
        documents = owners[found[found >= 0]]
        assert len(found) == (len(examples.get_window(number)) - 1) // SIZE
        assert examples.documents[number] not in documents
        assert not np.isin(documents, held_out).any()


def test_examples_are_found_once(
    examples: RetroExamples,
    tiny_cog_model_alone: CogModel,
    village_index: PhraseIndex,
    settings: RetroParams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_words: object, **_named: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(NeighbourSource, "find", refuse)
    config = make_config(tiny_cog_model_alone, settings)
    named: dict[str, Any] = {"config": config, "progress": SilentProgress()}
    again = load_examples(village_index, tiny_cog_model_alone, settings=settings, **named)
    assert again.folder == examples.folder
    with pytest.raises(AssertionError, match="searched again"):
        load_examples(
            village_index, tiny_cog_model_alone, settings=replace(settings, seed=1), **named
        )


def test_a_pass_over_the_batches_takes_every_window_once(
    examples: RetroExamples, settings: RetroParams
) -> None:
    windows = np.arange(len(examples.documents))
    batches = RetroBatches(examples, windows, replace(settings, windows_per_batch=1))
    pooled = batches._num_pooled
    assert pooled > 1
    seen = [batches.make(number) for number in range(len(windows) // pooled * pooled)]
    taken = [each.read_ids[0].tolist() + each.learnt_ids[0].tolist() for each in seen]
    assert len({tuple(ids) for ids in taken}) == len(taken)
    again = batches.make(2)
    assert again.learnt_ids.tolist() == seen[2].learnt_ids.tolist()
