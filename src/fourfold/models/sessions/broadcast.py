"""Who listens to which session, and what a feed needs from the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Bell
from fourfold.limits import SESSION_FEED_PAGE_EVENTS
from fourfold.models.sessions.feeds import Feed, Subscription
from fourfold.models.sessions.log import Log
from fourfold.models.sessions.records import Event, Transient, copied
from fourfold.models.sessions.request import check_count, check_session_id
from fourfold.models.sessions.slots import existing
from fourfold.models.sessions.stamping import event_of


class _Thread(threading.local):
    """What a thread is busy with: whose events it hands out, if it does."""

    heard: tuple[str | None, ...] = ()


class Broadcast:
    """The feeds of one store."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._bells: WeakValueDictionary[str | None, Bell] = WeakValueDictionary()
        """One for each session that is followed, and one, under None, for all of them. A feed holds
        the one that it waits for.
        """
        # Weak, since a feed may simply be dropped.
        self._feeds: dict[str | None, WeakSet[Feed]] = {}
        self._subscriptions: list[Subscription] = []
        self._lock = threading.Lock()
        self._thread = _Thread()

    @property
    def writable(self) -> bool:
        return self._log.writable

    def bell(self, sid: str | None) -> Bell:
        """The bell of a session; None is for all sessions."""
        with self._lock:
            return self._bells.setdefault(sid, Bell())

    def ring(self, sid: str) -> None:
        """Wake the feeds of a session, and those of all sessions: something was committed. A feed
        has its bell before it reads for the first time, so one that is not there needs no ring.
        """
        if self._bells:
            with self._lock:
                bells = [self._bells.get(sid), self._bells.get(None)]
            for bell in bells:
                if bell is not None:
                    bell.ring()

    def ring_all(self) -> None:
        """Wake every feed."""
        with self._lock:
            bells = list(self._bells.values())
        for bell in bells:
            bell.ring()

    def join(self, feed: Feed) -> Feed:
        """Let a feed hear of transient items from now on."""
        with self._lock:
            for name in [name for name, feeds in self._feeds.items() if not feeds]:
                del self._feeds[name]
            self._feeds.setdefault(feed.session, WeakSet()).add(feed)
        return feed

    def leave(self, feed: Feed) -> None:
        with self._lock:
            feeds = self._feeds.get(feed.session)
            if feeds is not None:
                feeds.discard(feed)
                if not feeds:
                    del self._feeds[feed.session]

    def keep(self, subscription: Subscription) -> Subscription:
        """Remember a subscription, so that it ends with the store."""
        with self._lock:
            alive = [each for each in self._subscriptions if each.active]
            self._subscriptions = [*alive, subscription]
        return subscription

    def send(self, sid: str, item: Any, event_id: int) -> None:
        """Hand a transient item to whoever listens."""
        with self._lock:
            feeds = [*self._feeds.get(sid, ()), *self._feeds.get(None, ())]
        if not feeds:
            return
        position = 0
        if self._feeds.get(None):
            with self._log.read() as reading:
                position = reading.position()
        for feed in feeds:
            feed.offer(Transient(sid, copied(item), event_id, position))
        self.ring(sid)

    def start(self, sid: str | None, after: int | None) -> int:
        """Where a feed begins: behind `after`, or behind what is there by now."""
        if sid is not None:
            check_session_id(sid)
        with self._log.read() as reading:
            if sid is None:
                newest = reading.position()
            else:
                newest = reading.last_event(existing(reading, sid).key)
        if after is None:
            return newest
        if check_count(after, "after") > newest:
            raise InvalidInput(
                f"cannot follow {sid or 'all sessions'} from {after} on: the newest is {newest}",
                hint="Give the cursor of an earlier feed, or 0 for the beginning.",
            )
        return after

    def page(self, sid: str | None, cursor: int) -> list[Event]:
        """The next events behind a feed's cursor."""
        most = SESSION_FEED_PAGE_EVENTS
        with self._log.read() as reading:
            if sid is None:
                found = reading.all_events(cursor, most)
                return [event_of(owner, row) for owner, row in found]
            rows = reading.events(existing(reading, sid).key, cursor, 2**62, most)
            return [event_of(sid, row) for row in rows]

    @contextmanager
    def delivering(self, sid: str | None) -> Iterator[None]:
        """While this thread calls back for a session, or for all of them."""
        self._thread.heard = (sid,)
        try:
            yield
        finally:
            self._thread.heard = ()

    def refuse_reentry(self, sid: str) -> None:
        heard = self._thread.heard
        if heard and heard[0] in {None, sid}:
            raise Refused(
                f"a subscriber of session {sid!r} cannot write to it: it would hear of it for ever",
                hint="Write from another thread, or to another session.",
            )

    def close(self) -> None:
        """End every feed. Subscriptions first hand out what is there by now."""
        with self._lock:
            subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.drain()
        with self._lock:
            feeds = [feed for several in self._feeds.values() for feed in several]
        for feed in feeds:
            feed.close()
