"""Runs: sorted files that say in which offsets of a log a key is.

    fingerprint int64, first_offset int64, last_offset int64, records int32

An entry says that of the records from `first_offset` to `last_offset` so many have a key with that
fingerprint, the first and the last of them included. Entries are in the order of their
fingerprints, so a key is found in one row group; a filter tells for most keys that a row group does
not have them. Runs are written like segments, and merged in bounded memory.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fourfold import limits
from fourfold.archive.key_filter import fingerprint
from fourfold.archive.parquet import arrow
from fourfold.archive.segment_reader import OpenFile, SegmentRequest, StoredSegments
from fourfold.archive.segment_writer import KEY, PAYLOAD, HashingFile
from fourfold.archive.temporary_files import put_in_place, unfinished
from fourfold.kernel import failpoints

FINGERPRINT, FIRST, LAST, RECORDS = "fingerprint", "first_offset", "last_offset", "records"
KeyOf = Callable[[bytes], bytes | None]
"""The key of a payload, where keys are not a column of their own."""


class RunFile(NamedTuple):
    """A run that is whole and on disk."""

    entries: int
    filter_bytes: int
    size_bytes: int
    digest: str


class Entry(NamedTuple):
    """Where a key may be: among the records between two offsets, both included."""

    first_offset: int
    last_offset: int
    records: int


@cache
def schema() -> Any:
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
    wanted: SegmentRequest,
    secret: bytes,
    start: int = 0,
    key_of: KeyOf | None = None,
    end: int | None = None,
) -> Any:
    """The entries of one segment for the records from `start` on, up to `end` if that is given, in
    no order: a table.
    """
    pa, _ = arrow()
    found = []
    with segments.open(wanted) as file:
        for at in range(bisect_left(file.lasts, start), len(file.firsts)):
            first, behind = max(file.firsts[at], start), file.lasts[at] + 1
            behind = behind if end is None else min(behind, end)
            keys = _keys(file, at, key_of) if first < behind else None
            if keys is not None:
                offsets = pa.array(range(first, behind), pa.int64())
                keys = keys.slice(first - file.firsts[at], behind - first)
                found.append(_grouped(pa.table({KEY: keys, FIRST: offsets, LAST: offsets})))
    if not found:
        return schema().empty_table()
    whole = found[0] if len(found) == 1 else _grouped(pa.concat_tables(found))
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
    """The keys of a row group, one for each record; None when it has none."""
    pa, _ = arrow()
    if key_of is None:
        if file.has_only_nulls(at, KEY):
            return None
        return file.read(at, [KEY]).column(KEY)
    payloads = file.read(at, [PAYLOAD]).column(PAYLOAD).to_pylist()
    return pa.array([key_of(payload) for payload in payloads], pa.binary())


def _grouped(table: Any) -> Any:
    """One row for each key: its first and last offset, and how many records have it."""
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
    """Write tables of entries as a run. Every fingerprint of a part is above those of the parts
    before it; each part is sorted here. When this raises, there is neither file.
    """
    with unfinished(temporary, "a run"):
        temporary.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = _write(parts, temporary)
        if failpoints.armed:
            failpoints.hit("archive.run.built")
        final = named(made)
        put_in_place(temporary, final)
    return made, final


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
                writer.write_table(ordered, row_group_size=limits.INDEX_GROUP_ROWS)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return RunFile(count, _filters(pq.read_metadata(path)), size, hashing.digest.hexdigest())


def _filters(metadata: Any) -> int:
    """How many bytes of a file are filters."""
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
        rows = limits.INDEX_GROUP_ROWS
        options["bloom_filter_options"] = {FINGERPRINT: {"ndv": rows, "fpp": limits.INDEX_FPP}}
    return options


def merged(
    segments: StoredSegments, runs: Sequence[tuple[SegmentRequest, int]], keep_from: int
) -> Iterator[Any]:
    """The entries of several runs, given with how many each has, as parts for `write_run`: one for
    each range of fingerprints, so that none is large. Those below `keep_from` are left out.
    """
    pa, _ = arrow()
    pc = pa.compute
    whole = sum(count for _, count in runs)
    parts = max(1, -(-whole // limits.INDEX_MERGE_ROWS))
    for part in range(parts):
        low = -(1 << 63) + (part << 64) // parts
        high = -(1 << 63) + ((part + 1) << 64) // parts - 1
        found = []
        for wanted, _ in runs:
            with segments.open(wanted) as file:
                for at in range(bisect_left(file.lasts, low), bisect_right(file.firsts, high)):
                    table = file.read(at)
                    prints = table.column(FINGERPRINT)
                    inside = pc.and_(pc.greater_equal(prints, low), pc.less_equal(prints, high))
                    kept = pc.greater_equal(table.column(LAST), keep_from)
                    found.append(table.filter(pc.and_(inside, kept)))
        if found:
            yield pa.concat_tables(found)


class Total(NamedTuple):
    """Entries added up: how many records have a key, and the fingerprints of all of them. Equal
    records give equal totals, however they are divided into entries.
    """

    records: int = 0
    fingerprints: int = 0

    def plus(self, table: Any) -> Total:
        pc = arrow()[0].compute
        counts = table.column(RECORDS).cast("int64")
        # Both wrap around, as they do in the sum.
        weighed = pc.multiply(table.column(FINGERPRINT), counts)
        return Total(
            self.records + (pc.sum(counts).as_py() or 0),
            (self.fingerprints + (pc.sum(weighed).as_py() or 0)) % (1 << 64),
        )


def find(segments: StoredSegments, wanted: SegmentRequest, sought: int) -> list[Entry]:
    """The entries of a fingerprint in a run, in the order of their offsets."""
    pc = arrow()[0].compute
    found: list[Entry] = []
    with segments.open(wanted) as file:
        at = bisect_left(file.lasts, sought)
        while at < len(file.firsts) and file.firsts[at] <= sought:
            if file.may_have(at, FINGERPRINT, struct.pack("<q", sought)):
                table = file.read(at)
                hits = table.filter(pc.equal(table.column(FINGERPRINT), sought))
                columns = [hits.column(name).to_pylist() for name in (FIRST, LAST, RECORDS)]
                found += [Entry(*each) for each in zip(*columns, strict=True)]
            at += 1
    return found


__all__ = [
    "Entry",
    "KeyOf",
    "RunFile",
    "Total",
    "entries_of",
    "find",
    "merged",
    "write_run",
]
