"""Corpora at a glance: a project goes in, a line on each corpus that has a card comes out."""

from dataclasses import dataclass

from cog.errors import CogError
from cog.paths import ProjectPaths
from cog.registry import iter_corpus_ids, iter_shipped_ids, load_active, load_card


@dataclass(frozen=True, slots=True)
class ListedCorpus:
    """What a card says of a corpus, and what is built of it."""

    id: str
    title: str | None  # what a person calls it; None, as what follows, if the card cannot be read
    language: str | None  # BCP 47 tag
    licence: str | None  # SPDX id or name of its licence
    extends: str | None  # the corpus that it is a part of, if it is one
    source: str | None  # type of its source; None of a part
    is_active: bool  # whether it is switched on, alone or in a union
    is_prepared: bool  # whether its documents are there
    is_indexed: bool  # whether an index is in place
    error: str | None  # what is wrong with the card; None if nothing is

    @property
    def state(self) -> str:
        """How far it is built: ``indexed``, ``prepared``, or ``-`` for neither."""
        return "indexed" if self.is_indexed else "prepared" if self.is_prepared else "-"


def list_corpora(paths: ProjectPaths) -> list[ListedCorpus]:
    """List the corpora that have a card in the project, in the order of their ids."""
    active = load_active(paths)
    active_ids = active.corpora if active else []
    return [_describe(paths, each, is_active=each in active_ids) for each in iter_corpus_ids(paths)]


def list_shipped(paths: ProjectPaths) -> list[ListedCorpus]:
    """List the corpora whose card comes with the package, and is not in the project."""
    return [_describe(paths, each, is_active=False) for each in iter_shipped_ids(paths)]


def _describe(paths: ProjectPaths, corpus_id: str, *, is_active: bool) -> ListedCorpus:
    title = language = licence = extends = source = error = None
    try:
        card = load_card(paths, corpus_id)
        title, language, licence, extends = card.title, card.language, card.licence.id, card.extends
        source = card.source.type if card.source else None
    except CogError as broken:
        error = str(broken)
    corpus = paths.corpus(corpus_id)
    return ListedCorpus(
        corpus_id,
        title,
        language,
        licence,
        extends,
        source,
        is_active=is_active,
        is_prepared=corpus.documents.exists(),
        is_indexed=corpus.manifest.exists(),
        error=error,
    )
