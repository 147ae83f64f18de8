"""Runs of pipeline jobs and the tables that they wrote, over HTTP."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from both_fronts import Front
from served_graphs import server_of

import fourfold
from fourfold.errors import CorruptData
from fourfold.kernel import Database
from fourfold.pipeline import jobs
from fourfold.pipeline.jobs import Job, Option, Plan, Range, Report
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.server.pipeline_routes import _table_rows
from fourfold.store import pipeline_runs
from fourfold.store.job_progress import RATE_INTERVAL_MS, RATE_INTERVALS_MAX, StepRate
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

DID = "did:web:shop.example"


class WriteTables(Job):
    """Writes a table of two files without Spark; raises the error of the options instead."""

    name = "write-tables"
    options = (
        Option("into", "The folder.", kind="path", required=True),
        Option("model", "The model."),
        Option("fail", "Fail.", kind="flag"),
    )

    def target(self, context):
        return str(context.options["into"])

    def plan(self, context):
        return Plan(output=self.target(context), ranges=(Range(DID, 0, 7),))

    def run(self, context, plan):
        if context.options["fail"]:
            raise CorruptData(f"{plan.output}: a page is damaged")
        folder = TableFolder(Path(plan.output))
        before = folder.current()
        staging = folder.staging(context.work)
        (staging / "ids").mkdir()
        files = []
        for number in range(2):
            path = staging / "ids" / f"{number}.parquet"
            pq.write_table(pa.table({"id": [number]}), path)
            files.append(MaterializedFile(f"ids/{number}.parquet", 1, path.stat().st_size))
        manifest = FolderManifest(
            version=1 if before is None else before.version + 1,
            work=context.work,
            origin={"root": str(context.root)},
            spaces={DID: 7},
            files=tuple(files),
            tables=("ids", "none"),
        )
        folder.replace(staging, manifest)
        return manifest

    def commit(self, context, plan, result):
        return Report(rows_in=7, rows_out=result.rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("pipeline") / "store"
    with fourfold.open(root) as store:
        store.space(DID).set("note", {"n": 1})
    job = WriteTables()
    for name in ("one", "two", "two"):
        jobs.run(job, root, {"into": root.with_name(name), "model": "documents"})
    with pytest.raises(CorruptData):
        jobs.run(job, root, {"into": root.with_name("three"), "fail": True})
    return root


@pytest.fixture(scope="module")
def front(root):
    front = Front(root, fast=True, access=True)
    yield front
    front.protocol.stop()
    front.stop()


@pytest.fixture(scope="module")
def send(front):
    _, secret = front.access.add(("admin", "read"), models=("store",))
    return partial(server_of(front).ask, Authorization=f"Bearer {secret}")


@pytest.fixture(scope="module")
def ask(send):
    def get(path, query=""):
        answer = send("GET", path, query=query)
        assert answer.status == 200, answer.text
        return answer.value

    return get


def test_runs_are_listed_newest_first_without_paths(ask, root):
    rows = ask("/v1/pipeline/runs")["items"]
    assert [(row["output"], row["state"]) for row in rows] == [
        ("three", "failed"),
        ("two", "done"),
        ("two", "done"),
        ("one", "done"),
    ]
    assert [rows[1][name] for name in ("model", "inputs", "rows_in", "rows_out")] == [
        *("documents", 1, 7, 2)
    ]
    assert rows[1]["started_at_ms"] <= rows[1]["ended_at_ms"]
    assert rows[0]["error"]["kind"] == "corrupt_data"
    assert "a page is damaged" in rows[0]["error"]["message"]
    assert str(root.parent) not in json.dumps(rows)


def test_runs_are_listed_in_pages_and_by_job(ask):
    rows = ask("/v1/pipeline/runs")["items"]
    first = ask("/v1/pipeline/runs", "limit=3")
    rest = ask("/v1/pipeline/runs", f"limit=3&cursor={first['next_cursor']}")
    assert first["items"] + rest["items"] == rows
    assert rest["next_cursor"] is None
    assert ask("/v1/pipeline/runs", "job=write-tables")["items"] == rows
    assert ask("/v1/pipeline/runs", "job=other")["items"] == []


class Wait(WriteTables):
    """Reports progress and waits before it ends."""

    name = "wait"

    def __init__(self):
        self.reported, self.released = threading.Event(), threading.Event()

    def run(self, context, plan):
        context.advance("reading", 4, 4)
        context.advance("folding", 1, 3)
        self.reported.set()
        assert self.released.wait(60)
        return super().run(context, plan)


@pytest.fixture
def waiting(root):
    """A run that waits, as of a process that is not the server."""
    job, into = Wait(), root.with_name("waiting")
    thread = threading.Thread(target=jobs.run, args=(job, root, {"into": into}))
    thread.start()
    assert job.reported.wait(60)
    yield job
    job.released.set()
    thread.join()
    with pipeline_runs.open_for_writing(root) as database, database.write() as txn:
        txn.execute("DELETE FROM run WHERE job = 'wait'")


def test_run_of_another_process_is_a_job_with_progress(ask, send, waiting, root):
    listed = ask("/v1/jobs")["items"]
    assert [(row["kind"], row["status"]) for row in listed] == [
        *(("wait", "running"), ("write-tables", "failed")),
        *[("write-tables", "succeeded")] * 3,
    ]
    run = ask(f"/v1/jobs/{listed[0]['id']}")
    assert (run["started_by"], run["status"]) == ("command", "running")
    assert [run["progress"][name] for name in ("label", "done", "total")] == ["folding", 1, 3]
    assert [stage["name"] for stage in run["stages"]] == ["starting", "reading", "folding"]
    assert run["run"]["inputs"] == [{"name": DID, "after": 0, "until": 7}]
    assert str(root.parent) not in json.dumps([listed, run])

    refused = send("DELETE", f"/v1/jobs/{run['id']}")
    assert refused.status == 409
    assert f"process {os.getpid()}" in refused.value["detail"]

    waiting.released.set()
    feed = send("GET", f"/v1/jobs/{run['id']}/events").text.decode()
    assert '"status":"succeeded"' in feed.rpartition("event: end")[2]
    ended = ask(f"/v1/jobs/{run['id']}")
    assert [stage["name"] for stage in ended["stages"]] == [
        *("starting", "reading", "folding", "committing")
    ]
    assert all(stage["ended_at_ms"] for stage in ended["stages"])
    assert (ended["result"]["rows_in"], ended["result"]["outcome"]) == (7, "done")
    assert not list((root / ".pipeline/progress").iterdir())
    assert send("DELETE", f"/v1/jobs/{run['id']}").value["status"] == "succeeded"


def test_killed_run_is_interrupted_job_with_its_last_progress(ask, waiting, monkeypatch):
    (run,) = ask("/v1/jobs", "status=running")["items"]
    assert ask("/v1/jobs", "status=interrupted")["items"] == []
    monkeypatch.setattr(pipeline_runs, "is_running", lambda *_: False)
    assert ask("/v1/jobs", "status=running")["items"] == []
    (killed,) = ask("/v1/jobs", "status=interrupted")["items"]
    assert (killed["id"], killed["progress"]["label"]) == (run["id"], "folding")


def test_jobs_and_runs_are_listed_in_pages_newest_first(ask, send, root):
    job = send("POST", "/v1/jobs", body=b'{"kind":"snapshots"}').value
    send("GET", f"/v1/jobs/{job['id']}/events")
    whole = ask("/v1/jobs")["items"]
    assert [row["started_by"] for row in whole] == ["server", *["command"] * 4]
    seen, cursor = [], ""
    while cursor is not None:
        page = ask("/v1/jobs", f"limit=2&cursor={cursor}" if cursor else "limit=2")
        seen += page["items"]
        cursor = page["next_cursor"]
    assert seen == whole
    assert ask("/v1/jobs", "kind=write-tables")["items"] == whole[1:]
    assert ask("/v1/jobs", "status=failed")["items"] == [whole[1]]
    assert send("GET", "/v1/jobs/20260101T000000-00000000").status == 404


def test_run_of_job_of_server_is_listed_as_job(ask, root, monkeypatch):
    monkeypatch.setenv("FOURFOLD_STARTED_BY", "job 7")
    jobs.run(WriteTables(), root, {"into": root.with_name("served")})
    assert ask("/v1/pipeline/runs")["items"][0]["job_id"] == "7"
    assert "served" not in json.dumps(ask("/v1/jobs"))
    with pipeline_runs.open_for_writing(root) as database, database.write() as txn:
        txn.execute("DELETE FROM run WHERE started_by <> ''")


def test_runs_of_an_older_version_are_read(tmp_path):
    path = pipeline_runs.database_path(tmp_path)
    path.parent.mkdir(parents=True)
    row = (
        "INSERT INTO run VALUES ('r', 'stats', '', 'w', '', 'done', '{}', '{}', '',"
        " '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:01.000Z', 1000, 1, 1, '[]', '{}',"
        " NULL, 1, 'host', '0')"
    )
    older = Database.open(path, migrations=pipeline_runs._MIGRATIONS[:1])
    with older as database, database.write() as txn:
        txn.execute(row)
    (run,) = pipeline_runs.history(tmp_path)
    assert (run.id, run.started_by, run.progress) == ("r", "", None)


def test_tables_are_listed_with_rows_sizes_and_watermarks(ask, root):
    first = ask("/v1/pipeline/tables", "limit=1")
    rest = ask("/v1/pipeline/tables", f"limit=1&cursor={first['next_cursor']}")
    assert rest["next_cursor"] is None
    one, two = first["items"] + rest["items"]
    assert [(row["name"], row["version"]) for row in (one, two)] == [("one", 1), ("two", 2)]
    ids, none = two["tables"]
    assert (ids["name"], ids["rows"], ids["files"]) == ("ids", 2, 2)
    size = sum(path.stat().st_size for path in (root.parent / "two/current/ids").iterdir())
    assert ids["bytes"] == size
    assert (none["rows"], none["files"]) == (None, 0)
    assert (two["watermarks"], two["inputs"], two["is_running"]) == ({DID: 7}, 1, False)
    assert str(root.parent) not in json.dumps([one, two])


def test_files_without_a_folder_are_of_the_first_table(tmp_path):
    files = (MaterializedFile("0.parquet", 5, 100), MaterializedFile("1.parquet", 2, 50))
    tables = ("state", "variant")
    manifest = FolderManifest(1, "work", {}, {DID: 7}, files, tables=tables)
    folder = tmp_path / "current" / "variant"
    folder.mkdir(parents=True)
    (folder / "0.parquet").write_bytes(b"x" * 30)
    state, variant = _table_rows(tmp_path, manifest)
    assert (state.rows, state.files, state.bytes) == (7, 2, 150)
    assert (variant.name, variant.rows, variant.files, variant.bytes) == ("variant", None, 1, 30)


def test_a_run_is_running_while_its_process_lives(ask, front, root):
    target = str(root.with_name("one"))
    with pipeline_runs.open_for_writing(root) as database, database.write() as txn:
        txn.execute("UPDATE run SET state = 'running' WHERE target = ?1", (target,))
    try:
        assert ask("/v1/pipeline/runs")["items"][-1]["state"] == "interrupted"
        lock = fourfold.kernel.lock.WriterLock(
            pipeline_runs.lock_file(root, "write-tables", target)
        )
        try:
            assert ask("/v1/pipeline/runs")["items"][-1]["state"] == "running"
            assert ask("/v1/pipeline/tables")["items"][0]["is_running"] is True
        finally:
            lock.release()
    finally:
        with pipeline_runs.open_for_writing(root) as database, database.write() as txn:
            txn.execute("UPDATE run SET state = 'done' WHERE target = ?1", (target,))


def test_runs_and_tables_need_a_key_for_the_store(front):
    _, other = front.access.add(("admin",), models=("streams",))
    for path in ("/v1/pipeline/runs", "/v1/pipeline/tables"):
        ask = server_of(front).ask
        assert ask("GET", path).status == 401
        assert ask("GET", path, Authorization=f"Bearer {other}").status == 403


def test_tables_that_were_removed_are_not_listed(tmp_path):
    root = tmp_path / "store"
    fourfold.open(root).close()
    front = Front(root, fast=True)
    try:
        get = server_of(front).ask
        assert get("GET", "/v1/pipeline/runs").value["items"] == []
        assert get("GET", "/v1/pipeline/tables").value["items"] == []
        jobs.run(WriteTables(), root, {"into": tmp_path / "one"})
        assert len(get("GET", "/v1/pipeline/tables").value["items"]) == 1
        (tmp_path / "one" / "current" / "manifest.json").write_bytes(b"{")
        assert get("GET", "/v1/pipeline/tables").value["items"] == []
        (tmp_path / "one").rename(tmp_path / "gone")
        assert get("GET", "/v1/pipeline/tables").value["items"] == []
        assert len(get("GET", "/v1/pipeline/runs").value["items"]) == 1
    finally:
        front.protocol.stop()
        front.stop()


def test_rate_counts_every_step_once_in_bounded_number_of_intervals():
    rate = StepRate()
    for second in range(300):
        rate.add(1000 * second, second + 1)
    counted = rate.to_wire()
    assert sum(counted.steps) == 300
    assert len(counted.steps) <= RATE_INTERVALS_MAX
    assert counted.interval_ms * len(counted.steps) >= 299_000
    assert counted.interval_ms > RATE_INTERVAL_MS


def test_rate_counts_the_next_stage_from_its_start():
    rate = StepRate()
    for done in (4, 16, 3, 8):
        rate.add(0, done)
    assert rate.to_wire().steps == [16 + 8]
