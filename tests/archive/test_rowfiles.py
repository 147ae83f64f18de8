"""Rows as Parquet files: what goes in comes out, in bounded files; damage is not written."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold.archive.publication import TableColumn
from fourfold.archive.row_files import read_rows, write_rows
from fourfold.errors import CorruptData

COLUMNS = (
    TableColumn("n", "INTEGER"),
    TableColumn("t", "TEXT"),
    TableColumn("r", "REAL"),
    TableColumn("b", "BLOB"),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROW = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | TEXT,
    st.none() | st.floats(allow_nan=False),
    st.none() | st.binary(max_size=8),
)


def written(rows, folder):
    return list(write_rows(iter(rows), COLUMNS, folder, "things", "{}.parquet".format))


def read(files):
    return [
        row for file in files for _, part in read_rows(file.path.read_bytes(), "it") for row in part
    ]


@given(st.lists(ROW, max_size=20))
def test_rows_come_back_byte_for_byte(tmp_path_factory, rows):
    files = written(rows, tmp_path_factory.mktemp("rows"))
    assert list(map(repr, read(files))) == list(map(repr, rows))
    assert sum(file.rows for file in files) == len(rows)


def test_much_becomes_several_files_of_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SEGMENT_GROUP_BYTES", 1_000)
    monkeypatch.setattr("fourfold.archive.row_files.PUBLISH_SEGMENT_BYTES", 5_000)
    rows = [(number, "x" * 100, None, b"y" * 100) for number in range(100)]
    files = written(rows, tmp_path)
    assert len(files) > 2
    assert all(pq.ParquetFile(file.path).num_row_groups > 1 for file in files[:-1])
    assert read(files) == rows
    assert sorted(file.path for file in files) == sorted(tmp_path.iterdir())


@pytest.mark.parametrize(
    "row", [("x", None, None, None), (None, b"x", None, None), (1.5, None, None, None)]
)
def test_a_value_of_another_kind_is_damage_and_is_not_written(tmp_path, row):
    with pytest.raises(CorruptData, match="things"):
        written([row], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_of_rows_is_refused():
    with pytest.raises(CorruptData):
        list(read_rows(b"PAR1 and then nothing", "it"))
