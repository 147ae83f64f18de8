"""LangGraph store that keeps long-term memory in a memory of Fourfold.

    store = FourfoldStore(fourfold.open("agent").memory("assistant"))
    graph = builder.compile(checkpointer=saver, store=store)
    store.put(("users", "ada"), "food", {"likes": "leek soup"}, ttl=60)
    store.search(("users",), query="what soup", filter={"likes": {"$exists": True}})
    store.at(yesterday).get(("users", "ada"), "food")

As with LangGraph's own stores, the reads of a batch show the state before its writes, and of
several writes of one item the last one counts. The writes of a batch are one commit.
`docs/memory.md` lists the differences from `InMemoryStore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from fourfold.content.json_pointer import format_pointer
from fourfold.content.namespaces import Namespace
from fourfold.content.text import QUERY_CHARS_MAX, QUERY_PARTS_MAX, tokens
from fourfold.errors import InvalidInput, Refused
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.memory import MEMORY_LIMIT_MAX
from fourfold.models.documents.memory_items import MemoryHit, MemoryItem, MemoryPut

_MINUTE_S: Final = 60.0


class StoredMemory(Protocol):
    """A memory of a folder, or one of a server."""

    def put_many(self, changes: Iterable[MemoryPut], *, session: str | None = None) -> int:
        """Store and forget several items in one commit."""

    def get(
        self, namespace: Sequence[str], key: str, *, at: At = None, refresh: bool = True
    ) -> MemoryItem | None:
        """Return an item."""

    def search(
        self,
        query: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        namespace: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        at: At = None,
        refresh: bool = True,
    ) -> Sequence[MemoryHit]:
        """Return the items below a namespace, the most relevant first."""

    def namespaces(
        self, prefix: Sequence[str] = (), *, max_depth: int | None = None, at: At = None
    ) -> Sequence[Namespace]:
        """Return the namespaces that have items."""

    def sweep(self, limit: int = MEMORY_LIMIT_MAX) -> int:
        """Delete expired items."""


class FourfoldStore(BaseStore):
    """A store of LangGraph over a memory.

    Args:
        memory: The memory, `store.memory(name)`, of a folder or of a server.
        ttl: `default_ttl` in minutes, and `refresh_on_read`, which is True by default. Expired
            items are always omitted; `sweep_ttl` deletes them.
        index: `embed`, and the `fields` whose texts are embedded, by default the whole value. An
            item has one vector, of all its texts. A search ranks by words and by vectors then.
            Requires `fourfold[vectors]`.
    """

    __slots__ = ("_at", "_embeddings", "_fields", "index_config", "memory", "ttl_config")

    supports_ttl = True

    def __init__(
        self,
        memory: StoredMemory,
        *,
        ttl: TTLConfig | None = None,
        index: IndexConfig | None = None,
    ) -> None:
        self.memory = memory
        self.ttl_config = ttl
        self.index_config = index
        self._embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        self._fields: Sequence[str] = (index or {}).get("fields") or ("$",)
        self._at: datetime | int | None = None

    def at(self, at: datetime | int) -> FourfoldStore:
        """Return this store as of a time or a seq, for reading."""
        past = FourfoldStore(self.memory, ttl=self.ttl_config, index=self.index_config)
        past._at = at
        return past

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run several operations: reads of the state before, then all writes in one commit.

        Raises:
            InvalidInput: An operation is not valid; nothing was written.
            Refused: The store is one of the past, and an operation writes.
        """
        listed = self._check(ops)
        texts = [text for op in listed if (text := self._text_of(op))]
        vectors = self._embeddings.embed_documents(texts) if texts and self._embeddings else []
        return self._run(listed, dict(zip(texts, vectors, strict=True)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run several operations like `batch`, in a thread."""
        listed = self._check(ops)
        texts = [text for op in listed if (text := self._text_of(op))]
        vectors = []
        if texts and self._embeddings:
            vectors = await self._embeddings.aembed_documents(texts)
        return await asyncio.to_thread(self._run, listed, dict(zip(texts, vectors, strict=True)))

    def _check(self, ops: Iterable[Op]) -> list[Op]:
        listed = list(ops)
        for op in listed:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                _to_change(op, None)
                if self._at is not None:
                    raise Refused(
                        "cannot write into a store of the past", hint="Use the store itself."
                    )
        return listed

    def _run(self, ops: Sequence[Op], vectors: Mapping[str, Sequence[float]]) -> list[Result]:
        """Run operations, with the vectors of their texts."""
        results = [self._read(op, vectors) for op in ops]
        puts = [
            _to_change(op, vectors.get(self._text_of(op))) for op in ops if isinstance(op, PutOp)
        ]
        if puts:
            self.memory.put_many(puts)
        return results

    def _text_of(self, op: Op) -> str:
        """Return the text that is embedded for an operation; empty if there is none."""
        if self._embeddings is None:
            return ""
        if isinstance(op, SearchOp):
            return op.query or ""
        if not isinstance(op, PutOp) or op.value is None or op.index is False:
            return ""
        fields = self._fields if op.index is None else op.index
        paths = [tokenize_path(field) for field in fields]
        return "\n".join(text for path in paths for text in get_text_at_path(op.value, path))

    def sweep_ttl(self) -> int:
        """Delete expired items; return how many."""
        count = 0
        while swept := self.memory.sweep():
            count += swept
        return count

    def _read(self, op: Op, vectors: Mapping[str, Sequence[float]]) -> Result:
        if isinstance(op, GetOp):
            item = self.memory.get(op.namespace, op.key, at=self._at, refresh=op.refresh_ttl)
            return _to_item(item) if item else None
        if isinstance(op, SearchOp):
            return self._search(op, vectors.get(op.query or ""))
        if isinstance(op, ListNamespacesOp):
            return self._list_namespaces(op)
        if isinstance(op, PutOp):
            return None
        raise InvalidInput(f"unknown operation {type(op).__name__}")

    def _search(self, op: SearchOp, vector: Sequence[float] | None) -> list[SearchItem]:
        """Return the hits of a search, in pages: LangGraph does not limit `limit`."""
        where = to_filter(op.filter) if op.filter else None
        query = _to_query(op.query)
        found: list[SearchItem] = []
        while len(found) < op.limit:
            limit = min(op.limit - len(found), MEMORY_LIMIT_MAX)
            hits = self.memory.search(
                query,
                vector=vector,
                namespace=op.namespace_prefix,
                where=where,
                limit=limit,
                offset=op.offset + len(found),
                at=self._at,
                refresh=op.refresh_ttl,
            )
            found += [_to_search_item(hit.item, hit.score) for hit in hits]
            if len(hits) < limit:
                break
        return found

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefixes = [_fixed_prefix(one) for one in conditions if one.match_type == "prefix"]
        names = self.memory.namespaces(max(prefixes, key=len, default=()), at=self._at)
        matching = {
            name[: op.max_depth]
            for name in names
            if all(_matches(condition, name) for condition in conditions)
        }
        return sorted(matching)[op.offset : op.offset + op.limit]


def to_filter(where: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a filter of LangGraph into one of Fourfold.

    A key is the name of a field. An object without operators must be contained in the value, and
    None also means that there is no value.
    """
    conditions: list[dict[str, Any]] = []
    for field, expected in where.items():
        conditions += _conditions((field,), expected)
    return {"$and": conditions}


def _conditions(path: tuple[str, ...], expected: Any) -> list[dict[str, Any]]:
    pointer = format_pointer(path)
    if expected is None:
        return [{"$or": [{pointer: None}, {pointer: {"$exists": False}}]}]
    if not isinstance(expected, Mapping):
        return [{pointer: {"$eq": _plain(expected)}}]
    if any(key.startswith("$") for key in expected):
        return [
            condition
            for operator, operand in expected.items()
            for condition in _operator(path, operator, operand)
        ]
    nested = [{pointer: {"$type": "object"}}]
    for field, value in expected.items():
        nested += _conditions((*path, field), value)
    return nested


def _operator(path: tuple[str, ...], operator: str, operand: Any) -> list[dict[str, Any]]:
    pointer = format_pointer(path)
    if operand is None and operator == "$eq":
        return _conditions(path, None)
    if operand is None and operator == "$ne":
        return [{"$not": {"$and": _conditions(path, None)}}]
    return [{pointer: {operator: _plain(operand)}}]


def _to_query(query: str | None) -> str | None:
    """Return the words of a sentence; None if it has none, as without a query."""
    if not query:
        return None
    words: list[str] = []
    size = 0
    for word in dict.fromkeys(tokens(query)):
        size += len(word) + 1
        if len(words) == QUERY_PARTS_MAX or size > QUERY_CHARS_MAX:
            break
        words.append(word)
    return " ".join(words) or None


def _to_change(op: PutOp, vector: Sequence[float] | None) -> MemoryPut:
    if op.value is None:
        return MemoryPut(op.namespace, op.key, None)
    if not isinstance(op.value, Mapping):
        raise InvalidInput(f"the value of {op.key!r:.60} must be an object, got {op.value!r:.60}")
    ttl_s = None if op.ttl is None else op.ttl * _MINUTE_S
    value = cast("dict[str, Any]", _plain(op.value))
    if op.index is None or op.index is False:
        return MemoryPut(op.namespace, op.key, value, ttl_s, text=op.index is None, vector=vector)
    fields: Sequence[str] = op.index
    strings = [text for field in fields for text in get_text_at_path(value, tokenize_path(field))]
    return MemoryPut(op.namespace, op.key, value, ttl_s, strings=strings, vector=vector)


def _plain(value: Any) -> Any:
    """Return a JSON value with lists instead of tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def _fixed_prefix(condition: MatchCondition) -> Namespace:
    """Return the labels of a prefix before its first wildcard."""
    path = tuple(condition.path)
    return path[: path.index("*")] if "*" in path else path


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)]
    if condition.match_type == "suffix":
        labels = namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, labels, strict=True))


def _to_item(item: MemoryItem) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _to_search_item(item: MemoryItem, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=score,
    )
