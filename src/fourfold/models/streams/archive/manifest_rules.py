"""The rules of a stream in its manifest: its schema registry and its profile.

A node that is restored from manifests enforces the same rules as the node that published them. The
state of touch waiters is not included: it starts again.
"""

from __future__ import annotations

from typing import Any

from fourfold.archive.manifest import Manifest
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.archive.records import SQL
from fourfold.models.streams.rules import SQL as RULES
from fourfold.models.streams.schemas import registry as registries


def manifest_fields(snapshot: ReadTransaction, stream: str) -> dict[str, Any]:
    """Return the rules of a stream for its manifest, as stored."""
    return {
        "schema_json": snapshot.value(RULES.schema, (stream,)),
        "profile_json": snapshot.value(RULES.profile, (stream,)),
    }


def record_published(txn: Transaction, manifest: Manifest) -> None:
    """Record which version of the registry the published manifest contains."""
    size = len((manifest.schema_json or "").encode())
    txn.execute(SQL.uploaded_schema, (manifest.name, size))


def has_changed(txn: Transaction, manifest: Manifest) -> bool:
    """Return True if the rules differ from those in the manifest."""
    return manifest_fields(txn, manifest.name) != {
        "schema_json": manifest.schema_json,
        "profile_json": manifest.profile_json,
    }


def schema_version(manifest: Manifest) -> int | None:
    """Return the newest version of the schema in a manifest; None without one."""
    if manifest.schema_json is None:
        return None
    return registries.decoded(manifest.schema_json).current_version


def restore(txn: Transaction, manifest: Manifest, end: int, now_ms: int) -> None:
    """Restore the rules of a stream from its manifest; the stream continues at `end`."""
    text = manifest.schema_json
    if text is not None:
        size = len(text.encode())
        # Unpublished records are lost: a version that started after `end` starts at `end`.
        text = registries.encoded(registries.decoded(text).ending_at(end)).decode()
        txn.execute(SQL.restore_schema, (manifest.name, text, now_ms, size))
    if manifest.profile_json is not None:
        txn.execute(RULES.put_profile, (manifest.name, manifest.profile_json, now_ms))
        txn.execute(SQL.restore_touch, (manifest.name, end - 1, now_ms))


def until(manifest: Manifest, offset: int) -> str | None:
    """Return the registry as of an offset."""
    if manifest.schema_json is None:
        return None
    return registries.encoded(registries.decoded(manifest.schema_json).until(offset)).decode()
