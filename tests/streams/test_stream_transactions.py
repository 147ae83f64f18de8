"""Streams inside an open transaction: writes join it, reads see them, a rollback undoes all."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress

import pytest
from opened_streams import JSON, PULL

from fourfold.errors import NotFound, Refused, StreamGone
from fourfold.models.streams import Append, Fork, Producer, Stream, StreamOptions, Streams
from fourfold.models.streams.settings import SettingsChange


class RolledBack(Exception):
    """Ends a transaction of a test."""


@pytest.fixture
def log(streams):
    """A stream with three messages, and one from an earlier incarnation of its name."""
    streams.create("log", JSON).append({"n": -1})
    streams.delete("log")
    stream = streams.create("log", JSON)
    stream.append([{"n": 0}, {"n": 1}, {"n": 2}], key="k")
    return stream


def run_and_roll_back(opened, call):
    with suppress(RolledBack), opened.database.write():
        call(opened.streams)
        raise RolledBack


def numbers(streams, name="log", **options):
    return [record.value["n"] for record in streams.open(name).read(**options)]


CALLS = {
    "create": lambda streams: streams.create("new", JSON, body=b'{"n": 7}'),
    "create and append": lambda streams: streams.create("new", JSON).append([{"n": 7}, {"n": 8}]),
    "append": lambda streams: streams.open("log").append({"n": 3}),
    "append twice": lambda streams: [streams.open("log").append({"n": n}) for n in (3, 4)],
    "close": lambda streams: streams.open("log").close(),
    "fork": lambda streams: streams.open("log").fork("new", 2),
    "fork and append": lambda streams: streams.open("log").fork("new").append({"n": 3}),
    "configure": lambda streams: streams.configure("log", SettingsChange(ttl_seconds=60)),
    "delete": lambda streams: streams.delete("log"),
    "delete a source": lambda streams: (streams.open("log").fork("new"), streams.delete("log")),
    "recreate": lambda streams: (streams.delete("log"), streams.create("log", JSON)),
    "schema": lambda streams: streams.create("new", JSON).set_schema({"type": "object"}),
    "profile": lambda streams: streams.create("new", JSON).set_profile("evlog"),
    "subscription": lambda streams: (
        streams.create("wakes", JSON),
        streams.subscriptions.create(PULL),
        streams.subscriptions.add_streams("work", ["log"]),
    ),
}
READS = {
    "list": lambda streams: [info.name for info in streams.list()],
    "records": lambda streams: {
        info.name: [record.payload for record in streams.read(info.name)[1]]
        for info in streams.list()
    },
    "infos": lambda streams: streams.list(),
    "details": lambda streams: [streams.details(info.name) for info in streams.list()],
    "totals": lambda streams: streams.totals(),
    "pages": lambda streams: [streams.page(info.name) for info in streams.list()],
    "schemas": lambda streams: [streams.schemas.get(info.name) for info in streams.list()],
    "profiles": lambda streams: [streams.profiles.get(info.name) for info in streams.list()],
    "subscriptions": lambda streams: [
        (each, streams.subscriptions.get(each.id), streams.subscriptions.links(each.id))
        for each in streams.subscriptions.list()
    ],
    "subscription count": lambda streams: streams.subscriptions.count(),
}


def everything(streams):
    return {name: read(streams) for name, read in READS.items()}


@pytest.mark.parametrize("call", CALLS)
def test_reads_in_a_transaction_see_its_writes(opened, streams, log, call):
    with opened.database.write():
        CALLS[call](streams)
        inside = everything(streams)
    assert inside == everything(streams)
    assert streams.verify() == []


@pytest.mark.parametrize("call", CALLS)
def test_rolled_back_call_leaves_nothing(opened, streams, log, call):
    before = everything(streams)
    run_and_roll_back(opened, CALLS[call])
    assert everything(streams) == before
    assert streams.verify() == []
    # Nothing of it is cached either.
    log.append({"n": 3})
    assert numbers(streams) == [0, 1, 2, 3]
    assert numbers(streams, key="k") == [0, 1, 2]
    opened.reopen()
    assert numbers(opened.streams) == [0, 1, 2, 3]


@pytest.mark.parametrize("call", CALLS)
def test_rolled_back_step_leaves_the_rest_of_the_transaction(opened, streams, log, call):
    with opened.database.write():
        log.append({"n": 3})
        run_and_roll_back(opened, CALLS[call])
        log.append({"n": 4})
        assert numbers(streams) == [0, 1, 2, 3, 4]
    assert numbers(streams) == [0, 1, 2, 3, 4]
    assert streams.verify() == []


def test_search_by_field_in_a_transaction_sees_its_writes(opened, streams, log):
    with opened.database.write():
        log.append({"n": 3})
        assert numbers(streams, where=("n", 3)) == [3]


def test_other_threads_do_not_see_an_open_transaction(opened, streams, log, in_thread):
    with opened.database.write():
        log.append({"n": 3})
        streams.delete("s")
        assert in_thread(lambda: numbers(streams)) == [0, 1, 2]
        assert in_thread(lambda: streams.info("s")).name == "s"


def test_readers_are_notified_after_the_commit(opened, streams, log):
    counts = []
    with streams.notifier.call(lambda _: counts.append(numbers(streams)), "log"):
        with opened.database.write():
            log.append({"n": 3})
            assert counts == []
        assert counts == [[0, 1, 2, 3]]


def test_deleted_stream_is_trimmed_after_the_transaction(opened, streams):
    streams.create("large", JSON).append([{"n": n} for n in range(3_000)])
    with opened.database.write():
        streams.delete("large")
        with pytest.raises(NotFound):
            streams.info("large")
    assert streams.verify() == []
    while streams.trim_deleted():
        pass
    with opened.database.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM wal_log") == 0


@pytest.mark.parametrize("call", ["sweep", "gc", "trim_deleted"])
def test_sweep_in_a_transaction_is_refused(opened, streams, clock_moved, call):
    """A rollback would lose the buffered uses that a sweep writes."""

    def refused(streams):
        with pytest.raises(Refused, match="inside a transaction"):
            getattr(streams, call)()

    run_and_roll_back(opened, refused)
    streams.sweep()
    assert streams.info("used").ttl_seconds == 5


@pytest.fixture
def clock_moved(opened, streams):
    """A stream with a TTL that was used after its last append, which has nearly expired."""
    streams.create("used", JSON, ttl=5)
    opened.clock.ms += 4_000
    streams.read("used")
    opened.clock.ms += 2_000


WRITES = {
    "create": lambda streams: streams.create("new", JSON),
    "append": lambda streams: streams.append("log", Append([b"1"], None)),
    "fork": lambda streams: streams.create_with_options(
        StreamOptions("new", None, fork=Fork("log"))
    ),
    "configure": lambda streams: streams.configure("log", SettingsChange(ttl_seconds=60)),
    "delete": lambda streams: streams.delete("log"),
    "schema": lambda streams: streams.schemas.put("log", {"routingKey": {"jsonPointer": "/n"}}),
    "profile": lambda streams: streams.profiles.put("log", {"kind": "generic"}),
}


@pytest.mark.parametrize("call", WRITES)
def test_write_that_must_be_published_is_refused_in_a_transaction(opened, streams, log, call):
    """It would return before its commit, and so before it is published."""
    published = []
    streams.publish_on_write = published.append
    before = everything(streams)
    with (
        opened.database.write(),
        pytest.raises(Refused, match="cannot publish a change inside a transaction"),
    ):
        WRITES[call](streams)
    assert (published, everything(streams)) == ([], before)
    WRITES[call](streams)
    assert len(published) == 1


def test_deleted_source_is_gone_inside_the_transaction(opened, streams, log):
    with opened.database.write():
        log.fork("fork")
        streams.delete("log")
        with pytest.raises(StreamGone):
            streams.info("log")
    assert numbers(streams, "fork") == [0, 1, 2]


# Every public call. Each gets the streams, whose stream "log" has records.


def soon(streams):
    async def run():
        streams.append_soon("log", Append([b"1"], None), lambda _: None)

    asyncio.run(run())


STREAMS_CALLS = {
    "aggregate": lambda s: s.open("log").aggregate(),
    "append": lambda s: s.append("log", Append([b'{"n":7}'], None)),
    "append_async": lambda s: asyncio.run(s.append_async("log", Append([b"1"], None))),
    "append_soon": soon,
    "candidates": lambda s: s.candidates(0),
    "check_publishable": lambda s: s.check_publishable(),
    "compact": lambda s: s.compact("log"),
    "configure": lambda s: s.configure("log", SettingsChange(ttl_seconds=60)),
    "configure_async": lambda s: asyncio.run(
        s.configure_async("log", SettingsChange(ttl_seconds=60))
    ),
    "create": lambda s: s.create("new", JSON).append({"n": 1}),
    "create_with_options": lambda s: s.create_with_options(
        StreamOptions("new", None, fork=Fork("log", 1))
    ),
    "create_with_options_async": lambda s: asyncio.run(
        s.create_with_options_async(StreamOptions("new", JSON))
    ),
    "delete": lambda s: (s.delete("log"), s.create("log", JSON)),
    "delete_async": lambda s: asyncio.run(s.delete_async("log")),
    "details": lambda s: s.details("log"),
    "follow": lambda s: list(s.follow(after="-1", timeout=0)),
    "info": lambda s: s.info("log"),
    "list": lambda s: s.list(),
    "note_schema": lambda s: s.note_schema("log"),
    "offset_since": lambda s: s.offset_since("log", 0),
    "offset_since_async": lambda s: asyncio.run(s.offset_since_async("log", 0)),
    "open": lambda s: s.open("log").append({"n": 7}),
    "page": lambda s: s.page("log"),
    "read": lambda s: s.read("log"),
    "read_async": lambda s: asyncio.run(s.read_async("log")),
    "read_clock": lambda s: s.read_clock(),
    "read_feed": lambda s: s.read_feed("-1"),
    "read_joined": lambda s: s.read_joined(s.info("log"), 0, 2),
    "read_joined_from_log": lambda s: s.read_joined_from_log(s.info("log"), 0, 2),
    "read_log": lambda s: s.read_log("log"),
    "routing_keys_async": lambda s: asyncio.run(s.routing_keys_async("log", s.read("log")[1])),
    "search": lambda s: s.open("log").search(""),
    "state": lambda s: s.state("log"),
    "sweep": lambda s: s.sweep(),
    "gc": lambda s: s.gc(),
    "totals": lambda s: s.totals(),
    "touch": lambda s: s.touch(s.info("log")),
    "trim_deleted": lambda s: s.trim_deleted(),
    "verify": lambda s: s.verify(),
}
STREAM_CALLS = {
    "aggregate": lambda log: log.aggregate(),
    "append": lambda log: log.append([{"n": 7}, {"n": 8}], producer=Producer("p", 0, 0), key="k"),
    "append_async": lambda log: asyncio.run(log.append_async({"n": 7})),
    "append_bytes": lambda log: log.append_bytes(b'[{"n":7}]', headers={"h": "1"}),
    "close": lambda log: log.fork("new").close(),
    "compact": lambda log: log.compact(),
    "configure": lambda log: log.configure(retention_bytes=10**6),
    "delete": lambda log: log.fork("new").delete(),
    "follow": lambda log: list(log.follow(timeout=0)),
    "history": lambda log: log.history(),
    "follow_async": lambda log: asyncio.run(anext(log.follow_async())),
    "fork": lambda log: log.fork("new", 2).append({"n": 7}),
    "keys": lambda log: log.keys(),
    "position": lambda log: log.position(),
    "producers": lambda log: log.producers(),
    "profile": lambda log: log.profile(),
    "read": lambda log: log.read(where={"n": 1}),
    "schema": lambda log: log.schema(),
    "search": lambda log: log.search(""),
    "segments": lambda log: log.segments(),
    "set_profile": lambda log: log.set_profile("generic"),
    "set_schema": lambda log: log.set_schema(routing_key="/n"),
    "subscriptions": lambda log: log.subscriptions(),
}
EVERY = {
    **STREAMS_CALLS,
    **{
        f"Stream.{name}": lambda s, call=call: call(s.open("log"))
        for name, call in STREAM_CALLS.items()
    },
}
REFUSED = {
    "append_async",
    "append_soon",
    "compact",
    "configure_async",
    "create_with_options_async",
    "delete_async",
    "gc",
    "sweep",
    "trim_deleted",
    "Stream.append_async",
    "Stream.compact",
}
"""Calls that would wait for the end of the transaction, or make it long."""


@pytest.mark.parametrize(("handle", "calls"), [(Streams, STREAMS_CALLS), (Stream, STREAM_CALLS)])
def test_every_public_call_is_tried_inside_a_transaction(handle, calls):
    public = {
        name
        for name, member in inspect.getmembers(handle)
        if not name.startswith("_") and callable(member)
    }
    assert public == calls.keys()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
@pytest.mark.parametrize("name", EVERY)
def test_public_call_keeps_the_log_in_order_inside_a_transaction(opened, streams, log, name, fails):
    before = everything(streams)
    with suppress(RolledBack), opened.database.write():
        streams.create("first", JSON).append({"n": 1})
        if name in REFUSED:
            with pytest.raises(Refused, match="inside a transaction"):
                EVERY[name](streams)
        else:
            EVERY[name](streams)
        streams.open("first").append({"n": 2})
        inside = everything(streams)
        if fails:
            raise RolledBack
    assert everything(streams) == (before if fails else inside)
    streams.create("last", JSON).append({"n": 3})
    assert streams.verify() == []
    after = everything(streams)
    opened.reopen()
    assert everything(opened.streams) == after
