"""Wakes: who is told of work, who holds it, and what is done with it. Every function is the work
of one transaction, or a part of it.

    idle ──issue──> told ──(claim)──> held ──ack, done──> idle
                      ^                  │
                      └── lease is over ─┘

Each wake has a number that is larger than that of any wake before. What is said under an older
number, or after the lease is over, is refused: two workers never both move a cursor.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import NamedTuple

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
from fourfold.models.streams.subscriptions.members import SQL, find, settle_arrivals
from fourfold.models.streams.subscriptions.records import Ack, Kind, Link, Subscription, Wake
from fourfold.models.streams.writer import StreamClock


class Fence(NamedTuple):
    """What a worker shows: the wake that it was given, and the number that its token was made
    for.
    """

    wake_id: str
    generation: int
    token_generation: int


def pause_ms(failures: int, chance: float) -> int:
    """How long to wait after so many failures; `chance`, from 0 to 1, spreads it."""
    base = min(limits.WEBHOOK_RETRY_S * 2.0 ** min(failures, 30), limits.WEBHOOK_RETRY_MAX_S)
    return round(1000 * base * (1 + limits.WEBHOOK_JITTER * (2 * chance - 1)))


def settle(txn: Transaction, now: StreamClock, chance: float) -> set[str]:
    """Do what is due: link new streams, take back leases that are over, issue wakes for what is
    pending, and tell those that wait for it in a stream. The streams that were written to.
    """
    settle_arrivals(txn)
    for (subscription_id,) in txn.all(SQL.leases_over, (now.ms, limits.SUBSCRIPTION_BATCH)):
        _end(txn, find(txn, subscription_id))
    for (subscription_id,) in txn.all(SQL.idle_with_work, (limits.SUBSCRIPTION_BATCH,)):
        _issue(txn, find(txn, subscription_id), now)
    told: set[str] = set()
    due = txn.all(SQL.attempts, ("pull-wake", now.ms, limits.SUBSCRIPTION_BATCH))
    for (subscription_id,) in due:
        found = find(txn, subscription_id)
        if found.wake_stream is not None and _tell(txn, found, found.wake_stream, now, chance):
            told.add(found.wake_stream)
    return told


def claim(txn: Transaction, subscription_id: str, worker: str, now: StreamClock) -> Wake:
    """Take the lease of a pull-wake subscription that has work."""
    found = _of_kind(txn, subscription_id, "pull-wake")
    settle_arrivals(txn)
    found = _without_old_lease(txn, found, now)
    if found.holder is not None:
        raise AlreadyClaimed(
            f"{found.holder!r} holds the subscription {found.id!r}",
            details={"current_holder": found.holder, "generation": found.generation},
        )
    pending = _pending(txn, found)
    if not pending:
        raise NothingPending(f"the subscription {found.id!r} has nothing pending")
    if found.wake_id is None:
        found = _issue(txn, found, now)
    txn.execute(SQL.hold, (found.sub, worker, now.ms + found.lease_ttl_ms))
    assert found.wake_id is not None
    return Wake(find(txn, found.id), found.wake_id, found.generation, pending)


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
    """Move cursors on, and keep the lease or, when all is done, give it back. Whether there was
    more, so that a new wake was issued.
    """
    found = _fenced(txn, subscription_id, kind, fence, now)
    for link, offset in [_acked(txn, found, ack) for ack in acks]:
        txn.execute(SQL.ack, (found.sub, link.stream, offset, link.tail))
    if not done:
        txn.execute(SQL.prolong, (found.sub, now.ms + found.lease_ttl_ms))
        return False
    return _end_and_go_on(txn, found, now)


def release(txn: Transaction, subscription_id: str, fence: Fence, now: StreamClock) -> None:
    """Give the lease back without having done anything; what is pending wakes somebody again."""
    found = _fenced(txn, subscription_id, "pull-wake", fence, now)
    _end_and_go_on(txn, found, now)


def attempt(txn: Transaction, subscription_id: str, now: StreamClock) -> Wake | None:
    """The wake that a webhook is to be told of now; None when there is none any more. A wake whose
    lease ended before it could be told is issued anew.
    """
    row = txn.one(SQL.by_id, (subscription_id,))
    if row is None:
        return None
    found = Subscription._make(row)
    if found.wake_id is None or found.next_attempt_ms is None or found.next_attempt_ms > now.ms:
        return None
    if found.lease_until_ms is not None and found.lease_until_ms <= now.ms:
        _end(txn, found)
        if not _pending(txn, found):
            return None
        found = _issue(txn, found, now)
    told = txn.all(SQL.told_links, (found.sub,))
    assert found.wake_id is not None
    streams = tuple(Link(row[0], bool(row[1]), *row[2:]) for row in told)
    return Wake(found, found.wake_id, found.generation, streams)


def delivered(txn: Transaction, wake: Wake, now: StreamClock, *, done: bool) -> None:
    """A webhook answered. With `done` everything that it was told of was worked on; without, it
    has as long as its lease to say so.
    """
    found = _current(txn, wake)
    if found is None:
        return
    params = (found.sub, wake.generation, now.ms + found.lease_ttl_ms)
    txn.execute(SQL.told, params)
    if done:
        txn.execute(SQL.ack_told, (found.sub,))
        _end_and_go_on(txn, found, now)


def failed(txn: Transaction, wake: Wake, now: StreamClock, chance: float) -> None:
    """A webhook did not answer, or not well: it is told again later."""
    found = _current(txn, wake)
    if found is not None and found.next_attempt_ms is not None:
        later = now.ms + pause_ms(found.failures, chance)
        txn.execute(SQL.failed, (found.sub, wake.generation, later))


def _current(txn: Transaction, wake: Wake) -> Subscription | None:
    row = txn.one(SQL.by_id, (wake.subscription.id,))
    found = None if row is None else Subscription._make(row)
    if found is None or (found.wake_id, found.generation) != (wake.wake_id, wake.generation):
        # It was acknowledged meanwhile, or another wake took its place.
        return None
    return found


def _of_kind(txn: Transaction, subscription_id: str, kind: Kind) -> Subscription:
    found = find(txn, subscription_id)
    if found.kind != kind:
        raise InvalidInput(f"the subscription {found.id!r} is of the type {found.kind}")
    return found


def _fenced(
    txn: Transaction, subscription_id: str, kind: Kind, fence: Fence, now: StreamClock
) -> Subscription:
    found = _of_kind(txn, subscription_id, kind)
    shown = (fence.wake_id, fence.generation, fence.token_generation)
    over = found.lease_until_ms is None or found.lease_until_ms <= now.ms
    if shown != (found.wake_id, found.generation, found.generation) or over:
        raise WakeFenced(
            f"the subscription {found.id!r} is at wake {found.generation}; "
            f"wake {fence.generation} is over",
            details={"generation": found.generation},
        )
    return found


def _without_old_lease(txn: Transaction, found: Subscription, now: StreamClock) -> Subscription:
    if found.lease_until_ms is None or found.lease_until_ms > now.ms:
        return found
    _end(txn, found)
    return find(txn, found.id)


def _acked(txn: Transaction, found: Subscription, ack: Ack) -> tuple[Link, int]:
    row = txn.one(SQL.one_link, (found.sub, validation.stored(ack.stream.strip("/"))))
    if row is None:
        raise AckRefused(f"the subscription {found.id!r} does not follow {ack.stream!r:.200}")
    link = Link(row[0], bool(row[1]), *row[2:])
    offset = None
    if ack.offset not in {validation.START, validation.NOW}:
        try:
            offset = validation.read_offset(ack.offset)
        except InvalidInput as error:
            raise AckRefused(error.message) from None
    if offset is None or not _is_between(link, offset):
        number = link.incarnation_number
        raise AckRefused(
            f"{ack.offset!r:.80} is not between {validation.show_offset(link.acked, number)} and "
            f"{validation.show_offset(link.tail, number)}, the cursor and the end of "
            f"{link.stream!r}"
        )
    return link, offset.record


def _is_between(link: Link, offset: validation.Offset) -> bool:
    """Return True if an offset is of the stream that there is now, and not before the cursor."""
    is_current = offset.incarnation_number == link.incarnation_number or offset.is_start
    return is_current and link.acked <= offset.record <= link.tail


def _pending(txn: Transaction, found: Subscription) -> tuple[Link, ...]:
    rows = txn.all(SQL.pending_links, (found.sub, limits.SUBSCRIPTION_STREAMS_MAX))
    return tuple(Link(row[0], bool(row[1]), *row[2:]) for row in rows)


def _issue(txn: Transaction, found: Subscription, now: StreamClock) -> Subscription:
    """A new wake with the next number, which tells of everything that is pending."""
    txn.execute(SQL.untell, (found.sub,))
    for link in _pending(txn, found):
        txn.execute(SQL.tell, (found.sub, link.stream, link.tail))
    txn.execute(SQL.next_generation)
    generation = int(txn.value(SQL.last_generation))
    # A webhook's lease begins with its wake, another's when somebody claims it.
    lease = now.ms + found.lease_ttl_ms if found.kind == "webhook" else None
    wake_id = f"w_{secrets.token_hex(12)}"
    txn.execute(SQL.wake, (found.sub, generation, wake_id, lease, now.ms))
    return find(txn, found.id)


def _tell(
    txn: Transaction, found: Subscription, wake_stream: str, now: StreamClock, chance: float
) -> bool:
    """Write the wake into its stream; later again when that cannot be written."""
    first = txn.all(SQL.told_links, (found.sub,))
    event = {
        "type": "wake",
        "subscription_id": found.id,
        "stream": first[0][0] if first else "",
        "generation": found.generation,
        "ts": now.ms,
    }
    request = Append([json.dumps(event).encode()], validation.JSON)
    outcome = Appender().append(txn, [(wake_stream, request)], now)[0]
    if isinstance(outcome, FourfoldError):
        # Nothing was written. It shows as failed, and whoever asks can claim all the same.
        later = now.ms + pause_ms(found.failures, chance)
        txn.execute(SQL.failed, (found.sub, found.generation, later))
        return False
    txn.execute(SQL.told, (found.sub, found.generation, None))
    return True


def _end(txn: Transaction, found: Subscription) -> None:
    txn.execute(SQL.untell, (found.sub,))
    txn.execute(SQL.idle, (found.sub,))


def _end_and_go_on(txn: Transaction, found: Subscription, now: StreamClock) -> bool:
    _end(txn, found)
    settle_arrivals(txn)
    if not _pending(txn, found):
        return False
    _issue(txn, found, now)
    return True
