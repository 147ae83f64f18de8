"""Segment files, the cache and manifests, on their own."""

from __future__ import annotations

import hashlib
import random
import resource
import threading
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourfold import limits
from fourfold.archive import DiskCache, manifest_format, open_segments
from fourfold.archive.manifest import (
    Manifest,
    Segments,
    classify,
    decode,
    encode,
    key_of,
    segment_id,
)
from fourfold.archive.records import Row
from fourfold.archive.segment_reader import ARCHIVE_TAIL_BYTES, SegmentRequest
from fourfold.archive.segment_writer import write_batches, write_segment
from fourfold.errors import (
    CorruptData,
    FutureFormat,
    InvalidInput,
    StorageError,
)
from fourfold.kernel import failpoints
from fourfold.objects import AccountingStore, MemoryStore, RequestCounter

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**40), st.one_of(st.none(), st.binary(max_size=5)), st.binary(max_size=9)
    ),
    min_size=1,
    max_size=12,
)


def rows_of(drawn, first=0):
    return [
        Row(first + at, ts, key, at % 3, payload) for at, (ts, key, payload) in enumerate(drawn)
    ]


def build(folder, rows):
    """A segment file; what is known of it, its path, and its name."""
    sealed, path = write_segment(
        rows, folder / ".new.partial", lambda sealed: folder / f"{name_of(sealed)}.parquet"
    )
    return sealed, path, name_of(sealed)


def name_of(sealed):
    return segment_id("a", "0" * 12, sealed.start_offset, sealed.digest)


@given(drawn=ROWS, first=st.integers(0, 1000), low=st.integers(0, 14), high=st.integers(0, 14))
def test_any_range_reads_as_it_was_written(tmp_path_factory, drawn, first, low, high):
    folder = tmp_path_factory.mktemp("segment")
    rows = rows_of(drawn, first)
    sealed, path, name = build(folder, rows)
    assert (sealed.start_offset, sealed.end_offset) == (first, first + len(rows) - 1)
    assert sealed.payload_bytes == sum(len(row.payload) for row in rows)
    assert sealed.last_ts_ms == max(row.ts_ms for row in rows)
    source = open_segments(MemoryStore(), DiskCache(folder / "cache", 0))
    wanted = SegmentRequest(name, sealed.size_bytes, sealed.digest, path)
    found = list(source.records(wanted, first + low, first + high))
    expected = [(row.offset, row.payload, row.ts_ms, None) for row in rows][low : max(low, high)]
    assert found == expected
    table = pq.read_table(path)
    assert table.column("routing_key").to_pylist() == [row.routing_key for row in rows]
    assert table.column("flags").to_pylist() == [row.flags for row in rows]


def large_rows(count=3000, size=2000):
    return [Row(at, at, b"k%d" % at, 0, bytes([at % 251]) * size) for at in range(count)]


def test_read_in_middle_fetches_small_part_of_object(tmp_path):
    rows = [row._replace(payload=bytes(range(256)) * 8) for row in large_rows()]
    sealed, path, name = build(tmp_path, rows)
    assert sealed.groups >= 5
    inner, counter = MemoryStore(), RequestCounter()
    inner.put(key_of(name), path.read_bytes())
    objects = AccountingStore(inner, counter, classify)
    source = open_segments(objects, DiskCache(tmp_path / "cache", 0))
    wanted = SegmentRequest(name, sealed.size_bytes, sealed.digest)
    assert [record[0] for record in source.records(wanted, 1500, 1503)] == [1500, 1501, 1502]
    groups = pq.ParquetFile(path).metadata
    largest = max(groups.row_group(at).total_byte_size for at in range(sealed.groups))
    fetched = sum(entry.bytes for entry in counter.snapshot())
    assert fetched <= ARCHIVE_TAIL_BYTES + largest


def test_row_groups_have_statistics_bloom_filters_and_checksums(tmp_path):
    _, path, _ = build(tmp_path, large_rows())
    metadata = pq.ParquetFile(path).metadata
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        assert group.total_byte_size <= 2 * limits.SEGMENT_GROUP_BYTES
        assert group.column(0).statistics.has_min_max
        assert group.column(2).bloom_filter_offset is not None
        assert group.column(0).has_offset_index
        assert group.column(4).compression == "ZSTD"


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6])
def test_a_flipped_byte_in_the_records_is_found(tmp_path, part):
    sealed, path, name = build(tmp_path, large_rows())
    data = bytearray(path.read_bytes())
    metadata = pq.ParquetFile(path).metadata
    column = metadata.row_group(int(part * metadata.num_row_groups)).column(4)
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    source = open_segments(MemoryStore(), DiskCache(tmp_path / "cache", 0))
    with pytest.raises(CorruptData, match=name):
        list(source.records(SegmentRequest(name, sealed.size_bytes, sealed.digest, path), 0, 3000))


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], InvalidInput),
        ([Row(0, 0, None, 0, b"a"), Row(2, 0, None, 0, b"b")], InvalidInput),
    ],
)
def test_a_segment_that_cannot_be_written_leaves_no_file(tmp_path, rows, error):
    with pytest.raises(error):
        build(tmp_path, rows)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_segment_gets_its_name_when_it_is_whole(tmp_path):
    failpoints.arm("archive.segment.built")
    try:
        with pytest.raises(StorageError):
            build(tmp_path, large_rows(10))
    finally:
        failpoints.disarm()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def noise(count, size=2000):
    """Rows that do not get smaller."""
    chance = random.Random(count)
    return [Row(at, at, None, 0, chance.randbytes(size)) for at in range(count)]


def in_columns(path):
    """The row groups of a segment, as they are handed over to be written."""
    file = pq.ParquetFile(path)
    for at in range(file.num_row_groups):
        [batch] = file.read_row_group(at).combine_chunks().to_batches()
        yield batch


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("count", [1, 500, 525, 5000])
def test_digest_is_that_of_the_file_for_every_writer(tmp_path, count, beside):
    first, path, _ = build(tmp_path, noise(count))
    sealed, other = write_batches(
        in_columns(path), tmp_path / ".other", lambda _: tmp_path / "other", beside=beside
    )
    data = other.read_bytes()
    assert (sealed.digest, sealed.size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert sealed == first
    assert data == path.read_bytes()


def threads():
    return [entry for entry in threading.enumerate() if entry.name.startswith("fourfold-segment")]


@pytest.mark.parametrize("allowed", [100, 1_500_000, 5_000_000])
def test_segment_that_disk_does_not_take_leaves_no_file(tmp_path, allowed):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = noise(3000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, before[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            build(tmp_path, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert threads() == []


def test_rows_after_an_error_are_not_written(tmp_path):
    def rows():
        yield from noise(3000)
        raise LookupError

    with pytest.raises(LookupError):
        build(tmp_path, rows())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert threads() == []


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_in_the_last_row_group_is_not_lost(tmp_path, beside):
    _, path, _ = build(tmp_path, noise(1048))
    *before, last = in_columns(path)
    other = last.schema.set(2, pa.field("routing_key", pa.large_binary()))
    strange = last.cast(other)
    with pytest.raises(ValueError, match="schema"):
        write_batches(
            [*before, strange], tmp_path / ".other", lambda _: tmp_path / "other", beside=beside
        )
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]


@pytest.mark.parametrize("beside", [True, False])
def test_a_segment_is_written_in_bounded_memory(tmp_path, beside):
    """Arrow's memory is that of the row groups; this is about what Python keeps of the file."""
    _, path, _ = build(tmp_path, noise(12_000))
    size = path.stat().st_size
    tracemalloc.start()
    try:
        write_batches(
            in_columns(path), tmp_path / ".other", lambda _: tmp_path / "other", beside=beside
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 20 * limits.SEGMENT_GROUP_BYTES
    assert peak < 8 * limits.SEGMENT_GROUP_BYTES


# The cache


def fetched(tmp_path, size, bytes_max):
    """A source over one object, and what is wanted of it."""
    sealed, path, name = build(tmp_path, large_rows(10, size))
    objects = MemoryStore()
    objects.put(key_of(name), path.read_bytes())
    cache = DiskCache(tmp_path / "cache", bytes_max)
    return (
        objects,
        cache,
        open_segments(objects, cache),
        SegmentRequest(name, sealed.size_bytes, "x"),
    )


def test_segment_is_fetched_once_and_then_read_from_cache(tmp_path):
    sealed, path, name = build(tmp_path, large_rows(10))
    objects = MemoryStore()
    objects.put(key_of(name), path.read_bytes())
    cache = DiskCache(tmp_path / "cache", 1_000_000)
    wanted = SegmentRequest(name, sealed.size_bytes, sealed.digest)
    assert len(list(open_segments(objects, cache).records(wanted, 0, 10))) == 10
    objects.delete(key_of(name))
    again = open_segments(objects, DiskCache(tmp_path / "cache", 1_000_000))
    assert len(list(again.records(wanted, 4, 10))) == 6


def test_bytes_of_another_digest_never_enter_the_cache(tmp_path):
    _, cache, source, wanted = fetched(tmp_path, 10, 1_000_000)
    with pytest.raises(CorruptData):
        list(source.records(wanted, 0, 10))
    assert cache.size == 0
    assert not cache.path(wanted.segment).exists()


@given(sizes=st.lists(st.integers(1, 40), max_size=12))
def test_the_cache_never_holds_more_than_it_may(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("cache")
    cache = DiskCache(folder, 60)
    for at, size in enumerate(sizes):
        data = bytes(size)
        cache.add(f"a/s-{at}-x", [data], hashlib.sha256(data).hexdigest())
        held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert held == cache.size <= 60
        assert cache.find(f"a/s-{at}-x") is not None
    assert DiskCache(folder, 60).size == cache.size


# Manifests


def manifest(**changes):
    given = {
        "format": 1,
        "token": "0" * 32,
        "generation": 3,
        "publisher": "p",
        "name": "a",
        "incarnation": "i",
        "deleted": False,
        "published_at_ms": 1,
        "uploaded_through": 8,
        "segments": Segments([0, 5], [4, 8], [9, 9], [9, 9], [1, 1], [1, 1], ["a", "b"]),
    }
    return Manifest(**(given | changes))


def test_a_manifest_comes_back_as_it_was():
    original = manifest()
    assert decode(encode(original), "here") == original
    assert manifest_format.token_of(encode(original)[:60]) == "0" * 32


@given(at=st.integers(0, 300))
def test_a_manifest_that_is_cut_short_is_refused(at):
    data = encode(manifest())
    with pytest.raises(CorruptData, match="here"):
        decode(data[: min(at, len(data) - 1)], "here")


@pytest.mark.parametrize(
    "broken",
    [
        {"segments": Segments([0, 5], [4], [9, 9], [9, 9], [1, 1], [1, 1], ["a", "b"])},
        {"segments": Segments([0, 4], [4, 8], [9, 9], [9, 9], [1, 1], [1, 1], ["a", "b"])},
        {"segments": Segments([0, 6], [4, 8], [9, 9], [9, 9], [1, 1], [1, 1], ["a", "b"])},
        {"uploaded_through": 9},
        {"first_segment": 3},
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(broken):
    with pytest.raises(CorruptData):
        decode(encode(manifest(**broken)), "here")


def test_a_manifest_of_a_later_fourfold_is_refused_as_such():
    with pytest.raises(FutureFormat):
        decode(encode(manifest(format=2)), "here")
