"""Append notices equal what a live reader would read, or the reader reads the log."""

from __future__ import annotations

import asyncio

import pytest

from fourfold.kernel import Database
from fourfold.kernel.notifier import NOTIFY_PENDING_MAX
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Producer, Streams, feed
from fourfold.models.streams.feed import STREAM_NOTICE_BYTES
from fourfold.models.streams.validation import NOW, format_offset


@pytest.fixture
def streams(tmp_path):
    profile = PROFILE.with_(synchronous="OFF")
    with Database.open(tmp_path / "s.sqlite", profile=profile, migrations=MIGRATIONS) as database:
        yield Streams(database)


def listening(streams, name, work):
    """Return the payloads that a listener of `name` receives while `work` runs."""

    async def main():
        with streams.notifier.listen(name) as listener:
            work()
            await asyncio.sleep(0)
            return listener.drain()

    return asyncio.run(main())


def heard_chunk(streams, heard, at, most=100):
    return feed.chunk_from_notices(streams.info("s"), format_offset(at), heard, most)


def test_notices_equal_what_a_read_returns(streams):
    stream = streams.create("s", "text/plain", body=b"before")

    def work():
        stream.append([b"a", b"b"])
        stream.append(b"c")

    heard = listening(streams, "s", work)
    assert heard_chunk(streams, heard, 1) == streams.read("s", format_offset(1))[1]


def test_notice_has_stored_time_when_clock_was_set_back(streams):
    streams.clock = lambda: 9_000
    stream = streams.create("s", "text/plain", body=b"before")
    streams.clock = lambda: 5_000
    heard = listening(streams, "s", lambda: stream.append([b"a", b"b"]))
    assert [record.ts_ms for record in heard_chunk(streams, heard, 1)] == [9_000, 9_000]
    assert heard_chunk(streams, heard, 1) == streams.read("s", format_offset(1))[1]


def test_notices_of_shared_commit_are_grouped_by_stream(streams):
    for name in ("s", "t"):
        streams.create(name, "text/plain")
    asked = [
        ("s", Append([b"1"], "text/plain")),
        ("t", Append([b"2"], "text/plain")),
        ("missing", Append([b"3"], "text/plain")),
        ("s", Append([b"4"], "image/png")),
        ("s", Append([b"5", b"6"], "text/plain")),
    ]
    heard = listening(
        streams, "s", lambda: streams.database.transact(lambda t: streams._append_all(t, asked))
    )
    assert [record.payload for echo in heard for record in echo.records] == [b"1", b"5", b"6"]
    assert heard_chunk(streams, heard, 0) == streams.read("s")[1]


def test_notice_of_records_already_read_is_skipped(streams):
    stream = streams.create("s", "text/plain")

    def work():
        for payload in (b"a", b"b", b"c"):
            stream.append(payload)

    heard = listening(streams, "s", work)
    assert heard_chunk(streams, heard, 2) == streams.read("s", format_offset(2))[1]
    # All of it was read, or there is a gap before it: the log must be read.
    assert heard_chunk(streams, heard, 3) is None
    assert heard_chunk(streams, heard[1:], 0) is None
    assert heard_chunk(streams, [heard[0], heard[2]], 0) is None
    assert heard_chunk(streams, [heard[1], heard[0], heard[2]], 0) is None


def test_reader_inside_an_append_reads_the_log(streams):
    stream = streams.create("s", "text/plain")
    heard = listening(streams, "s", lambda: stream.append([b"a", b"b"]))
    assert heard_chunk(streams, heard, 1) is None


@pytest.mark.parametrize("change", ["close", "close with a record", "delete", "sweep", "large"])
def test_other_changes_require_a_read_of_the_log(streams, change):
    stream = streams.create("s", "text/plain")
    info = streams.info("s")

    def work():
        stream.append(b"a")
        if change == "close":
            stream.close()
        elif change == "close with a record":
            streams.append("s", Append([b"b"], None, close=True))
        elif change == "delete":
            streams.delete("s")
        elif change == "large":
            stream.append(b"x" * (STREAM_NOTICE_BYTES + 1))
        else:
            streams.notifier.notify()

    heard = listening(streams, "s", work)
    assert len(heard) == 2
    assert heard[1] is None
    assert feed.chunk_from_notices(info, format_offset(0), heard, 100) is None


def test_notice_of_recreated_stream_is_ignored(streams):
    streams.create("s", "text/plain", body=b"1")
    before = streams.info("s")
    streams.delete("s")
    again = streams.create("s", "text/plain", body=b"1")
    heard = listening(streams, "s", lambda: again.append(b"2"))
    assert feed.chunk_from_notices(before, format_offset(1), heard, 100) is None
    assert feed.chunk_from_notices(streams.info("s"), format_offset(1, 1), heard, 100) is not None


def test_duplicate_append_has_no_notice(streams):
    stream = streams.create("s", "text/plain")
    producer = Producer("p", 0, 0)
    stream.append(b"a", producer=producer)
    assert listening(streams, "s", lambda: stream.append(b"a", producer=producer)) == [None]


def test_expiring_stream_is_always_read_from_the_log(streams):
    """A read extends the TTL of the stream."""
    stream = streams.create("s", "text/plain", ttl=100)
    heard = listening(streams, "s", lambda: stream.append(b"a"))
    assert heard_chunk(streams, heard, 0) is None


def test_notice_above_the_limit_is_read_from_the_log(streams):
    stream = streams.create("s", "text/plain")
    heard = listening(streams, "s", lambda: stream.append([b"a", b"b"]))
    assert heard_chunk(streams, heard, 0, most=1) is None
    assert feed.chunk_from_notices(streams.info("s"), NOW, heard, 100) is None


def test_idle_listener_keeps_few_notices(streams):
    stream = streams.create("s", "text/plain")

    def work():
        for _ in range(2 * NOTIFY_PENDING_MAX):
            stream.append(b"a")

    heard = listening(streams, "s", work)
    assert None in heard
    assert len(heard) <= NOTIFY_PENDING_MAX


def test_no_notice_is_made_without_listeners(streams, monkeypatch):
    def refuse(*_):
        raise AssertionError("a notice without listeners")

    monkeypatch.setattr(feed, "make_notice", refuse)
    stream = streams.create("s", "text/plain")
    streams.create("t", "text/plain")
    stream.append(b"a")
    assert listening(streams, "t", lambda: stream.append(b"a")) == []
