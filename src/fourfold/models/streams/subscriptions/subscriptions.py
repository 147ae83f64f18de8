"""Subscriptions: what wakes workers when streams go on.

    store.streams.subscriptions.create(Subscribe("mail", "pull-wake", "orders/*", wake_stream="w"))
    wake = store.streams.subscriptions.claim("mail", "worker-1")

Everything is in the database of the streams: an append marks the cursors that it leaves behind in
its own transaction, so no wake is lost, and leases and numbers are what they were after a crash.
Whoever runs these (`server.deliverer`) calls `settle` when something was committed and when a time
has come.
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
        """Rings when a stream was written to."""
        self.failure: FourfoldError | None = None
        """Why the last look for work in the background failed, if it did."""
        self.notifier = Notifier()
        """Rings when a subscription changed, so that there may be something to do."""

    # Which there are

    def create(self, wanted: Subscribe) -> tuple[Subscription, bool]:
        """A subscription, and whether it is new."""
        return self._database.transact(self._creating(wanted))

    async def create_async(self, wanted: Subscribe) -> tuple[Subscription, bool]:
        return await self._database.transact_async(self._creating(wanted))

    def _creating(self, wanted: Subscribe) -> _Work[tuple[Subscription, bool]]:
        checked = members.check(wanted)
        return self._ringing(lambda txn: members.create(txn, checked, self._now().ms))

    def get(self, subscription_id: str) -> Subscription:
        with self._database.read() as snapshot:
            return members.find(snapshot, subscription_id)

    def links(
        self,
        subscription_id: str,
        *,
        after: str = "",
        limit: int = limits.SUBSCRIPTION_STREAMS_MAX,
    ) -> tuple[Link, ...]:
        """The streams that a subscription follows, in the order of their names."""
        with self._database.read() as snapshot:
            found = members.find(snapshot, subscription_id)
            return members.links(snapshot, found, after, limit)

    def list(self, *, after: str = "", limit: int = 100) -> tuple[Subscription, ...]:
        with self._database.read() as snapshot:
            rows = snapshot.all(SQL.page, (after, limit))
            return tuple(Subscription._make(row) for row in rows)

    def count(self, stream: str | None = None) -> int:
        """How many subscriptions there are, or how many follow one stream."""
        with self._database.read() as snapshot:
            return count(snapshot, stream)

    async def delete_async(self, subscription_id: str) -> bool:
        return await self._database.transact_async(self._deleting(subscription_id))

    def delete(self, subscription_id: str) -> bool:
        """Remove a subscription; whether there was one."""
        return self._database.transact(self._deleting(subscription_id))

    def _deleting(self, subscription_id: str) -> _Work[bool]:
        return self._ringing(lambda txn: members.delete(txn, subscription_id))

    def add_streams(self, subscription_id: str, streams: Sequence[str]) -> None:
        self._database.transact(self._adding(subscription_id, streams))

    async def add_streams_async(self, subscription_id: str, streams: Sequence[str]) -> None:
        await self._database.transact_async(self._adding(subscription_id, streams))

    def _adding(self, subscription_id: str, streams: Sequence[str]) -> _Work[None]:
        checked = members.check_streams(streams)
        if not checked:
            raise InvalidInput("streams are at least one name")

        def work(txn: Transaction) -> None:
            members.add_streams(txn, members.find(txn, subscription_id), checked)

        return self._ringing(work)

    def remove_stream(self, subscription_id: str, stream: str) -> None:
        self._database.transact(self._removing(subscription_id, stream))

    async def remove_stream_async(self, subscription_id: str, stream: str) -> None:
        await self._database.transact_async(self._removing(subscription_id, stream))

    def _removing(self, subscription_id: str, stream: str) -> _Work[None]:
        name = check_name(stream.strip("/"))

        def work(txn: Transaction) -> None:
            members.remove_stream(txn, members.find(txn, subscription_id), name)

        return work

    # Workers

    def claim(self, subscription_id: str, worker: str) -> Wake:
        """Take the lease of a pull-wake subscription; AlreadyClaimed or NothingPending if that
        cannot be.
        """
        return self._database.transact(self._claiming(subscription_id, worker))

    async def claim_async(self, subscription_id: str, worker: str) -> Wake:
        return await self._database.transact_async(self._claiming(subscription_id, worker))

    def _claiming(self, subscription_id: str, worker: str) -> _Work[Wake]:
        if not 0 < len(worker) <= limits.SUBSCRIPTION_TEXT_MAX or not worker.isprintable():
            raise InvalidInput("a worker has a name, in printable text")
        return self._ringing(lambda txn: leases.claim(txn, subscription_id, worker, self._now()))

    def acknowledge(
        self,
        subscription_id: str,
        fence: Fence,
        acks: Sequence[Ack] = (),
        *,
        kind: Kind = "pull-wake",
        done: bool = False,
    ) -> bool:
        """Move cursors on, and prolong the lease or, with `done`, give it back. Whether there was
        more, so that a new wake was issued.
        """
        return self._database.transact(
            self._acknowledging(subscription_id, kind, fence, acks, done=done)
        )

    async def acknowledge_async(
        self,
        subscription_id: str,
        fence: Fence,
        acks: Sequence[Ack] = (),
        *,
        kind: Kind = "pull-wake",
        done: bool = False,
    ) -> bool:
        return await self._database.transact_async(
            self._acknowledging(subscription_id, kind, fence, acks, done=done)
        )

    def _acknowledging(
        self, subscription_id: str, kind: Kind, fence: Fence, acks: Sequence[Ack], *, done: bool
    ) -> _Work[bool]:
        if len(acks) > limits.SUBSCRIPTION_STREAMS_MAX:
            raise InvalidInput(
                f"a request acknowledges at most {limits.SUBSCRIPTION_STREAMS_MAX} streams"
            )

        def work(txn: Transaction) -> bool:
            now = self._now()
            return leases.acknowledge(txn, subscription_id, fence, acks, now, kind=kind, done=done)

        return self._ringing(work)

    def release(self, subscription_id: str, fence: Fence) -> None:
        """Give the lease back; what is pending wakes somebody again."""
        self._database.transact(self._releasing(subscription_id, fence))

    async def release_async(self, subscription_id: str, fence: Fence) -> None:
        await self._database.transact_async(self._releasing(subscription_id, fence))

    def _releasing(self, subscription_id: str, fence: Fence) -> _Work[None]:
        return self._ringing(lambda txn: leases.release(txn, subscription_id, fence, self._now()))

    # Whoever tells them

    def due(self) -> Due:
        """Whether there is something to settle now, and when there will be by itself."""
        now = self._now().ms
        with self._database.read() as snapshot:
            waiting = (
                snapshot.value(SQL.any_arrival) is not None
                or snapshot.one(SQL.leases_over, (now, 1)) is not None
                or snapshot.one(SQL.idle_with_work, (1,)) is not None
                or snapshot.one(SQL.attempts, ("pull-wake", now, 1)) is not None
            )
            return Due(waiting, snapshot.value(SQL.next_time))

    def settle(self) -> None:
        """Link new streams, take back leases that are over, issue and tell wakes."""

        def work(txn: Transaction) -> None:
            if told := leases.settle(txn, self._now(), _chance()):
                self.streams_notifier.notify_on_commit(txn, told)

        self._database.transact(work)

    def webhooks(self, per_owner: int) -> tuple[tuple[str, str], ...]:
        """List subscriptions whose webhooks are to be called now, with the prefix of their owner:
        at most so many of each owner, the owners in turn.
        """
        with self._database.read() as snapshot:
            rows = snapshot.all(SQL.webhook_attempts, (self._now().ms, per_owner))
            return tuple((str(row[0]), str(row[1])) for row in rows)

    def webhook_owners(self) -> int:
        """Count the owners that have webhooks."""
        with self._database.read() as snapshot:
            return int(snapshot.value(SQL.owners_of_webhooks))

    def is_inside(self, found: Subscription, prefix: str) -> bool:
        """Return True if a subscription follows something, and only streams under `prefix`."""
        with self._database.read() as snapshot:
            return members.is_inside(snapshot, found, prefix)

    def attempt(self, subscription_id: str) -> Wake | None:
        """The wake that a webhook is to be told of now, if it still is."""
        return self._database.transact(
            lambda txn: leases.attempt(txn, subscription_id, self._now())
        )

    def delivered(self, wake: Wake, *, done: bool) -> None:
        self._database.transact(lambda txn: leases.delivered(txn, wake, self._now(), done=done))

    def failed(self, wake: Wake) -> None:
        self._database.transact(lambda txn: leases.failed(txn, wake, self._now(), _chance()))

    def _ringing(self, work: _Work[_R]) -> _Work[_R]:
        def ringing(txn: Transaction) -> _R:
            done = work(txn)
            txn.after_commit(self.notifier.notify)
            return done

        return ringing


def count(snapshot: ReadTransaction, stream: str | None = None) -> int:
    if stream is None:
        return int(snapshot.value(SQL.count))
    return int(snapshot.value(SQL.count_of_stream, (stream,)))


def _chance() -> float:
    return random.random()  # noqa: S311 - it spreads retries, and is no secret
