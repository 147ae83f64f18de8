"""Records of segments; pure data."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One record of a log."""

    offset: int
    ts_ms: int
    routing_key: bytes | None
    flags: int
    payload: bytes
    headers: bytes | None = None
    """Headers of the record, as JSON."""


class SealedSegment(NamedTuple):
    """A segment file that is complete and on disk. Both offsets are inclusive."""

    start_offset: int
    end_offset: int
    rows: int
    payload_bytes: int
    last_ts_ms: int
    groups: int
    """Row groups: the smallest unit that a read decodes."""
    size_bytes: int
    digest: str
    """SHA-256 of the file, in hex."""
