"""The job interface: runs, watermarks, kills, resumption, locking. No Spark is needed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from counting_job import POINTS, Counting

import fourfold
from fourfold.errors import (
    AlreadyExists,
    FourfoldError,
    InvalidInput,
    NotFound,
    WriterLocked,
)
from fourfold.pipeline import jobs, spark
from fourfold.pipeline.jobs import runs
from fourfold.pipeline.jobs.runner import unregister
from fourfold.store import pipeline_runs
from support.forked_process import ForkedProcess


@pytest.fixture
def root(tmp_path):
    fourfold.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("1\n2\n")
    (folder / "b").write_text("10\n")
    return folder


@pytest.fixture
def count(root, source, tmp_path):
    def run(job=None, **given):
        control = {name: given.pop(name) for name in ("dry_run", "skip_bad") if name in given}
        options = {"input": source, "into": tmp_path / "out", **given}
        return jobs.run(job or Counting(), root, options, **control)

    return run


def total(tmp_path):
    return json.loads((tmp_path / "out").read_text())["sum"]


def tree(root):
    """Return the contents of the store, ignoring an empty WAL that a reader may leave."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    return {path: path.read_bytes() for path in files if not path.name.endswith("-shm")}


def test_run_opens_table_of_runs_to_plan_begin_and_end(root, count, monkeypatch):
    opened = []
    open_database = pipeline_runs.Database.open

    def counting(*arguments, **keywords):
        opened.append(keywords.get("mode", "rw"))
        return open_database(*arguments, **keywords)

    count()
    monkeypatch.setattr(pipeline_runs.Database, "open", counting)
    assert count(into=root.parent / "other", fail=None, speed="slow").outcome == "done"
    steps = 2
    assert opened == ["r", *["rw"] * (2 + steps)]


def test_run_is_recorded_with_its_report(root, count, tmp_path):
    done = count()
    assert (done.outcome, done.rows_in, done.rows_out) == ("done", 3, 1)
    assert done.report == {"sum": 13}
    [row] = jobs.history(root)
    assert (row.id, row.job, row.state) == (done.run, "count-lines", "done")
    assert row.target == row.output == str(tmp_path / "out")
    assert row.input["ranges"] == [
        {"source": "a", "after": 0, "upto": 2},
        {"source": "b", "after": 0, "upto": 1},
    ]
    assert (row.rows_in, row.rows_out, row.report, row.error) == (3, 1, {"sum": 13}, None)
    assert row.duration_ms >= 0
    assert row.options["speed"] == "fast"
    assert row.started_at <= row.finished_at


def test_second_run_reads_only_new_input(root, count, source, tmp_path):
    count()
    assert count().outcome == "nothing"
    (source / "a").write_text("1\n2\n5\n")
    done = count()
    assert done.input["ranges"] == [{"source": "a", "after": 2, "upto": 3}]
    assert total(tmp_path) == 18
    assert [row.state for row in jobs.history(root)] == ["done", "nothing", "done"]


def test_targets_have_separate_watermarks(count, tmp_path):
    count()
    assert count(into=tmp_path / "other").rows_in == 3


def test_dry_run_reports_plan_and_writes_nothing(root, count, tmp_path):
    before = tree(root)
    done = count(dry_run=True)
    assert (done.outcome, done.run) == ("planned", None)
    assert done.input["positions"] == 3
    assert str(tmp_path / "out") in done.sentence
    assert tree(root) == before
    assert not (tmp_path / "out").exists()
    count()
    before = tree(root)
    assert count(dry_run=True).sentence == "nothing to do"
    assert tree(root) == before


def test_failed_run_records_error_and_keeps_watermark(root, count, tmp_path):
    with pytest.raises(ValueError, match="broken"):
        count(fail="broken")
    [row] = jobs.history(root)
    assert (row.state, row.rows_out) == ("failed", None)
    assert row.error["message"] == "ValueError: broken"
    assert runs.watermarks(root, "count-lines", str(tmp_path / "out")) == {}
    assert count().rows_in == 3


def test_failed_plan_is_recorded(root, count, tmp_path):
    with pytest.raises(FileNotFoundError):
        count(input=tmp_path / "nowhere")
    assert [row.state for row in jobs.history(root)] == ["failed"]


def test_interrupted_run_is_recorded(root, count):
    def stop(point):
        if point == "commit":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count(Counting(stop))
    assert [row.state for row in jobs.history(root)] == ["interrupted"]


def test_skipped_input_is_reported_and_retried(count, source, root):
    (source / "c.bad").write_text("100\n")
    done = count(skip_bad=True)
    assert done.skipped == [{"source": "c.bad", "problem": "it is bad"}]
    assert jobs.history(root)[0].skipped == done.skipped
    assert count(dry_run=True).input["ranges"] == [{"source": "c.bad", "after": 0, "upto": 1}]


def run_killed(root, source, tmp_path, point):
    child = Path(__file__).with_name("counting_job.py")
    with ForkedProcess([child, root, source, tmp_path / "out", point]) as process:
        return process.wait()


@pytest.mark.parametrize("point", POINTS)
def test_killed_run_is_detected_and_completed(root, source, count, tmp_path, point):
    assert run_killed(root, source, tmp_path, point) == -9
    listed = jobs.history(root)
    assert [row.state for row in listed] == ([] if point == "plan" else ["running"])
    assert not jobs.is_running(root, "count-lines", str(tmp_path / "out"))
    job = Counting()
    done = count(job)
    assert total(tmp_path) == 13
    assert done.outcome == "done"
    assert done.resumed == (point != "plan")
    expected = {"plan": ["a", "b"], "run": ["a", "b"], "step": ["b"]}
    assert job.computed == expected.get(point, [])
    states = [row.state for row in jobs.history(root)]
    assert states == (["done"] if point == "plan" else ["done", "interrupted"])
    if point != "plan":
        killed = jobs.history(root)[1]
        assert "ended without a result" in killed.error["message"]
    assert list((root / ".pipeline" / "staging").iterdir()) == []
    assert count().outcome == "nothing"


def test_killed_work_restarts_when_input_changed(root, source, count, tmp_path):
    assert run_killed(root, source, tmp_path, "staged") == -9
    (source / "a").write_text("1\n2\n5\n")
    job = Counting()
    assert not count(job).resumed
    assert job.computed == ["a", "b"]
    assert total(tmp_path) == 18
    assert list((root / ".pipeline" / "staging").iterdir()) == []


def test_job_and_target_run_once_at_a_time(root, count, tmp_path):
    inside, leave = threading.Event(), threading.Event()

    def wait(point):
        if point == "run":
            inside.set()
            leave.wait(60)

    worker = threading.Thread(target=lambda: count(Counting(wait)))
    worker.start()
    try:
        assert inside.wait(60)
        assert jobs.is_running(root, "count-lines", str(tmp_path / "out"))
        with pytest.raises(WriterLocked, match="already running"):
            count()
        assert count(into=tmp_path / "other").outcome == "done"
        assert [row.state for row in jobs.newest(root)] == ["done", "running"]
    finally:
        leave.set()
        worker.join()
    assert [row.state for row in jobs.newest(root)] == ["done", "done"]


def test_concurrent_runs_record_their_rows(root, count, tmp_path):
    failed = []

    def run(number):
        try:
            count(into=tmp_path / f"out-{number}")
        except FourfoldError as error:
            failed.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
    assert [row.state for row in jobs.history(root)] == ["done"] * 6


def test_job_options_are_checked_first(root, count):
    for options, word in [
        ({"colour": "red"}, "colour"),
        ({"into": None}, "--into"),
        ({"speed": "warp"}, "slow, fast"),
    ]:
        with pytest.raises(InvalidInput, match=word):
            count(**options)
    assert jobs.history(root) == []


def test_run_in_folder_without_store_is_refused(tmp_path, source):
    with pytest.raises(NotFound):
        jobs.run(Counting(), tmp_path, {"input": source, "into": tmp_path / "out"})
    assert not (tmp_path / "databases").exists()


def test_register_adds_job_by_name(root, source, tmp_path):
    added = jobs.register(Counting())
    try:
        assert jobs.get_job("count-lines") is added
        with pytest.raises(AlreadyExists):
            jobs.register(Counting())
        done = jobs.run("count-lines", root, {"input": source, "into": tmp_path / "out"})
        assert done.outcome == "done"
    finally:
        unregister("count-lines")
    with pytest.raises(NotFound, match="count-lines"):
        jobs.get_job("count-lines")


def test_backup_includes_runs_without_scratch_folder(root, source, count, tmp_path):
    count()
    assert run_killed(root, source, tmp_path, "nowhere") == 0
    (root / ".pipeline" / "staging" / "left").mkdir()
    (root / ".pipeline" / "staging" / "left" / "over").write_text("x")
    with fourfold.open(root, mode="r") as store:
        store.backup(tmp_path / "copy")
    assert (tmp_path / "copy" / "databases" / "pipeline.sqlite").exists()
    assert not (tmp_path / "copy" / ".pipeline").exists()


def test_unwrap_error_restores_error_from_spark():
    error = InvalidInput("row 3: no\nid", hint="Give one.")
    text = f"Job aborted.\nTraceback ...\nfourfold.errors.InvalidInput: {spark.wrap_error(error)}\n"
    actual = spark.unwrap_error(RuntimeError(text + "\n\tat org.apache.spark"))
    assert isinstance(actual, InvalidInput)
    assert (actual.message, actual.hint) == ("row 3: no id", "Give one.")
    other = RuntimeError("something else")
    assert spark.unwrap_error(other) is other
