"""Training examples at rest: chunks, tokenised once, in flat files that are memory-mapped.

An example is a chunk with its prefix-encoder tokens, its words and its WordPieces: what a batch is
assembled from, without a tokenizer and without torch.
"""

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cog.closing import Closing
from cog.errors import TrainingError
from cog.training.segmentation.records import ChunkWords

ABOUT_FILE = "about.json"  # written last: without it there are no examples
NAMES_FILE = "names.jsonl"
NUM_COMMON_WORDS = 150

# the fields of all examples end to end, in a file each, beside their bounds
ARRAYS: dict[str, type[np.generic]] = {
    "document": np.int32,
    "token_ids": np.int32,
    "word_tokens": np.int32,
    "word_hashes": np.uint64,
    "word_flags": np.uint8,
    "text": np.uint8,
    "word_bytes": np.int32,
    "piece_ids": np.int32,
    "start_pieces": np.int16,
    "end_pieces": np.int16,
}


@dataclass(frozen=True, slots=True)
class Example(ChunkWords):
    """One chunk, ready to be put into a batch."""

    piece_ids: NDArray[np.int32]  # (num_pieces,) WordPieces with the special ones
    start_pieces: NDArray[np.int16]  # (num_words,) column of each word's first piece
    end_pieces: NDArray[np.int16]  # (num_words,) column of each word's last piece


class ExampleWriter(Closing):
    """Writes examples to a folder, streamed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {
            name: (folder / f"{name}.bin").open("wb") for name in ARRAYS
        }
        self._names = (folder / NAMES_FILE).open("w", encoding="utf-8")
        self._bounds = {name: array("q", [0]) for name in ARRAYS}
        self.num_documents = 0

    @property
    def num_chunks(self) -> int:
        """Number of examples so far."""
        return len(self._bounds["document"]) - 1

    def add_document(self, name: str, examples: Iterable[Example]) -> None:
        """Append a document; its number is put into its examples here."""
        self._names.write(json.dumps(name) + "\n")
        for example in examples:
            text = np.frombuffer(example.text, dtype=np.uint8)
            own: dict[str, Any] = {"document": [self.num_documents], "text": text}
            for field, kind in ARRAYS.items():
                values = np.asarray(own.get(field, getattr(example, field)), dtype=kind)
                self._files[field].write(values.tobytes())
                self._bounds[field].append(self._bounds[field][-1] + len(values))
        self.num_documents += 1

    def finish(self) -> None:
        """Write what is left; without it the folder cannot be opened."""
        self.close()
        for name, bounds in self._bounds.items():
            np.save(self._folder / f"{name}.npy", np.array(bounds))
        word_hashes = _map(self._folder / "word_hashes.bin", np.uint64)
        about = {
            "num_documents": self.num_documents,
            "common_words": _find_common_words(word_hashes),
        }
        (self._folder / ABOUT_FILE).write_text(json.dumps(about, indent=1), encoding="utf-8")

    def close(self) -> None:
        """Close the files."""
        self._names.close()
        for file in self._files.values():
            file.close()


class ExampleStore:
    """Reads examples; nothing is loaded before it is asked for.

    ``documents`` is the document of each chunk, *shape* ``(num_chunks,)``; ``common_words`` are
    ascending hashes of the most frequent words, which carry little meaning.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            about = json.loads((folder / ABOUT_FILE).read_text("utf-8"))
            self._arrays = {
                name: _map(folder / f"{name}.bin", kind) for name, kind in ARRAYS.items()
            }
            self._bounds = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{folder.name} must hold training examples",
                found=str(error),
                run="remove the folder and run the same command again",
            ) from error
        self.documents: NDArray[np.int32] = self._arrays["document"]
        self.common_words = np.array(about["common_words"], dtype=np.uint64)
        self.num_chunks = len(self.documents)
        self.num_documents = int(about["num_documents"])
        self.num_tokens = len(self._arrays["token_ids"])

    def get(self, chunk: int) -> Example:
        """Read one example."""
        fields = {name: self._slice(name, chunk) for name in ARRAYS}
        fields["document"] = int(fields["document"][0])
        fields["text"] = fields["text"].tobytes()
        return Example(**fields)

    def get_text(self, chunk: int) -> str:
        """Read the text of one chunk."""
        text: bytes = self._slice("text", chunk).tobytes()
        return text.decode("utf-8")

    def get_context(self, chunk: int, *, max_tokens: int) -> NDArray[np.int32]:
        """Read the tokens of the document that stand before a chunk; of its first one, none."""
        bounds = self._bounds["token_ids"]
        first = int(np.searchsorted(self.documents, self.documents[chunk]))
        end = int(bounds[chunk])
        begin = max(int(bounds[first]), end - max_tokens)
        tokens: NDArray[np.int32] = self._arrays["token_ids"][begin:end]
        return tokens

    def load_names(self) -> list[str]:
        """Read what the documents are called."""
        lines = (self.folder / NAMES_FILE).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _slice(self, name: str, chunk: int) -> Any:  # noqa: ANN401
        begin, end = self._bounds[name][chunk : chunk + 2].tolist()
        return self._arrays[name][begin:end]


def _map(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    if path.stat().st_size == 0:  # nothing can be mapped
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


def _find_common_words(word_hashes: NDArray[Any]) -> list[int]:
    hashes, counts = np.unique(word_hashes, return_counts=True)
    order = np.lexsort((hashes, -counts))[:NUM_COMMON_WORDS]
    return [int(each) for each in np.sort(hashes[order])]
