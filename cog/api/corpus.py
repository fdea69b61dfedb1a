"""A corpus of a project: an id goes in; its documents, prompts, counts and versions come out."""

from collections.abc import Iterator
from typing import Any

from cog.api.refusals import name_extras
from cog.cards import format_card
from cog.errors import IndexNotBuiltError
from cog.index.versions.manifest import check_index
from cog.index.versions.resolve import Version, list_versions
from cog.paths import ProjectPaths
from cog.records import Document, Prompt
from cog.registry import load_card, load_resolved_card


class Corpus:
    """One corpus; whatever is asked is read anew. One that is not prepared is a ``CorpusError``."""

    def __init__(self, paths: ProjectPaths, corpus_id: str) -> None:
        self._paths = paths
        self._files = paths.corpus(corpus_id)
        self.id = corpus_id

    def __repr__(self) -> str:
        state = "indexed" if self.is_indexed else "prepared" if self.is_prepared else "not built"
        return f"<cog corpus {self.id}: {state}>"

    @property
    def title(self) -> str:
        """What a person calls it."""
        return load_card(self._paths, self.id).title

    @property
    def card(self) -> dict[str, Any]:
        """Its card with everything filled in, as plain values."""
        return format_card(load_resolved_card(self._paths, self.id))

    @property
    def is_prepared(self) -> bool:
        """Whether its documents are there."""
        return self._files.documents.exists()

    @property
    def is_indexed(self) -> bool:
        """Whether an index is in place."""
        return self._files.manifest.exists()

    def documents(self) -> Iterator[Document]:
        """Stream the documents, in order; those that give prompts are not among them."""
        from cog.corpus.documents import DocumentStore

        return DocumentStore(self._files.documents).iter_documents()

    def document(self, document_id: str) -> Document:
        """Find a document; a copy is ``document.text[segment.char_start:segment.char_end]``.

        An id that no document has is a ``CorpusError``.
        """
        from cog.corpus.documents import DocumentStore

        return DocumentStore(self._files.documents).get_document(document_id)

    def prompts(self) -> list[Prompt]:
        """The held-out prompts, in order, each with the text that follows it."""
        from cog.corpus.documents import load_prompts

        return load_prompts(self._files.prompts)

    def stats(self) -> dict[str, Any]:
        """Count documents and words, what was skipped, and the words of the index.

        Gives what ``cog corpus stats --json`` writes.
        """
        from cog.index.read.information import measure_stats

        return measure_stats(self._paths, self.id).to_json()

    def versions(self) -> list[Version]:
        """The built versions of its index, newest first: in place, kept, known to DVC."""
        return list_versions(self._paths, self.id)

    @name_extras()
    def tables(self) -> Any:  # noqa: ANN401 - LanceDB states no types
        """Open its index in LanceDB, a connection to the tables documents, chunks and words.

        They are for reading: an index in which anything was changed is refused from then on. Needs
        the extra ``lancedb``. Raises ``IndexingError`` if they are not on this machine, or damaged.
        """
        from cog.index.tables.store import connect

        folder = self._files.index / check_index(self._files).folder
        if not folder.is_dir():
            raise IndexNotBuiltError(
                f"the tables of {self.id} must be on this machine",
                found="its index lies on an object store",
                run=f"cog index pull {self.id} --tables",
                about=self.id,
            )
        return connect(folder)
