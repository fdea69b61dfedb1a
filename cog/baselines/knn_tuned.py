"""Tuned settings of kNN-LM at rest: what was chosen for a datastore goes in, and is used later."""

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from cog.baselines.knn_lm import KnnSettings
from cog.baselines.manifest import MANIFEST_FILE
from cog.decoding.tuning_file import load_choice, remove_choice, save_choice
from cog.params import DatastoreParams
from cog.paths import CorpusPaths
from cog.reading import Text


@dataclass(frozen=True, slots=True)
class KnnTuning:
    """What was chosen for a datastore.

    :param values: The settings.
    :param datastore: Digest of the datastore.
    :param model: Fingerprint of the model.
    :param created_at: When, ISO 8601 in UTC.
    :param record: How they were chosen, as plain values: prompts, perplexities and trials.
    """

    values: KnnSettings
    datastore: Text
    model: Text
    created_at: str
    record: dict[str, Any]


def describe_settings(values: KnnSettings) -> str:
    """Name settings in one line.

    :param values: The settings.
    :returns: Such as ``top_k 64, weight 0.25, distance_scale 0.00785, temperature 1``.
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in asdict(values).items())


def save_knn_tuning(corpus_paths: CorpusPaths, tuning: KnnTuning) -> None:
    """Keep what was chosen, beside the datastore."""
    save_choice(corpus_paths.knn_tuning, asdict(tuning))


def load_knn_tuning(corpus_paths: CorpusPaths) -> KnnTuning | None:
    """Read what was chosen; None if nothing was."""
    reset = f"cog tune --system knn-lm --corpus {corpus_paths.root.name} --reset"
    return load_choice(corpus_paths.knn_tuning, KnnTuning, reset=reset)


def remove_knn_tuning(corpus_paths: CorpusPaths) -> bool:
    """Forget what was chosen; tells whether there was anything."""
    return remove_choice(corpus_paths.knn_tuning)


def apply_knn_tuning(
    settings: DatastoreParams, corpus_paths: CorpusPaths
) -> tuple[DatastoreParams, str]:
    """Put what was chosen for a datastore in the place of params.yaml.

    :param settings: Section ``datastore`` of params.yaml.
    :param corpus_paths: The corpus.
    :returns: The settings, and one line on what was done; empty if nothing was ever chosen.
    """
    tuning = load_knn_tuning(corpus_paths)
    if tuning is None:
        return settings, ""
    corpus_id, digest = corpus_paths.root.name, _read_digest(corpus_paths)
    if tuning.datastore != digest:
        return settings, (
            f"what was tuned for {corpus_id} is of datastore {tuning.datastore[:12]}, not "
            f"{digest[:12] or 'one that is there'}: left out (cog tune --system knn-lm --corpus "
            f"{corpus_id} does it again, with --reset forgets it)"
        )
    chosen = {field.name: getattr(tuning.values, field.name) for field in fields(KnnSettings)}
    word = f"as tuned for this datastore: {describe_settings(tuning.values)}"
    return replace(settings, **chosen), word


def _read_digest(corpus_paths: CorpusPaths) -> str:
    # whether the datastore fits is checked where it is opened; it states its model in its digest's
    # manifest, and its keys are that model's
    try:
        content = json.loads((corpus_paths.datastore / MANIFEST_FILE).read_bytes())
        return str(content["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
