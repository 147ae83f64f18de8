"""Jobs, loads, keys and restore points of a server, from the client."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from served_streams import Served

import fourfold
from fourfold import errors
from fourfold.client import AsyncRemoteStore, maintenance

DID = "did:web:shop.example"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("jobs") / "store"
    with fourfold.open(root) as folder:
        folder.space(DID).set("note", {"n": 1})
        folder.streams.create("orders", "application/json")
        folder.publish()
    server = Served(root)
    yield server
    server.kill()


@pytest.fixture
def store(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        yield store


def test_job_is_run_with_progress_and_listed(store):
    steps = []
    job = store.jobs.run("gc", lambda label, done, total: steps.append((label, done, total)))
    assert (job.status, job.kind, job.result["spaces"]) == ("succeeded", "gc", 0)
    assert steps
    assert store.jobs.get(job.id) == job
    assert job in store.jobs.list(kind="gc", status="succeeded")
    assert store.jobs.list(limit=1)[0].id == max(store.jobs.list(), key=lambda row: int(row.id)).id
    assert store.jobs.cancel(job.id) == job
    with pytest.raises(errors.NotFound):
        store.jobs.wait("999999")


@pytest.mark.parametrize(
    ("kind", "options"), [("rm", {}), ("backup", {"name": "../x"}), ("gc", {"fast": True})]
)
def test_wrong_jobs_are_refused_before_they_are_sent(store, kind, options):
    with pytest.raises(errors.InvalidInput):
        store.jobs.start(kind, **options)


def test_file_is_loaded_once_whatever_its_pieces(store, tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "UPLOAD_PIECE_BYTES", 100)
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(f'{{"id": "r-{n}", "n": {n}}}\n' for n in range(50)))
    job = store.jobs.load(path, space=DID)
    assert job.result["rows"] == 50
    assert store.space(DID)["r-49"] == {"id": "r-49", "n": 49}
    assert store.jobs.load(path, space=DID).result["rows"] == 0
    path.write_text("{")
    with pytest.raises(errors.InvalidInput, match="line 1: must be JSON"):
        store.jobs.load(path, space=DID)
    path.write_text("")
    with pytest.raises(errors.InvalidInput, match="no lines"):
        store.jobs.load(path, space=DID)


def test_handles_of_server_are_shown_like_those_of_folder(served, store):
    store.sessions.create({"id": "shown"}).append(
        {"type": "message/appended", "message": {"role": "user", "content": "<b>hi</b>"}}
    )
    with fourfold.open(served.root, mode="r") as folder:
        for handle in (
            lambda root: root.space(DID),
            lambda root: root.streams["orders"],
            lambda root: root.sessions.open("shown"),
        ):
            assert handle(store)._repr_html_() == handle(folder)._repr_html_()
        assert DID in store._repr_html_()
        assert DID in folder._repr_html_()
    assert "&lt;b&gt;hi" in store.sessions.open("shown")._repr_html_()
    assert DID in store.documents
    assert "did:web:none.example" not in store.documents
    assert "no did" not in store.documents


def test_restore_points_and_metrics_are_those_of_the_folder(served, store):
    with fourfold.open(served.root, mode="r") as folder:
        assert store.points() == folder.points() != []
    assert "fourfold" in store.metrics_text()


def test_overview_activity_and_status_are_those_of_the_server(store, tmp_path):
    store.space(DID).set("newest", {"n": 1})
    counts = {model.model: model.count for model in store.overview().models}
    assert (counts["documents"], counts["streams"]) == (1, 1)
    assert store.activity().recent[0].item == "newest"
    (point, *_) = store.points()
    assert "newest" not in {entry.item for entry in store.activity(point.id).recent}
    assert store.activity(datetime(2001, 1, 1, tzinfo=UTC)).recent == []
    with pytest.raises(errors.NotFound):
        store.activity("20010101T000000.000Z-abcd")
    (row,) = [row for row in store.published() if row.name == f"spaces/{DID}"]
    assert 0 < row.published < row.newest
    assert store.published(["documents"]) == [row]
    with pytest.raises(errors.InvalidInput):
        store.published(["unknown"])
    name = f"b-{tmp_path.name.lower()[:20].replace('_', '-')}"
    store.jobs.run("backup", name=name)
    assert name in {backup.name for backup in store.backups()}
    assert (store.jobs.runs(), store.jobs.tables()) == ([], [])
    path = tmp_path / "left.ndjson"
    path.write_text('{"id": "x"}\n')
    store.jobs.upload(path)
    assert "left.ndjson" in {upload.name for upload in store.jobs.uploads()}
    assert store.keys.current() is None


def test_store_for_coroutines_runs_jobs(served, tmp_path):
    path = tmp_path / "messages"
    path.write_text("1\n2\n")

    async def run():
        async with AsyncRemoteStore(f"http://127.0.0.1:{served.port}") as store:
            job = await store.jobs.load(path, model="streams", stream="orders")
            return job.result["rows"], len(await store.points())

    assert asyncio.run(run()) == (2, 1)


def test_keys_are_created_listed_and_deleted(tmp_path):
    server = Served(tmp_path / "store")
    try:
        with fourfold.connect(f"http://127.0.0.1:{server.port}") as open_store:
            with pytest.raises(errors.Refused):
                open_store.keys.create(["read"])
            admin = open_store.keys.create(["read", "admin"], label="operator")
            with pytest.raises(errors.Unauthorized):
                open_store.keys.list()
        with fourfold.connect(f"http://127.0.0.1:{server.port}", admin.key) as store:
            made = store.keys.create(["read"], models=["streams"], prefix="shop/")
            assert [key.id for key in store.keys.list()] == [admin.id, made.id]
            assert store.keys.list()[1].created_by == admin.id
            with pytest.raises(errors.Forbidden):
                store.keys.create(["write"])
            with pytest.raises(errors.InvalidInput):
                store.keys.create(["all"])
            with pytest.raises(errors.Refused):
                store.keys.delete(admin.id)
            assert store.keys.delete(made.id) == 1
            with pytest.raises(errors.NotFound):
                store.keys.delete(made.id)
    finally:
        server.kill()
