"""One cache for the tests of a file: the examples of a text are made once."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
