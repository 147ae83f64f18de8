"""The feed over all streams over HTTP: the records of every stream as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from msgspec import UnsetType

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.kernel import Listener
from fourfold.models.streams import Streams
from fourfold.models.streams.feed_records import FeedGap, FeedPage, StreamRecord, check_after
from fourfold.server import event_stream, listing
from fourfold.server.event_stream import GAP, event_response, last_event_id
from fourfold.server.request import Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.stream_reads import ReadTimeouts
from fourfold.wire.pages import EventHeaders
from fourfold.wire.streams import FeedQuery, StreamsGap

FEED_PAGES_BYTES: Final = 4 * limits.MIB
"""Recent pages that are cached for clients at the same cursor."""


class SharedPages:
    """Reads pages of the feed, each once for all clients that are at the same cursor.

    Nearly all clients of a feed are at its end: a commit is read once for all of them. A page after
    a cursor stays true, so it is cached; an empty one at the end is not.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._recent: LruCache[tuple[str, str], FeedPage] = LruCache(FEED_PAGES_BYTES, _weigh)
        self._reading: dict[tuple[str, str], asyncio.Future[FeedPage]] = {}

    async def read(self, cursor: str, prefix: str) -> FeedPage:
        """Return the next page after a cursor, as of now or later."""
        key = (cursor, prefix)
        page = self._recent.get(key)
        if page is not None:
            return page
        earlier = self._reading.get(key)
        if earlier is not None:
            page = await asyncio.shield(earlier)
            if page.cursor != cursor:
                return page
            # It began before this call, and may have missed the newest records.
        reading = self._reading.get(key)
        if reading is None or reading is earlier:
            reading = asyncio.ensure_future(self._read(key))
            self._reading[key] = reading
        return await asyncio.shield(reading)

    async def _read(self, key: tuple[str, str]) -> FeedPage:
        cursor, prefix = key
        this = asyncio.current_task()
        try:
            page = await asyncio.to_thread(self._streams.read_feed, cursor, prefix=prefix)
            if page.cursor != cursor:
                self._recent.put(key, page)
            return page
        finally:
            if self._reading.get(key) is this:
                del self._reading[key]


def _weigh(page: FeedPage) -> int:
    sizes = (item.record.size for item in page.items if isinstance(item, StreamRecord))
    return limits.KIB + sum(sizes)


class StreamFeed:
    """Handlers of the feed over all streams."""

    def __init__(self, streams: Streams, timing: ReadTimeouts) -> None:
        self._streams = streams
        self._pages = SharedPages(streams)
        self._timing = timing
        self._stopping = False

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed; readers reconnect and continue."""
        self._stopping = True
        self._streams.notifier.notify()

    async def follow(self, request: Request, query: FeedQuery) -> Response:
        """Return a feed of the records of all streams, in the order of their commits."""
        after = last_event_id(request, query.after)
        start = None if isinstance(after, UnsetType) else check_after(str(after))
        # Read before the response starts: what is appended from then on arrives.
        page = await asyncio.to_thread(self._streams.read_feed, start, prefix=query.prefix)
        return event_response(
            partial(self._follow, query.prefix, page, start),
            keep_alive_s=self._timing.keep_alive_s,
            lifetime_s=self._timing.sse_s,
        )

    @asynccontextmanager
    async def _follow(
        self, prefix: str, page: FeedPage, start: str | None
    ) -> AsyncIterator[event_stream.Feed]:
        with self._streams.notifier.listen() as listener:
            reader = _FeedReader(self._pages, prefix, page, start, listener)
            yield event_stream.Feed(
                partial(self._next_event, reader),
                lambda: reader.cursor,
                lambda: self._stopping,
                reader.pop,
            )

    async def _next_event(
        self, reader: _FeedReader, timeout_s: float
    ) -> event_stream.FeedEvent | None:
        """Return the next record or gap; None if nothing happens in time, or the server stops."""
        deadline = time.monotonic() + timeout_s
        while not self._stopping:
            event = await reader.next_event(deadline - time.monotonic())
            if event is not None or time.monotonic() >= deadline:
                return event
        return None


class _FeedReader:
    """The position of one client in the feed."""

    def __init__(
        self,
        pages: SharedPages,
        prefix: str,
        page: FeedPage,
        start: str | None,
        listener: Listener,
    ) -> None:
        self._pages = pages
        self._prefix = prefix
        self._listener = listener
        self._items: deque[StreamRecord | FeedGap] = deque(page.items)
        self._reached = page.cursor
        self.cursor = page.cursor if start is None or not page.items else start

    async def next_event(self, timeout_s: float) -> event_stream.FeedEvent | None:
        """Return the next record or gap; None after a notification or the timeout."""
        if (event := self.pop()) is not None:
            return event
        self._listener.drain()
        page = await self._pages.read(self.cursor, self._prefix)
        self._items.extend(page.items)
        self._reached = page.cursor
        if page.items:
            return self.pop()
        self.cursor = page.cursor
        if page.up_to_date:
            await self._listener.wait(max(0.0, timeout_s))
        return None

    def pop(self) -> event_stream.FeedEvent | None:
        """Return the next event that was read, or None after the last one."""
        if not self._items:
            return None
        item = self._items.popleft()
        self.cursor = item.cursor if self._items else self._reached
        if isinstance(item, FeedGap):
            gap = StreamsGap(stream=item.stream, records=item.records)
            return event_stream.FeedEvent(GAP, gap, self.cursor)
        return event_stream.FeedEvent("record", listing.feed_record(item), self.cursor)


_ROUTES: Final = (
    Route(
        *("GET", "/v1/streams/live", StreamFeed.follow),
        operation="follow_streams",
        summary="Follow the records of all streams as server-sent events: record and gap.",
        scope="read",
        resource="prefix",
        query=FeedQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
    ),
)
