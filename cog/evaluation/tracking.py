"""MLflow, and the only place that loads it: evaluations go in, runs come out.

By default runs lie in ``mlflow.db`` of the project and their files in ``mlartifacts/``, named
relative to the project, so that a project that was moved or cloned still opens them.
"""

import hashlib
import json
import logging
import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from cog.errors import TrackingError
from cog.evaluation.records import EvaluationResult, SeedResult
from cog.extras import require
from cog.locks import hold_lock
from cog.paths import ProjectPaths
from cog.version import __version__

URI_VARIABLE = "MLFLOW_TRACKING_URI"
MAX_PARAM_CHARACTERS = 250  # longer values become artifacts
PARENT_TAG = "mlflow.parentRunId"
NAME_TAG = "mlflow.runName"
TABLES_TAG = "mlflow.loggedArtifacts"
RESULT_TAG = "cog.result"
TABLE_NAME = "generations.json"
LIBRARIES = ("mlflow", "sqlalchemy", "sqlite3", "requests", "urllib3", "alembic")


@dataclass(frozen=True, slots=True)
class Run:
    """One run in MLflow.

    :param run_id: Its id.
    :param experiment: Name of its experiment.
    :param uri: Where it is tracked.
    """

    run_id: str
    experiment: str
    uri: str


class Tracker:
    """Writes runs of one experiment; made under a lock, so that processes may begin together.

    :param paths: The project.
    :param experiment: Name of the experiment: one per study.
    :raises TrackingError: If MLflow refuses, or is out of reach.
    """

    def __init__(self, paths: ProjectPaths, experiment: str) -> None:
        self._paths = paths
        self._experiment = experiment
        self.uri = choose_uri(paths)
        with _stated(self.uri), hold_lock(paths.locks / "mlflow.lock"):
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            from mlflow import MlflowClient

            for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
                logging.getLogger(name).setLevel(logging.WARNING)

            self._client = MlflowClient(tracking_uri=self.uri)
            self._experiment_id = self._get_experiment()

    def log_result(
        self, result: EvaluationResult, *, figures: Mapping[str, bytes] | None = None
    ) -> Run:
        """Log an evaluation: a parent run, and a nested run per seed.

        :param result: The evaluation.
        :param figures: Pictures by file name.
        :returns: The parent run.
        :raises TrackingError: If MLflow refuses.
        """
        name = f"{result.corpus} {result.system}"
        if result.prompt_corpus != result.corpus:
            name += f" on {result.prompt_corpus}"
        scores: dict[str, float] = {"num_texts": len(result.prompt_ids)}
        for metric in result.metrics:
            scores[metric.name] = metric.mean
            scores[f"{metric.name}.low"] = metric.low
            scores[f"{metric.name}.high"] = metric.high
        scores |= {f"seconds/{part}": value for part, value in result.seconds.items()}
        params = _describe(result)
        files = {"evaluation.json": json.dumps(result.summary_to_json(), indent=1).encode()}
        files |= {f"figures/{name}": content for name, content in (figures or {}).items()}
        tags = {**_revisions(self._paths), RESULT_TAG: _digest_result(result)}
        with _stated(self.uri), self._run(name, tags=tags) as run_id:
            self._log(run_id, params=params, metrics=scores, files=files)
            for i, seed in enumerate(result.seeds):
                self._log_seed(run_id, result, number=i, seed=seed)
        return Run(run_id, self._experiment, self.uri)

    def has_result(self, result: EvaluationResult) -> bool:
        """Whether the experiment holds a finished run of an evaluation with these scores.

        :param result: The evaluation.
        :returns: True if so.
        :raises TrackingError: If MLflow refuses.
        """
        wanted = f"tags.`{RESULT_TAG}` = '{_digest_result(result)}'"
        with _stated(self.uri):
            found = self._client.search_runs(
                [self._experiment_id], f"{wanted} and attributes.status = 'FINISHED'", max_results=1
            )
        return len(found) > 0

    def log_figures(self, name: str, figures: Mapping[str, bytes]) -> Run:
        """Log pictures of several evaluations as a run of their own.

        :param name: Name of the run.
        :param figures: Pictures by file name.
        :returns: The run.
        :raises TrackingError: If MLflow refuses.
        """
        files = {f"figures/{file}": content for file, content in figures.items()}
        with _stated(self.uri), self._run(name, tags=_revisions(self._paths)) as run_id:
            self._log(run_id, params={}, metrics={}, files=files)
        return Run(run_id, self._experiment, self.uri)

    @contextmanager
    def follow_training(
        self, name: str, params: Mapping[str, str]
    ) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
        """Log a training run while it runs.

        :param name: Name of the run.
        :param params: What it was started with.
        :yields: What takes the metrics of a step.
        :raises TrackingError: If MLflow refuses.
        """
        from mlflow.entities import Metric

        with self._run(name, tags=_revisions(self._paths)) as run_id:
            with _stated(self.uri):
                self._log(run_id, params=params, metrics={}, files={})

            def log(step: int, metrics: Mapping[str, float]) -> None:
                now = int(time.time() * 1000)
                with _stated(self.uri):
                    finite = {name: value for name, value in metrics.items() if isfinite(value)}
                    points = [Metric(name, value, now, step) for name, value in finite.items()]
                    self._client.log_batch(run_id, metrics=points)

            yield log

    def _log_seed(
        self, parent_id: str, result: EvaluationResult, *, number: int, seed: SeedResult
    ) -> None:
        scores = {
            metric.name: metric.per_seed[number]
            for metric in result.metrics
            if len(metric.per_seed) == len(result.seeds)
        }
        table = [{"path": TABLE_NAME, "type": "table"}]
        tags = {PARENT_TAG: parent_id, TABLES_TAG: json.dumps(table)}
        with self._run(f"seed {seed.seed}", tags=tags) as run_id:
            self._log(
                run_id,
                params={"seed": str(seed.seed), "corpus": result.corpus},
                metrics=scores,
                files={TABLE_NAME: _make_table(seed)},
            )

    @contextmanager
    def _run(self, name: str, *, tags: Mapping[str, str]) -> Iterator[str]:
        all_tags = {**tags, NAME_TAG: name}
        run_id: str = self._client.create_run(self._experiment_id, tags=all_tags).info.run_id
        try:
            yield run_id
        except BaseException:
            self._client.set_terminated(run_id, status="FAILED")
            raise
        self._client.set_terminated(run_id)

    def _log(
        self,
        run_id: str,
        *,
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        files: Mapping[str, bytes],
    ) -> None:
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        long = {name: value for name, value in params.items() if len(value) > MAX_PARAM_CHARACTERS}
        short = {**params, **{name: f"see params/{name}.txt" for name in long}}
        self._client.log_batch(
            run_id,
            params=[Param(name, value) for name, value in short.items()],
            metrics=[Metric(name, v, now, 0) for name, v in metrics.items() if isfinite(v)],
        )
        texts = {f"params/{name}.txt": value.encode() for name, value in long.items()}
        with tempfile.TemporaryDirectory() as folder:
            for name, content in {**files, **texts}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._log_files(run_id, folder)

    def _log_files(self, run_id: str, folder: str) -> None:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        place = self._client.get_run(run_id).info.artifact_uri
        if _is_relative(place):
            place = str(self._paths.root / place)
        repository = get_artifact_repository(place, tracking_uri=self.uri)
        repository.log_artifacts(folder)  # type: ignore[no-untyped-call]

    def _get_experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            if found.lifecycle_stage != "active":
                self._client.restore_experiment(found.experiment_id)
            experiment_id: str = found.experiment_id
            return experiment_id
        artifacts = self._paths.run_artifacts
        is_ours = self.uri == _default_uri(self._paths)
        location = artifacts.as_posix() if self.uri.startswith("sqlite:") else None
        experiment_id = self._client.create_experiment(self._experiment, artifact_location=location)
        if is_ours:
            # MLflow makes every path absolute when it is given one, but keeps what it finds
            with closing(sqlite3.connect(self._paths.runs_database)) as database, database:
                database.execute(
                    "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
                    (f"{artifacts.name}/{experiment_id}", int(experiment_id)),
                )
        return experiment_id


def find_runs(
    paths: ProjectPaths, results: Sequence[EvaluationResult]
) -> dict[int, tuple[str, str | None]]:
    """Find where evaluations were logged; nothing is written.

    :param paths: The project.
    :param results: The evaluations.
    :returns: Id of the run and, where a server tracks runs, its address; by position.
    :raises TrackingError: If MLflow refuses.
    """
    uri = choose_uri(paths)
    if uri == _default_uri(paths) and not paths.runs_database.is_file():
        return {}
    with _stated(uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        ids = [each.experiment_id for each in client.search_experiments()]
        found = {}
        for position, result in enumerate(results):
            wanted = f"tags.`{RESULT_TAG}` = '{_digest_result(result)}'"
            runs = client.search_runs(ids, wanted, max_results=1) if ids else []
            for run in runs:
                place = f"{uri.rstrip('/')}/#/experiments/{run.info.experiment_id}/runs/"
                is_served = uri.startswith(("http://", "https://"))
                found[position] = (run.info.run_id, place + run.info.run_id if is_served else None)
    return found


def choose_uri(paths: ProjectPaths) -> str:
    """Where runs are tracked: ``MLFLOW_TRACKING_URI``, else the project's own database.

    :param paths: The project.
    :returns: The URI.
    :raises TrackingError: If it names a folder of files, which MLflow no longer writes.
    :raises MissingPackageError: If MLflow is not installed.
    """
    require("mlflow")
    given = os.environ.get(URI_VARIABLE, "")
    if not given:
        return _default_uri(paths)
    scheme = given.partition(":")[0] if ":" in given else ""
    if scheme in ("", "file"):
        source = given.removeprefix("file:").replace("//", "/")
        raise TrackingError(
            "runs must be tracked in a database or on a server",
            found=f"{URI_VARIABLE}={given}, a folder of files",
            run=f"mlflow migrate-filestore --source {source} --target sqlite:///mlflow.db, "
            f"then unset {URI_VARIABLE}",
            about=given,
        )
    if scheme == "sqlite":
        path = Path(given.removeprefix("sqlite:///"))
        if (Path.cwd() / path).resolve() == paths.runs_database.resolve():
            return _default_uri(paths)
    return given


def _default_uri(paths: ProjectPaths) -> str:
    return f"sqlite:///{paths.runs_database.resolve().as_posix()}"


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith("file:") and not Path(place).is_absolute()


@contextmanager
def _stated(uri: str) -> Iterator[None]:
    # imported late, as is MLflow: two to four seconds
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        is_of_tracking = type(error).__module__.startswith(LIBRARIES) or isinstance(error, OSError)
        if not is_of_tracking:
            raise
        raise TrackingError(
            "the evaluation must be logged to MLflow (its result is kept)",
            found=str(error).strip().partition("\n")[0] or type(error).__name__,
            run=f"check {URI_VARIABLE} or {uri.partition('?')[0]}, then run the same command again",
            about=uri,
        ) from error


def _describe(result: EvaluationResult) -> dict[str, str]:
    described = {
        "corpus": result.corpus,
        "prompt_corpus": result.prompt_corpus,
        "system": result.system,
        "index_digest": result.index,
        "documents_digest": result.documents,
        "model_fingerprint": result.model,
        "num_index_words": str(result.num_index_words),
        "protocol_digest": result.protocol.digest,
    }
    rules = result.protocol.to_json()
    return described | {f"protocol/{name}": str(value) for name, value in rules.items()}


def _digest_result(result: EvaluationResult) -> str:
    content = result.summary_to_json()
    for changing in ("seconds", "created_at"):
        del content[changing]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _revisions(paths: ProjectPaths) -> dict[str, str]:
    tags = {"cog.version": __version__}
    commit = _ask_git(paths, "rev-parse", "HEAD")
    if commit:
        is_clean = not _ask_git(paths, "status", "--porcelain", "--untracked-files=no")
        tags["git_revision"] = commit if is_clean else f"{commit}-dirty"
    lock = paths.root / "dvc.lock"
    if lock.is_file():
        tags["dvc_revision"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    return tags


def _ask_git(paths: ProjectPaths, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=paths.root, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _make_table(seed: SeedResult) -> bytes:
    # the form of mlflow.log_table: pandas' "split"
    rows: list[list[Any]] = []
    for text in seed.texts:
        generation = text.generation
        citations = [segment.to_json() for segment in generation.segments if segment.document_id]
        rows.append(
            [
                text.prompt_id,
                generation.prefix,
                generation.text,
                text.reference,
                json.dumps(citations, ensure_ascii=False),
            ]
        )
    columns: Sequence[str] = ("prompt_id", "prefix", "text", "reference", "citations")
    content = {"columns": list(columns), "index": list(range(len(rows))), "data": rows}
    return json.dumps(content, ensure_ascii=False).encode()
