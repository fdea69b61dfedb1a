"""The plain language model's time: an evaluation goes in, seconds beside its texts' come out."""

import numpy as np
from numpy.typing import NDArray

from cog.baselines.plain import time_transformers
from cog.evaluation.cache import RowCache, digest_text, fill
from cog.evaluation.session import Evaluation
from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.load import resolve_device

WRITE = "write"  # the part of an evaluation in which its texts are written


def time_plain(run: Evaluation) -> tuple[float, bool]:
    """Time ``transformers`` on the first batch of the prompts, once per run, after its texts.

    :param run: The evaluation.
    :returns: Seconds a text, and whether the texts are of an earlier run than this time.
    """
    protocol = run.plan.protocol
    decoding = protocol.decoding_of(protocol.seeds[0])
    prefixes = [prompt.prefix for prompt in run.selection.prompts[: protocol.batch_size]]

    def compute(_positions: list[int]) -> NDArray[np.float64]:
        model_folder = run.paths.model(run.params.model)
        base = get_base_folder(load_config(model_folder).prefix_base, model_folder=model_folder)
        seconds = time_transformers(base, prefixes, decoding=decoding, device=run.plan.device)
        return np.array([[seconds, WRITE not in run.seconds]])

    folder = run.store.folder / run.key(decoding).folder_name / "plain"
    digest = digest_text(str(resolve_device(run.plan.device)), *prefixes)
    (row,) = fill(RowCache(folder), [digest], compute, batch_size=1)
    return float(row[0]), bool(row[1])
