"""Pages of memories: the memories, the items of one by namespace or search, and an item in time.

A memory is a space, and an item of it a document; the pages show values without what a memory
stores with them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import Struct

from fourfold.content.filters import decode_filter
from fourfold.content.namespaces import (
    MEMORY_DID,
    Namespace,
    check_namespace,
    decode_id,
    decode_namespace,
    encode_id,
    encode_namespace,
)
from fourfold.errors import Busy, InvalidInput, MissingDependency, NotFound
from fourfold.explorer import values
from fourfold.explorer.documents import (
    PAGE_ROWS,
    DocumentQuery,
    DocumentReader,
    commit_row,
    newest_commits,
    read_document,
    read_states,
    read_step,
)
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Fragment, Visit
from fourfold.wire.documents import DocumentState, RevisionRow, SpaceInfo, SpacePage
from fourfold.wire.memory import MemoryHitPage, MemoryHitRecord, NamespacePage

NAMESPACES_SHOWN: Final = 30
_CHANGES: Final = {"set": "stored", "delete": "forgotten", "patch": "extended"}
"""What an operation on the document of an item does to the item."""
_TIMES: Final = ("created_at", "updated_at", "expires_at")


class MemoriesPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of memories."""

    prefix: str = ""
    """Start of the name."""
    cursor: str = ""


class MemoryPageQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a memory."""

    did: str
    q: str = ""
    """Words to search for."""
    namespace: str = ""
    """Labels with `/` between them: only items of this namespace and below it."""
    where: str = ""
    """A filter of the values, as JSON."""
    cursor: str = ""
    names: str = ""
    """Cursor of the list of namespaces."""


class Label(Struct, frozen=True):
    """A label of a namespace, and the text of the namespace that ends with it."""

    name: str
    namespace: str


async def memories_page(visit: Visit, query: MemoriesPageQuery) -> dict[str, Any]:
    """List memories by the start of their name, a page at a time."""
    page = await visit.api.get(
        *("/v1/spaces", SpacePage),
        prefix=f"{MEMORY_DID}{query.prefix}",
        cursor=query.cursor,
        limit=PAGE_ROWS,
        at=visit.time,
    )
    return {
        "prefix": query.prefix,
        "cursor": query.cursor,
        "memories": [
            {
                "did": row.did,
                "name": row.did.removeprefix(MEMORY_DID),
                "size_bytes": row.size_bytes,
                "changed_at_ms": row.changed_at_ms,
            }
            for row in page.items
        ],
        "next_cursor": page.next_cursor,
    }


async def memory_page(visit: Visit, query: MemoryPageQuery) -> dict[str, Any]:
    """Show the items of a memory by namespace or search, its namespaces and newest changes."""
    path = f"/v1/spaces/{query.did}"
    namespace = decode_namespace(query.namespace)
    info = await visit.api.get(path, SpaceInfo)
    items, names, log = await asyncio.gather(
        _search(visit, query),
        visit.api.get(
            *(f"{path}/memory/namespaces", NamespacePage),
            namespace=list(namespace),
            cursor=query.names,
            limit=NAMESPACES_SHOWN,
            at=format_at(visit.at),
        ),
        newest_commits(visit, query.did, info.seq),
    )
    return {
        **items,
        "space": info,
        "name": query.did.removeprefix(MEMORY_DID),
        "q": query.q,
        "namespace": query.namespace,
        "labels": _labels(namespace),
        "where": query.where,
        "cursor": query.cursor,
        "namespaces": [encode_namespace(tuple(name)) for name in names.items],
        "names": query.names,
        "next_names": names.next_cursor,
        "commits": [_change_row(commit_row(row, visit.now_ms)) for row in reversed(log)],
    }


async def _search(visit: Visit, query: MemoryPageQuery) -> dict[str, Any]:
    """Return a page of the items that match, or why there are none."""
    fields = {"query": query.q, "cursor": query.cursor, "at": format_at(visit.at)}
    body: dict[str, Any] = {name: value for name, value in fields.items() if value}
    body["limit"] = PAGE_ROWS
    try:
        if query.namespace:
            namespace = decode_namespace(query.namespace)
            body["namespace"] = list(check_namespace(namespace, is_prefix=True))
        if query.where:
            body["where"] = decode_filter(query.where).where
        page = await visit.api.post(f"/v1/spaces/{query.did}/memory/search", MemoryHitPage, body)
    except (InvalidInput, Busy, MissingDependency) as error:
        problem = f"{error.message}. {error.hint}"
        return {"items": [], "next_cursor": None, "problem": problem, "sent": body}
    return {
        "sent": body,
        "items": [_item_row(hit) for hit in page.items],
        "next_cursor": page.next_cursor,
        "problem": "",
    }


def _item_row(hit: MemoryHitRecord) -> dict[str, Any]:
    item = hit.item
    namespace = tuple(item.namespace)
    return {
        "id": encode_id(namespace, item.key),
        "namespace": encode_namespace(namespace),
        "key": item.key,
        "value": item.value,
        "score": hit.score,
        "seq": item.seq,
        **_times_ms(msgspec.structs.asdict(item)),
    }


def _times_ms(document: dict[str, Any]) -> dict[str, int | None]:
    """Return the times of an item as milliseconds since the epoch."""
    return {
        f"{name}_ms": values.to_ms(document[name]) if document.get(name) else None
        for name in _TIMES
    }


def _labels(namespace: Namespace) -> list[Label]:
    return [
        Label(name, encode_namespace(namespace[: number + 1]))
        for number, name in enumerate(namespace)
    ]


def _change_row(commit: dict[str, Any]) -> dict[str, Any]:
    """Return a commit with the namespaces and keys of its items."""
    items = []
    for id_ in commit["ids"]:
        namespace, key = decode_id(id_)
        items.append({"id": id_, "namespace": encode_namespace(namespace), "key": key})
    operations = set(commit["change"].split(", "))
    # A patch extends the time to live.
    names = {_CHANGES.get(operation.partition(" ")[0], operation) for operation in operations}
    return {**commit, "items": items, "change": ", ".join(sorted(names))}


# An item


class _ItemReader(DocumentReader):
    """Read an item at points of its history: its value, without what is stored with it."""

    page = "/item"

    async def state(self, at: Any) -> DocumentState | None:
        """Return the value at a point; None if nothing was stored until then."""
        state = await super().state(at)
        if state is None or state.document is None:
            return state
        return msgspec.structs.replace(state, document=state.document["value"])

    async def authors(self, _state: DocumentState) -> dict[str, int]:
        """Return no authors: each change stores the whole value."""
        return {}

    async def revisions(self, end: int) -> tuple[list[RevisionRow], bool]:
        """Return the newest revisions up to a seq, with their values."""
        rows, has_earlier = await super().revisions(end)
        return [_value_row(row) for row in rows], has_earlier


def _value_row(row: RevisionRow) -> RevisionRow:
    if row.op != "set":
        return row
    return msgspec.structs.replace(row, data=row.data["value"])


async def item_page(visit: Visit, query: DocumentQuery) -> dict[str, Any]:
    """Show an item at a point of its history, what changed, and the time bar."""
    _check_memory(query.did)
    view, item = await asyncio.gather(
        read_document(visit, query, _ItemReader), _read_item(visit, query)
    )
    return {**view, **item}


async def item_part(visit: Visit, query: DocumentQuery) -> dict[str, Any]:
    """Show what changes on the page of an item with a step of its time bar."""
    _check_memory(query.did)
    view, item = await asyncio.gather(
        read_step(visit, query, _ItemReader), _read_item(visit, query)
    )
    return {**view, **item}


def _check_memory(did: str) -> None:
    if not did.startswith(MEMORY_DID):
        raise NotFound(f"unknown memory {did!r:.100}", hint="Show it as a space.")


async def _read_item(visit: Visit, query: DocumentQuery) -> dict[str, Any]:
    """Return the name of an item, and its times at the point of the visit."""
    states = await read_states(visit, query.did, [query.id], at=format_at(visit.at))
    state = states.get(query.id)
    document = None if state is None else state.document
    namespace, key = decode_id(query.id)
    times = _times_ms(document or {})
    expires_at_ms = times["expires_at_ms"]
    return {
        "name": query.did.removeprefix(MEMORY_DID),
        "namespace": encode_namespace(namespace),
        "labels": _labels(namespace),
        "key": key,
        "is_expired": expires_at_ms is not None
        and expires_at_ms <= (visit.now_ms if visit.at is None else visit.time_ms or 0),
        **times,
    }


PAGES: Final = (
    ExplorerPage("/memories", "memories.html", memories_page, MemoriesPageQuery, "List memories."),
    ExplorerPage("/memory", "memory.html", memory_page, MemoryPageQuery, "Show a memory."),
    ExplorerPage("/item", "item.html", item_page, DocumentQuery, "Show an item of a memory."),
)
FRAGMENTS: Final = (
    Fragment("/item.part", "item_part.html", item_part, DocumentQuery, "Step in time."),
)
