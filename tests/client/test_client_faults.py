"""Failing networks and killed servers: nothing is missing, nothing is repeated."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from cutting_proxy import CuttingProxy
from served_streams import Served

import fourfold
from fourfold.client import AsyncStreamClient, BatchOptions, StreamClient
from fourfold.errors import OutcomeUnknown
from support.properties import repeats

pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture
def cut(served):
    """Return a client whose connections are closed now and then."""
    with (
        CuttingProxy(served.port, 60_000, seed=3) as proxy,
        StreamClient(f"http://127.0.0.1:{proxy.port}", retry_for=None) as client,
    ):
        client.proxy = proxy
        yield client


def test_interrupted_read_continues_at_its_offset(client, cut, name):
    texts = client.create(name, "text/plain")
    items = client.create(f"{name}-j")
    for start in range(0, 3000, 100):
        texts.append("".join(f"line {n} é\n" for n in range(start, start + 100)))
        items.append_json([{"n": n, "pad": "x" * 200} for n in range(start, start + 100)])
    # More arrives while it is read: a repeated request answers with more than the first one did.
    stop = threading.Event()

    def write():
        while not stop.wait(0.005):
            texts.append("more\n")
            items.append_json([{"more": True}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        text = "".join(cut.open(name).read_text())
        binary = b"".join(cut.open(name).read_bytes()).decode()
        cut.proxy.most = 900_000
        result = list(cut.open(f"{name}-j").items())
    finally:
        stop.set()
        writer.join()
    expected = "".join(f"line {n} é\n" for n in range(3000))
    for read in (text, binary):
        assert read[: len(expected)] == expected
        assert read[len(expected) :] == "more\n" * read.count("more")
    assert [item["n"] for item in result if "n" in item] == list(range(3000))
    assert cut.proxy.cuts > 2


def test_interrupted_large_response_continues_within_itself(client, cut, name, monkeypatch):
    # Every answer is taken apart piece by piece, so what was handed out is not the whole of one.
    monkeypatch.setattr("fourfold.client.reader.CLIENT_WHOLE_BODY_BYTES", 0)
    stream = client.create(name)
    for start in range(0, 1000, 100):
        stream.append_json([f"{n} " + "x" * 100 for n in range(start, start + 100)])
    cut.proxy.most = 200_000
    result = [int(item.split()[0]) for item in cut.open(name).items()]
    assert result == list(range(1000))
    assert cut.proxy.cuts > 0


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_interrupted_follower_misses_and_repeats_nothing(client, cut, name, live):
    stream = client.create(name)
    cut.proxy.most = 3_000
    written = []

    def write():
        # A follower that lags gets much in one answer, which is cut once: it goes on
        # until there were enough of them.
        while len(written) < 300 or (cut.proxy.cuts < 4 and len(written) < 30_000):
            stream.append_json([len(written)])
            written.append(len(written))
        stream.close()

    writer = threading.Thread(target=write)
    writer.start()
    with cut.open(name).follow(live=live) as parts:
        result = [item for part in parts for item in part.items()]
    writer.join()
    assert result == written
    assert cut.proxy.cuts > 3


def test_producer_writes_each_message_once_over_broken_connections(client, cut, name):
    stream = client.create(name)
    cut.proxy.most = 6_000
    few = BatchOptions(count=5, in_flight=4, linger=0)
    with cut.open(name).producer("p", batching=few) as producer:
        receipts = [producer.append_json(n) for n in range(600)]
    assert list(stream.items()) == list(range(600))
    assert all(receipt.done() for receipt in receipts)
    assert cut.proxy.cuts > 3


def test_append_without_a_producer_is_not_repeated(client, cut, name):
    stream = client.create(name)
    cutting = cut.open(name)
    cut.proxy.most = 100
    cut.proxy.cut()
    unknown = 0
    for n in range(20):
        try:
            cutting.append_json([n])
        except OutcomeUnknown:
            unknown += 1
    result = list(stream.items())
    assert unknown > 0
    assert result == sorted(set(result))


def killed_while_in_use(root, times, count):
    """Run producers and followers on a server that is killed repeatedly.

    Returns what was acknowledged, what each follower received, and what is stored.
    """
    served = Served(root)
    url = f"http://127.0.0.1:{served.port}"
    acknowledged, seen = [], {"sse": [], "long-poll": []}
    small = BatchOptions(count=20, linger=0.001)
    with StreamClient(url, retry_for=None) as client:
        stream = client.create("log")

        def follow(live):
            with stream.follow(live=live, retry_for=None) as parts:
                for part in parts:
                    seen[live] += part.items()

        def produce(who):
            with stream.producer(who, batching=small, retry_for=None) as producer:
                for n in range(count):
                    receipt = producer.append_json([who, n])
                    receipt.add_done_callback(
                        lambda each, n=n: each.exception() or acknowledged.append((who, n))
                    )
                    if n % 50 == 0:
                        receipt.result()

        followers = [threading.Thread(target=follow, args=(live,)) for live in seen]
        producers = [threading.Thread(target=produce, args=(f"p{n}",)) for n in range(2)]
        for thread in [*followers, *producers]:
            thread.start()
        for n in range(times):
            threading.Event().wait(0.15 + 0.05 * (n % 4))
            served.kill()
            served.start()
        for thread in producers:
            thread.join()
        stream.close()
        for thread in followers:
            thread.join()
        result = list(stream.items())
    served.kill()
    return acknowledged, seen, result


def check_killed(root, times, count):
    acknowledged, seen, result = killed_while_in_use(root, times, count)
    assert seen == {"sse": result, "long-poll": result}
    for who in ("p0", "p1"):
        assert [n for item, n in result if item == who] == list(range(count))
        assert sorted(n for item, n in acknowledged if item == who) == list(range(count))
    with fourfold.open(root) as store:
        assert store.streams.verify() == []


def test_producers_and_followers_survive_a_killed_server(tmp_path):
    check_killed(tmp_path / "store", 2, 1_500)


@pytest.mark.slow
def test_producers_and_followers_survive_many_kills(tmp_path):
    check_killed(tmp_path / "store", repeats(36), repeats(48_000))


def test_coroutines_survive_a_killed_server(tmp_path):
    served = Served(tmp_path / "store")

    async def work():
        url = f"http://127.0.0.1:{served.port}"
        async with AsyncStreamClient(url, retry_for=None) as client:
            stream = await client.create("log")

            async def follow():
                async with stream.follow(retry_for=None) as parts:
                    return [item async for part in parts for item in part.items()]

            following = asyncio.create_task(follow())
            batching = BatchOptions(count=10, linger=0)
            async with stream.producer("p", batching=batching, retry_for=None) as producer:
                for n in range(1_000):
                    receipt = await producer.append_json(n)
                    if n in {200, 600}:
                        await receipt
                        served.kill()
                        await asyncio.to_thread(served.start)
            await stream.close()
            assert await following == list(range(1_000))
            assert [item async for item in stream.items()] == list(range(1_000))

    try:
        asyncio.run(work())
    finally:
        served.kill()


def test_read_continues_after_its_server_was_killed(tmp_path):
    served = Served(tmp_path / "store")
    try:
        with StreamClient(f"http://127.0.0.1:{served.port}", retry_for=None) as client:
            stream = client.create("log")
            for start in range(0, 60_000, 1_000):
                stream.append_json(list(range(start, start + 1_000)))
            result = []
            for message in stream.messages():
                result.append(json.loads(message))
                if len(result) == 5_000:
                    served.kill()
                    served.start()
            assert result == list(range(60_000))
    finally:
        served.kill()
