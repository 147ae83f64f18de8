"""Rows in Parquet files: parts are read as they were written; damage is found."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fourfold.archive.publication import TableColumn
from fourfold.archive.row_files import RowFile, check_values, read_rows
from fourfold.errors import CorruptData

COLUMNS = (
    TableColumn("n", "INTEGER"),
    TableColumn("t", "TEXT"),
    TableColumn("r", "REAL"),
    TableColumn("b", "BLOB"),
)
ROWS = [(number, f"{number}", number / 2, b"x" * number) for number in range(10)]


def encoded(rows):
    target = io.BytesIO()
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip("ntrb", columns, strict=True))), target, row_group_size=4)
    return target.getvalue()


@pytest.mark.parametrize(("at", "count"), [(0, None), (0, 4), (3, 2), (2, 7), (9, 1), (5, 0)])
def test_part_of_a_file_is_read(at, count):
    part = [row for _, rows in RowFile(encoded(ROWS), "it").rows(at, count) for row in rows]
    assert part == ROWS[at : None if count is None else at + count]


def test_missing_rows_are_damage():
    with pytest.raises(CorruptData, match="expected 11 rows, found 10"):
        list(RowFile(encoded(ROWS), "it").rows(8, 3))


@pytest.mark.parametrize(
    "row", [("x", None, None, None), (None, b"x", None, None), (1.5, None, None, None)]
)
def test_a_value_of_another_kind_is_damage(row):
    check_values([*ROWS, (None,) * 4], COLUMNS, "things")
    with pytest.raises(CorruptData, match="things"):
        check_values([*ROWS, row], COLUMNS, "things")


def test_what_is_no_file_of_rows_is_refused():
    with pytest.raises(CorruptData):
        list(read_rows(b"PAR1 and then nothing", "it"))
