"""Live events: every durable event once, in order, from any point on.

A feed is a position in the log and nothing more. Events are not queued for it: it reads them from
the log when its consumer is ready, so a slow one costs no memory, delays nobody, and misses none.
Transient items (tokens, progress) are not kept anywhere, so each feed has a short queue for them;
what does not fit is dropped, oldest first, and a Gap says so. They come in their place: after the
events that were there when they were sent.

    for item in sessions.follow(sid, after=0): ...          blocks until there is more
    async for item in sessions.follow(sid): ...             the same for coroutines
    stop = sessions.subscribe(sid, callback, after=0)       a thread that calls back
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Following
from fourfold.models.sessions.records import Event, Gap, Transient

if TYPE_CHECKING:
    from fourfold.models.sessions.broadcast import Broadcast

Item: TypeAlias = Event | Transient | Gap


class Feed(Following[Item]):
    """One consumer's place in the log of a session, or of all sessions; an iterator.

    `timeout` ends the iteration after so many seconds of silence; without it, it goes on until
    `close`, which another thread may call.
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
            raise InvalidInput(f"the bound of a feed is {bound!r}, not a number of items")
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
        self._bell = broadcast.bell(sid)
        self._cursor = broadcast.start(sid, after)

    @property
    def wakes(self) -> int:
        """How often something was committed that concerns it, so that it looked at the log."""
        return self._bell.rings

    @property
    def session(self) -> str | None:
        """The session that it follows; None for all of them."""
        return self._sid

    def finish(self) -> None:
        """Hand out what is there by now, and then end."""
        self._finishing = True
        self._bell.ring()

    @property
    def cursor(self) -> int:
        """Everything up to here was handed out: an event id, or a position in the log of all
        sessions. Where the next feed goes on.
        """
        return self._cursor

    def offer(self, item: Transient) -> None:
        """Called by the store: a transient item for whoever is fast enough."""
        with self._lock:
            self._transients.append(item)
            if len(self._transients) > self._bound:
                self._transients.popleft()
                self._dropped += 1

    def next(self, timeout: float | None = None) -> Item | None:
        """The next item; None when none came in time, or the feed is closed."""
        until = _until(timeout)
        bell = self._bell
        while not self._closed:
            rings = bell.rings
            # Looked at first: what came before the wish to end is still handed out.
            finishing = self._finishing
            found = self._take(self._look(self._cursor))
            left = self._pause(until)
            if found is not None or left <= 0 or finishing:
                return found
            bell.wait(rings, left)
        return None

    async def next_async(self, timeout: float | None = None) -> Item | None:  # noqa: ASYNC109
        """The same for coroutines. One that is cancelled while it waits misses nothing."""
        until = _until(timeout)
        with self._bell.heard() as ear:
            while not self._closed:
                ear.forget()
                # Only what has arrived here counts as handed out, so a cancelled look is repeated.
                page: list[Event] = []
                if not self._page:
                    page = await asyncio.to_thread(self._look, self._cursor)
                found = self._take(page)
                left = self._pause(until)
                if found is not None or left <= 0:
                    return found
                await ear.wait(left)
        return None

    def close(self) -> None:
        """End the feed: whoever waits for the next item gets none."""
        self._closed = True
        self._broadcast.leave(self)
        self._bell.ring()

    def _look(self, cursor: int) -> list[Event]:
        """The next events of the log, unless some are at hand."""
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
        """How long to wait for the bell before looking again."""
        # A writer hears of every commit, but must notice when its store is closed.
        writable = self._broadcast.writable
        most = limits.WATCH_HEARTBEAT_S if writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def __repr__(self) -> str:
        return f"<Feed of {self._sid or 'all sessions'} after {self._cursor}>"


def _until(timeout: float | None) -> float | None:
    """When a wait ends that begins now."""
    if timeout is None:
        return None
    if type(timeout) not in {int, float} or math.isnan(timeout):
        raise InvalidInput(f"a timeout is a number of seconds, not {repr(timeout)[:100]}")
    return time.monotonic() + timeout


class Subscription:
    """A feed and a thread that hands its items to a callback. Call it, or `close` it, to end it.

    A callback that raises is called no more; `error` keeps what it raised. It may append to any
    session but those that it hears of, since that would never end.
    """

    def __init__(self, broadcast: Broadcast, feed: Feed, callback: Callable[[Item], Any]) -> None:
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
        """The last event that was handed to the callback: see `Feed.cursor`."""
        return self._feed.cursor

    @property
    def active(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Call back no more."""
        self._feed.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(limits.SESSION_DRAIN_S)

    __call__ = close

    def drain(self) -> None:
        """Hand out what is there by now, then end; as long as `limits.SESSION_DRAIN_S` allows."""
        self._feed.finish()
        self._thread.join(limits.SESSION_DRAIN_S)
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
