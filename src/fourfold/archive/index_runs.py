"""Index runs: sorted files that map keys to offsets of a log.

    fingerprint int64, first_offset int64, last_offset int64, records int32

An entry states how many of the records from `first_offset` to `last_offset`, both inclusive, have a
key with that fingerprint. Entries are sorted by fingerprint, so a key is in one row group; a bloom
filter excludes most row groups. Runs are written like segments, and merged in bounded memory.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.key_filter import fingerprint
from fourfold.archive.parquet import arrow
from fourfold.archive.segment_reader import OpenFile, SegmentRequest, StoredSegments
from fourfold.archive.segment_writer import KEY, PAYLOAD, HashingFile
from fourfold.archive.temporary_files import put_in_place, unfinished
from fourfold.durability import sync_file
from fourfold.kernel import failpoints

INDEX_GROUP_ROWS: Final = 16_384
"""Entries of a row group of an index run."""
INDEX_MERGE_ROWS: Final = 1_000_000
"""Approximate entries that a merge of index runs holds in memory."""
INDEX_FPP: Final = 0.01
"""False-positive rate of the Bloom filter of an index run."""


FINGERPRINT, FIRST, LAST, RECORDS = "fingerprint", "first_offset", "last_offset", "records"
KeyOf = Callable[[bytes], bytes | None]
"""Function that extracts the key of a payload, if keys are not a column."""


class RunFile(NamedTuple):
    """A run that is complete and on disk."""

    entries: int
    filter_bytes: int
    size_bytes: int
    digest: str


class IndexEntry(NamedTuple):
    """A range of offsets, both inclusive, that contains a key."""

    first_offset: int
    last_offset: int
    records: int


@cache
def schema() -> Any:
    """Return the schema of an index run."""
    pa, _ = arrow()
    return pa.schema(
        [
            pa.field(FINGERPRINT, pa.int64(), nullable=False),
            pa.field(FIRST, pa.int64(), nullable=False),
            pa.field(LAST, pa.int64(), nullable=False),
            pa.field(RECORDS, pa.int32(), nullable=False),
        ]
    )


def entries_of(  # noqa: PLR0917 - a segment, which of it, and what of that
    segments: StoredSegments,
    segment: SegmentRequest,
    secret: bytes,
    start: int = 0,
    key_of: KeyOf | None = None,
    end: int | None = None,
) -> Any:
    """Return unsorted index entries of the records from `start` to before `end` of a segment."""
    pa, _ = arrow()
    tables = []
    with segments.open(segment) as file:
        for at in range(bisect_left(file.lasts, start), len(file.firsts)):
            first, stop = max(file.firsts[at], start), file.lasts[at] + 1
            stop = stop if end is None else min(stop, end)
            keys = _keys(file, at, key_of) if first < stop else None
            if keys is not None:
                offsets = pa.array(range(first, stop), pa.int64())
                keys = keys.slice(first - file.firsts[at], stop - first)
                tables.append(_grouped(pa.table({KEY: keys, FIRST: offsets, LAST: offsets})))
    if not tables:
        return schema().empty_table()
    whole = tables[0] if len(tables) == 1 else _grouped(pa.concat_tables(tables))
    prints = [fingerprint(secret, key) for key in whole.column(KEY).to_pylist()]
    return pa.table(
        [
            pa.array(prints, pa.int64()),
            whole.column(FIRST),
            whole.column(LAST),
            whole.column(RECORDS).cast(pa.int32()),
        ],
        schema=schema(),
    )


def _keys(file: OpenFile, at: int, key_of: KeyOf | None) -> Any:
    """Return the keys of a row group, one for each record; None if it has none."""
    pa, _ = arrow()
    if key_of is None:
        if file.has_only_nulls(at, KEY):
            return None
        return file.read(at, [KEY]).column(KEY)
    payloads = file.read(at, [PAYLOAD]).column(PAYLOAD).to_pylist()
    return pa.array([key_of(payload) for payload in payloads], pa.binary())


def _grouped(table: Any) -> Any:
    """Group by key: its first and last offset, and its number of records."""
    pa, _ = arrow()
    if RECORDS not in table.column_names:
        table = table.filter(table.column(KEY).is_valid())
        ones = pa.array([1] * table.num_rows, pa.int64())
        table = table.append_column(RECORDS, ones)
    grouped = table.group_by(KEY, use_threads=False).aggregate(
        [(FIRST, "min"), (LAST, "max"), (RECORDS, "sum")]
    )
    columns = (KEY, f"{FIRST}_min", f"{LAST}_max", f"{RECORDS}_sum")
    return grouped.select(columns).rename_columns([KEY, FIRST, LAST, RECORDS])


def write_run(
    parts: Iterable[Any], temporary: Path, named: Callable[[RunFile], Path]
) -> tuple[RunFile, Path]:
    """Write tables of entries as a run.

    Every fingerprint of a part is above those of the parts before it; each part is sorted here. If
    this raises, no file remains.
    """
    with unfinished(temporary, "a run"):
        temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = _write(parts, temporary)
        if failpoints.armed:
            failpoints.hit("archive.run.built")
        final = named(run)
        put_in_place(temporary, final)
    return run, final


def _write(parts: Iterable[Any], path: Path) -> RunFile:
    pa, pq = arrow()
    count = 0
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        hashing = HashingFile(file)
        with pq.ParquetWriter(pa.PythonFile(hashing, mode="w"), schema(), **_options()) as writer:
            for part in parts:
                ordered = part.sort_by([(FINGERPRINT, "ascending"), (FIRST, "ascending")])
                count += ordered.num_rows
                writer.write_table(ordered, row_group_size=INDEX_GROUP_ROWS)
        file.flush()
        sync_file(file.fileno())
        size = file.tell()
    return RunFile(count, _filters(pq.read_metadata(path)), size, hashing.digest.hexdigest())


def _filters(metadata: Any) -> int:
    """Return the number of bytes of bloom filters in a file."""
    groups = [metadata.row_group(at).column(0) for at in range(metadata.num_row_groups)]
    return sum(getattr(group, "bloom_filter_length", None) or 0 for group in groups)


@cache
def _options() -> dict[str, Any]:
    import inspect  # noqa: PLC0415 - only here

    _, pq = arrow()
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": limits.SEGMENT_ZSTD_LEVEL,
        "use_dictionary": False,
        "write_statistics": [FINGERPRINT],
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1)],
    }
    if "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        rows = INDEX_GROUP_ROWS
        options["bloom_filter_options"] = {FINGERPRINT: {"ndv": rows, "fpp": INDEX_FPP}}
    return options


def merged(
    segments: StoredSegments, runs: Sequence[tuple[SegmentRequest, int]], keep_from: int
) -> Iterator[Any]:
    """Yield the merged entries of several runs as parts for `write_run`.

    Each run comes with its number of entries. A part covers a range of fingerprints, to bound
    memory. Entries below `keep_from` are dropped.
    """
    pa, _ = arrow()
    pc = pa.compute
    whole = sum(count for _, count in runs)
    parts = max(1, -(-whole // INDEX_MERGE_ROWS))
    for part in range(parts):
        low = -(1 << 63) + (part << 64) // parts
        high = -(1 << 63) + ((part + 1) << 64) // parts - 1
        tables = []
        for run, _ in runs:
            with segments.open(run) as file:
                for at in range(bisect_left(file.lasts, low), bisect_right(file.firsts, high)):
                    table = file.read(at)
                    prints = table.column(FINGERPRINT)
                    inside = pc.and_(pc.greater_equal(prints, low), pc.less_equal(prints, high))
                    kept = pc.greater_equal(table.column(LAST), keep_from)
                    tables.append(table.filter(pc.and_(inside, kept)))
        if tables:
            yield pa.concat_tables(tables)


class EntryChecksum(NamedTuple):
    """Checksum of entries: number of records and sum of fingerprints.

    Equal records give equal totals, however they are divided into entries.
    """

    records: int = 0
    fingerprints: int = 0

    def plus(self, table: Any) -> EntryChecksum:
        """Return the checksum with the entries of a table added."""
        pc = arrow()[0].compute
        counts = table.column(RECORDS).cast("int64")
        # Both wrap around, as in the sum.
        weighed = pc.multiply(table.column(FINGERPRINT), counts)
        return EntryChecksum(
            self.records + (pc.sum(counts).as_py() or 0),
            (self.fingerprints + (pc.sum(weighed).as_py() or 0)) % (1 << 64),
        )


def find(segments: StoredSegments, run: SegmentRequest, sought: int) -> list[IndexEntry]:
    """Return the entries of a fingerprint in a run, in the order of their offsets."""
    pc = arrow()[0].compute
    entries: list[IndexEntry] = []
    with segments.open(run) as file:
        at = bisect_left(file.lasts, sought)
        while at < len(file.firsts) and file.firsts[at] <= sought:
            if file.may_have(at, FINGERPRINT, struct.pack("<q", sought)):
                table = file.read(at)
                hits = table.filter(pc.equal(table.column(FINGERPRINT), sought))
                columns = [hits.column(name).to_pylist() for name in (FIRST, LAST, RECORDS)]
                entries += [IndexEntry(*entry) for entry in zip(*columns, strict=True)]
            at += 1
    return entries


__all__ = [
    "EntryChecksum",
    "IndexEntry",
    "KeyOf",
    "RunFile",
    "entries_of",
    "find",
    "merged",
    "write_run",
]
