"""Training examples at rest: chunks, tokenised once, in flat files that are memory-mapped.

An example is a chunk with its prefix-encoder tokens, its words and its WordPieces: what a batch is
assembled from, without a tokenizer and without torch.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cog.errors import TrainingError
from cog.training.segmentation.records import ChunkWords

FORMAT_VERSION = 1
ABOUT_FILE = "examples.json"
DOCUMENTS_FILE = "documents.jsonl"
NUM_COMMON_WORDS = 150

# the arrays of all chunks end to end; a bound array has one more entry per chunk than words
ARRAYS: dict[str, type[np.generic]] = {
    "documents": np.int32,
    "token_ids": np.int32,
    "word_tokens": np.int32,
    "word_bytes": np.int32,
    "word_hashes": np.uint64,
    "word_flags": np.uint8,
    "start_pieces": np.int16,
    "end_pieces": np.int16,
    "piece_ids": np.int32,
    "texts": np.uint8,
}
BOUNDS = ("token_bounds", "word_bounds", "piece_bounds", "text_bounds")


@dataclass(frozen=True, slots=True)
class Example:
    """One chunk, ready to be put into a batch.

    :param piece_ids: WordPieces with the special ones. *Shape:* ``(num_pieces,)``
    :param start_pieces: Column of each word's first piece. *Shape:* ``(num_words,)``
    :param end_pieces: Column of each word's last piece. *Shape:* ``(num_words,)``
    """

    words: ChunkWords
    piece_ids: NDArray[np.int32]
    start_pieces: NDArray[np.int16]
    end_pieces: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class DocumentName:
    """What a training document is called in messages.

    :param title: Its title; may be empty.
    """

    document_id: str
    title: str
    source: str

    def __str__(self) -> str:
        return f"{self.title} ({self.source})" if self.title else self.source or self.document_id


class ExampleWriter:
    """Writes examples to a folder, streamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {
            name: (folder / f"{name}.bin").open("wb") for name in ARRAYS
        }
        self._names = (folder / DOCUMENTS_FILE).open("w", encoding="utf-8")
        self._bounds: dict[str, list[int]] = {name: [0] for name in BOUNDS}
        self.num_documents = 0
        self.num_chunks = 0
        self.num_tokens = 0

    def add_document(self, name: DocumentName, examples: list[Example]) -> None:
        """Append a document.

        The document number of its chunks is set here.
        """
        line = [name.document_id, name.title, name.source]
        self._names.write(json.dumps(line, ensure_ascii=False) + "\n")
        for example in examples:
            self._add(example)
        self.num_documents += 1

    def finish(self, about: dict[str, Any]) -> None:
        """Write what is left; without it the folder cannot be opened."""
        for file in self._files.values():
            file.close()
        self._names.close()
        for name, bounds in self._bounds.items():
            np.save(self._folder / f"{name}.npy", np.array(bounds, dtype=np.int64))
        content = {
            "format_version": FORMAT_VERSION,
            "num_documents": self.num_documents,
            "num_chunks": self.num_chunks,
            "num_tokens": self.num_tokens,
            "common_words": _find_common_words(_map(self._folder / "word_hashes.bin", np.uint64)),
            **about,
        }
        (self._folder / ABOUT_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")

    def close(self) -> None:
        """Close the files of a folder that is given up."""
        for file in self._files.values():
            file.close()
        self._names.close()

    def _add(self, example: Example) -> None:
        words = example.words
        values: dict[str, Any] = {
            "documents": [self.num_documents],
            "token_ids": words.token_ids,
            "word_tokens": words.word_tokens,
            "word_bytes": words.word_bytes,
            "word_hashes": words.word_hashes,
            "word_flags": words.word_flags,
            "start_pieces": example.start_pieces,
            "end_pieces": example.end_pieces,
            "piece_ids": example.piece_ids,
            "texts": np.frombuffer(words.text, dtype=np.uint8),
        }
        for name, value in values.items():
            self._files[name].write(np.asarray(value, dtype=ARRAYS[name]).tobytes())
        sizes = {
            "token_bounds": len(words.token_ids),
            "word_bounds": words.num_words,
            "piece_bounds": len(example.piece_ids),
            "text_bounds": len(words.text),
        }
        for name, size in sizes.items():
            self._bounds[name].append(self._bounds[name][-1] + size)
        self.num_chunks += 1
        self.num_tokens += len(words.token_ids)


class ExampleStore:
    """Reads examples; nothing is loaded before it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.about: dict[str, Any] = json.loads((folder / ABOUT_FILE).read_text("utf-8"))
            bounds = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in BOUNDS}
            arrays = {name: _map(folder / f"{name}.bin", kind) for name, kind in ARRAYS.items()}
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{folder.name} must hold training examples",
                found=str(error),
                run="remove the folder and run the same command again",
                about=str(folder),
            ) from error
        self._arrays, self._bounds = arrays, bounds
        self.num_chunks = int(self.about["num_chunks"])
        self.num_documents = int(self.about["num_documents"])
        self.num_tokens = int(self.about["num_tokens"])

    @property
    def documents(self) -> NDArray[np.int32]:
        """Number of the document of each chunk.

        *Shape:* ``(num_chunks,)``
        """
        rows: NDArray[np.int32] = self._arrays["documents"]
        return rows

    @property
    def common_words(self) -> NDArray[np.uint64]:
        """Hashes of the most frequent words, which carry little meaning.

        Ascending. *Shape:* ``(num_words,)``
        """
        return np.array(self.about["common_words"], dtype=np.uint64)

    def get(self, chunk: int) -> Example:
        """Read one example."""
        first, last = (int(bound) for bound in self._bounds["word_bounds"][chunk : chunk + 2])
        bounded = slice(first + chunk, last + chunk + 1)  # one entry more per chunk before
        arrays = self._arrays
        return Example(
            words=ChunkWords(
                document=int(arrays["documents"][chunk]),
                token_ids=self._slice("token_ids", "token_bounds", chunk),
                word_tokens=arrays["word_tokens"][bounded],
                word_hashes=arrays["word_hashes"][first:last],
                word_flags=arrays["word_flags"][first:last],
                text=self.get_text(chunk),
                word_bytes=arrays["word_bytes"][bounded],
            ),
            piece_ids=self._slice("piece_ids", "piece_bounds", chunk),
            start_pieces=arrays["start_pieces"][first:last],
            end_pieces=arrays["end_pieces"][first:last],
        )

    def get_text(self, chunk: int) -> bytes:
        """Read the text of one chunk."""
        return self._slice("texts", "text_bounds", chunk).tobytes()

    def get_context(self, chunk: int, *, max_tokens: int) -> NDArray[np.int32]:
        """Read the tokens of the document that stand before a chunk.

        None stand before the first chunk of a document. *Shape:* ``(num_tokens,)``
        """
        documents, bounds = self.documents, self._bounds["token_bounds"]
        first = int(np.searchsorted(documents, documents[chunk]))
        end = int(bounds[chunk])
        rows: NDArray[np.int32] = self._arrays["token_ids"][
            max(int(bounds[first]), end - max_tokens) : end
        ]
        return rows

    def load_names(self) -> list[DocumentName]:
        """Read what the documents are called."""
        with (self.folder / DOCUMENTS_FILE).open(encoding="utf-8", newline="\n") as lines:
            return [DocumentName(*json.loads(line)) for line in lines]

    def _slice(self, name: str, bounds: str, chunk: int) -> NDArray[Any]:
        start, end = (int(bound) for bound in self._bounds[bounds][chunk : chunk + 2])
        rows: NDArray[Any] = self._arrays[name][start:end]
        return rows


def _map(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


def _find_common_words(word_hashes: NDArray[Any]) -> list[int]:
    hashes, counts = np.unique(word_hashes, return_counts=True)
    order = np.lexsort((hashes, -counts))[:NUM_COMMON_WORDS]
    return [int(each) for each in np.sort(hashes[order])]
