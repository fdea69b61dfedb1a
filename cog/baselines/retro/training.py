"""Fitting RETRO from the command line or the pipeline.

A corpus goes in, an adapter comes out; whoever follows the run is handed in.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cog.params import Params
from cog.paths import ProjectPaths
from cog.training.request import Follow, follow_run, go_on_or_begin_anew

if TYPE_CHECKING:
    from cog.baselines.retro.job import RetroReport

LOGGED = ("chunk_tokens", "num_neighbours", "windows_per_batch", "learning_rate", "seed")


@dataclass(frozen=True, slots=True)
class RetroRequest:
    """What a user asks for.

    :param max_steps: Number of steps; None for that of params.yaml, or for no limit where there is
        one of seconds.
    :param max_seconds: Seconds of training; None for no limit.
    :param out: Folder of the adapter; None for ``models/retro``.
    """

    corpus_id: str
    max_steps: int | None
    max_seconds: float | None
    out: Path | None
    is_resumed: bool
    device: str


def train_retro(
    paths: ProjectPaths, params: Params, request: RetroRequest, *, follow: Follow
) -> "RetroReport":
    """Fit an adapter and log how it goes."""
    from cog.baselines.retro.job import RetroJob, train_adapter
    from cog.baselines.retro.project import ADAPTER_FOLDER
    from cog.training.schedule import Budget

    max_steps, max_seconds = request.max_steps, request.max_seconds
    if max_steps is None and max_seconds is None:
        max_steps = params.retro.max_steps
    job = RetroJob(
        corpus_id=request.corpus_id,
        settings=params.retro,
        budget=Budget(max_steps, max_seconds),
        out=request.out or paths.root / ADAPTER_FOLDER,
        is_resumed=request.is_resumed,
        device=request.device,
    )
    described = {name: str(getattr(params.retro, name)) for name in LOGGED}
    described["corpus"] = job.corpus_id
    label = f"retro {job.corpus_id}"
    with follow_run(label, job.out, job.budget, described, follow) as (progress, log):
        return train_adapter(paths, params, job, progress=progress, log=log)


def train_retro_on_corpus(
    paths: ProjectPaths, params: Params, corpus_id: str, *, follow: Follow
) -> "RetroReport":
    """Fit an adapter on a corpus, for the pipeline.

    A run that broke off goes on; an adapter that was finished, or is of something else, is
    replaced.
    """
    from cog.baselines.retro.folder import CONFIG_FILE

    out = paths.corpus(corpus_id).retro
    request = RetroRequest(corpus_id, None, None, out, is_resumed=True, device="auto")
    return go_on_or_begin_anew(
        out,
        config=CONFIG_FILE,
        max_steps=params.retro.max_steps,
        run=lambda: train_retro(paths, params, request, follow=follow),
    )
