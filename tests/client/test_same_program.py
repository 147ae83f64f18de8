"""One program on a folder and on a server: the same calls, results and errors."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from same_program import refused, take
from served_streams import Served

import fourfold
from fourfold import errors
from fourfold.client import (
    AsyncRemoteStore,
    RemoteGraph,
    RemoteGraphs,
    RemoteMemory,
    RemoteSession,
    RemoteSessions,
    RemoteSpace,
    RemoteStore,
    RemoteStream,
    RemoteStreams,
)
from fourfold.client.threads.remote_indexes import RemoteIndexes
from fourfold.client.threads.remote_spaces import RemoteBlobs, RemoteBranches, RemoteDocuments
from fourfold.models import documents
from fourfold.models.documents.memory import Memory

# Streams


def test_json_values_are_appended_and_read(store, name):
    stream = store.streams.create(name, "application/json")
    done = stream.append({"id": 1})
    assert (done.next_offset, done.duplicate, done.closed) == (1, False, False)
    later = stream.append([{"id": 2}, [3], "é"], key="k")
    assert later.next_offset == 4
    chunk = stream.read()
    assert [record.value for record in chunk] == [{"id": 1}, {"id": 2}, [3], "é"]
    assert [record.offset for record in chunk] == [0, 1, 2, 3]
    assert chunk.up_to_date
    assert not chunk.closed
    assert chunk.offset == later.offset == stream.position()
    assert [record.value for record in stream.read(done.offset)] == [{"id": 2}, [3], "é"]
    assert [record.value for record in stream.read(2, 1)] == [[3]]
    assert [record.value for record in stream.read(key="k")] == [{"id": 2}, [3], "é"]
    assert [record.value for record in stream.read(where=("id", 2))] == [{"id": 2}]
    assert stream.read("now").records == ()
    assert [record.value for record in stream] == [{"id": 1}, {"id": 2}, [3], "é"]
    assert len(stream) == 4
    assert store.streams[name].info.content_type == "application/json"
    assert repr(stream) == f"<Stream {name!r}>"


def test_bytes_are_records_of_their_own(store, name):
    stream = store.streams.create(name, "application/octet-stream")
    stream.append_bytes([b"\xff\x00", b"b"])
    stream.append(b"c", close=True)
    assert [record.payload for record in stream] == [b"\xff\x00", b"b", b"c"]
    assert stream.info.closed


def test_appends_depend_on_the_expected_end(store, name):
    stream = store.streams.create(name, "application/json")
    first = stream.append({"n": 1}, expected=0)
    second = stream.append({"n": 2}, expected=first.offset)
    for expected in (0, first.offset, str(first.offset)):
        with pytest.raises(errors.PreconditionFailed) as refused:
            stream.append({"n": 3}, expected=expected)
        assert refused.value.details["next_offset"] == second.offset
    till = fourfold.Producer("till", 0, 0)
    assert not stream.append({"n": 3}, producer=till, expected=2).duplicate
    assert stream.append({"n": 3}, producer=till, expected=2).duplicate
    assert [record.value["n"] for record in stream.read()] == [1, 2, 3]
    with pytest.raises(errors.InvalidInput):
        stream.append({"n": 4}, expected="now")


def test_records_have_headers(store, name):
    stream = store.streams.create(name, "application/json")
    stream.append({"n": 1}, headers={"trace": "4bf9", "who": "Zoë"})
    stream.append_bytes(b"2")
    stream.append([3, 4], headers={"trace": "5"}, close=True)
    expected = [{"trace": "4bf9", "who": "Zoë"}, {}, {"trace": "5"}, {"trace": "5"}]
    assert [record.headers for record in stream.read()] == expected
    assert [record.headers for chunk in stream.follow() for record in chunk] == expected
    with store.streams.follow(prefix=name, after="-1") as followed:
        assert [item.record.headers for item in take(followed, 4)] == expected
    with pytest.raises(errors.InvalidInput):
        stream.append(5, headers={"trace": 5})


def test_routing_keys_are_listed(store, name):
    stream = store.streams.create(name, "application/json")
    for number, key in enumerate(("a/é %", "b", "a/1", "b")):
        stream.append(number, key=key)
    page = stream.keys()
    assert [(row.key, row.offset.record) for row in page] == [
        (b"a/1", 2),
        ("a/é %".encode(), 0),
        (b"b", 3),
    ]
    assert (page.after, page.complete_from.record) == (None, 0)
    first = stream.keys(limit=1)
    assert (len(first), first.after) == (1, b"a/1")
    assert [row.text for row in stream.keys(after=first.after)] == ["a/é %", "b"]
    assert [row.text for row in stream.keys(prefix="a/", after="a/1")] == ["a/é %"]


def test_messages_are_filtered(store, name):
    stream = store.streams.create(name, "application/json")
    stream.append([{"n": n, "kind": ["a", "b"][n % 2]} for n in range(10)], key="k")
    stream.append({"n": 11, "kind": "b"}, close=True)
    where = {"kind": "b", "/n": {"$gte": 5}}
    assert [record.value["n"] for record in stream.read(where=where)] == [5, 7, 9, 11]
    assert [record.value["n"] for record in stream.read(where=where, key="k")] == [5, 7, 9]
    assert [record.value["n"] for record in stream.read(where=("n", 3))] == [3]
    followed = [record.value["n"] for chunk in stream.follow(where=where) for record in chunk]
    assert followed == [5, 7, 9, 11]

    async def follow():
        chunks = [chunk async for chunk in stream.follow_async(where=where)]
        return [record.value["n"] for chunk in chunks for record in chunk]

    assert asyncio.run(follow()) == followed
    unknown = "/n: unknown operator '$above'"
    refused(errors.InvalidInput, unknown, lambda: stream.read(where={"/n": {"$above": 1}}))


def test_records_of_all_streams_are_followed(store, name):
    streams = store.streams
    with streams.follow(prefix=name) as follower:
        start = follower.cursor
        for number in range(3):
            streams.create(f"{name}/{number % 2}", "application/json").append({"n": number})
        streams.create(f"{name}/raw", "application/octet-stream").append(b"\xff")
        items = [next(follower) for _ in range(4)]
    assert [item.stream.removeprefix(name) for item in items] == ["/0", "/1", "/0", "/raw"]
    assert [item.record.offset for item in items] == [0, 0, 1, 0]
    assert [item.record.value["n"] for item in items[:3]] == [0, 1, 2]
    assert items[3].record.payload == b"\xff"
    with streams.follow(prefix=name, after=items[1].cursor) as follower:
        again = take(follower, 2)
    assert [item[:2] for item in again] == [item[:2] for item in items[2:]]
    with streams.follow(prefix=name, after=start) as follower:
        everything = take(follower, 4)
    assert [item[:2] for item in everything] == [item[:2] for item in items]
    short = streams.create(f"{name}/short", "application/json", retention_bytes=1)
    cursor = again[-1].cursor
    short.append([1, 2])
    streams.delete(f"{name}/0")
    if hasattr(streams, "sweep"):
        streams.sweep()
    deadline = time.monotonic() + 30
    while short.info.first_offset == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(errors.HistoryTruncated) as truncated:
        list(streams.follow(prefix=name, after=cursor, timeout=30))
    after = truncated.value.details["cursor"]
    with streams.follow(prefix=name, after=after) as follower:
        assert [item.record.value for item in take(follower, 1)] == [2]
    with pytest.raises(errors.InvalidInput):
        list(streams.follow(prefix=name, after="x", timeout=30))


def test_streams_are_listed_and_counted(store, name):
    for suffix in "abc":
        store.streams.create(f"{name}/{suffix}", "text/plain").append(suffix)
    assert [info.name[-1] for info in store.streams.list(prefix=name)] == ["a", "b", "c"]
    page = store.streams.list(prefix=name, after=f"{name}/a", limit=1)
    assert [info.name[-1] for info in page] == ["b"]
    assert store.streams.totals().streams >= 3


def test_forks_settings_and_rules_are_the_same(store, name):
    stream = store.streams.create(name, "application/json", ttl=600)
    stream.append([1, 2, 3])
    fork = stream.fork(f"{name}-fork", 2)
    fork.append(4)
    assert [record.value for record in fork] == [1, 2, 4]
    assert fork.info.fork_offset == 2
    assert stream.info.ttl_seconds == 600
    assert stream.configure(ttl=None, retention_bytes=9).ttl_seconds is None
    assert stream.info.retention_bytes == 9
    strict = store.streams.create(f"{name}-strict", "application/json")
    assert strict.set_schema({"type": "integer"}).current_version == 1
    assert strict.schema().schemas == {"1": {"type": "integer"}}
    with pytest.raises(errors.InvalidInput, match="violates version 1"):
        strict.append("one")
    assert stream.set_profile("state-protocol", touch=True).touch_enabled
    assert stream.profile().to_json() == {"kind": "state-protocol", "touch": {"enabled": True}}
    fork.delete()
    refused(errors.NotFound, f"unknown stream {name + '-fork'!r}", lambda: fork.info)


def test_reads_begin_at_a_time(store, name):
    stream = store.streams.create(name, "application/json")
    stream.append([1, 2])
    time.sleep(0.005)
    since = datetime.now(UTC)
    stream.append([3, 4], close=True)
    assert [record.value for record in stream.read(since=since)] == [3, 4]
    assert stream.read(since=since, limit=1).next_offset == 3
    assert stream.read(since="2100-01-01").records == ()
    assert store.streams.offset_since(name, since).record == 2
    values = [record.value for chunk in stream.follow(since=since) for record in chunk]
    assert values == [3, 4]
    refused(
        errors.InvalidInput,
        "pass after or since, not both",
        lambda: stream.read(1, since=since),
    )


def test_state_is_the_newest_value_of_each_key(store, name):
    stream = store.streams.create(name, "application/json")
    for value in (1, 2):
        change = {"type": "n", "key": "a", "value": value, "headers": {"operation": "upsert"}}
        stream.append(change)
    assert store.streams.state(name) == {("n", "a"): 2}


def test_producers_segments_and_subscriptions_are_the_same(store, name):
    stream = store.streams.create(name, "text/plain")
    for calls in (stream.producers, stream.segments, stream.subscriptions):
        assert (calls(), len(calls().to_arrow())) == ([], 0)
    for number in range(3):
        stream.append(b"x", producer=fourfold.Producer(f"p{number}", 2, 0))
        stream.append(b"x", producer=fourfold.Producer(f"p{number}", 2, 1))
    assert [row[:3] for row in stream.producers()] == [(f"p{n}", 2, 1) for n in range(3)]
    assert [row.id for row in stream.producers(after="p0", limit=1)] == ["p1"]
    stream.delete()
    for calls in (stream.producers, stream.segments, stream.subscriptions):
        with pytest.raises(errors.NotFound, match=name):
            calls()


def test_errors_of_streams_are_the_same(store, name):
    refused(errors.NotFound, f"unknown stream {name!r}", lambda: store.streams.open(name))
    stream = store.streams.create(name, "application/json")
    refused(
        errors.InvalidInput,
        f"stream {name!r}: a message must be a JSON value: "
        "Object of type object is not JSON serializable",
        lambda: stream.append(object()),
    )
    refused(errors.InvalidInput, "invalid offset 'x'", lambda: stream.read("x"))
    refused(
        errors.AlreadyExists,
        f"stream {name!r} already exists with another content type",
        lambda: store.streams.create(name, "text/plain"),
    )
    producer = fourfold.Producer("till", 1, 5)
    with pytest.raises(errors.ProducerGap) as caught:
        stream.append(1, producer=producer)
    assert caught.value.details["expected"] == 0
    assert stream.append(1, producer=producer._replace(seq=0)).producer == ("till", 1, 0)
    assert stream.append(1, producer=producer._replace(seq=0)).duplicate
    stream.close()
    refused(errors.StreamClosed, f"stream {name!r} is closed", lambda: stream.append(2))


def test_stream_is_followed_until_it_is_closed(store, name):
    stream = store.streams.create(name, "application/json")
    stream.append(0)
    timer = threading.Timer(0.1, lambda: stream.append([1, 2], close=True))
    timer.start()
    values = [record.value for chunk in stream.follow() for record in chunk]
    timer.join()
    assert values == [0, 1, 2]


def test_follower_of_a_stream_ends_after_its_timeout(store, name):
    stream = store.streams.create(name, "application/json")
    stream.append([0, 1])
    values = [record.value for chunk in stream.follow(1, timeout=2) for record in chunk]
    assert values == [1]


def test_coroutines_use_the_same_store(store, name):
    async def work():
        stream = store.streams.create(name, "application/json")
        await asyncio.gather(*(stream.append_async(number) for number in range(5)))
        await stream.append_async("end", close=True)
        return [r.value async for chunk in stream.follow_async() for r in chunk]

    values = asyncio.run(work())
    assert sorted(values[:-1]) == [0, 1, 2, 3, 4]
    assert values[-1] == "end"


# The shape


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        (documents.Documents, RemoteDocuments),
        (fourfold.Space, RemoteSpace),
        (documents.branches.Branches, RemoteBranches),
        (documents.Indexes, RemoteIndexes),
        (documents.blobs.SpaceBlobs, RemoteBlobs),
        (Memory, RemoteMemory),
        (fourfold.Session, RemoteSession),
        (fourfold.Sessions, RemoteSessions),
        (fourfold.Stream, RemoteStream),
        (fourfold.Streams, RemoteStreams),
        (fourfold.Graph, RemoteGraph),
        (fourfold.Graphs, RemoteGraphs),
        (fourfold.Store, RemoteStore),
    ],
    ids=lambda cls: cls.__name__,
)
def test_methods_of_a_server_have_the_signatures_of_a_folder(local, remote):
    shared = [name for name in public(remote) if hasattr(local, name)]
    assert len(shared) > 2
    for name in shared:
        ours, theirs = (getattr(cls, name) for cls in (local, remote))
        if not isinstance(ours, property):
            names = [
                list(inspect.signature(method).parameters.values()) for method in (ours, theirs)
            ]
            assert [(p.name, p.kind, p.default) for p in names[0]] == [
                (p.name, p.kind, p.default) for p in names[1]
            ], name


def test_calls_differ_only_as_listed_with_a_reason(served):
    """Compare the objects of both stores; the tables are in docs/reference/client.md."""
    with (
        fourfold.open(":memory:") as folder,
        fourfold.connect(f"http://127.0.0.1:{served.port}") as server,
    ):
        pairs = zip(FACADES, facades(folder), facades(server), strict=True)
        calls = {name: (set(public(ours)), set(public(theirs))) for name, ours, theirs in pairs}
    missing = {name: ours - theirs for name, (ours, theirs) in calls.items() if ours - theirs}
    only = {name: theirs - ours for name, (ours, theirs) in calls.items() if theirs - ours}
    assert missing == listed("Not on a server")
    assert only == listed("Only on a server")


def listed(title):
    """Return the calls in the table of the client's page with this title, by what has them."""
    _, _, rest = PAGE.read_text("utf-8").partition(f"| | {title} | Why |\n")
    table, _, _ = rest.partition("\n\n")
    calls = {}
    for name, cell, reason in re.findall(r"(?m)^\| (\w+) \| (`[^|]*`) \| ([^|]+) \|$", table):
        calls.setdefault(name, set()).update(re.findall(r"`(\w+)`", cell))
        assert reason.strip()
    return calls


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"
FACADES = (
    *("store", "documents", "space", "branches", "blobs", "indexes", "streams", "stream"),
    *("subscriptions", "sessions", "session", "graphs", "graph", "memory"),
)


def facades(store):
    space = store.space("did:web:shape.example")
    yield from (store, store.documents, space, space.branches, space.blobs, space.indexes)
    yield from (store.streams, store.streams.create("shape", "text/plain"))
    yield store.streams.subscriptions
    yield from (store.sessions, store.sessions.create({"id": "shape"}))
    yield from (store.graphs, store.graphs.create("shape"), store.memory("shape"))


def public(cls):
    return [name for name in dir(cls) if not name.startswith("_")]


# Coroutines


def test_store_for_coroutines_has_the_same_calls(tmp_path):
    async def work(url):
        async with AsyncRemoteStore(url) as store:
            stream = await store.streams.create("s", "application/json")
            await stream.append([1, 2])
            assert (await stream.info).next_offset == 2
            assert [record.value async for record in stream] == [1, 2]
            async with stream.follow(timeout=2) as chunks:
                assert [r.value async for chunk in chunks for r in chunk] == [1, 2]
            follower = stream.follow("now")
            waiting = asyncio.create_task(follower.next())
            await asyncio.sleep(0.1)
            await stream.append(3, close=True)
            assert [r.value for r in await waiting] == [3]
            assert await follower.next() is None
            await follower.close()
            with pytest.raises(errors.NotFound):
                await store.streams.open("none")
            space = await store.space("did:web:a.example")
            async with space.follow(timeout=30) as commits:
                assert commits.position == 0
                await space.set("a", {"n": 1})
                assert (await anext(commits)).seq == 1
                assert await commits.next(0.05) is None
                await space.set("b", {})
                assert (await commits.next(30)).seq == commits.position == 2
            assert [entity async for entity in space] == ["a", "b"]
            assert (await space.read("a")).document == {"n": 1}
            await space.branches.create("b")
            assert [branch.name async for branch in space.branches] == ["", "b"]
            assert await space.blobs.has(await space.blobs.put(b"x"))
            assert await store.spaces() == ["did:web:a.example"]
            session = await store.sessions.create({"id": "s", "model": "any"})
            async with session.follow(timeout=30) as items:
                await session.append({"type": "turn/started", "turn": {"status": "running"}})
                assert (await anext(items)).id == items.cursor == 2
            view = await session.read()
            assert (view.turns[0]["status"], view.counters.event) == ("running", 2)
            assert (await session.read(at=1)).turns == []
            head = await session.publish_head(expected_basis=None)
            assert await store.sessions.head(head.id) == head
            ref = await store.sessions.intern_payload(b"x")
            assert await store.sessions.read_payload(ref) == b"x"
            assert [info.id for info in await store.sessions.list()] == ["s"]

    served = Served(tmp_path / "store", long_poll="1")
    try:
        asyncio.run(work(f"http://127.0.0.1:{served.port}"))
    finally:
        served.kill()
