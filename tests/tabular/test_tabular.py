"""Rows as tables: types by declaration, conversions, and what happens without pyarrow."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pytest

import fourfold
from fourfold.tabular import RecordColumn, Rows, Table, Tabular, columns_of

TIME = pa.timestamp("us", "UTC")


class Reading(NamedTuple):
    name: str
    count: int | None
    size: float
    done: bool
    raw: bytes
    read_at: str
    kind: Literal["a", "b"]
    value: Any


class Inner(msgspec.Struct):
    x: int


class Outer(msgspec.Struct):
    inner: Inner


READING = Reading("one", None, 1, True, b"\x00", "2026-01-02T03:04:05.678Z", "a", {"x": [1, "é"]})


class Mixed(Tabular):
    """Columns without a declared type, as SQL returns them."""

    def __init__(self, *rows: tuple[object, ...]) -> None:
        self._rows = rows

    def _table(self) -> Table:
        names = "abcdef"[: len(self._rows[0])]
        return [RecordColumn(name) for name in names], self._rows


def test_columns_have_the_types_that_the_record_declares():
    schema = Rows([READING]).to_arrow().schema
    assert schema.names == list(Reading._fields)
    assert schema.types == [
        pa.string(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.binary(),
        TIME,
        pa.string(),
        pa.string(),
    ]


def test_a_table_without_rows_has_the_same_columns():
    assert Rows([], Reading).to_arrow().schema == Rows([READING]).to_arrow().schema
    assert Rows().to_arrow().num_columns == 0


def test_values_survive_the_conversion():
    [row] = Rows([READING]).to_arrow().to_pylist()
    assert row["read_at"] == datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert json.loads(row["value"]) == READING.value
    assert row["raw"] == READING.raw
    assert row["count"] is None


def test_columns_without_a_type_follow_their_values():
    table = Mixed((1, 1, "a", None, b"x", 1), (2, 2.5, "b", None, b"y", "two")).to_arrow()
    assert table.schema.types == [
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.null(),
        pa.binary(),
        pa.string(),
    ]
    assert table["f"].to_pylist() == ["1", '"two"']


def test_dicts_have_the_columns_of_all_of_them():
    rows = Rows([{"id": 1, "role": "user"}, {"id": 2, "content": {"text": "hello"}}])
    assert rows.to_arrow().to_pylist() == [
        {"id": 1, "role": "user", "content": None},
        {"id": 2, "role": None, "content": '{"text": "hello"}'},
    ]


def test_a_slice_of_rows_is_a_table_too():
    rows = Rows([READING, READING], Reading)
    assert rows[:1].to_arrow().num_rows == 1
    assert rows[5:].to_arrow().schema == rows.to_arrow().schema
    assert rows[0] == READING


def test_nested_records_are_json_text():
    assert columns_of(Outer) == (RecordColumn("inner", "json"),)
    assert Rows([Outer(Inner(1))]).to_arrow().to_pylist() == [{"inner": '{"x": 1}'}]


def test_other_libraries_import_a_table_without_a_conversion():
    mixed = Mixed((1, "a"), (2, "b"))
    assert pl.DataFrame(mixed).rows() == [(1, "a"), (2, "b")]
    assert duckdb.from_arrow(mixed).fetchall() == [(1, "a"), (2, "b")]
    assert pa.table(mixed).equals(mixed.to_arrow())


def test_rows_convert_to_other_libraries():
    rows = Rows([READING])
    assert pa.RecordBatchReader.from_stream(rows).read_all().equals(rows.to_arrow())
    assert rows.to_polars().equals(pl.DataFrame(rows.to_arrow()))
    frame = rows.to_pandas()
    assert list(frame.columns) == list(Reading._fields)
    assert frame["name"].tolist() == ["one"]


@pytest.mark.parametrize(
    ("module", "call"),
    [("pyarrow", "to_arrow"), ("polars", "to_polars"), ("pandas", "to_pandas")],
)
def test_missing_library_is_named_with_command_that_installs_it(module, call):
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from fourfold import MissingDependency\nfrom fourfold.tabular import Rows\n"
        f"try: Rows([{{'a': 1}}]).{call}()\n"
        "except MissingDependency as error: print(error, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{module} is not installed" in done.stdout
    assert "pip install" in done.stdout


def test_html_shows_nested_values_as_code():
    shown = Rows([READING])._repr_html_()
    assert "<th scope='col'>read_at</th>" in shown
    assert "<code>{&quot;x&quot;: [1, &quot;é&quot;]}</code>" in shown


def test_html_without_rows_says_so():
    assert "No rows" in Rows()._repr_html_()
    assert "No rows" in Rows([], Reading)._repr_html_()


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


def test_results_of_documents_are_tables(store):
    space = store.space("did:web:shop.example")
    space.set("order:1", {"status": "open"})
    space.patch("order:1", [{"op": "replace", "path": "/status", "value": "paid"}])
    history = space.history("order:1").to_arrow()
    assert history["op"].to_pylist() == ["set", "patch"]
    assert history["seq"].to_pylist() == [1, 2]
    log = space.log().to_arrow()
    assert log.schema.field("created_at").type == TIME
    assert store.documents.list().to_arrow()["did"].to_pylist() == ["did:web:shop.example"]
    assert space.history("order:2").to_arrow().schema == history.schema


def test_records_of_a_stream_are_a_table(store):
    stream = store.streams.create("clicks", "application/json")
    stream.append([{"n": 1}, {"n": 2}])
    chunk = stream.read()
    table = chunk.to_arrow()
    assert table.schema.names == ["offset", "time", "payload", "headers"]
    assert [json.loads(payload)["n"] for payload in table["payload"].to_pylist()] == [1, 2]
    assert table["time"].to_pylist()[0].timestamp() * 1000 == chunk.records[0].ts_ms
    assert pl.DataFrame(chunk).height == 2


def test_events_and_messages_of_a_session_are_tables(store):
    session = store.sessions.create({"id": "s"})
    session.append({"type": "message/appended", "message": {"role": "user", "content": "hello"}})
    log = session.log().to_arrow()
    assert log["type"].to_pylist() == ["session/created", "message/appended"][-log.num_rows :]
    assert log.schema.field("at").type == TIME
    assert session.read().events.to_arrow().equals(log)
    messages = session.read().messages.to_arrow()
    assert messages["role"].to_pylist() == ["user"]
    assert session.log(after=99).to_arrow().schema == log.schema


def test_objects_of_a_graph_are_tables(store):
    notes = store.graphs.create("notes", "Notes")
    note = notes.register_type("parent", "note")
    notes.insert("parent", [{"type_id": note, "owner_identity": 1}])
    objects = notes.objects("parent").to_arrow()
    assert objects["type_id"].to_pylist() == [note]
    assert notes.objects("edge").to_arrow().schema.names[:2] == ["id", "src_parent_id"]
    assert notes.log().to_arrow()["kind"].to_pylist() == ["parent"]
