"""kNN-LM against plain loops, and the datastore's refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cog.baselines.datastore import (
    build_corpus_datastore,
    iter_windows,
    load_keys,
    load_tokens,
)
from cog.baselines.knn_lm import interpolate, open_knn_lm, weigh_neighbours
from cog.baselines.manifest import load_datastore_manifest
from cog.baselines.transformer import TransformerGenerator
from cog.corpus.documents import DocumentStore
from cog.decoding.request import Request, encode_prefix
from cog.errors import GenerationError, IndexingError, IndexMismatchError, IndexNotBuiltError
from cog.model.load import CogModel
from cog.params import DatastoreParams, load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import Decoding
from tests.choices import Choices, assert_same_choices, record_choices
from tests.model_fixtures import WIDTH

LENGTHS = DatastoreParams(context_tokens=8, overlap_tokens=3, batch_tokens=64)
NUCLEUS = Decoding("nucleus", 0.95, 0, 16, 16, 0.0)
REQUESTS = [Request(prefix, NUCLEUS) for prefix in ("The mill", "A bridge over the river", "")]


def knn(k: int, weight: float, scale: float, temperature: float = 1.0) -> DatastoreParams:
    return DatastoreParams(top_k=k, weight=weight, distance_scale=scale, temperature=temperature)


@pytest.mark.parametrize("num_tokens", [1, 2, 7, 8, 9, 12, 13, 14, 40])
def test_every_token_is_the_target_of_exactly_one_entry(num_tokens: int) -> None:
    ids = list(range(100, 100 + num_tokens))
    windows = list(iter_windows(ids, begin=[1], settings=LENGTHS))
    targets = [t for w in windows for t in w.token_ids[1:][w.num_context :]]
    assert targets == ids
    assert all(len(w.token_ids) - 1 <= LENGTHS.context_tokens for w in windows)
    assert all(w.num_context == LENGTHS.overlap_tokens for w in windows[1:])


def test_entries_are_states_and_next_tokens(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    folder = knn_village.corpus("village").datastore
    manifest = load_datastore_manifest(knn_village, "village", model=tiny_cog_model.fingerprint)
    keys = load_keys(folder, num_entries=manifest.num_entries, dim=manifest.dim)
    tokens = load_tokens(folder, num_entries=manifest.num_entries)
    documents = list(DocumentStore(knn_village.corpus("village").documents).iter_documents())
    encoder, splitter = tiny_cog_model.prefix_encoder, tiny_cog_model.splitter
    assert manifest.num_entries == sum(len(splitter.encode(each.text)) for each in documents)
    shortest = min(documents, key=lambda each: len(splitter.encode(each.text)))
    begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
    ids = begin + splitter.encode(shortest.text).tolist()[:20]
    states = encoder.append(encoder.new_cache(batch=1, capacity=64), [ids])
    for position in range(len(begin), len(ids)):
        wanted = states[position - 1].numpy()
        distances = ((keys.astype(np.float32) - wanted) ** 2).sum(axis=1)
        nearest = int(distances.argmin())
        assert distances[nearest] < 1e-3
        assert ids[position] in tokens[distances < distances[nearest] + 1e-3]


def test_weights_and_mixture_equal_a_plain_loop() -> None:
    random = np.random.default_rng(0)
    distances = random.uniform(0, 50, (3, 6)).astype(np.float32)
    distances[1, 4:] = np.inf
    tokens = random.integers(0, 5, (3, 6)).astype(np.int32)
    model = torch.from_numpy(random.uniform(0.1, 1.0, (3, 9)).astype(np.float32))
    settings = knn(6, 0.3, 0.1, temperature=2.0)
    found = interpolate(
        model,
        torch.from_numpy(tokens.astype(np.int64)),
        torch.from_numpy(weigh_neighbours(distances, settings=settings)),
        share=settings.weight,
    )
    for i in range(3):
        masses = [np.exp(-0.1 * float(d) / 2.0) for d in distances[i]]
        for token in range(9):
            near = sum(m for m, t in zip(masses, tokens[i], strict=True) if t == token)
            language = float(model[i, token]) / float(model[i].sum())
            wanted = 0.7 * language + 0.3 * near / sum(masses)
            assert float(found[i, token]) / float(found[i].sum()) == pytest.approx(wanted, rel=1e-5)


def test_without_weight_it_is_the_transformer_token_for_token(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    params = load_params(knn_village.params).datastore

    def choices(weight: float) -> list[Choices]:
        settings = replace(params, weight=weight)
        with record_choices() as found:
            open_knn_lm(knn_village, "village", model=tiny_cog_model, settings=settings).generate(
                REQUESTS
            )
        return found

    with record_choices() as plain:
        TransformerGenerator(tiny_cog_model, corpus_id="village").generate(REQUESTS)
    assert_same_choices(choices(0.0), plain)
    for mixed, alone in zip(choices(0.9), plain, strict=True):
        assert np.abs(mixed.probabilities[0] - alone.probabilities[0]).max() > 0.05


def test_a_known_prefix_is_continued_by_what_followed_it(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    document = next(DocumentStore(knn_village.corpus("village").documents).iter_documents())
    chars = tiny_cog_model.splitter.token_chars(document.text)
    prefix, wanted = document.text[: chars[9][1]], document.text[chars[9][1] : chars[13][1]]
    params = load_params(knn_village.params).datastore
    sure = replace(params, weight=1.0, top_k=1)
    generator = open_knn_lm(knn_village, "village", model=tiny_cog_model, settings=sure)
    decoding = replace(NUCLEUS, method="greedy", max_new_tokens=4)
    request = Request(prefix, decoding)
    ids = encode_prefix(request, tiny_cog_model)
    encoder = tiny_cog_model.prefix_encoder
    read = ids + tiny_cog_model.splitter.encode(wanted).tolist()[:3]
    states = encoder.append(encoder.new_cache(batch=1, capacity=64), [read])[len(ids) - 1 :]
    distances, _ = generator.find_neighbours(states, top_k=2)
    assert (distances[:, 1] > distances[:, 0] + 1e-4).all()  # float16 keys err by 1e-6
    assert generator.generate([request])[0].text == wanted


def test_a_missing_neighbour_has_no_weight() -> None:
    distances = np.array([[1.0, np.inf, 2.0]], np.float32)
    weights = weigh_neighbours(distances, settings=knn(3, 0.5, 0.1))
    assert weights[0, 1] == 0.0
    assert weights.sum() == pytest.approx(1.0)


def test_nan_distances_are_refused() -> None:
    with pytest.raises(GenerationError, match="NaN"):
        weigh_neighbours(np.array([[1.0, np.nan]], np.float32), settings=knn(2, 0.5, 0.1))


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_state_without_neighbours_keeps_the_distribution_of_the_model(share: float) -> None:
    settings = knn(2, share, 0.1)
    distances = np.array([[np.inf, np.inf], [1.0, 2.0]], np.float32)
    found = weigh_neighbours(distances, settings=settings)
    assert found[0].tolist() == [0.0, 0.0]
    model = torch.tensor([[0.2, 0.6, 0.4], [0.2, 0.6, 0.4]])
    mixed = interpolate(
        model, torch.zeros(2, 2, dtype=torch.long), torch.from_numpy(found), share=share
    )
    assert (mixed[0] / mixed[0].sum()).tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 3])
    assert mixed[1].argmax() == 0


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales_give_probabilities(scale: float) -> None:
    settings = knn(3, 0.5, scale)
    found = weigh_neighbours(np.array([[2.0, 3.0, np.inf]], np.float32), settings=settings)
    assert found.sum() == pytest.approx(1.0)
    assert found[0].tolist() == pytest.approx([1.0, 0.0, 0.0] if scale > 1 else [0.5, 0.5, 0.0])


def test_numbers_that_are_none_are_refused_in_one_line(
    knn_village: ProjectPaths, tiny_cog_model: CogModel, tmp_path: Path
) -> None:
    settings = load_params(knn_village.params).datastore
    sound = open_knn_lm(knn_village, "village", model=tiny_cog_model, settings=settings)
    width, size = WIDTH, 20
    states, weights = torch.zeros(1, width), torch.ones(1, size)
    with pytest.raises(GenerationError, match="a hidden state must be finite"):
        sound.blend(states * torch.nan, weights)
    with pytest.raises(GenerationError, match="the interpolated distribution must be finite"):
        sound.blend(states, torch.full((1, 512), torch.nan))
    paths = ProjectPaths(tmp_path / "own")
    shutil.copytree(knn_village.root, paths.root)
    file = paths.corpus("village").datastore / "keys.f16"
    keys = np.fromfile(file, np.float16)
    keys[width:] = np.nan  # all but one, fewer than the neighbours of a step
    keys.tofile(file)
    broken = open_knn_lm(paths, "village", model=tiny_cog_model, settings=settings)
    with pytest.raises(GenerationError, match="NaN among the keys; next: cog paper datastore"):
        broken.generate(REQUESTS)


@pytest.mark.parametrize("changes", [{"temperature": 1e-300}, {"distance_scale": 1e-40}])
def test_settings_that_cannot_be_used_are_refused(
    knn_village: ProjectPaths, tiny_cog_model: CogModel, changes: dict[str, float]
) -> None:
    settings = replace(load_params(knn_village.params).datastore, **changes)
    with pytest.raises(GenerationError, match="over datastore.temperature must lie from 1e-30 to"):
        open_knn_lm(knn_village, "village", model=tiny_cog_model, settings=settings)


def test_windows_longer_than_the_model_can_read_are_refused(knn_village: ProjectPaths) -> None:
    params = load_params(knn_village.params)
    long = replace(params, datastore=replace(params.datastore, context_tokens=100_000))
    with pytest.raises(IndexingError, match=r"at most \d+, which models/tiny can read"):
        build_corpus_datastore(
            knn_village, "village", params=long, progress=SilentProgress(), device="cpu"
        )


def test_a_corpus_smaller_than_k_is_refused(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    params = load_params(knn_village.params).datastore
    with pytest.raises(GenerationError, match="1000000 neighbours"):
        open_knn_lm(
            knn_village, "village", model=tiny_cog_model, settings=replace(params, top_k=1000000)
        )


def test_a_datastore_of_another_model_or_other_documents_is_refused(
    knn_village: ProjectPaths, tiny_cog_model: CogModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(IndexMismatchError, match="one of model ffff"):
        load_datastore_manifest(knn_village, "village", model="f" * 64)
    monkeypatch.setattr(
        "cog.baselines.manifest.find_documents_digest", lambda corpus_paths: "e" * 64
    )
    with pytest.raises(IndexMismatchError, match="one of documents eeee"):
        load_datastore_manifest(knn_village, "village", model=tiny_cog_model.fingerprint)


def test_a_missing_or_damaged_datastore_names_the_command(
    knn_village: ProjectPaths, tiny_cog_model: CogModel, tmp_path: Path
) -> None:
    paths = ProjectPaths(tmp_path)

    def load() -> None:
        load_datastore_manifest(paths, "village", model=tiny_cog_model.fingerprint)

    with pytest.raises(IndexNotBuiltError, match="cog paper datastore build village"):
        load()
    damaged = paths.corpus("village").datastore
    shutil.copytree(knn_village.corpus("village").datastore, damaged)
    (damaged / "keys.f16").write_bytes(b"12")
    with pytest.raises(IndexMismatchError, match="found: 2 bytes of keys.f16 instead of"):
        load()
    shutil.copy(knn_village.corpus("village").datastore / "keys.f16", damaged)
    (damaged / "tokens.i32").unlink()
    with pytest.raises(IndexMismatchError, match="found: 0 bytes of tokens.i32 instead of"):
        load()
    content = json.loads((damaged / "manifest.json").read_text())
    for change in ({"extra": 1}, {"search": {}}, {"search": None}, {"num_entries": "8"}):
        (damaged / "manifest.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(IndexMismatchError, match="complete manifest"):
            load()


def test_a_damaged_search_names_the_command(
    knn_village: ProjectPaths, tiny_cog_model: CogModel, tmp_path: Path
) -> None:
    paths = ProjectPaths(tmp_path / "own")
    shutil.copytree(knn_village.root, paths.root)
    params = load_params(paths.params).datastore
    manifest = paths.corpus("village").datastore / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "search": {**content["search"], "kind": "ivf-pq"}}))
    with pytest.raises(IndexMismatchError, match="readable search.faiss; .* build village"):
        open_knn_lm(paths, "village", model=tiny_cog_model, settings=params)


def test_two_builds_have_the_same_digest(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    before = load_datastore_manifest(knn_village, "village", model=tiny_cog_model.fingerprint)
    again = build_corpus_datastore(
        knn_village,
        "village",
        params=load_params(knn_village.params),
        progress=SilentProgress(),
        device="cpu",
    )
    assert again.digest == before.digest
    left = list(knn_village.corpus("village").root.glob(".datastore-*"))
    assert left == []
