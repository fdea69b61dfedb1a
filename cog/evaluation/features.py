"""Features and likelihoods: texts go in, what a language model makes of them comes out, kept."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.evaluation.judging import score_likelihood
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
            for begin in range(0, len(order), PASS_TEXTS):
                batch = [texts[positions[i]] for i in order[begin : begin + PASS_TEXTS]]
                parts.append(model.encode_last(batch, layers=layers, max_tokens=max_tokens))
                self._progress.advance(len(batch))
            features = np.concatenate(parts)
            return features[np.argsort(order)]

        names = "+".join(map(str, layers))
        cache = self._cache(f"features-{names}-{max_tokens}")
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
