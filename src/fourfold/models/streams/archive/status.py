"""Archive status of one stream, as its details show it."""

from __future__ import annotations

from typing import NamedTuple

from fourfold.archive import manifest
from fourfold.kernel import ReadTransaction
from fourfold.models.streams.archive.indexes.records import SQL as INDEXES
from fourfold.models.streams.archive.indexes.records import IndexStatus
from fourfold.models.streams.archive.records import SQL


class Requests(NamedTuple):
    """Object store requests of one kind, as counted by this node."""

    artifact: str
    op: str
    number: int
    bytes: int


class ArchiveStatus(NamedTuple):
    """Progress of sealing and publishing a stream."""

    sealed_through: int
    uploaded_through: int
    segments: int
    uploaded_segments: int
    generation: int
    uploaded_generation: int
    uploaded_at_ms: int | None
    manifest_bytes: int | None
    requests: tuple[Requests, ...]
    indexes: tuple[IndexStatus, ...]
    swaps: int
    """Number of compacted segments that wait for a manifest."""


def archived(snapshot: ReadTransaction, name: str) -> ArchiveStatus:
    """Return how much of a stream is archived."""
    row = snapshot.one(SQL.status_of, (name,)) or (-1, -1, 0, 0, 0, 0, None, None)
    counts = snapshot.all(SQL.request_counts, (manifest.name_hash(name),))
    requests = tuple(Requests._make(count) for count in counts)
    indexes = tuple(map(IndexStatus._make, snapshot.all(INDEXES.standing, (name,))))
    swaps = len(snapshot.all(SQL.swaps, (name,)))
    return ArchiveStatus._make((*row, requests, indexes, swaps))
