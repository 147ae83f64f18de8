"""A stream with everything that is counted of it, as `_details` shows it."""

from __future__ import annotations

from typing import Any

from fourfold.models.streams.archive.standing import Archived
from fourfold.models.streams.names import show_offset
from fourfold.models.streams.records import Details, StreamInfo
from fourfold.server import listing


def shown(details: Details) -> dict[str, Any]:
    info = details.info
    return {
        **listing.row(info),
        "updated_at_ms": details.updated_at_ms,
        "rows": info.next_offset - info.first_offset,
        "wal_rows": details.wal_rows,
        "wal_bytes": details.wal_bytes,
        "pending_rows": details.pending_rows,
        "pending_bytes": details.pending_bytes,
        "profile": info.profile,
        "schema_version": info.schema_version,
        "retention_seconds": info.retention_seconds,
        "retention_bytes": info.retention_bytes,
        "forked_from": details.forked_from,
        "fork_offset": _shown(info, info.fork_offset),
        "forks": info.forks,
        "producers": details.producers,
        "subscriptions": details.subscriptions,
        "archive": _archived(info, details.archived),
    }


def _shown(info: StreamInfo, offset: int | None) -> str | None:
    return None if offset is None else show_offset(offset, info.incarnation_number)


def _archived(info: StreamInfo, found: Archived) -> dict[str, Any]:
    """Where the sealed and the published part of a stream end, and what that took."""
    return {
        "sealed_offset": _shown(info, found.sealed_through + 1),
        "published_offset": _shown(info, found.uploaded_through + 1),
        "segments": found.segments,
        "published_segments": found.uploaded_segments,
        "generation": found.generation,
        "published_generation": found.uploaded_generation,
        "published_at_ms": found.uploaded_at_ms,
        "manifest_bytes": found.manifest_bytes,
        "requests": [
            {"artifact": each.artifact, "op": each.op, "count": each.number, "bytes": each.bytes}
            for each in found.requests
        ],
        "indexes": [
            {
                "field": each.name or None,
                "indexed_offset": _shown(info, each.indexed_offset),
                "indexed_segments": each.indexed_segments,
                "runs": each.runs,
                "bytes": each.bytes,
                "levels": each.levels,
            }
            for each in found.indexes
        ],
        "compactions_pending": found.swaps,
    }
