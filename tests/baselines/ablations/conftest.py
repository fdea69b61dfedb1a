"""The ablations, opened on the village."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from cog.baselines.systems import open_system
from cog.decoding.generator import CopyGenerator
from cog.model.load import load_index_model
from cog.model.phrase_encoder import PhraseEncoder
from cog.params import load_params
from cog.paths import ProjectPaths

OpenSystem = Callable[[str], CopyGenerator]


@pytest.fixture(scope="module")
def open_named(village: ProjectPaths) -> Iterator[OpenSystem]:
    """Opens a system once."""
    params = load_params(village.params)
    opened: dict[str, CopyGenerator] = {}
    with ExitStack() as stack:

        def open_named(system: str) -> CopyGenerator:
            if system not in opened:
                context = open_system(
                    village, params, corpus_id="village", system=system, device="cpu"
                )
                generator = stack.enter_context(context)
                assert isinstance(generator, CopyGenerator)
                opened[system] = generator
            return opened[system]

        yield open_named


@pytest.fixture(scope="module")
def cog(open_named: OpenSystem) -> CopyGenerator:
    return open_named("cog")


@pytest.fixture(scope="module")
def phrase_encoder(village: ProjectPaths) -> PhraseEncoder:
    return load_index_model(village.root / "models" / "tiny").phrase_encoder
