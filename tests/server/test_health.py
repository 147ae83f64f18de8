"""`/health` reveals no names without a key; the object store may be down at the start."""

from __future__ import annotations

import json
import time

import pytest
from served_streams import Served, free_port

import fourfold
from fourfold.errors import ObjectStoreError, PublisherFenced
from fourfold.objects import ObjectStore
from fourfold.server.auth import Access
from fourfold.server.key_store import FILE_NAME
from fourfold.server.publisher import ServerPublisher
from fourfold.server.request import Request
from fourfold.server.streams import StreamProtocol
from fourfold.store.background_publisher import Continuous

SECRET_NAME = "customers/acme-merger-plan"


@pytest.fixture
def store(tmp_path):
    with fourfold.open(tmp_path / "store") as opened:
        yield opened


async def health(protocol, key=None):
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    response = await protocol.handle(Request("GET", "/health", "", headers, b""))
    return response.status, response.body.decode()


@pytest.fixture
def failing(store):
    """Return a server with keys that cannot publish a stream and whose sweep failed."""
    access = Access(store.root)
    streams = store.streams
    streams.unpublished = lambda: {SECRET_NAME: ObjectStoreError("the object store is down")}
    streams.sweep_failure = ObjectStoreError(f"the stream {SECRET_NAME!r} could not be swept")
    protocol = StreamProtocol(streams, access=access)
    protocol.keys = {
        "all": access.add(("read",))[1],
        "tenant": access.add(("read", "admin"), prefix="other/")[1],
    }
    return protocol


@pytest.mark.anyio
@pytest.mark.parametrize("key", [None, "tenant", "wrong"])
async def test_health_reveals_no_names_without_a_key_for_all(failing, key):
    status, text = await health(failing, failing.keys.get(key, key))
    assert status == 503
    assert SECRET_NAME not in text
    document = json.loads(text)
    assert (document["unpublished_count"], document["fenced_count"]) == (1, 0)
    assert document["error"] == {"kind": "object_store", "retryable": True}


@pytest.mark.anyio
async def test_health_names_streams_with_a_key_for_all(failing):
    _, text = await health(failing, failing.keys["all"])
    document = json.loads(text)
    assert document["unpublished"] == [SECRET_NAME]
    assert SECRET_NAME in document["error"]["message"]


@pytest.mark.anyio
async def test_health_of_a_failed_database_has_the_reason(tmp_path):
    settings = {"health.wal_degraded_bytes": 1_024, "health.wal_failed_bytes": 1_024}
    with fourfold.open(tmp_path / "store", settings=settings) as opened:
        opened.streams.create("s", "text/plain").append(b"x")
        access = Access(opened.root)
        _, key = access.add(("read",))
        protocol = StreamProtocol(opened.streams, access=access)
        status, text = await health(protocol)
        assert (status, json.loads(text)["error"]) == (503, {"kind": "storage", "retryable": False})
        status, text = await health(protocol, key)
        assert status == 503
        assert "wal_size_bytes" in json.loads(text)["error"]["message"]


@pytest.mark.anyio
async def test_health_responds_when_the_key_file_cannot_be_read(store):
    (store.root / FILE_NAME).mkdir()
    protocol = StreamProtocol(store.streams, access=Access(store.root))
    status, text = await health(protocol)
    assert (status, json.loads(text)["ok"]) == (200, True)
    closed = await protocol.handle(Request("GET", "/v1/stream/x", "", {}, b""))
    assert closed.status == 503


def health_of(server):
    return json.loads(server.ask("GET", "/health").text)


def waited(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.1)


def test_server_starts_and_appends_while_the_object_store_is_down(tmp_path):
    address = "s3://bucket/prefix"
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
    }
    server = Served(tmp_path / "store", options=("--objects", address), environment=environment)
    try:
        document = health_of(server)
        assert document["ok"] is True
        assert document["objects"]["ok"] is False
        assert document["objects"]["error"]["kind"] == "object_store"
        assert server.stream("PUT", "s", b"x", content_type="text/plain").status == 201
    finally:
        server.kill()


class Outage:
    """An object store that does not respond until `ended`."""

    def __init__(self, store: ObjectStore):
        self.ended = False
        self._store = store

    def check(self):
        if not self.ended:
            raise ObjectStoreError("the object store does not answer")


def test_publishing_begins_once_the_object_store_responds(store):
    outage = Outage(store.objects)
    store.streams.create("s", "text/plain", body=b"x")
    publishing = ServerPublisher(Continuous(store), store.archive, outage.check, retry_s=0.05)
    with publishing.running():
        assert publishing.failure.kind == "object_store"
        assert store.archive.standing().unpublished_records == 1
        outage.ended = True
        waited(lambda: publishing.failure is None)
    assert store.archive.standing().unpublished_records == 0
    assert publishing.backup.left == {}


def test_publishing_that_never_began_reports_what_is_unpublished(store):
    outage = Outage(store.objects)
    store.streams.create("s", "text/plain", body=b"x")
    publishing = ServerPublisher(Continuous(store), store.archive, outage.check, retry_s=0.05)
    with publishing.running():
        pass
    assert publishing.failure.kind == "object_store"
    assert store.archive.standing().unpublished_records == 1


@pytest.mark.anyio
async def test_health_counts_fenced_streams_without_names(store):
    store.streams.unpublished = lambda: {SECRET_NAME: PublisherFenced("another node has it")}
    access = Access(store.root)
    access.add(("read",))
    _, text = await health(StreamProtocol(store.streams, access=access))
    assert json.loads(text)["fenced_count"] == 1
    assert SECRET_NAME not in text
