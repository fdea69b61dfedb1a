"""Limit of verbatim runs: what was written goes in, phrases that would make a run too long go out.

A run is what the end of what was written and one place of the pool have in common, word by word,
however it was written; the prefix does not count. (This is not in the paper.)
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import HASH_BASE
from cog.decoding.pool import Pool


def count_run_words(
    pool: Pool, token_ids: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the words that the end of what was written shares with what stands before a word.

    Gives words before which a whole word agrees or more, and how many words do.
    """
    begins = pool.begins
    agreement = pool.find_agreement(token_ids)
    agreement = agreement.select(begins[agreement.words] == agreement.positions)
    run_begins = agreement.positions - agreement.num_tokens
    num_words = agreement.words - np.searchsorted(begins, run_begins, side="left")
    is_run = num_words > 0
    return agreement.words[is_run], num_words[is_run]


def count_room(pool: Pool, word: int, *, token_ids: Sequence[int], max_words: int) -> int:
    """Count the words that may be copied from a word on before a run is too long."""
    hashes = pool.chunks.word_hashes
    words, num_words = count_run_words(pool, token_ids)
    for count in range(min(max_words, pool.num_words - word)):
        is_same = words + count < pool.run_ends[words]
        words, num_words = words[is_same], num_words[is_same]
        is_same = hashes[words + count] == hashes[word + count]
        words, num_words = words[is_same], num_words[is_same]
        if (num_words + count >= max_words).any():
            return count
    return max_words


def limit_runs(pool: Pool, scores: Tensor, *, token_ids: Sequence[int], max_words: int) -> Tensor:
    """Give minus infinity to phrases that would make too long a run, wherever it stands."""
    phrases = pool.phrases
    num_left = np.full(pool.num_words, max_words, dtype=np.int64)
    words, num_words = count_run_words(pool, token_ids)
    begins = phrases.begin_words.cpu().numpy()
    for count in np.unique(num_words).tolist():
        room = max(0, max_words - count)
        twins = _find_twins(pool, words[num_words == count], begins, num_words=room + 1)
        num_left[twins] = np.minimum(num_left[twins], room)
    room_ends = torch.from_numpy(num_left[begins] + begins).to(scores.device)
    is_too_long = phrases.end_words.index_select(0, phrases.last) >= room_ends.index_select(
        0, phrases.first
    )
    return scores.masked_fill_(is_too_long, -torch.inf)


def _find_twins(
    pool: Pool, words: NDArray[np.int64], begins: NDArray[np.int64], *, num_words: int
) -> NDArray[np.int64]:
    # those of some words from which on some words are the same as from one of others on
    hashes = pool.chunks.word_hashes
    words = words[words + num_words <= pool.run_ends[words]]
    begins = begins[begins + num_words <= pool.run_ends[begins]]
    keys = [np.zeros(len(each), dtype=np.uint64) for each in (words, begins)]
    for count in range(num_words):
        if not (len(words) and len(begins)):
            return begins[:0]
        keys = [
            key * HASH_BASE + (hashes[each + count] ^ hashes[each + count] >> np.uint64(31))
            for key, each in zip(keys, (words, begins), strict=True)
        ]
        is_alive = np.isin(keys[1], keys[0])
        begins, keys[1] = begins[is_alive], keys[1][is_alive]
    return begins
