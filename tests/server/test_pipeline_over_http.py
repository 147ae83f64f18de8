"""Runs of pipeline jobs and the tables that they wrote, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from both_fronts import Front
from served_graphs import server_of

import fourfold
from fourfold.errors import CorruptData
from fourfold.pipeline import jobs
from fourfold.pipeline.jobs import Job, Option, Plan, Range, Report
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.server.jobs import RATE_INTERVAL_MS, RATE_INTERVALS_MAX, StepRate
from fourfold.server.pipeline_routes import _table_rows
from fourfold.store import pipeline_runs
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
def ask(front):
    _, secret = front.access.add(("admin", "read"), models=("store",))

    def get(path, query=""):
        answer = server_of(front).ask("GET", path, query=query, Authorization=f"Bearer {secret}")
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


def test_rate_counts_every_step_once_in_a_bounded_number_of_intervals():
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
