"""Search over the whole table against coarse retrieval of all chunks, and its bounds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cog.baselines.ablations.table import BUCKET_BITS, Table, TableLimits
from cog.baselines.ablations.tally import Tally
from cog.baselines.ablations.whole_table import WholeTableGenerator
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.records import CORPUS, Decoding, Generation

PREFIXES = ("The old mill stands", "On market days", " the river", "Bread is made from", "A")
PLAIN = Decoding("nucleus", 0.95, 0, 12, 4, 0.0)
DECODINGS = {
    "nucleus": PLAIN,
    "narrow": replace(PLAIN, top_p=0.3, seed=1),
    "wide": replace(PLAIN, top_p=1.0),
    "greedy": replace(PLAIN, method="greedy"),
    "verified": replace(PLAIN, verify="absolute", verify_threshold=0.004),
    "cold": replace(PLAIN, temperature=0.6, phrase_bias=1.5),
    "limited": replace(PLAIN, max_verbatim_words=3, phrase_bias=3.0),
}
LIMITS = {
    "one block": TableLimits(),
    "blocks of 3, none kept": TableLimits(chunks_per_block=3, kept_bytes=0),
    "blocks of 1, some kept": TableLimits(chunks_per_block=1, kept_bytes=20_000),
}


def limit_table(table_limits: TableLimits) -> type[Table]:
    class Limited(Table):
        limits = table_limits

    return Limited


def write(generator: CopyGenerator, decoding: Decoding) -> list[Generation]:
    return generator.generate([Request(prefix, decoding) for prefix in PREFIXES])


CASES = [(name, "one block") for name in DECODINGS]
CASES += [(name, limits) for name in ("nucleus", "greedy") for limits in list(LIMITS)[1:]]


@pytest.mark.parametrize(("name", "room"), CASES)
def test_the_whole_table_is_coarse_search_over_all_chunks(
    cog: CopyGenerator, name: str, room: str
) -> None:
    decoding = DECODINGS[name]

    class System(WholeTableGenerator):
        pool_source = limit_table(LIMITS[room])

    system = System(cog.model, cog.index)
    every = write(cog, replace(decoding, top_k_documents=cog.index.num_chunks))
    for found, wanted in zip(write(system, decoding), every, strict=True):
        assert found.text == wanted.text
        assert [s.origin for s in found.segments] == [s.origin for s in wanted.segments]
        for one, other in zip(found.segments, wanted.segments, strict=True):
            assert one.probability == pytest.approx(other.probability, rel=1e-3)
            assert (one.document_id, one.char_start) == (other.document_id, other.char_start)
    assert any(s.origin == CORPUS for each in every for s in each.segments)


def test_chunks_that_may_not_be_copied_are_not_in_the_table(cog: CopyGenerator) -> None:
    documents = cog.index.chunk_documents()
    allowed = documents % 2 == 0
    system = WholeTableGenerator(cog.model, cog.index, allowed_chunks=allowed)
    known = cog.index.get_documents(documents[allowed].tolist())
    names = {document.document_id for document in known.values()}
    for generation in write(system, replace(PLAIN, phrase_bias=5.0)):
        assert {s.document_id for s in generation.segments if s.origin == CORPUS} <= names


def test_memory_holds_what_fits_and_reads_the_rest_anew(cog: CopyGenerator) -> None:
    limits = TableLimits(chunks_per_block=2, kept_bytes=0)
    table = limit_table(limits)(cog.model, cog.index, allowed_chunks=None)
    assert table.get_block(0) is not table.get_block(0)
    sizes = [block.num_bytes for _, block in table.iter_blocks()]
    limits = replace(limits, kept_bytes=sizes[0] + sizes[1])
    table = limit_table(limits)(cog.model, cog.index, allowed_chunks=None)
    kept = [table.get_block(number) is table.get_block(number) for number in range(len(sizes))]
    assert kept[:2] == [True, True]
    assert sum(size for size, is_kept in zip(sizes, kept, strict=True) if is_kept) <= sum(sizes[:2])


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_no_member_of_the_nucleus_is_below_the_floor(top_p: float, spread: float) -> None:
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(0, spread, 50).astype(np.float32))
    scores = torch.from_numpy(random.normal(0, spread, 20_000).astype(np.float32))
    texts = random.integers(0, 4_000, 20_000)  # each occurs about five times
    hashes = random.integers(0, 1 << BUCKET_BITS, 4_000)
    tally = Tally(logits)
    for part in range(0, 20_000, 6_000):
        block = slice(part, part + 6_000)
        tally.add(scores[block], torch.from_numpy(hashes[texts[block]]))
    weights = np.concatenate([np.exp(logits.double().numpy()), np.zeros(4_000)])
    np.add.at(weights, 50 + texts, np.exp(scores.double().numpy()))
    order = np.argsort(-weights)
    size = int((weights[order].cumsum() < top_p * weights.sum()).sum()) + 1
    nucleus = order[:size]
    decoding = replace(PLAIN, top_p=top_p)
    hot = tally.find_hot(decoding).numpy()
    chosen = nucleus[nucleus >= 50] - 50
    assert hot[hashes[chosen]].all()
    floor = tally.get_floor(decoding) * np.exp(tally.highest)
    assert floor <= weights[nucleus].min()
    assert floor > 0.99 * (1.0 - top_p) * weights.sum() / 20_050
    assert tally.total * np.exp(tally.highest) == pytest.approx(weights.sum(), rel=1e-4)
    if spread > 1.0:
        assert hot[hashes].mean() < 0.7  # and most of what cannot be chosen is not kept
    best = texts[int(np.argmax(weights[50:][texts]))]
    assert tally.find_hot(replace(PLAIN, method="greedy"))[hashes[best]]
