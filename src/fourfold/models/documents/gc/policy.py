"""The gc policy of a space.

A space without a policy keeps everything. The policy is stored in the database of the space, so it
is copied with it, and visible to everyone who opens it.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from fourfold.errors import CorruptData, InvalidInput
from fourfold.kernel import Transaction
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.snapshots import Retention, check_retention

GC_BLOB_AGE_S: Final = 24 * 3_600.0
"""Minimum age of a blob since it was last put before gc removes it: its writer needs time
to commit the reference.
"""


class GcPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules for what gc may remove; everything else stays.

    `keep_seqs` and `keep_seconds` set the horizon: this many newest seqs, and the states of this
    many last seconds, stay readable; with both, whatever either of them keeps. With neither, no
    history is removed.
    """

    keep_seqs: int | None = None
    keep_seconds: float | None = None
    pins: tuple[int, ...] = ()
    """Seqs at which every branch stays readable, however old they are."""
    requests: bool = True
    """True if commits below the horizon keep only a digest of their request, which still
    distinguishes a repeated request from another one under its name.
    """
    snapshots: Retention = "all"
    """Derived snapshots to retain; see `Space.maintain`."""
    blobs: bool = False
    """True to remove blobs that no readable state mentions and whose metadata was deleted."""
    blob_age_s: float = GC_BLOB_AGE_S
    """Seconds for which a new blob stays, even without a reference."""


def checked(policy: GcPolicy) -> GcPolicy:
    """Return the policy; raise InvalidInput if it makes no sense."""
    if not isinstance(policy, GcPolicy):
        raise InvalidInput(f"{policy!r:.60} is not a GcPolicy")
    seqs, seconds, age = policy.keep_seqs, policy.keep_seconds, policy.blob_age_s
    if seqs is not None and (type(seqs) is not int or seqs < 1):
        raise InvalidInput(f"keep_seqs {seqs!r} is not a whole number from 1 on")
    if seconds is not None and not _duration(seconds):
        raise InvalidInput(f"keep_seconds {seconds!r} is not a number of seconds")
    if not _duration(age):
        raise InvalidInput(f"blob_age_s {age!r} is not a number of seconds")
    pins = policy.pins
    if not isinstance(pins, list | tuple) or any(type(pin) is not int or pin < 0 for pin in pins):
        raise InvalidInput(f"the pins {pins!r:.60} are not seqs")
    if type(policy.requests) is not bool or type(policy.blobs) is not bool:
        raise InvalidInput("requests and blobs of a policy are True or False")
    check_retention(policy.snapshots)
    return msgspec.structs.replace(policy, pins=tuple(sorted(set(pins))))


def _duration(seconds: object) -> bool:
    return type(seconds) in (int, float) and math.isfinite(seconds) and seconds >= 0  # type: ignore[arg-type,operator]


def stored(view: HistoryReader) -> GcPolicy | None:
    """Return the policy of the space; None if gc is off."""
    text = view.value(view.sql.gc_policy)
    if text is None:
        return None
    try:
        return checked(msgspec.json.decode(text, type=GcPolicy))
    except (msgspec.MsgspecError, InvalidInput) as error:
        raise CorruptData(f"the policy for collections cannot be read: {error}") from error


def store(txn: Transaction, view: HistoryReader, policy: GcPolicy | None) -> None:
    """Store a policy, or delete it if it is None; then gc is off."""
    if policy is None:
        txn.execute(view.sql.drop_gc_policy)
    else:
        txn.execute(view.sql.set_gc_policy, (trusted(policy),))
