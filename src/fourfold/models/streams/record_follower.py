"""Follower of the feed over all streams."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.arguments import check_timeout
from fourfold.kernel import Follower
from fourfold.models.streams.feed_records import FeedGap, FeedPage, StreamRecord

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class RecordFollower(Follower[StreamRecord]):
    """An iterator over the records of all streams, for `for` and `async for`.

    It ends after `timeout` seconds without a record, or when another thread calls `close`.
    """

    def __init__(
        self, streams: Streams, prefix: str, after: str | None, timeout: float | None
    ) -> None:
        check_timeout(timeout)
        self._streams = streams
        self._prefix = prefix
        self._timeout = timeout
        self._closed = False
        self._items: deque[StreamRecord | FeedGap] = deque()
        # The place after the newest record is fixed now: what is appended later is not missed.
        self._take(streams.read_feed(after, prefix=prefix))
        self.cursor = self._reached if after is None or not self._items else after
        """The cursor after the last record that was returned; pass it as `after` to resume."""

    def next(self, timeout: float | None = None) -> StreamRecord | None:
        """Return the next record, or None on timeout or when the follower is closed.

        Raises:
            HistoryTruncated: records are missing; the next call continues after them.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            if (record := self._pop()) is not None:
                return record
            count = self._streams.notifier.count
            self._take(self._streams.read_feed(self.cursor, prefix=self._prefix))
            if self._items or not self._up_to_date:
                continue
            left = limits.WATCH_HEARTBEAT_S if until is None else until - time.monotonic()
            if left <= 0:
                break
            self._streams.notifier.wait(count, min(left, limits.WATCH_HEARTBEAT_S))
        return None

    async def next_async(self, timeout: float | None = None) -> StreamRecord | None:  # noqa: ASYNC109
        """Return the next record, or None on timeout or when the follower is closed.

        Raises:
            HistoryTruncated: records are missing; the next call continues after them.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._streams.notifier.listen() as listener:
            while not self._closed:
                if (record := self._pop()) is not None:
                    return record
                listener.drain()
                self._take(await self._read_async())
                if self._items or not self._up_to_date:
                    continue
                left = limits.WATCH_HEARTBEAT_S if until is None else until - time.monotonic()
                if left <= 0:
                    break
                await listener.wait(min(left, limits.WATCH_HEARTBEAT_S))
        return None

    async def _read_async(self) -> FeedPage:
        return await asyncio.to_thread(self._streams.read_feed, self.cursor, prefix=self._prefix)

    def close(self) -> None:
        """Close the follower; calls that wait return None."""
        self._closed = True
        self._streams.notifier.notify()

    def _take(self, page: FeedPage) -> None:
        self._items.extend(page.items)
        self._reached, self._up_to_date = page.cursor, page.up_to_date

    def _pop(self) -> StreamRecord | None:
        """Return the next record that was read, or None after the last one; raise for a gap."""
        if not self._items:
            self.cursor = self._reached
            return None
        item = self._items.popleft()
        # After the last record the page goes on, over records of other streams.
        self.cursor = item.cursor if self._items else self._reached
        if isinstance(item, FeedGap):
            raise item.to_error()
        return item
