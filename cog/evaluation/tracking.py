"""MLflow, and the only place that loads it: evaluations go in, runs come out.

By default runs lie in ``mlflow.db`` of the project and their files in ``mlartifacts/``.
"""

import hashlib
import json
import logging
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from cog.errors import TrackingError
from cog.evaluation.logged import (
    digest_result,
    list_inputs,
    list_metrics,
    list_params,
    make_scores_table,
    make_tags,
    make_texts_table,
)
from cog.evaluation.records import EvaluationResult
from cog.extras import require
from cog.git import run_git
from cog.locks import hold_lock, try_locks
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.version import __version__

URI_VARIABLE = "MLFLOW_TRACKING_URI"
MAX_PARAM_CHARACTERS = 250  # longer values become artifacts
MAX_DIGEST_CHARACTERS = 36  # of a dataset
NAME_TAG = "mlflow.runName"
TABLES_TAG = "mlflow.loggedArtifacts"
CONTEXT_TAG = "mlflow.data.context"
LOCK_TAG = "cog.lock"
RESULT_TAG = "cog.result"
TABLE_NAME = "generations.json"
CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
RUN_LOCK = "run-{}.lock"  # held while a process logs to a run
NOTHING: Mapping[str, Any] = MappingProxyType({})
LogMetrics = Callable[[int, Mapping[str, float]], None]
LIBRARIES = ("mlflow", "sqlalchemy", "sqlite3", "requests", "urllib3", "alembic")


@dataclass(frozen=True, slots=True)
class Run:
    """One run in MLflow."""

    run_id: str
    experiment: str


class Tracker:
    """Writes runs of one experiment; made under a lock, so that processes may begin together."""

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
            self._end_killed_runs()

    def log_result(self, result: EvaluationResult) -> Run:
        """Log an evaluation, or find the run that holds it already."""
        name = f"{result.corpus} {result.system}"
        if result.prompt_corpus != result.corpus:
            name += f" on {result.prompt_corpus}"
        files = {
            "evaluation.json": json.dumps(result.summary_to_json(), indent=1).encode(),
            "scores.json": make_scores_table(result),
            TABLE_NAME: make_texts_table(result),
        }
        tables = [{"path": path, "type": "table"} for path in ("scores.json", TABLE_NAME)]
        tags = {TABLES_TAG: json.dumps(tables), **make_tags(result)}
        log = partial(
            self.log,
            params=list_params(result),
            metrics=list_metrics(result),
            files=files,
            inputs=list_inputs(result),
        )
        return self._log_once(name, digest_result(result), log, tags=tags)

    def log_study(self, name: str, content: Mapping[str, Any], figures: Mapping[str, bytes]) -> Run:
        """Log what several evaluations tell together, with pictures by file name, as one run."""
        written = json.dumps(content, indent=1).encode()
        digest = hashlib.sha256(json.dumps(content["comparisons"]).encode()).hexdigest()
        files = {"study.json": written}
        files |= {f"figures/{file}": content for file, content in figures.items()}
        return self._log_once(name, digest, partial(self.log, files=files))

    def _log_once(
        self,
        name: str,
        digest: str,
        log: Callable[[str], None],
        *,
        tags: Mapping[str, str] = NOTHING,
    ) -> Run:
        with _stated(self.uri):
            wanted = f"tags.`{RESULT_TAG}` = '{digest}' and attributes.status = 'FINISHED'"
            found = self._client.search_runs([self._experiment_id], wanted, max_results=1)
            if found:
                return Run(found[0].info.run_id, self._experiment)
            with self.begin_run(name, tags={**tags, RESULT_TAG: digest}) as run_id:
                log(run_id)
        return Run(run_id, self._experiment)

    @contextmanager
    def begin_run(self, name: str, *, tags: Mapping[str, str] = NOTHING) -> Iterator[str]:
        """Begin a run, which ends with the block; yields its id."""
        # the lock comes first: a process may be killed right after the run was made
        token = uuid.uuid4().hex
        lock = self._paths.locks / RUN_LOCK.format(token)
        all_tags = {**_revisions(self._paths), **tags, NAME_TAG: name, LOCK_TAG: token}
        with hold_lock(lock):
            try:
                run = self._client.create_run(self._experiment_id, tags=all_tags)
                run_id: str = run.info.run_id
                try:
                    yield run_id
                except BaseException:
                    self._client.set_terminated(run_id, status="FAILED")
                    raise
                self._client.set_terminated(run_id)
            finally:
                lock.unlink(missing_ok=True)

    def _end_killed_runs(self) -> None:
        # they would run for ever: nobody holds the lock of a run whose process was killed
        before, after = RUN_LOCK.split("{}")
        for lock in self._paths.locks.glob(RUN_LOCK.format("*")):
            with try_locks(lock) as is_free:
                if is_free:
                    token = lock.name.removeprefix(before).removesuffix(after)
                    experiments = [each.experiment_id for each in self._client.search_experiments()]
                    wanted = f"tags.`{LOCK_TAG}` = '{token}' and attributes.status = 'RUNNING'"
                    for run in self._client.search_runs(experiments, wanted):
                        self._client.set_terminated(run.info.run_id, status="KILLED")
                    lock.unlink(missing_ok=True)

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] = NOTHING,
        metrics: Sequence[tuple[str, float, int]] = (),
        files: Mapping[str, bytes] = NOTHING,
        inputs: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        """Log to a run: metrics with their steps, and name, digest and use of what was read."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

        now = int(time.time() * 1000)
        points = [Metric(name, value, now, k) for name, value, k in metrics if isfinite(value)]
        long = {name: value for name, value in params.items() if len(value) > MAX_PARAM_CHARACTERS}
        short = {**params, **{name: f"see params/{name}.txt" for name in long}}
        texts = {f"params/{name}.txt": value.encode() for name, value in long.items()}
        read = [
            DatasetInput(
                Dataset(name, digest[:MAX_DIGEST_CHARACTERS], "local", json.dumps(name)),
                [InputTag(CONTEXT_TAG, use)],
            )
            for name, digest, use in inputs
            if digest
        ]
        with _stated(self.uri), tempfile.TemporaryDirectory() as folder:
            known = [Param(name, value) for name, value in short.items()]
            self._client.log_batch(run_id, params=known, metrics=points)
            for name, content in {**files, **texts}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            if files or texts:
                self._client.log_artifacts(run_id, folder)
            if read:
                self._client.log_inputs(run_id, read)

    def _get_experiment(self) -> str:
        artifacts = self._paths.run_artifacts.resolve()
        is_ours = self.uri.startswith("sqlite:")
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None and is_ours and not _is_below(found.artifact_location, artifacts):
            # MLflow keeps whole paths: a project that was moved or cloned begins anew
            self._experiment += f" ({artifacts.parent.name})"
            found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            if found.lifecycle_stage != "active":
                self._client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)
        folder = artifacts / hashlib.sha256(self._experiment.encode()).hexdigest()[:8]
        location = folder.as_uri() if is_ours else None
        return str(self._client.create_experiment(self._experiment, artifact_location=location))


@contextmanager
def follow_run(
    paths: ProjectPaths,
    experiment: str | None,
    name: str,
    params: Mapping[str, str],
    progress: Progress,
) -> Iterator[LogMetrics | None]:
    """Log a training run to MLflow while it runs; for None, load no MLflow.

    Yields what takes the metrics of a step; points that cannot be logged do not end the run.
    """
    if experiment is None:
        yield None
        return
    tracker, has_failed = Tracker(paths, experiment), False

    def log(step: int, metrics: Mapping[str, float]) -> None:
        # hours of training are worth more than a point in a plot
        nonlocal has_failed
        try:
            tracker.log(run_id, metrics=[(what, value, step) for what, value in metrics.items()])
        except TrackingError as error:
            if not has_failed:
                progress.say(f"not logged: {error}")
            has_failed = True

    with tracker.begin_run(name) as run_id:
        tracker.log(run_id, params=params)
        yield log


def find_runs(
    paths: ProjectPaths, results: Sequence[EvaluationResult]
) -> dict[int, tuple[str, str | None]]:
    """Find where evaluations were logged; nothing is written.

    Gives the id of the run and, where a server tracks runs, its address; by position.
    """
    uri = choose_uri(paths)
    if not os.environ.get(URI_VARIABLE) and not paths.runs_database.is_file():
        return {}
    with _stated(uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        ids = [each.experiment_id for each in client.search_experiments()]
        found = {}
        for position, result in enumerate(results):
            wanted = f"tags.`{RESULT_TAG}` = '{digest_result(result)}'"
            runs = client.search_runs(ids, wanted, max_results=1) if ids else []
            for run in runs:
                server = hide_password(uri).rstrip("/")
                place = f"{server}/#/experiments/{run.info.experiment_id}/runs/"
                is_served = uri.startswith(("http://", "https://"))
                found[position] = (run.info.run_id, place + run.info.run_id if is_served else None)
    return found


def choose_uri(paths: ProjectPaths) -> str:
    """Where runs are tracked: ``MLFLOW_TRACKING_URI``, else the project's own database.

    Raises ``TrackingError`` if it names a folder of files, which MLflow no longer writes.
    """
    require("mlflow")
    from sqlalchemy.engine import make_url  # comes with MLflow

    given = os.environ.get(URI_VARIABLE, "")
    database = paths.runs_database.resolve().as_posix()
    if "%" in database and make_url(f"sqlite:///{database}").database != database:
        # SQLAlchemy from 2.1 on reads %20 as a space. A slash is spelt too: what MLflow takes for
        # the folder of the database it makes, as it is written
        database = quote(database, safe="")
    default = f"sqlite:///{database}"
    if not given:
        return default
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
            return default
    return given


def hide_password(text: str) -> str:
    """Leave out who an address names, and with which password; pages and terminals show it."""
    return CREDENTIALS.sub("", text)


def _is_below(location: str, folder: Path) -> bool:
    return location.startswith(folder.as_uri()) or Path(location).is_relative_to(folder)


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
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        shown = hide_password(uri.partition("?")[0])
        run = f"check {URI_VARIABLE} or {shown}, then run the same command again"
        if "revision" in str(error) or "schema" in str(error):
            database = shown if uri.startswith(shown) else f"${URI_VARIABLE}"
            run = f"mlflow db upgrade {database}, with the newer of the versions of MLflow"
        raise TrackingError(
            "the evaluation must be logged to MLflow (its result is kept)",
            found=hide_password(said),
            run=run,
            about=uri,
        ) from error


def _revisions(paths: ProjectPaths) -> dict[str, str]:
    tags = {"cog.version": __version__}
    commit = run_git(paths.root, "rev-parse", "HEAD")
    if commit:
        is_clean = not run_git(paths.root, "status", "--porcelain", "--untracked-files=no")
        tags["git_revision"] = commit if is_clean else f"{commit}-dirty"
    lock = paths.root / "dvc.lock"
    if lock.is_file():
        tags["dvc_revision"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    return tags
