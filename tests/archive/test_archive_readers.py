"""Published objects are plain Parquet: other programs read them without Fourfold, and agree."""

from __future__ import annotations

import pytest

from fourfold.models.streams.archive import Policy
from fourfold.objects import FolderStore

MESSAGES = [b'{"n": %d, "text": "caf\xc3\xa9", "big": 12345678901234567890}' % n for n in range(50)]


@pytest.fixture
def published(make, tmp_path):
    """A stream on disk as objects, and what it holds: offsets, times, payloads."""
    with FolderStore(tmp_path / "objects") as objects:
        node = make(over=objects, policy=Policy(seal_rows=20))
        stream = node.streams.create("orders", "application/json")
        for message in MESSAGES:
            stream.append([message])
            node.now += 1
        node.archive.publish_all()
        _, chunk = node.streams.read("orders")
        rows = [(record.offset, record.ts_ms, record.payload) for record in chunk.records]
        files = sorted(tmp_path.glob("objects/**/*.parquet"), key=lambda path: path.name)
        assert len(files) == 3
        yield [str(path) for path in files], rows


def test_pandas_reads_what_the_node_answers(published):
    pandas = pytest.importorskip("pandas")
    files, rows = published
    frame = pandas.concat([pandas.read_parquet(file) for file in files])
    times = [int(time.timestamp() * 1000) for time in frame["append_time"]]
    found = list(zip(frame["offset"], times, frame["payload"], strict=True))
    assert found == rows
    assert set(frame["flags"]) == {0}


def test_polars_reads_what_the_node_answers(published):
    polars = pytest.importorskip("polars")
    files, rows = published
    frame = polars.read_parquet(files).sort("offset")
    times = frame["append_time"].dt.epoch("ms").to_list()
    found = list(zip(frame["offset"].to_list(), times, frame["payload"].to_list(), strict=True))
    assert found == rows


def test_duckdb_reads_what_the_node_answers(published):
    duckdb = pytest.importorskip("duckdb")
    files, rows = published
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        question = (
            'SELECT "offset", epoch_ms(append_time), payload FROM read_parquet($files) ORDER BY 1'
        )
        assert connection.execute(question, {"files": files}).fetchall() == rows
        summed = connection.execute(
            "SELECT sum(CAST(json_extract(decode(payload), '$.n') AS INTEGER)) "
            "FROM read_parquet($files)",
            {"files": files},
        ).fetchone()
    assert summed == (sum(range(50)),)
