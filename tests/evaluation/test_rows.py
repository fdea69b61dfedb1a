"""Rows at rest: computed once, damaged ones again."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cog.errors import EvaluationError
from cog.evaluation.rows import RowCache, digest_text, fill


def squares(calls: list[list[int]]) -> object:
    def compute(positions: list[int]) -> NDArray[np.float64]:
        calls.append(positions)
        return np.array([[float(i * i), 1.0] for i in positions])

    return compute


def test_rows_are_computed_once_and_keep_their_order(tmp_path: Path) -> None:
    digests = [digest_text(word) for word in ("a", "b", "a", "c", "d")]
    calls: list[list[int]] = []
    cache = RowCache(tmp_path / "rows")
    rows = fill(cache, digests, squares(calls), batch_size=2)  # type: ignore[arg-type]
    assert calls == [[0, 1], [3, 4]]
    assert rows[:, 0].tolist() == [0, 1, 0, 9, 16]
    again = fill(cache, digests[::-1], squares(calls), batch_size=2)  # type: ignore[arg-type]
    assert len(calls) == 2
    assert again[:, 0].tolist() == [16, 9, 0, 1, 0]


def test_damaged_file_is_computed_again(tmp_path: Path) -> None:
    digests = [digest_text("a"), digest_text("b")]
    calls: list[list[int]] = []
    cache = RowCache(tmp_path)
    fill(cache, digests, squares(calls), batch_size=1)  # type: ignore[arg-type]
    broken, _ = sorted(tmp_path.glob("*.npz"))
    broken.write_bytes(broken.read_bytes()[:20])
    rows = fill(cache, digests, squares(calls), batch_size=1)  # type: ignore[arg-type]
    assert rows[:, 0].tolist() == [0, 1]
    assert len(calls) == 3


def test_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="must be written to .*name another place"):
        RowCache(tmp_path / "file" / "rows").save([digest_text("a")], np.zeros((1, 1)))


def test_parts_of_a_text_are_told_apart() -> None:
    assert len({digest_text("ab", "c"), digest_text("a", "bc"), digest_text("abc")}) == 3
