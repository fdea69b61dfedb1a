"""Names: gathered words go in, what documents about other things may not bring comes out."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cog.index.records import GatheredChunks
from cog.model.words import BARRED, SPECIFIC, WordSplitter


@dataclass(frozen=True, slots=True)
class Names:
    """What documents that are not about the subject may not bring into a text.

    :param words_of: Words that are a name or a number, by how they are spelled.
    :param barred: Words that begin a sentence, and all of a document's first one, which says what
        the document is about.
    """

    words_of: dict[str, NDArray[np.int64]]
    barred: NDArray[np.int64]


def find_names(
    chunks: GatheredChunks,
    is_far: NDArray[np.bool_],
    *,
    run_ends: NDArray[np.int64],
    splitter: WordSplitter,
) -> Names:
    """Find the names, numbers and first sentences of documents about other things.

    Names that a near document has, too, are none. ``is_far`` marks words of documents about other
    things, ``run_ends`` is one past the last word of each word's run. *Shape:* ``(num_words,)``
    """
    is_name = (chunks.word_flags & SPECIFIC) != 0
    is_end = (chunks.word_flags & BARRED) != 0
    is_barred = np.ones(len(is_far), dtype=bool)
    is_barred[1:] = is_end[:-1]
    for begin in np.flatnonzero(chunks.word_chars[:, 0] == 0).tolist():  # of a document
        run = slice(begin, int(run_ends[begin]))
        is_barred[run] |= np.cumsum(is_end[run]) - is_end[run] == 0  # up to the first end
    hashes = chunks.word_hashes
    of_near = np.unique(hashes[is_name & ~is_far])
    guarded = np.flatnonzero(is_name & is_far & ~is_barred & ~np.isin(hashes, of_near))
    words_of: dict[str, NDArray[np.int64]] = {}
    groups = _split_by(guarded, hashes[guarded])
    firsts = chunks.word_tokens[[group[0] for group in groups]].tolist() if groups else ()
    for group, (begin, end) in zip(groups, firsts, strict=True):
        spelled = splitter.decode(chunks.token_ids[begin:end]).decode(errors="replace").strip()
        known = words_of.get(spelled)
        words_of[spelled] = group if known is None else np.concatenate([known, group])
    return Names(words_of, np.flatnonzero(is_far & is_barred))


def _split_by(values: NDArray[np.int64], keys: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
    order = np.argsort(keys, kind="stable")
    values, changes = values[order], np.flatnonzero(np.diff(keys[order])) + 1
    bounds = [0, *changes.tolist(), len(values)]
    return [values[begin:end] for begin, end in pairwise(bounds) if begin < end]
