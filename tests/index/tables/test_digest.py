"""The digest: independent of batches, dependent on every value."""

import numpy as np
import pyarrow as pa
import pytest

from cog.index.tables.digest import RowDigest, get_binary_buffers

TABLE = pa.table(
    {
        "number": pa.array([1, 2, 3, 4], pa.int64()),
        "text": pa.array(["a", "", "bc", "d"], pa.large_string()),
        "blob": pa.array([b"12", b"3", b"", b"456"], pa.large_binary()),
        "vector": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32(), 2)),
    }
)


def digest_of(table: pa.Table, *, rows: int = 4, header: str = "h") -> str:
    digest = RowDigest({"header": header})
    for batch in table.to_batches(max_chunksize=rows):
        digest.update("rows", batch)
    return digest.hexdigest()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_batches_do_not_matter(rows: int) -> None:
    assert digest_of(TABLE, rows=rows) == digest_of(TABLE)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("number", pa.array([1, 2, 3, 5], pa.int64())),
        ("text", pa.array(["", "a", "bc", "d"], pa.large_string())),
        ("blob", pa.array([b"1", b"23", b"", b"456"], pa.large_binary())),
        ("vector", pa.array([[1.0, 2.0]] * 3 + [[2.0, 1.0]], pa.list_(pa.float32(), 2))),
    ],
)
def test_every_value_matters(column: str, values: pa.Array) -> None:
    changed = TABLE.set_column(TABLE.schema.get_field_index(column), column, values)
    assert digest_of(changed) != digest_of(TABLE)


def test_header_and_order_matter() -> None:
    assert digest_of(TABLE, header="other") != digest_of(TABLE)
    assert digest_of(TABLE.take([1, 0, 2, 3])) != digest_of(TABLE)


def test_null_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rows\.number"):
        digest_of(pa.table({"number": pa.array([1, None], pa.int64())}))


def test_buffers_of_a_slice_begin_at_zero() -> None:
    column = pa.array([b"12", b"345", b"6"], pa.large_binary()).slice(1, 2)
    offsets, values = get_binary_buffers(column)
    assert offsets.tolist() == [0, 3, 4]
    assert bytes(values) == b"3456"
    assert np.shares_memory(values, np.frombuffer(column.buffers()[2], np.uint8))
