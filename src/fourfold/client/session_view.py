"""Views of sessions of a server: for threads with lists that are read when they are used.

The lists of a `SessionView` look like lists, and reading them waits for the server, which a
coroutine cannot do. So the store for coroutines returns a `View`, which has all of them in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, TypeVar, cast

from fourfold.client import sessions
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.sessions import EntityName, SessionCalls
from fourfold.client.threads.connection import Connection
from fourfold.models.sessions.fold import View, fold
from fourfold.models.sessions.log import Log, LogReader, SessionRow
from fourfold.models.sessions.reader import SessionListing, SessionView
from fourfold.models.sessions.records import Event, Head, LineageEdge
from fourfold.wire import sessions as wire

T = TypeVar("T")
RemoteView = SessionView
AsyncRemoteView = View


class _NoLog:
    """The log of a view that reads its lists from a server."""

    def read(self) -> Any:
        return nullcontext()


_NO_LOG = cast("Log", _NoLog())


class RemoteSessionView(SessionView):
    """A session of a server at one event. A view never changes."""

    def __init__(
        self, connection: Connection, calls: SessionCalls, record: wire.ViewRecord
    ) -> None:
        row = SessionRow(0, record.id, record.created_at)
        super().__init__(_NO_LOG, row, sessions.to_state(record))
        self._connection = connection
        self._calls = calls
        self._kept_after = record.kept_after

    @property
    def heads(self) -> SessionListing[Head]:
        """The published heads, oldest first."""
        call = self._calls.heads(self.id, self.counters.event)
        heads: list[Head] = []
        for page in self._connection.pages(call, wire.HeadPage):
            heads += map(sessions.to_head, page.items)
        return _listing(heads)

    @property
    def edges(self) -> SessionListing[LineageEdge]:
        """The lineage edges in the log of this session, oldest first."""
        return _listing(list(fold(None, self.events).edges))

    @property
    def events(self) -> SessionListing[Event]:
        """The events, oldest first."""

        def load(_reading: LogReader, first: int, last: int) -> list[Event]:
            call = self._calls.events(self.id, first, last)
            pages = self._connection.pages(call, wire.EventPage, last - first)
            return [sessions.to_event(record) for page in pages for record in page.items]

        return SessionListing(_NO_LOG, self.counters.event, load)

    def kept_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages of the transcript from the compaction boundary, oldest first."""
        yield from self.messages[self._kept_after :]

    def _entities(self, entity: str, count: int) -> SessionListing[dict[str, Any]]:
        name = cast("EntityName", f"{entity}s")

        def load(_reading: LogReader, first: int, last: int) -> list[dict[str, Any]]:
            call = self._calls.entities(name, self.id, self.counters.event, first)
            items: list[dict[str, Any]] = []
            for page in self._connection.pages(call, wire.EntityPage, last - first):
                items += sessions.to_values(page.items)
                if len(items) >= last - first:
                    break
            return items[: last - first]

        return SessionListing(_NO_LOG, count, load)


def _listing(items: list[T]) -> SessionListing[T]:
    return SessionListing(_NO_LOG, len(items), lambda _, first, last: items[first:last])


class ViewLoader:
    """Makes views for threads."""

    def __init__(self, connection: Connection, calls: SessionCalls) -> None:
        self._connection = connection
        self._calls = calls

    def load(self, record: wire.ViewRecord) -> RemoteView:
        """Return the view of a state; its lists are read when they are used."""
        return RemoteSessionView(self._connection, self._calls, record)


class AsyncViewLoader:
    """Makes views for coroutines."""

    def __init__(self, connection: AsyncConnection, calls: SessionCalls) -> None:
        self._connection = connection
        self._calls = calls

    async def load(self, record: wire.ViewRecord) -> AsyncRemoteView:
        """Return the view of a state with all of its lists, folded from the events."""
        events: list[Event] = []
        call = self._calls.events(record.id, 0, record.event_id)
        async for page in self._connection.pages(call, wire.EventPage):
            events += map(sessions.to_event, page.items)
        return fold(None, events)
