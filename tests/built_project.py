"""A tiny project that is built: fetched, prepared and indexed with the tiny model."""

import shutil
from pathlib import Path

from cog import assets
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.index.project import build_corpus_index
from cog.model.load import load_splitter
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.registry import load_resolved_card
from tests.tiny_project import make_project


def build_village(root: Path, tiny_model: Path) -> ProjectPaths:
    """A project whose corpus `village` is fetched, prepared and indexed with the tiny model."""
    paths = make_project(root)
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    build_corpus(paths, "village")
    return paths


def build_corpus(paths: ProjectPaths, corpus_id: str) -> None:
    """Fetch, prepare and index a corpus of a project that has its model."""
    params = load_params(paths.params)
    card = load_resolved_card(paths, corpus_id)
    corpus_paths = paths.corpus(corpus_id)
    fetch_corpus(
        card,
        corpus_paths=corpus_paths,
        fetcher=assets,
        source=None,
        progress=SilentProgress(),
        retries=0,
        timeout_seconds=60,
    )
    prepare_corpus(
        card,
        corpus_paths=corpus_paths,
        tokenise=load_splitter(paths.root / params.model).token_chars,
        progress=SilentProgress(),
        prompt_tokens=params.prepare.prompt_tokens,
        reference_tokens=params.prepare.reference_tokens,
    )
    build_corpus_index(paths, corpus_id, params=params, progress=SilentProgress())
