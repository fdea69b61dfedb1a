"""Verifying: an index goes in; its files, rows, digest and words are checked."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from cog.index.chunking import hash_content, hash_words
from cog.index.read.part import IndexPart
from cog.index.read.reader import PhraseIndex
from cog.index.records import FLAT
from cog.index.search.contexts import COLUMNS, iter_blocks
from cog.index.search.searcher import measure_recall, search_exactly
from cog.index.tables.digest import RowDigest, make_index_digest
from cog.index.tables.quantise import get_layout
from cog.index.tables.store import CHUNKS, DOCUMENTS, LICENCE, WORDS, get_schemas
from cog.index.tables.word_counts import WordCounter
from cog.index.versions.folders import list_files
from cog.model.words import BARRED, flag_words
from cog.progress import Progress

NUM_PROBES = 16  # chunks that are searched for


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked and found right."""

    corpus: str
    digest: str  # digest of the index, computed anew from its rows
    num_files: int  # files whose checksums hold
    num_documents: int
    num_chunks: int
    num_words: int  # words whose text and offsets hold


def verify_index(index: PhraseIndex, *, progress: Progress) -> VerifyReport:
    """Check everything that an index of one part states; what is not so is refused."""
    (part,) = index.parts
    manifest = part.manifest
    _verify_files(part)
    digest = make_index_digest(
        documents_digest=manifest.documents_digest,
        model_fingerprint=manifest.model,
        vectors=manifest.vectors,
        retriever_dim=manifest.search.dim,
    )
    num_words, counter = 0, WordCounter()
    texts = _iter_texts(part, digest)
    chunks = _iter_chunk_rows(part, digest)
    ordinal, text = -1, ""
    for batch in part.iter_rows(WORDS):
        digest.update(WORDS, batch)
        _verify_vectors(part, batch)
        before = num_words
        for words in batch.to_pylist():
            chunk = next(chunks, None)
            while chunk is not None and ordinal < chunk["document_ordinal"]:
                ordinal, text = next(texts, (1 << 62, ""))
            problem = _find_problem(chunk, words, ordinal=ordinal, text=text)
            if problem:
                raise part.refuse(f"chunk {words['chunk_id']} to match its document", problem)
            num_words += len(words["word_flags"])
            chars = np.frombuffer(words["word_chars"], dtype=np.int32)
            hashes = np.frombuffer(words["word_hashes"], dtype=np.uint64)
            counter.add(hashes, text[chars[0] : chars[-1]], chars)
        progress.advance(num_words - before)
    for _ in texts:
        pass
    if next(chunks, None) is not None or num_words != manifest.num_words:
        raise part.refuse(f"{manifest.num_words} words", f"{num_words} words")
    if digest.hexdigest() != manifest.digest:
        raise part.refuse(f"rows of digest {manifest.digest[:16]}", digest.hexdigest()[:16])
    _verify_search(part)
    if manifest.vectors.codes:
        part.load_codes()
    _verify_equal(part, "word counts", [part.load_word_counts()], [counter.get_counts()])
    blocks = iter_blocks(part.iter_rows(WORDS, columns=COLUMNS))
    _verify_equal(part, "contexts", part.load_contexts(), blocks)
    return VerifyReport(
        corpus=manifest.corpus,
        digest=manifest.digest,
        num_files=len(manifest.files),
        num_documents=manifest.documents.num_indexed,
        num_chunks=manifest.num_chunks,
        num_words=num_words,
    )


def _verify_files(part: IndexPart) -> None:
    if part.is_remote:
        return  # rows are checked, files are the store's
    found = list_files(part.folder)
    wanted = part.manifest.files
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            problem = "other bytes" if name in found and name in wanted else "it is not"
            where = "stated in the manifest" if name in found else "in the folder"
            raise part.refuse(f"the file {name} as built, {where}", problem)


def _verify_vectors(part: IndexPart, batch: pa.RecordBatch) -> None:
    vectors, layout = part.manifest.vectors, get_layout(part.manifest.vectors)
    of_vectors, of_scales = ("start_vectors", "end_vectors"), ("start_scales", "end_scales")
    sizes = dict.fromkeys(of_vectors, layout.width * layout.kind.itemsize)
    sizes |= dict.fromkeys(of_scales, layout.scale_bytes) | {"word_hashes": 8}
    floats = dict.fromkeys(of_scales, "float32")
    if vectors.dtype == "float16":
        floats |= dict.fromkeys(of_vectors, "float16")
    for row in batch.select(["word_flags", *sizes]).to_pylist():
        num_words = len(row["word_flags"])
        for name, size in sizes.items():
            if len(row[name]) != num_words * size:
                raise part.refuse(f"{num_words * size} bytes of {name}", str(len(row[name])))
        for name, dtype in floats.items():
            if not np.isfinite(np.frombuffer(row[name], dtype=dtype)).all():
                raise part.refuse(f"finite {name}", "a value that is not")


def _verify_search(part: IndexPart) -> None:
    search = part.manifest.search
    if search.kind == FLAT:
        return
    if Counter(part.count_licences()) != Counter(part.iter_values(DOCUMENTS, LICENCE)):
        raise part.refuse("the licences of its documents", str(search.licences)[:200])
    vectors = next(part.iter_vectors())[:NUM_PROBES]  # chunks, which find themselves at least
    exact = search_exactly(part.iter_vectors(), vectors, top_k=1)
    recall = measure_recall(part.searcher.search(vectors, top_k=1), exact)
    if recall < search.recall:
        raise part.refuse(f"lists that find {search.recall:.3f} of the nearest", f"{recall:.3f}")


def _verify_equal(part: IndexPart, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
    # records of arrays that are stored, against those that the rows give
    for one, other in zip_longest(found, wanted):
        if one is None or other is None:
            raise part.refuse(f"{what} of its rows", "another number of blocks")
        for each in fields(one):
            stored, made = getattr(one, each.name), getattr(other, each.name)
            if stored.dtype != made.dtype or not np.array_equal(stored, made):
                raise part.refuse(f"{what} of its rows", f"other {each.name}")


def _iter_texts(part: IndexPart, digest: RowDigest) -> Iterator[tuple[int, str]]:
    for batch in part.iter_rows(DOCUMENTS):
        digest.update(DOCUMENTS, batch)
        for row in batch.select(["ordinal", "text"]).to_pylist():
            yield row["ordinal"], row["text"]


def _iter_chunk_rows(part: IndexPart, digest: RowDigest) -> Iterator[dict[str, Any]]:
    names = get_schemas(part.manifest.search.dim)[CHUNKS].names  # lists add a column
    for batch in part.iter_rows(CHUNKS, columns=names):
        digest.update(CHUNKS, batch)
        vectors = batch.column("vector").flatten().to_numpy()
        if not np.isfinite(vectors).all():
            raise part.refuse("finite chunk vectors", "a value that is not")
        yield from batch.drop_columns(["vector"]).to_pylist()


def _find_problem(
    chunk: dict[str, Any] | None, words: dict[str, Any], *, ordinal: int, text: str
) -> str:
    if chunk is None or ordinal != chunk["document_ordinal"]:
        return "no such document"
    if any(chunk[name] != words[name] for name in ("chunk_id", "document_ordinal")):
        return "other ids in the words table"
    chars = np.frombuffer(words["word_chars"], dtype=np.int32)
    tokens = np.frombuffer(words["word_tokens"], dtype=np.int32)
    flags = np.frombuffer(words["word_flags"], dtype=np.uint8)
    if not len(chars) == len(tokens) == len(flags) + 1 == chunk["num_words"] + 1:
        return "other numbers of words"
    if chars[0] != chunk["char_start"] or chars[-1] != chunk["char_end"] or chars[-1] > len(text):
        return "words that reach beyond the chunk"
    if (np.diff(chars) < 0).any() or (np.diff(tokens) <= 0).any() or tokens[0] != 0:
        return "words that overlap"
    if not 4 * tokens[-1] == 4 * chunk["num_tokens"] == len(words["token_ids"]):
        return "other numbers of tokens"
    hashes = np.frombuffer(words["word_hashes"], dtype=np.uint64)
    if not np.array_equal(hashes, hash_words(text, chars)):
        return "other words in the text"
    window = text[chars[0] : chars[-1]]
    if hash_content(window, chars) != chunk["content_hash"]:
        return "another content hash"
    expected = flag_words(window, chars - chars[0])
    if (flags | BARRED != expected | BARRED).any() or (expected & BARRED & ~flags).any():
        return "other flags of words"
    return ""
