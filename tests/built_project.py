"""A tiny project that is built: fetched, prepared and indexed with the tiny model."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.index.project import build_corpus_index
from cog.model.load import load_splitter
from cog.params import FetchParams, load_params
from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, add_corpus_entry
from cog.progress import SilentProgress
from cog.registry import load_resolved_card
from tests.tiny_project import VILLAGE_CARD, make_project, write_yaml


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
        source=None,
        params=FetchParams(retries=0, timeout_seconds=60),
        progress=SilentProgress(),
    )
    prepare_corpus(
        card,
        corpus_paths=corpus_paths,
        tokenise=load_splitter(paths.root / params.model).token_chars,
        progress=SilentProgress(),
        params=params.prepare,
    )
    build_corpus_index(paths, corpus_id, params=params, progress=SilentProgress())


def add_corpus(paths: ProjectPaths, corpus_id: str, lines: Sequence[str]) -> None:
    """A corpus of some lines of the village's file, none held out, each with its own licence."""
    (paths.root / "texts" / f"{corpus_id}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    card = {
        **VILLAGE_CARD,
        "id": corpus_id,
        "source": {"type": "files", "path": f"texts/{corpus_id}.jsonl", "members": None},
        "licence": {"id": "CC-BY-4.0", "url": None, "attribution": f"People of {corpus_id}"},
        "prompts": None,
    }
    card["format"] = {**card["format"], "fields": {**card["format"]["fields"], "licence": "by"}}
    write_yaml(paths.card(corpus_id), card)
    add_corpus_entry(paths, corpus_id, CorpusEntry(corpus_id))
    build_corpus(paths, corpus_id)
