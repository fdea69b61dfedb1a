"""What builds a corpus from where it stands: its folder goes in, commands that work come out."""

import shlex

from cog.cards import Card
from cog.errors import CogError
from cog.extras import is_installed
from cog.paths import CorpusPaths
from cog.pipeline_file import load_pipeline
from cog.registry import load_resolved_card


def name_build(corpus: CorpusPaths, *, source: str = "DIR_OR_FILE", until: str = "index") -> str:
    """Name the commands that build what a corpus lacks, to be pasted as they are.

    A run of the pipeline where DVC is installed and builds the corpus, else one command after
    another, until its documents (``prepare``) or its ``index`` are there.
    """
    corpus_id = corpus.root.name
    paths = corpus.home
    try:
        card = load_resolved_card(paths, corpus_id)
        is_in_pipeline = corpus_id in load_pipeline(paths).corpora
    except CogError:  # these commands tell it
        return f"cog {'index build' if until == 'index' else 'corpus prepare'} {corpus_id}"
    has_pipeline = is_in_pipeline and paths.pipeline.is_file() and is_installed("dvc")
    if has_pipeline and not needs_source(card):
        return f"dvc repro {until}@{corpus_id}"
    steps = []
    is_index = until == "index"  # whose build fetches and prepares what it can
    if not corpus.documents.exists():
        if not corpus.raw.exists() and (needs_source(card) or not is_index):
            steps.append(name_fetch(corpus_id, card, source=source))
        if not is_index:
            steps.append(f"cog corpus prepare {corpus_id}")
    if is_index:
        steps.append(f"cog index build {corpus_id}")
    return " && ".join(steps)


def name_rebuild(corpus_id: str) -> str:
    """Name the commands that build a corpus anew from its source."""
    if is_installed("dvc"):
        return f"dvc repro index@{corpus_id}"
    steps = ("corpus fetch", "corpus prepare", "index build")
    return " && ".join(f"cog {step} {corpus_id}" for step in steps)


def name_fetch(corpus_id: str, card: Card, *, source: str = "DIR_OR_FILE") -> str:
    """Name the command that fetches the raw files of a corpus."""
    source = f" --source {shlex.quote(source)}" if needs_source(card) else ""
    return f"cog corpus fetch {corpus_id}{source}"


def needs_source(card: Card) -> bool:
    """Tell whether a card leaves it to its user where the files are."""
    return card.source is not None and card.source.type == "files" and card.source.path is None
