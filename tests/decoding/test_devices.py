"""Choices and drafts on every device, in a batch that texts leave one by one."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cog.decoding.session import open_generator
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import CORPUS
from tests.decoding.checked import CheckedGenerator
from tests.decoding.settings import SETTINGS, ask
from tests.devices import DEVICES


@pytest.fixture(scope="module", params=DEVICES)
def checked(village: ProjectPaths, request: pytest.FixtureRequest) -> Iterator[CheckedGenerator]:
    params = load_params(village.params)
    with open_generator(
        village, params, corpus_id="village", device=request.param, make=CheckedGenerator
    ) as opened:
        assert opened.model.prefix_encoder.device.type == request.param
        assert isinstance(opened, CheckedGenerator)
        yield opened


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
def test_drafts_are_chosen_and_verified_as_by_passes_of_their_own(
    checked: CheckedGenerator, method: str
) -> None:
    requests = [
        replace(each, decoding=replace(each.decoding, max_new_tokens=8 + 3 * k))
        for k, each in enumerate(ask(2, **SETTINGS["all"] | {"method": method}))
    ]
    before = checked.num_verified
    written = checked.generate(requests)
    assert checked.num_verified > before
    assert [each.num_tokens for each in written] == [8 + 3 * k for k in range(len(requests))]
    texts = {}
    for each in written:
        for segment in each.segments:
            if segment.origin == CORPUS:
                document = checked.index.find_document(segment.document_id)
                assert document is not None
                texts[segment.text] = document.text[segment.char_start : segment.char_end]
    assert texts
    assert all(text == source for text, source in texts.items())
    # what is added up in one order is the same to the last bit, and so are the texts
    assert [each.text for each in checked.generate(requests)] == [each.text for each in written]
