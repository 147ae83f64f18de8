"""What a remote store has for threads only: items by `[]`, and the twins for coroutines.

`store.streams["orders"]`, `len(stream)` and `"id" in space` cannot wait in a coroutine, and a store
for coroutines needs no `append_async`. The classes of the store for threads inherit both from here;
those of the store for coroutines inherit nothing. A twin runs its method in another thread.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fourfold.client.follower import RemoteFollower
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.records import Commit, Document, Reads, State, no_entity
from fourfold.models.streams import validation
from fourfold.models.streams.records import Appended, Chunk, Producer, StreamInfo
from fourfold.models.streams.times import Time

if TYPE_CHECKING:
    from fourfold.client.threads.remote_spaces import RemoteSpace
    from fourfold.client.threads.remote_streams import RemoteStream


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
        return did in list(self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


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


class AsyncStreamsContainer:
    """Nothing more."""


class StreamsContainer(ABC):
    """Streams by name."""

    @abstractmethod
    def open(self, name: str) -> RemoteStream:
        """Return a handle of an existing stream."""

    def __getitem__(self, name: str) -> RemoteStream:
        """Return a handle of an existing stream, like `open`."""
        return self.open(name)


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
    ) -> Appended:
        """Append one or several records; return when they are on disk."""

    @abstractmethod
    def follow(
        self,
        offset: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
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
    ) -> Appended:
        """Append one or several records like `append`, from a coroutine."""
        return await asyncio.to_thread(
            self.append, values, producer=producer, seq=seq, close=close, key=key
        )

    def follow_async(
        self, offset: str | int = validation.START, *, since: Time | None = None
    ) -> AsyncIterator[Chunk]:
        """Iterate over chunks and wait for more, until the stream is closed.

        With `since`, starts at the first record at or after that time, as in `read`.
        """
        return self.follow(offset, since=since)

    def __len__(self) -> int:
        """Return the number of retained records."""
        info = self.info
        return info.next_offset - info.first_offset

    def __bool__(self) -> bool:
        """Always True: an empty stream is still a stream."""
        return True
