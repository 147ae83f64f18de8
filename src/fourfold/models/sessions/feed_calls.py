"""The calls of `Sessions` about live events: feeds, subscriptions and transient items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.sessions.feed import Broadcast, Item, SessionFeed, SessionSubscription
from fourfold.models.sessions.reader import Slot


class FeedCalls(ABC):
    """Feeds and subscriptions, for `Sessions`."""

    _broadcast: Broadcast

    @abstractmethod
    def _slot(self, sid: str) -> Slot:
        """Return the newest state of a session."""

    def notify_transient(self, sid: str, item: Any) -> None:
        """Deliver a transient item to current followers, best effort; it is not stored."""
        self._broadcast.send(sid, item, self._slot(sid).state.counters.event)

    def subscribe(
        self,
        sid: str,
        callback: Callable[[Item], Any],
        *,
        after: int | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> SessionSubscription:
        """Call `callback` for every event after `after`, once, in order, and for transient items.

        `after` is an event id, by default the newest. Call the result to unsubscribe.
        """
        return self._subscribe(SessionFeed(self._broadcast, sid, after, bound=bound), callback)

    def subscribe_all(
        self,
        callback: Callable[[Item], Any],
        *,
        after: int | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> SessionSubscription:
        """Call `callback` for the events of all sessions after a position, like `subscribe`."""
        return self._subscribe(SessionFeed(self._broadcast, None, after, bound=bound), callback)

    def follow(
        self,
        sid: str,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> SessionFeed:
        """Iterate over the events of a session and wait for more, with `for` or `async for`.

        Args:
            sid: The id of the session.
            after: Begin after this event id, by default after the newest event.
            timeout: End after this many seconds without an event.
            bound: Maximum number of buffered transient items; older ones are dropped.
        """
        return self._broadcast.join(
            SessionFeed(self._broadcast, sid, after, bound=bound, timeout=timeout)
        )

    def follow_all(
        self,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> SessionFeed:
        """Iterate over the events of all sessions after a position, and wait for more."""
        return self._broadcast.join(
            SessionFeed(self._broadcast, None, after, bound=bound, timeout=timeout)
        )

    def _subscribe(self, feed: SessionFeed, callback: Callable[[Item], Any]) -> SessionSubscription:
        if not callable(callback):
            raise InvalidInput(f"callback must be callable, got {type(callback).__name__}")
        self._broadcast.join(feed)
        return self._broadcast.keep(SessionSubscription(self._broadcast, feed, callback))
