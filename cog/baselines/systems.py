"""Systems by name: a project, a corpus and a name go in, something that writes texts comes out."""

from collections.abc import Iterator
from contextlib import contextmanager

from cog.baselines.ablations.catalogue import ABLATIONS
from cog.baselines.ablations.project import open_ablation
from cog.baselines.names import COG, KNN_LM, RETRO, TUNED_TRANSFORMER
from cog.baselines.project import open_knn_lm
from cog.baselines.protocol import TextGenerator
from cog.baselines.retro.project import open_retro
from cog.baselines.transformer import TransformerGenerator
from cog.baselines.tuned import get_tuned_folder
from cog.decoding.session import open_generator
from cog.model.load import load_model
from cog.params import Params
from cog.paths import ProjectPaths


@contextmanager
def open_system(
    paths: ProjectPaths, params: Params, *, corpus_id: str, system: str, device: str
) -> Iterator[TextGenerator]:
    """Load what a system needs for as long as the block runs.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus that is copied from, or searched.
    :param system: One of ``SYSTEMS``.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :yields: The system.
    """
    if system == COG:
        with open_generator(paths, params, corpus_id=corpus_id, device=device) as generator:
            yield generator
        return
    if system in ABLATIONS:
        with open_ablation(
            paths, params, corpus_id=corpus_id, system=system, device=device
        ) as ablated:
            yield ablated
        return
    if system == RETRO:
        with open_retro(paths, params, corpus_id=corpus_id, device=device) as retro:
            yield retro
        return
    precision = params.generate.precision
    if system == TUNED_TRANSFORMER:
        folder = get_tuned_folder(paths, params, corpus_id)
        model = load_model(folder, device=device, precision=precision)
        yield TransformerGenerator(model, corpus_id=corpus_id)
        return
    model = load_model(paths.model(params.model), device=device, precision=precision)
    if system == KNN_LM:
        yield open_knn_lm(paths, corpus_id, model=model, settings=params.datastore)
        return
    yield TransformerGenerator(model, corpus_id=corpus_id)
