"""Schemas of Delta tables, and statistics that never exclude a row that is there."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold.archive.delta_schema import (
    STATS_STRING_CHARS,
    FileStatistics,
    decode_schema,
    encode_schema,
    file_statistics,
    lower_bound,
    upper_bound,
)
from fourfold.errors import CorruptData, InvalidInput

LAST = "\U0010ffff"
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.builds(
        lambda n, tail: "a" * n + tail,
        st.integers(STATS_STRING_CHARS - 2, STATS_STRING_CHARS + 2),
        st.text(st.sampled_from(["a", "é", LAST, "\uffff", "\x00"]), max_size=5),
    )
    | st.just("x" * 5000)
)


def statistics(columns, **options):
    """The statistics of a file with these columns, in row groups of two rows."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=2, **options)
    return FileStatistics.decode(file_statistics(pq.read_metadata(sink)))


@given(TEXTS)
def test_truncated_strings_are_bounds(text):
    assert lower_bound(text) <= text <= upper_bound(text)
    assert lower_bound(text).encode() <= text.encode() <= upper_bound(text).encode()
    limit = STATS_STRING_CHARS + 1 + text.count(LAST)
    assert len(lower_bound(text)) <= STATS_STRING_CHARS
    assert len(upper_bound(text)) <= limit


VALUES = {
    "s": (pa.string(), TEXTS),
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "d": (pa.float64(), st.floats()),
    "b": (pa.binary(), st.binary(max_size=4)),
    "f": (pa.bool_(), st.booleans()),
    "c": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
}
ROWS = st.lists(st.tuples(*(st.none() | kind for _, kind in VALUES.values())), max_size=9)


@given(ROWS)
def test_statistics_admit_every_row(rows):
    columns = list(zip(*rows, strict=True)) or [()] * len(VALUES)
    table = {
        name: pa.array(column, kind)
        for (name, (kind, _)), column in zip(VALUES.items(), columns, strict=True)
    }
    stats = statistics(table)
    assert stats.num_records == len(rows)
    for name, column in zip(VALUES, columns, strict=True):
        if rows:
            assert stats.null_count[name] == column.count(None)
        for value in column:
            if value == value:  # NaN is not compared, but must not be excluded by readers.
                assert stats.admits(name, value), (name, value, stats)
    assert "d" not in stats.max_values
    assert not {"b", "f"} & {*stats.min_values, *stats.max_values}


def test_statistics_exclude_other_values():
    stats = statistics({"s": ["b", None, "d", "c"], "n": [3, 4, 9, 5]})
    assert stats == FileStatistics(4, {"s": "b", "n": 3}, {"s": "d", "n": 9}, {"s": 1, "n": 0})
    assert [stats.admits("s", value) for value in ("a", "b", "c", "d", "e")] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert not stats.admits("n", None)
    assert stats.admits("s", None)
    assert stats.admits_range("n", 0, 3)
    assert not stats.admits_range("n", 0, 2)
    assert not stats.admits_range("n", 10, 12)
    assert stats.admits("unknown", 1)


def test_statistics_of_nulls_exclude_every_value():
    stats = statistics({"n": pa.array([None, None, None], pa.int64())})
    assert not stats.admits("n", 3)
    assert stats.admits("n", None)


def test_statistics_of_columns_without_footers_have_no_bounds():
    stats = statistics({"n": [1, 2, 3]}, write_statistics=False)
    assert stats.num_records == 3
    assert stats.admits("n", 10)
    assert stats.admits("n", None)


def test_statistics_are_of_the_requested_columns():
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1], "b": [2]}), sink)
    stats = FileStatistics.decode(file_statistics(pq.read_metadata(sink), ["b"]))
    assert stats == FileStatistics(1, {"b": 2}, {"b": 2}, {"b": 0})


def test_infinity_and_times_in_statistics():
    start = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    stats = statistics(
        {
            "d": [float("-inf"), 1.0],
            "t": pa.array([start, start + timedelta(days=1)], pa.timestamp("us", tz="UTC")),
            "day": [date(2026, 1, 2), date(2026, 1, 3)],
        }
    )
    assert "d" not in stats.min_values
    assert stats.min_values["t"] == "2026-01-02T03:04:05.678901Z"
    assert stats.max_values["t"] == "2026-01-03T03:04:05.678901Z"
    assert stats.max_values["day"] == "2026-01-03"


def test_missing_statistics_admit_everything():
    assert FileStatistics.decode(None).admits("a", 1)
    with pytest.raises(CorruptData):
        FileStatistics.decode("{")


FIELDS = [
    ("long", pa.int64()),
    ("integer", pa.int32()),
    ("string", pa.string()),
    ("double", pa.float64()),
    ("binary", pa.binary()),
    ("boolean", pa.bool_()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("date", pa.date32()),
    ("list", pa.list_(pa.field("element", pa.string()))),
    ("struct", pa.struct([pa.field("a", pa.int64(), nullable=False)])),
    ("map", pa.map_(pa.string(), pa.int64())),
]


def test_schema_survives_the_round_trip():
    schema = pa.schema([pa.field(name, kind, nullable=name != "long") for name, kind in FIELDS])
    assert decode_schema(encode_schema(schema)).equals(schema)


def test_schema_is_what_other_writers_make():
    delta = pytest.importorskip("deltalake")
    schema = pa.schema(FIELDS)
    assert delta.Schema.from_json(encode_schema(schema)) == delta.Schema.from_arrow(schema)


def test_dictionary_has_the_type_of_its_values():
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string()))])
    assert decode_schema(encode_schema(schema)) == pa.schema([("a", pa.string())])


@pytest.mark.parametrize("kind", [pa.timestamp("ms", tz="UTC"), pa.timestamp("us"), pa.uint8()])
def test_type_without_a_delta_type_is_refused(kind):
    with pytest.raises(InvalidInput, match="cannot be a column"):
        encode_schema(pa.schema([("a", kind)]))


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"fields":[{"name":"a","type":"interval"}]}', '{"fields":[{}]}']
)
def test_invalid_schema_is_corrupt(text):
    with pytest.raises(CorruptData):
        decode_schema(text)
