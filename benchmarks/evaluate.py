"""Seconds per part of an evaluation, and of the same again from what is kept.

In a project with a built index: ``python -m benchmarks.evaluate [--corpus ID] [--prompts 16]``
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.evaluation.protocol import GROUPS, make_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.tracking import Tracker
from cog.params import load_params
from cog.paths import ProjectPaths, find_project
from cog.progress import SilentProgress


def time_evaluation(plan: Plan, paths: ProjectPaths) -> tuple[EvaluationResult, float]:
    """Evaluate and take the time.

    :param plan: What to evaluate.
    :param paths: The project.
    :returns: The result, and seconds.
    """
    began = time.perf_counter()
    result = evaluate(paths, load_params(paths.params), plan, SilentProgress())
    return result, time.perf_counter() - began


def link_project(paths: ProjectPaths, root: Path, corpus_id: str) -> ProjectPaths:
    """A project over the same index, in which nothing was evaluated yet.

    :param paths: The project.
    :param root: Where to.
    :param corpus_id: The corpus.
    :returns: The paths of the other project.
    """
    other = ProjectPaths(root)
    for name in ("params.yaml", "registry", "models"):
        (root / name).symlink_to(paths.root / name)
    target = other.corpus(corpus_id)
    target.root.mkdir(parents=True)
    for path in paths.corpus(corpus_id).root.iterdir():
        if path not in (paths.corpus(corpus_id).evaluations, paths.corpus(corpus_id).evaluation):
            (target.root / path.name).symlink_to(path)
    return other


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    project = find_project(ROOT)
    params = load_params(project.params)
    protocol = make_protocol("default", params.evaluate)
    plan = Plan(
        corpus_id=words.corpus,
        prompt_corpus_id=words.corpus,
        system="cog",
        decoding=params.generate.decoding,
        protocol=replace(protocol, num_prompts=words.prompts),
        groups=GROUPS,
        allow_few_texts=True,
        allow_contamination=True,
        device=words.device,
    )
    with TemporaryDirectory() as folder:
        paths = link_project(project, Path(folder), words.corpus)
        say(f"evaluating {words.prompts} prompts of {words.corpus}")
        first, seconds = time_evaluation(plan, paths)
        again, seconds_again = time_evaluation(plan, paths)
        began = time.perf_counter()
        Tracker(paths, "benchmark").log_result(first)
        seconds_logged = time.perf_counter() - began
    report(
        {
            "benchmark": "evaluate",
            "corpus": words.corpus,
            "prompts": words.prompts,
            "tokens": protocol.generation_tokens,
            "seconds": seconds,
            "seconds_per_part": first.seconds,
            "seconds_again": seconds_again,
            "seconds_per_part_again": again.seconds,
            "seconds_logged": seconds_logged,
            "peak_bytes": peak_bytes(),
        }
    )


if __name__ == "__main__":
    main()
