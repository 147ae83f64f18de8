"""The rules of a stream as its manifest tells of them: its registry of schemas, and its profile.

A node that is built from manifests asks of records what the node asked that published them. What is
known of those who wait for changes is not told: it begins anew.
"""

from __future__ import annotations

from typing import Any

from fourfold.archive.manifest import Manifest
from fourfold.kernel import ReadTransaction, Transaction
from fourfold.models.streams.archive.records import SQL
from fourfold.models.streams.rules import SQL as RULES
from fourfold.models.streams.schemas import registry as registries


def told(snapshot: ReadTransaction, stream: str) -> dict[str, Any]:
    """What a manifest says of the rules of a stream, as it is stored."""
    return {
        "schema_json": snapshot.value(RULES.schema, (stream,)),
        "profile_json": snapshot.value(RULES.profile, (stream,)),
    }


def recorded(txn: Transaction, manifest: Manifest) -> None:
    """How much of the registry the manifest that is up tells."""
    size = len((manifest.schema_json or "").encode())
    txn.execute(SQL.uploaded_schema, (manifest.name, size))


def is_untold(txn: Transaction, manifest: Manifest) -> bool:
    """Whether the rules are others than a manifest speaks of."""
    return told(txn, manifest.name) != {
        "schema_json": manifest.schema_json,
        "profile_json": manifest.profile_json,
    }


def schema_version(manifest: Manifest) -> int | None:
    if manifest.schema_json is None:
        return None
    return registries.decoded(manifest.schema_json).current_version


def restore(txn: Transaction, manifest: Manifest, end: int, now_ms: int) -> None:
    """The rules of a stream that is built from its manifest, and goes on at `end`."""
    text = manifest.schema_json
    if text is not None:
        size = len(text.encode())
        # What was not published is gone: a version that began behind it begins where it ended.
        text = registries.encoded(registries.decoded(text).ending_at(end)).decode()
        txn.execute(SQL.restore_schema, (manifest.name, text, now_ms, size))
    if manifest.profile_json is not None:
        txn.execute(RULES.put_profile, (manifest.name, manifest.profile_json, now_ms))
        txn.execute(SQL.restore_touch, (manifest.name, end - 1, now_ms))


def until(manifest: Manifest, offset: int) -> str | None:
    """The registry as it was when a stream ended at an offset."""
    if manifest.schema_json is None:
        return None
    return registries.encoded(registries.decoded(manifest.schema_json).until(offset)).decode()
