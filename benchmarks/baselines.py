"""CoG and the baselines against transformers' ``generate`` with the same weights, in one run.

kNN-LM searches a datastore of the size asked for: the states of real text, and mixtures of near
ones of them where the text does not suffice (the time of a search depends on number, width and
spread of the keys, not on what they say). RETRO searches the corpus's index; without a trained
adapter, one with open gates takes the same time. ``python -m benchmarks.baselines [--corpus ID]
[--systems transformer,retro]``
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedModel

from benchmarks.common import ROOT, report, say
from benchmarks.peer import load_network, run_peer
from cog.baselines.datastore import iter_entries
from cog.baselines.knn_lm import KnnGenerator
from cog.baselines.manifest import DatastoreManifest
from cog.baselines.neighbours import build_searcher, open_searcher
from cog.baselines.retro.adapter import make_adapter
from cog.baselines.retro.config import make_config
from cog.baselines.retro.folder import (
    CONFIG_FILE,
    get_adapter_folder,
    load_adapter,
    open_retro_index,
)
from cog.baselines.retro.generator import RetroGenerator
from cog.baselines.system import COG
from cog.baselines.systems import TextGenerator
from cog.baselines.transformer import TransformerGenerator
from cog.corpus.documents import DocumentStore, load_prompts
from cog.decoding.request import Request, encode_prefix
from cog.decoding.session import open_generator
from cog.model.load import CogModel, load_model
from cog.params import Params, load_params
from cog.paths import ProjectPaths, find_project
from cog.progress import SilentProgress


def make_keys(
    model: CogModel, paths: ProjectPaths, params: Params, options: argparse.Namespace
) -> tuple[NDArray[np.float16], NDArray[np.int32]]:
    """Real states, and mixtures of near ones up to the size asked for.

    :param model: The model.
    :param paths: The project.
    :param params: Its parameters.
    :param options: Corpus, number of real entries and of all.
    :returns: Keys of *Shape:* ``(num_entries, dim)`` and next tokens of *Shape:*
        ``(num_entries,)``
    """
    documents = DocumentStore(paths.corpus(options.corpus).documents).iter_documents()
    keys, tokens, num_real = [], [], 0
    for some, targets, _ in iter_entries(model, documents, settings=params.datastore):
        keys.append(some)
        tokens.append(targets)
        num_real += len(targets)
        if num_real >= options.real_entries:
            break
    real, real_tokens = np.concatenate(keys), np.concatenate(tokens)
    say(f"{num_real:,} entries of real text")
    random = np.random.default_rng(0)
    first = random.integers(0, num_real, options.entries)
    second = np.clip(first + random.integers(-3, 4, options.entries), 0, num_real - 1)
    share = random.random((options.entries, 1), dtype=np.float32) / 2
    mixed = np.empty((options.entries, real.shape[1]), np.float16)
    for begin in range(0, options.entries, 65536):
        block = slice(begin, begin + 65536)
        near = real[first[block]].astype(np.float32)
        mixed[block] = near + share[block] * (real[second[block]].astype(np.float32) - near)
    return mixed, real_tokens[first]


def make_knn_lm(
    model: CogModel, paths: ProjectPaths, params: Params, options: argparse.Namespace
) -> tuple[KnnGenerator, dict[str, object]]:
    """A kNN-LM on a datastore of the size asked for.

    :param model: The model.
    :param paths: The project.
    :param params: Its parameters.
    :param options: Corpus and sizes.
    :returns: The generator, and what its search is.
    """
    keys, tokens = make_keys(model, paths, params, options)
    search = replace(params.datastore, min_recall=0.0)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = build_searcher(Path(folder), keys, settings=search, progress=SilentProgress())
        say(f"search of {len(keys):,} entries: {found}")
        searcher = open_searcher(Path(folder), keys, kind=str(found["kind"]), settings=search)
    manifest = DatastoreManifest(
        1, options.corpus, "", "", model.fingerprint, len(keys), keys.shape[1], {}, found, {}
    )
    generator = KnnGenerator(model, manifest, searcher=searcher, tokens=tokens, settings=search)
    return generator, {**found, "seconds": round(time.perf_counter() - began, 1)}


@contextmanager
def open_retro(paths: ProjectPaths, params: Params, corpus_id: str) -> Iterator[RetroGenerator]:
    """RETRO on the index of a corpus, with a model of its own.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus.
    :yields: The generator.
    """
    model = load_model(paths.model(params.model))
    folder = get_adapter_folder(paths, corpus_id)
    if (folder / CONFIG_FILE).is_file():
        adapter = load_adapter(folder, model=model.fingerprint)
    else:
        say(f"no adapter in {folder.name}: one that was not trained is timed")
        adapter = make_adapter(make_config(model, params.retro), seed=0)
        for name, parameter in adapter.named_parameters():
            if name.endswith(".gate"):
                nn.init.constant_(parameter, 0.1)
    with open_retro_index(paths, params, corpus_id) as index:
        yield RetroGenerator(model, index, adapter=adapter)


def compare(
    systems: dict[str, TextGenerator],
    peer: PreTrainedModel,
    *,
    model: CogModel,
    requests: list[Request],
    rounds: int,
) -> dict[str, object]:
    """Run all systems on the same prompts, in turn.

    :param systems: Ours, by name.
    :param peer: Plain transformers.
    :param model: Tokenises for the peer.
    :param requests: The prompts, decoded as one batch.
    :param rounds: Number of rounds after one that warms up.
    :returns: Tokens per second of all, ratios to the peer, and of CoG to every other.
    """
    num_tokens = sum(request.decoding.max_new_tokens for request in requests)
    speeds: dict[str, list[float]] = {name: [] for name in (*systems, "generate")}
    for number in range(rounds + 1):
        seeded = [replace(each, decoding=replace(each.decoding, seed=number)) for each in requests]
        for name, system in systems.items():
            began = time.perf_counter()
            system.generate(seeded)
            speeds[name].append(num_tokens / (time.perf_counter() - began))
        began = time.perf_counter()
        ids = [encode_prefix(request, model) for request in seeded]
        tokenised = time.perf_counter() - began
        seconds = tokenised + run_peer(peer, ids, seeded[0].decoding)
        speeds["generate"].append(num_tokens / seconds)
        say(f"batch {len(requests)}: " + ", ".join(f"{n} {s[-1]:.1f}" for n, s in speeds.items()))
    warm = {name: found[1:] for name, found in speeds.items()}
    others = [name for name in warm if name != COG and COG in warm]
    return {
        "tokens_per_second": {name: statistics.median(found) for name, found in warm.items()},
        "ratio": {name: get_ratio(warm[name], warm["generate"]) for name in systems},
        "cog_ratio": {name: get_ratio(warm[COG], warm[name]) for name in others},
    }


def get_ratio(ours: list[float], theirs: list[float]) -> float:
    """Relate two systems round by round, since what else the machine does changes with time.

    :param ours: Tokens per second of one, by round.
    :param theirs: Of the other.
    :returns: The median of the rounds' ratios; above 1 if the first is faster.
    """
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    """Measure batch 1 and a large batch and print ratios of speed (larger is better)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--prompts", type=int, default=16, help="size of the large batch")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--real-entries", type=int, default=30_000)
    parser.add_argument("--systems", default="cog,transformer,knn-lm,retro")
    options = parser.parse_args()
    paths = find_project(ROOT)
    params = load_params(paths.params)
    folder = paths.model(params.model)
    model = load_model(folder)
    decoding = replace(
        params.generate.decoding, method="nucleus", max_new_tokens=options.new_tokens
    )
    prompts = load_prompts(paths.corpus(options.corpus).prompts)[: options.prompts]
    requests = [Request(prompt.prefix, decoding) for prompt in prompts]
    wanted = options.systems.split(",")
    peer = load_network(folder).eval()
    systems: dict[str, TextGenerator] = {}
    search: dict[str, object] = {}
    with ExitStack() as stack:
        if COG in wanted:
            opened = open_generator(paths, params, corpus_id=options.corpus, device="cpu")
            systems[COG] = stack.enter_context(opened)
        if "transformer" in wanted:
            systems["transformer"] = TransformerGenerator(model, corpus_id=options.corpus)
        if "knn-lm" in wanted:
            systems["knn-lm"], search = make_knn_lm(model, paths, params, options)
        if "retro" in wanted:
            systems["retro"] = stack.enter_context(open_retro(paths, params, options.corpus))
        results = {
            f"batch_{len(some)}": compare(
                systems, peer, model=model, requests=some, rounds=options.rounds
            )
            for some in (requests[:1], requests)
        }
    report(
        {
            "benchmark": "baselines",
            "entries": options.entries,
            "search": search,
            "new_tokens": options.new_tokens,
            **results,
        }
    )


if __name__ == "__main__":
    main()
