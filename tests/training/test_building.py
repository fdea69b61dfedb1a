from pathlib import Path

import numpy as np
import pytest

from cog.errors import TrainingError
from cog.index.chunking import chunk_document
from cog.model.load import load_index_model, load_splitter
from cog.model.words import BARRED
from cog.progress import SilentProgress
from cog.records import Document
from cog.training.building import TrainingText, build_examples
from cog.training.examples import ABOUT_FILE, ExampleStore
from tests.training.making import iter_village, make_settings, make_store


def test_examples_are_the_chunks_that_an_index_has(tiny_model: Path, tmp_path: Path) -> None:
    store = make_store(tiny_model, tmp_path, num_documents=5)
    splitter = load_splitter(tiny_model)
    wanted = [
        (number, chunk)
        for number, document in enumerate(iter_village(5))
        for block in chunk_document(
            document.text,
            document_ordinal=0,
            splitter=splitter,
            limits=make_settings(tiny_model).config,
        )
        for chunk in block.chunks
    ]
    assert store.num_chunks == len(wanted) > 5
    assert store.num_tokens == sum(len(chunk.token_ids) for _, chunk in wanted)
    for row, (number, chunk) in enumerate(wanted):
        example = store.get(row)
        assert example.document == number == store.documents[row]
        assert example.text.decode() == chunk.text == store.get_text(row)
        np.testing.assert_array_equal(example.token_ids, chunk.token_ids)
        np.testing.assert_array_equal(example.word_tokens, chunk.word_tokens)
        bounds = example.word_bytes
        assert (bounds[0], bounds[-1]) == (0, len(example.text))
        first_words = example.text[: bounds[2]].decode()
        assert first_words == chunk.text[: chunk.word_chars[2] - chunk.word_chars[0]]
    assert store.load_names()[4] == "Title 4 (t:4)"


def test_words_lie_where_the_phrase_encoder_reads_them(tiny_model: Path, tmp_path: Path) -> None:
    text = "Été, the mill 漢字 \N{ZERO WIDTH SPACE} stands. " + "word " * 30
    store = build_examples(
        TrainingText(lambda: [Document("a", "", text, "", "", "")], "a"),
        settings=make_settings(tiny_model),
        folder=tmp_path,
        num_workers=0,
        progress=SilentProgress(),
    )
    model = load_index_model(tiny_model)
    chunk = next(
        iter(
            chunk_document(
                text,
                document_ordinal=0,
                splitter=model.splitter,
                limits=make_settings(tiny_model).config,
            )
        )
    ).chunks[0]
    vectors = model.phrase_encoder.encode_chunks([chunk.text], [chunk.word_spans()])[0]
    example = store.get(0)
    is_barred = (example.word_flags & BARRED) > 0
    assert is_barred[~vectors.has_piece].all()
    assert (~vectors.has_piece).any()
    import torch

    from cog.model.pieces import PieceBatch

    ids = torch.from_numpy(example.piece_ids.astype(np.int64))[None]
    states = model.phrase_encoder.hidden_states(
        PieceBatch(ids, torch.ones_like(ids), [np.zeros((0, 2), dtype=np.int64)], [False], 1)
    )[0]
    with torch.inference_mode():
        start = model.phrase_encoder.start(states[example.start_pieces.astype(np.int64)]).numpy()
        end = model.phrase_encoder.end(states[example.end_pieces.astype(np.int64)]).numpy()
    seen = vectors.has_piece
    np.testing.assert_allclose(start[seen], vectors.start[seen], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(end[seen], vectors.end[seen], rtol=1e-4, atol=1e-5)


def test_titles_with_line_separators_stay_whole(tiny_model: Path, tmp_path: Path) -> None:
    title = "a\u2028b\x85c\x1cd"
    documents = [Document("i", title, "One text of a few words.", "", "", "f:1")] * 2
    store = build_examples(
        TrainingText(lambda: documents, "titles"),
        settings=make_settings(tiny_model),
        folder=tmp_path,
        num_workers=0,
        progress=SilentProgress(),
    )
    assert store.load_names() == [f"{title} (f:1)"] * 2


def test_examples_are_made_once(tiny_model: Path, tmp_path: Path) -> None:
    first = make_store(tiny_model, tmp_path)

    def refuse() -> list[Document]:
        raise AssertionError("read again")

    again = build_examples(
        TrainingText(refuse, "village-12"),
        settings=make_settings(tiny_model),
        folder=tmp_path,
        num_workers=0,
        progress=SilentProgress(),
    )
    assert again.folder == first.folder
    (first.folder / ABOUT_FILE).rename(first.folder / "examples.json")  # as an older version did
    assert make_store(tiny_model, tmp_path).folder == first.folder
    assert not (first.folder / "examples.json").exists()
    other = build_examples(
        TrainingText(lambda: iter_village(12), "village-12"),
        settings=make_settings(tiny_model, max_chunk_tokens=24),
        folder=tmp_path,
        num_workers=0,
        progress=SilentProgress(),
    )
    assert other.folder != first.folder
    assert other.num_chunks > first.num_chunks


@pytest.mark.parametrize("texts", [[], ["", "x"]], ids=["none", "empty"])
def test_text_without_words_is_refused(tiny_model: Path, tmp_path: Path, texts: list[str]) -> None:
    documents = [Document(text, "", text, "", "", "") for text in texts]
    with pytest.raises(TrainingError, match="training needs text; found: no document"):
        build_examples(
            TrainingText(lambda: documents, "empty"),
            settings=make_settings(tiny_model),
            folder=tmp_path / "examples",
            num_workers=0,
            progress=SilentProgress(),
        )
    assert list((tmp_path / "examples").iterdir()) == []


def test_folder_that_holds_no_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="must hold training examples"):
        ExampleStore(tmp_path)
