"""Duplicates of a corpus: documents go in, those that stay, or a report, come out."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cog.corpus.documents import DOCUMENT_SCHEMA, DocumentStore, RecordWriter
from cog.corpus.near import SignatureWriter, find_originals, find_pairs
from cog.corpus.selection import SeenTexts
from cog.corpus.tally import Tally
from cog.records import Document


@dataclass(frozen=True, slots=True)
class Repetition:
    """A document that repeats an earlier one."""

    document_id: str
    original_id: str  # the earlier one
    similarity: float  # estimated share of runs of five words that they have in common


@dataclass(frozen=True, slots=True)
class DuplicateReport:
    """What repeats in the documents of a corpus."""

    num_documents: int
    threshold: float  # similarity from which a document counts as a near duplicate
    num_exact: int  # documents whose text was there before, to the character
    num_near: int  # the others that `deduplicate: near` would remove
    repetitions: tuple[Repetition, ...]  # documents that repeat an earlier one, most alike first


def drop_near_duplicates(
    documents: Iterable[Document], *, folder: Path, threshold: float, tally: Tally
) -> Iterator[Document]:
    """Leave out documents that are like an earlier one that stays; they lie on disk meanwhile."""
    spool = folder / "spool.parquet"
    with SignatureWriter(folder / "signatures.u32") as signatures:
        with RecordWriter(spool, DOCUMENT_SCHEMA) as writer:
            for document in documents:
                writer.write(document)
                signatures.write(document.text)
            writer.finish(None)
        pairs = find_pairs(signatures.load(), threshold)
        originals = find_originals(signatures.num_texts, pairs)
    for original, document in zip(originals, DocumentStore(spool).iter_documents(), strict=True):
        if original < 0:
            yield document
        else:
            tally.skip("near-duplicate", document.document_id)


def find_duplicates(path: Path, *, threshold: float) -> DuplicateReport:
    """Find the documents of a corpus that repeat an earlier one; memory stays bounded."""
    store = DocumentStore(path)
    seen, num_exact = SeenTexts(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        SignatureWriter(Path(folder) / "signatures.u32") as writer,
    ):
        for document in store.iter_documents():
            num_exact += not seen.add(document.text)
            writer.write(document.text)
        signatures = writer.load()
        originals = find_originals(len(signatures), find_pairs(signatures, threshold))
        places = {
            later: (earlier, float((signatures[later] == signatures[earlier]).mean()))
            for later, earlier in enumerate(originals.tolist())
            if earlier >= 0
        }
    named = {*places, *(earlier for earlier, _ in places.values())}
    names = {place: name for place, name in enumerate(store.iter_ids()) if place in named}
    repetitions = (
        Repetition(names[later], names[earlier], round(similarity, 3))
        for later, (earlier, similarity) in places.items()
    )
    ordered = sorted(repetitions, key=lambda each: -each.similarity)
    num_near = len(ordered) - num_exact
    return DuplicateReport(store.num_documents, threshold, num_exact, num_near, tuple(ordered))
