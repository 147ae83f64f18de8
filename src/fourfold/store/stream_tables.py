"""Streams in the archive tables of a store: positions at a point, and registered segments.

Streams publish segments and manifests of their own. A point has the positions of the streams that
moved since the last one, and the table `streams.records` gets their segments in the same commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fourfold.archive import stream_positions, stream_records
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import Action
from fourfold.archive.restore_points import Place
from fourfold.archive.stream_records import RecordSegment
from fourfold.archive.table_layout import STREAM_RECORDS
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_reader import TableReader
from fourfold.errors import FourfoldError
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.publication import TrimmedRecords, labeled_segments, moved_since

if TYPE_CHECKING:
    from fourfold.store.store import Store


class StreamChanges(NamedTuple):
    """Changes of streams since the last point."""

    places: Mapping[str, Place] = MappingProxyType({})
    """New positions, by name."""
    actions: tuple[Action, ...] = ()
    """Actions of the table `streams.records`."""
    is_complete: bool = False
    """True if the segments of all streams were compared."""

    def __bool__(self) -> bool:
        return bool(self.places or self.actions)


def gather_changes(
    store: Store, archive: TableArchive, started_ms: int, folder: Path
) -> StreamChanges:
    """Return what changed in the streams since the last point.

    The segments of all streams are compared once in a process, to include what another process or
    an interrupted take-over has left; from then on those of streams that moved.

    Raises:
        WriterLocked: Another process has the streams open; it adds points of its own.
    """
    state = archive.catalog.state
    newest = state.newest_point
    # The clock may have been set back since.
    since = 0 if newest is None else min(newest.started_ms, started_ms)
    with store.streams.database.read() as snapshot:
        moved = {entry.name: _place(entry) for entry in moved_since(snapshot, since)}
        if archive.knows_streams:
            names = list(moved)
        else:
            names = [entry.name for entry in moved_since(snapshot, 0)]
        segments = _segments(snapshot, names)
    expected = archive.expected(STREAM_RECORDS)
    now_ms = time.time_ns() // 1_000_000
    actions = stream_records.registration(expected, segments, store.objects.file_path, now_ms)
    places = moved
    if moved and state.find(stream_positions.NAME) is not None:
        known = _positions(store, archive, state, folder, newest=True)
        places = {name: place for name, place in moved.items() if known.get(name) != place}
    return StreamChanges(places, tuple(actions), is_complete=True)


def _segments(snapshot: ReadTransaction, names: list[str]) -> dict[str, list[RecordSegment]]:
    return {name: list(labeled_segments(snapshot, name)) for name in names}


def _positions(
    store: Store, archive: TableArchive, state: CatalogState, folder: Path, *, newest: bool
) -> dict[str, Place]:
    """Return the positions of streams: those of the newest point that has any, or all."""
    reader = TableReader(store.objects, dict(state.tables), folder / ".positions", archive.retries)
    try:
        if newest:
            return stream_positions.last_positions(reader, state)
        return stream_positions.positions_at(reader, state.find(stream_positions.NAME))
    finally:
        reader.close()


def _place(moved: TrimmedRecords) -> Place:
    return Place(moved.generation, moved.uploaded_through, moved.incarnation)


def record_problems(store: Store, archive: TableArchive, folder: Path) -> Iterator[str]:
    """Yield differences between the segments of streams and the log of `streams.records`.

    Only streams that have not published since the last point can be compared. That their segments
    exist is checked with their manifests.
    """
    state = archive.catalog.state
    try:
        places = _positions(store, archive, state, folder, newest=False)
        expected = archive.expected(STREAM_RECORDS)
        with store.streams.database.read() as snapshot:
            published = {entry.name: _place(entry) for entry in moved_since(snapshot, 0)}
            same = [name for name, place in published.items() if places.get(name) == place]
            segments = _segments(snapshot, same)
    except FourfoldError as error:
        yield error.message
        return
    yield from stream_records.differences(expected, segments, store.objects.file_path)
    yield from stream_records.unknown_files(expected, {*published, *places})
