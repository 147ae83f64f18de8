"""What a live reader hears is what it would have read, or it looks at the log."""

from __future__ import annotations

import asyncio

import pytest

from fourfold import limits
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Append, Producer, Streams, feed
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


def test_what_is_heard_is_what_a_read_gives(streams):
    stream = streams.create("s", "text/plain", body=b"before")

    def work():
        stream.append([b"a", b"b"])
        stream.append(b"c")

    heard = listening(streams, "s", work)
    assert heard_chunk(streams, heard, 1) == streams.read("s", format_offset(1))[1]


def test_appends_that_share_a_commit_are_heard_together_each_under_its_name(streams):
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


def test_what_was_seen_before_is_not_heard_again(streams):
    stream = streams.create("s", "text/plain")

    def work():
        for payload in (b"a", b"b", b"c"):
            stream.append(payload)

    heard = listening(streams, "s", work)
    assert heard_chunk(streams, heard, 2) == streams.read("s", format_offset(2))[1]
    # All of it was seen, or something is missing before it: the log has to tell.
    assert heard_chunk(streams, heard, 3) is None
    assert heard_chunk(streams, heard[1:], 0) is None
    assert heard_chunk(streams, [heard[0], heard[2]], 0) is None
    assert heard_chunk(streams, [heard[1], heard[0], heard[2]], 0) is None


def test_a_reader_between_the_records_of_an_append_looks_at_the_log(streams):
    stream = streams.create("s", "text/plain")
    heard = listening(streams, "s", lambda: stream.append([b"a", b"b"]))
    assert heard_chunk(streams, heard, 1) is None


@pytest.mark.parametrize("change", ["close", "close with a record", "delete", "sweep", "large"])
def test_anything_but_a_few_records_has_to_be_looked_up(streams, change):
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
            stream.append(b"x" * (limits.STREAM_ECHO_BYTES + 1))
        else:
            streams.notifier.notify()

    heard = listening(streams, "s", work)
    assert len(heard) == 2
    assert heard[1] is None
    assert feed.chunk_from_notices(info, format_offset(0), heard, 100) is None


def test_a_stream_of_the_same_name_is_another_one(streams):
    streams.create("s", "text/plain", body=b"1")
    before = streams.info("s")
    streams.delete("s")
    again = streams.create("s", "text/plain", body=b"1")
    heard = listening(streams, "s", lambda: again.append(b"2"))
    assert feed.chunk_from_notices(before, format_offset(1), heard, 100) is None
    assert feed.chunk_from_notices(streams.info("s"), format_offset(1, 1), heard, 100) is not None


def test_a_repeated_append_brings_nothing(streams):
    stream = streams.create("s", "text/plain")
    producer = Producer("p", 0, 0)
    stream.append(b"a", producer=producer)
    assert listening(streams, "s", lambda: stream.append(b"a", producer=producer)) == [None]


def test_a_use_of_a_stream_that_ends_is_always_a_read(streams):
    """Reading moves its end on."""
    stream = streams.create("s", "text/plain", ttl=100)
    heard = listening(streams, "s", lambda: stream.append(b"a"))
    assert heard_chunk(streams, heard, 0) is None


def test_more_than_a_reader_asked_for_is_read(streams):
    stream = streams.create("s", "text/plain")
    heard = listening(streams, "s", lambda: stream.append([b"a", b"b"]))
    assert heard_chunk(streams, heard, 0, most=1) is None
    assert feed.chunk_from_notices(streams.info("s"), NOW, heard, 100) is None


def test_an_ear_that_nobody_asks_remembers_little(streams):
    stream = streams.create("s", "text/plain")

    def work():
        for _ in range(100):
            stream.append(b"a")

    heard = listening(streams, "s", work)
    assert None in heard
    assert len(heard) <= 8


def test_nothing_is_said_where_nobody_listens(streams, monkeypatch):
    def refuse(*_):
        raise AssertionError("an echo for nobody")

    monkeypatch.setattr(feed, "make_notice", refuse)
    stream = streams.create("s", "text/plain")
    streams.create("t", "text/plain")
    stream.append(b"a")
    assert listening(streams, "t", lambda: stream.append(b"a")) == []
