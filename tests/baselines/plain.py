"""The phrases of a prompt by definition, and what all ablations are asked."""

import numpy as np

from cog.decoding.generator import CopyGenerator
from cog.index.tables.quantise import quantise
from cog.model.phrase_encoder import PhraseEncoder
from cog.model.words import BARRED, CAN_END, CAN_START, flag_words
from cog.records import Decoding
from tests.decoding.plain import PlainPhrase

GREEDY = Decoding("greedy", 0.95, 0, 12, 16, 0.0)


def prompt_table(
    generator: CopyGenerator, encoder: PhraseEncoder, prefix: str
) -> list[PlainPhrase]:
    """Every admissible phrase of a prompt that is one chunk."""
    words = generator.model.splitter.split(prefix)
    if not words.num_words:
        return []
    chars, flags = words.word_chars, flag_words(prefix, words.word_chars)
    spans = np.stack([chars[:-1], chars[1:]], axis=1)
    spans[:, 0] += [prefix.startswith(" ", start) for start in chars[:-1].tolist()]
    (vectors,) = encoder.encode_chunks([prefix], [spans])
    starts, ends = (
        stored.vectors.astype(np.float32) * stored.scales[:, None]
        for stored in (quantise(v, dtype="int8") for v in (vectors.start, vectors.end))
    )
    table = []
    for i in range(words.num_words):
        for j in range(i + 1, min(i + 8, words.num_words)):
            inside = flags[i : j + 1]
            if (inside & BARRED).any() or not inside[0] & CAN_START or not inside[-1] & CAN_END:
                continue
            begin = words.word_tokens[i]
            table.append(
                PlainPhrase(
                    prefix[chars[i] : chars[j + 1]],
                    words.token_ids[begin : words.word_tokens[j + 1]].tolist(),
                    (words.word_tokens[i + 1 : j + 2] - begin).tolist(),
                    ((inside & CAN_END) != 0).tolist(),
                    np.concatenate([starts[i], ends[j]]).astype(np.float64),
                )
            )
    return table
