"""Memories of a server with the methods of `fourfold.Memory`, for coroutines."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.client import memory
from fourfold.client.containers import AsyncMemoryContainer
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.coroutines.remote_spaces import AsyncRemoteSpace
from fourfold.client.memory import MemoryCalls
from fourfold.content.namespaces import Namespace
from fourfold.errors import LimitExceeded, NotFound
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.memory import MEMORY_LIMIT_MAX, MEMORY_SCAN_MAX, check_max_depth
from fourfold.models.documents.memory_items import (
    MemoryChange,
    MemoryHit,
    MemoryItem,
    MemoryPut,
    MemoryVersion,
)
from fourfold.tabular import Rows
from fourfold.wire import memory as wire


@check_arguments()
class AsyncRemoteMemory(AsyncMemoryContainer):
    """A memory of a server, with the methods of a local one."""

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._calls = MemoryCalls(connection.settings.address, name)
        self.space = AsyncRemoteSpace(connection, self._calls.did)
        """The space of documents in which the items are stored."""

    # Writing

    async def put(
        self,
        namespace: str | Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        ttl_s: float | None = None,
        text: Sequence[str] | bool = True,
        vector: Sequence[float] | None = None,
    ) -> int:
        """Store a value; return the seq of the commit. An earlier value stays in the history.

        Args:
            namespace: Labels, such as `("users", "ada")`; a str is one label.
            key: The key in the namespace.
            value: A JSON object.
            ttl_s: Seconds after which the item expires; a read extends them.
            text: What `search` reads: all strings of the value, none (False), or those at these
                JSON Pointers.
            vector: The embedding of the value, for `search(vector=...)`.

        Raises:
            InvalidInput: The namespace, the key or the value is not valid; nothing was written.
        """
        return await self.put_many([MemoryPut(namespace, key, value, ttl_s, text, vector=vector)])

    async def put_many(self, changes: Iterable[MemoryPut], *, session: str | None = None) -> int:
        """Store and forget several items in one commit, up to 1,000; return its seq.

        Of several changes of one item the last one counts.

        Args:
            changes: The items.
            session: Identifies the request: a repeated one returns the seq of the first, and
                writes nothing.

        Raises:
            InvalidInput: A change is not valid; nothing was written.
            ReplayMismatch: Another request had the same session.
        """
        response = await self._connection.send(self._calls.put(changes, session))
        return memory.parse(response, wire.MemorySeq).seq

    async def forget(self, namespace: str | Sequence[str], key: str) -> bool:
        """Delete an item; return False if there was none. Its history stays: see `purge`."""
        response = await self._connection.send(self._calls.forget(namespace, key))
        return memory.parse(response, wire.MemoryCount).count > 0

    async def sweep(self, limit: int = MEMORY_LIMIT_MAX) -> int:
        """Delete up to `limit` expired items; return how many.

        No read returns them anyway, and their history stays.
        """
        response = await self._connection.send(self._calls.sweep(limit))
        return memory.parse(response, wire.MemoryCount).count

    async def purge(self, namespace: str | Sequence[str] = (), key: str | None = None) -> int:
        """Forget items and erase all history of this memory; return how many were forgotten.

        The key of the store needs the scope `admin`. Values that are stored now, in other
        namespaces, stay.

        Args:
            namespace: Forget the items below this namespace; nothing by default.
            key: Forget only this item of exactly this namespace.
        """
        response = await self._connection.send(self._calls.purge(namespace, key))
        return memory.parse(response, wire.MemoryCount).count

    # Reading

    async def get(
        self, namespace: str | Sequence[str], key: str, *, at: At = None, refresh: bool = True
    ) -> MemoryItem | None:
        """Return an item, or None if there is none, or if it has expired.

        Args:
            namespace: Labels, such as `("users", "ada")`.
            key: The key in the namespace.
            at: A seq or a datetime, by default now.
            refresh: Extend the time to live of an item that expires. Not in the past.
        """
        call = self._calls.item(namespace, key, at, refresh=refresh)
        try:
            response = await self._connection.send(call)
        except NotFound as error:
            if "key" in error.details:
                return None
            raise
        return memory.to_item(memory.parse(response, wire.MemoryItemRecord))

    async def search(
        self,
        query: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        namespace: str | Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        at: At = None,
        refresh: bool = True,
    ) -> Rows[MemoryHit]:
        """Return the items below a namespace, the most relevant first.

        Args:
            query: Words, "phrases", prefixes (`pre*`), and `-words` that must not occur. One is
                enough; the more of them an item has, and the rarer they are, the higher its score.
                Without a query, the items that were put last come first.
            vector: An embedding: the items whose vectors of the same length have the most similar
                direction come first. With a query, the ranks by both are combined.
            namespace: Only items in this namespace and below it.
            where: A filter of the values; see the reference of filters.
            limit: Maximum number of items, up to 1,000.
            offset: Number of items to skip.
            at: A seq or a datetime, by default now.
            refresh: Extend the times to live of the items that are returned. Not in the past.

        Raises:
            LimitExceeded: More than 20,000 items would be compared with `where`.
        """
        options = {"limit": limit, "offset": offset, "at": at, "refresh": refresh}
        hits: list[MemoryHit] = []
        cursor: str | None = None
        while True:
            paged = options if cursor is None else {**options, "cursor": cursor}
            call = self._calls.search(query, vector, namespace, where, paged)
            page = memory.parse(await self._connection.send(call), wire.MemoryHitPage)
            hits += map(memory.to_hit, page.items)
            cursor = page.next_cursor
            if cursor is None or len(hits) >= limit:
                return Rows(hits[:limit], MemoryHit)

    async def list(
        self,
        namespace: str | Sequence[str] = (),
        *,
        where: Mapping[str, Any] | None = None,
        limit: int = limits.PAGE_ITEMS,
        offset: int = 0,
        at: At = None,
    ) -> Rows[MemoryItem]:
        """Return the items below a namespace, those that were put last first.

        Times to live are not extended.
        """
        hits = await self.search(
            namespace=namespace, where=where, limit=limit, offset=offset, at=at, refresh=False
        )
        return Rows((hit.item for hit in hits), MemoryItem)

    async def namespaces(
        self, prefix: str | Sequence[str] = (), *, max_depth: int | None = None, at: At = None
    ) -> Sequence[Namespace]:
        """Return the namespaces that have items, sorted; with `max_depth`, their beginnings.

        A namespace whose items have all expired is listed until they are swept.

        Raises:
            LimitExceeded: There are more than 20,000.
        """
        call = self._calls.namespaces(prefix, check_max_depth(max_depth), at)
        names: builtins.list[builtins.list[str]] = []
        async for page in self._connection.pages(call, wire.NamespacePage):
            names += page.items
            if len(names) > MEMORY_SCAN_MAX:
                raise LimitExceeded(
                    f"there are more than {MEMORY_SCAN_MAX} namespaces",
                    hint="Pass a longer prefix.",
                )
        return memory.sort_namespaces(names)

    async def history(
        self,
        namespace: str | Sequence[str],
        key: str,
        *,
        after: int = 0,
        at: At = None,
        limit: int = limits.HISTORY_PAGE_ROWS,
    ) -> Rows[MemoryVersion]:
        """Return the values of an item after the seq `after`, oldest first.

        Extensions of its time to live are left out.
        """
        call = self._calls.history(namespace, key, after, at)
        versions: list[MemoryVersion] = []
        async for page in self._connection.pages(call, wire.VersionPage):
            versions += map(memory.to_version, page.items)
            if len(versions) >= limit:
                break
        return Rows(versions[:limit], MemoryVersion)

    async def diff(
        self, at1: At, at2: At = None, *, namespace: str | Sequence[str] = ()
    ) -> Rows[MemoryChange]:
        """Return the items whose values differ between two points, sorted by id; None is now.

        An item that expired, and was not swept, has not changed.
        """
        changes: list[MemoryChange] = []
        call = self._calls.diff(at1, at2, namespace)
        async for page in self._connection.pages(call, wire.MemoryDiffPage):
            changes += map(memory.to_change, page.items)
        return Rows(changes, MemoryChange)

    async def position(self) -> int:
        """Return the newest seq."""
        response = await self._connection.send(self._calls.get())
        return memory.parse(response, wire.MemoryInfo).seq

    async def create(self) -> None:
        """Create the memory on the server, unless it exists."""
        try:
            await self.position()
        except NotFound:
            # A key that may only read does not create anything.
            await self._connection.send(self._calls.create())

    def __repr__(self) -> str:
        return f"<Memory {self.name}>"
