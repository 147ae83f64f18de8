"""Offsets contain the incarnation of a stream, so recreated streams are distinguished."""

from __future__ import annotations

import pytest
from opened_streams import PULL, fence

from fourfold.errors import AckRefused, InvalidInput, OffsetGone, StreamRecreated
from fourfold.kernel import Database
from fourfold.models.streams import MIGRATIONS, PROFILE, Fork, Streams
from fourfold.models.streams.subscriptions.records import Ack
from fourfold.models.streams.validation import format_offset

TEXT = "text/plain"


@pytest.fixture
def streams(opened):
    return opened.streams


def payloads(chunk):
    return [record.payload for record in chunk.records]


def recreated(streams, name="a", old=(b"old0", b"old1", b"old2"), new=(b"new0", b"new1")):
    """Recreate a stream; return it and the offset of a reader of the first one."""
    at = streams.create(name, TEXT).append(list(old)).offset
    streams.delete(name)
    stream = streams.create(name, TEXT)
    stream.append(list(new) * 3)
    return stream, at


def test_reader_of_recreated_stream_is_rejected(streams):
    stream, at = recreated(streams)
    with pytest.raises(StreamRecreated) as refused:
        stream.read(at)
    assert isinstance(refused.value, OffsetGone)
    assert refused.value.details["first_offset"] == format_offset(0, 1)
    assert payloads(stream.read(refused.value.details["first_offset"]))[0] == b"new0"


def test_first_incarnation_is_zero_and_numbers_are_never_reused(opened, streams):
    numbers = []
    for _ in range(3):
        numbers.append(streams.create("a", TEXT).info.incarnation_number)
        streams.delete("a")
        streams.sweep()
        opened.reopen()
        streams = opened.streams
    assert numbers == [0, 1, 2]
    assert streams.create("b", TEXT).info.incarnation_number == 0
    assert streams.verify() == []


def test_recreated_expired_stream_has_next_number(opened, streams):
    at = streams.create("a", TEXT, ttl=1).append([b"x"]).offset
    opened.clock.ms += 1000
    stream = streams.create("a", TEXT)
    assert stream.info.incarnation_number == 1
    with pytest.raises(StreamRecreated):
        stream.read(at)


def test_start_now_and_integers_refer_to_current_incarnation(streams):
    stream, _ = recreated(streams)
    everything = [b"new0", b"new1"] * 3
    assert payloads(stream.read()) == payloads(stream.read(format_offset(0, 0))) == everything
    assert payloads(stream.read(4)) == everything[4:]
    assert payloads(stream.read("now")) == []
    for bad in (-1, 7, True, 1.0, "4", format_offset(0, 0)[:-1]):
        with pytest.raises(InvalidInput):
            stream.read(bad)


def test_reads_appends_and_closes_return_current_incarnation(streams):
    stream, _ = recreated(streams)
    assert stream.append([b"x"]).offset == format_offset(7, 1)
    chunk = stream.read(limit=2)
    assert chunk.offset == format_offset(2, 1)
    assert payloads(stream.read(chunk.offset, limit=1)) == [b"new0"]
    assert stream.close().offset == format_offset(7, 1)


def test_follower_of_recreated_stream_is_rejected(streams):
    following = streams.create("a", TEXT).follow(timeout=5)
    streams.open("a").append([b"old"])
    assert payloads(next(following)) == [b"old"]
    streams.delete("a")
    streams.create("a", TEXT).append([b"new"])
    with pytest.raises(StreamRecreated):
        next(following)


def test_fork_accepts_source_offsets_up_to_fork_point(streams):
    recreated(streams, "source")
    fork = streams.create("fork", fork=Fork("source", 3))
    fork.append([b"own"])
    assert fork.read(limit=1).offset == format_offset(1, 0)
    for at in range(4):
        assert fork.read(format_offset(at, 1)) == fork.read(format_offset(at, 0)) == fork.read(at)
    for beyond in (format_offset(4, 1), format_offset(1, 2)):
        with pytest.raises(StreamRecreated):
            fork.read(beyond)


def test_fork_rejects_incarnation_of_earlier_stream_of_its_name(streams):
    """A reader of that stream must not continue in the records that the fork shares."""
    at = streams.create("fork", TEXT).append([b"old"]).offset
    streams.delete("fork")
    streams.create("source", TEXT).append([b"1", b"2"])
    fork = streams.create("fork", fork=Fork("source"))
    assert (fork.info.incarnation_number, fork.read(1).offset) == (1, format_offset(2, 1))
    with pytest.raises(StreamRecreated):
        fork.read(at)


def test_nested_fork_accepts_offsets_up_to_earlier_fork_point(streams):
    recreated(streams, "first")
    middle = streams.open("first").fork("middle", 4)
    middle.append([b"m"])
    last = streams.create("last", fork=Fork("middle", 2))
    assert len(last.read(format_offset(2, 1)).records) == 0
    with pytest.raises(StreamRecreated):
        last.read(format_offset(3, 1))


def test_fork_offset_of_another_incarnation_is_rejected(streams):
    stream, at = recreated(streams)
    with pytest.raises(StreamRecreated):
        stream.fork("f", at)
    for unknown in (format_offset(7, 1), format_offset(0, 2), 7, -1):
        with pytest.raises(InvalidInput):
            stream.fork("f", unknown)
    made = stream.fork("f", format_offset(2, 1))
    assert made.info.fork_offset == 2
    assert stream.fork("f", format_offset(2, 1)).info == made.info


def test_keyed_reads_check_the_incarnation(streams):
    stream, at = recreated(streams)
    with pytest.raises(StreamRecreated):
        stream.read(at, key="k")


def test_migrated_names_begin_at_incarnation_one(tmp_path):
    """Streams that such a store deleted are unknown: their offsets had the number 0."""
    names = [migration.name for migration in MIGRATIONS]
    before = MIGRATIONS[: names.index("incarnations")]
    database = Database.open(tmp_path / "s.sqlite", profile=PROFILE, migrations=before)
    insert = (
        "INSERT INTO streams (stream, created_at_ms, updated_at_ms, last_segment_cut_ms, "
        "content_type, incarnation) VALUES (?1, 1, 1, 1, 'text/plain', 'x')"
    )
    database.transact(lambda txn: txn.execute(insert, ("kept",)))
    database.close()
    database = Database.open(tmp_path / "s.sqlite", profile=PROFILE, migrations=MIGRATIONS)
    streams = Streams(database)
    assert streams.info("kept").incarnation_number == 0
    assert streams.create("other", TEXT).info.incarnation_number == 1
    streams.delete("kept")
    assert streams.create("kept", TEXT).info.incarnation_number == 1
    database.close()


def test_ack_of_earlier_incarnation_is_rejected(opened):
    opened.streams.create("wakes", "application/json")
    opened.subscriptions.create(PULL)
    for _ in range(2):
        opened.streams.create("in/a", TEXT).append([b"1", b"2"])
        opened.subscriptions.reconcile()
        wake = opened.subscriptions.claim("work", "one")
        (link,) = wake.streams
        number = opened.streams.info("in/a").incarnation_number
        assert link.incarnation_number == number
        for wrong in (format_offset(1, number + 1), format_offset(1, number - 1)):
            with pytest.raises(AckRefused):
                opened.subscriptions.acknowledge("work", fence(wake), [Ack("in/a", wrong)])
        ack = Ack("in/a", format_offset(2, number))
        assert not opened.subscriptions.acknowledge("work", fence(wake), [ack], done=True)
        opened.streams.delete("in/a")


def test_schema_boundaries_are_offsets_of_the_incarnation(streams):
    for number in range(2):
        stream = streams.create("j", "application/json")
        stream.set_schema({"type": "object"})
        stream.append(b"{}")
        (boundary,) = stream.schema().boundaries
        assert boundary.offset == format_offset(0, number)
        assert len(stream.read(boundary.offset).records) == 1
        streams.delete("j")


def test_returned_registry_can_be_modified_by_caller(streams):
    stream = streams.create("j", "application/json")
    for given in (stream.set_schema({"type": "object"}), stream.schema()):
        given.schemas["1"]["type"] = "string"
        given.boundaries.clear()
    stream.append(b"{}")
    assert stream.schema().schema == {"type": "object"}
