"""Records of the index: what a build states and what a gather returns; nothing is read here."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cog.model.vector_code import VectorCodes

    Stored = NDArray[np.int8] | NDArray[np.float16] | NDArray[np.uint8]

FORMAT_VERSION = 3
FLAT = "flat"  # search that looks at every chunk's vector
LISTS = "lists"  # search on disk, in lists of chunks that lie near each other
VECTORS_VERSION = 2  # format since which a chunk's vectors are stored as they are now


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Where every document went: ``num_in`` is ``num_indexed`` plus the sum of ``skipped``."""

    num_in: int  # documents that the source holds
    num_indexed: int
    # number of documents left out, by reason; those of prepare and of the build
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How start and end vectors are stored."""

    dtype: str  # `int8` (one scale per vector), `float16`, or `compact` (bits of a code)
    dim: int  # width of a start or end vector
    bytes_per_word: float  # bytes of both vectors and their scales
    codes: str = ""  # digest of the codes of `compact` vectors, which lie beside the tables


@dataclass(frozen=True, slots=True)
class StorageCost:
    """What storing vectors in few bits changes in the distribution of the next segment."""

    num_prefixes: int  # held-out prefixes it was measured on
    total_variation_mean: float  # total variation between exact and stored, mean over prefixes
    total_variation_max: float  # largest over the prefixes
    # digest of the index it was measured on, if that is an earlier version whose chunks are nearly
    # all in this one; None if it is this one
    measured_on: str | None = None


@dataclass(frozen=True, slots=True)
class SearchQuality:
    """How chunks are searched, and what that finds of what exact search finds."""

    kind: str  # `flat` or `lists`
    dim: int  # width of a retriever vector
    num_rows: int  # chunk vectors in the searcher (none is left unindexed)
    num_lists: int  # lists of chunks that lie near each other; 0 for flat
    num_probes: int  # lists read per search; 0 for flat
    recall_at: int  # the k of the recall
    recall: float  # share of the k best chunks by exact search that the searcher finds
    # number of documents by licence, which a rule is checked against; empty for flat, where it is
    # counted when it is asked for
    licences: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a version folder."""

    size_bytes: int
    sha256: str  # its checksum; says that the file is whole, never which index it is


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a built index states about itself."""

    format_version: int  # version of the manifest and the tables
    corpus: str
    digest: str  # digest of the index's rows in canonical order
    folder: str  # name of the version folder below `index/`
    documents_digest: str  # digest of the documents it was built from
    model: str  # fingerprint of the model it was built with
    numerics: str  # what decides the last bits of its vectors: device, instruction set, library
    created_with: str  # version of cog that built it
    built_at: str  # when, ISO 8601 in UTC
    params: dict[str, Any]  # the index section of params.yaml
    documents: DocumentCounts  # where every document went
    num_chunks: int
    # number of chunks that this build encoded; the vectors of the others were stored before
    num_encoded: int
    num_words: int
    num_tokens: int
    skipped_words: int  # number of words longer than a chunk, left out
    vectors: VectorFormat  # how vectors are stored
    storage_cost: StorageCost | None  # what that costs; None if it was not measured
    search: SearchQuality  # how chunks are searched
    # bytes on disk by table, of contexts and word counts, of what in the chunks table search reads,
    # in all, and before and after compaction
    sizes: dict[str, int]
    files: dict[str, FileEntry]  # every file of the version folder, by relative path
    seconds: dict[str, float]  # seconds per part of the build, and `words_per_second`


@dataclass(frozen=True, slots=True)
class GatheredChunks:
    """The words of some chunks, in the order they were asked for; arrays are C-contiguous.

    Word ``k`` of chunk ``i`` is row ``word_offsets[i] + k`` of every array of words.
    """

    chunk_ids: "NDArray[np.int64]"  # (num_chunks,)
    document_ordinals: "NDArray[np.int64]"  # (num_chunks,) position of its document in the index
    word_offsets: "NDArray[np.int64]"  # (num_chunks + 1,)
    start_vectors: "Stored"  # (num_words, dim) as stored; of codes, their integers
    end_vectors: "Stored"  # likewise
    start_scales: "NDArray[np.float32]"  # (num_words,) what a stored vector is multiplied by
    end_scales: "NDArray[np.float32]"  # (num_words,)
    word_flags: "NDArray[np.uint8]"  # (num_words,) bits of `cog.model.words`
    word_hashes: "NDArray[np.uint64]"  # (num_words,) of each word's text with its leading space
    word_chars: "NDArray[np.int32]"  # (num_words, 2) characters [start, end) in its document
    word_tokens: "NDArray[np.int64]"  # (num_words, 2) tokens [start, end) in `token_ids`
    token_ids: "NDArray[np.int32]"  # (num_tokens,) of the prefix encoder
    codes: "VectorCodes | None" = None  # what integers stand for; None if they are scaled values


@dataclass(frozen=True, slots=True)
class Places:
    """Where the last tokens of a text stand in an index, with a token behind them."""

    num_tokens: int  # how many of the last tokens stand, unbroken, before each place; 0 if too few
    # (num_chunks,) chunks of the tokens that follow, and of those before that are the same;
    # in ascending order, each once
    chunk_ids: "NDArray[np.int64]"
