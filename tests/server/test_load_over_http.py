"""Uploads, and the job that writes them into a model: all or nothing by line, once by slice."""

from __future__ import annotations

import json
import threading

import pytest
from both_fronts import Front
from served_graphs import server_of
from test_jobs_over_http import ended, start

from fourfold.server import load, uploads
from fourfold.server.uploads import uploads_folder

DID = "did:web:shop.example"
OTHER = "did:web:north.example"


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("load") / "store", fast=True)
    yield front
    front.protocol.stop()
    front.stop()


@pytest.fixture
def server(front):
    return server_of(front)


@pytest.fixture
def name(request):
    """A name for the uploads and spaces of one test."""
    return request.node.name.replace("[", "-").replace("]", "")[:60]


def upload(server, name, data, **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    body = data if isinstance(data, bytes) else "\n".join(map(json.dumps, data)).encode()
    return server.ask("PUT", f"/v1/uploads/{name}{'?' if text else ''}{text}", body)


def run(server, name, **options):
    return ended(server, start(server, "load", upload=name, **options))


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(load, "SLICE_LINES", 3)


def documents(store, did):
    space = store.space(did)
    return {entity: state.document for entity, state in space.read_many(space.ids()).items()}


def test_documents_are_loaded_in_slices_and_once(front, server, name, small_slices):
    rows = [{"id": f"n-{n % 8}", "n": n, "big": 10**30 + n} for n in range(20)]
    assert upload(server, name, rows).status == 201
    did = f"did:web:{name.replace('_', '-')}"
    job = run(server, name, space=did)
    assert (job["status"], job["error"]) == ("succeeded", None), job
    assert (job["result"]["lines_read"], job["result"]["rows"]) == (20, 20)
    assert job["progress"]["done"] == job["progress"]["total"] > 0
    assert documents(front.store, did) == {row["id"]: row for row in rows}
    position = front.store.space(did).position()
    again = run(server, name, space=did)
    assert again["result"] == {**job["result"], "rows": 0}
    assert front.store.space(did).position() == position
    assert front.store.space(did).verify() == []


def test_fields_name_the_space_and_operations_are_applied_in_order(front, server, name):
    dids = [f"did:web:{name.replace('_', '-')}-{n}" for n in range(2)]
    rows = [{"key": n, "tenant": dids[n % 2], "n": n} for n in range(6)]
    upload(server, name, rows)
    job = run(server, name, space_from="tenant", id="key", history="facts")
    assert job["result"]["rows"] == 6
    for at, did in enumerate(dids):
        assert set(documents(front.store, did)) == {str(n) for n in range(at, 6, 2)}
        assert front.store.space(did).history_kind.name == "facts"
    front.store.space(dids[0]).branches.create("draft")
    operations = [
        {"id": "0", "op": "patch", "patches": [{"op": "increment", "path": "/n", "by": 2}]},
        {"id": "0", "op": "patch", "data": '[{"op": "increment", "path": "/n", "by": 3}]'},
        {"id": "0", "branch": "draft", "op": "delete"},
        {"id": "new", "value": {"a": 1}},
        {"id": "1", "space": dids[1], "op": "delete"},
    ]
    upload(server, name, operations)
    job = run(server, name, rows="operations", space=dids[0])
    assert (job["status"], job["result"]["rows"]) == ("succeeded", 5), job
    assert front.store.space(dids[0])["0"]["n"] == 5
    assert front.store.space(dids[0]).read("0", branch="draft").document is None
    assert front.store.space(dids[0])["new"] == {"a": 1}
    assert "1" not in front.store.space(dids[1])


def test_lines_are_appended_to_a_stream_once(front, server, name, small_slices):
    front.store.streams.create(name, "application/json")
    upload(server, name, b'{"n":1}\n\n[{"n":2},{"n":3}]\n"four"\n5\n6')
    job = run(server, name, model="streams", stream=name)
    assert (job["result"]["lines_read"], job["result"]["rows"]) == (5, 6)
    assert run(server, name, model="streams", stream=name)["result"]["rows"] == 0
    values = [record.value for record in front.store.streams[name].read()]
    assert values == [{"n": 1}, {"n": 2}, {"n": 3}, "four", 5, 6]


def test_envelopes_are_applied_in_order_and_once(front, server, name, small_slices):
    app = front.store.graphs.create(f"a{abs(hash(name))}")
    note = app.register_type("parent", "note")
    operation = {"op": "parent_create", "app_id": app.app_id, "type_id": note, "owner_identity": 1}
    lines = [{"trace_id": f"t-{n}", "ops": [operation | {"payload": {}}]} for n in range(7)]
    upload(server, name, lines)
    before = app.position()
    job = run(server, name, model="graphs")
    assert (job["status"], job["result"]["rows"]) == ("succeeded", 7), job
    assert app.position() == before + 7
    assert run(server, name, model="graphs")["result"]["rows"] == 0
    assert len(app.objects("parent")) == 7


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"id": "a"}\n{"id": "b"}\n{"id": 1.5}', "line 3: id: must be a text"),
        (b'{"id": "a"}\n\n{', "line 3: must be JSON"),
        (b'{"id": "a"}\n[1]', "line 2: must be a JSON object"),
        (b'{"id": "a"}\n\xff', "line 2: must be UTF-8"),
        (b'{"id": "a"}\n{"id": ""}', "line 2: "),
        (b" \n\n", "no lines"),
    ],
)
def test_one_bad_line_refuses_the_whole_upload(front, server, name, lines, message):
    did = f"did:web:bad-{abs(hash(name))}"
    upload(server, "bad", lines)
    job = run(server, "bad", space=did)
    assert (job["status"], job["error"]["kind"]) == ("failed", "invalid_input")
    assert message in job["error"]["message"]
    assert not front.store.has_space(did)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"space": DID, "space_from": "x"}, "invalid_input"),
        ({}, "invalid_input"),
        ({"space": "not a did"}, "invalid_input"),
        ({"model": "streams"}, "invalid_input"),
        ({"model": "streams", "stream": "unknown"}, "not_found"),
    ],
)
def test_wrong_target_fails_the_job(server, options, kind):
    upload(server, "target", [{"id": "a"}])
    job = run(server, "target", **options)
    assert (job["status"], job["error"]["kind"]) == ("failed", kind)


def test_unknown_upload_is_refused(server):
    assert start(server, "load", 404, upload="unknown", space=DID)["kind"] == "not_found"
    assert start(server, "load", 400, upload="../store", space=DID)["kind"] == "invalid_input"


def test_cancelled_load_continues_where_it_was(front, server, name, small_slices, monkeypatch):
    did = f"did:web:{name.replace('_', '-')}"
    rows = [{"id": f"n-{n}", "n": n} for n in range(30)]
    upload(server, name, rows)
    reached, go_on = threading.Event(), threading.Event()
    write = load.DocumentsTarget.write

    def pausing(target, load_name, part):
        if part.number == 4:
            reached.set()
            assert go_on.wait(30)
        return write(target, load_name, part)

    monkeypatch.setattr(load.DocumentsTarget, "write", pausing)
    job = start(server, "load", upload=name, space=did)
    assert reached.wait(30)
    # Whatever is uploaded now, or deleted, is not part of the load.
    upload(server, name, [{"id": "later"}])
    cancelling = threading.Thread(target=server.ask, args=("DELETE", f"/v1/jobs/{job['id']}"))
    cancelling.start()
    front.store.space(did).set("beside", {"n": 0})
    while not front_job(front, job).cancelled.is_set():
        pass
    go_on.set()
    cancelling.join(30)
    assert ended(server, job)["status"] == "cancelled"
    written = set(documents(front.store, did)) - {"beside"}
    assert written == {f"n-{n}" for n in range(15)}
    monkeypatch.undo()
    monkeypatch.setattr(load, "SLICE_LINES", 3)
    upload(server, name, rows)
    done = run(server, name, space=did)
    assert (done["status"], done["result"]["rows"]) == ("succeeded", 15)
    assert len(documents(front.store, did)) == 31


def front_job(front, job):
    """Return the job in the server of this process."""
    for route in front.protocol.routes.routes:
        if route.operation == "start_job":
            return route.handler.__self__._jobs._running[job["id"]]
    raise AssertionError("no route")


# Uploads


def test_pieces_of_an_upload_are_appended_in_order_and_once(front, server, name):
    assert upload(server, name, b"one\n").status == 201
    assert upload(server, name, b"two\n", offset=4).value["bytes"] == 8
    assert upload(server, name, b"two\n", offset=4).value["bytes"] == 8
    assert upload(server, name, b"three\n", offset=8).value["bytes"] == 14
    for offset, data in ((4, b"other"), (15, b"x"), (100, b"")):
        refused = upload(server, name, data, offset=offset)
        assert (refused.status, refused.value["details"]["bytes"]) == (409, 14)
    assert upload(server, "none-of-it", b"x", offset=1).status == 409
    path = uploads_folder(front.store.root) / name
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert path.stat().st_mode & 0o077 == 0
    listed = {row["name"]: row for row in server.ask("GET", "/v1/uploads").value["items"]}
    assert listed[name]["bytes"] == 14
    assert upload(server, name, b"new").value["bytes"] == 3
    assert server.ask("DELETE", f"/v1/uploads/{name}").status == 204
    assert server.ask("DELETE", f"/v1/uploads/{name}").status == 404


@pytest.mark.parametrize("name", ["..", ".hidden", "a%2Fb", "%2Fetc", "a%20b", "x" * 129, "%00"])
def test_upload_cannot_leave_its_folder(server, name):
    assert server.ask("PUT", f"/v1/uploads/{name}", b"x").status in {400, 404}


def test_uploads_are_bounded(server, monkeypatch):
    monkeypatch.setattr(uploads, "UPLOADS_BYTES_MAX", 1_000_000)
    assert upload(server, "bounded", b"x" * 1_000_001).status == 409
    monkeypatch.setattr(uploads, "UPLOADS_MAX", 1)
    assert (
        upload(server, "bounded-1", b"x").status == 409
        or upload(server, "bounded-2", b"x").status == 409
    )
