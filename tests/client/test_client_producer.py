"""Producers: batches, limits, fencing and takeover, and no message twice."""

from __future__ import annotations

import asyncio
import threading

import pytest
from cutting_proxy import CuttingProxy

from fourfold.client import AsyncStreamClient, BatchOptions, StreamClient
from fourfold.errors import (
    Closed,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    ProducerFenced,
    ProducerGap,
    StreamClosed,
)
from fourfold.models.streams import Producer


def test_messages_share_requests_and_stay_in_order(client, name):
    stream = client.create(name)
    with stream.producer("p", batching=BatchOptions(count=100, linger=5)) as producer:
        receipts = [producer.append_json(n) for n in range(1_000)]
    assert list(stream.items()) == list(range(1_000))
    # Ten requests: the last one was number 9.
    assert receipts[-1].result().producer.seq == 9


def test_batch_is_sent_by_size_or_by_time(client, name):
    stream = client.create(name, "text/plain")
    with stream.producer("p", batching=BatchOptions(bytes=10, linger=600)) as producer:
        for _ in range(5):
            receipt = producer.append("12345")
        assert receipt is not None
        producer.flush(60)
        assert receipt.result().producer.seq == 2
    with stream.producer("q", batching=BatchOptions(linger=0)) as producer:
        assert producer.append("alone").result(60).producer.seq == 0
    assert b"".join(stream.read_bytes()) == b"12345" * 5 + b"alone"


def test_invalid_message_fails_alone(client, name):
    stream = client.create(name)
    with stream.producer("p") as producer:
        producer.append_json(1)
        for bad in (b"", b"{", b"1,2", b"] , [", b'"\xff"'):
            with pytest.raises(InvalidInput):
                producer.append(bad)
        producer.append("[2]")
    assert list(stream.items()) == [1, [2]]


def test_append_waits_while_too_much_is_unacknowledged(client, name):
    stream = client.create(name)
    tight = BatchOptions(count=1, in_flight=1, buffer=50, linger=0)
    most = 0
    with stream.producer("p", batching=tight) as producer:
        for n in range(100):
            producer.append_json(f"{n:020}")
            most = max(most, producer._pending_bytes())
    assert most <= 50 + 22
    assert len(list(stream.items())) == 100


def test_newer_producer_fences_the_older_one(client, name):
    stream = client.create(name)
    older = stream.producer("till", epoch=1)
    older.append_json("a").result()
    newer = stream.producer("till")
    assert newer.epoch > older.epoch
    newer.append_json("b").result()
    refused = older.append_json("c")
    with pytest.raises(ProducerFenced) as fenced:
        refused.result(60)
    assert fenced.value.details["epoch"] == newer.epoch
    for again in (older.flush, lambda: older.append_json("d"), older.close):
        with pytest.raises(ProducerFenced):
            again()
    newer.append_json("e")
    newer.close()
    assert list(stream.items()) == ["a", "b", "e"]


def test_producer_with_auto_claim_takes_over_again(client, name):
    stream = client.create(name)
    with (
        stream.producer("till", epoch=1, auto_claim=True, batching=BatchOptions(count=2)) as first,
        stream.producer("till", epoch=5) as second,
    ):
        first.append_json("a").result()
        second.append_json("b").result()
        # Several batches are refused at once, and are sent in order in the new epoch.
        for n in range(20):
            first.append_json(n)
        first.flush()
        assert first.epoch == 6
        with pytest.raises(ProducerFenced):
            second.append_json("c").result(60)
        second.close(flush=False)
    assert list(stream.items()) == ["a", "b", *range(20)]


def test_number_used_by_another_producer_is_detected(client, name):
    stream = client.create(name)
    stream.append_json(["theirs"], producer=Producer("p", 3, 0))
    producer = stream.producer("p", epoch=3)
    with pytest.raises(ProducerFenced):
        producer.append_json("mine").result(60)
    with pytest.raises(ProducerFenced):
        producer.close()
    with stream.producer("p", epoch=3, auto_claim=True) as claiming:
        claiming.append_json("mine")
    assert list(stream.items()) == ["theirs", "mine"]


def test_take_over_does_not_repeat_possibly_written_messages(served, client, name):
    stream = client.create(name)
    with (
        CuttingProxy(served.port, None) as proxy,
        StreamClient(f"http://127.0.0.1:{proxy.port}") as far,
    ):
        producer = far.open(name).producer("p", epoch=1, auto_claim=True)
        producer.append_json(0).result()
        # From now on requests arrive, and answers do not.
        proxy.most = 1
        proxy.cut()
        receipt = producer.append_json(1)
        while len(list(stream.items())) < 2:
            threading.Event().wait(0.01)
        stream.append_json([2], producer=Producer("p", 9, 0))
        proxy.most = None
        with pytest.raises(OutcomeUnknown):
            receipt.result(60)
        with pytest.raises(OutcomeUnknown):
            producer.close()
    assert list(stream.items()) == [0, 1, 2]


def test_producer_fails_completely_when_its_stream_ends(client, name):
    stream = client.create(name)
    producer = stream.producer("p", batching=BatchOptions(count=1, linger=0))
    producer.append_json(1).result()
    stream.close()
    receipts = [producer.append_json(n) for n in (2, 3)]
    for receipt in receipts:
        with pytest.raises(StreamClosed):
            receipt.result(60)
    with pytest.raises(StreamClosed):
        producer.close()
    assert list(stream.items()) == [1]


def test_recreated_stream_differs_from_the_old_one(client, name):
    stream = client.create(name)
    producer = stream.producer("p", epoch=1)
    producer.append_json(1).result()
    stream.delete()
    client.create(name)
    with pytest.raises(ProducerGap):
        producer.append_json(2).result(60)
    with pytest.raises(ProducerGap):
        producer.close()
    stream.delete()
    missing = stream.producer("q")
    with pytest.raises(NotFound):
        missing.append_json(1).result(60)
    missing.close(flush=False)


def test_closed_producer_refuses_messages(client, name):
    producer = client.create(name).producer("p", batching=BatchOptions(linger=600))
    waiting = producer.append_json(1)
    producer.close(flush=False)
    with pytest.raises(Closed):
        waiting.result(60)
    with pytest.raises(Closed):
        producer.append_json(2)
    producer.close()


@pytest.mark.parametrize("bad", [{"count": 0}, {"bytes": 0}, {"in_flight": 0}, {"linger": -1}])
def test_batch_options_are_validated(bad):
    with pytest.raises(InvalidInput):
        BatchOptions(**bad)


def test_producer_id_and_epoch_are_validated(client, name):
    stream = client.create(name)
    for bad in ({"producer_id": ""}, {"producer_id": "p", "epoch": -1}):
        with pytest.raises(InvalidInput):
            stream.producer(**bad)


def test_coroutines_produce_the_same_way(served, name):
    async def work():
        async with AsyncStreamClient(f"http://127.0.0.1:{served.port}") as client:
            stream = await client.create(name)
            tight = BatchOptions(count=7, buffer=100, linger=0)
            async with stream.producer("p", batching=tight) as producer:
                for n in range(500):
                    receipt = await producer.append_json(n)
                await producer.flush()
                assert receipt.done()
            assert [item async for item in stream.items()] == list(range(500))
            older, newer = stream.producer("p", epoch=1), stream.producer("p")
            await (await newer.append_json("x"))
            with pytest.raises(ProducerFenced):
                await (await older.append_json("y"))
            with pytest.raises(ProducerFenced):
                await older.close()
            await newer.close()
            with pytest.raises(Closed):
                await newer.append_json("z")

    asyncio.run(work())
