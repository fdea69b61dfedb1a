"""Features and likelihoods: texts go in, what a language model makes of them comes out, kept."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.batches import iter_batches
from cog.evaluation.rows import RowCache, Rows, digest_text, fill
from cog.model.language_model import (
    LanguageModel,
    get_language_model_folder,
    identify_language_model,
    load_language_model,
)
from cog.model.load import resolve_device
from cog.paths import get_cache_folder
from cog.progress import Progress


def score_likelihood(
    prompts: Sequence[str], texts: Sequence[str], *, judge: LanguageModel, batch_size: int
) -> NDArray[np.float64]:
    """Log-likelihood of every text conditional on its own prompt.

    Differs from the authors' script, which joins all samples, prompts included, into one stream.
    Prompt and text are tokenised apart, so that exactly the text's tokens are scored. If a text has
    nothing before its first token, it is a ``ValueError``.

    Gives the natural logarithm of the text's probability, and the number of its tokens; both 0 for
    a text without tokens. *Shape:* ``(num_texts, 2)``
    """
    begin = [] if judge.begin_token_id is None else [judge.begin_token_id]
    rows = []
    for prompt, text in zip(prompts, texts, strict=True):
        text_ids = judge.encode(text)[: judge.max_positions - 1]
        prompt_ids = begin + judge.encode(prompt)
        if text_ids and not prompt_ids:
            raise ValueError("the first token of a text needs a prompt or a begin token before it")
        rows.append((prompt_ids[-(judge.max_positions - len(text_ids)) :], text_ids))
    found = np.zeros((len(rows), 2))
    order = sorted(range(len(rows)), key=lambda i: sum(map(len, rows[i])))
    for batch in iter_batches((i for i in order if rows[i][1]), batch_size):
        found[batch, 0] = _score_batch([rows[i] for i in batch], judge)
        found[batch, 1] = [len(rows[i][1]) for i in batch]
    return found


@torch.inference_mode()
def _score_batch(rows: Sequence[tuple[list[int], list[int]]], judge: LanguageModel) -> list[float]:
    device = judge.body.device
    lengths = [len(prompt) + len(text) for prompt, text in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, text) in enumerate(rows):
        ids[row, : lengths[row]] = torch.tensor(prompt + text)
        mask[row, : lengths[row]] = 1  # padding on the right is never seen by what is scored
    output = judge.body(input_ids=ids.to(device), attention_mask=mask.to(device))
    states: Tensor = output.last_hidden_state  # (batch, prefix_len, dim)
    found = []
    for row, (prompt, text) in enumerate(rows):
        first = len(prompt) - 1
        logits = judge.head(states[row, first : first + len(text)]).float()
        chosen = torch.tensor(text, device=device)
        gold = logits.gather(1, chosen.unsqueeze(1)).squeeze(1)
        found.append(float((gold - logits.logsumexp(dim=1)).double().sum()))
    return found


PASS_TEXTS = 16  # texts of one forward pass
MEASURE_VERSION = 1  # raised when the same text gives other numbers
KEPT_TEXTS = 64  # texts after which what was measured is kept


class Measurer:
    """A language model that measures texts; loaded only when a number is not known yet.

    It is ``packaged``, a hub name or a folder, with or without ``@`` and its identity.
    """

    def __init__(self, name: str, *, root: Path, device: str, progress: Progress) -> None:
        self.name = name.partition("@")[0]
        self.folder = get_language_model_folder(self.name, root=root)
        self.identity = identify_language_model(self.folder)
        self._device = device
        self._progress = progress
        self._model: LanguageModel | None = None

    @property
    def pinned_name(self) -> str:
        """The name with the digest of what it stands for today."""
        return f"{self.name}@{self.identity}"

    def encode_features(
        self, texts: Sequence[str], *, layers: Sequence[int], max_tokens: int
    ) -> NDArray[np.float32]:
        """What MAUVE compares: hidden states at the last token of each text, layer by layer."""

        def compute(positions: list[int]) -> Rows:
            self._progress.expect(len(positions))
            model = self._load()
            order = sorted(range(len(positions)), key=lambda i: len(texts[positions[i]]))
            parts: list[NDArray[np.float32]] = []
            for batch in iter_batches((texts[positions[i]] for i in order), PASS_TEXTS):
                parts.append(model.encode_last(batch, layers=layers, max_tokens=max_tokens))
                self._progress.advance(len(batch))
            return np.concatenate(parts)[np.argsort(order)]

        cache = self._cache(f"features-{'+'.join(map(str, layers))}-{max_tokens}")
        rows = fill(cache, [digest_text(text) for text in texts], compute, batch_size=KEPT_TEXTS)
        return np.asarray(rows, dtype=np.float32)

    def score_texts(self, prompts: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        """Log-likelihood of each text given its prompt, and number of its tokens."""

        def compute(positions: list[int]) -> Rows:
            self._progress.expect(len(positions))
            found = score_likelihood(
                [prompts[i] for i in positions],
                [texts[i] for i in positions],
                judge=self._load(),
                batch_size=PASS_TEXTS,
            )
            self._progress.advance(len(positions))
            return found

        digests = [digest_text(*pair) for pair in zip(prompts, texts, strict=True)]
        return fill(self._cache("likelihoods"), digests, compute, batch_size=KEPT_TEXTS)

    def _cache(self, kind: str) -> RowCache:
        device = resolve_device(self._device).type  # processors and GPUs round differently
        folder = f"{self.identity}-{device}-v{MEASURE_VERSION}"
        return RowCache(get_cache_folder() / "measured" / folder / kind)

    def _load(self) -> LanguageModel:
        if self._model is None:
            self._model = load_language_model(self.folder, device=self._device)
        return self._model
