"""Leases of sessions: the right of one worker to write, for a limited time.

    claim = sessions.claim("s-1", "worker-7")
    sessions.append_events("s-1", events, epoch=claim.epoch)

Each claim gets a new epoch, greater than all earlier ones of the session. A write with an epoch is
refused inside its transaction unless the epoch is that of the current lease, so a worker that was
suspended writes nothing after another one has claimed the session. Epochs are compared, never names
of holders. Expiry alone changes nothing: until the next claim, the holder can write and renew.

An epoch is at least the time of its claim in milliseconds. So epochs also grow where earlier ones
are unknown: after a restore of an older state, or in another store with a copy of the session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import AlreadyClaimed, InvalidInput, LeaseLost, Refused
from fourfold.models.sessions.fold import FoldState
from fourfold.models.sessions.log import LeaseRow, LogReader, LogWriter, SessionRow
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import Claim, Resumption
from fourfold.models.sessions.request import check_time

SESSION_LEASE_S_MAX: Final = 86_400.0
"""Longest time that a claim or a renewal lasts."""
OWNERSHIP: Final = "ownership"
"""The field of a session that states whether writes need an epoch."""
REQUIRED: Final = "required"
RUNNING: Final = "running"
"""Status of a turn that has not ended."""
RESUMPTIONS_MAX: Final = 100
"""Newest resumptions of a session that are stored."""


class LeaseRequest:
    """A request about a lease, checked, at one time."""

    __slots__ = ("epoch", "holder", "now_ms", "sid", "until_ms")

    def __init__(
        self, now_ms: int, sid: str, *, holder: str = "", epoch: int = 0, ttl_s: float = 0.0
    ) -> None:
        self.sid = sid
        self.holder = holder
        self.epoch = epoch
        self.now_ms = now_ms
        self.until_ms = now_ms + math.ceil(ttl_s * 1_000)

    def grant(self, writing: LogWriter, *, steal: bool) -> Claim:
        """Give the holder a lease with a new epoch, unless another one is in force."""
        row = existing(writing, self.sid)
        lease = writing.lease(row.key)
        if lease is not None and not steal and _is_in_force(lease, self.now_ms):
            raise AlreadyClaimed(
                f"session {self.sid!r} is claimed by {lease.holder!r} until {_time(lease)}",
                hint="Wait until the lease is released or expires, or claim with steal=True.",
                retry_after=(lease.until_ms - self.now_ms) / 1_000,
                details={
                    "session": self.sid,
                    "holder": lease.holder,
                    "epoch": lease.epoch,
                    "expires_at": _time(lease),
                },
            )
        epoch = max(self.now_ms, 0 if lease is None else lease.epoch + 1)
        resumed = "[]" if lease is None else lease.resumed
        summary = writing.summary(row.key)
        if summary.turn_status == RUNNING:
            resumption = (summary.last_event, epoch, self.holder, self.now_ms)
            resumed = encode_rows([*decode_rows(resumed), resumption][-RESUMPTIONS_MAX:])
        granted = LeaseRow(row.key, epoch, self.holder, self.until_ms, resumed)
        writing.put_lease(granted)
        return to_claim(self.sid, granted)

    def extend(self, writing: LogWriter) -> Claim:
        """Let the lease of this epoch last longer; never shorten it."""
        row = existing(writing, self.sid)
        lease = check_epoch(writing, row, self.epoch)
        extended = lease._replace(until_ms=max(lease.until_ms, self.until_ms))
        writing.extend_lease(row.key, extended.until_ms)
        return to_claim(self.sid, extended)

    def end(self, writing: LogWriter) -> None:
        """End the lease of this epoch; one that was released stays so."""
        row = existing(writing, self.sid)
        lease = writing.lease(row.key)
        if lease is not None and lease.epoch == self.epoch and lease.holder is None:
            return
        lease = check_epoch(writing, row, self.epoch)
        writing.put_lease(lease._replace(holder=None, until_ms=min(lease.until_ms, self.now_ms)))


def resumptions_of(lease: LeaseRow | None) -> list[Resumption]:
    """Return the claims of a session while a turn was running, oldest first."""
    rows = [] if lease is None else decode_rows(lease.resumed)
    return [
        Resumption(event, epoch, holder, _time_of(at_ms)) for event, epoch, holder, at_ms in rows
    ]


def encode_rows(rows: list[tuple[int, int, str, int]]) -> str:
    """Return resumptions as they are stored."""
    return msgspec.json.encode(rows).decode()


def decode_rows(text: str) -> list[tuple[int, int, str, int]]:
    """Return stored resumptions."""
    return msgspec.json.decode(text, type=list[tuple[int, int, str, int]])


def check_writer(
    reading: LogReader,
    row: SessionRow,
    state: FoldState,
    epoch: int | None,
    lease_of: str | None = None,
) -> None:
    """Raise unless a write with this epoch, or without one, is allowed now.

    The epoch is that of a lease of the session, or of `lease_of`.
    """
    if epoch is not None:
        check_epoch(reading, row if lease_of is None else existing(reading, lease_of), epoch)
    if epoch is not None and lease_of is None:
        return
    if state.session is not None and state.session.get(OWNERSHIP) == REQUIRED:
        shown = "none" if lease_of is None else f"one of session {lease_of!r}"
        raise Refused(
            f"session {row.id!r}: writes require an epoch, got {shown}",
            hint="Claim the session, and pass the epoch of the claim with each write.",
            details={"session": row.id},
        )


def check_epoch(reading: LogReader, row: SessionRow, epoch: int) -> LeaseRow:
    """Return the lease of a session; raise LeaseLost if it is not the one of this epoch."""
    lease = reading.lease(row.key)
    if lease is not None and lease.epoch == epoch and lease.holder is not None:
        return lease
    details: dict[str, object] = {"session": row.id, "epoch": epoch, "current": None}
    if lease is None:
        problem = "it has none"
    elif lease.holder is None:
        problem, details["current"] = "the newest one was released", lease.epoch
    else:
        problem, details["current"] = f"{lease.holder!r} has claimed it", lease.epoch
        details["holder"] = lease.holder
    raise LeaseLost(f"session {row.id!r}: no lease of epoch {epoch}, {problem}", details=details)


def check_ownership(fields: Mapping[str, Any]) -> None:
    """Raise for a session with another ownership than `required` or `optional`."""
    if OWNERSHIP in fields and fields[OWNERSHIP] not in {REQUIRED, "optional"}:
        raise InvalidInput(
            f"ownership must be 'required' or 'optional', got {fields[OWNERSHIP]!r:.100}"
        )


def to_claim(sid: str, lease: LeaseRow) -> Claim:
    """Return a lease that was not released as callers receive it."""
    assert lease.holder is not None
    return Claim(sid, lease.epoch, lease.holder, _time(lease))


def _is_in_force(lease: LeaseRow, now_ms: int) -> bool:
    return lease.holder is not None and lease.until_ms > now_ms


def _time(lease: LeaseRow) -> str:
    return _time_of(lease.until_ms)


def _time_of(time_ms: int) -> str:
    return check_time(datetime.fromtimestamp(time_ms / 1_000, UTC))


def check_holder(holder: str) -> str:
    """Return the name of a holder; raise InvalidInput if it is not one."""
    if not isinstance(holder, str) or not 0 < len(holder) <= limits.SESSION_ID_CHARS_MAX:
        raise InvalidInput(
            f"holder must be a text of 1 to {limits.SESSION_ID_CHARS_MAX} characters, "
            f"got {holder!r:.100}"
        )
    if not holder.isprintable():
        raise InvalidInput(f"holder must be printable, got {holder!r:.100}")
    return holder


def check_ttl(ttl_s: float) -> float:
    """Return the duration of a lease; raise InvalidInput if it is not one."""
    if type(ttl_s) not in {int, float} or not 0 < ttl_s <= SESSION_LEASE_S_MAX:
        raise InvalidInput(
            f"ttl_s must be a number of seconds up to {SESSION_LEASE_S_MAX:.0f}, got {ttl_s!r:.100}"
        )
    return ttl_s
