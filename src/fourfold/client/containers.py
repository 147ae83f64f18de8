"""Parts of a remote store for threads only: items by `[]`, and async twins.

`store.streams["orders"]`, `len(stream)` and `"id" in space` cannot wait in a coroutine, and a store
for coroutines needs no `append_async`. The classes of the store for threads inherit both from here;
those of the store for coroutines inherit nothing. A twin runs its method in another thread.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fourfold import html, limits
from fourfold.client.follower import RemoteFollower
from fourfold.content import PayloadRef
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.records import Commit, Document, Reads, State, no_entity
from fourfold.models.documents.space import show_space
from fourfold.models.graphs.records import App, ApplyResult
from fourfold.models.handle_mapping import HandleMapping
from fourfold.models.sessions.listing import SessionOrder
from fourfold.models.sessions.records import UNSET, Claim, Epoch, Event, Head, SessionInfo, Unset
from fourfold.models.sessions.request import At as SessionAt
from fourfold.models.streams import validation
from fourfold.models.streams.records import AppendResult, Chunk, Producer, StreamInfo, Where
from fourfold.models.streams.stream import show_stream
from fourfold.models.streams.times import Time
from fourfold.store.store import show_store
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.client.threads.remote_graph import RemoteGraph
    from fourfold.client.threads.remote_graphs import RemoteGraphs
    from fourfold.client.threads.remote_session import RemoteSession
    from fourfold.client.threads.remote_sessions import RemoteSessions
    from fourfold.client.threads.remote_spaces import RemoteSpace
    from fourfold.client.threads.remote_streams import RemoteStream

T = TypeVar("T")


class AsyncDocumentsContainer:
    """Nothing more."""


class DocumentsContainer(ABC):
    """Spaces by DID."""

    @abstractmethod
    def open(self, did: str) -> RemoteSpace:
        """Return a handle of an existing space."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Yield the DIDs of the spaces, sorted."""

    def __getitem__(self, did: str) -> RemoteSpace:
        """Return a handle of an existing space, like `open`."""
        return self.open(did)

    def __contains__(self, did: object) -> bool:
        try:
            return isinstance(did, str) and self.open(did) is not None
        except (NotFound, InvalidInput):
            return False

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


class AsyncStoreContainer:
    """Nothing more."""


class StoreContainer(ABC):
    """A store as HTML."""

    @abstractmethod
    def spaces(self) -> list[str]:
        """Return the DIDs of all spaces in this store, sorted."""

    def _repr_html_(self) -> str:
        return show_store(repr(self).strip("<>"), "rw", self.spaces())


class AsyncSpaceContainer:
    """Nothing more."""


class SpaceContainer(ABC):
    """Documents by id, and the twin for coroutines."""

    did: str

    @abstractmethod
    def transact(  # noqa: PLR0917
        self,
        operations: Sequence[Mapping[str, Any]],
        reads: Reads | Mapping[str, Any] | None = None,
        session: str | None = None,
        local_seq: int | None = None,
        branch: str = "",
        preconditions: Sequence[Mapping[str, Any]] = (),
    ) -> Commit:
        """Commit several operations in one transaction, under one seq, or none of them."""

    @abstractmethod
    def read(self, entity: str, branch: str = "", at: At = None) -> State | None:
        """Return the state of an entity, or None if it was never written."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the entities that exist now on the default branch, sorted."""

    async def transact_async(  # noqa: PLR0917
        self,
        operations: Sequence[Mapping[str, Any]],
        reads: Reads | Mapping[str, Any] | None = None,
        session: str | None = None,
        local_seq: int | None = None,
        branch: str = "",
        preconditions: Sequence[Mapping[str, Any]] = (),
    ) -> Commit:
        """Commit several operations like `transact`, from a coroutine."""
        return await asyncio.to_thread(
            self.transact, operations, reads, session, local_seq, branch, preconditions
        )

    def __getitem__(self, entity: str) -> Document:
        """Return the document of an entity on the default branch.

        Raises:
            NotFound: The entity was never written, or is deleted.
        """
        state = self.read(entity)
        if state is None or state.document is None:
            raise no_entity(self.did, entity)
        return state.document

    def __contains__(self, entity: object) -> bool:
        """Return True if the entity exists on the default branch."""
        if not isinstance(entity, str):
            return False
        state = self.read(entity)
        return state is not None and state.document is not None

    def __len__(self) -> int:
        """Return the number of entities that exist on the default branch."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Always True: an empty space is still a space."""
        return True

    def _repr_html_(self) -> str:
        space: Any = self
        states = space.read_many(space.ids(limit=html.ROWS_MAX))
        return show_space(self.did, space.position(), states)


class AsyncMemoryContainer:
    """Nothing more."""


class MemoryContainer(ABC):
    """The number of items of a memory."""

    space: RemoteSpace

    def __len__(self) -> int:
        """Return the number of items, with those that have expired and are not swept."""
        return len(self.space)

    def __bool__(self) -> bool:
        """Always True: an empty memory is still a memory."""
        return True


class AsyncTypedDocumentsContainer(Generic[T]):
    """Nothing more."""


class TypedDocumentsContainer(ABC, Generic[T]):
    """Mapping access to typed documents, by id."""

    @abstractmethod
    def get(self, entity: str, branch: str = "", at: At = None) -> T:
        """Return the document of an entity."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the existing entities of this type, sorted."""

    def __getitem__(self, entity: str) -> T:
        """Return the document of an entity on the default branch, like `get`."""
        return self.get(entity)

    def __contains__(self, entity: object) -> bool:
        """Return True if the entity exists on the default branch and has this type's prefix."""
        return entity in list(self)

    def __len__(self) -> int:
        """Return the number of existing entities of this type."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Always True, also without documents."""
        return True


class AsyncStreamsContainer(ABC):
    """Iteration over the names of streams."""

    @abstractmethod
    async def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000, content_type: str = ""
    ) -> tuple[StreamInfo, ...]:
        """Return streams with a name prefix in name order, at most `limit` after `after`."""

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the names of the streams, sorted, read in pages."""
        after = ""
        while infos := await self.list(after=after):
            for info in infos:
                yield info.name
            after = infos[-1].name


class StreamsContainer(HandleMapping[str, "RemoteStream"]):
    """Streams by name."""

    @abstractmethod
    def open(self, name: str, /) -> RemoteStream:
        """Return a handle of an existing stream."""

    @abstractmethod
    def info(self, name: str) -> StreamInfo:
        """Return the metadata of a stream."""

    @abstractmethod
    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000, content_type: str = ""
    ) -> tuple[StreamInfo, ...]:
        """Return streams with a name prefix in name order, at most `limit` after `after`."""

    def _describe(self, name: Any, /) -> object:
        return self.info(validation.check_name(name))

    def _names(self, after: str | None) -> Sequence[str]:
        return [info.name for info in self.list(after=after or "")]


class AsyncStreamContainer:
    """Nothing more."""


class StreamContainer(ABC):
    """The number of records of a stream, and the twins for coroutines."""

    @property
    @abstractmethod
    def info(self) -> StreamInfo:
        """The metadata of the stream."""

    @abstractmethod
    def append(
        self,
        values: Any,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
        expected: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append one or several records; return when they are on disk."""

    @abstractmethod
    def follow(
        self,
        after: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> RemoteFollower[Chunk]:
        """Iterate over chunks and wait for more, until the stream is closed."""

    async def append_async(
        self,
        values: Any,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
        expected: str | int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append one or several records like `append`, from a coroutine."""
        return await asyncio.to_thread(
            self.append,
            values,
            producer=producer,
            seq=seq,
            close=close,
            key=key,
            expected=expected,
            headers=headers,
        )

    def follow_async(
        self,
        after: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
        where: Where | None = None,
        offset: str | int | None = None,
    ) -> AsyncIterator[Chunk]:
        """Iterate over chunks and wait for more, until the stream is closed.

        Ends after `timeout` seconds without new records. `key`, `where` and `since` select records
        as in `read`.
        """
        return self.follow(after, since=since, timeout=timeout, key=key, where=where, offset=offset)

    def __len__(self) -> int:
        """Return the number of retained records."""
        info = self.info
        return info.next_offset - info.first_offset

    def __bool__(self) -> bool:
        """Always True: an empty stream is still a stream."""
        return True

    def _repr_html_(self) -> str:
        return show_stream(self.info)


class AsyncGraphsContainer(ABC):
    """Iteration over the slugs of apps."""

    @abstractmethod
    async def list_apps(self, at: datetime | None = None) -> tuple[App, ...]:
        """Return all apps."""

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the slugs of all apps, the system app included."""
        for app in await self.list_apps():
            yield app.slug


class GraphsContainer(HandleMapping[int | str, "RemoteGraph"]):
    """Apps by id or slug, and the twin for coroutines."""

    @abstractmethod
    def open(self, app: int | str, /) -> RemoteGraph:
        """Return a handle of an existing app, by its id or slug."""

    @abstractmethod
    def app(self, app: int | str, at: datetime | None = None) -> App:
        """Return an app by its id or slug."""

    @abstractmethod
    def list_apps(self, at: datetime | None = None) -> tuple[App, ...]:
        """Return all apps."""

    def _describe(self, name: Any, /) -> object:
        return self.app(name)

    def _names(self, after: str | None) -> Sequence[str]:
        return [app.slug for app in self.list_apps()] if after is None else []

    def __len__(self) -> int:
        """Return the number of apps, the system app included."""
        return len(self.list_apps())

    @abstractmethod
    def apply(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        """Write an envelope of operations in one transaction under one seq, or nothing."""

    async def apply_async(self, envelope: Mapping[str, Any], *, once: bool = False) -> ApplyResult:
        """Write an envelope of operations like `apply`, from a coroutine."""
        return await asyncio.to_thread(self.apply, envelope, once=once)


class AsyncGraphContainer:
    """Nothing more."""


class GraphContainer(ABC):
    """The twin for coroutines, and equality of handles."""

    app_id: int
    graphs: RemoteGraphs

    @abstractmethod
    def apply(
        self,
        operations: Iterable[Mapping[str, Any]],
        *,
        owner: int,
        trace_id: str,
        once: bool = False,
    ) -> ApplyResult:
        """Write a batch of operations under one seq, or none of them."""

    async def apply_async(
        self,
        operations: Iterable[Mapping[str, Any]],
        *,
        owner: int,
        trace_id: str,
        once: bool = False,
    ) -> ApplyResult:
        """Write a batch of operations like `apply`, from a coroutine."""
        return await asyncio.to_thread(
            self.apply, operations, owner=owner, trace_id=trace_id, once=once
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphContainer):
            return NotImplemented
        return self.graphs is other.graphs and self.app_id == other.app_id

    def __hash__(self) -> int:
        return hash((id(self.graphs), self.app_id))


class AsyncSessionsContainer(ABC):
    """Iteration over the ids of sessions."""

    @abstractmethod
    async def list(
        self,
        *,
        after: str | SessionInfo | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
    ) -> Rows[SessionInfo]:
        """Return sessions in the order of creation."""

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the ids of the sessions in the order of creation, read in pages."""
        after = None
        while infos := await self.list(after=after):
            for info in infos:
                yield info.id
            after = infos[-1].id


class SessionsContainer(HandleMapping[str, "RemoteSession"]):
    """Sessions by id, names of specification 004, and the twins for coroutines."""

    @abstractmethod
    def info(self, sid: str, at: SessionAt = None) -> SessionInfo:
        """Return what a list shows of one session."""

    @abstractmethod
    def create(self, session: Mapping[str, Any] | None = None) -> RemoteSession:
        """Create a session with the id `session["id"]`, by default a new one."""

    @abstractmethod
    def list(
        self,
        *,
        after: str | SessionInfo | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        deleted: bool = False,
        prefix: str = "",
        newest_first: bool = False,
        where: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        order: SessionOrder = "created",
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
    ) -> Rows[SessionInfo]:
        """Return sessions in the order of creation, or of their newest events."""

    @abstractmethod
    def append_events(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events with consecutive ids, or none of them."""

    @abstractmethod
    def publish_head(
        self,
        sid: str,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Head:
        """Publish a head that covers the events since the current head."""

    @abstractmethod
    def append_lineage_edge(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Append a lineage edge and return its event."""

    @abstractmethod
    def claim(
        self,
        sid: str,
        holder: str,
        ttl_s: float = limits.SESSION_LEASE_S,
        *,
        steal: bool = False,
    ) -> Claim:
        """Claim the right to write a session."""

    @abstractmethod
    def renew(self, sid: str, epoch: int, ttl_s: float = limits.SESSION_LEASE_S) -> Claim:
        """Let a lease last longer."""

    @abstractmethod
    def release(self, sid: str, epoch: int) -> None:
        """End a lease."""

    @abstractmethod
    def intern_payload(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value under the hash of its canonical bytes, and return a reference to it."""

    @abstractmethod
    def fork(
        self, sid: str, session: Mapping[str, Any] | None = None, *, at: SessionAt = None
    ) -> RemoteSession:
        """Create a session that continues from a point of another one."""

    def create_session(self, session: Mapping[str, Any] | None = None) -> RemoteSession:
        """Alias of `create`: the name in specification 004."""
        return self.create(session)

    def open_session(self, sid: str) -> RemoteSession:
        """Alias of `open`: the name in specification 004."""
        return self.open(sid)

    def list_sessions(
        self,
        *,
        after: str | SessionInfo | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        deleted: bool = False,
        prefix: str = "",
        newest_first: bool = False,
        where: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        order: SessionOrder = "created",
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
    ) -> Rows[SessionInfo]:
        """Alias of `list`: the name in specification 004."""
        return self.list(
            after=after,
            limit=limit,
            deleted=deleted,
            prefix=prefix,
            newest_first=newest_first,
            where=where,
            at=at,
            order=order,
            status=status,
            kind=kind,
            since=since,
        )

    async def create_async(self, session: Mapping[str, Any] | None = None) -> RemoteSession:
        """Create a session with the id `session["id"]`, by default a new one, like `create`."""
        return await asyncio.to_thread(self.create, session)

    async def create_session_async(self, session: Mapping[str, Any] | None = None) -> RemoteSession:
        """Alias of `create_async`."""
        return await self.create_async(session)

    async def append_event_async(
        self,
        sid: str,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Event:
        """Append one event like `append_event`, from a coroutine."""
        events = await self.append_events_async(
            sid, [event], expected_last_id=expected_last_id, key=key, epoch=epoch
        )
        return events[0]

    async def append_events_async(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events like `append_events`, from a coroutine."""
        return await asyncio.to_thread(
            self.append_events,
            sid,
            events,
            expected_last_id=expected_last_id,
            key=key,
            epoch=epoch,
        )

    async def publish_head_async(
        self,
        sid: str,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Head:
        """Publish a head that covers the events since the current head, like `publish_head`."""
        return await asyncio.to_thread(
            self.publish_head,
            sid,
            head,
            expected_basis=expected_basis,
            to_event_id=to_event_id,
            key=key,
            events=events,
            epoch=epoch,
        )

    async def append_lineage_edge_async(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Append a lineage edge like `append_lineage_edge`, from a coroutine."""
        return await asyncio.to_thread(self.append_lineage_edge, sid, edge, epoch=epoch)

    async def claim_async(
        self,
        sid: str,
        holder: str,
        ttl_s: float = limits.SESSION_LEASE_S,
        *,
        steal: bool = False,
    ) -> Claim:
        """Claim the right to write a session like `claim`, from a coroutine."""
        return await asyncio.to_thread(self.claim, sid, holder, ttl_s, steal=steal)

    async def renew_async(
        self, sid: str, epoch: int, ttl_s: float = limits.SESSION_LEASE_S
    ) -> Claim:
        """Let a lease last longer like `renew`, from a coroutine."""
        return await asyncio.to_thread(self.renew, sid, epoch, ttl_s)

    async def release_async(self, sid: str, epoch: int) -> None:
        """End a lease like `release`, from a coroutine."""
        await asyncio.to_thread(self.release, sid, epoch)

    async def intern_payload_async(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value and return a reference to it, like `intern_payload`."""
        return await asyncio.to_thread(self.intern_payload, value, kind)

    async def fork_async(
        self, sid: str, session: Mapping[str, Any] | None = None, *, at: SessionAt = None
    ) -> RemoteSession:
        """Create a session that continues from a point of another one, like `fork`."""
        return await asyncio.to_thread(self.fork, sid, session, at=at)

    def _describe(self, name: Any, /) -> object:
        return self.info(name)

    def _names(self, after: str | None) -> Sequence[str]:
        return [info.id for info in self.list(after=after)]


class AsyncSessionContainer:
    """Nothing more."""


class SessionContainer(ABC):
    """The number of events of a session, and the twin for coroutines."""

    id: str
    sessions: RemoteSessions

    @abstractmethod
    def append(
        self,
        events: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append one event or several with consecutive ids, or none of them."""

    @abstractmethod
    def position(self) -> int:
        """Return the id of the newest event; 0 if there is none."""

    async def append_async(
        self,
        events: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append one event or several like `append`, from a coroutine."""
        return await asyncio.to_thread(
            self.append, events, expected_last_id=expected_last_id, key=key, epoch=epoch
        )

    def __len__(self) -> int:
        """Return the number of events."""
        return self.position()

    def __bool__(self) -> bool:
        """Always True: a session without events is still a session."""
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionContainer):
            return NotImplemented
        return self.sessions is other.sessions and self.id == other.id

    def __hash__(self) -> int:
        return hash((id(self.sessions), self.id))

    @abstractmethod
    def read(self, at: SessionAt | None = None) -> Any:
        """Return the view of the session."""

    def _repr_html_(self) -> str:
        return str(self.read()._repr_html_())
