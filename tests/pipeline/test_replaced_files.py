"""Reads detect changes of files after the cut: gc, and a space that is created again."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fourfold
from fourfold.errors import HistoryTruncated, InvalidInput, NotFound, SequenceRegression
from fourfold.models.documents import GcPolicy
from fourfold.pipeline import cut, scan, stream_source
from fourfold.pipeline import plan as plan_module
from fourfold.pipeline.jobs import run
from fourfold.pipeline.jobs.job import Context, Plan, Range
from fourfold.pipeline.jobs.snapshots import job as snapshots_job
from fourfold.pipeline.options import read_options
from fourfold.pipeline.spark import unwrap_error

A = "did:web:a.example"


def fill(root, prefix, commits, did=A):
    with fourfold.open(root, settings={"documents.page_size": 4096}) as store:
        space = store.space(did)
        for number in range(commits):
            space.set(f"{prefix}{number}", {"n": number})


def recreate(root, prefix, commits, did=A):
    for path in (Path(root) / "spaces").glob(f"{did}*"):
        path.unlink()
    fill(root, prefix, commits, did)


def rows_of(options, cut_taken, **more):
    """Read a table without Spark, by running its tasks in this process."""
    asked = read_options({**options, "cut": cut_taken.token(), **more})
    works = plan_module.plan(cut.read_cut(asked).bounds, asked, asked.table.select_columns())
    return [row for work in works for batch in scan.read_batches(work) for row in batch.to_pylist()]


# Gc after the cut


@pytest.mark.parametrize("table", ["revisions", "commits", "snapshots"])
def test_raw_scan_raises_when_gc_ran_after_cut(tmp_path, table):
    fill(tmp_path, "e", 40)
    options = {"root": str(tmp_path), "table": table}
    taken = cut.read_cut(read_options(options))
    before = rows_of(options, taken)
    with fourfold.open(tmp_path) as store:
        store.space(A).gc(GcPolicy(keep_seqs=3))
    with pytest.raises(Exception, match="gc removed rows") as caught:
        rows_of(options, taken)
    assert isinstance(unwrap_error(caught.value), HistoryTruncated)
    later = rows_of(options, cut.read_cut(read_options(options)))
    assert len(later) <= len(before)


def test_raw_scan_after_gc_reads_remaining_rows(tmp_path):
    fill(tmp_path, "e", 40)
    with fourfold.open(tmp_path) as store:
        store.space(A).gc(GcPolicy(keep_seqs=3))
    options = {"root": str(tmp_path), "table": "commits"}
    assert len(rows_of(options, cut.read_cut(read_options(options)))) == 40


@pytest.mark.spark
def test_dataframe_is_complete_when_gc_ran_after_it_was_created(read, tmp_path):
    fill(tmp_path, "e", 40)
    frame = read(tmp_path, "revisions")
    with fourfold.open(tmp_path) as store:
        store.space(A).set("e0", {"n": 1})
    assert frame.count() == 40
    with fourfold.open(tmp_path) as store:
        store.space(A).gc(GcPolicy(keep_seqs=1))
    assert 1 in {row.seq for row in frame.collect()}
    assert 1 not in {row.seq for row in read(tmp_path, "revisions").collect()}


# A file that is replaced after the cut


def write_streams(store, prefix):
    store.streams.create("s", "text/plain").append(prefix.encode())


def write_sessions(store, prefix):
    store.sessions.create_session({"id": prefix, "model": "m"})


def write_graphs(store, prefix):
    store.graphs.register_type(store.graphs.register_app(prefix, prefix).app_id, "parent", "t")
    row = {"type_id": 1, "owner_identity": 1}
    store.graphs.insert_parent(1, row)


WRITERS = {"streams": write_streams, "sessions": write_sessions, "graphs": write_graphs}


def read_raises(options, taken, error, problem):
    with pytest.raises(Exception, match=problem) as caught:
        rows_of(options, taken)
    assert isinstance(unwrap_error(caught.value), error)


@pytest.mark.parametrize("table", ["revisions", "commits", "branches", "state", "history"])
def test_scan_raises_when_space_was_recreated_after_cut(tmp_path, table):
    fill(tmp_path, "old", 5)
    options = {"root": str(tmp_path), "table": table}
    taken = cut.read_cut(read_options(options))
    assert rows_of(options, taken)
    recreate(tmp_path, "new", 7)
    read_raises(options, taken, NotFound, "was created again")


@pytest.mark.parametrize(
    ("model", "table"),
    [
        ("streams", "records"),
        ("streams", "streams"),
        ("sessions", "events"),
        ("sessions", "view"),
        ("graphs", "parents"),
        ("graphs", "current"),
    ],
)
def test_scan_raises_when_store_was_recreated_after_cut(tmp_path, model, table):
    options = {"root": str(tmp_path), "model": model, "table": table}
    with fourfold.open(tmp_path) as store:
        WRITERS[model](store, "old")
    taken = cut.read_cut(read_options(options))
    assert rows_of(options, taken)
    shutil.rmtree(tmp_path / model)
    with fourfold.open(tmp_path) as store:
        WRITERS[model](store, "new")
    read_raises(options, taken, NotFound, "was created again")


@pytest.mark.parametrize("table", ["revisions", "state"])
def test_scan_raises_when_older_copy_replaced_file_after_cut(tmp_path, table):
    root, copy = tmp_path / "store", tmp_path / "copy"
    fill(root, "e", 3)
    shutil.copytree(root / "spaces", copy)
    fill(root, "f", 2)
    options = {"root": str(root), "table": table}
    taken = cut.read_cut(read_options(options))
    assert len(rows_of(options, taken)) == 5
    shutil.rmtree(root / "spaces")
    shutil.copytree(copy, root / "spaces")
    read_raises(options, taken, SequenceRegression, "expected position 5 or later, found 3")


@pytest.mark.spark
def test_dataframe_keeps_its_rows_when_space_was_recreated(read, tmp_path):
    fill(tmp_path, "old", 5)
    frame = read(tmp_path, "revisions")
    recreate(tmp_path, "new", 7)
    assert {row.id for row in frame.collect()} == {f"old{number}" for number in range(5)}
    assert {row.id for row in read(tmp_path, "revisions").collect()} == {
        f"new{number}" for number in range(7)
    }


# A space that is created again


def batch(files, start, limit=None):
    """Read one micro-batch; return its end, and the ids of its rows."""
    end = files.end_offset(start, limit)
    works = files.plan_tasks(start, end, files._options.table.select_columns())
    rows = [row for work in works for part in scan.read_batches(work) for row in part.to_pylist()]
    return end, [row["id"] for row in rows]


def stream(root):
    return stream_source.FileFollower(read_options({"root": str(root), "table": "revisions"}))


def test_stream_reads_recreated_space_from_first_commit(tmp_path):
    fill(tmp_path, "old", 5)
    end, ids = batch(stream(tmp_path), {})
    assert len(ids) == 5
    recreate(tmp_path, "new", 7)
    end, ids = batch(stream(tmp_path), end)
    assert sorted(ids) == [f"new{number}" for number in range(7)]
    assert list(end.values()) == [7]
    assert batch(stream(tmp_path), end)[1] == []


def test_stream_continues_from_offset_without_file_ids(tmp_path):
    fill(tmp_path, "e", 5)
    end, ids = batch(stream(tmp_path), {A: 3})
    assert sorted(ids) == ["e3", "e4"]
    assert list(end.values()) == [5]
    assert batch(stream(tmp_path), end)[1] == []


def test_repeated_batch_of_recreated_space_is_refused(tmp_path):
    fill(tmp_path, "old", 5)
    files = stream(tmp_path)
    end = files.end_offset({}, None)
    recreate(tmp_path, "new", 5)
    with pytest.raises(NotFound, match="was created again"):
        stream(tmp_path).plan_tasks({}, end, files._options.table.select_columns())


@pytest.mark.slow  # test_stream_reads_recreated_space_from_first_commit is quick
@pytest.mark.spark
def test_query_copies_recreated_space_completely(spark, tmp_path):
    root, sink, checkpoint = (tmp_path / name for name in ("store", "rows", "checkpoint"))

    def copy():
        reader = spark.readStream.format("fourfold").option("root", str(root))
        query = (
            reader.option("table", "revisions")
            .load()
            .writeStream.format("parquet")
            .option("path", str(sink))
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"copy_{uuid.uuid4().hex}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return {row.id for row in spark.read.parquet(str(sink)).collect()}

    fill(root, "old", 5)
    assert len(copy()) == 5
    recreate(root, "new", 7)
    assert {f"new{number}" for number in range(7)} <= copy()


@pytest.mark.spark
def test_materialize_folds_recreated_space_completely(spark, tmp_path):
    root, into = tmp_path / "store", tmp_path / "tables"

    def ids():
        run("materialize", root, {"into": str(into)}, spark=spark)
        rows = spark.read.parquet(str(into / "current" / "state")).collect()
        return sorted(row.id for row in rows)

    fill(root, "old", 5)
    fill(root, "other", 2, "did:web:b.example")
    assert len(ids()) == 7
    recreate(root, "new", 5)
    assert ids() == [*(f"new{number}" for number in range(5)), "other0", "other1"]


# Plans and outputs of jobs


def test_plan_of_recreated_file_is_other_work():
    """A run that was killed is not resumed with what it computed from the file before."""
    bound = cut.FileBound("/r", "/r/a.sqlite", "a", "revisions", 5, 4096, file_id="one")
    plan = Plan("out", (Range("a", 0, 5),), cut=cut.Cut((bound,)))
    other = Plan("out", plan.ranges, cut=cut.Cut((replace(bound, file_id="two"),)))
    grown = Plan("out", plan.ranges, cut=cut.Cut((replace(bound, bytes=8192, horizon=2),)))
    assert plan.key == grown.key != other.key


def job_context(root, watermark=(), *, skip_bad=False):
    options = {"depth": 2}
    return Context(root, options, dict(watermark), "work", lambda: None, skip_bad=skip_bad)


def test_snapshots_of_recreated_space_begin_at_its_first_commit(tmp_path):
    fill(tmp_path, "e", 5)
    [done] = snapshots_job.plan(job_context(tmp_path)).ranges
    assert (done.after, done.upto) == (0, 5)
    reached = {done.watermark: done.upto}
    assert snapshots_job.plan(job_context(tmp_path, reached)).empty
    recreate(tmp_path, "NEW", 4)
    [again] = snapshots_job.plan(job_context(tmp_path, reached)).ranges
    assert (again.source, again.after, again.upto) == (A, 0, 4)


@pytest.mark.parametrize("change", ["recreated", "deleted"])
def test_snapshots_are_not_stored_in_another_space(tmp_path, change):
    """A fold of the file before must not become the state of the one that has its name."""
    root, staged = tmp_path / "store", tmp_path / "staged"
    fill(root, "e", 3)
    plan = snapshots_job.plan(job_context(root))
    staged.mkdir()
    row = {"space": A, "branch": "", "id": "e0", "seq": 3, "op": "patch", "document": '{"n":9}'}
    pq.write_table(pa.Table.from_pylist([row]), staged / "part.parquet")
    if change == "recreated":
        recreate(root, "e", 3)
    else:
        for path in (root / "spaces").iterdir():
            path.unlink()
    with pytest.raises(SequenceRegression, match="deleted or created again"):
        snapshots_job.commit(job_context(root), plan, str(staged))
    context = job_context(root, skip_bad=True)
    assert snapshots_job.commit(context, plan, str(staged)).rows_out == 0
    assert [file.source for file in context.skipped] == [A]
    with fourfold.open(root) as store:
        assert store.spaces() == ([A] if change == "recreated" else [])
        if change == "recreated":
            assert store.space(A).read("e0").document == {"n": 0}
            assert store.space(A).verify() == []


@pytest.mark.parametrize("into", ["s3://bucket/tables", "file:///tmp/tables"])
def test_job_refuses_url_for_path_option(tmp_path, into):
    fill(tmp_path / "store", "e", 1)
    with pytest.raises(InvalidInput, match="--into must be a path on this machine"):
        run("verify", tmp_path / "store", {"into": into})
    assert not Path("s3:").exists()


# Files left by a read


def test_read_of_closed_store_leaves_no_files(tmp_path):
    fill(tmp_path, "e", 5)
    before = sorted(path.name for path in (tmp_path / "spaces").iterdir())
    options = {"root": str(tmp_path), "table": "revisions"}
    assert len(rows_of(options, cut.read_cut(read_options(options)))) == 5
    assert sorted(path.name for path in (tmp_path / "spaces").iterdir()) == before


def test_read_does_not_change_wal_of_writer(tmp_path):
    options = {"root": str(tmp_path), "table": "revisions"}
    with fourfold.open(tmp_path, settings={"documents.page_size": 4096}) as store:
        space = store.space(A)
        for number in range(5):
            space.set(f"e{number}", {"n": number})
            assert len(rows_of(options, cut.read_cut(read_options(options)))) == number + 1
    with fourfold.open(tmp_path) as store:
        assert len(store.space(A).ids()) == 5
        assert store.space(A).verify() == []
