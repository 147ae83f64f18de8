"""Subscriptions: wake workers when streams have new records.

    store.streams.subscriptions.create(Subscribe("mail", "pull-wake", "orders/*", wake_stream="w"))
    wake = store.streams.subscriptions.claim("mail", "worker-1")

Everything is stored in the database of the streams: an append marks pending cursors in its own
transaction, so no wake is lost, and leases and generations survive a crash. The server
(`server.webhooks`) calls `reconcile` after commits and when a timer is due.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.kernel import Database, Notifier, ReadTransaction, Transaction
from fourfold.models.streams.subscriptions import leases, members
from fourfold.models.streams.subscriptions.leases import Fence
from fourfold.models.streams.subscriptions.members import SQL
from fourfold.models.streams.subscriptions.records import (
    Ack,
    Due,
    Kind,
    Link,
    Subscribe,
    Subscription,
    Wake,
)
from fourfold.models.streams.validation import check_name
from fourfold.models.streams.writer import StreamClock

_R = TypeVar("_R")
_Work = Callable[[Transaction], _R]


class Subscriptions:
    """The subscriptions of one store."""

    def __init__(
        self, database: Database, now: Callable[[], StreamClock], streams_notifier: Notifier
    ) -> None:
        self._database = database
        self._now = now
        self.streams_notifier = streams_notifier
        """Notified when a stream was written to."""
        self.failure: FourfoldError | None = None
        """Error of the last background run, or None if it succeeded."""
        self.notifier = Notifier()
        """Notified when a subscription changed, so that there may be work."""

    # Subscriptions

    def create(self, request: Subscribe) -> tuple[Subscription, bool]:
        """Create a subscription; return it, and True if it is new.

        Raises:
            AlreadyExists: a subscription of that id has other settings.
        """
        return self._database.transact(self._creating(request))

    async def create_async(self, request: Subscribe) -> tuple[Subscription, bool]:
        """Create a subscription; return it, and True if it is new."""
        return await self._database.transact_async(self._creating(request))

    def _creating(self, request: Subscribe) -> _Work[tuple[Subscription, bool]]:
        checked = members.check(request)
        return self._notifying(lambda txn: members.create(txn, checked, self._now().ms))

    def get(self, subscription_id: str) -> Subscription:
        """Return a subscription, or raise NotFound."""
        with self._database.read_current() as snapshot:
            return members.find(snapshot, subscription_id)

    def links(
        self,
        subscription_id: str,
        *,
        after: str = "",
        limit: int = limits.SUBSCRIPTION_STREAMS_MAX,
    ) -> tuple[Link, ...]:
        """Return the cursors of a subscription in the order of stream names."""
        with self._database.read_current() as snapshot:
            subscription = members.find(snapshot, subscription_id)
            return members.links(snapshot, subscription, after, limit)

    def list(self, *, after: str = "", limit: int = 100) -> tuple[Subscription, ...]:
        """Return at most `limit` subscriptions after an id, in the order of ids."""
        with self._database.read_current() as snapshot:
            rows = snapshot.all(SQL.page, (after, limit))
            return tuple(Subscription._make(row) for row in rows)

    def count(self, stream: str | None = None) -> int:
        """Count all subscriptions, or those that follow one stream."""
        with self._database.read_current() as snapshot:
            return count(snapshot, stream)

    async def delete_async(self, subscription_id: str) -> bool:
        """Delete a subscription; return False if there was none."""
        return await self._database.transact_async(self._deleting(subscription_id))

    def delete(self, subscription_id: str) -> bool:
        """Delete a subscription; return False if there was none."""
        return self._database.transact(self._deleting(subscription_id))

    def _deleting(self, subscription_id: str) -> _Work[bool]:
        return self._notifying(lambda txn: members.delete(txn, subscription_id))

    def add_streams(self, subscription_id: str, streams: Sequence[str]) -> None:
        """Follow more streams by name, from their current end."""
        self._database.transact(self._adding(subscription_id, streams))

    async def add_streams_async(self, subscription_id: str, streams: Sequence[str]) -> None:
        """Follow more streams by name, from their current end."""
        await self._database.transact_async(self._adding(subscription_id, streams))

    def _adding(self, subscription_id: str, streams: Sequence[str]) -> _Work[None]:
        checked = members.check_streams(streams)
        if not checked:
            raise InvalidInput("streams must contain at least one name")

        def work(txn: Transaction) -> None:
            members.add_streams(txn, members.find(txn, subscription_id), checked)

        return self._notifying(work)

    def remove_stream(self, subscription_id: str, stream: str) -> None:
        """Stop following a stream by name."""
        self._database.transact(self._removing(subscription_id, stream))

    async def remove_stream_async(self, subscription_id: str, stream: str) -> None:
        """Stop following a stream by name."""
        await self._database.transact_async(self._removing(subscription_id, stream))

    def _removing(self, subscription_id: str, stream: str) -> _Work[None]:
        name = check_name(stream.strip("/"))

        def work(txn: Transaction) -> None:
            members.remove_stream(txn, members.find(txn, subscription_id), name)

        return work

    # Workers

    def claim(self, subscription_id: str, worker: str) -> Wake:
        """Claim the lease of a pull-wake subscription that has pending records.

        Raises:
            AlreadyClaimed: another worker holds the lease.
            NothingPending: there is no work.
        """
        return self._database.transact(self._claiming(subscription_id, worker))

    async def claim_async(self, subscription_id: str, worker: str) -> Wake:
        """Claim the lease of a pull-wake subscription that has pending records."""
        return await self._database.transact_async(self._claiming(subscription_id, worker))

    def _claiming(self, subscription_id: str, worker: str) -> _Work[Wake]:
        if not 0 < len(worker) <= limits.SUBSCRIPTION_TEXT_MAX or not worker.isprintable():
            raise InvalidInput(
                f"worker name must be printable text of 1 to {limits.SUBSCRIPTION_TEXT_MAX} "
                f"characters, got {worker!r:.80}"
            )
        return self._notifying(lambda txn: leases.claim(txn, subscription_id, worker, self._now()))

    def acknowledge(
        self,
        subscription_id: str,
        wake: Wake | Fence,
        acks: Sequence[Ack] = (),
        *,
        kind: Kind = "pull-wake",
        done: bool = False,
    ) -> bool:
        """Move cursors, and extend the lease or, with `done`, release it.

        `wake` is the result of `claim`. Returns True if more is pending, so that a new wake was
        issued.
        """
        return self._database.transact(
            self._acknowledging(subscription_id, kind, wake, acks, done=done)
        )

    async def acknowledge_async(
        self,
        subscription_id: str,
        wake: Wake | Fence,
        acks: Sequence[Ack] = (),
        *,
        kind: Kind = "pull-wake",
        done: bool = False,
    ) -> bool:
        """Move cursors, and extend the lease or, with `done`, release it."""
        return await self._database.transact_async(
            self._acknowledging(subscription_id, kind, wake, acks, done=done)
        )

    def _acknowledging(
        self,
        subscription_id: str,
        kind: Kind,
        wake: Wake | Fence,
        acks: Sequence[Ack],
        *,
        done: bool,
    ) -> _Work[bool]:
        fence = _fence(wake)
        if len(acks) > limits.SUBSCRIPTION_STREAMS_MAX:
            raise InvalidInput(
                f"acks must be at most {limits.SUBSCRIPTION_STREAMS_MAX} streams, got {len(acks)}"
            )

        def work(txn: Transaction) -> bool:
            now = self._now()
            return leases.acknowledge(txn, subscription_id, fence, acks, now, kind=kind, done=done)

        return self._notifying(work)

    def release(self, subscription_id: str, wake: Wake | Fence) -> None:
        """Release the lease; pending records issue a new wake."""
        self._database.transact(self._releasing(subscription_id, wake))

    async def release_async(self, subscription_id: str, wake: Wake | Fence) -> None:
        """Release the lease; pending records issue a new wake."""
        await self._database.transact_async(self._releasing(subscription_id, wake))

    def _releasing(self, subscription_id: str, wake: Wake | Fence) -> _Work[None]:
        fence = _fence(wake)
        return self._notifying(lambda txn: leases.release(txn, subscription_id, fence, self._now()))

    # Delivery

    def due(self) -> Due:
        """Return whether `reconcile` has work now, and when the next timer is due."""
        now = self._now().ms
        with self._database.read() as snapshot:
            waiting = (
                snapshot.value(SQL.any_arrival) is not None
                or snapshot.one(SQL.leases_over, (now, 1)) is not None
                or snapshot.one(SQL.idle_with_work, (1,)) is not None
                or snapshot.one(SQL.attempts, ("pull-wake", now, 1)) is not None
            )
            return Due(waiting, snapshot.value(SQL.next_time))

    def reconcile(self) -> None:
        """Link new streams, end expired leases, and issue and announce wakes."""

        def work(txn: Transaction) -> None:
            if written := leases.reconcile(txn, self._now(), _chance()):
                self.streams_notifier.notify_on_commit(txn, written)

        self._database.transact(work)

    def webhooks(self, per_owner: int) -> tuple[tuple[str, str], ...]:
        """Return (subscription id, owner prefix) of webhooks to call now, the owners in turn.

        At most `per_owner` of each owner.
        """
        with self._database.read() as snapshot:
            rows = snapshot.all(SQL.webhook_attempts, (self._now().ms, per_owner))
            return tuple((str(row[0]), str(row[1])) for row in rows)

    def webhook_owners(self) -> int:
        """Count the owners that have webhooks."""
        with self._database.read() as snapshot:
            return int(snapshot.value(SQL.owners_of_webhooks))

    def is_inside(self, subscription: Subscription, prefix: str) -> bool:
        """Return True if a subscription follows streams, and only such under `prefix`."""
        with self._database.read() as snapshot:
            return members.is_inside(snapshot, subscription, prefix)

    def attempt(self, subscription_id: str) -> Wake | None:
        """Return the wake to send to a webhook now, or None if there is none."""
        return self._database.transact(
            lambda txn: leases.attempt(txn, subscription_id, self._now())
        )

    def delivered(self, wake: Wake, *, done: bool) -> None:
        """Record that a webhook accepted a wake; with `done`, acknowledge its records."""
        self._database.transact(lambda txn: leases.delivered(txn, wake, self._now(), done=done))

    def failed(self, wake: Wake) -> None:
        """Record that a webhook call failed, and schedule a retry."""
        self._database.transact(lambda txn: leases.failed(txn, wake, self._now(), _chance()))

    def _notifying(self, work: _Work[_R]) -> _Work[_R]:
        def notifying(txn: Transaction) -> _R:
            result = work(txn)
            txn.after_commit(self.notifier.notify)
            return result

        return notifying


def count(snapshot: ReadTransaction, stream: str | None = None) -> int:
    """Count all subscriptions, or those that follow one stream."""
    if stream is None:
        return int(snapshot.value(SQL.count))
    return int(snapshot.value(SQL.count_of_stream, (stream,)))


def _fence(wake: Wake | Fence) -> Fence:
    return (
        wake if isinstance(wake, Fence) else Fence(wake.wake_id, wake.generation, wake.generation)
    )


def _chance() -> float:
    return random.random()  # noqa: S311 - jitter of retries, not a secret
