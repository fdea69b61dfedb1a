"""Generation against transformers' ``generate``, and llama.cpp where it is installed.

The same prefix encoder and prompts, caches on, retrieval and gathering counted, at the defaults of
params.yaml; transformers in float32, llama.cpp in the four bits of the packaged file. In a project
with a built index: ``python -m benchmarks.decode [--corpus wiki-mini] [--prompts 16]``
"""

import argparse
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace

import torch
from transformers import PreTrainedModel

from benchmarks.common import ROOT, peak_bytes, report, say
from benchmarks.llama import LlamaPeer, open_llama
from benchmarks.peer import load_network, run_peer
from cog.corpus.documents import load_prompts
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.decoding.session import open_generator
from cog.model.config import load_config
from cog.model.load import resolve_device
from cog.model.matrices import choose_precision
from cog.params import load_params
from cog.paths import find_project
from cog.records import FLOAT32, Generation


def compare(
    generator: CopyGenerator,
    peer: PreTrainedModel,
    llama: LlamaPeer | None,
    requests: list[Request],
    *,
    rounds: int,
) -> dict[str, object]:
    """Run all on the same prompts, in turn.

    :param generator: Ours.
    :param peer: The peer.
    :param llama: Another one, for a single prompt; None to leave it out.
    :param requests: The prompts, decoded as one batch.
    :param rounds: Number of runs of each.
    :returns: Tokens per second of all, their ratios, and what ours is made of.
    """
    num_tokens = sum(request.decoding.max_new_tokens for request in requests)
    speeds: dict[str, list[float]] = {"cog": [], "transformers": [], "llama": []}
    texts = []
    for number in range(rounds + 1):
        seeded = [
            replace(request, decoding=replace(request.decoding, seed=number))
            for request in requests
        ]
        decoding = seeded[0].decoding
        began = time.perf_counter()
        generations = generator.generate(seeded)
        seconds = {"cog": time.perf_counter() - began}
        began = time.perf_counter()
        ids = [generator.prefix_ids(request) for request in seeded]
        tokenised = time.perf_counter() - began
        seconds["transformers"] = tokenised + run_peer(peer, ids, decoding)
        if llama is not None:
            seconds["llama"] = tokenised + llama.run(ids[0], decoding)
        told = ", ".join(f"{name} {num_tokens / each:.1f}" for name, each in seconds.items())
        say(f"batch {len(requests)}, tokens/s: {told}")
        if number:  # the first round warms up
            for name, each in seconds.items():
                speeds[name].append(num_tokens / each)
            texts.extend(generations)
    found: dict[str, object] = {"tokens_per_second": statistics.median(speeds["cog"])}
    for name, prefix, suffix in (("transformers", "peer_", ""), ("llama", "llama_", "_llama")):
        if speeds[name]:
            ratios = [a / b for a, b in zip(speeds["cog"], speeds[name], strict=True)]
            found[f"ratio{suffix}"] = statistics.median(ratios)
            found[f"ratios{suffix}"] = ratios
            found[f"{prefix}tokens_per_second"] = statistics.median(speeds[name])
    return found | describe(texts)


def describe(texts: list[Generation]) -> dict[str, object]:
    """What generations are made of.

    :param texts: The generations.
    :returns: Steps, share of copied steps, and seconds per part and text.
    """
    steps = [text.num_steps for text in texts]
    copied = [sum(segment.origin == "corpus" for segment in text.segments) for text in texts]
    parts = {
        part: statistics.mean(text.seconds[part] for text in texts) for part in texts[0].seconds
    }
    return {
        "steps_per_text": statistics.mean(steps),
        "tokens_per_step": sum(text.num_tokens for text in texts) / sum(steps),
        "tokens_per_pass": sum(text.num_tokens for text in texts)
        / sum(text.num_passes for text in texts),
        "copied_steps": sum(copied) / sum(steps),
        "seconds_per_text": parts,
        "gather_share": parts["gather"] / sum(parts.values()),
    }


def main() -> None:
    """Measure batch 1 and batch 16 and print the ratios (ours over the peer; larger is better).

    At the project's precision, and where that is another, at float32 too (``_float32``).
    """
    options = parse_options()
    torch.set_num_threads(options.threads)

    paths = find_project(ROOT)
    params = load_params(paths.params)
    decoding = replace(params.generate.decoding, method=options.decoding)
    prompts = load_prompts(paths.corpus(options.corpus).prompts)[: options.prompts]
    requests = [Request(prompt.prefix, decoding) for prompt in prompts]
    folder = paths.model(params.model)
    default = choose_precision(params.generate.precision, resolve_device(options.device))
    peer: PreTrainedModel | None = None
    llama: LlamaPeer | None = None
    with ExitStack() as stack:
        if options.device == "cpu":
            base = load_config(folder).prefix_base
            llama = stack.enter_context(
                open_llama(base, python=options.llama_python, threads=options.threads)
            )
        result: dict[str, object] = {
            "benchmark": "decode",
            "precision": default,
            "device": options.device,
            "llama": llama and llama.about,
        }
        for precision in dict.fromkeys((default, FLOAT32)):
            suffix = "" if precision == default else f"_{precision}"
            params = replace(params, generate=replace(params.generate, precision=precision))
            with open_generator(
                paths, params, corpus_id=options.corpus, device=options.device
            ) as generator:
                loaded = peak_bytes()
                generator.generate(requests)
                if peer is None:
                    result["bytes"] = measure_bytes(generator, requests, loaded=loaded)
                    peer = load_network(folder).eval().to(options.device)
                    if options.device == "cuda":  # as anybody runs it there
                        peer = peer.to(torch.bfloat16)
                for batch in dict.fromkeys((1, len(requests))):
                    also = llama if batch == 1 else None
                    found = compare(generator, peer, also, requests[:batch], rounds=options.rounds)
                    result[f"ratio_batch_{batch}{suffix}"] = found["ratio"]
                    result[f"batch_{batch}{suffix}"] = found
                    if batch == 1:
                        result[f"ratio_llama_1{suffix}"] = found.get("ratio_llama")
    report(result | {"corpus": options.corpus, "decoding": asdict(decoding)})


def parse_options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--prompts", type=int, default=16, help="size of the large batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--decoding", default="nucleus", choices=["nucleus", "greedy"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python"
    )
    options = parser.parse_args()
    if shutil.which(options.llama_python) is None:
        parser.error(f"--llama-python must be an interpreter; found: {options.llama_python}")
    return options


def measure_bytes(
    generator: CopyGenerator, requests: list[Request], *, loaded: int
) -> dict[str, int]:
    """What memory generating took, before anything else was loaded.

    :param generator: Ours, which has written the requests.
    :param requests: The prompts.
    :param loaded: Peak once it was loaded.
    :returns: Bytes by what they are of.
    """
    generated = peak_bytes()
    candidates = generator.pools.get_pool(requests[0])[0].num_bytes
    return {
        "peak_loaded": loaded,
        "peak_generating": generated,
        "candidates_per_prompt": candidates,
        "beside_candidates": generated - len(requests) * candidates,
    }


if __name__ == "__main__":
    main()
