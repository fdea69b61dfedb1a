"""Records of the index: what a build states and what a gather returns; nothing is read here."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT_VERSION = 3
VECTORS_VERSION = 2  # format since which a chunk's vectors are stored as they are now


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Where every document went: ``num_in`` is ``num_indexed`` plus the sum of ``skipped``.

    :param num_in: Number of documents that the source holds.
    :param num_indexed: Number of documents in the index.
    :param skipped: Number of documents left out, by reason; those of prepare and of the build.
    """

    num_in: int
    num_indexed: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How start and end vectors are stored.

    :param dtype: ``int8`` (one scale per vector) or ``float16``.
    :param dim: Width of a start or end vector.
    :param bytes_per_word: Bytes of both vectors and their scales.
    """

    dtype: str
    dim: int
    bytes_per_word: float


@dataclass(frozen=True, slots=True)
class StorageCost:
    """What storing vectors in few bits changes in the distribution of the next segment.

    :param num_prefixes: Number of held-out prefixes it was measured on.
    :param total_variation_mean: Total variation between exact and stored, mean over prefixes.
    :param total_variation_max: Largest over the prefixes.
    :param measured_on: Digest of the index it was measured on, if that is an earlier version whose
        chunks are nearly all in this one; None if it is this one.
    """

    num_prefixes: int
    total_variation_mean: float
    total_variation_max: float
    measured_on: str | None = None


@dataclass(frozen=True, slots=True)
class SearchQuality:
    """How chunks are searched, and what that finds of what exact search finds.

    :param kind: ``flat`` or ``ivf``.
    :param dim: Width of a retriever vector.
    :param num_rows: Number of chunk vectors in the searcher (none is left unindexed).
    :param num_lists: Number of inverted lists; 0 for flat.
    :param num_probes: Number of lists read per search; 0 for flat.
    :param recall_at: The k of the recall.
    :param recall: Share of the k best chunks by exact search that the searcher finds.
    """

    kind: str
    dim: int
    num_rows: int
    num_lists: int
    num_probes: int
    recall_at: int
    recall: float


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a version folder.

    :param size_bytes: Its size.
    :param sha256: Its checksum; says that the file is whole, never which index it is.
    """

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a built index states about itself.

    :param format_version: Version of the manifest and the tables.
    :param corpus: Corpus id.
    :param digest: Digest of the index's rows in canonical order.
    :param folder: Name of the version folder below ``index/``.
    :param documents_digest: Digest of the documents it was built from.
    :param model: Fingerprint of the model it was built with.
    :param numerics: What decides the last bits of its vectors: device, instruction set, library.
    :param created_with: Version of cog that built it.
    :param built_at: When, ISO 8601 in UTC.
    :param params: The index section of params.yaml.
    :param documents: Where every document went.
    :param num_chunks: Number of chunks.
    :param num_encoded: Number of chunks that this build encoded; the vectors of the others were
        stored before.
    :param num_words: Number of words.
    :param num_tokens: Number of prefix-encoder tokens.
    :param skipped_words: Number of words longer than a chunk, left out.
    :param vectors: How vectors are stored.
    :param storage_cost: What that costs; None if it was not measured.
    :param search: How chunks are searched.
    :param sizes: Bytes on disk by table, of contexts and word counts, in all, and before and after
        compaction.
    :param files: Every file of the version folder, by relative path.
    :param seconds: Seconds per part of the build, and ``words_per_second``.
    """

    format_version: int
    corpus: str
    digest: str
    folder: str
    documents_digest: str
    model: str
    numerics: str
    created_with: str
    built_at: str
    params: dict[str, Any]
    documents: DocumentCounts
    num_chunks: int
    num_encoded: int
    num_words: int
    num_tokens: int
    skipped_words: int
    vectors: VectorFormat
    storage_cost: StorageCost | None
    search: SearchQuality
    sizes: dict[str, int]
    files: dict[str, FileEntry]
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The manifest as manifest.json holds it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class GatheredChunks:
    """The words of some chunks, in the order they were asked for; arrays are C-contiguous.

    :param chunk_ids: The chunks. *Shape:* ``(num_chunks,)`` int64
    :param document_ordinals: Position of each chunk's document in the index.
        *Shape:* ``(num_chunks,)`` int64
    :param word_offsets: Words of chunk i are ``[word_offsets[i], word_offsets[i + 1])``.
        *Shape:* ``(num_chunks + 1,)`` int64
    :param start_vectors: Stored start vectors, int8 or float16. *Shape:* ``(num_words, dim)``
    :param end_vectors: Stored end vectors, int8 or float16. *Shape:* ``(num_words, dim)``
    :param start_scales: What a stored start vector is multiplied by.
        *Shape:* ``(num_words,)`` float32
    :param end_scales: What a stored end vector is multiplied by.
        *Shape:* ``(num_words,)`` float32
    :param word_flags: Bits of ``cog.model.words``: barred, can start, can end, specific.
        *Shape:* ``(num_words,)`` uint8
    :param word_hashes: Hash of each word's text with its leading space.
        *Shape:* ``(num_words,)`` uint64
    :param word_chars: Characters ``[start, end)`` of each word in its document.
        *Shape:* ``(num_words, 2)`` int32
    :param word_tokens: Tokens ``[start, end)`` of each word in ``token_ids``.
        *Shape:* ``(num_words, 2)`` int64
    :param token_ids: Prefix-encoder tokens of the chunks. *Shape:* ``(num_tokens,)`` int32
    """

    chunk_ids: "NDArray[np.int64]"
    document_ordinals: "NDArray[np.int64]"
    word_offsets: "NDArray[np.int64]"
    start_vectors: "NDArray[np.int8] | NDArray[np.float16]"
    end_vectors: "NDArray[np.int8] | NDArray[np.float16]"
    start_scales: "NDArray[np.float32]"
    end_scales: "NDArray[np.float32]"
    word_flags: "NDArray[np.uint8]"
    word_hashes: "NDArray[np.uint64]"
    word_chars: "NDArray[np.int32]"
    word_tokens: "NDArray[np.int64]"
    token_ids: "NDArray[np.int32]"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the last tokens of a text stand in an index, with a token behind them.

    :param num_tokens: How many of the last tokens stand, unbroken, before each place; 0 if too few.
    :param chunk_ids: Chunks of the tokens that follow, and of those before that are the same; in
        ascending order, each once. *Shape:* ``(num_chunks,)`` int64
    """

    num_tokens: int
    chunk_ids: "NDArray[np.int64]"
