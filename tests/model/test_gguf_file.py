"""What is converted here, against what transformers makes of the same file; what is left to it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants

from cog.errors import CheckpointError
from cog.model import base
from cog.model.gguf_file import LAYERS, GgufFile
from cog.model.random_base import learn_byte_tokenizer

WIDTH, HEADS, KEY_HEADS, INNER = 64, 4, 2, 96
SHAPES = {
    "attn_norm": (WIDTH,),
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH * KEY_HEADS // HEADS, WIDTH),
    "attn_v": (WIDTH * KEY_HEADS // HEADS, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_norm": (WIDTH,),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}
KINDS = (GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F16)
TEXTS = ["The baker of the village sells bread in the market, and the old mill grinds 1,024 sacks."]


def write_gguf(
    path: Path,
    *,
    is_tied: bool = True,
    split: str = "smollm",
    extra: str = "",
    first: str = "<|endoftext|>",
    without: str = "",
) -> Path:
    """A network of random numbers in the kinds of blocks that small files have."""
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, "llama")
    vocabulary = learn_byte_tokenizer(TEXTS, vocab_size=300).to_str()

    model = json.loads(vocabulary)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    tokens[0] = first
    writer.add_name("Village 1")
    writer.add_context_length(128)
    writer.add_block_count(2)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    of_tokens: dict[str, Callable[[], None]] = {
        "tokens": lambda: writer.add_token_list(tokens),
        "kinds": lambda: writer.add_token_types(
            [TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)]
        ),
        "merges": lambda: writer.add_token_merges([" ".join(pair) for pair in model["merges"]]),
    }
    for name, write in of_tokens.items():
        if name != without:
            write()
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {} if is_tied else {"output": (len(tokens), WIDTH)}
    shapes |= {extra: (4,)} if extra else {}
    shapes |= {f"blk.{n}.{part}": SHAPES[part] for n in range(2) for part in LAYERS}
    for number, (name, shape) in enumerate(shapes.items()):
        values = random.normal(size=shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", values)
            continue
        kind = KINDS[number % len(KINDS)]
        writer.add_tensor(f"{name}.weight", quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("is_tied", [True, False])
def test_files_are_those_that_transformers_saves(is_tied: bool, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "village.gguf", is_tied=is_tied)
    file = GgufFile(path)
    assert file.is_llama()
    (tmp_path / "ours").mkdir()
    file.convert(tmp_path / "ours")
    base._convert_any_gguf(tmp_path, path.name, tmp_path / "theirs")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        ours, theirs = ((tmp_path / who / name).read_bytes() for who in ("ours", "theirs"))
        assert ours == theirs, name


@pytest.mark.parametrize(
    "given",
    [
        {"split": "llama-bpe"},
        {"extra": "rope_freqs"},
        {"extra": "blk.0.attn_x"},
        {"first": "<s>"},
        *({"without": name} for name in ("tokens", "kinds", "merges")),
    ],
)
def test_what_is_not_known_to_the_last_tensor_is_left_to_transformers(
    given: dict[str, str], tmp_path: Path
) -> None:
    assert not GgufFile(write_gguf(tmp_path / "any.gguf", **given)).is_llama()  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such file", b"GGUF" + bytes(40)])
def test_a_file_that_is_no_gguf_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "any.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"any\.gguf must be a whole GGUF file; found: "):
        base._convert_gguf(tmp_path, "any.gguf")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "any.gguf")
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(CheckpointError, match=r"any\.gguf must be a whole GGUF file; found: "):
        base._convert_gguf(tmp_path, "any.gguf")
