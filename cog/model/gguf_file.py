"""GGUF files of Llama's kind: a file goes in, the files that transformers would save come out.

Byte for byte, so that what is known of a base model by its files holds whichever of the two
converted it, which is no part of what generating needs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor

LLAMA = "llama"
CONTROL = 3  # the type of a token that is no text
PLAIN_SPLITS = ("default", "gpt-2", "smollm")  # of byte-level vocabularies, by one rule
END = "<|endoftext|>"  # which transformers adds to a vocabulary that lacks it
SAVED_BY = "5.24.0"  # of transformers, whose form it is
TABLES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "rope.dimension_count": "head_dim",
    "rope.freq_base": "rope_theta",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
SPECIAL_IDS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "unknown_token_id": "unk_token_id",
    "padding_token_id": "pad_token_id",
}
LLAMA_CONFIG = {  # what no GGUF file states
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "float32",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "mlp_bias": False,
    "model_type": LLAMA,
    "pad_token_id": None,
    "pretraining_tp": 1,
    "transformers_version": SAVED_BY,
    "use_cache": True,
}
OF_TOKENS = ("tokens", "token_type", "merges")


class GgufFile:
    """A GGUF file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        self._reader = GGUFReader(path)
        self._fields = self._reader.fields
        self._names = {each.name: _translate(each.name) for each in self._reader.tensors}

    def is_llama(self) -> bool:
        """Whether it is of the kind that :meth:`convert` knows, and holds nothing else."""
        return (
            self._get("general.architecture") == LLAMA
            and self._get("tokenizer.ggml.model") == "gpt2"
            and self._get("tokenizer.ggml.pre") in PLAIN_SPLITS
            and all(f"{LLAMA}.{key}" in self._fields for key in SIZES)
            and not any(key.startswith(f"{LLAMA}.rope.scaling") for key in self._fields)
            and all(self._names.values())
            and all(f"tokenizer.ggml.{key}" in self._fields for key in OF_TOKENS)
            and END in self._get("tokenizer.ggml.tokens")
        )

    def convert(self, folder: Path) -> None:
        """Write ``config.json``, ``tokenizer.json`` and ``model.safetensors`` in float32."""
        config = self._read_config()
        text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=True) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")
        self._read_tokenizer().save(str(folder / "tokenizer.json"))
        save_file(
            self._read_tensors(config), folder / "model.safetensors", metadata={"format": "pt"}
        )

    def _get(self, key: str) -> Any:  # noqa: ANN401
        return self._fields[key].contents() if key in self._fields else None

    def _read_config(self) -> dict[str, Any]:
        sizes = {name: self._get(f"{LLAMA}.{key}") for key, name in SIZES.items()}
        special = {name: self._get(f"tokenizer.ggml.{key}") for key, name in SPECIAL_IDS.items()}
        return {
            "_model_name_or_path": self._get("general.name") or "",
            "rope_parameters": {"rope_theta": sizes.pop("rope_theta"), "rope_type": "default"},
            "tie_word_embeddings": "output.weight" not in self._names,
            "vocab_size": len(self._get("tokenizer.ggml.tokens")),
            **LLAMA_CONFIG,
            **sizes,
            **{name: token for name, token in special.items() if token is not None},
        }

    def _read_tokenizer(self) -> Tokenizer:
        tokens = self._get("tokenizer.ggml.tokens")
        merges = [tuple(each.split(" ")) for each in self._get("tokenizer.ggml.merges")]
        vocab = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(
            models.BPE(
                vocab=vocab,
                merges=merges,
                continuing_subword_prefix="",
                end_of_word_suffix="",
                fuse_unk=False,
            )
        )
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A:0", pair="$A:0 $B:1", special_tokens=[]
        )
        kinds = self._get("tokenizer.ggml.token_type")
        tokenizer.add_special_tokens(
            [
                AddedToken(token, normalized=False, special=True)
                for token, kind in zip(tokens, kinds, strict=True)
                if kind == CONTROL
            ]
        )
        return tokenizer

    def _read_tensors(self, config: dict[str, Any]) -> dict[str, Tensor]:
        from gguf import dequantize

        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
        tensors = {}
        for each in self._reader.tensors:
            values = np.ascontiguousarray(dequantize(each.data, each.tensor_type), np.float32)
            part = each.name.split(".")[-2]
            if part in heads:
                # GGUF has the two values that a rotation turns side by side, Llama in two halves
                pairs = values.reshape(config[heads[part]], -1, 2, *values.shape[1:])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            tensors[self._names[each.name]] = torch.from_numpy(np.array(values))
        return tensors


def _translate(name: str) -> str:
    # a tensor's name in transformers; empty if it has none there
    if name in TABLES:
        return TABLES[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    part, _, kind = rest.partition(".")
    if name.startswith("blk.") and block.isdigit() and part in LAYERS and kind == "weight":
        return f"model.layers.{block}.{LAYERS[part]}.weight"
    return ""
