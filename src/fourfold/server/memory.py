"""Memories over HTTP. A memory is a space, so its routes are below those of its space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, UnsetType

from fourfold import limits
from fourfold.content.namespaces import MEMORY_DID, check_namespace, encode_id
from fourfold.errors import (
    Busy,
    HistoryTruncated,
    LimitExceeded,
    MissingDependency,
    NotFound,
    Refused,
    ReplayMismatch,
)
from fourfold.models.documents.memory import Memory, did_of_memory, open_memory
from fourfold.models.documents.memory_items import MemoryHit, MemoryItem, MemoryPut, format_time
from fourfold.server import conditions, cursors
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.points import parse_at
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.spaces import READ_ERRORS, SPACE, space_route
from fourfold.server.workers import Workers
from fourfold.wire.memory import (
    MemoryChangeRecord,
    MemoryChanges,
    MemoryCount,
    MemoryDiffPage,
    MemoryDiffQuery,
    MemoryHitPage,
    MemoryHitRecord,
    MemoryInfo,
    MemoryItemQuery,
    MemoryItemRecord,
    MemoryKeyQuery,
    MemoryPurge,
    MemoryQuery,
    MemorySearch,
    MemorySeq,
    MemorySweep,
    MemoryVersionRecord,
    NamespacePage,
    NamespacesQuery,
    VersionPage,
    VersionsQuery,
)
from fourfold.wire.pages import IdempotencyHeaders

MEMORY: Final = f"{SPACE}/memory"
ITEM: Final = f"{MEMORY}/item"
R = TypeVar("R", bound=Struct)
_encode: Final = msgspec.json.Encoder().encode


class MemoryRoutes:
    """Handlers of memories. A search has no bound on its cost: all run in workers."""

    def __init__(self, workers: Workers, spaces: OpenSpaces) -> None:
        self._workers = workers
        self._spaces = spaces

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def stop(self) -> None:
        """Do nothing: no request of these routes waits."""

    async def get_memory(self, _request: Request, did: str, query: MemoryQuery) -> Reply:
        """Return a memory."""
        return await self._read(did, _info, query)

    async def create_memory(self, _request: Request, did: str) -> Reply:
        """Create a memory, or return the existing one."""
        _check_memory(did)
        did_of_memory(did.removeprefix(MEMORY_DID))
        created = await self._spaces.create(did, None)
        async with self._spaces.use(did) as space:
            memory = await self._workers.write(open_memory, space)
        return Reply(MemoryInfo(name=memory.name, seq=memory.position()), 201 if created else 200)

    async def get_item(self, request: Request, did: str, query: MemoryItemQuery) -> Reply:
        """Return an item."""
        refresh = query.refresh == "true" and _may_write(request, did)
        return await self._read(did, _item, query, refresh)

    async def forget_item(self, _request: Request, did: str, query: MemoryKeyQuery) -> Reply:
        """Forget an item."""
        return await self._write(did, _forget, query)

    async def change_memory(self, request: Request, did: str, body: MemoryChanges) -> Reply:
        """Store and forget several items in one commit."""
        return await self._write(did, _change, body, conditions.idempotent_session(request))

    async def search_memory(self, request: Request, did: str, body: MemorySearch) -> Reply:
        """Return a page of a search."""
        refresh = body.refresh and _may_write(request, did)
        return await self._read(did, _search, body, refresh)

    async def list_namespaces(self, _request: Request, did: str, query: NamespacesQuery) -> Reply:
        """Return a page of namespaces."""
        return await self._read(did, _namespaces, query)

    async def list_versions(self, _request: Request, did: str, query: VersionsQuery) -> Reply:
        """Return a page of the history of an item."""
        return await self._read(did, _versions, query)

    async def diff_memory(self, _request: Request, did: str, query: MemoryDiffQuery) -> Reply:
        """Return a page of the items that differ between two points."""
        return await self._read(did, _diff, query)

    async def sweep_memory(self, _request: Request, did: str, body: MemorySweep) -> Reply:
        """Delete expired items."""
        return await self._write(did, _sweep, body)

    async def purge_memory(self, _request: Request, did: str, body: MemoryPurge) -> Reply:
        """Forget items and erase the history of the memory."""
        return await self._write(did, _purge, body)

    async def _read(self, did: str, read: Callable[..., Struct], *arguments: Any) -> Reply:
        _check_memory(did)
        async with self._spaces.use(did) as space:
            return Reply(await self._workers.run(read, Memory(space), *arguments), is_large=True)

    async def _write(self, did: str, write: Callable[..., Struct], *arguments: Any) -> Reply:
        _check_memory(did)
        async with self._spaces.use(did) as space:
            result = await self._workers.write(write, Memory(space), *arguments)
        return Reply(result, headers={"cache-control": "no-store"})


def _check_memory(did: str) -> None:
    if not did.startswith(MEMORY_DID):
        raise NotFound(f"unknown memory {did!r:.100}", details={"did": did})


def _may_write(request: Request, did: str) -> bool:
    return request.grant is None or request.grant.allows("write", did)


def _info(memory: Memory, query: MemoryQuery) -> MemoryInfo:
    return MemoryInfo(name=memory.name, seq=memory.space.seq_at(parse_at(query.at)))


def _item(memory: Memory, query: MemoryItemQuery, refresh: bool) -> MemoryItemRecord:
    item = memory.get(query.namespace, query.key, at=parse_at(query.at), refresh=refresh)
    if item is None:
        raise NotFound(
            f"memory {memory.name} has no item {query.key!r:.100}",
            details={"did": memory.space.did, "key": query.key},
        )
    return _record(item)


def _forget(memory: Memory, query: MemoryKeyQuery) -> MemoryCount:
    return MemoryCount(count=int(memory.forget(query.namespace, query.key)))


def _change(memory: Memory, body: MemoryChanges, session: str | None) -> MemorySeq:
    changes = [MemoryPut(**msgspec.structs.asdict(change)) for change in body.changes]
    return MemorySeq(seq=memory.put_many(changes, session=session))


def _search(memory: Memory, body: MemorySearch, refresh: bool) -> MemoryHitPage:
    members = msgspec.structs.asdict(body)
    listed = cursors.digest_of(
        "memory", memory.name, *(_or_none(members[name]) for name in _SEARCHED)
    )
    cursor = cursors.parse(body.cursor, listed, int)
    offset = body.offset if cursor is None else cursor.after
    options = {
        "vector": _or_none(body.vector),
        "namespace": body.namespace,
        "where": _or_none(body.where),
        "limit": body.limit,
        "offset": offset,
    }
    query = _or_none(body.query)
    seq = memory.space.seq_at(parse_at(body.at)) if cursor is None else cursor.at
    if cursor is None:
        hits = memory.search(query, **options, at=parse_at(body.at), refresh=refresh)
    if cursor is not None or (len(hits) == body.limit and memory.position() != seq):
        # Pages show one state: that of the seq in their cursors.
        hits = memory.search(query, **options, at=seq, refresh=False)
    items = _cut([_hit_record(hit) for hit in hits])
    more = len(items) < len(hits) or len(hits) == body.limit
    return MemoryHitPage(
        items=items,
        next_cursor=cursors.format_cursor(listed, seq, offset + len(items)) if more else None,
    )


_SEARCHED: Final = ("query", "vector", "namespace", "where", "offset", "at")


def _namespaces(memory: Memory, query: NamespacesQuery) -> NamespacePage:
    depth = _or_none(query.max_depth)
    listed = cursors.digest_of(
        "namespaces", memory.name, query.namespace, depth, _or_none(query.at)
    )
    cursor = cursors.parse(query.cursor, listed, str)
    seq = memory.space.seq_at(parse_at(query.at)) if cursor is None else cursor.at
    names, after = memory.namespace_page(
        query.namespace,
        max_depth=depth,
        at=seq,
        after="" if cursor is None else cursor.after,
        limit=query.limit,
    )
    return NamespacePage(
        items=[list(name) for name in names],
        next_cursor=None if after is None else cursors.format_cursor(listed, seq, after),
    )


def _versions(memory: Memory, query: VersionsQuery) -> VersionPage:
    listed = cursors.digest_of(
        *("versions", memory.name, query.namespace, query.key),
        *(query.after, _or_none(query.at)),
    )
    cursor = cursors.parse(query.cursor, listed, int)
    seq = memory.space.seq_at(parse_at(query.at)) if cursor is None else cursor.at
    after = query.after if cursor is None else cursor.after
    page = memory.version_page(query.namespace, query.key, after=after, at=seq, limit=query.limit)
    rows = [
        MemoryVersionRecord(seq=version.seq, time=version.time, value=version.value)
        for version in page.items
    ]
    items = _cut(rows)
    following = page.next if len(items) == len(rows) else items[-1].seq
    return VersionPage(
        items=items,
        next_cursor=None if following is None else cursors.format_cursor(listed, seq, following),
    )


def _diff(memory: Memory, query: MemoryDiffQuery) -> MemoryDiffPage:
    listed = cursors.digest_of(
        "memory diff", memory.name, _or_none(query.a), _or_none(query.b), query.namespace
    )
    cursor = cursors.parse(query.cursor, listed, str)
    if cursor is None:
        a, b = (memory.space.seq_at(parse_at(at)) for at in (query.a, query.b))
        after = ""
    else:
        # Two seqs: the second is before the id.
        a, (number, _, after) = cursor.at, cursor.after.partition(":")
        b = _seq_in_cursor(number)
    changes = [
        MemoryChangeRecord(
            namespace=list(change.namespace),
            key=change.key,
            before=change.before,
            after=change.after,
        )
        for change in memory.diff(a, b, namespace=query.namespace)
        if encode_id(change.namespace, change.key) > after
    ]
    items = _cut(changes[: query.limit])
    following = None
    if len(items) < len(changes):
        last = encode_id(check_namespace(items[-1].namespace), items[-1].key)
        following = cursors.format_cursor(listed, a, f"{b}:{last}")
    return MemoryDiffPage(items=items, next_cursor=following)


def _seq_in_cursor(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    return 0


def _sweep(memory: Memory, body: MemorySweep) -> MemoryCount:
    return MemoryCount(count=memory.sweep(body.limit))


def _purge(memory: Memory, body: MemoryPurge) -> MemoryCount:
    return MemoryCount(count=memory.purge(body.namespace, body.key))


def _cut(records: Sequence[R]) -> list[R]:
    """Return the first records, at least one, until they fill a page."""
    items: list[R] = []
    size = 0
    for record in records:
        size += len(_encode(record))
        if items and size > limits.PAGE_BYTES:
            break
        items.append(record)
    return items


def _record(item: MemoryItem) -> MemoryItemRecord:
    return MemoryItemRecord(
        namespace=list(item.namespace),
        key=item.key,
        value=item.value,
        created_at=format_time(item.created_at),
        updated_at=format_time(item.updated_at),
        expires_at=None if item.expires_at is None else format_time(item.expires_at),
        seq=item.seq,
    )


def _hit_record(hit: MemoryHit) -> MemoryHitRecord:
    return MemoryHitRecord(item=_record(hit.item), score=hit.score, snippets=list(hit.snippets))


def _or_none(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


_WRITE_ERRORS: Final = (NotFound, LimitExceeded)
_ROUTES: Final = (
    space_route(
        *("GET", MEMORY, MemoryRoutes.get_memory),
        operation="get_memory",
        summary="Get a memory, now or at a point: its newest seq.",
        scope="read",
        query=MemoryQuery,
        ok={200: Ok("The memory.", MemoryInfo)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("PUT", MEMORY, MemoryRoutes.create_memory),
        operation="create_memory",
        summary="Create a memory; idempotent. The space is did:memory: and its name.",
        scope="write",
        ok={200: Ok("It exists.", MemoryInfo), 201: Ok("It was created.", MemoryInfo)},
        errors=(NotFound, Refused),
    ),
    space_route(
        *("GET", ITEM, MemoryRoutes.get_item),
        operation="get_memory_item",
        summary="Get an item of a memory, now or at a point.",
        scope="read",
        query=MemoryItemQuery,
        ok={200: Ok("The item.", MemoryItemRecord)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("DELETE", ITEM, MemoryRoutes.forget_item),
        operation="forget_memory_item",
        summary="Forget an item; its history stays readable.",
        scope="write",
        query=MemoryKeyQuery,
        ok={200: Ok("0 if there was none.", MemoryCount)},
        errors=_WRITE_ERRORS,
    ),
    space_route(
        *("POST", f"{MEMORY}/changes", MemoryRoutes.change_memory),
        operation="change_memory",
        summary="Store and forget several items in one commit.",
        scope="write",
        headers=IdempotencyHeaders,
        body=MemoryChanges,
        ok={200: Ok("Committed.", MemorySeq)},
        errors=(*_WRITE_ERRORS, ReplayMismatch),
    ),
    space_route(
        *("POST", f"{MEMORY}/search", MemoryRoutes.search_memory),
        operation="search_memory",
        summary="Search the items of a memory by words, filters and namespaces.",
        scope="read",
        body=MemorySearch,
        ok={200: Ok("A page of hits.", MemoryHitPage)},
        errors=(*READ_ERRORS, Busy, LimitExceeded, MissingDependency),
    ),
    space_route(
        *("GET", f"{MEMORY}/namespaces", MemoryRoutes.list_namespaces),
        operation="list_memory_namespaces",
        summary="List the namespaces that have items.",
        scope="read",
        query=NamespacesQuery,
        ok={200: Ok("A page of namespaces.", NamespacePage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{MEMORY}/history", MemoryRoutes.list_versions),
        operation="list_memory_versions",
        summary="List the values of an item, oldest first.",
        scope="read",
        query=VersionsQuery,
        ok={200: Ok("A page of values.", VersionPage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("GET", f"{MEMORY}/diff", MemoryRoutes.diff_memory),
        operation="diff_memory",
        summary="Compare the items of a memory at two points.",
        scope="read",
        query=MemoryDiffQuery,
        ok={200: Ok("A page of the items that differ.", MemoryDiffPage)},
        errors=READ_ERRORS,
    ),
    space_route(
        *("POST", f"{MEMORY}/sweep", MemoryRoutes.sweep_memory),
        operation="sweep_memory",
        summary="Delete expired items.",
        scope="write",
        body=MemorySweep,
        ok={200: Ok("Number of items.", MemoryCount)},
        errors=_WRITE_ERRORS,
    ),
    space_route(
        *("POST", f"{MEMORY}/purge", MemoryRoutes.purge_memory),
        operation="purge_memory",
        summary="Forget items and erase the history of the whole memory.",
        scope="admin",
        body=MemoryPurge,
        ok={200: Ok("Number of items that were forgotten.", MemoryCount)},
        errors=(*_WRITE_ERRORS, HistoryTruncated),
    ),
)
