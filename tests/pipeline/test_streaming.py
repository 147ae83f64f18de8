"""The streaming source: every commit once, in bounded batches, including later spaces."""

from __future__ import annotations

import shutil
import uuid

import pytest
from stream_driver import follow

import fourfold
from fourfold.pipeline.source import FourfoldSource
from fourfold.pipeline.spark import unwrap_error

pytestmark = pytest.mark.spark
A, B = "did:web:a.example", "did:web:b.example"
COLUMNS = "space string, seq long"


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store", settings={"documents.page_size": 4096}) as opened:
        fill(opened.space(A), 6)
        fill(opened.space(B, "facts"), 3)
        yield opened


def fill(space, commits):
    for number in range(commits):
        space.transact(
            [
                {"op": "set", "id": "left", "value": {"n": number}},
                {"op": "delete", "id": "right"},
            ]
        )


@pytest.fixture
def run(spark, tmp_path):
    """Run a query over the current data; return the rows of all runs so far, and its batches."""
    name = f"copy_{uuid.uuid4().hex}"
    checkpoint = tmp_path / "checkpoint"
    sink = tmp_path / "rows"

    def go(root, table="revisions", **options):
        reader = (
            spark.readStream.format("fourfold").option("root", str(root)).option("table", table)
        )
        for key, value in options.items():
            reader = reader.option(key, value)
        query = (
            reader.load()
            .writeStream.format("parquet")
            .option("path", str(sink))
            .option("checkpointLocation", str(checkpoint))
            .queryName(name)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        sizes = [each.numInputRows for each in query.recentProgress if each.numInputRows]
        return sorted(
            (row.space, row.seq) for row in spark.read.parquet(str(sink)).collect()
        ), sizes

    return go


def expected(store):
    return sorted(
        (did, seq)
        for did in store.spaces()
        for seq in range(1, store.space(did).seq() + 1)
        for _ in ("left", "right")
    )


def test_query_reads_rows_once_in_bounded_batches_and_resumes(store, run):
    rows, sizes = run(store.root, max_rows=8)
    assert rows == expected(store)
    assert max(sizes) <= 8
    assert sum(sizes) == len(rows)
    fill(store.space(A), 3)
    fill(store.space("did:web:late.example"), 5)
    rows, sizes = run(store.root)
    assert rows == expected(store)
    assert sum(sizes) == 2 * (3 + 5)
    assert run(store.root) == (rows, [])


def test_commit_larger_than_batch_is_not_split(store):
    options = {"root": store.root, "table": "revisions", "max_rows": 1, "space": B}
    rows, sizes, _ = follow(COLUMNS, **options)
    assert rows == [row for row in expected(store) if row[0] == B]
    assert sizes == [2] * 3


def test_commits_are_streamed_after_since(store):
    rows, _, _ = follow(COLUMNS, root=store.root, table="commits", since=2)
    assert rows == [(A, 3), (A, 4), (A, 5), (A, 6), (B, 3)]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("state", {}, "cannot be streamed"),
        ("revisions", {"at": "3"}, "not supported by a stream"),
        ("revisions", {"max_rows": "none"}, "positive integer"),
    ],
)
def test_tables_that_cannot_be_streamed_are_refused(store, table, options, message):
    source = FourfoldSource({"root": str(store.root), "table": table, **options})
    with pytest.raises(Exception, match=message) as caught:
        source.streamReader(source.schema())
    assert unwrap_error(caught.value).kind == "invalid_input"


def test_query_of_refused_table_raises_its_error(store, run):
    with pytest.raises(Exception, match="cannot be streamed") as caught:
        run(store.root, "state")
    assert unwrap_error(caught.value).kind == "invalid_input"


def test_stream_detects_older_store(store, tmp_path):
    path = store.root / "spaces" / f"{A}.sqlite"
    store.close()
    shutil.copy(path, tmp_path / "older")
    with fourfold.open(store.root) as again:
        fill(again.space(A), 3)
    options = {"root": store.root, "table": "revisions"}
    _, _, end = follow(COLUMNS, **options)
    shutil.copy(tmp_path / "older", path)
    with pytest.raises(Exception, match="expected seq 9 or later") as caught:
        follow(COLUMNS, end, **options)
    assert unwrap_error(caught.value).kind == "sequence_regression"
