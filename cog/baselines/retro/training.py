"""Fitting RETRO from the command line or the pipeline.

A corpus goes in, an adapter comes out; whoever follows the run is handed in.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cog.params import Params
from cog.paths import ProjectPaths
from cog.training.request import Follow, follow_run, go_on_or_begin_anew

if TYPE_CHECKING:
    from cog.baselines.retro.job import RetroReport

LOGGED = ("chunk_tokens", "num_neighbours", "windows_per_batch", "learning_rate", "seed")


def train_retro(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    out: Path | None = None,
    is_resumed: bool,
    device: str,
    follow: Follow,
) -> "RetroReport":
    """Fit an adapter and log how it goes.

    Ends at the steps of params.yaml unless there is another limit; ``out`` is ``models/retro``
    unless given.
    """
    from cog.baselines.retro.folder import ADAPTER_FOLDER
    from cog.baselines.retro.job import RetroJob, train_adapter
    from cog.training.schedule import Budget

    if max_steps is None and max_seconds is None:
        max_steps = params.retro.max_steps
    job = RetroJob(
        corpus_id=corpus_id,
        settings=params.retro,
        budget=Budget(max_steps, max_seconds),
        out=out or paths.root / ADAPTER_FOLDER,
        is_resumed=is_resumed,
        device=device,
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
    return go_on_or_begin_anew(
        out,
        config=CONFIG_FILE,
        max_steps=params.retro.max_steps,
        run=lambda: train_retro(
            paths, params, corpus_id, out=out, is_resumed=True, device="auto", follow=follow
        ),
    )
