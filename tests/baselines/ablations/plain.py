"""Ablations by definition: a materialised phrase table, no cache, one loop."""

import math
import re
from collections.abc import Callable

import numpy as np

from cog.decoding.candidates import list_phrases
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.index.quantise import dequantise, quantise
from cog.model.phrase_encoder import PhraseEncoder
from cog.model.words import BARRED, CAN_END, CAN_START, flag_words
from cog.records import Decoding

Plain = tuple[str, list[int], np.ndarray]  # text, tokens, vector
MARGIN = 1.001  # best over second best: what is nearer may fall otherwise on another processor
GREEDY = Decoding("greedy", 0.95, 0, 12, 16, 0.0)


def index_table(generator: CopyGenerator, prefix: str, *, top_k: int) -> list[Plain]:
    """Every admissible phrase of the retrieved chunks."""
    decoding = Decoding("greedy", 0.95, 0, 12, top_k, 0.0)
    (ids,) = generator.pools.search([(prefix, decoding.top_k_documents)])
    chunks = generator.index.gather_chunks(ids)
    documents = generator.index.get_documents(chunks.document_ordinals.tolist())
    listed = list_phrases(chunks, min_words=2, max_words=8)
    table = []
    for first, last in zip(listed.first.tolist(), listed.last.tolist(), strict=True):
        k = int(np.searchsorted(chunks.word_offsets, first, side="right")) - 1
        text = documents[int(chunks.document_ordinals[k])].text
        vector = np.concatenate(
            [
                chunks.start_vectors[first].astype(np.float64) * chunks.start_scales[first],
                chunks.end_vectors[last].astype(np.float64) * chunks.end_scales[last],
            ]
        )
        tokens = chunks.token_ids[chunks.word_tokens[first, 0] : chunks.word_tokens[last, 1]]
        written = text[chunks.word_chars[first, 0] : chunks.word_chars[last, 1]]
        table.append((written, tokens.tolist(), vector))
    return table


def prompt_table(generator: CopyGenerator, encoder: PhraseEncoder, prefix: str) -> list[Plain]:
    """Every admissible phrase of a prompt that is one chunk."""
    words = generator.model.splitter.split(prefix)
    if not words.num_words:
        return []
    chars, flags = words.word_chars, flag_words(prefix, words.word_chars)
    spans = np.stack([chars[:-1], chars[1:]], axis=1)
    spans[:, 0] += [prefix.startswith(" ", start) for start in chars[:-1].tolist()]
    (vectors,) = encoder.encode_chunks([prefix], [spans])
    starts, ends = (dequantise(quantise(v, dtype="int8")) for v in (vectors.start, vectors.end))
    table = []
    for i in range(words.num_words):
        for j in range(i + 1, min(i + 8, words.num_words)):
            inside = flags[i : j + 1]
            if (inside & BARRED).any() or not inside[0] & CAN_START or not inside[-1] & CAN_END:
                continue
            tokens = words.token_ids[words.word_tokens[i] : words.word_tokens[j + 1]].tolist()
            vector = np.concatenate([starts[i], ends[j]]).astype(np.float64)
            table.append((prefix[chars[i] : chars[j + 1]], tokens, vector))
    return table


def plain_greedy(
    generator: CopyGenerator,
    table: list[Plain],
    prefix: str,
    *,
    key_of: Callable[[int, str], object],
    has_vocabulary: Callable[[int], bool],
) -> str:
    """Write greedily by definition.

    :param generator: Model and index.
    :param table: The candidate phrases.
    :param prefix: The prefix.
    :param key_of: What counts as one choice, by number and text of a phrase.
    :param has_vocabulary: Whether the vocabulary may be chosen from, by number of phrases that may.
    :returns: The text.
    """
    model, encoder = generator.model, generator.model.prefix_encoder
    ids = generator.prefix_ids(Request(prefix, GREEDY))
    length, num_tokens = len(ids), GREEDY.max_new_tokens
    while len(ids) < length + num_tokens:
        state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
        logits = encoder.token_logits(state)[0].double()
        logits[model.splitter.special_token_ids] = -math.inf
        query = np.concatenate([q[0].double().numpy() for q in encoder.phrase_queries(state)])
        written = prefix.encode() + model.splitter.decode(np.array(ids[length:], dtype=np.int32))
        is_open = not re.search(r"[\w.,;:!?)\]}%]$", written.decode(errors="replace"))
        weights: dict[object, float] = {}
        tokens: dict[object, list[int]] = {}
        for number, (text, phrase_ids, vector) in enumerate(table):
            if is_open or text[0] == " ":
                key = key_of(number, text)
                weights[key] = weights.get(key, 0.0) + math.exp(float(query @ vector))
                tokens[key] = phrase_ids
        if has_vocabulary(len(weights)):
            for token, logit in enumerate(logits.tolist()):
                weights[("token", token)] = math.exp(logit)
                tokens[("token", token)] = [token]
        best = max(weights, key=lambda key: weights[key])
        others = [weights[key] for key, spelled in tokens.items() if spelled != tokens[best]]
        assert weights[best] > MARGIN * max(others), f"{prefix!r} must have clear choices"
        ids = [*ids, *tokens[best]]
    spelled = np.array(ids[length : length + num_tokens])
    return model.splitter.decode(spelled).decode(errors="replace")
