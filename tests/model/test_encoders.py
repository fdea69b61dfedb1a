"""The phrase encoder and the retriever against plain loops over transformers' own output."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from cog.model.load import IndexModel, load_index_model
from cog.model.pieces import encode_pieces

TEXTS = [
    "The river runs through the valley.",
    " Bread and salt",
    "the baker of the village sells bread",
]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> IndexModel:
    return load_index_model(tiny_model)


def word_spans(model: IndexModel, text: str) -> np.ndarray:
    chars = model.splitter.split(text).word_chars
    spans = np.stack([chars[:-1], chars[1:]], axis=1)
    for span in spans:
        if text[span[0]] == " " and span[1] - span[0] > 1:
            span[0] += 1
    return spans.astype(np.int32)


def head(layers: torch.nn.Module, state: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        hidden = torch.nn.functional.gelu(state @ layers.l1.weight.T + layers.l1.bias)
        return (hidden @ layers.l2.weight.T + layers.l2.bias).numpy()


def test_vectors_are_read_at_first_and_last_overlapping_piece(
    model: IndexModel, tiny_model: Path
) -> None:
    spans = [word_spans(model, text) for text in TEXTS]
    vectors = model.phrase_encoder.encode_chunks(TEXTS, spans)
    plain = AutoModel.from_pretrained(tiny_model / "phrase", add_pooling_layer=False).eval()
    tokenizer = model.phrase_encoder._tokenizer
    for text, chunk_spans, found in zip(TEXTS, spans, vectors, strict=True):
        encoding = tokenizer.encode(text)
        with torch.no_grad():
            states = plain(torch.tensor([encoding.ids])).last_hidden_state[0]
        for k, (begin, end) in enumerate(chunk_spans):
            pieces = [
                i
                for i, (a, b) in enumerate(encoding.offsets)
                if a < end and b > begin and encoding.ids[i] not in (2, 3)
            ]
            assert found.has_piece[k] == bool(pieces)
            np.testing.assert_allclose(
                found.start[k], head(model.phrase_encoder.start, states[pieces[0]]), atol=1e-5
            )
            np.testing.assert_allclose(
                found.end[k], head(model.phrase_encoder.end, states[pieces[-1]]), atol=1e-5
            )


def test_words_beyond_the_limit_have_no_piece(tiny_model: Path) -> None:
    model = load_index_model(tiny_model)
    model.phrase_encoder._max_pieces = 3
    text = "bread and salt and flour and water"
    found = model.phrase_encoder.encode_chunks([text], [word_spans(model, text)])[0]
    assert found.has_piece[0]
    assert not found.has_piece[-1]
    assert found.start.shape == (7, 8)


def test_no_chunks_give_no_vectors(model: IndexModel) -> None:
    assert model.phrase_encoder.encode_chunks([], []) == []
    assert model.retriever.encode_texts([]).shape == (0, 16)


def test_retriever_averages_over_the_mask_and_normalises(
    model: IndexModel, tiny_model: Path
) -> None:
    vectors = model.retriever.encode_texts([*TEXTS, ""])
    plain = AutoModel.from_pretrained(tiny_model / "phrase", add_pooling_layer=False).eval()
    for text, vector in zip(TEXTS, vectors, strict=False):
        ids = model.retriever._tokenizer.encode(text).ids
        with torch.no_grad():
            mean = plain(torch.tensor([ids])).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).numpy(), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_long_text_is_read_from_its_end(model: IndexModel) -> None:
    batch = encode_pieces(
        model.retriever._tokenizer, ["bread and salt"], max_pieces=1, keep_last=True
    )
    whole = model.retriever._tokenizer.encode("bread and salt").ids
    assert batch.ids[0].tolist() == [2, whole[-2], 3]
    assert batch.is_cut == [True]


def test_pieces_are_counted_as_they_are_read(model: IndexModel) -> None:
    counts = model.phrase_encoder.count_pieces(TEXTS)
    expected = [len(model.phrase_encoder._tokenizer.encode(text).ids) for text in TEXTS]
    assert counts.tolist() == expected
