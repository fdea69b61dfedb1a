"""From a card to an index: a corpus id goes in; its files are fetched, prepared and indexed."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cog.corpus.next_step import name_build
from cog.errors import CorpusError, ProjectError
from cog.extras import is_installed
from cog.locks import hold_lock
from cog.params import Params
from cog.paths import ProjectPaths
from cog.pipeline_file import find_watched, load_pipeline, save_pipeline
from cog.progress import Progress
from cog.registry import iter_cards, load_card, load_resolved_card

if TYPE_CHECKING:
    from cog.corpus.report import PrepareReport
    from cog.corpus.sources import SourceRecord
    from cog.index.building.builder import BuildReport

# Each step loads what it needs, so that fetching files loads no model.
OpenProgress = Callable[..., AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Builder:
    """What the steps have in common."""

    paths: ProjectPaths
    params: Params
    # shows the progress of one step, as :func:`cog.progress.show_progress`
    open_progress: OpenProgress
    # local file or folder to take instead of a card's source; None for the card's
    source: Path | None = None
    device: str = "auto"  # `cpu`, `cuda` or `auto`
    address: str = ""  # of the Ray cluster that encodes, where params.yaml says that one does

    def fetch(self, corpus_id: str) -> "SourceRecord":
        """Fetch the raw files of a corpus."""
        from cog.corpus.fetch import fetch_corpus

        card = load_resolved_card(self.paths, corpus_id)
        with self.open_progress(f"fetch {corpus_id}", total=None, unit="files") as progress:
            return fetch_corpus(
                card,
                corpus_paths=self.paths.corpus(corpus_id),
                source=self.source,
                params=self.params.fetch,
                progress=progress,
            )

    def prepare(self, corpus_id: str) -> "PrepareReport":
        """Make documents and held-out prompts of the raw files of a corpus."""
        from cog.corpus.prepare import prepare_corpus
        from cog.model.piece_counts import load_cutter

        card = load_resolved_card(self.paths, corpus_id)
        corpus_paths = self.paths.corpus(corpus_id)
        if not corpus_paths.raw.exists():
            raise CorpusError(
                f"corpus {corpus_id} needs its raw files",
                found="none fetched",
                run=name_build(corpus_paths, until="prepare"),
            )
        renew_watched(self.paths, self.params)
        cutter = load_cutter(self.paths.model(self.params.model))
        with self.open_progress(f"prepare {corpus_id}", total=None, unit="documents") as progress:
            return prepare_corpus(
                card,
                corpus_paths=corpus_paths,
                tokenise=cutter.splitter.token_chars,
                params=self.params.prepare,
                progress=progress,
                count_pieces=cutter.count,
            )

    def index(self, corpus_id: str, *, force: bool = False) -> "BuildReport":
        """Build the index of the documents of a corpus, unless it is there."""
        from cog.decoding.fit_codes import make_code_fit
        from cog.decoding.storage import make_storage_measure
        from cog.index.project import build_corpus_index, count_corpus_words

        renew_watched(self.paths, self.params)
        corpus, model = self.paths.corpus(corpus_id), self.paths.model(self.params.model)
        total = count_corpus_words(self.paths, corpus_id)
        with self.open_progress(f"index {corpus_id}", total=total, unit="words") as progress:
            return build_corpus_index(
                self.paths,
                corpus_id,
                params=self.params,
                progress=progress,
                device=self.device,
                address=self.address,
                force=force,
                measure_storage=make_storage_measure(
                    corpus, model_folder=model, params=self.params.index, device=self.device
                ),
                fit_codes=make_code_fit(corpus, model_folder=model, device=self.device),
            )

    def build_missing(self, corpus_ids: Sequence[str]) -> list[str]:
        """Fetch, prepare and index corpora without an index, each from its last step; name them."""
        missing = [each for each in corpus_ids if not self.paths.corpus(each).manifest.is_file()]
        for corpus_id in missing:
            self.prepare_missing(corpus_id)
            self.index(corpus_id)
        return missing

    def prepare_missing(self, corpus_id: str) -> None:
        """Fetch and prepare a corpus unless its documents are there."""
        corpus_paths = self.paths.corpus(corpus_id)
        if corpus_paths.documents.is_file() and corpus_paths.prompts.is_file():
            return
        if not corpus_paths.raw.exists() and not self._share(corpus_id):
            self.fetch(corpus_id)
        self.prepare(corpus_id)

    def _share(self, corpus_id: str) -> bool:
        from cog.corpus.fetch import share_raw

        # another corpus of the same source may have its files already
        root = load_card(self.paths, corpus_id).root
        for card in iter_cards(self.paths):
            if card.root == root and self.paths.corpus(card.id).raw.exists():
                share_raw(self.paths.corpus(card.id), self.paths.corpus(corpus_id))
                return True
        return False


def renew_watched(paths: ProjectPaths, params: Params) -> None:
    """Let the pipeline watch the model that builds; params.yaml may name another one since."""
    watched = find_watched(paths, params.model)
    if load_pipeline(paths).watched != watched:
        with hold_lock(paths.pipeline_lock):
            save_pipeline(paths, replace(load_pipeline(paths), watched=watched))


def is_in_pipeline(paths: ProjectPaths, corpus_ids: Sequence[str]) -> bool:
    """Tell whether DVC is installed and builds these corpora."""
    is_there = paths.pipeline.is_file() and (paths.root / ".dvc").is_dir()
    has_all = set(corpus_ids) <= set(load_pipeline(paths).corpora)
    return is_installed("dvc") and is_there and has_all


def run_pipeline(paths: ProjectPaths, targets: Sequence[str]) -> None:
    """Run stages of the pipeline; what DVC says goes to standard error."""
    folder = Path(sys.executable).parent  # stages run the `cog` that is installed beside this one
    path = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
    notes = str(paths.root / ".dvc" / "tmp")  # else DVC takes a folder outside of the project
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", *targets],
        cwd=paths.root,
        stdout=sys.stderr,
        env={"DVC_SITE_CACHE_DIR": notes, **os.environ, "PATH": path},
        check=False,
    )
    if done.returncode != 0:
        raise ProjectError(
            f"dvc repro {' '.join(targets)} must succeed",
            found=f"exit {done.returncode}, as said above",
            run="cog doctor",
        )
