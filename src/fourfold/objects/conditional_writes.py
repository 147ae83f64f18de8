"""Proof that a store honours conditional writes, by trying each of them on an object of its own.

S3-compatible servers exist that ignore If-None-Match and If-Match and answer that all went well;
others refuse the right version. On such a server two writers overwrite each other, and nothing
tells them.
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
    """What is wrong with a store's conditional writes: nothing, when `faults` is empty."""

    faults: tuple[str, ...]

    @property
    def honoured(self) -> bool:
        return not self.faults


def check_conditional_writes(
    store: ObjectStore, *, folder: str = "fourfold-probe"
) -> ConditionalWrites:
    """Try conditional writes, right and wrong, on a new object that is deleted afterwards."""
    key = f"{folder}/{uuid.uuid4().hex}"
    faults: list[str] = []
    store.put(key, b"first", if_absent=True)
    try:
        _must_refuse_second(store, key, faults)
        _must_replace_current(store, key, faults)
        _must_refuse_stale(store, key, faults)
        _must_refuse_gone(store, key, faults)
    finally:
        store.delete(key)
    return ConditionalWrites(tuple(faults))


def _must_refuse_second(store: ObjectStore, key: str, faults: list[str]) -> None:
    try:
        store.put(key, b"second", if_absent=True)
    except AlreadyExists:
        return
    faults.append("put-if-absent (If-None-Match: *) replaced an object that exists")


def _must_replace_current(store: ObjectStore, key: str, faults: list[str]) -> None:
    current = store.get(key).info.version
    try:
        store.put(key, b"third", if_version=current)
    except PreconditionFailed:
        faults.append("conditional replace (If-Match) refused the current version")


def _must_refuse_stale(store: ObjectStore, key: str, faults: list[str]) -> None:
    stale = store.get(key).info.version
    store.put(key, b"fourth")
    try:
        store.put(key, b"fifth", if_version=stale)
    except PreconditionFailed:
        return
    faults.append("conditional replace (If-Match) accepted an old version")


def _must_refuse_gone(store: ObjectStore, key: str, faults: list[str]) -> None:
    last = store.get(key).info.version
    store.delete(key)
    try:
        store.put(key, b"sixth", if_version=last)
    except PreconditionFailed:
        return
    faults.append("conditional replace (If-Match) wrote an object that was deleted")
