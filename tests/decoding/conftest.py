"""A generator on the tiny project."""

from collections.abc import Iterator

import pytest

from cog.decoding.generator import CopyGenerator
from cog.decoding.session import open_generator
from cog.params import load_params
from cog.paths import ProjectPaths


@pytest.fixture(scope="session")
def generator(village: ProjectPaths) -> Iterator[CopyGenerator]:
    params = load_params(village.params)
    with open_generator(village, params, corpus_id="village", device="cpu") as opened:
        yield opened
