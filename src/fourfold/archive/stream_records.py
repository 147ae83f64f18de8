"""Published segments as a Delta table: the archive table `streams.records`.

Segments are where their manifests refer to them, and nothing is copied: the root of the table is
the folder of all streams, because readers of Delta tables only find files below the root.

    streams/_delta_log/                            log of the table
    streams/<hash>/segments/<segment>.parquet      its files

A commit of the catalog names a version of this table that has the segments of exactly those
manifests that the point has the positions of. A segment of an older version of Fourfold, whose rows
do not name their stream, is not part of the table until compaction rewrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fourfold.archive.delta_actions import (
    FEATURES_WRITER_VERSION,
    Action,
    AddFile,
    DeltaProtocol,
    Snapshot,
    table_actions,
)
from fourfold.archive.delta_schema import (
    FileStatistics,
    lower_bound,
    stated_columns,
    upper_bound,
)
from fourfold.archive.manifest import key_of, name_hash
from fourfold.archive.parquet import arrow
from fourfold.archive.restore_points import Place
from fourfold.archive.segment_writer import FILE_ID, OFFSET, STREAM, TIME, schema
from fourfold.archive.table_layout import STREAM_RECORDS, table_prefix

WRITER_FEATURE: Final = "fourfold-segments"
"""Feature that other writers do not have: a vacuum of the table would delete manifests."""
_HASH: Final = "hash"
"""Tag of a file: the hash of the name of its stream."""


class RecordSegment(NamedTuple):
    """A published segment whose rows name their stream."""

    stream: str
    file_id: str
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    last_append_ms: int
    digest: str

    def covers(self, first: int, last: int) -> bool:
        """Return True if it has all offsets from `first` to `last`."""
        return self.start_offset <= first and last <= self.end_offset


PathOf = Callable[[str], str]
"""Returns the path of an object from its key, as other programs see it."""


def segment_path(segment_id: str, path_of: PathOf) -> str:
    """Return the path of a segment relative to the table."""
    root = f"{table_prefix(STREAM_RECORDS)}/"
    above = len(path_of(f"{root}x")) - 1
    return path_of(key_of(segment_id))[above:]


def table_schema() -> Any:
    """Return the columns of the table. Delta tables have timestamps in microseconds."""
    pa, _ = arrow()
    times = {TIME: pa.timestamp("us", tz="UTC")}
    stored = [pa.field(each.name, times.get(each.name, each.type)) for each in schema(headers=True)]
    return pa.schema([pa.field(STREAM, pa.string()), pa.field(FILE_ID, pa.string()), *stored])


def registration(
    expected: Snapshot,
    streams: Mapping[str, Sequence[RecordSegment]],
    path_of: PathOf,
    now_ms: int,
) -> list[Action]:
    """Return the actions after which the table has exactly these segments of these streams.

    Files of other streams stay. Compaction changes no data; new and removed records do.
    """
    known = _files_by_hash(expected)
    actions: list[Action] = []
    for name, segments in streams.items():
        files = known.get(name_hash(name), {})
        actions += _stream_actions(files, segments, path_of, now_ms)
    if actions and expected.metadata is None:
        _, metadata = table_actions(
            table_schema(), name=STREAM_RECORDS, configuration=stated_columns(_STATED)
        )
        return [_PROTOCOL, metadata, *actions]
    return actions


_STATED: Final = (STREAM, FILE_ID, OFFSET)
"""Columns with bounds in the log."""
_PROTOCOL: Final = DeltaProtocol(
    min_writer_version=FEATURES_WRITER_VERSION, writer_features=(WRITER_FEATURE,)
)


def _stream_actions(
    files: Mapping[str, AddFile],
    segments: Sequence[RecordSegment],
    path_of: PathOf,
    now_ms: int,
) -> Iterator[Action]:
    wanted = {segment_path(segment.segment_id, path_of): segment for segment in segments}
    removed = {path: _range(file) for path, file in files.items() if path not in wanted}
    added = {path: segment for path, segment in wanted.items() if path not in files}
    rewritten = {
        path: segment
        for path, segment in added.items()
        if _is_covered(segment, [place for place in removed.values() if place])
    }
    for path, place in removed.items():
        same = place and any(
            segment.covers(place.first, place.last) and segment.file_id == place.file_id
            for segment in rewritten.values()
        )
        yield files[path].removed(now_ms, data_change=not same)
    for path, segment in added.items():
        yield _add(path, segment, data_change=path not in rewritten)


class _OffsetRange(NamedTuple):
    first: int
    last: int
    file_id: str


def _range(file: AddFile) -> _OffsetRange:
    stats = FileStatistics.decode(file.stats)
    tag = (file.tags or {}).get(FILE_ID) or ""
    return _OffsetRange(stats.min_values[OFFSET], stats.max_values[OFFSET], tag)


def _is_covered(segment: RecordSegment, ranges: Iterable[_OffsetRange]) -> bool:
    """Return True if all records of a segment are in the ranges of removed files."""
    at = segment.start_offset
    for place in sorted(ranges):
        if place.file_id == segment.file_id and place.first <= at <= place.last:
            at = place.last + 1
    return at > segment.end_offset


def _add(path: str, segment: RecordSegment, *, data_change: bool) -> AddFile:
    labels = {STREAM: segment.stream, FILE_ID: segment.file_id}
    lower = {name: lower_bound(value) for name, value in labels.items()}
    upper = {name: upper_bound(value) for name, value in labels.items()}
    stats = FileStatistics(
        segment.end_offset - segment.start_offset + 1,
        {**lower, OFFSET: segment.start_offset},
        {**upper, OFFSET: segment.end_offset},
        dict.fromkeys((*labels, OFFSET), 0),
    )
    tags: dict[str, str | None] = {
        "sha256": segment.digest,
        _HASH: name_hash(segment.stream),
        FILE_ID: segment.file_id,
    }
    return AddFile(
        path,
        segment.size_bytes,
        segment.last_append_ms,
        data_change,
        stats=stats.encode(),
        tags=tags,
    )


def _files_by_hash(snapshot: Snapshot) -> dict[str, dict[str, AddFile]]:
    files: dict[str, dict[str, AddFile]] = {}
    for path, file in snapshot.files.items():
        files.setdefault((file.tags or {}).get(_HASH) or "", {})[path] = file
    return files


def cut_actions(expected: Snapshot, places: Mapping[str, Place], now_ms: int) -> list[Action]:
    """Return the actions that remove segments after the positions of streams, for a take-over."""
    kept = {name_hash(name): place for name, place in places.items()}
    removed: list[Action] = []
    for name, files in _files_by_hash(expected).items():
        place = kept.get(name)
        for file in files.values():
            found = _range(file)
            belongs = place is not None and place.incarnation == found.file_id
            if place is None or not belongs or found.last > place.position:
                removed.append(file.removed(now_ms))
    return removed


def differences(
    snapshot: Snapshot, streams: Mapping[str, Sequence[RecordSegment]], path_of: PathOf
) -> Iterator[str]:
    """Yield how the files of streams in the table differ from their segments."""
    known = _files_by_hash(snapshot)
    for name, segments in sorted(streams.items()):
        files = known.get(name_hash(name), {})
        wanted = {segment_path(segment.segment_id, path_of): segment for segment in segments}
        for path in sorted(wanted.keys() - files.keys()):
            yield f"segment {path!r} of stream {name!r} is not in the log"
        for path in sorted(files.keys() - wanted.keys()):
            yield f"file {path!r} in the log is not a segment of stream {name!r}"
        for path in sorted(wanted.keys() & files.keys()):
            segment, file = wanted[path], files[path]
            digest = (file.tags or {}).get("sha256")
            if (segment.size_bytes, segment.digest) != (file.size, digest):
                yield f"file {path!r} in the log does not match its segment"


def unknown_files(snapshot: Snapshot, names: Iterable[str]) -> Iterator[str]:
    """Yield the files in the table that belong to none of the streams."""
    hashes = set(map(name_hash, names))
    for name, files in sorted(_files_by_hash(snapshot).items()):
        if name not in hashes:
            yield from (f"file {path!r} in the log is of an unknown stream" for path in files)
