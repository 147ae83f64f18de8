"""Appends that share a transaction: separate outcomes, and a correct cache of stream ends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold import limits
from fourfold.errors import (
    ContentTypeMismatch,
    FourfoldError,
    InvalidInput,
    NotFound,
    StreamClosed,
)
from fourfold.kernel import Database, GroupLimits, Options
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Producer, Streams
from fourfold.models.streams.validation import format_offset
from support.properties import examples


@pytest.fixture
def streams(tmp_path):
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database)


def text(*records):
    return Append(records, "text/plain")


def stored(streams, name):
    return [record.payload for record in streams.open(name).read().records]


def together(streams, asked):
    """Append from one coroutine per request; return their outcomes."""

    async def main():
        waiting = (streams.append_async(name, request) for name, request in asked)
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_rejected_append_does_not_affect_others_in_batch(streams):
    streams.create("a", "text/plain")
    streams.create("closed", "text/plain", closed=True)
    before = streams.database.metrics().counters["transactions"]
    found = together(
        streams,
        [
            ("a", text(b"1")),
            ("missing", text(b"2")),
            ("closed", text(b"3")),
            ("a", Append([b"4"], "image/png")),
            ("a", Append([b"5"], None, Producer("p", 0, 0))),
            ("a", Append([b"6"], None, Producer("p", 0, 0))),
            ("a", text(b"7")),
        ],
    )
    kinds = [each if isinstance(each, tuple) else type(each) for each in found]
    assert kinds[1:4] == [NotFound, StreamClosed, ContentTypeMismatch]
    assert [found[n].next_offset for n in (0, 4, 5, 6)] == [1, 2, 2, 3]
    assert found[5].duplicate
    assert stored(streams, "a") == [b"1", b"5", b"7"]
    assert streams.database.metrics().counters["transactions"] == before + 1
    assert streams.verify() == []


@pytest.mark.parametrize(
    "request_",
    [
        Append(["text"], None),
        Append([b""], None),
        Append([b"x"], None, Producer("\udc80", 0, 0)),
        Append([b"x"], None, Producer("p" * 1_025, 0, 0)),
        Append([b"x"], None, Producer("é" * 513, 0, 0)),
        Append([b"x"], None, stream_seq="\udc80"),
        Append([], None),
    ],
)
def test_invalid_append_is_rejected_before_joining_a_batch(streams, request_):
    streams.create("a", "text/plain")
    found = together(streams, [("a", text(b"1")), ("a", request_), ("a", text(b"2"))])
    assert isinstance(found[1], InvalidInput)
    assert stored(streams, "a") == [b"1", b"2"]


def test_longest_producer_id_is_accepted(streams):
    streams.create("a", "text/plain")
    producer = Producer("é" * 512, 0, 0)
    for duplicate in (False, True):
        done = streams.append("a", Append([b"1"], None, producer))
        assert (done.duplicate, done.producer) == (duplicate, producer)


def test_close_in_batch_rejects_later_appends(streams):
    streams.create("a", "text/plain")
    found = together(
        streams,
        [("a", text(b"1")), ("a", Append([b"2"], None, close=True)), ("a", text(b"3"))],
    )
    assert isinstance(found[2], StreamClosed)
    assert streams.info("a").closed
    assert stored(streams, "a") == [b"1", b"2"]


def test_appends_that_exceed_a_transaction_keep_their_order(tmp_path):
    profile = PROFILE.with_(synchronous="OFF")
    bounds = Options(group=GroupLimits(group_bytes_max=300, group_requests_max=7))
    with Database.open(
        tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS, options=bounds
    ) as database:
        streams = Streams(database)
        streams.create("a", "text/plain")
        before = database.metrics().counters["transactions"]
        sent = [b"%03d" % n + b"x" * (0, 200, 30)[n % 3] for n in range(40)]
        found = together(streams, [("a", text(each)) for each in sent])
        assert [each.next_offset for each in found] == list(range(1, 41))
        assert stored(streams, "a") == sent
        assert database.metrics().counters["transactions"] >= before + sum(map(len, sent)) // 300


def test_failed_transaction_leaves_no_cached_state(streams, monkeypatch):
    streams.create("a", "text/plain")
    streams.append("a", Append([b"1"], None, Producer("p", 0, 0)))

    class Full(FourfoldError):
        kind = "full"

    def broken(*_args, **_kwargs):
        raise Full("no room")

    with monkeypatch.context() as patch:
        patch.setattr("fourfold.kernel.transaction.Transaction.execute_many", broken)
        with pytest.raises(Full):
            streams.append("a", Append([b"2"], None, Producer("p", 0, 1), "z"))
    done = streams.append("a", Append([b"2"], None, Producer("p", 0, 1), "b"))
    assert (done.next_offset, done.duplicate) == (2, False)
    assert stored(streams, "a") == [b"1", b"2"]
    assert streams.verify() == []


def test_append_sees_writes_of_other_connections(streams):
    """The cached ends of streams are dropped after a write of another connection."""
    streams.create("a", "text/plain", ttl=1000)
    streams.append("a", text(b"1"))
    other = Streams(streams.database)
    other.append("a", text(b"2"))
    assert streams.append("a", text(b"3")).next_offset == 3
    other.append("a", Append([], None, close=True))
    with pytest.raises(StreamClosed):
        streams.append("a", text(b"4"))
    other.delete("a")
    with pytest.raises(NotFound):
        streams.append("a", text(b"5"))
    other.create("a", "text/plain")
    assert streams.append("a", text(b"6")).next_offset == 1


def test_closed_database_fails_all_appends_of_batch(streams):
    streams.create("a", "text/plain")
    streams.database.close()
    found = together(streams, [("a", text(b"1")), ("a", text(b"2"))])
    assert {getattr(each, "kind", None) for each in found} == {"closed"}


RECORDS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12)


@settings(max_examples=examples(40), deadline=None)
@given(
    records=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=60),
    average=st.integers(1, 40),
    most=st.integers(1, 200),
    is_json=st.booleans(),
)
def test_read_joined_returns_joined_records(tmp_path_factory, records, average, most, is_json):
    path = tmp_path_factory.mktemp("pieces") / "s.sqlite"
    profile = PROFILE.with_(synchronous="OFF")
    with (
        pytest.MonkeyPatch.context() as patch,
        Database.open(path, profile=profile, migrations=MIGRATIONS) as database,
    ):
        patch.setattr(limits, "STREAM_PIECE_BYTES", average)
        patch.setattr("fourfold.models.streams.reader.STREAM_PIECE_BYTES_MAX", most)
        streams = Streams(database)
        streams.create("a", "application/json" if is_json else "application/octet-stream")
        streams.append("a", Append(records[: len(records) // 2] or records, None))
        half = streams.info("a").next_offset
        streams.create("b", fork=None, content_type=streams.info("a").content_type)
        info, page = streams.page("a")
        assert (page.start_offset, page.next_offset) == (0, half)
        parts, at = [], 0
        while at < page.next_offset:
            part, at = streams.read_joined(info, at, page.next_offset)
            parts.append(part)
            assert len(part) <= max(most, *map(len, records))
        wanted = records[:half]
        assert (b"," if is_json else b"").join(parts) == (b"," if is_json else b"").join(wanted)


def test_read_joined_reads_fork_through_its_source(streams):
    streams.create("a", "text/plain")
    streams.append("a", text(b"1", b"2", b"3"))
    streams.open("a").fork("b", format_offset(2))
    streams.append("b", text(b"4", b"5"))
    info, page = streams.page("b")
    parts, at = [], 0
    while at < page.next_offset:
        part, at = streams.read_joined(info, at, page.next_offset)
        parts.append(part)
    assert b"".join(parts) == b"1245"
