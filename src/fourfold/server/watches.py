"""Live commits of spaces: a feed of server-sent events for each reader.

A reader is a position in the log, so it costs no memory however slow it is. What garbage collection
removed before a reader came to it is reported as a gap, and the feed continues after the horizon.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from msgspec import UnsetType

from fourfold.errors import HistoryTruncated, InvalidInput, NotFound
from fourfold.models.documents import Space, Watch
from fourfold.models.documents.records import Commit
from fourfold.server.event_stream import (
    END,
    GAP,
    SSE_KEEP_ALIVE_S,
    SSE_S,
    Event,
    Feed,
    event_response,
    last_event_id,
)
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.request import Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import SPACE, space_route
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    SEQ_MAX,
    ChangedEntity,
    CommitEvent,
    EndEvent,
    GapEvent,
    WatchQuery,
)
from fourfold.wire.pages import EventHeaders


class WatchRoutes:
    """Handler of feeds of commits."""

    def __init__(
        self,
        workers: Workers,
        spaces: OpenSpaces,
        *,
        keep_alive_s: float = SSE_KEEP_ALIVE_S,
        lifetime_s: float = SSE_S,
    ) -> None:
        self._workers = workers
        self._spaces = spaces
        self._keep_alive_s = keep_alive_s
        self._lifetime_s = lifetime_s
        self._watches: set[Watch] = set()
        self._stopping = False

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed; readers reconnect and continue."""
        self._stopping = True
        for watch in tuple(self._watches):
            watch.close()

    async def watch(self, request: Request, did: str, query: WatchQuery) -> Response:
        """Return a feed of the commits on a branch."""
        after = _parse_after(last_event_id(request, query.after))
        async with self._spaces.use(did) as space:
            start = await self._workers.run(_open_watch, space, query, after)
        feed = partial(self._feed, did, query, start.watch.position if after is None else after)
        return event_response(feed, keep_alive_s=self._keep_alive_s, lifetime_s=self._lifetime_s)

    @asynccontextmanager
    async def _feed(self, did: str, query: WatchQuery, after: int) -> AsyncIterator[Feed]:
        async with self._spaces.use(did) as space:
            feed = _CommitFeed(space, query, self._workers, self._watches)
            await feed.open(after)
            try:
                yield Feed(feed.next_event, feed.position, lambda: self._stopping)
            finally:
                feed.close()


class _CommitFeed:
    """The commits that one reader receives, as events."""

    def __init__(
        self, space: Space, query: WatchQuery, workers: Workers, watches: set[Watch]
    ) -> None:
        self._space = space
        self._query = query
        self._workers = workers
        self._watches = watches
        self._watch: Watch | None = None
        self._gap: GapEvent | None = None

    async def open(self, after: int) -> None:
        """Continue after a seq, or after the gap that follows it."""
        self.close()
        start = await self._workers.run(_open_watch, self._space, self._query, after)
        self._watch, self._gap = start
        self._watches.add(start.watch)

    def close(self) -> None:
        """Release the watch. Idempotent."""
        if self._watch is not None:
            self._watches.discard(self._watch)

    def position(self) -> str:
        """Return the seq up to which every commit was returned."""
        assert self._watch is not None
        return str(self._watch.position if self._gap is None else self._gap.after)

    async def next_event(self, timeout_s: float) -> Event | None:
        """Return the next commit, a gap before it, or the end; None if nothing happens in time."""
        watch = self._watch
        assert watch is not None
        if self._gap is None:
            try:
                commit = await watch.next_async(timeout_s)
            except HistoryTruncated:
                await self.open(watch.position)
            else:
                if commit is not None:
                    return Event("commit", _commit_event(commit), str(commit.seq))
                if watch.ended:
                    return Event(END, EndEvent(reason="the branch is deleted"), self.position())
        if self._gap is None:
            return None
        gap, self._gap = self._gap, None
        return Event(GAP, gap, str(gap.horizon))


class _Start(NamedTuple):
    watch: Watch
    gap: GapEvent | None


def _open_watch(space: Space, query: WatchQuery, after: int | None) -> _Start:
    """Return a watch after a seq, or after the horizon and the gap before it."""
    try:
        return _Start(space.follow(query.id or None, after, query.branch), None)
    except HistoryTruncated as error:
        horizon = int(str(error.details["horizon"]))
        gap = GapEvent(after=after or 0, horizon=horizon)
        return _Start(space.follow(query.id or None, horizon, query.branch), gap)


def _parse_after(after: str | int | UnsetType) -> int | None:
    """Return the seq after which a feed starts, or None for the newest."""
    if isinstance(after, UnsetType):
        return None
    text = str(after)
    if not (text.isascii() and text.isdecimal() and int(text) <= SEQ_MAX):
        raise InvalidInput(f"Last-Event-ID: must be a seq, got {text!r:.80}")
    return int(text)


def _commit_event(commit: Commit) -> CommitEvent:
    return CommitEvent(
        seq=commit.seq,
        branch=commit.branch,
        session=commit.session,
        local_seq=commit.local_seq,
        revisions=[
            ChangedEntity(id=row.id, op_index=row.op_index, op=row.op, data=row.data)
            for row in commit.revisions
        ],
    )


_ROUTES: Final = (
    space_route(
        *("GET", f"{SPACE}/watch", WatchRoutes.watch),
        operation="watch",
        summary="Follow the commits on a branch as server-sent events: commit, gap and end.",
        scope="read",
        query=WatchQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
)
