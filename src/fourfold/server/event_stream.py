"""Server-sent events: a live feed that a client continues with Last-Event-ID.

A feed is a function that waits for its next event:

    async def next_event(timeout_s: float) -> Event | None: ...    # None: nothing happened in time

    @asynccontextmanager
    async def open_feed() -> AsyncIterator[Feed]:
        with sessions.follow(...) as follower:                     # open while a client reads
            yield Feed(next_event, lambda: str(follower.position))

    return event_response(open_feed)

A handler raises errors, such as NotFound, before it returns the response.

The first bytes carry the position of the feed as an `id:` without data, and so does the comment
that is sent every 15 seconds while nothing happens. A client that lost its connection before the
first event, or between two events that are far apart, therefore misses nothing. `event: gap` says
that entries before its id are lost; the feed continues. `event: end` is the last event: a client
does not reconnect. A connection without it ends after a minute, or when the server stops, and
clients reconnect by themselves; so a deleted key is noticed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, UnsetType

from fourfold import limits
from fourfold.server.request import Request, Response

KEEP_ALIVE: Final = b": keep-alive\n"
END: Final = "end"
GAP: Final = "gap"
SSE_S: Final = 60.0
"""Duration of one SSE connection; readers reconnect where they were."""
SSE_KEEP_ALIVE_S: Final = 15.0
"""Interval of SSE comments, without which proxies close idle connections."""
RETRY_MS: Final = 100
"""Time that a browser waits before it reconnects."""
PIECE_BYTES: Final = 64 * limits.KIB
"""Bytes after which events that are ready are sent."""
_encode: Final = msgspec.json.Encoder().encode


class FeedEvent(NamedTuple):
    """An event of a feed."""

    name: str
    data: Struct | msgspec.Raw
    id: str | None = None
    """Position after this event; None for one that cannot be sent again, such as a token."""


class Feed(NamedTuple):
    """A live feed."""

    next_event: Callable[[float], Awaitable[FeedEvent | None]]
    """Waits up to this many seconds for the next event."""
    position: Callable[[], str]
    """Returns the id from which the feed would continue."""
    is_stopping: Callable[[], bool] = lambda: False
    """Returns True when the server stops; `next_event` must return then."""
    ready_event: Callable[[], FeedEvent | None] = lambda: None
    """Returns an event that needs no wait: it is sent together with the one before it."""


def last_event_id(request: Request, after: str | int | UnsetType) -> str | int | UnsetType:
    """Return where a feed continues: Last-Event-ID, or else the parameter `after`."""
    return request.header("last-event-id") or after


OpenFeed = Callable[[], AbstractAsyncContextManager[Feed]]
"""Opens a feed when its first event is about to be sent; it is closed when the client is gone."""


def event_response(
    open_feed: OpenFeed,
    *,
    keep_alive_s: float = SSE_KEEP_ALIVE_S,
    lifetime_s: float = SSE_S,
) -> Response:
    """Return the response of a feed."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    return Response(200, headers, pieces=_iter_events(open_feed, keep_alive_s, lifetime_s))


async def _iter_events(
    open_feed: OpenFeed, keep_alive_s: float, lifetime_s: float
) -> AsyncIterator[bytes]:
    deadline = time.monotonic() + lifetime_s
    async with open_feed() as feed:
        yield b"retry: %d\nid: %s\n\n" % (RETRY_MS, feed.position().encode())
        while not feed.is_stopping():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            event = await feed.next_event(min(keep_alive_s, left))
            if event is None:
                yield KEEP_ALIVE + b"id: %s\n\n" % feed.position().encode()
                continue
            piece = format_event(event)
            while event.name != END and len(piece) < PIECE_BYTES:
                ready = feed.ready_event()
                if ready is None:
                    break
                event = ready
                piece += format_event(event)
            yield piece
            if event.name == END:
                return


def format_event(event: FeedEvent) -> bytes:
    """Return the bytes of an event. JSON has no line feeds, so the data is one line."""
    place = b"" if event.id is None else b"id: %s\n" % event.id.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (place, event.name.encode(), _encode(event.data))
