"""A training run of RETRO in a project: a corpus id goes in, a saved adapter comes out."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cog.baselines.retro.batches import RetroBatches
from cog.baselines.retro.folder import save_adapter
from cog.baselines.retro.project import get_adapter_folder, open_retro_index
from cog.baselines.retro.training import (
    RetroOutcome,
    RetroSettings,
    RetroTrainer,
    fit_adapter,
    make_adapter,
)
from cog.errors import CheckpointError
from cog.index.activation import get_model_folder
from cog.model.load import load_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.training.schedule import Budget
from cog.training.stopping import watch_signals

MAX_STEPS = 2000  # unless steps or seconds are asked for
SEED = 0
# chunks and neighbours of the paper; the rest fits an adapter of a small model
SETTINGS = RetroSettings(
    chunk_tokens=64,
    num_neighbours=2,
    neighbour_tokens=64,
    continuation_tokens=64,
    num_cross_layers=4,
    encoder_layers=2,
    window_tokens=256,
    batch_windows=8,
    learning_rate=1e-3,
)


@dataclass(frozen=True, slots=True)
class RetroReport:
    """What was trained.

    :param folder: Where the adapter lies.
    :param corpus: The corpus.
    :param outcome: How the run ended.
    """

    folder: Path
    corpus: str
    outcome: RetroOutcome

    def to_json(self) -> dict[str, Any]:
        """Plain values.

        :returns: The fields of the outcome among them.
        """
        return {"folder": str(self.folder), "corpus": self.corpus, **asdict(self.outcome)}


def train_adapter(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    out: Path | None,
    budget: Budget,
    settings: RetroSettings,
    progress: Progress,
    device: str,
) -> RetroReport:
    """Fit an adapter on the documents of a corpus and its index, and save it.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus.
    :param out: Folder of the adapter, which must be free; None for ``models/retro``.
    :param budget: When it ends.
    :param settings: How it is made and fitted.
    :param progress: Told of steps, or of seconds.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :returns: What was done.
    :raises CheckpointError: If the folder is taken.
    """
    folder = get_adapter_folder(paths) if out is None else out
    if folder.exists():
        raise CheckpointError(
            f"the folder {folder.name} must be free for the adapter",
            found="it is there",
            run="pass another --out, or remove it",
            about=str(folder),
        )
    with open_retro_index(paths, params, corpus_id) as index:
        model = load_model(get_model_folder(paths, params), device=device)
        adapter = make_adapter(model, settings, seed=SEED)
        batches = RetroBatches(
            model,
            index,
            config=adapter.config,
            batch_windows=settings.batch_windows,
            window_tokens=settings.window_tokens,
            seed=SEED,
        )
        with watch_signals() as stop:
            outcome = fit_adapter(
                RetroTrainer(model, adapter),
                batches,
                learning_rate=settings.learning_rate,
                budget=budget,
                stop=stop,
                progress=progress,
            )
        training = {"corpus": corpus_id, "index": index.manifest.digest, **asdict(outcome)}
        save_adapter(
            folder,
            adapter,
            model=model.fingerprint,
            training={**training, "settings": asdict(settings)},
        )
    return RetroReport(folder, corpus_id, outcome)
