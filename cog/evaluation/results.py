"""Evaluations at rest: a result goes in, and comes out again to be compared with others."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cog.atomic import write_text_atomically
from cog.baselines.identity import identify_system
from cog.baselines.knn_tuned import apply_knn_tuning
from cog.baselines.names import COG, KNN_LM
from cog.errors import EvaluationError, advise_on_writing
from cog.evaluation.records import EvaluationResult, MetricValue, parse_result
from cog.index.versions.unions import get_digest, shorten_digest
from cog.params import load_params
from cog.paths import CorpusPaths, ProjectPaths


def result_name(result: EvaluationResult) -> str:
    """Name the file of a result: one per system, index, prompts and protocol.

    :param result: The result.
    :returns: A file name.
    """
    parts = (result.system, result.prompt_corpus, result.index[:12], result.model[:8])
    return "_".join((*parts, result.protocol.digest[:12])) + ".json"


def save_result(corpus_paths: CorpusPaths, result: EvaluationResult) -> EvaluationResult:
    """Keep a result; scores of the same evaluation that it lacks are taken over from before.

    :param corpus_paths: The corpus that was copied from.
    :param result: The result.
    :returns: What was kept.
    :raises EvaluationError: If it cannot be written.
    """
    path = corpus_paths.evaluations / result_name(result)
    if path.is_file():
        try:
            before = load_result(path)
        except EvaluationError:
            before = result
        if before.seeds == result.seeds:
            result = replace(result, metrics=_join_metrics(before.metrics, result.metrics))
    write_result(path, result)
    return result


def write_result(path: Path, result: EvaluationResult) -> None:
    """Write a result.

    :param path: The file.
    :param result: The result.
    :raises EvaluationError: If it cannot be written.
    """
    try:
        write_text_atomically(path, json.dumps(result.to_json(), ensure_ascii=False, indent=1))
    except OSError as error:
        raise EvaluationError(
            f"the evaluation must be written to {path.parent}",
            found=f"{error.strerror or error}; all texts are kept",
            run=f"{advise_on_writing(error)}, then run the same command again",
            about=str(path),
        ) from error


def load_result(path: Path) -> EvaluationResult:
    """Read a result.

    :param path: The file.
    :returns: The result.
    :raises EvaluationError: If it is no result of this version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"{path.name} must be an evaluation", found=str(error), run="cog evaluate --corpus ID"
        ) from error
    return parse_result(content, where=path.name)


def load_results(paths: ProjectPaths, corpus_id: str) -> list[EvaluationResult]:
    """Read all results of a corpus, of whatever index, system and protocol.

    :param paths: The project.
    :param corpus_id: The corpus that was copied from.
    :returns: The results, newest first; the pipeline's is among them.
    :raises EvaluationError: If there is none, or none of this version.
    """
    corpus_paths = paths.corpus(corpus_id)
    files = [*sorted(corpus_paths.evaluations.glob("*.json")), corpus_paths.evaluation]
    found: dict[str, EvaluationResult] = {}
    problem: EvaluationError | None = None
    for path in files:
        if path.is_file() and path.stat().st_size:  # the pipeline's is empty without prompts
            try:
                result = load_result(path)
            except EvaluationError as error:
                problem = error
                continue
            name = result_name(result)
            if name not in found or found[name].created_at < result.created_at:
                found[name] = result
    if not found:
        raise problem or EvaluationError(
            f"{corpus_id} must have been evaluated",
            found="no evaluation",
            run=f"cog evaluate --corpus {corpus_id}",
            about=corpus_id,
        )
    return sorted(found.values(), key=lambda result: result.created_at, reverse=True)


def check_current(paths: ProjectPaths, result: EvaluationResult) -> None:
    """Refuse a result of an index, or a datastore, that was built again since.

    :param paths: The project.
    :param result: The result.
    :raises EvaluationError: If the corpus's index is another one now.
    """
    current = get_current_indexes(paths, result.corpus, system=result.system)
    if result.index not in current:
        searched = ", or searched with other settings" if result.system == KNN_LM else ""
        raise EvaluationError(
            f"the evaluation of {result.corpus} must be of its index "
            f"{shorten_digest(current[0], 12)}",
            found=f"{shorten_digest(result.index, 12)}, which was built again since{searched}",
            run=f"cog evaluate --corpus {result.corpus}{name_system(result.system)}",
            about=result.corpus,
        )


def name_system(system: str) -> str:
    """The option of ``cog evaluate`` that names a system.

    :param system: The system.
    :returns: The option with a space before it; nothing for what is evaluated unless asked.
    """
    return "" if system == COG else f" --system {system}"


def get_current_indexes(paths: ProjectPaths, corpus_id: str, *, system: str) -> tuple[str, ...]:
    """Digests of what a system would copy from, or search, now.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param system: One of ``SYSTEMS``.
    :returns: The digest, empty for nothing; two where a search was tuned: as tuned, and as
        params.yaml says.
    """
    if system == COG:
        return (get_digest(paths, corpus_id),)
    params = load_params(paths.params)
    every = [params]
    if system == KNN_LM:
        tuned, _ = apply_knn_tuning(params.datastore, paths.corpus(corpus_id))
        every = [replace(params, datastore=tuned), params]
    found = [identify_system(paths, p, corpus_id=corpus_id, system=system).index for p in every]
    return tuple(dict.fromkeys(found))


def _join_metrics(
    before: Sequence[MetricValue], after: Sequence[MetricValue]
) -> tuple[MetricValue, ...]:
    joined = {metric.name: metric for metric in before}
    joined.update((metric.name, metric) for metric in after)
    return tuple(joined.values())
