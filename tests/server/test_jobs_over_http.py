"""The store as a whole over HTTP: overview, points, backups, jobs and probes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import both_fronts
import pytest
from both_fronts import Front
from served_graphs import Events, server_of

import fourfold
from fourfold.archive import table_publisher
from fourfold.archive.child_process import ChildProcess
from fourfold.archive.uploads import ValueUploads
from fourfold.errors import CommitUncertain
from fourfold.models.documents import GcPolicy
from fourfold.server import jobs as jobs_module
from fourfold.store import publish, verify_backup

DID = "did:web:shop.example"
BLOCKING = "0" * 64 + ".blob"
"""A pipe with the name of a blob: whatever reads it waits until it is written."""


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        space = store.space(DID)
        for number in range(20):
            space.set("note", {"n": number})
        store.streams.create("orders", "application/json").append(b'{"n": 1}')
        notes = store.graphs.create("notes")
        note = notes.register_type("parent", "note")
        notes.insert("parent", [{"type_id": note, "owner_identity": 1}])
        store.sessions.create_session({"id": "s"})
        store.sessions.append_event("s", {"type": "app/note"})
    return root


@pytest.fixture
def front(root):
    front = Front(root, fast=True)
    yield front
    front.protocol.stop()
    front.stop()


@pytest.fixture
def server(front):
    return server_of(front)


def block(root):
    path = root / "sessions" / "blobs" / BLOCKING
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def start(server, kind, status=202, headers=None, **options):
    body = json.dumps({"kind": kind, **options}).encode()
    answer = server.ask("POST", "/v1/jobs", body, **(headers or {}))
    assert answer.status == status, answer.text
    return answer.value


def events_of(server, job):
    """Yield the job of each event until its end, and the name of the event."""
    name = None
    # A connection lasts a minute; clients reconnect.
    while name != "end":
        with Events(server.port, f"/v1/jobs/{job['id']}/events") as events:
            for _, name, data in events:
                if name is not None:
                    yield name, data


def ended(server, job):
    return list(events_of(server, job))[-1][1]


def running_at(server, job, label):
    """Wait until the progress of a job has come to a label."""
    for _, data in events_of(server, job):
        if label in data["progress"]["label"]:
            return data
    raise AssertionError("the job ended before")


def children(name):
    """Return the processes that this one started to run a command."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            line = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(stat[1]) == os.getpid() and stat[0] != "Z" and name.encode() in line:
            pids.append(int(path.name))
    return pids


# What exists


def test_overview_is_what_show_computes(server, root, capsys):
    from fourfold.cli import main  # noqa: PLC0415

    value = server.ask("GET", "/v1/store").value
    assert main.run(["show", str(root), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    for model, expected in zip(value["models"], shown["models"], strict=True):
        for name in ("model", "unit", "count", "newest", "health", "details"):
            assert model[name] == expected[name]
    counts = {model["model"]: model["count"] for model in value["models"]}
    assert counts == {"documents": 1, "streams": 1, "graphs": 2, "sessions": 1}
    assert str(root) not in json.dumps(value)


def test_restore_points_are_listed_in_pages_newest_first(server, front):
    assert server.ask("GET", "/v1/points").value == {"items": [], "next_cursor": None}
    for number in range(3):
        front.store.space(DID).set("note", {"point": number})
        front.store.publish()
    expected = [point.id for point in reversed(front.store.points())]
    first = server.ask("GET", "/v1/points", query="limit=2").value
    rest = server.ask("GET", "/v1/points", query=f"limit=2&cursor={first['next_cursor']}").value
    assert [row["id"] for row in first["items"] + rest["items"]] == expected
    assert (len(first["items"]), rest["next_cursor"]) == (2, None)


def test_probes_need_no_key(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    try:
        _, admin = front.access.add(("admin",), models=("streams",))
        _, store = front.access.add(("admin", "read"), models=("store",))
        ask = server_of(front).ask
        for path in ("/livez", "/readyz"):
            answer = ask("GET", path)
            assert (answer.status, answer.value) == (200, {"ok": True, "failing": 0})
        for path in ("/v1/store", "/v1/points", "/v1/backups", "/v1/jobs", "/v1/jobs/1"):
            assert ask("GET", path).status == 401
            assert ask("GET", path, Authorization=f"Bearer {admin}").status == 403
            assert ask("GET", path, Authorization=f"Bearer {store}").status in {200, 404}
        body = b'{"kind": "gc"}'
        assert ask("POST", "/v1/jobs", body, Authorization=f"Bearer {admin}").status == 403
        front.protocol.stop()
        assert ask("GET", "/livez").status == 200
        assert ask("GET", "/readyz").status == 503
    finally:
        front.stop()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "asgi"])
def test_server_with_failing_database_is_alive_and_not_ready(tmp_path, fast):
    front = Front(tmp_path / "store", fast=fast)
    try:
        ask = server_of(front).ask
        front.streams.create("s", "application/json")
        append = both_fronts.append("s")
        assert front.ask(append)[0][0] == 204
        # The state after a sync that failed: what the disk has is unknown.
        front.streams.database._writer.failure = CommitUncertain("wal.sqlite: disk I/O error")
        status, _, body = front.ask(append)[0]
        assert (status, json.loads(body)["error"]["kind"]) == (503, "commit_uncertain")
        answer = ask("GET", "/readyz")
        assert (answer.status, answer.value) == (503, {"ok": False, "failing": 1})
        assert ask("GET", "/livez").status == 200
        assert ask("GET", "/health").status == 503
        assert front.ask(both_fronts.request("GET", "s"))[0][0] == 200
    finally:
        front.stop()


# Jobs


def test_verify_reports_progress_and_its_result(server):
    job = start(server, "verify")
    assert (job["status"], job["options"]) == ("queued", {"objects": False})
    events = list(events_of(server, job))
    assert {name for name, _ in events[:-1]} <= {"progress"}
    name, last = events[-1]
    assert (name, last["status"]) == ("end", "succeeded")
    assert last["result"]["ok"] is True
    assert last["progress"]["done"] == last["progress"]["total"] == last["result"]["checked"] > 3
    assert server.ask("GET", f"/v1/jobs/{job['id']}").value == last
    assert server.ask("GET", "/v1/jobs").value["items"] == [last]


def test_verify_of_a_damaged_store_fails_with_its_problems(server, root):
    path = root / "sessions" / "blobs" / BLOCKING
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"other bytes")
    job = ended(server, start(server, "verify"))
    assert (job["status"], job["error"]["kind"]) == ("failed", "corrupt_data")
    assert job["result"]["problem_count"] == 1
    assert str(root) not in json.dumps(job)


def test_backup_is_made_listed_and_verifies(server, root):
    assert server.ask("GET", "/v1/backups").value["items"] == []
    job = ended(server, start(server, "backup", name="one"))
    assert job["status"] == "succeeded", job
    folder = root.with_name("store-backups") / "one"
    verify_backup(folder).raise_if_bad()
    [row] = server.ask("GET", "/v1/backups").value["items"]
    assert (row["name"], row["kind"], row["bytes"]) == ("one", "store", job["result"]["bytes"])
    assert str(root.parent) not in json.dumps([job, row])
    again = start(server, "backup", 409, name="one")
    assert again["kind"] == "refused"
    named = ended(server, start(server, "backup"))
    assert named["status"] == "succeeded"
    assert named["progress"]["done"] == named["progress"]["total"] > 0


@pytest.mark.parametrize("name", ["..", "../x", "/tmp/x", "a/b", ".x", "", "A", "é", "a" * 129])
def test_hostile_name_of_a_backup_is_refused(server, root, name):
    start(server, "backup", 400, name=name)
    assert not root.with_name("store-backups").exists()


@pytest.mark.parametrize(
    "body", [{}, {"kind": "rm"}, {"kind": "verify", "root": "/"}, {"kind": "gc", "x": 1}, []]
)
def test_unknown_job_is_refused(server, body):
    assert server.ask("POST", "/v1/jobs", json.dumps(body).encode()).status == 400
    assert server.ask("GET", "/v1/jobs").value["items"] == []


def test_gc_collects_spaces_with_a_policy_in_this_process(server, front):
    space = front.store.space(DID)
    space.set_gc_policy(GcPolicy(keep_seqs=1))
    assert space.horizon() == 0
    job = ended(server, start(server, "gc"))
    assert job["status"] == "succeeded", job
    assert job["result"]["spaces"] == 1
    assert space.horizon() > 10
    # Sessions too: what is unreferenced stays for the grace period.
    assert set(job["result"]["sessions"]) >= {"sessions", "payloads"}
    assert job["result"]["streams"]["bytes"] == 0
    assert server.ask("GET", f"/v1/spaces/{DID}/documents/note").status == 200


def test_publish_adds_a_restore_point(server, front):
    job = ended(server, start(server, "publish"))
    assert job["status"] == "succeeded", job
    assert job["result"]["databases"] == 3
    assert job["result"]["segments"] == 1
    points = server.ask("GET", "/v1/points").value["items"]
    assert [point["id"] for point in points] == job["result"]["points"]
    again = ended(server, start(server, "publish"))
    assert (again["status"], again["result"]["databases"]) == ("succeeded", 0)
    assert front.store.verify(objects=True).ok


def test_publish_that_is_cancelled_can_be_continued(server, front, monkeypatch):
    monkeypatch.setattr(jobs_module, "PUBLISH_SLICE_DATABASES", 1)
    reached, released = threading.Event(), threading.Event()
    iter_publish = publish.iter_publish

    def pausing(*arguments):
        for report in iter_publish(*arguments):
            yield report
            reached.set()
            released.wait(30)

    monkeypatch.setattr(publish, "iter_publish", pausing)
    job = start(server, "publish")
    canceller = threading.Thread(target=lambda: server.ask("DELETE", f"/v1/jobs/{job['id']}"))
    assert reached.wait(30)
    canceller.start()
    released.set()
    canceller.join()
    assert ended(server, job)["status"] == "cancelled"
    assert len(front.store.points()) < 3
    assert ended(server, start(server, "publish"))["status"] == "succeeded"
    assert front.store.verify(objects=True).ok


def test_cancelled_publish_ends_its_process(server, front, monkeypatch):
    monkeypatch.setattr(table_publisher, "PUBLISH_HERE_ROWS", 0)
    sessions = front.store.sessions
    value = sessions.maybe_intern("x" * 70_000)
    sessions.append_event("s", {"type": "message/appended", "message": {"c": value}})
    reached, children, launch = threading.Event(), [], ChildProcess._start

    def started(process):
        connection = launch(process)
        children.append(process._child)
        return connection

    monkeypatch.setattr(ChildProcess, "_start", started)

    def stop_the_child(*_):
        os.kill(children[-1].pid, signal.SIGSTOP)
        reached.set()

    # The child asks for the upload of the value, and never gets to the next step.
    monkeypatch.setattr(ValueUploads, "carry", stop_the_child)
    job = start(server, "publish")
    assert reached.wait(60)
    server.ask("DELETE", f"/v1/jobs/{job['id']}")
    assert ended(server, job)["status"] == "cancelled"
    assert children[-1].poll() is not None
    assert not front.store.points()
    monkeypatch.undo()
    assert ended(server, start(server, "publish"))["status"] == "succeeded"
    assert front.store.verify(objects=True).ok


def test_snapshots_are_added_in_this_process(server, front):
    job = ended(server, start(server, "snapshots"))
    assert job["status"] == "succeeded", job
    assert job["result"].keys() == {"spaces", "snapshots"}
    assert (job["progress"]["done"], job["progress"]["total"]) == (1, 1)
    assert front.store.space(DID).verify() == []


@pytest.mark.spark
@pytest.mark.slow
def test_materialize_that_was_cancelled_is_resumed_by_the_next(server, root):
    job = start(server, "materialize")
    # A job is shown as running before its process has started.
    while not children("materialize"):
        time.sleep(0.01)
    assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value["status"] == "cancelled"
    assert not children("materialize")
    done = ended(server, start(server, "materialize"))
    assert done["status"] == "succeeded", done
    assert done["result"]["rows_out"] == 1
    tables = root.with_name("store-tables") / "documents" / "current"
    assert list(tables.rglob("*.parquet"))
    assert str(root) not in json.dumps(done)


def test_cancel_ends_the_child_process(server, root):
    block(root)
    job = start(server, "verify")
    running_at(server, job, BLOCKING)
    assert children("verify")
    cancelled = server.ask("DELETE", f"/v1/jobs/{job['id']}")
    assert (cancelled.status, cancelled.value["status"]) == (200, "cancelled")
    assert not children("verify")
    assert ended(server, job)["status"] == "cancelled"
    assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value["status"] == "cancelled"
    assert server.ask("DELETE", "/v1/jobs/999").status == 404
    for job_id in ("x", "01", "-1", "9" * 30, "%00"):
        assert server.ask("GET", f"/v1/jobs/{job_id}").status == 404


def test_cancelled_backup_leaves_nothing(server, root):
    block(root)
    job = start(server, "backup", name="one")
    running_at(server, job, BLOCKING)
    assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value["status"] == "cancelled"
    assert not children("backup")
    assert list(root.with_name("store-backups").iterdir()) == []


def test_waiting_job_is_cancelled_before_it_starts(server, root, monkeypatch):
    interrupt, interrupted = jobs_module._interrupt, threading.Event()

    def interrupt_and_report(running):
        interrupt(running)
        interrupted.set()

    monkeypatch.setattr(jobs_module, "_interrupt", interrupt_and_report)
    pipe = block(root)
    running = [start(server, "verify") for _ in range(2)]
    for job in running:
        running_at(server, job, BLOCKING)
    waiting = start(server, "gc")
    assert server.ask("GET", f"/v1/jobs/{waiting['id']}").value["status"] == "queued"
    canceller = threading.Thread(target=lambda: server.ask("DELETE", f"/v1/jobs/{waiting['id']}"))
    canceller.start()
    assert interrupted.wait(60)
    for job in running:
        assert server.ask("DELETE", f"/v1/jobs/{job['id']}").value["status"] == "cancelled"
    canceller.join()
    cancelled = server.ask("GET", f"/v1/jobs/{waiting['id']}").value
    assert (cancelled["status"], cancelled["started_at_ms"]) == ("cancelled", None)
    pipe.unlink()


def test_repeated_request_starts_one_job(server):
    sent = {"Idempotency_Key": "k"}
    first = start(server, "gc", headers=sent)
    assert start(server, "gc", headers=sent)["id"] == first["id"]
    assert start(server, "verify", 422, headers=sent)["kind"] == "replay_mismatch"
    assert len(server.ask("GET", "/v1/jobs").value["items"]) == 1


def test_jobs_are_listed_in_pages_by_status(server):
    jobs = [start(server, "gc") for _ in range(3)]
    for job in jobs:
        assert ended(server, job)["status"] == "succeeded"
    first = server.ask("GET", "/v1/jobs", query="limit=2&kind=gc").value
    query = f"limit=2&kind=gc&cursor={first['next_cursor']}"
    rest = server.ask("GET", "/v1/jobs", query=query).value
    ids = [row["id"] for row in first["items"] + rest["items"]]
    assert ids == [job["id"] for job in reversed(jobs)]
    assert server.ask("GET", "/v1/jobs", query="status=failed").value["items"] == []


# A server that is a process of its own


@contextmanager
def server_process(root):
    with fourfold_port() as port:
        line = [sys.executable, "-m", "fourfold", "serve", str(root), "--port", str(port)]
        process = subprocess.Popen(line, stdout=subprocess.PIPE)
    try:
        server = server_of(type("Port", (), {"port": port}))
        until = time.monotonic() + 60
        while True:
            try:
                assert server.ask("GET", "/readyz").status == 200
                break
            except OSError:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.05)
        yield process, server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def fourfold_port():
    import socket  # noqa: PLC0415

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    yield port


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_job_is_interrupted_when_the_server_ends(root, how):
    pipe = block(root)
    with server_process(root) as (process, server):
        job = start(server, "verify")
        running_at(server, job, BLOCKING)
        process.send_signal(how)
        process.wait(30)
    with server_process(root) as (process, server):
        found = server.ask("GET", f"/v1/jobs/{job['id']}").value
        assert found["status"] == "interrupted"
        assert found["ended_at_ms"] is not None
        # A child that outlived its server ends with its next line of progress.
        write_to(pipe)
        pipe.unlink()
        assert ended(server, start(server, "verify"))["status"] == "succeeded"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) is not None


def write_to(pipe):
    """Let the readers of a pipe continue, if there are any."""
    with suppress(OSError):
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
