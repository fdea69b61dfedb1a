"""Citations: copies byte for byte in every mode, and what is no copy is not cited."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import pytest

from cog.corpus.documents import DocumentStore
from cog.decoding.draft import Draft
from cog.decoding.generator import CopyGenerator
from cog.decoding.row import Row
from cog.model.words import CAN_END, CAN_START, flag_words
from cog.paths import ProjectPaths
from cog.records import CORPUS, VOCABULARY, Generation, Segment
from tests.decoding.settings import SETTINGS, ask


@pytest.fixture(scope="module")
def store(village: ProjectPaths) -> DocumentStore:
    return DocumentStore(village.corpus("village").documents)


@pytest.fixture(scope="module", params=SETTINGS)
def written(
    request: pytest.FixtureRequest, generator: CopyGenerator
) -> tuple[str, list[Generation]]:
    """Texts of each kind of settings."""
    requests = ask(4, **{"max_new_tokens": 40} | SETTINGS[request.param])
    return request.param, generator.generate(requests)


def copies_of(generations: list[Generation]) -> list[Segment]:
    return [each for one in generations for each in one.segments if each.origin == CORPUS]


def test_every_copy_is_cited_byte_for_byte(
    written: tuple[str, list[Generation]], store: DocumentStore
) -> None:
    name, generations = written
    for generation in generations:
        assert generation.text == "".join(segment.text for segment in generation.segments)
    copies = copies_of(generations)
    for segment in copies:
        document = store.get_document(str(segment.document_id))
        assert segment.text
        assert document.text[segment.char_start : segment.char_end] == segment.text
        assert (segment.title, segment.licence) == (document.title, document.licence)
        assert segment.corpus == "village"
        assert 0.0 <= segment.probability <= 1.0
        assert (segment.information or 0.0) > 0.0
    assert len(copies) > 10, name


def test_a_copy_is_whole_words_enough_of_them_and_of_information(
    written: tuple[str, list[Generation]], generator: CopyGenerator, store: DocumentStore
) -> None:
    name, generations = written
    min_bits = generations[0].decoding.min_bits
    splitter = generator.model.splitter
    for segment in copies_of(generations):
        text = store.get_document(str(segment.document_id)).text
        chars = splitter.split(text).word_chars
        bounds, flags = chars.tolist(), flag_words(text, chars)
        assert {segment.char_start, segment.char_end} <= set(bounds)
        first, end = bounds.index(segment.char_start), bounds.index(segment.char_end)
        assert end - first >= generator.model.config.min_phrase_words
        assert flags[first] & CAN_START
        assert flags[end - 1] & CAN_END
        if min_bits:
            document_id = str(segment.document_id)
            ids = generator.index.find_documents([document_id])[document_id]
            assert len(ids) == 1
            chunks = generator.index.gather_chunks(
                (generator.index.chunk_documents() == ids[0]).nonzero()[0]
            )
            inside = (chunks.word_chars[:, 0] >= segment.char_start) & (
                chunks.word_chars[:, 1] <= segment.char_end
            )
            bits = generator.index.get_word_bits(chunks.word_hashes[inside])
            assert bits.sum() >= min_bits, name
            assert segment.information == pytest.approx(bits.sum(), abs=0.5)  # it is rounded


def test_no_character_of_a_document_is_copied_twice(
    written: tuple[str, list[Generation]],
) -> None:
    name, generations = written
    num_twice = 0
    for generation in generations:
        seen: set[tuple[str | None, int]] = set()
        for segment in copies_of([generation]):
            range_of = range(segment.char_start or 0, segment.char_end or 0)
            copy = {(segment.document_id, i) for i in range_of}
            num_twice += bool(copy & seen)
            seen |= copy
    assert num_twice == 0 or not generations[0].decoding.copy_once
    assert num_twice > 0 or name != "biased"  # there is something to do


def test_neighbours_in_text_and_source_are_one_segment(
    written: tuple[str, list[Generation]],
) -> None:
    for generation in written[1]:
        for one, other in pairwise(generation.segments):
            if one.origin == other.origin == CORPUS:
                place = one.document_id, one.char_end
                assert place != (other.document_id, other.char_start)


@pytest.mark.parametrize("name", SETTINGS)
def test_segments_are_reported_as_they_come(generator: CopyGenerator, name: str) -> None:
    heard: dict[int, list[Segment]] = {number: [] for number in range(5)}
    generations = generator.generate(
        ask(**SETTINGS[name]), on_segment=lambda i, segment: heard[i].append(segment)
    )
    for number, generation in enumerate(generations):
        assert tuple(heard[number]) == generation.segments


def test_spans_are_longer_than_phrases(generator: CopyGenerator) -> None:
    max_words = generator.model.config.max_phrase_words

    def longest(**changes: Any) -> int:  # noqa: ANN401
        copies = copies_of(
            generator.generate(ask(4, max_new_tokens=60, phrase_bias=3.0, **changes))
        )
        return max(generator.model.splitter.split(each.text).num_words for each in copies)

    assert longest(span_words=16) > max_words + 8  # nothing is verified


def test_without_tokens_to_spare_the_vocabulary_ends_a_text(generator: CopyGenerator) -> None:
    for generation in generator.generate(ask(4, max_new_tokens=1, phrase_bias=1e4)):
        (segment,) = generation.segments
        assert segment.origin == VOCABULARY  # no phrase has one token


class CutGenerator(CopyGenerator):
    """Notes the copies that are less than the chosen phrase, and what their tokens have."""

    cut: list[tuple[str, list[float], list[float]]]

    def write(
        self, row: Row, draft: Draft, num_accepted: int, probabilities: Sequence[float]
    ) -> int:
        num_before = len(row.text.segments)
        num_kept = super().write(row, draft, num_accepted, probabilities)
        segments = row.text.segments[num_before:]
        if draft.is_copy and segments and num_kept < draft.num_chosen:
            of_tokens = [draft.first_probability, *probabilities][:num_kept]
            wanted = [prod(of_tokens)] if segments[0].origin == CORPUS else of_tokens
            self.cut.append((segments[0].origin, [each.probability for each in segments], wanted))
        return num_kept


def test_what_was_cut_has_the_probability_of_its_tokens(generator: CopyGenerator) -> None:
    cutting = CutGenerator(generator.model, generator.index)
    cutting.cut = []
    cutting.generate(ask(6, **SETTINGS["verified"]))
    assert {origin for origin, *_ in cutting.cut} == {CORPUS, VOCABULARY}
    for _, found, wanted in cutting.cut:
        assert found == pytest.approx(wanted)
