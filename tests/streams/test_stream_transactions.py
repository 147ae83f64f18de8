"""Streams inside an open transaction: writes join it, reads see them, a rollback undoes all."""

from __future__ import annotations

from contextlib import suppress

import pytest
from opened_streams import JSON, PULL

from fourfold.errors import NotFound, Refused, StreamGone
from fourfold.models.streams import Append, Fork, StreamOptions
from fourfold.models.streams.settings import Settings


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
    "configure": lambda streams: streams.configure("log", Settings(ttl_seconds=60)),
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


@pytest.mark.parametrize("call", ["sweep", "trim_deleted"])
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
    "configure": lambda streams: streams.configure("log", Settings(ttl_seconds=60)),
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
