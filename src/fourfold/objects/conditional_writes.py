"""Check that a store supports conditional writes, by trying each of them on a new object.

Some S3-compatible servers ignore If-None-Match and If-Match and report success; others reject the
right version. On such a server two writers silently overwrite each other.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fourfold.errors import AlreadyExists, PreconditionFailed

if TYPE_CHECKING:
    from fourfold.objects.protocol import ObjectStore


@dataclass(frozen=True, slots=True)
class ConditionalWrites:
    """Problems of the conditional writes of a store; `faults` is empty if there are none."""

    faults: tuple[str, ...]

    @property
    def honoured(self) -> bool:
        """True if all conditional writes work."""
        return not self.faults


def check_conditional_writes(
    store: ObjectStore, *, folder: str = "fourfold-probe"
) -> ConditionalWrites:
    """Try conditional writes, valid and invalid, on a new object that is deleted afterwards."""
    key = f"{folder}/{uuid.uuid4().hex}"
    faults: list[str] = []
    store.put(key, b"first", if_absent=True)
    try:
        _check_second_create(store, key, faults)
        _check_replace_current(store, key, faults)
        _check_replace_stale(store, key, faults)
        _check_replace_deleted(store, key, faults)
    finally:
        store.delete(key)
    return ConditionalWrites(tuple(faults))


def _check_second_create(store: ObjectStore, key: str, faults: list[str]) -> None:
    try:
        store.put(key, b"second", if_absent=True)
    except AlreadyExists:
        return
    faults.append("put-if-absent (If-None-Match: *) replaced an existing object")


def _check_replace_current(store: ObjectStore, key: str, faults: list[str]) -> None:
    current = store.get(key).info.version
    try:
        store.put(key, b"third", if_version=current)
    except PreconditionFailed:
        faults.append("conditional replace (If-Match) rejected the current version")


def _check_replace_stale(store: ObjectStore, key: str, faults: list[str]) -> None:
    stale = store.get(key).info.version
    store.put(key, b"fourth")
    try:
        store.put(key, b"fifth", if_version=stale)
    except PreconditionFailed:
        return
    faults.append("conditional replace (If-Match) accepted an old version")


def _check_replace_deleted(store: ObjectStore, key: str, faults: list[str]) -> None:
    last = store.get(key).info.version
    store.delete(key)
    try:
        store.put(key, b"sixth", if_version=last)
    except PreconditionFailed:
        return
    faults.append("conditional replace (If-Match) wrote a deleted object")
