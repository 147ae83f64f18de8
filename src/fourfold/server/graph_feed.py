"""Live changes of graphs: a feed of server-sent events for each reader.

A reader is a position in the log, so it costs no memory however slow it is. Readers that wait at
the same position with the same filters share one read of the log.

An event is a transaction, and its id the seq. A large transaction is several events: all but the
last have the id `SEQ.ROWS`, and a reader that continues there receives the rest of that seq.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby, islice
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from fourfold import limits
from fourfold.errors import Busy, InvalidInput, NotFound
from fourfold.models.graphs import FeedFilter, Graphs, Kind, feed
from fourfold.models.graphs.match import pattern_filter
from fourfold.server.event_stream import (
    END,
    GAP,
    SSE_KEEP_ALIVE_S,
    SSE_S,
    Feed,
    FeedEvent,
    event_response,
    last_event_id,
)
from fourfold.server.graphs import APP, OpenGraphs, graph_route, object_row, value_bytes
from fourfold.server.request import Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.graphs import (
    AppFeedQuery,
    ChangesEvent,
    ChangesQuery,
    FeedEndEvent,
    FeedGapEvent,
    GraphChange,
    StoreFeedQuery,
)
from fourfold.wire.pages import EventHeaders

FEED_EVENT_ROWS: Final = 500
FEED_EVENT_BYTES: Final = 1 * limits.MIB
"""Rows and bytes of values after which an event ends."""
CHANGES: Final = "changes"
_ID: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:\.([1-9][0-9]{0,18}))?")
_SHARED_READS: Final = 8
"""Pages that are in memory for readers that come to them next."""
_V = TypeVar("_V")


class _Position(NamedTuple):
    """Position of a feed: after a seq, or after some rows of the next one."""

    after: int
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.after + 1}.{self.rows}" if self.rows else str(self.after)


class _Selection(NamedTuple):
    """The apps and kinds of a feed: one app, or those with a prefix."""

    app: str | None
    prefix: str
    kind: Kind | None
    types: frozenset[tuple[Kind, int]] | None = None
    """Types of the rows that concern a pattern."""

    def matches(self, app: str) -> bool:
        return app.startswith(self.prefix) if self.app is None else app == self.app


class _Read(NamedTuple):
    """Changes after a position, by seq, and the seq up to which the log was read."""

    changes: list[tuple[int, list[GraphChange], list[int]]]
    """Each seq with its changes and the sizes of their values."""
    position: int


class GraphFeedRoutes:
    """Handlers of feeds of changes."""

    def __init__(
        self,
        workers: Workers,
        graphs: OpenGraphs,
        *,
        keep_alive_s: float = SSE_KEEP_ALIVE_S,
        lifetime_s: float = SSE_S,
    ) -> None:
        self._workers = workers
        self._graphs = graphs
        self._keep_alive_s = keep_alive_s
        self._lifetime_s = lifetime_s
        self._stopping = False
        self._reads: OrderedDict[tuple[_Selection, int, int], asyncio.Task[_Read]] = OrderedDict()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed; readers reconnect and continue."""
        self._stopping = True
        graphs = self._graphs.get_if_open()
        if graphs is not None:
            graphs.notifier.notify()

    async def graph_feed(self, request: Request, query: StoreFeedQuery) -> Response:
        """Return a feed of the changes of several apps."""
        graphs = await self._graphs.get()
        selection = _Selection(None, query.prefix, _or_none(query.kind))
        return await self._respond(request, graphs, selection, query)

    async def app_feed(self, request: Request, app: str, query: AppFeedQuery) -> Response:
        """Return a feed of the changes of one app."""
        graphs = await self._graphs.get()
        types = await self._workers.run(_types_of, graphs, app, query.pattern)
        selection = _Selection(app, "", _or_none(query.kind), types)
        return await self._respond(request, graphs, selection, query)

    async def _respond(
        self, request: Request, graphs: Graphs, selection: _Selection, query: ChangesQuery
    ) -> Response:
        newest = await self._workers.run(graphs.position)
        position = _parse_position(last_event_id(request, query.after), newest)
        gap = None
        if position.after > newest:
            if request.header("last-event-id") is None:
                raise InvalidInput(
                    f"after: must be at most {newest}, the newest seq, got {position.after}"
                )
            gap = FeedGapEvent(after=position.after, newest=newest)
            position = _Position(newest)
        changes = _ChangeFeed(
            graphs,
            partial(self._read, graphs, selection),
            position,
            gap=gap,
            until=_or_none(query.until),
            is_stopping=self._is_stopping,
        )
        open_feed = partial(self._open_feed, changes)
        return event_response(
            open_feed, keep_alive_s=self._keep_alive_s, lifetime_s=self._lifetime_s
        )

    @asynccontextmanager
    async def _open_feed(self, changes: _ChangeFeed) -> AsyncIterator[Feed]:
        yield Feed(changes.next_event, changes.position, self._is_stopping)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _read(self, graphs: Graphs, selection: _Selection, after: int) -> asyncio.Task[_Read]:
        """Return a read of the changes after a seq.

        It is shared with other readers since the last commit. A later commit raises the count of
        notifications, so a reader never waits for a read that began before it was woken.
        """
        key = (selection, after, graphs.notifier.count)
        task = self._reads.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            work = self._workers.run(_read_changes, graphs, selection, after)
            task = self._reads[key] = asyncio.ensure_future(work)
            if len(self._reads) > _SHARED_READS:
                self._reads.popitem(last=False)
        return task


class _ChangeFeed:
    """The changes that one reader receives, as events."""

    def __init__(
        self,
        graphs: Graphs,
        read: Callable[[int], asyncio.Task[_Read]],
        position: _Position,
        *,
        gap: FeedGapEvent | None,
        until: int | None,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._graphs = graphs
        self._read = read
        self._position = position
        self._gap = gap
        self._until = until
        self._is_stopping = is_stopping
        self._events: deque[tuple[FeedEvent, _Position]] = deque()

    def position(self) -> str:
        """Return the id after which the feed continues."""
        return str(self._position if self._gap is None else self._gap.after)

    async def next_event(self, timeout_s: float) -> FeedEvent | None:
        """Return the next changes, a gap before them, or the end; None if nothing happens."""
        if self._gap is not None:
            gap, self._gap = self._gap, None
            return FeedEvent(GAP, gap, self.position())
        deadline = time.monotonic() + timeout_s
        with self._graphs.notifier.listen() as listener:
            while not self._events and not self._is_stopping():
                if self._until is not None and self._position.after >= self._until:
                    return FeedEvent(END, FeedEndEvent(seq=self._until), self.position())
                listener.drain()
                is_at_end = await self._fill()
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                if is_at_end:
                    await listener.wait(left)
        if not self._events:
            return None
        event, self._position = self._events.popleft()
        return event

    async def _fill(self) -> bool:
        """Read events after the position; return True at the end of the log."""
        start = self._position
        try:
            # Other readers may wait for the same read, so it outlives this one.
            read = await asyncio.shield(self._read(start.after))
        except Busy:
            await asyncio.sleep(limits.RETRY_AFTER_S)
            return False
        for seq, changes, sizes in read.changes:
            if self._until is not None and seq > self._until:
                break
            skipped = start.rows if seq == start.after + 1 else 0
            self._events.extend(_events(seq, changes, sizes, skipped))
        if self._events:
            return False
        if read.position > start.after:
            last = read.position if self._until is None else min(read.position, self._until)
            self._position = _Position(last)
        return read.position <= start.after


def _types_of(graphs: Graphs, slug: str, pattern: str) -> frozenset[tuple[Kind, int]] | None:
    """Return the types of the rows that concern a pattern, or None without one."""
    app_id = graphs.app(slug).app_id
    if not pattern:
        return None
    try:
        value = msgspec.json.decode(pattern)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"pattern must be JSON: {error}") from None
    with graphs.snapshot() as reader:
        return pattern_filter(reader, app_id, value).types


def _read_changes(graphs: Graphs, selection: _Selection, after: int) -> _Read:
    with graphs.database.paced() as end_step:
        # One state for both: the position passes no row of an app that is registered meanwhile.
        with graphs.snapshot() as reader:
            slugs = {app.app_id: app.slug for app in reader.apps()}
            apps = [number for number, slug in slugs.items() if selection.matches(slug)]
            kinds = None if selection.kind is None else [selection.kind]
            query = FeedFilter.of(None if len(apps) == len(slugs) else apps, kinds, None)
            query = query._replace(types=selection.types)
            newest, limit = reader.newest_seq(), limits.FEED_PAGE_ROWS
            page = feed.page(reader, query, after, newest, limit, end_step=end_step)
        changes = []
        for seq, group in groupby(page.changes, key=lambda change: change.global_seq):
            wired: list[GraphChange] = []
            sizes: list[int] = []
            while rows := list(islice(group, feed.FEED_STEP_ROWS)):
                wired += [
                    GraphChange(slugs[row.app_id], row.app_id, object_row(row.kind, row.row))
                    for row in rows
                ]
                sizes += [value_bytes(row.row) for row in rows]
                end_step()
            changes.append((seq, wired, sizes))
        return _Read(changes, page.position)


def _events(
    seq: int, changes: list[GraphChange], sizes: list[int], skipped: int
) -> Iterator[tuple[FeedEvent, _Position]]:
    """Yield the events of one seq after some of its rows, each with the position after it."""
    start = skipped
    while start < len(changes):
        end, size = start, 0
        while end < len(changes) and end - start < FEED_EVENT_ROWS:
            size += sizes[end]
            end += 1
            if size > FEED_EVENT_BYTES:
                break
        complete = end == len(changes)
        position = _Position(seq) if complete else _Position(seq - 1, end)
        data = ChangesEvent(seq, changes[start:end], complete)
        yield FeedEvent(CHANGES, data, str(position)), position
        start = end


def _parse_position(text: str | int | UnsetType, newest: int) -> _Position:
    if isinstance(text, UnsetType):
        return _Position(newest)
    match = _ID.fullmatch(str(text))
    if match is None or int(match[1]) > limits.INTEGER_MAX or match[0].startswith("0."):
        raise InvalidInput(
            f"Last-Event-ID: must be the id of an event of this feed, got {text!r:.80}"
        )
    seq, rows = int(match[1]), match[2]
    return _Position(seq) if rows is None else _Position(seq - 1, int(rows))


def _or_none(value: _V | UnsetType) -> _V | None:
    return None if value is UNSET else value


_ROUTES: Final = (
    graph_route(
        *("GET", "/v1/graph/feed", GraphFeedRoutes.graph_feed),
        operation="graph_feed",
        summary="Follow the changes of apps as server-sent events: changes, gap and end.",
        scope="read",
        resource="prefix",
        query=StoreFeedQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
    ),
    graph_route(
        *("GET", f"{APP}/feed", GraphFeedRoutes.app_feed),
        operation="app_feed",
        summary="Follow the changes of one app as server-sent events: changes, gap and end.",
        scope="read",
        query=AppFeedQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
)
