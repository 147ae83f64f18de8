"""Live events: every durable event once, in order, from any point on.

A feed is a position in the log and nothing more. Events are not queued for it: it reads them from
the log when its consumer is ready, so a slow one costs no memory, delays no other, and skips none.
Transient items (tokens, progress) are not kept anywhere, so each feed has a short queue for them;
what does not fit is dropped, oldest first, and a Gap says so. They come in their place: after the
events that were there when they were sent.

    for item in sessions.follow(sid, after=0): ...          blocks until there is more
    async for item in sessions.follow(sid): ...             the same for coroutines
    stop = sessions.subscribe(sid, callback, after=0)       a thread that calls back

Who listens to which session, and what a feed needs from the store.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from fourfold import limits
from fourfold.arguments import check_timeout
from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Follower, Notifier
from fourfold.models.sessions.log import Log
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import Event, Gap, Transient, copied
from fourfold.models.sessions.request import check_count, check_session_id
from fourfold.models.sessions.stamps import event_of

SESSION_FEED_PAGE_EVENTS: Final = 256
"""Events that a feed reads ahead."""
SESSION_DRAIN_S: Final = 5.0
"""Time for subscribers to read what is left when a store closes."""

Item: TypeAlias = Event | Transient | Gap


class SessionFeed(Follower[Item]):
    """The position of one consumer in the log of a session, or of all sessions; an iterator.

    `timeout` ends the iteration after that many seconds without an item; without it, the iteration
    continues until `close`, which another thread may call.
    """

    def __init__(
        self,
        broadcast: Broadcast,
        sid: str | None,
        after: int | None,
        *,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
        timeout: float | None = None,
    ) -> None:
        if type(bound) is not int or bound < 1:
            raise InvalidInput(f"the bound of a feed must be a number of items, got {bound!r}")
        _until(timeout)
        self._broadcast = broadcast
        self._sid = sid
        self._timeout = timeout
        self._bound = bound
        self._lock = threading.Lock()
        self._transients: deque[Transient] = deque()
        self._dropped = 0
        self._page: deque[Event] = deque()
        self._closed = False
        self._finishing = False
        self._notifier = broadcast.notifier(sid)
        self._cursor = broadcast.start(sid, after)

    @property
    def wakes(self) -> int:
        """Number of commits that concerned it, after each of which it read the log."""
        return self._notifier.count

    @property
    def session(self) -> str | None:
        """The session that it follows; None for all of them."""
        return self._sid

    def finish(self) -> None:
        """Deliver the committed items, and then end."""
        self._finishing = True
        self._notifier.notify()

    @property
    def cursor(self) -> int:
        """Position of the last delivered item; the next feed continues after it.

        An event id, or a position in the log of all sessions.
        """
        return self._cursor

    def offer(self, item: Transient) -> None:
        """Deliver a transient item, best effort. Called by the store."""
        with self._lock:
            self._transients.append(item)
            if len(self._transients) > self._bound:
                self._transients.popleft()
                self._dropped += 1

    def next(self, timeout: float | None = None) -> Item | None:
        """Return the next item; None after the timeout, or if the feed is closed."""
        until = _until(timeout)
        notifier = self._notifier
        while not self._closed:
            count = notifier.count
            # Looked at first: what came before the wish to end is still handed out.
            finishing = self._finishing
            item = self._take(self._look(self._cursor))
            left = self._pause(until)
            if item is not None or left <= 0 or finishing:
                return item
            notifier.wait(count, left)
        return None

    async def next_async(self, timeout: float | None = None) -> Item | None:  # noqa: ASYNC109
        """Return the next item, from a coroutine. A cancelled wait misses nothing."""
        until = _until(timeout)
        with self._notifier.listen() as listener:
            while not self._closed:
                listener.drain()
                # Only what has arrived here counts as handed out, so a cancelled look is repeated.
                page: list[Event] = []
                if not self._page:
                    page = await asyncio.to_thread(self._look, self._cursor)
                item = self._take(page)
                left = self._pause(until)
                if item is not None or left <= 0:
                    return item
                await listener.wait(left)
        return None

    def close(self) -> None:
        """End the feed; a waiting call returns None."""
        self._closed = True
        self._broadcast.leave(self)
        self._notifier.notify()

    def _look(self, cursor: int) -> list[Event]:
        """Return the next events of the log, unless some are buffered."""
        return [] if self._page else self._broadcast.page(self._sid, cursor)

    def _take(self, page: list[Event]) -> Item | None:
        self._page.extend(page)
        with self._lock:
            # What was sent while fewer events were there than were handed out is due.
            due = self._transients and self._place(self._transients[0]) <= self._cursor
            if self._dropped and (due or not self._transients):
                dropped, self._dropped = self._dropped, 0
                return Gap(self._cursor, dropped)
            if due:
                return self._transients.popleft()
        if not self._page:
            return None
        event = self._page.popleft()
        self._cursor = event.id if self._sid is not None else event.position
        return event

    def _place(self, item: Transient) -> int:
        return item.event_id if self._sid is not None else item.position

    def _pause(self, until: float | None) -> float:
        """Return the seconds to wait for the notifier before polling again."""
        # A writer hears of every commit, but must notice when its store is closed.
        writable = self._broadcast.writable
        most = limits.WATCH_HEARTBEAT_S if writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def __repr__(self) -> str:
        return f"<Feed of {self._sid or 'all sessions'} after {self._cursor}>"


def _until(timeout: float | None) -> float | None:
    """Return the end of a wait that begins now."""
    check_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout


class SessionSubscription:
    """A feed, and a thread that passes its items to a callback. Call it, or `close` it, to end it.

    A callback that raises is not called again; `error` is what it raised. It may append to any
    session except those that it receives, since that would never end.
    """

    def __init__(
        self, broadcast: Broadcast, feed: SessionFeed, callback: Callable[[Item], Any]
    ) -> None:
        self._broadcast = broadcast
        self._feed = feed
        self._callback = callback
        self.error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"fourfold-feed-{feed.session or 'all'}", daemon=True
        )
        self._thread.start()

    @property
    def cursor(self) -> int:
        """The last event that was handed to the callback: see `SessionFeed.cursor`."""
        return self._feed.cursor

    @property
    def active(self) -> bool:
        """True while the subscription delivers events."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Call back no more."""
        self._feed.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(SESSION_DRAIN_S)

    __call__ = close

    def drain(self) -> None:
        """Deliver the committed items, then end; for as long as `SESSION_DRAIN_S` allows."""
        self._feed.finish()
        self._thread.join(SESSION_DRAIN_S)
        self._feed.close()

    def _run(self) -> None:
        try:
            with self._broadcast.delivering(self._feed.session):
                while (item := self._feed.next()) is not None:
                    self._callback(item)
        except Exception as error:  # noqa: BLE001  (a callback may raise anything)
            self.error = error
        finally:
            self._feed.close()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"<Subscription to {self._feed.session or 'all sessions'}, {state}>"


class _Delivery(threading.local):
    """The session whose events a thread is delivering, if it is."""

    notified: tuple[str | None, ...] = ()


class Broadcast:
    """The feeds of one store."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._notifiers: WeakValueDictionary[str | None, Notifier] = WeakValueDictionary()
        """One for each session that is followed, and one, under None, for all of them. A feed holds
        the one that it waits for.
        """
        # Weak, since a feed may simply be dropped.
        self._feeds: dict[str | None, WeakSet[SessionFeed]] = {}
        self._subscriptions: list[SessionSubscription] = []
        self._lock = threading.Lock()
        self._thread = _Delivery()

    @property
    def writable(self) -> bool:
        """True if this process may write the log."""
        return self._log.writable

    def notifier(self, sid: str | None) -> Notifier:
        """Return the notifier of a session; None is for all sessions."""
        with self._lock:
            return self._notifiers.setdefault(sid, Notifier())

    def notify(self, sid: str) -> None:
        """Wake the feeds of a session, and those of all sessions, after a commit.

        A feed has its notifier before it reads for the first time, so a missing one needs no call.
        """
        if self._notifiers:
            with self._lock:
                notifiers = [self._notifiers.get(sid), self._notifiers.get(None)]
            for notifier in notifiers:
                if notifier is not None:
                    notifier.notify()

    def join(self, feed: SessionFeed) -> SessionFeed:
        """Deliver transient items to a feed from now on."""
        with self._lock:
            for name in [name for name, feeds in self._feeds.items() if not feeds]:
                del self._feeds[name]
            self._feeds.setdefault(feed.session, WeakSet()).add(feed)
        return feed

    def leave(self, feed: SessionFeed) -> None:
        """Deliver no more items to a feed."""
        with self._lock:
            feeds = self._feeds.get(feed.session)
            if feeds is not None:
                feeds.discard(feed)
                if not feeds:
                    del self._feeds[feed.session]

    def keep(self, subscription: SessionSubscription) -> SessionSubscription:
        """Remember a subscription, so that it ends with the store."""
        with self._lock:
            alive = [other for other in self._subscriptions if other.active]
            self._subscriptions = [*alive, subscription]
        return subscription

    def send(self, sid: str, item: Any, event_id: int) -> None:
        """Deliver a transient item to the current feeds."""
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
        self.notify(sid)

    def start(self, sid: str | None, after: int | None) -> int:
        """Return where a feed begins: after `after`, or after the newest event."""
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
        """Return the next events after the cursor of a feed."""
        most = SESSION_FEED_PAGE_EVENTS
        with self._log.read() as reading:
            if sid is None:
                page = reading.all_events(cursor, most)
                return [event_of(owner, row) for owner, row in page]
            rows = reading.events(existing(reading, sid).key, cursor, 2**62, most)
            return [event_of(sid, row) for row in rows]

    @contextmanager
    def delivering(self, sid: str | None) -> Iterator[None]:
        """Refuse writes of this thread while it calls back for a session, or for all of them."""
        self._thread.notified = (sid,)
        try:
            yield
        finally:
            self._thread.notified = ()

    def refuse_reentry(self, sid: str) -> None:
        """Raise Refused if a subscriber writes to a session that it is being notified of."""
        notified = self._thread.notified
        if notified and notified[0] in {None, sid}:
            raise Refused(
                f"session {sid!r}: a subscriber cannot write, or it would receive its own events",
                hint="Write from another thread, or to another session.",
            )

    def close(self) -> None:
        """End every feed. Subscriptions first deliver the committed items."""
        with self._lock:
            subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.drain()
        with self._lock:
            feeds = [feed for several in self._feeds.values() for feed in several]
        for feed in feeds:
            feed.close()
