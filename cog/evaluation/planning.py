"""What is evaluated: what a caller gives goes in; a plan with its settings, or a result, comes out.

The command line and Python both call this.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cog.atomic import write_text_atomically
from cog.baselines.system import COG, COPYING, SYSTEMS, BaselineOptions, resolve_system
from cog.baselines.systems import NO_OPTIONS, identify_system
from cog.corpus.documents import NO_PROMPTS, load_prompts
from cog.decoding.settings import METHOD, choose_settings, override_settings
from cog.decoding.tuning import get_command, load_tuning
from cog.errors import EvaluationError, GenerationError
from cog.evaluation.choose import Wish, choose_results, get_usual_decoding
from cog.evaluation.compare import Comparison, compare_results
from cog.evaluation.protocol import DEFAULT, GROUPS, PAPER_DECODING, make_protocol
from cog.evaluation.records import EvaluationResult, Score
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.store import write_result
from cog.evaluation.tracking import Run, Tracker, choose_uri
from cog.index.versions.unions import check_cards
from cog.params import Params
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import Progress
from cog.reading import FieldError, read_record
from cog.records import Decoding
from cog.registry import load_card


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a caller gives; None where params.yaml, or what was tuned, is taken."""

    corpus_id: str  # that is copied from, or several joined with `+`
    prompt_corpus_id: str | None = None  # whose prompts are continued; None for the same
    system: str = COG
    settings: Mapping[str, Any] = field(default_factory=dict)  # as in cog.decoding.settings
    is_untuned: bool = False  # what `cog tune` chose is left out
    protocol: str | None = None
    num_prompts: int | None = None
    seeds: tuple[int, ...] | None = None
    groups: tuple[str, ...] = ()  # all unless named
    allow_few_texts: bool = False  # MAUVE is computed on fewer than 50, too
    allow_contamination: bool = False
    device: str = "auto"


def evaluate_wanted(
    paths: ProjectPaths,
    params: Params,
    wanted: Wanted,
    *,
    experiment: str | None,
    progress: Progress,
) -> tuple[EvaluationResult, Run | None]:
    """Evaluate as a caller asks, and log the result to an experiment, or nowhere for None.

    Raises ``FieldError`` if a setting is unknown, cannot be used, or is fixed by the protocol; or
    if a union is not told whose prompts it continues.
    """
    if len(check_cards(paths, wanted.corpus_id)) > 1 and wanted.prompt_corpus_id is None:
        raise FieldError("prompts_of", wanted="is needed: a union holds out no prompts of its own")
    load_card(paths, wanted.prompt_corpus_id or wanted.corpus_id)
    if wanted.system not in SYSTEMS:
        raise EvaluationError(
            f"the system must be one of {', '.join(SYSTEMS)}",
            found=wanted.system,
            about=wanted.system,
        )
    params, options = _choose_params(paths, params, wanted, progress)
    plan = replace(make_plan(params, wanted), options=options)
    if experiment is not None:
        choose_uri(paths)  # refused before anything is written
    result = evaluate(paths, params, plan, progress)
    run = None if experiment is None else Tracker(paths, experiment).log_result(result)
    return result, run


def compare_wanted(
    paths: ProjectPaths, wish: Wish, *, metrics: Sequence[str], by_size: bool
) -> tuple[Comparison, list[EvaluationResult]]:
    """Put kept evaluations side by side, of all scores or some, perhaps by size of their index."""
    results = choose_results(paths, wish)
    if by_size:
        results.sort(key=lambda result: result.system.num_index_words)
    return compare_results(results, metrics=metrics), results


def make_plan(params: Params, wanted: Wanted) -> Plan:
    """Make a plan of what is asked and of params.yaml, whose ``generate`` is as chosen.

    A short name of settings has become what it stands for.
    """
    name = wanted.protocol or params.evaluate.protocol
    protocol = make_protocol(name, params.evaluate)
    usual = params.generate.decoding if name == DEFAULT else PAPER_DECODING
    decoding = replace(usual, method=wanted.settings.get(METHOD) or usual.method)
    system, decoding = resolve_system(wanted.system, decoding)
    changes = {"num_prompts": wanted.num_prompts, "seeds": wanted.seeds}
    given: dict[str, Any] = {each: value for each, value in changes.items() if value is not None}
    return Plan(
        corpus_id=wanted.corpus_id,
        prompt_corpus_id=wanted.prompt_corpus_id or wanted.corpus_id,
        system=system,
        decoding=decoding,
        protocol=replace(protocol, **given),
        groups=tuple(dict.fromkeys(wanted.groups)) or GROUPS,
        allow_few_texts=wanted.allow_few_texts,
        allow_contamination=wanted.allow_contamination,
        device=wanted.device,
    )


def _choose_params(
    paths: ProjectPaths, params: Params, wanted: Wanted, progress: Progress
) -> tuple[Params, Mapping[str, Any]]:
    # with the system's settings: what is given, else what was tuned for it, else params.yaml
    if (wanted.protocol or params.evaluate.protocol) != DEFAULT:
        # the published protocols fix what a text is decoded with
        for name in wanted.settings:
            if name != METHOD:
                raise FieldError(name, wanted=f"goes with protocol {DEFAULT} only")
        override_settings(PAPER_DECODING, wanted.settings)  # refuses what is no method
        return params, NO_OPTIONS
    usual = get_usual_decoding(params, wanted.system)
    options: Mapping[str, Any] = NO_OPTIONS
    if resolve_system(wanted.system, usual)[0] in COPYING:
        decoding, word = choose_settings(
            usual, paths.corpus(wanted.corpus_id), wanted.settings, is_untuned=wanted.is_untuned
        )
    else:
        decoding, options, word = _tune_baseline(paths, params, wanted, usual)
        decoding = override_settings(decoding, wanted.settings)
    if word:
        progress.say(word)
    return replace(params, generate=replace(params.generate, decoding=decoding)), options


def _tune_baseline(
    paths: ProjectPaths, params: Params, wanted: Wanted, usual: Decoding
) -> tuple[Decoding, Mapping[str, Any], str]:
    corpus_id, name = wanted.corpus_id, wanted.system
    tuning = None if wanted.is_untuned else load_tuning(paths.corpus(corpus_id), name)
    if tuning is None:
        return usual, NO_OPTIONS, ""
    reset = f"{get_command(corpus_id, name)} --reset"
    read_record(BaselineOptions, tuning.options, error=GenerationError, run=reset)
    now = identify_system(
        paths, params, corpus_id=corpus_id, name=name, decoding=usual, device=wanted.device
    )
    method = wanted.settings.get(METHOD, usual.method)
    return tuning.apply(usual, corpus_id=corpus_id, index=now.index, model=now.model, method=method)


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
