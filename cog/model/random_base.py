"""Small base models made on the spot: texts and sizes go in, an untrained base folder comes out."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from cog.atomic import share
from cog.profiles import CAUSAL, RandomBase

BEGIN = "<|begin|>"
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def make_random_base(base: RandomBase, folder: Path, *, texts: Iterable[str], seed: int) -> None:
    """Write a base folder: config, random weights by a seed, and a tokenizer learnt from texts."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    is_causal = base.architecture in CAUSAL
    learn = learn_byte_tokenizer if is_causal else learn_piece_tokenizer
    tokenizer = learn(texts, vocab_size=base.vocab_size)
    tokenizer.save(str(folder / "tokenizer.json"))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        _build(base, tokenizer.get_vocab_size()).save_pretrained(folder)
    share(folder)


def _build(base: RandomBase, vocab_size: int) -> Any:  # noqa: ANN401
    from transformers import (
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    if base.architecture == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocab_size,
                n_positions=base.max_positions,
                n_embd=base.width,
                n_layer=base.num_layers,
                n_head=base.num_heads,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": base.width,
        "num_hidden_layers": base.num_layers,
        "num_attention_heads": base.num_heads,
        "intermediate_size": 4 * base.width,
        "max_position_embeddings": base.max_positions,
    }
    if base.architecture == "bert":
        return BertModel(BertConfig(**sizes), add_pooling_layer=False)
    return LlamaForCausalLM(
        LlamaConfig(**sizes, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)
    )


def learn_byte_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Learn a byte-level vocabulary by merging the most frequent pairs; token 0 begins a prefix.

    It never has fewer tokens than the 257 of bytes and begin.
    """
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(text))
    merges = _learn_merges(words, num_merges=max(0, vocab_size - 257))
    tokens = [BEGIN, *sorted(splitter.alphabet()), *(a + b for a, b in merges)]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BEGIN])
    return tokenizer


def learn_piece_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Make an uncased WordPiece vocabulary of all characters, and the most frequent words."""
    normaliser = normalizers.BertNormalizer(lowercase=True)
    words: Counter[str] = Counter()
    for text in texts:
        words.update(re.findall(r"\w+|[^\w\s]", normaliser.normalize_str(text)))
    letters = sorted({letter for word in words for letter in word})
    frequent = sorted(words, key=lambda word: (-words[word], word))
    pieces = [*SPECIAL_PIECES, *letters, *(f"##{letter}" for letter in letters)]
    tokens = list(dict.fromkeys(pieces))
    room = max(0, vocab_size - len(tokens))
    tokens += [word for word in frequent if len(word) > 1][:room]
    tokenizer = Tokenizer(
        models.WordPiece(vocab={token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normaliser
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def _learn_merges(words: Counter[str], *, num_merges: int) -> list[tuple[str, str]]:
    # the library's trainer breaks ties by the order of a hash table, which changes from run to run
    spelled = {word: list(word) for word in words}
    pairs: Counter[tuple[str, str]] = Counter()
    holders: dict[tuple[str, str], set[str]] = {}
    for word, parts in spelled.items():
        _count_pairs(word, parts, words[word], pairs, holders)
    merges: list[tuple[str, str]] = []
    while len(merges) < num_merges and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] <= 0:
            break
        merges.append(best)
        for word in sorted(holders[best]):
            _count_pairs(word, spelled[word], -words[word], pairs, holders)
            spelled[word] = _merge(spelled[word], best)
            _count_pairs(word, spelled[word], words[word], pairs, holders)
    return merges


def _count_pairs(
    word: str,
    parts: list[str],
    count: int,
    pairs: Counter[tuple[str, str]],
    holders: dict[tuple[str, str], set[str]],
) -> None:
    for pair in itertools.pairwise(parts):
        pairs[pair] += count
        if count > 0:
            holders.setdefault(pair, set()).add(word)


def _merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged
