"""A tiny model of the real form.

Two random transformers of width 16, their tokenizers and heads, in a model folder.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from cog.model.random_base import learn_byte_tokenizer

WIDTH = 16
NUM_BYTES = 257  # and the begin token
NUM_MERGES = 140
TEXTS = (
    "The council of the village adopted the rules of the market on the proposal of the baker.",
    "The river runs through the valley, and the old mill stands on the river beside the market.",
    "Bread is made from flour, water and salt; the baker of the village sells bread in the market.",
)


def make_tiny_model(
    folder: Path, *, architecture: str = "gpt2", seed: int = 0, texts: Iterable[str] = TEXTS
) -> Path:
    """Write a model folder whose bases lie inside it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(texts)
    torch.manual_seed(seed)
    vocab_size = _save_prefix_base(folder / "prefix", architecture, texts)
    _save_phrase_base(folder / "phrase", texts)
    weights = {"qproj.weight": torch.randn(WIDTH, WIDTH) * 0.3}
    for side in ("start", "end"):
        weights |= {
            f"{side}.l1.weight": torch.randn(24, WIDTH) * 0.3,
            f"{side}.l1.bias": torch.randn(24) * 0.1,
            f"{side}.l2.weight": torch.randn(WIDTH // 2, 24) * 0.2,
            f"{side}.l2.bias": torch.randn(WIDTH // 2) * 0.1,
        }
    if architecture == "llama":
        name = "lm.model.layers.0.self_attn.q_proj"
        weights |= {
            f"{name}.A": torch.randn(2, WIDTH) * 0.1,
            f"{name}.B": torch.randn(WIDTH, 2) * 0.1,
        }
    save_file(weights, folder / "weights.safetensors")
    config = {
        "format_version": 1,
        "name": f"tiny-{architecture}",
        "weights": ["weights.safetensors"],
        "prefix_base": "prefix",
        "begin_token_id": 0,
        "lora_scale": 2.0,
        "phrase_base": "phrase",
        "max_pieces": 126,
        "retriever_base": "phrase",
        "max_chunk_tokens": 32,
        "min_chunk_tokens": 8,
        "min_phrase_words": 2,
        "max_phrase_words": 8,
    }
    assert vocab_size > 256
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return folder


def _save_prefix_base(folder: Path, architecture: str, texts: list[str]) -> int:
    tokenizer = learn_byte_tokenizer(texts, vocab_size=NUM_BYTES + NUM_MERGES)
    vocab_size = tokenizer.get_vocab_size()
    model: PreTrainedModel
    if architecture == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocab_size,
                n_positions=256,
                n_embd=WIDTH,
                n_layer=2,
                n_head=2,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=WIDTH,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=256,
                tie_word_embeddings=True,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(8.0)  # far from uniform, so that choices differ
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return vocab_size


def _save_phrase_base(folder: Path, texts: list[str]) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *words]
    tokens = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *pieces])
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
