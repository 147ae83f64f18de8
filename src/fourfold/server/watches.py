"""Live commits of spaces: a feed of server-sent events for each reader.

A reader is a position in the log, so it costs no memory however slow it is. The readers of a space
share one read of each commit, and its encoding. What garbage collection removed before a reader
came to it is reported as a gap, and the feed continues after the horizon.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from fourfold.content.filters import decode_filter
from fourfold.errors import HistoryTruncated, InvalidInput, NotFound
from fourfold.models.documents import Space, Watch
from fourfold.models.documents.feed import FilterWatch, read_commits
from fourfold.models.documents.records import Commit, MatchedCommit
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
from fourfold.server.log_tail import LogTail, TailEntry, TailFollower, TailPage
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.request import Request, Response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import SPACE, space_route
from fourfold.server.workers import Workers
from fourfold.wire.documents import (
    SEQ_MAX,
    ChangedEntity,
    ChangedMatch,
    CommitEvent,
    EndEvent,
    GapEvent,
    MatchEvent,
    WatchQuery,
)
from fourfold.wire.pages import EventHeaders

_PAGE_COMMITS: Final = 256
_PAGE_REVISIONS: Final = 2_048
"""Commits and revisions that are read at once for all readers of a space."""
_encode: Final = msgspec.json.Encoder().encode


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
        self._tails: dict[str, _CommitTail] = {}
        self._stopping = False

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """End every feed; readers reconnect and continue."""
        self._stopping = True
        for tail in self._tails.values():
            tail.wake_all()

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
            newest = await self._workers.run(space.position)
            with self._tail(did, space, newest) as tail:
                keys = {(query.branch, entity) for entity in query.id or (None,)}
                with tail.follow(keys) as follower:
                    feed = CommitFeed(
                        space, query, after, tail, follower, is_stopping=self._is_stopping
                    )
                    yield Feed(feed.next_event, feed.position, self._is_stopping, feed.ready_event)

    def _is_stopping(self) -> bool:
        return self._stopping

    @contextmanager
    def _tail(self, did: str, space: Space, newest: int) -> Iterator[_CommitTail]:
        """Return the tail of a space; it ends with its last reader."""
        tail = self._tails.get(did)
        if tail is None:
            tail = self._tails[did] = _CommitTail(partial(self._read, space), newest)
            space.waiters.add(tail)
        try:
            yield tail
        finally:
            if not tail.is_followed() and self._tails.get(did) is tail:
                del self._tails[did]
                space.waiters.remove(tail)
                tail.close()

    async def _read(self, space: Space, after: int | None) -> TailPage[SharedCommit]:
        if after is None:
            return TailPage([], await self._workers.run(space.position))
        return await self._workers.run(_read_page, space, after)


class SharedCommit(NamedTuple):
    """A commit, and its event for readers of the whole branch."""

    event: CommitEvent
    encoded: msgspec.Raw

    def reduce(self, ids: frozenset[str]) -> CommitEvent | msgspec.Raw:
        """Return the event for readers of some entities, or of all if there are none."""
        revisions = [row for row in self.event.revisions if row.id in ids] if ids else []
        if not ids or len(revisions) == len(self.event.revisions):
            return self.encoded
        return msgspec.structs.replace(self.event, revisions=revisions)


class _CommitTail(LogTail[SharedCommit]):
    """The newest commits of a space, for all of its readers."""

    def on_commit(self, seq: int, branch: str, entities: tuple[str, ...]) -> None:
        self.notify(seq, _keys(branch, entities))

    def on_reset(self) -> None:
        self.reset()


class CommitFeed:
    """The commits that one reader receives, as events."""

    def __init__(
        self,
        space: Space,
        query: WatchQuery,
        after: int,
        tail: LogTail[SharedCommit],
        follower: TailFollower[SharedCommit],
        *,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._space = space
        self._query = query
        self._ids = frozenset(query.id)
        self._position = after
        self._tail = tail
        self._follower = follower
        self._is_stopping = is_stopping
        self._reads_log = True
        """True while it reads the log itself."""
        self._watch: Watch | FilterWatch | None = None
        self._ready: deque[TailEntry[SharedCommit]] = deque()
        self._reached = after
        """Position of the tail when it was asked last."""

    def position(self) -> str:
        """Return the seq up to which every commit was returned."""
        return str(self._position)

    async def next_event(self, timeout_s: float) -> FeedEvent | None:
        """Return the next commit, a gap before it, or the end; None if nothing happens in time."""
        deadline = time.monotonic() + timeout_s
        listener = self._follower.listener
        while not self._is_stopping():
            event = self.ready_event()
            if event is not None:
                return event
            listener.drain()
            if self._reads_log:
                event = await self._read_log()
                if event is not None:
                    return event
            self._take()
            if self._ready or self._reads_log:
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            await listener.wait(left)
        return None

    def ready_event(self) -> FeedEvent | None:
        """Return the next commit if the tail has it."""
        if not self._ready:
            return None
        entry = self._ready.popleft()
        # After the last one, commits of others are passed, too.
        self._position = entry.position if self._ready else max(entry.position, self._reached)
        return FeedEvent("commit", entry.value.reduce(self._ids), str(entry.position))

    def _take(self) -> None:
        """Take what the tail has after the position."""
        entries = self._tail.after(self._follower, self._position)
        if entries is None or (entries and self._query.where is not UNSET):
            # A filter compares documents, which the tail does not have.
            self._reads_log = True
            return
        self._ready.extend(entries)
        self._reached = max(self._position, self._tail.position)
        if not entries:
            self._position = self._reached

    async def _read_log(self) -> FeedEvent | None:
        """Return the next event of the log; None at its end, when the tail has the rest."""
        if self._watch is None:
            start = await asyncio.to_thread(_open_watch, self._space, self._query, self._position)
            self._watch = start.watch
            if start.gap is not None:
                self._position = start.gap.horizon
                return FeedEvent(GAP, start.gap, str(start.gap.horizon))
        watch = self._watch
        try:
            commit = await watch.next_async(0)
        except HistoryTruncated:
            self._watch = None
            return await self._read_log()
        self._position = watch.position
        if commit is not None:
            return _event(commit)
        if watch.ended:
            return FeedEvent(END, EndEvent(reason="the branch is deleted"), self.position())
        self._watch, self._reads_log = None, False
        return None


class _Start(NamedTuple):
    watch: Watch | FilterWatch
    gap: GapEvent | None


def _open_watch(space: Space, query: WatchQuery, after: int | None) -> _Start:
    """Return a watch after a seq, or after the horizon and the gap before it."""
    try:
        return _Start(_follow(space, query, after), None)
    except HistoryTruncated as error:
        horizon = int(str(error.details["horizon"]))
        gap = GapEvent(after=after or 0, horizon=horizon)
        return _Start(_follow(space, query, horizon), gap)


def _follow(space: Space, query: WatchQuery, after: int | None) -> Watch | FilterWatch:
    if isinstance(query.where, UnsetType):
        return space.follow(query.id or None, after, query.branch)
    where = decode_filter(query.where).where
    return space.follow(query.id or None, after, query.branch, where=where)


def _read_page(space: Space, after: int) -> TailPage[SharedCommit]:
    page = read_commits(space, after, _PAGE_COMMITS, _PAGE_REVISIONS)
    entries = []
    for commit in page.commits:
        event = _commit_event(commit)
        encoded = _encode(event)
        keys = _keys(commit.branch, (row.id for row in commit.revisions))
        shared = SharedCommit(event, msgspec.Raw(encoded))
        entries.append(TailEntry(commit.seq, frozenset(keys), shared, len(encoded)))
    return TailPage(entries, page.position, page.more)


def _keys(branch: str, entities: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    yield branch, None
    for entity in entities:
        yield branch, entity


def _parse_after(after: str | int | UnsetType) -> int | None:
    """Return the seq after which a feed starts, or None for the newest."""
    if isinstance(after, UnsetType):
        return None
    text = str(after)
    if not (text.isascii() and text.isdecimal() and int(text) <= SEQ_MAX):
        raise InvalidInput(f"Last-Event-ID: must be a seq, got {text!r:.80}")
    return int(text)


def _event(commit: Commit | MatchedCommit) -> FeedEvent:
    if isinstance(commit, Commit):
        return FeedEvent("commit", _commit_event(commit), str(commit.seq))
    changes = [
        ChangedMatch(kind=row.kind, id=row.id, op=row.op, document=row.document)
        for row in commit.changes
    ]
    event = MatchEvent(
        seq=commit.seq,
        branch=commit.branch,
        session=commit.session,
        local_seq=commit.local_seq,
        changes=changes,
    )
    return FeedEvent("match", event, str(commit.seq))


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
        summary="Follow the commits on a branch as server-sent events: commit or, with a filter, "
        "match; gap and end.",
        scope="read",
        query=WatchQuery,
        headers=EventHeaders,
        ok={200: Ok("The events.", "events", content_type="text/event-stream")},
        errors=(NotFound,),
    ),
)
