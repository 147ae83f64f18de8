"""What goes into a segment, and what is known of one. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One record of a log."""

    offset: int
    ts_ms: int
    routing_key: bytes | None
    flags: int
    payload: bytes


class SealedSegment(NamedTuple):
    """A segment file that is whole and on disk. Both offsets are those of records in it."""

    start_offset: int
    end_offset: int
    rows: int
    payload_bytes: int
    last_ts_ms: int
    groups: int
    """Row groups: the least that a read decodes."""
    size_bytes: int
    digest: str
    """The SHA-256 of the file, in hex."""
