"""What an index will cost, before it is built: a number of words and measured rates go in.

Everything is in proportion to an index that was built: units and chunks a word, bytes a unit by
part, words a second. Only what is stored as vectors follows from the settings.
"""

from dataclasses import dataclass

from cog.index.records import FLAT, LISTS, Manifest
from cog.index.tables.lists import count_lists
from cog.index.tables.quantise import get_layout, get_vector_type, make_layout
from cog.params import IndexParams

FLOAT_BYTES = 4
PLANNED_PROBES = 8  # lists of a search, as in the benchmark of five million chunks


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What building and reading an index will take."""

    corpus: str
    num_words: int  # white-space separated
    num_units: int  # words that may be copied
    num_chunks: int
    bytes_by_part: dict[str, int]
    words_per_second: float  # of all workers
    hours: float
    price: float  # of all workers, in the unit of the price of an hour
    search: str  # flat or lists
    reader_bytes: int  # memory of an open index
    prompt_bytes: int  # read for a prompt
    measured_on: str  # the corpus whose index gave the densities

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""
        return sum(self.bytes_by_part.values())


def plan_index(
    corpus_id: str,
    *,
    num_words: int,
    reference: Manifest,
    reference_words: int,
    params: IndexParams,
    top_k_chunks: int,
    num_workers: int,
    rate: float | None,
    price_per_hour: float,
) -> IndexPlan:
    """Plan an index in proportion to ``reference``, which was built from ``reference_words``.

    Both numbers of words, and ``rate``, the words a second of one worker, are of white-space
    separated words; None for the rate that was measured. ``price_per_hour`` is that of one worker.
    """
    scale = num_words / max(1, reference_words)
    num_units, num_chunks = round(reference.num_words * scale), round(reference.num_chunks * scale)
    dtype, stored = params.vector_dtype, reference.vectors
    before = get_layout(stored).bytes_per_word
    wanted = before if dtype == stored.dtype else make_layout(dtype, stored.dim).bytes_per_word
    parts = {
        name: reference.sizes[name] * scale
        for name in ("documents", "chunks", "words", "contexts", "word_counts")
    }
    parts["words"] += (wanted - before) * num_units
    item_bytes = [get_vector_type(each).itemsize for each in (dtype, stored.dtype)]
    parts["chunks"] += (item_bytes[0] - item_bytes[1]) * num_chunks * reference.search.dim
    parts["chunks"] -= reference.sizes.get("search", 0) * scale
    is_flat = num_chunks <= params.ivf_threshold_rows
    # in memory where search is flat, else once more on disk, of which a prompt reads a few lists
    vectors = num_chunks * reference.search.dim * (FLOAT_BYTES if is_flat else item_bytes[0])
    parts["search"] = 0 if is_flat else vectors
    read = min(top_k_chunks, num_chunks) * parts["words"] / max(1, num_chunks)
    read += PLANNED_PROBES * parts["search"] / count_lists(num_chunks)
    measured = reference.seconds["words_per_second"] * reference_words / reference.num_words
    words_per_second = (rate or measured) * num_workers
    hours = num_words / words_per_second / 3600
    sizes = {name: round(size) for name, size in parts.items()}
    return IndexPlan(
        corpus=corpus_id,
        num_words=num_words,
        num_units=num_units,
        num_chunks=num_chunks,
        bytes_by_part=sizes,
        words_per_second=words_per_second,
        hours=hours,
        price=hours * num_workers * price_per_hour,
        search=FLAT if is_flat else LISTS,
        reader_bytes=sizes["word_counts"] + (vectors if is_flat else 0),
        prompt_bytes=round(read),
        measured_on=reference.corpus,
    )
