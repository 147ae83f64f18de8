"""The companions of a stream in its manifest, and their restoration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fourfold.archive.manifest import Companion, LogCompanions, Manifest
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.schemas.registry import decoded
from fourfold.models.streams.search.companions import plans
from fourfold.models.streams.search.companions.plans import SQL


def manifest_fields(
    snapshot: ReadTransaction, stream: str, digests: Mapping[int, str]
) -> dict[str, LogCompanions | None]:
    """Return the companions of a stream for its manifest: those of the segments it lists.

    `digests` are those of the segments, by their first offset. A segment that was compacted may
    begin where another one began that had a companion.
    """
    row = snapshot.one(SQL.plan, (stream,))
    if row is None:
        return {"companions": None}
    generation, plan_hash, plan_json = row
    segments = [
        Companion(*entry)
        for entry in snapshot.all(SQL.companions, (stream, 0))
        if f"-{digests.get(entry[0], '?')[:16]}-" in entry[1]
    ]
    return {"companions": LogCompanions(generation, plan_hash, plan_json, segments)}


def has_changed(txn: Transaction, manifest: Manifest) -> bool:
    """Return True if the plan or the companions differ from those in the manifest."""
    columns = manifest.segments
    digests = dict(zip(columns.start_offset, columns.sha256, strict=True))
    return manifest_fields(txn, manifest.name, digests)["companions"] != manifest.companions


def restore(txn: Transaction, manifest: Manifest, now_ms: int) -> None:
    """Restore the plan and the companions of a stream from its manifest."""
    companions = manifest.companions
    if companions is not None:
        _restore(txn, manifest, companions, now_ms)
    if manifest.schema_json is not None:
        # The registry may have been restored to an older version than the plan.
        plans.refresh(txn, manifest.name, decoded(manifest.schema_json), now_ms)


def _restore(txn: Transaction, manifest: Manifest, companions: LogCompanions, now_ms: int) -> None:
    plan: tuple[Any, ...] = (companions.generation, companions.plan_hash, companions.plan_json)
    txn.execute(SQL.put_plan, (manifest.name, *plan, now_ms))
    for entry in companions.segments:
        index = txn.value(SQL.segment_at, (manifest.name, entry.start_offset))
        if index is not None:
            params = (
                manifest.name,
                index,
                entry.key,
                entry.plan_generation,
                entry.sections_json,
                entry.section_sizes_json,
                entry.size_bytes,
                entry.primary_timestamp_min_ms,
                entry.primary_timestamp_max_ms,
                now_ms,
            )
            txn.execute(SQL.put_companion, params)
