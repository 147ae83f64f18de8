"""One program on a folder and on a server: the same calls, results and errors."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from datetime import UTC, datetime

import pytest
from served_streams import Served

import fourfold
from fourfold import errors
from fourfold.client import AsyncRemoteStore, RemoteStream, RemoteStreams


@pytest.fixture(scope="module", params=["folder", "server"])
def store(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param) / "store"
    if request.param == "folder":
        with fourfold.open(root) as opened:
            yield opened
        return
    served = Served(root, long_poll="1")
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as connected:
        yield connected
    served.kill()


def refused(error, message, call):
    """Check the class and the message of an error, which name the same thing everywhere."""
    with pytest.raises(errors.FourfoldError) as caught:
        call()
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.hint


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
        "read: pass an offset or since, not both",
        lambda: stream.read(1, since=since),
    )


def test_state_is_the_newest_value_of_each_key(store, name):
    stream = store.streams.create(name, "application/json")
    for value in (1, 2):
        change = {"type": "n", "key": "a", "value": value, "headers": {"operation": "upsert"}}
        stream.append(change)
    assert store.streams.state(name) == {("n", "a"): 2}


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
    values = [record.value for chunk in stream.follow(1, timeout=0.2) for record in chunk]
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
    [(fourfold.Stream, RemoteStream), (fourfold.Streams, RemoteStreams)],
    ids=lambda cls: cls.__name__,
)
def test_methods_of_a_server_have_the_signatures_of_a_folder(local, remote):
    shared = [name for name in public(remote) if hasattr(local, name)]
    assert len(shared) > 5
    for name in shared:
        ours, theirs = (getattr(cls, name) for cls in (local, remote))
        if not isinstance(ours, property):
            names = [
                list(inspect.signature(method).parameters.values()) for method in (ours, theirs)
            ]
            assert [(p.name, p.kind, p.default) for p in names[0]] == [
                (p.name, p.kind, p.default) for p in names[1]
            ], name


def test_methods_of_one_stream_are_complete():
    assert set(public(fourfold.Stream)) <= set(public(RemoteStream))


def parameters(method):
    listed = inspect.signature(method).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in listed]


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
            async with stream.follow(timeout=0.2) as chunks:
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

    served = Served(tmp_path / "store", long_poll="1")
    try:
        asyncio.run(work(f"http://127.0.0.1:{served.port}"))
    finally:
        served.kill()
