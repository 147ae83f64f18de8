"""Wakes and leases of subscriptions. Every function runs in one transaction or in part of one.

    idle ──issue──> announced ──(claim)──> held ──ack, done──> idle
                        ^                    │
                        └── lease expires ───┘

Each wake has a generation greater than that of any earlier wake. Requests with an older generation,
or after the lease expired, are fenced: two workers never both move a cursor.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.errors import (
    AckRefused,
    AlreadyClaimed,
    FourfoldError,
    InvalidInput,
    NothingPending,
    WakeFenced,
)
from fourfold.kernel import Transaction
from fourfold.models.streams import validation
from fourfold.models.streams.append import Append, Appender
from fourfold.models.streams.subscriptions.members import SQL, find, link_arrivals
from fourfold.models.streams.subscriptions.records import Ack, Kind, Link, Subscription, Wake
from fourfold.models.streams.writer import StreamClock
from fourfold.retry import pause_after

WEBHOOK_RETRY_S: Final = 1.0
WEBHOOK_RETRY_MAX_S: Final = 60.0
"""Pause before the second attempt; it doubles with each failure, up to the maximum."""
WEBHOOK_JITTER: Final = 0.2
"""Random share of a pause, so that receivers that failed together are retried apart."""


class Fence(NamedTuple):
    """The proof of a worker: its wake, and the generation that its token was issued for."""

    wake_id: str
    generation: int
    token_generation: int


def pause_ms(failures: int, chance: float) -> int:
    """Return the delay before a retry after `failures`; `chance`, from 0 to 1, adds jitter."""
    base = pause_after(failures + 1, WEBHOOK_RETRY_S, WEBHOOK_RETRY_MAX_S)
    return round(1000 * base * (1 + WEBHOOK_JITTER * (2 * chance - 1)))


def reconcile(txn: Transaction, now: StreamClock, chance: float) -> set[str]:
    """Link new streams, end expired leases, issue wakes and write them to wake streams.

    Returns the names of the streams that were written to.
    """
    link_arrivals(txn)
    for (subscription_id,) in txn.all(SQL.leases_over, (now.ms, limits.SUBSCRIPTION_BATCH)):
        _end(txn, find(txn, subscription_id))
    for (subscription_id,) in txn.all(SQL.idle_with_work, (limits.SUBSCRIPTION_BATCH,)):
        _issue(txn, find(txn, subscription_id), now)
    written: set[str] = set()
    due = txn.all(SQL.attempts, ("pull-wake", now.ms, limits.SUBSCRIPTION_BATCH))
    for (subscription_id,) in due:
        subscription = find(txn, subscription_id)
        wake_stream = subscription.wake_stream
        if wake_stream is not None and _announce(txn, subscription, wake_stream, now, chance):
            written.add(wake_stream)
    return written


def claim(txn: Transaction, subscription_id: str, worker: str, now: StreamClock) -> Wake:
    """Claim the lease of a pull-wake subscription that has pending records.

    Raises:
        AlreadyClaimed: another worker holds the lease.
        NothingPending: there is no work.
    """
    subscription = _of_kind(txn, subscription_id, "pull-wake")
    link_arrivals(txn)
    subscription = _end_expired_lease(txn, subscription, now)
    if subscription.holder is not None:
        raise AlreadyClaimed(
            f"subscription {subscription.id!r} is held by {subscription.holder!r}",
            details={"current_holder": subscription.holder, "generation": subscription.generation},
        )
    pending = _pending(txn, subscription)
    if not pending:
        raise NothingPending(f"subscription {subscription.id!r} has nothing pending")
    if subscription.wake_id is None:
        subscription = _issue(txn, subscription, now)
    txn.execute(SQL.hold, (subscription.sub, worker, now.ms + subscription.lease_ttl_ms))
    assert subscription.wake_id is not None
    return Wake(find(txn, subscription.id), subscription.wake_id, subscription.generation, pending)


def acknowledge(
    txn: Transaction,
    subscription_id: str,
    fence: Fence,
    acks: Sequence[Ack],
    now: StreamClock,
    *,
    kind: Kind,
    done: bool,
) -> bool:
    """Move cursors, and extend the lease or, with `done`, release it.

    Returns True if more is pending, so that a new wake was issued.
    """
    subscription = _fenced(txn, subscription_id, kind, fence, now)
    for link, offset in [_check_ack(txn, subscription, ack) for ack in acks]:
        txn.execute(SQL.ack, (subscription.sub, link.stream, offset, link.tail))
    if not done:
        txn.execute(SQL.prolong, (subscription.sub, now.ms + subscription.lease_ttl_ms))
        return False
    return _end_and_reissue(txn, subscription, now)


def release(txn: Transaction, subscription_id: str, fence: Fence, now: StreamClock) -> None:
    """Release the lease without moving cursors; pending records issue a new wake."""
    subscription = _fenced(txn, subscription_id, "pull-wake", fence, now)
    _end_and_reissue(txn, subscription, now)


def attempt(txn: Transaction, subscription_id: str, now: StreamClock) -> Wake | None:
    """Return the wake to send to a webhook now, or None if there is none.

    A wake whose lease expired before it was sent is issued again.
    """
    row = txn.one(SQL.by_id, (subscription_id,))
    if row is None:
        return None
    subscription = Subscription._make(row)
    if (
        subscription.wake_id is None
        or subscription.next_attempt_ms is None
        or subscription.next_attempt_ms > now.ms
    ):
        return None
    if subscription.lease_until_ms is not None and subscription.lease_until_ms <= now.ms:
        _end(txn, subscription)
        if not _pending(txn, subscription):
            return None
        subscription = _issue(txn, subscription, now)
    rows = txn.all(SQL.announced_links, (subscription.sub,))
    assert subscription.wake_id is not None
    streams = tuple(Link(row[0], bool(row[1]), *row[2:]) for row in rows)
    return Wake(subscription, subscription.wake_id, subscription.generation, streams)


def delivered(txn: Transaction, wake: Wake, now: StreamClock, *, done: bool) -> None:
    """Record that a webhook accepted a wake.

    With `done` all its records are acknowledged; otherwise the webhook has until the end of the
    lease to acknowledge them.
    """
    subscription = _current(txn, wake)
    if subscription is None:
        return
    params = (subscription.sub, wake.generation, now.ms + subscription.lease_ttl_ms)
    txn.execute(SQL.announced, params)
    if done:
        txn.execute(SQL.ack_announced, (subscription.sub,))
        _end_and_reissue(txn, subscription, now)


def failed(txn: Transaction, wake: Wake, now: StreamClock, chance: float) -> None:
    """Record that a webhook call failed, and schedule a retry."""
    subscription = _current(txn, wake)
    if subscription is not None and subscription.next_attempt_ms is not None:
        later = now.ms + pause_ms(subscription.failures, chance)
        txn.execute(SQL.failed, (subscription.sub, wake.generation, later))


def _current(txn: Transaction, wake: Wake) -> Subscription | None:
    row = txn.one(SQL.by_id, (wake.subscription.id,))
    subscription = None if row is None else Subscription._make(row)
    if subscription is None or (subscription.wake_id, subscription.generation) != (
        wake.wake_id,
        wake.generation,
    ):
        # It was acknowledged meanwhile, or a newer wake replaced it.
        return None
    return subscription


def _of_kind(txn: Transaction, subscription_id: str, kind: Kind) -> Subscription:
    subscription = find(txn, subscription_id)
    if subscription.kind != kind:
        raise InvalidInput(
            f"subscription {subscription.id!r}: type must be {kind}, got {subscription.kind}"
        )
    return subscription


def _fenced(
    txn: Transaction, subscription_id: str, kind: Kind, fence: Fence, now: StreamClock
) -> Subscription:
    subscription = _of_kind(txn, subscription_id, kind)
    proof = (fence.wake_id, fence.generation, fence.token_generation)
    is_expired = subscription.lease_until_ms is None or subscription.lease_until_ms <= now.ms
    if (
        proof != (subscription.wake_id, subscription.generation, subscription.generation)
        or is_expired
    ):
        raise WakeFenced(
            f"subscription {subscription.id!r}: wake {fence.generation} has ended, the current "
            f"wake is {subscription.generation}",
            details={"generation": subscription.generation},
        )
    return subscription


def _end_expired_lease(
    txn: Transaction, subscription: Subscription, now: StreamClock
) -> Subscription:
    if subscription.lease_until_ms is None or subscription.lease_until_ms > now.ms:
        return subscription
    _end(txn, subscription)
    return find(txn, subscription.id)


def _check_ack(txn: Transaction, subscription: Subscription, ack: Ack) -> tuple[Link, int]:
    row = txn.one(
        SQL.one_link, (subscription.sub, validation.check_storable(ack.stream.strip("/")))
    )
    if row is None:
        raise AckRefused(
            f"subscription {subscription.id!r} does not follow stream {ack.stream!r:.200}"
        )
    link = Link(row[0], bool(row[1]), *row[2:])
    offset = None
    if ack.offset not in {validation.START, validation.NOW}:
        try:
            offset = validation.parse_offset(ack.offset)
        except InvalidInput as error:
            raise AckRefused(error.message) from None
    if offset is None or not _is_between(link, offset):
        number = link.incarnation_number
        raise AckRefused(
            f"stream {link.stream!r}: offset must be from the cursor "
            f"{validation.format_offset(link.acked, number)} to the end "
            f"{validation.format_offset(link.tail, number)}, got {ack.offset!r:.80}"
        )
    return link, offset.record


def _is_between(link: Link, offset: validation.Offset) -> bool:
    """Return True if an offset belongs to the current stream and is not before the cursor."""
    is_current = offset.incarnation_number == link.incarnation_number or offset.is_start
    return is_current and link.acked <= offset.record <= link.tail


def _pending(txn: Transaction, subscription: Subscription) -> tuple[Link, ...]:
    rows = txn.all(SQL.pending_links, (subscription.sub, limits.SUBSCRIPTION_STREAMS_MAX))
    return tuple(Link(row[0], bool(row[1]), *row[2:]) for row in rows)


def _issue(txn: Transaction, subscription: Subscription, now: StreamClock) -> Subscription:
    """Issue a wake with the next generation for all pending records."""
    txn.execute(SQL.clear_announced, (subscription.sub,))
    for link in _pending(txn, subscription):
        txn.execute(SQL.set_announced, (subscription.sub, link.stream, link.tail))
    txn.execute(SQL.next_generation)
    generation = int(txn.value(SQL.last_generation))
    # The lease of a webhook begins with its wake, that of a pull-wake with the claim.
    lease = now.ms + subscription.lease_ttl_ms if subscription.kind == "webhook" else None
    wake_id = f"w_{secrets.token_hex(12)}"
    txn.execute(SQL.wake, (subscription.sub, generation, wake_id, lease, now.ms))
    return find(txn, subscription.id)


def _announce(
    txn: Transaction, subscription: Subscription, wake_stream: str, now: StreamClock, chance: float
) -> bool:
    """Write a wake to its stream, or schedule a retry if that fails; True if written."""
    links = txn.all(SQL.announced_links, (subscription.sub,))
    event = {
        "type": "wake",
        "subscription_id": subscription.id,
        "stream": links[0][0] if links else "",
        "generation": subscription.generation,
        "ts": now.ms,
    }
    request = Append([json.dumps(event).encode()], validation.JSON)
    outcome = Appender().append(txn, [(wake_stream, request)], now)[0]
    if isinstance(outcome, FourfoldError):
        # Nothing was written. It is recorded as failed, and workers can claim it all the same.
        later = now.ms + pause_ms(subscription.failures, chance)
        txn.execute(SQL.failed, (subscription.sub, subscription.generation, later))
        return False
    txn.execute(SQL.announced, (subscription.sub, subscription.generation, None))
    return True


def _end(txn: Transaction, subscription: Subscription) -> None:
    txn.execute(SQL.clear_announced, (subscription.sub,))
    txn.execute(SQL.idle, (subscription.sub,))


def _end_and_reissue(txn: Transaction, subscription: Subscription, now: StreamClock) -> bool:
    _end(txn, subscription)
    link_arrivals(txn)
    if not _pending(txn, subscription):
        return False
    _issue(txn, subscription, now)
    return True
