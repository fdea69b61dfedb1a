"""Stage ``evaluate``: a corpus goes in, its scored result comes out, on disk and in MLflow."""

import json
import math
from collections.abc import Sequence

from cog.atomic import write_text_atomically
from cog.corpus.documents import NO_PROMPTS, load_prompts
from cog.evaluation.planning import Wanted, make_plan
from cog.evaluation.records import Score
from cog.evaluation.runner import evaluate
from cog.evaluation.store import write_result
from cog.evaluation.tracking import Tracker, choose_uri
from cog.params import Params
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import Progress

EXPERIMENT = "evaluate"


def evaluate_corpus(
    paths: ProjectPaths, corpus_id: str, params: Params, progress: Progress
) -> None:
    """Evaluate a corpus on its own prompts as params.yaml says.

    The result lies in ``evaluation.json`` and in MLflow, its scores in what DVC compares and plots;
    of a corpus that holds out no prompt the first is empty, and there are no scores.
    """
    corpus = paths.corpus(corpus_id)
    if not load_prompts(corpus.prompts):
        progress.say(f"{corpus_id} {NO_PROMPTS}: nothing is evaluated")
        corpus.evaluation.write_text("", encoding="utf-8")
        _write_scores(corpus, ())
        return
    choose_uri(paths)  # refused before anything is written
    result = evaluate(paths, params, make_plan(params, Wanted(corpus_id=corpus_id)), progress)
    Tracker(paths, EXPERIMENT).log_result(result)
    write_result(corpus.evaluation, result)
    _write_scores(corpus, result.scores)


def _write_scores(corpus: CorpusPaths, scores: Sequence[Score]) -> None:
    # numbers that are none, such as a perplexity of nothing, are no JSON
    known = [metric for metric in scores if math.isfinite(metric.mean)]
    means = {metric.name: metric.mean for metric in known}
    rows = [
        {"metric": metric.name, "score": metric.mean, "low": metric.low, "high": metric.high}
        for metric in known
    ]
    write_text_atomically(corpus.metrics, json.dumps(means, indent=2) + "\n")
    write_text_atomically(corpus.scores, json.dumps(rows, indent=2) + "\n")
