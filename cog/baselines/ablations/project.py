"""A project's ablations: a corpus id and a name go in, an open generator comes out."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from cog.baselines.ablations.catalogue import ABLATIONS, PHRASES, PROMPT_PHRASES, UNSUMMED
from cog.baselines.ablations.generators import (
    PhrasesGenerator,
    SettingsGenerator,
    UnsummedGenerator,
)
from cog.baselines.ablations.prompt_phrases import PromptPhrasesGenerator
from cog.decoding.generator import CopyGenerator
from cog.decoding.session import MakeGenerator, open_generator
from cog.model.load import load_index_model
from cog.params import Params
from cog.paths import ProjectPaths

KINDS: dict[str, MakeGenerator] = {PHRASES: PhrasesGenerator, UNSUMMED: UnsummedGenerator}


@contextmanager
def open_ablation(
    paths: ProjectPaths, params: Params, *, corpus_id: str, system: str, device: str
) -> Iterator[CopyGenerator]:
    """Load the model and open the index for as long as the block runs.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus that is copied from.
    :param system: One of ``ABLATIONS``.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :yields: The generator.
    """
    make: MakeGenerator
    if system == PROMPT_PHRASES:
        index_model = load_index_model(paths.model(params.model), device=device)
        make = partial(PromptPhrasesGenerator, phrase_encoder=index_model.phrase_encoder)
    elif system in KINDS:
        make = KINDS[system]
    else:
        make = partial(SettingsGenerator, settings=ABLATIONS[system].settings)
    with open_generator(paths, params, corpus_id=corpus_id, device=device, make=make) as generator:
        yield generator
