"""The client against a real server: every operation, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from served_streams import Served, free_port

import fourfold
from fourfold.client import AsyncStreamClient, Producer, StreamClient
from fourfold.errors import (
    AlreadyExists,
    Closed,
    ContentTypeMismatch,
    Forbidden,
    InvalidInput,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    ServerUnreachable,
    StreamClosed,
    StreamGone,
    StreamSeqOutOfOrder,
    Unauthorized,
)
from fourfold.server.auth import Access


def url(served):
    return f"http://127.0.0.1:{served.port}"


def run(coroutine):
    return asyncio.run(coroutine)


def test_messages_are_read_as_the_bytes_that_were_sent(client, name):
    stream = client.create(name)
    assert stream.facts.created
    assert not client.create(name).facts.created
    stream.append('[{"n": 1.50}, [1,2]]')
    done = stream.append_json([{"é": "ü"}, None])
    assert list(stream.messages()) == [b'{"n": 1.50}', b"[1,2]", '{"é":"ü"}'.encode(), b"null"]
    assert list(stream.items()) == [{"n": 1.5}, [1, 2], {"é": "ü"}, None]
    exact = list(stream.items(loads=lambda text: json.loads(text, parse_float=str)))
    assert exact[0] == {"n": "1.50"}
    assert stream.head().next_offset == done.next_offset
    assert stream.read(done.next_offset).items() == []


def test_bytes_and_text_are_read_in_pieces(client, name):
    stream = client.create(name, "text/plain; charset=utf-8")
    text = "zwölf Boxkämpfer\r\n" * 50_000
    for start in range(0, len(text), 10_007):
        stream.append(text[start : start + 10_007])
    assert "".join(stream.read_text()) == text
    pieces = list(stream.read_bytes())
    assert b"".join(pieces).decode() == text
    assert len(pieces) > 1
    with pytest.raises(InvalidInput):
        list(stream.messages())
    binary = client.create(f"{name}-b", "application/octet-stream", body=bytes(range(256)))
    assert b"".join(binary.read_bytes()) == bytes(range(256))
    with pytest.raises(InvalidInput):
        list(binary.read_text())


def test_read_needs_the_memory_of_a_part_only(client, name):
    stream = client.create(name)
    message = "x" * 10_000
    for _ in range(40):
        stream.append_json([message] * 100)
    tracemalloc.start()
    try:
        assert sum(len(item) for item in stream.messages()) == 4_000 * 10_002
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20


def test_fork_is_independent(client, name):
    stream = client.create(name)
    first = stream.append_json([1])
    stream.append_json([2])
    fork = stream.fork(f"{name}-fork", at=first.next_offset)
    fork.append_json([3])
    assert (list(stream.items()), list(fork.items())) == ([1, 2], [1, 3])
    stream.delete()
    assert list(fork.items()) == [1, 3]
    with pytest.raises(StreamGone):
        stream.head() and stream.read()


def test_closed_stream_is_reported_by_every_call(client, name):
    stream = client.create(name)
    done = stream.append_json([1], close=True)
    assert done.closed
    assert stream.close().closed
    assert stream.head().closed
    assert stream.read().closed
    with pytest.raises(StreamClosed):
        stream.append_json([2])
    with stream.follow() as parts:
        assert [(part.items(), part.closed) for part in parts] == [([1], True)]


def test_every_error_has_its_kind(client, name):
    with pytest.raises(NotFound):
        client.open(name)
    with pytest.raises(NotFound):
        client.delete(name)
    stream = client.create(name)
    with pytest.raises(AlreadyExists):
        client.create(name, "text/plain")
    other = client.create(f"{name}-t", "text/plain")
    other.name = name
    with pytest.raises(ContentTypeMismatch):
        other.append("x")
    stream.append_json([1], seq="b")
    with pytest.raises(StreamSeqOutOfOrder):
        stream.append_json([1], seq="a")
    stream.append_json([1], producer=Producer("p", 3, 0))
    assert stream.append_json([1], producer=Producer("p", 3, 0)).duplicate
    with pytest.raises(ProducerGap) as gap:
        stream.append_json([1], producer=Producer("p", 3, 5))
    assert gap.value.details["expected"] == 1
    with pytest.raises(ProducerFenced) as fenced:
        stream.append_json([1], producer=Producer("p", 2, 0))
    assert fenced.value.details["epoch"] == 3
    for bad in ("{", "[]"):
        with pytest.raises(InvalidInput):
            stream.append(bad)
    with pytest.raises(InvalidInput):
        stream.append_json([float("nan")])
    with pytest.raises(InvalidInput):
        stream.read("elsewhere")


def test_offset_removed_by_retention_is_gone(served, client, name):
    stream = client.create(name, retention_bytes=3)
    stream.append_json([1, 2, 3, 4, 5, 6])
    while (stored := next(client.list(name)).first_offset).endswith("0"):
        threading.Event().wait(0.05)
    with pytest.raises(OffsetGone) as gone:
        stream.read(stored[:-1] + "2")
    assert gone.value.details["first_offset"] == stored
    assert stream.read(stored).items() == [4, 5, 6]
    assert stream.read().items() == list(stream.items()) == [4, 5, 6]
    assert stream.read().first_offset == stream.head().first_offset == stored
    for live in ("sse", "long-poll"):
        with stream.follow(live=live) as parts:
            part = next(parts)
        assert (part.items(), part.first_offset) == ([4, 5, 6], stored)


def test_ttl_and_expiry_are_sent_and_returned(client, name):
    assert client.create(name, ttl=100).head().ttl_seconds == 100
    end = datetime.now(UTC) + timedelta(hours=1)
    later = client.create(f"{name}-2", expires_at=end).head()
    assert datetime.fromisoformat(later.expires_at) == end.replace(
        microsecond=end.microsecond // 1000 * 1000
    )
    with pytest.raises(InvalidInput):
        client.create(f"{name}-3", expires_at=end.replace(tzinfo=None))


def test_settings_are_changed_and_removed(client, name):
    stream = client.create(name, ttl=100)
    facts = stream.configure(retention_bytes=9)
    assert (facts.ttl_seconds, facts.retention_bytes) == (100, 9)
    end = datetime(2999, 1, 1, tzinfo=UTC)
    assert stream.configure(expires_at=end).expires_at == "2999-01-01T00:00:00Z"
    facts = stream.configure(expires_at=None, retention_bytes=None)
    assert (facts.ttl_seconds, facts.expires_at, facts.retention_bytes) == (None, None, None)
    assert stream.head() == facts
    with pytest.raises(InvalidInput):
        stream.configure()


def test_list_covers_all_pages(client, name, monkeypatch):
    monkeypatch.setattr(fourfold.limits, "LIST_STREAMS_MAX", 2)
    for n in range(5):
        client.create(f"{name}/{n}")
    assert [item.name for item in client.list(f"{name}/")] == [f"{name}/{n}" for n in range(5)]
    assert [item.name for item in client.list(f"{name}/", after=f"{name}/3")] == [f"{name}/4"]


@pytest.mark.parametrize("live", [None, "sse", "long-poll"])
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream"])
def test_follower_receives_existing_and_new_parts(client, name, live, kind):
    stream = client.create(name, kind)
    sent = [b'"\xc3\xa9 %d"' % n for n in range(30)]
    for item in sent[:10]:
        stream.append(item)

    def write():
        for item in sent[10:]:
            stream.append(item)
        stream.close()

    writer = threading.Thread(target=write)
    result = []
    with stream.follow(live=live) as parts:
        for part in parts:
            result += part.messages()
            if writer.ident is None:
                writer.start()
    writer.join()
    assert b"".join(result) == b"".join(sent)
    assert parts.offset == stream.head().next_offset


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_follower_can_be_stopped_from_another_thread(client, name, live):
    stream = client.create(name)
    following = stream.follow("now", live=live)
    result = []
    thread = threading.Thread(target=lambda: result.extend(following))
    thread.start()
    stream.append_json([1])
    while following.offset == "now":
        threading.Event().wait(0.01)
    following.stop()
    thread.join(60)
    assert not thread.is_alive()
    following.__exit__()


def test_follower_that_begins_now_misses_nothing_later(client, name):
    stream = client.create(name)
    stream.append_json([0])
    with stream.follow("now") as parts:
        timer = threading.Timer(0.05, lambda: stream.append_json([1], close=True))
        timer.start()
        assert [item for part in parts for item in part.items()] == [1]
        timer.join()


def test_async_client_behaves_like_the_sync_client(served, name):
    async def work():
        async with AsyncStreamClient(url(served)) as client:
            stream = await client.create(name)
            await stream.append_json([1, {"a": 2.5}])
            first = await stream.read()
            assert first.up_to_date
            fork = await stream.fork(f"{name}-fork")
            await fork.append("3")
            assert [item async for item in fork.items()] == [1, {"a": 2.5}, 3]
            assert b"".join([item async for item in fork.read_bytes()]) == b'[1,{"a":2.5},3]'
            assert "".join([item async for item in fork.read_text()]) == '[1,{"a":2.5},3]'
            assert [item.name async for item in client.list(name)] == [name, f"{name}-fork"]
            async with stream.follow() as parts:
                seen = []
                async for part in parts:
                    seen += part.items()
                    if len(seen) == 2:
                        await stream.append_json([4], close=True)
            assert seen == [1, {"a": 2.5}, 4]
            assert (await stream.head()).closed
            await fork.delete()
            with pytest.raises(NotFound):
                await client.open(fork.name)
            assert (await (await client.open(name)).close()).closed

    run(work())


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_follower_can_be_stopped_from_another_coroutine(served, name, live):
    async def work():
        async with AsyncStreamClient(url(served)) as client:
            stream = await client.create(name)
            await stream.append_json([1])
            async with stream.follow(live=live) as parts:
                seen = await anext(parts)
                loop = asyncio.get_running_loop()
                loop.call_later(0.05, parts.stop)
                assert [part async for part in parts] == []
            assert seen.items() == [1]

    run(work())


def test_following_coroutine_can_be_cancelled(served, name):
    async def work():
        async with AsyncStreamClient(url(served)) as client:
            stream = await client.create(name)

            async def follow():
                async with stream.follow() as parts:
                    async for _ in parts:
                        pass

            for _ in range(3):
                task = asyncio.create_task(follow())
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await stream.append_json([1])).next_offset

    run(work())


def test_key_is_sent_and_errors_are_parsed(tmp_path, name):
    root = tmp_path / "store"
    fourfold.open(root).close()
    secret = Access(root).add(("read",))[1]
    served = Served(root)
    try:
        with StreamClient(url(served)) as client, pytest.raises(Unauthorized):
            client.open(name)
        with StreamClient(url(served), key=secret) as client:
            with pytest.raises(NotFound):
                client.open(name)
            with pytest.raises(Forbidden):
                client.create(name)
    finally:
        served.kill()
    with pytest.raises(InvalidInput):
        StreamClient(url(served), key="a\nb")


def test_missing_server_is_unreachable():
    with StreamClient(f"http://127.0.0.1:{free_port()}", retry_for=0.2) as client:
        with pytest.raises(ServerUnreachable):
            client.open("x")
        with pytest.raises(ServerUnreachable):
            client.delete("x")


def test_unknown_certificate_is_refused(served, tmp_path):
    with pytest.raises(InvalidInput):
        StreamClient("https://127.0.0.1", verify=tmp_path / "none.pem")
    # The server has no TLS, so a TLS client gets no response.
    with (
        StreamClient(f"https://127.0.0.1:{served.port}", retry_for=0) as client,
        pytest.raises(ServerUnreachable),
    ):
        client.open("x")


def test_closed_client_raises_closed(client):
    client.close()
    with pytest.raises(Closed):
        client.open("x")
