"""Plans: in proportion to an index that was built, with vectors as the settings store them."""

from dataclasses import replace

import numpy as np
import pytest

from cog.index.plan import IndexPlan, plan_index
from cog.index.records import Manifest
from cog.model.vector_code import count_bytes, fit_code
from cog.paths import CorpusPaths
from tests.index.hash_model import PARAMS, build


@pytest.fixture
def manifest(corpus: CorpusPaths) -> Manifest:
    return build(corpus).manifest


def plan(manifest: Manifest, *, num_words: int = 24_000, **settings: object) -> IndexPlan:
    given = {
        "reference": manifest,
        "reference_words": 2400,
        "params": PARAMS,
        "top_k_chunks": 8,
        "num_workers": 1,
        "rate": 100.0,
        "price_per_hour": 3.0,
    }
    return plan_index("large", num_words=num_words, **given | settings)  # type: ignore[arg-type]


def test_everything_is_in_proportion(manifest: Manifest) -> None:
    planned = plan(manifest)
    assert planned.num_units == 10 * manifest.num_words
    assert planned.num_chunks == 10 * manifest.num_chunks
    for part in ("documents", "chunks", "words", "contexts", "word_counts"):
        assert planned.bytes_by_part[part] == 10 * manifest.sizes[part]
    assert planned.hours == pytest.approx(24_000 / 100 / 3600)
    assert planned.price == pytest.approx(3 * planned.hours)
    per_chunk = planned.bytes_by_part["words"] / planned.num_chunks
    assert planned.prompt_bytes == pytest.approx(8 * per_chunk, abs=1)


def test_workers_share_the_hours_and_not_the_price(manifest: Manifest) -> None:
    one, four = plan(manifest), plan(manifest, num_workers=4)
    assert four.hours == pytest.approx(one.hours / 4)
    assert four.price == pytest.approx(one.price)
    measured = plan(manifest, rate=None).words_per_second
    expected = manifest.seconds["words_per_second"] * 2400 / manifest.num_words
    assert measured == pytest.approx(expected)


def test_vectors_are_those_of_the_settings(manifest: Manifest) -> None:
    exact, wide = plan(manifest), plan(manifest, params=replace(PARAMS, vector_dtype="float16"))
    more = 2 * manifest.vectors.dim  # one byte more an item, of two vectors a word
    assert wide.bytes_by_part["words"] - exact.bytes_by_part["words"] == more * exact.num_units
    few = plan(manifest, params=replace(PARAMS, vector_dtype="compact"))
    saved = 2 * 12 * exact.num_chunks  # two bytes an item less, of chunks' vectors
    assert exact.bytes_by_part["chunks"] - few.bytes_by_part["chunks"] == saved
    # a code has a byte an axis at most, as int8 has, but no scale
    scales = 2 * 4 * exact.num_units
    assert exact.bytes_by_part["words"] - few.bytes_by_part["words"] == scales


@pytest.mark.parametrize("dim", [12, 75, 76, 288])
def test_compact_vectors_take_what_a_code_of_their_width_takes(dim: int) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((400, dim)).astype(np.float32)
    assert count_bytes(dim) == fit_code(vectors, vectors).num_bytes


def test_above_the_threshold_search_has_lists_and_needs_no_memory(manifest: Manifest) -> None:
    flat = plan(manifest)
    lists = plan(manifest, params=replace(PARAMS, ivf_threshold_rows=10))
    assert (flat.search, lists.search) == ("flat", "lists")
    assert flat.bytes_by_part["search"] == 0 < lists.bytes_by_part["search"]
    assert lists.reader_bytes < flat.reader_bytes
