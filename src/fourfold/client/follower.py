"""Followers of a server's feeds, as those of a local store: `for`, `async for`, and timeouts.

`RemoteFollower` belongs to the store for threads. A thread reads its feed, so that a wait can have
a timeout and a cancelled wait loses nothing. `AsyncRemoteFollower` belongs to the store for
coroutines, and needs none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Self, TypeVar

from fourfold import limits
from fourfold.arguments import check_timeout
from fourfold.client.coroutines.connection import AsyncLiveFeed
from fourfold.client.reader import FeedItem, ResponseReader
from fourfold.client.threads.connection import LiveFeed
from fourfold.client.transport import ConnectionSettings
from fourfold.errors import FourfoldError
from fourfold.kernel import Follower, Listener
from fourfold.models.documents.records import Commit, MatchedCommit
from fourfold.models.graphs.records import GraphChange
from fourfold.models.sessions.feed import Item
from fourfold.models.streams.feed_records import StreamRecord

T = TypeVar("T")
_ITEMS_MAX = 8
"""Items that are received in advance; each may be large."""


class _Pump(Generic[T]):
    """The items of a feed that were received and not yet returned; a thread adds to them."""

    def __init__(self, settings: ConnectionSettings, reader: ResponseReader[FeedItem[T]]) -> None:
        self._feed = LiveFeed(settings, reader, limits.CLIENT_FOLLOW_RETRY_S)
        self._items: deque[FeedItem[T]] = deque()
        self._listeners: set[Listener] = set()
        self.change = threading.Condition()
        self.position: str | None = None
        self.started = False
        """True after the first response, or after the end."""
        self.ended = False
        self.error: Exception | None = None
        threading.Thread(target=self._run, name="fourfold-follower", daemon=True).start()

    def pop(self) -> T | None:
        """Return the next item, or None if none was received yet. Needs the lock."""
        while self._items:
            self.change.notify_all()
            position, item = self._items.popleft()
            self.position = position
            if item is not None:
                return item
        self._raise_error()
        return None

    def _raise_error(self) -> None:
        if isinstance(self.error, FourfoldError):
            raise self.error.copy()
        if self.error is not None:
            raise self.error

    def start(self) -> None:
        """Set the position at which the feed starts, or raise its error. Needs the lock."""
        if self._items and self._items[0].item is None:
            self.position = self._items.popleft().position
        elif not self._items:
            self._raise_error()

    def has_items(self) -> bool:
        """Return True if something was received. Needs the lock."""
        return bool(self._items)

    def stop(self) -> None:
        """End the feed; its thread ends soon after."""
        with self.change:
            self.started = self.ended = True
            self._items.clear()
            self._notify()
        self._feed.stop()

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Notify a coroutine of new items within the block."""
        with self.change:
            self._listeners.add(listener)
        try:
            yield
        finally:
            with self.change:
                self._listeners.discard(listener)

    def _run(self) -> None:
        error = None
        try:
            with self._feed:
                for item in self._feed:
                    with self.change:
                        if self.ended:
                            return
                        self._items.append(item)
                        self.started = True
                        self._notify()
                        self.change.wait_for(self._has_room)
        except Exception as failure:  # noqa: BLE001 - raised where the item is expected
            error = failure
        finally:
            with self.change:
                self.error = None if self.ended else error
                self.started = self.ended = True
                self._notify()

    def _has_room(self) -> bool:
        return self.ended or len(self._items) < _ITEMS_MAX

    def _notify(self) -> None:
        self.change.notify_all()
        for listener in self._listeners:
            listener.notify()


class RemoteFollower(Follower[T]):
    """An iterator over a feed of a server, for `for` and `async for`.

    It continues after broken connections, and ends after `timeout` seconds without an item, or
    when another thread calls `close`. The time until the first response does not count.

    Args:
        wait: Wait for the first response: then nothing that happens later is missed.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        reader: ResponseReader[FeedItem[T]],
        timeout: float | None = None,
        *,
        wait: bool = True,
    ) -> None:
        check_timeout(timeout)
        self._timeout = timeout
        self._pump = _Pump(settings, reader)
        if wait:
            self._await_start()

    def _await_start(self) -> None:
        pump = self._pump
        with pump.change:
            pump.change.wait_for(lambda: pump.ended or pump.has_items())
            pump.start()

    def next(self, timeout: float | None = None) -> T | None:
        """Return the next item, or None on timeout, after `close`, or at the end of the feed."""
        check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        pump = self._pump
        with pump.change:
            while (item := pump.pop()) is None and not pump.ended:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                pump.change.wait(left)
        return item

    async def next_async(self, timeout: float | None = None) -> T | None:  # noqa: ASYNC109
        """Return the next item like `next`; a cancelled call skips nothing."""
        check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        pump = self._pump
        listener = Listener(asyncio.get_running_loop())
        with pump.listening(listener):
            while True:
                listener.drain()
                with pump.change:
                    item = pump.pop()
                    ended = pump.ended
                left = limits.WATCH_HEARTBEAT_S if until is None else until - time.monotonic()
                if item is not None or ended or left <= 0:
                    return item
                await listener.wait(min(left, limits.WATCH_HEARTBEAT_S))

    def __next__(self) -> T:
        self._await_response()
        return super().__next__()

    def _await_response(self) -> None:
        """Wait for the first response: before it, a timeout is not a time without items."""
        pump = self._pump
        with pump.change:
            pump.change.wait_for(lambda: pump.started)

    async def __anext__(self) -> T:
        await self._await_response_async()
        return await super().__anext__()

    async def _await_response_async(self) -> None:
        listener = Listener(asyncio.get_running_loop())
        with self._pump.listening(listener):
            while not self._pump.started:
                await listener.wait(limits.WATCH_HEARTBEAT_S)
                listener.drain()

    def close(self) -> None:
        """End the follower; a call that waits returns None."""
        self._pump.stop()

    @property
    def last_event_id(self) -> str | None:
        """The id up to which everything was returned; None before the first response."""
        with self._pump.change:
            return self._pump.position

    def __del__(self) -> None:
        # The thread does not refer to the follower, so one that is dropped is noticed.
        if pump := getattr(self, "_pump", None):
            pump.stop()


class RemoteWatch(RemoteFollower[Commit]):
    """An iterator over the commits of a branch, for `for` and `async for`."""

    @property
    def position(self) -> int:
        """The seq up to which every commit was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class RemoteFilterWatch(RemoteFollower[MatchedCommit]):
    """An iterator over the commits that a filter selects, for `for` and `async for`."""

    @property
    def position(self) -> int:
        """The seq up to which every commit was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class RemoteRecordFollower(RemoteFollower[StreamRecord]):
    """An iterator over the records of all streams, for `for` and `async for`."""

    @property
    def cursor(self) -> str:
        """The cursor up to which everything was returned; pass it as `after` to resume."""
        return self.last_event_id or ""


class RemoteFeed(RemoteFollower[Item]):
    """An iterator over the events of a session, for `for` and `async for`."""

    @property
    def cursor(self) -> int:
        """The event id up to which everything was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class RemoteChanges(RemoteFollower[tuple[GraphChange, ...]]):
    """An iterator over changes of graphs, for `for` and `async for`; a page is a transaction."""

    @property
    def position(self) -> int:
        """The seq up to which every change was returned; pass it as `after` to resume."""
        return _seq_of(self.last_event_id)

    def next(self, timeout: float | None = None) -> tuple[GraphChange, ...]:
        """Return the next page, or an empty one on timeout."""
        return super().next(timeout) or ()

    async def next_async(self, timeout: float | None = None) -> tuple[GraphChange, ...]:  # noqa: ASYNC109
        """Return the next page like `next`; a cancelled call skips no row."""
        return await super().next_async(timeout) or ()

    def __next__(self) -> tuple[GraphChange, ...]:
        self._await_response()
        if changes := self.next(self._timeout):
            return changes
        raise StopIteration

    async def __anext__(self) -> tuple[GraphChange, ...]:
        await self._await_response_async()
        if changes := await self.next_async(self._timeout):
            return changes
        raise StopAsyncIteration


def _seq_of(event_id: str | None) -> int:
    """Return the seq up to which an event id is complete; `5.500` is a part of seq 5."""
    seq, _, rows = (event_id or "0").partition(".")
    return int(seq) - 1 if rows else int(seq)


class AsyncRemoteFollower(Generic[T]):
    """An asynchronous iterator over a feed of a server. It continues after broken connections.

    It ends after `timeout` seconds without an item, or when its block is left. The time until the
    first response does not count.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        reader: ResponseReader[FeedItem[T]],
        timeout: float | None = None,
        *,
        wait: bool = True,
    ) -> None:
        self._settings = settings
        self._reader = reader
        check_timeout(timeout)
        self._timeout = timeout
        self._wait = wait
        self._feed: AsyncLiveFeed[FeedItem[T]] | None = None
        self._first: T | None = None
        self._closed = False
        self.last_event_id: str | None = None
        """The id up to which everything was returned; None before the first response."""

    async def __aenter__(self) -> Self:
        if self._wait:
            # Nothing that happens after the first response is missed.
            await self._await_response()
        return self

    async def _await_response(self) -> None:
        """Wait for the first response: before it, a timeout is not a time without items."""
        if self.last_event_id is None:
            self._first = await self._next(first=True)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        await self._await_response()
        item = await self.next(self._timeout)
        if item is None:
            raise StopAsyncIteration
        return item

    async def next(self, timeout: float | None = None) -> T | None:  # noqa: ASYNC109
        """Return the next item, or None on timeout, after `close`, or at the end of the feed."""
        check_timeout(timeout)
        if self._first is not None:
            item, self._first = self._first, None
            return item
        try:
            async with asyncio.timeout(timeout):
                return await self._next()
        except TimeoutError:
            return None

    async def _next(self, *, first: bool = False) -> T | None:
        if self._closed:
            return None
        if self._feed is None:
            self._feed = AsyncLiveFeed(self._settings, self._reader, limits.CLIENT_FOLLOW_RETRY_S)
        feed, done = self._feed, False
        try:
            async for position, item in feed:
                self.last_event_id = position
                if item is not None or first:
                    done = True
                    return item
            return None
        finally:
            if not done:
                # A wait that was cut off has ended the iteration; the reader knows where it was.
                self._feed = None
                await feed.__aexit__()

    async def close(self) -> None:
        """End the follower; a call that waits returns None."""
        self._closed = True
        if self._feed is not None:
            feed, self._feed = self._feed, None
            await feed.__aexit__()


class AsyncRemoteWatch(AsyncRemoteFollower[Commit]):
    """An asynchronous iterator over the commits of a branch."""

    @property
    def position(self) -> int:
        """The seq up to which every commit was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class AsyncRemoteFilterWatch(AsyncRemoteFollower[MatchedCommit]):
    """An asynchronous iterator over the commits that a filter selects."""

    @property
    def position(self) -> int:
        """The seq up to which every commit was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class AsyncRemoteRecordFollower(AsyncRemoteFollower[StreamRecord]):
    """An asynchronous iterator over the records of all streams."""

    @property
    def cursor(self) -> str:
        """The cursor up to which everything was returned; pass it as `after` to resume."""
        return self.last_event_id or ""


class AsyncRemoteFeed(AsyncRemoteFollower[Item]):
    """An asynchronous iterator over the events of a session."""

    @property
    def cursor(self) -> int:
        """The event id up to which everything was returned; pass it as `after` to resume."""
        return int(self.last_event_id or 0)


class AsyncRemoteChanges(AsyncRemoteFollower[tuple[GraphChange, ...]]):
    """An asynchronous iterator over changes of graphs; a page is a transaction."""

    @property
    def position(self) -> int:
        """The seq up to which every change was returned; pass it as `after` to resume."""
        return _seq_of(self.last_event_id)

    async def next(self, timeout: float | None = None) -> tuple[GraphChange, ...]:  # noqa: ASYNC109
        """Return the next page, or an empty one on timeout."""
        return await super().next(timeout) or ()

    async def __anext__(self) -> tuple[GraphChange, ...]:
        await self._await_response()
        if changes := await self.next(self._timeout):
            return changes
        raise StopAsyncIteration
