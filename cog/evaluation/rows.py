"""Rows at rest: numbers that cost a model's pass go in by digest, and come out without one."""

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.atomic import clear_leftovers, replacing
from cog.decoding.batches import iter_batches
from cog.errors import EvaluationError, advise_on_writing

Rows = NDArray[Any]  # float32 or float64
DIGEST_BYTES = 16


class RowCache:
    """Rows of numbers by digest, in files that are only ever added.

    :param folder: Where they lie; what decides the numbers beside the text belongs into its name.
    :param before: Called before anything is written there.
    """

    def __init__(self, folder: Path, *, before: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._before = before

    def load(self, digests: Sequence[bytes]) -> dict[bytes, Rows]:
        """Find the rows that are known, by digest; a damaged file counts as not there."""
        clear_leftovers(self._folder)  # where all is known, nothing is written that would do it
        wanted = set(digests)
        found: dict[bytes, Rows] = {}
        for path in sorted(self._folder.glob("*.npz")):
            try:
                with path.open("rb") as file, np.load(file) as content:
                    names, rows = content["digests"], content["rows"]
            except (OSError, ValueError, KeyError, zipfile.BadZipFile):
                continue
            for i, name in enumerate(names):
                if (key := name.tobytes()) in wanted:
                    found[key] = rows[i]
        return found

    def save(self, digests: Sequence[bytes], rows: Rows) -> None:
        """Keep rows by their digests."""
        names = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        name = hashlib.sha256(b"".join(digests)).hexdigest()[:24]
        with stating_what_is_kept(self._folder, "what was measured before is kept"):
            self._before()
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._folder / f"{name}.npz") as new, new.open("wb") as file:
                np.savez(file, digests=names, rows=rows)


def digest_text(*parts: str) -> bytes:
    """Digest a text, or several that belong together: 16 bytes."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()


def fill(
    cache: RowCache,
    digests: Sequence[bytes],
    compute: Callable[[list[int]], Rows],
    *,
    batch_size: int,
) -> Rows:
    """Take rows from a cache, in order, and compute and keep those it lacks, a batch at a time.

    ``compute`` makes the rows of some positions of the digests, of which there is one at least;
    equal ones are computed once. *Shape:* ``(len(digests), num_columns)``
    """
    found = cache.load(digests)
    first_of = {key: i for i, key in reversed([*enumerate(digests)]) if key not in found}
    for batch in iter_batches(sorted(first_of.values()), batch_size):
        rows = compute(batch)
        cache.save([digests[i] for i in batch], rows)
        found.update((digests[i], row) for i, row in zip(batch, rows, strict=True))
    return np.stack([found[key] for key in digests])


@contextmanager
def stating_what_is_kept(folder: Path, kept: str) -> Iterator[None]:
    """Turn what the disk refuses into one line."""
    try:
        yield
    except OSError as error:
        raise EvaluationError(
            f"what is evaluated must be written to {folder}",
            found=f"{error.strerror or error}; {kept}",
            run=f"{advise_on_writing(error)}, then run the same command again: it goes on "
            "where it stopped",
            about=str(folder),
        ) from error
