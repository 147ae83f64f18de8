"""Publishing before an append is acknowledged; and what retention and deletion leave of objects."""

from __future__ import annotations

import asyncio

import pytest
from node import keys, read_manifest

from fourfold.errors import ObjectStoreError, Refused
from fourfold.kernel import failpoints
from fourfold.models.streams import Append, Fork, StreamOptions
from fourfold.models.streams.archive.verify import object_problems
from fourfold.models.streams.validation import format_offset
from fourfold.objects import Fault, FaultyStore

# Publishing before it is acknowledged


def test_publishing_first_loses_nothing_that_was_acknowledged(make, objects):
    node = make("one", publish_first=True)
    stream = node.streams.create("a", "text/plain")
    stream.append([b"1"])
    stream.append([b"2", b"3"])
    node.streams.create("gone", "text/plain")
    node.streams.delete("gone")
    fork = stream.fork("f", format_offset(2))
    fork.append([b"4"])
    stream.close()
    other = make("two")
    report = other.bootstrap()
    assert not report.lost
    assert other.read("a") == [b"1", b"2", b"3"]
    assert other.read("f") == [b"1", b"2", b"4"]
    assert other.streams.info("a").closed
    assert {info.name for info in other.streams.list()} == {"a", "f"}


@pytest.mark.parametrize("call", ["round", "publish_all", "index", "compact", "collect", "settle"])
def test_archive_call_inside_a_transaction_is_refused_at_once(node, objects, call):
    """Its threads would wait for the transaction, and objects would outlive a rollback."""
    node.write("a", 8)
    arguments = ("a",) if call == "settle" else ()
    with node.database.write(), pytest.raises(Refused, match="inside a transaction"):
        getattr(node.archive, call)(*arguments)
    assert keys(objects) == []
    assert not node.archive.publish_all().failures
    assert node.read("a") == [f"a-{number}".encode() for number in range(8)]


def test_publishing_first_refuses_to_acknowledge_what_it_could_not_publish(make, objects):
    broken = [False]
    plan = FaultyStore(objects, lambda call: Fault.FAIL if broken[0] else None)
    node = make("one", over=plan, publish_first=True)
    stream = node.streams.create("a", "text/plain")
    broken[0] = True
    with pytest.raises(ObjectStoreError):
        stream.append([b"1"])
    broken[0] = False
    stream.append([b"2"])
    assert read_manifest(objects, "a").uploaded_through == 1


def test_coroutines_continue_after_the_publication(make, objects):
    node = make("one", publish_first=True)

    async def run():
        await node.streams.create_with_options_async(StreamOptions("a", "text/plain"))
        requests = [Append([b"%d" % n], None) for n in range(20)]
        await asyncio.gather(*(node.streams.append_async("a", request) for request in requests))
        assert read_manifest(objects, "a").uploaded_through == 19

    asyncio.run(run())


# Retention and deletion


def test_retention_reaches_the_object_store_after_the_grace(make, objects):
    node = make()
    node.streams.create("a", "text/plain", retention_bytes=50)
    records = node.write("a", 40)
    node.archive.publish_all()
    before = keys(objects, ".parquet")
    node.streams.sweep()
    first = node.streams.info("a").first_offset
    # Everything that fits is kept, and of the rest what shares a segment with it.
    exact = next(at for at in range(40) if sum(map(len, records[at:])) <= 50)
    assert exact - 4 <= first <= exact
    assert first > 0
    node.archive.publish_all()
    listed = node.archive.collect(dry_run=True)
    assert listed == []
    assert keys(objects, ".parquet") == before
    node.now += int(1000 * node.policy.grace_s)
    listed = node.archive.collect(dry_run=True)
    assert {entry.key for entry in listed} < set(before)
    assert keys(objects, ".parquet") == before
    assert node.archive.collect() == listed
    left = keys(objects, ".parquet")
    assert set(left) == set(before) - {entry.key for entry in listed}
    assert node.read("a", format_offset(first)) == records[first:]
    other = make("two")
    other.bootstrap()
    assert other.read("a", format_offset(first)) == records[first:]


@pytest.mark.parametrize("most", [3, 4, 6, 17, 50, 1000])
def test_retention_never_gives_up_what_fits(make, most):
    node = make()
    node.streams.create("a", "text/plain", retention_bytes=most)
    records = node.write("a", 20)
    node.archive.publish_all()
    node.streams.sweep()
    exact = next(at for at in range(21) if sum(map(len, records[at:])) <= most)
    assert exact - 4 <= node.streams.info("a").first_offset <= exact


def test_retention_by_age_gives_up_whole_segments(make, objects):
    node = make()
    node.streams.create("a", "text/plain", retention_seconds=100)
    for n in range(4):
        node.write("a", 4, start=4 * n)
        node.archive.publish_all()
        node.now += 60_000
    node.streams.sweep()
    assert node.streams.info("a").first_offset == 12
    assert node.streams.verify() == []


def test_a_deleted_stream_leaves_the_object_store_after_the_grace(make, objects):
    node = make()
    node.write("a", 8)
    node.archive.publish_all()
    node.streams.delete("a")
    node.archive.publish_all()
    assert read_manifest(objects, "a").deleted
    other = make("two")
    assert other.bootstrap().deleted == 1
    assert keys(objects, ".parquet")
    node.now += int(1000 * node.policy.grace_s)
    node.archive.collect()
    assert not keys(objects, ".parquet")


def test_next_stream_of_name_is_not_that_of_last(make, objects):
    node = make()
    node.write("a", 8)
    node.archive.publish_all()
    node.streams.delete("a")
    again = node.write("a", 8)
    node.archive.publish_all()
    node.archive.collect(grace_s=0)
    assert node.read("a") == again
    with node.database.read() as snapshot:
        assert list(object_problems(snapshot, objects)) == []


def test_a_source_that_was_deleted_is_published_for_its_forks(make, objects):
    node = make()
    records = node.write("a", 8)
    node.streams.create("f", fork=Fork("a", 5)).append([b"own"])
    node.streams.delete("a")
    node.archive.publish_all()
    other = make("two")
    other.bootstrap()
    assert other.read("f") == [*records[:5], b"own"]
    assert [info.name for info in other.streams.list()] == ["f"]


def test_objects_are_kept_while_the_last_manifest_speaks_of_them(make, objects):
    """The stream is deleted while its manifest is on its way, and the next one does not get up."""
    broken = [False]
    node = make(over=FaultyStore(objects, lambda call: Fault.FAIL if broken[0] else None))

    def delete(_point):
        node.streams.delete("a")
        broken[0] = True

    node.write("a", 4)
    failpoints.arm("archive.manifest.uploaded", delete)
    node.archive.round()
    failpoints.disarm()
    broken[0] = False
    assert not read_manifest(objects, "a").deleted
    assert node.archive.collect(grace_s=0) == []
    assert len(keys(objects, ".parquet")) == 1
    node.archive.publish_all()
    assert len(node.archive.collect(grace_s=0)) == 1
    assert keys(objects, ".parquet") == []


def test_a_closed_stream_whose_end_is_lost_goes_on(make, objects):
    node = make("one")
    node.write("a", 4)
    node.archive.round()
    node.streams.open("a").append([b"the end"], close=True)
    node.streams.sweep()
    node.archive.round()
    assert not read_manifest(objects, "a").closed
    other = make("two")
    assert [loss.records for loss in other.bootstrap().lost] == [1]
    other.streams.open("a").append([b"another end"], close=True)
    node.archive.publish_all()
    assert read_manifest(objects, "a").closed
