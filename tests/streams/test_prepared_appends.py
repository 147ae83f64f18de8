"""Appends that are expensive to validate: outside of the transaction, in order, bounded."""

from __future__ import annotations

import asyncio
import threading

import pytest
from opened_streams import JSON

from fourfold.errors import Busy, InvalidInput, NotFound, StreamClosed
from fourfold.kernel import GroupLimits, Options
from fourfold.models.streams import Append, Producer
from fourfold.models.streams.schemas.validation import Validator

# Each value is checked against a hundred schemas.
COSTLY = {"items": {"allOf": [{"not": {"const": f"no-{number}"}} for number in range(50)]}}
LARGE = b"[" + b",".join([b"7"] * 1_000) + b"]"
SMALL = b"[1]"


@pytest.fixture(params=["inline", "thread"])
def options(request, monkeypatch):
    group = GroupLimits(placement=request.param)
    monkeypatch.setattr("opened_streams.OPTIONS", Options(group=group))


@pytest.fixture
def log(options, opened):
    log = opened.streams.create("log", JSON)
    log.set_schema(COSTLY)
    return log


@pytest.fixture
def validations(monkeypatch, opened):
    """Note for each message its first bytes, its thread, and True inside a transaction."""
    notes = []
    problem = Validator.problem

    def noted(self, message):
        in_transaction = opened.database.in_transaction()
        notes.append((message[:5], threading.get_ident(), in_transaction))
        return problem(self, message)

    monkeypatch.setattr(Validator, "problem", noted)
    return notes


def payloads(streams, name="log"):
    return [record.payload for record in streams.open(name).read()]


def append(streams, payload, name="log", **options):
    return streams.append_async(name, Append([payload], JSON, **options))


def test_thread_validates_expensive_append_before_its_transaction(opened, log, validations):
    opened.streams.append("log", Append([LARGE], JSON))
    assert validations == [(LARGE[:5], threading.get_ident(), False)]
    assert payloads(opened.streams) == [LARGE]


def test_coroutine_validates_expensive_append_in_another_thread(opened, log, validations):
    asyncio.run(append(opened.streams, LARGE))
    [(_, thread, in_transaction)] = validations
    assert (thread != threading.get_ident(), in_transaction) == (True, False)
    assert payloads(opened.streams) == [LARGE]


def test_cheap_append_is_validated_in_its_transaction(opened, log, validations):
    opened.streams.append("log", Append([LARGE], JSON))
    asyncio.run(append(opened.streams, SMALL))
    assert [in_transaction for _, _, in_transaction in validations] == [False, True]


def test_first_append_after_opening_is_prepared(opened, log, validations):
    opened.reopen()
    asyncio.run(append(opened.streams, SMALL))
    assert [in_transaction for _, _, in_transaction in validations] == [False]


def test_fork_is_validated_by_the_schema_of_its_source(opened, log, validations):
    opened.streams.append("log", Append([SMALL], JSON))
    log.fork("fork")
    asyncio.run(append(opened.streams, LARGE, "fork"))
    with pytest.raises(InvalidInput, match="violates version 1"):
        asyncio.run(append(opened.streams, b'["no-1"]', "fork"))
    assert not any(in_transaction for _, _, in_transaction in validations[1:2])
    assert payloads(opened.streams, "fork") == [SMALL, LARGE]


@pytest.mark.parametrize("producer", [False, True])
def test_appends_of_a_loop_stay_in_order(opened, log, producer):
    """Cheap appends wait for an expensive one before them, to the same stream only."""
    streams, outcomes = opened.streams, []
    streams.create("other", JSON)
    sent = [LARGE, b"[2]", LARGE[:-1] + b",3]", b"[4]"]

    async def main():
        calls = []
        for number, payload in enumerate(sent):
            options = {"producer": Producer("p", 0, number)} if producer else {}
            calls.append(asyncio.create_task(append(streams, payload, **options)))
            calls[-1].add_done_callback(lambda _, number=number: outcomes.append(number))
        await append(streams, SMALL, "other")
        await asyncio.gather(*calls)

    asyncio.run(main())
    assert payloads(streams) == sent
    assert outcomes == [0, 1, 2, 3]
    # Nothing waits any more.
    assert not streams._queues._queues


def test_invalid_append_stops_no_other(opened, log):
    streams = opened.streams
    bad = LARGE[:-1] + b',"no-7"]'

    async def main():
        calls = [append(streams, payload) for payload in (LARGE, bad, SMALL)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first.next_offset, third.next_offset) == (1, 2)
    assert isinstance(second, InvalidInput)
    assert "'/1000'" in second.message
    assert payloads(streams) == [LARGE, SMALL]


def test_append_prepared_by_an_older_schema_is_not_stored(opened, log):
    """It is neither stored unchecked nor validated in the transaction: the caller retries."""
    streams = opened.streams
    streams.append("log", Append([LARGE], JSON))
    prepared = streams._prepare("log", Append([LARGE], JSON))
    log.set_schema(search=["n"])
    with pytest.raises(Busy, match="schema changed"):
        opened.database.transact(lambda txn: _raised(streams, txn, prepared))
    assert payloads(streams) == [LARGE]
    asyncio.run(append(streams, LARGE))
    assert payloads(streams) == [LARGE, LARGE]


def _raised(streams, txn, request):
    [outcome] = streams._append_all(txn, [("log", request)])
    raise outcome


def test_new_schema_is_noticed_by_the_next_append(opened, validations):
    streams = opened.streams
    streams.create("other", JSON).append([1])
    streams.create("log", JSON).set_schema(COSTLY)
    with pytest.raises(InvalidInput):
        asyncio.run(append(streams, LARGE[:-1] + b',"no-7"]'))
    asyncio.run(append(streams, LARGE))
    assert [in_transaction for _, _, in_transaction in validations] == [False, False]


def test_other_reasons_come_before_the_verdict_of_the_schema(opened, log):
    streams = opened.streams
    bad = LARGE[:-1] + b',"no-7"]'
    done = streams.append("log", Append([LARGE], JSON, Producer("p", 0, 0)))
    assert streams.append("log", Append([bad], JSON, Producer("p", 0, 0))).duplicate
    log.close()
    with pytest.raises(StreamClosed):
        asyncio.run(append(streams, bad))
    streams.delete("log")
    with pytest.raises(NotFound):
        asyncio.run(append(streams, bad))
    assert done.next_offset == 1


def test_append_with_too_many_values_is_refused(opened, log, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.schemas.validation.SCHEMA_CHECKS_MAX", 100_000)
    opened.streams.append("log", Append([SMALL], JSON))
    with pytest.raises(InvalidInput, match="too many values"):
        opened.streams.append("log", Append([LARGE], JSON))
    with pytest.raises(InvalidInput, match="too many values"):
        asyncio.run(opened.streams.append_async("log", Append([SMALL] * 1_000, JSON)))
    assert payloads(opened.streams) == [SMALL]
