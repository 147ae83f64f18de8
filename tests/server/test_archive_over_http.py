"""A publishing server: readers see no difference, and the objects alone restore it."""

from __future__ import annotations

import json
import shutil
import time

import pytest
from click.testing import CliRunner
from served_streams import Served

import fourfold
from fourfold.archive import manifest
from fourfold.cli.main import app
from fourfold.objects import FolderStore

JSON = {"content-type": "application/json"}
SMALL = {"FOURFOLD_ARCHIVE_SEAL_ROWS": "20", "FOURFOLD_ARCHIVE_CACHE_BYTES": "4000"}


@pytest.fixture
def start(tmp_path):
    """Start servers on folders of this test; all publish to the same objects."""
    started = []

    def serve(name, *options):
        objects = ("--objects", str(tmp_path / "objects"))
        started.append(Served(tmp_path / name, options=(*objects, *options), environment=SMALL))
        return started[-1]

    yield serve
    for server in started:
        if server.process.poll() is None:
            server.kill()


def read_manifest(tmp_path, name):
    with FolderStore(tmp_path / "objects") as objects:
        return json.loads(objects.get(manifest.manifest_key(name)).data)


def read_all(server, name, offset="-1"):
    """Return everything after an offset as one list."""
    result = []
    while True:
        answer = server.ask("GET", f"/v1/stream/{name}?offset={offset}")
        assert answer.status == 200
        result += json.loads(answer.text)
        offset = answer.headers["stream-next-offset"]
        if answer.headers.get("stream-up-to-date"):
            return result


def details(server, name):
    return json.loads(server.ask("GET", f"/v1/stream/{name}/_details").text)["archive"]


def call(*arguments):
    """Run a command in this process."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done


def test_details_show_the_indexes(start):
    server = start("node")
    server.ask("PUT", "/v1/stream/orders", headers=JSON)
    for number in range(40):
        headers = {**JSON, "stream-key": f"key-{number % 4}"}
        server.ask("POST", "/v1/stream/orders", b'{"n": %d}' % number, headers)
    wait_until_published(server, "orders", 40)
    report = details(server, "orders")
    assert report["indexes"] == []
    assert report["compactions_pending"] == 0
    server.stop()
    done = call("publish", str(server.root), "--index", "--compact")
    assert "indexed" in done.stdout
    again = start("node")
    (index,) = details(again, "orders")["indexes"]
    assert index["field"] is None
    assert index["indexed_offset"].endswith("40")
    assert index["runs"] >= 1
    answer = again.ask("GET", "/v1/stream/orders?key=key-3")
    assert [load["n"] for load in json.loads(answer.text)] == list(range(3, 40, 4))


def wait_until_published(server, name, count):
    deadline = time.monotonic() + 60
    while int(details(server, name)["published_offset"][-8:]) < count:
        assert time.monotonic() < deadline, details(server, name)
        time.sleep(0.02)


def test_publishing_server_looks_the_same_to_readers(start, tmp_path):
    server = start("store")
    server.ask("PUT", "/v1/stream/orders", b"", JSON)
    for batch in range(10):
        body = json.dumps([{"n": 10 * batch + n} for n in range(10)]).encode()
        assert server.ask("POST", "/v1/stream/orders", body, JSON).status == 204
    expected = [{"n": n} for n in range(100)]
    wait_until_published(server, "orders", 100)
    assert read_all(server, "orders") == expected
    middle = f"0000000000000000_{37:016d}"
    assert read_all(server, "orders", middle) == expected[37:]
    polled = server.ask("GET", f"/v1/stream/orders?offset={middle}&live=long-poll")
    assert json.loads(polled.text)[0] == {"n": 37}
    by_record = server.ask("GET", "/v1/stream/orders?offset=-1&limit=3")
    assert json.loads(by_record.text)[:3] == expected[:3]
    result = details(server, "orders")
    assert result["segments"] == result["published_segments"] == 5
    assert {item["artifact"] for item in result["requests"]} >= {"segment", "manifest"}
    assert json.loads(server.ask("GET", "/health").text)["unpublished"] == []
    server.kill()
    shutil.rmtree(tmp_path / "store" / "streams" / ".segments")
    server.start()
    assert read_all(server, "orders") == expected


def test_server_that_publishes_first_may_lose_its_disk(start, tmp_path):
    server = start("store", "--publish-first")
    server.ask("PUT", "/v1/stream/orders", b"", JSON)
    for n in range(5):
        body = json.dumps({"n": n}).encode()
        assert server.ask("POST", "/v1/stream/orders", body, JSON).status == 204
        assert read_manifest(tmp_path, "orders")["uploaded_through"] == n
    server.kill()
    shutil.rmtree(tmp_path / "store")
    done = call(
        "bootstrap", str(tmp_path / "again"), "--objects", str(tmp_path / "objects"), "--json"
    )
    report = json.loads(done.stdout)
    assert (report["streams"], report["records"], report["lost"]) == (1, 5, [])
    other = start("again")
    assert read_all(other, "orders") == [{"n": n} for n in range(5)]
    # It is written at once that this node publishes from now on.
    assert other.ask("POST", "/v1/stream/orders", b'{"n": 5}', JSON).status == 204
    assert read_all(other, "orders")[-1] == {"n": 5}


def test_activity_takes_a_time_or_a_restore_point(tmp_path):
    root = tmp_path / "store"
    with fourfold.open(root) as store:
        store.space("did:web:a.example").set("note", {"n": 1})
        store.publish()
        (point,) = store.points()
        while time.time_ns() // 1_000_000 <= point.started_ms:
            time.sleep(0.001)
        store.space("did:web:a.example").set("note", {"n": 2})
    served = Served(root)
    try:

        def newest(query=""):
            answer = served.ask("GET", f"/v1/store/activity{query}")
            return [entry["seq"] for entry in json.loads(answer.text)["recent"]]

        assert newest() == [2, 1]
        assert newest(f"?at={point.id}") == [1]
        assert newest("?at=2001-01-01T00:00:00Z") == []
        unknown = served.ask("GET", "/v1/store/activity?at=20010101T000000.000Z-abcd")
        assert unknown.status == 404
        assert served.ask("GET", "/v1/store/activity?at=yesterday").status == 400
    finally:
        served.kill()
