"""A memory: items under namespaces, found by their words, with their whole history.

    memory = store.memory("assistant")
    memory.put(("users", "ada"), "food", {"likes": "leek soup"})
    memory.get(("users", "ada"), "food").value
    memory.search("soup", namespace=("users",))
    memory.get(("users", "ada"), "food", at=yesterday)

A memory is a space of documents with the DID `did:memory:<name>`, and has everything that spaces
have: branches, garbage collection, SQL, the archive, verification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.content.filters import Predicate, parse_filter
from fourfold.content.namespaces import (
    MEMORY_DID,
    Namespace,
    check_namespace,
    decode_id,
    encode_id,
    encode_namespace,
    first_id_after,
)
from fourfold.content.text import TextPart, TextQuery, parse_text_query
from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    LimitExceeded,
    PreconditionFailed,
    ReplayMismatch,
)
from fourfold.models.documents.ancestry import At
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.indexes.declaration import IndexKindName
from fourfold.models.documents.indexes.search import DocumentSearch, search
from fourfold.models.documents.indexes.vector import check_vector
from fourfold.models.documents.memory_items import (
    MemoryChange,
    MemoryHit,
    MemoryItem,
    MemoryPut,
    MemoryVersion,
    MemoryVersionPage,
    find_refresh,
    format_time,
    is_alive,
    make_document,
    scope_word,
    to_item,
    without_times,
)
from fourfold.models.documents.records import Document, State
from fourfold.models.documents.space import Space
from fourfold.tabular import Rows

MEMORY_LIMIT_MAX: Final = 1_000
"""Items that one search returns."""
MEMORY_SCAN_MAX: Final = 20_000
"""Items that one search, or one list of namespaces, reads."""
_PAGE_MIN: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORDS: Final = "memory_words"
_VECTORS: Final = "memory_vectors"
_INDEXES: Final[dict[str, tuple[str | list[str], IndexKindName]]] = {
    _WORDS: (["/text/*", "/scope/*"], "text"),
    _VECTORS: ("/vector", "vector"),
    "memory_scope": ("/scope/*", "value"),
    "memory_updated": ("/updated_at", "value"),
    "memory_expires": ("/expires_at", "value"),
}
_ALL: Final = parse_filter(None)
"""Matches every value."""


class _MemoryCandidate(NamedTuple):
    """A document that a search may return."""

    id: str
    document: Document
    seq: int
    score: float | None
    snippets: tuple[str, ...]


def did_of_memory(name: object) -> str:
    """Return the DID of the space of a memory; raise InvalidInput for a bad name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name:
        raise InvalidInput(
            f"the name of a memory must be letters, digits, '.', '_' or '-', got {name!r:.100}"
        )
    return MEMORY_DID + name


def open_memory(space: Space) -> Memory:
    """Return the memory in a space, and declare the indexes that it lacks."""
    if space.database.writable:
        declared = {info.name for info in space.indexes.list()}
        for name, (path, kind) in _INDEXES.items():
            if name not in declared:
                try:
                    space.indexes.create(name, path, kind=kind)
                except AlreadyExists:
                    # Another thread opens the same memory.
                    continue
    return Memory(space)


@check_arguments()
class Memory:
    """Items under namespaces, with their whole history. Opened by `store.memory(name)`.

    memory.put(("users", "ada"), "food", {"likes": "leek soup"}, ttl_s=86_400)
    memory.get(("users", "ada"), "food").value
    memory.search("soup", namespace=("users",), where={"likes": {"$exists": True}})
    memory.forget(("users", "ada"), "food")
    """

    def __init__(self, space: Space, clock: Callable[[], datetime] | None = None) -> None:
        self.space = space
        """The space of documents in which the items are stored."""
        self.name = space.did.removeprefix(MEMORY_DID)
        self._clock = clock or _now

    # Writing

    def put(
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
        return self.put_many([MemoryPut(namespace, key, value, ttl_s, text, vector=vector)])

    def put_many(self, changes: Iterable[MemoryPut], *, session: str | None = None) -> int:
        """Store and forget several items in one commit; return its seq.

        Of several changes of one item the last one counts.

        Args:
            changes: The items.
            session: Identifies the request: a repeated one returns the seq of the first, and
                writes nothing.

        Raises:
            InvalidInput: A change is not valid; nothing was written.
            ReplayMismatch: Another request had the same session.
        """
        by_id: dict[str, tuple[Namespace, MemoryPut]] = {}
        for change in changes:
            if not isinstance(change, MemoryPut):
                raise InvalidInput(
                    f"changes must be MemoryPut, got {change!r:.80}",
                    hint="Use MemoryPut(namespace, key, value).",
                )
            namespace = check_namespace(change.namespace)
            by_id[encode_id(namespace, change.key)] = (namespace, change)
        if not by_id:
            return self.space.position()
        now = self._clock()
        states = self.space.read_many(by_id)
        operations: list[dict[str, Any]] = []
        for entity, (namespace, change) in by_id.items():
            document = _alive(states[entity], now)
            if change.value is not None:
                created_at = None if document is None else document["created_at"]
                made = make_document(change, namespace, now, created_at)
                operations.append({"op": "set", "id": entity, "value": made})
            elif session or _document(states[entity]) or self._may_be_uncommitted():
                # A repeated request has the same operations, though the item is forgotten by then.
                operations.append({"op": "delete", "id": entity})
        if not operations:
            return self.space.position()
        if session is None:
            return self.space.transact(operations).seq
        return self._transact_once(operations, session)

    def forget(self, namespace: str | Sequence[str], key: str) -> bool:
        """Delete an item; return False if there was none. Its history stays: see `purge`."""
        entity = encode_id(check_namespace(namespace), key)
        state = self.space.read(entity)
        if _document(state) is None and not self._may_be_uncommitted():
            return False
        self.space.delete(entity)
        return _alive(state, self._clock()) is not None

    def sweep(self, limit: int = MEMORY_LIMIT_MAX) -> int:
        """Delete up to `limit` expired items; return how many.

        No read returns them anyway, and their history stays.
        """
        now = self._clock()
        due = {"/expires_at": {"$lte": format_time(now)}}
        count = 0
        for match in self.space.find(due, limit=check_limit(limit)):
            deletion = {"op": "delete", "id": match.id}
            count += self._commit_unless_changed(deletion, match.id, match.seq)
        return count

    def purge(self, namespace: str | Sequence[str] = (), key: str | None = None) -> int:
        """Forget items and erase all history of this memory; return how many were forgotten.

        Values that are stored now, in other namespaces, stay. History is erased for every item:
        what was forgotten, overwritten or expired before cannot be read afterwards, and `at=`
        before now raises HistoryTruncated. Keep what must be erased alone in a memory of its own.

        Args:
            namespace: Forget the items below this namespace; nothing by default.
            key: Forget only this item of exactly this namespace.
        """
        prefix = check_namespace(namespace, is_prefix=True)
        if key is not None:
            count = int(self.forget(check_namespace(prefix), key))
        else:
            count = sum(map(self._forget_page, self._pages_of(prefix))) if prefix else 0
        self.space.gc(GcPolicy(keep_seqs=1))
        return count

    # Reading

    def get(
        self, namespace: str | Sequence[str], key: str, *, at: At = None, refresh: bool = True
    ) -> MemoryItem | None:
        """Return an item, or None if there is none, or if it has expired.

        Args:
            namespace: Labels, such as `("users", "ada")`.
            key: The key in the namespace.
            at: A seq or a datetime, by default now.
            refresh: Extend the time to live of an item that expires. Not in the past.
        """
        entity = encode_id(check_namespace(namespace), key)
        state = self.space.read(entity, at=at)
        now = self._time_of(at)
        document = _alive(state, now)
        if state is None or document is None:
            return None
        if refresh and at is None and "ttl_s" in document:
            self._refresh(entity, document, state.seq, now)
        return to_item(document, state.seq)

    def search(
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

            memory.search("soup dinner", namespace=("users", "ada"), where={"rating": {"$gte": 4}})

        Args:
            query: Words, "phrases", prefixes (`pre*`), and `-words` that must not occur. One is
                enough; the more of them an item has, and the rarer they are, the higher its score.
                Without a query, the items that were put last come first.
            vector: An embedding: the items whose vectors of the same length have the most similar
                direction come first. With a query, the ranks by both are combined. Requires
                `fourfold[vectors]`.
            namespace: Only items in this namespace and below it.
            where: A filter of the values; see the reference of filters.
            limit: Maximum number of items, up to 1,000.
            offset: Number of items to skip.
            at: A seq or a datetime, by default now.
            refresh: Extend the times to live of the items that are returned. Not in the past.

        Raises:
            LimitExceeded: More than 20,000 items would be compared with `where`.
            MissingDependency: `vector` requires sqlite-vec, which is not installed.
        """
        prefix = check_namespace(namespace, is_prefix=True)
        stop = check_limit(limit) + check_offset(offset)
        matches: Predicate = (_ALL if where is None else parse_filter(where)).matches
        now = self._time_of(at)
        if query is None and vector is None:
            candidates = self._newest(prefix, stop, at)
        else:
            candidates = self._ranked(_make_search(query, vector, prefix, at), stop)
        hits: list[MemoryHit] = []
        chosen = 0
        for scanned, candidate in enumerate(candidates):
            if chosen == stop:
                break
            if scanned == MEMORY_SCAN_MAX:
                raise LimitExceeded(
                    f"more than {MEMORY_SCAN_MAX} items would be compared",
                    hint="Search a narrower namespace, or for more words.",
                )
            document = candidate.document
            if not is_alive(document, now) or not matches(document["value"]):
                continue
            chosen += 1
            if chosen <= offset:
                continue
            item = to_item(document, candidate.seq)
            hits.append(MemoryHit(item, candidate.score, candidate.snippets))
            if refresh and at is None:
                self._refresh(candidate.id, document, candidate.seq, now)
        return Rows(hits, MemoryHit)

    def list(
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
        hits = self.search(
            namespace=namespace, where=where, limit=limit, offset=offset, at=at, refresh=False
        )
        return Rows((hit.item for hit in hits), MemoryItem)

    def namespaces(
        self, prefix: str | Sequence[str] = (), *, max_depth: int | None = None, at: At = None
    ) -> Sequence[Namespace]:
        """Return the namespaces that have items, sorted; with `max_depth`, their beginnings.

        A namespace whose items have all expired is listed until they are swept.

        Raises:
            LimitExceeded: There are more than 20,000.
        """
        names: set[Namespace] = set()
        after: str | None = ""
        point = self.space.seq_at(at)
        while after is not None and len(names) <= MEMORY_SCAN_MAX:
            page, after = self.namespace_page(prefix, max_depth=max_depth, at=point, after=after)
            names.update(page)
        if len(names) > MEMORY_SCAN_MAX:
            raise LimitExceeded(
                f"there are more than {MEMORY_SCAN_MAX} namespaces", hint="Pass a longer prefix."
            )
        return sorted(names)

    def namespace_page(
        self,
        prefix: str | Sequence[str] = (),
        *,
        max_depth: int | None = None,
        at: At = None,
        after: str = "",
        limit: int = MEMORY_LIMIT_MAX,
    ) -> tuple[Sequence[Namespace], str | None]:
        """Return up to `limit` namespaces in the order of ids, and where the next page starts.

        Args:
            prefix: Only namespaces that begin with these labels.
            max_depth: Return the beginnings of namespaces, with this many labels.
            at: A seq or a datetime, by default now.
            after: The second result of the page before, unless it was None.
            limit: Maximum number of namespaces.
        """
        labels = check_namespace(prefix, is_prefix=True)
        check_max_depth(max_depth)
        start = f"{encode_namespace(labels)}/" if labels else ""
        point = self.space.seq_at(at)
        names: list[Namespace] = []
        for _ in range(check_limit(limit)):
            page = self.space.ids(at=point, prefix=start, after=after, limit=1)
            if not page:
                return names, None
            namespace = decode_id(page[0])[0][:max_depth]
            names.append(namespace)
            after = first_id_after(namespace, is_below=len(namespace) == max_depth)
        return names, after

    def history(
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
        versions: list[MemoryVersion] = []
        following: int | None = after
        point = self.space.seq_at(at)
        while following is not None and len(versions) < limit:
            rest = limit - len(versions)
            page = self.version_page(namespace, key, after=following, at=point, limit=rest)
            versions += page.items
            following = page.next
        return Rows(versions, MemoryVersion)

    def version_page(
        self,
        namespace: str | Sequence[str],
        key: str,
        *,
        after: int = 0,
        at: At = None,
        limit: int = limits.HISTORY_PAGE_ROWS,
    ) -> MemoryVersionPage:
        """Return the values of an item among its next `limit` revisions after `after`."""
        check_limit(limit)
        entity = encode_id(check_namespace(namespace), key)
        revisions = self.space.history(entity, after=after, at=at, limit=limit)
        times = self.space.commit_times(revision.seq for revision in revisions)
        items = [
            MemoryVersion(
                revision.seq,
                times[revision.seq],
                None if revision.data is None else revision.data["value"],
            )
            for revision in revisions
            if revision.op != "patch"
        ]
        return MemoryVersionPage(items, revisions[-1].seq if len(revisions) == limit else None)

    def diff(
        self, at1: At, at2: At = None, *, namespace: str | Sequence[str] = ()
    ) -> Rows[MemoryChange]:
        """Return the items whose values differ between two points, sorted by id; None is now.

        An item that expired, and was not swept, has not changed.
        """
        prefix = check_namespace(namespace, is_prefix=True)
        changes: list[MemoryChange] = []
        for change in self.space.diff("", at1, at2):
            labels, key = decode_id(change.id)
            before, after = map(_value, (change.a, change.b))
            if labels[: len(prefix)] == prefix and before != after:
                changes.append(MemoryChange(labels, key, before, after))
        return Rows(changes, MemoryChange)

    def position(self) -> int:
        """Return the newest seq."""
        return self.space.position()

    def __len__(self) -> int:
        """Return the number of items, with those that have expired and are not swept."""
        return len(self.space)

    def __bool__(self) -> bool:
        """Always True: an empty memory is still a memory."""
        return True

    def __repr__(self) -> str:
        return f"<Memory {self.name}>"

    def _newest(self, prefix: Namespace, count: int, at: At) -> Iterator[_MemoryCandidate]:
        """Yield the documents below a namespace, those that were put last first."""
        where = {"/scope": {"$any": scope_word(prefix)}} if prefix else None
        after: str | None = None
        size = max(count, _PAGE_MIN)
        while True:
            page = self.space.find(
                where,
                order_by="-/updated_at",
                limit=min(size, MEMORY_LIMIT_MAX),
                after=after,
                at=at,
            )
            for match in page:
                yield _MemoryCandidate(match.id, match.document, match.seq, None, ())
            if page.next is None:
                return
            after, size = page.next, size * 4

    def _ranked(self, made: DocumentSearch, count: int) -> Iterator[_MemoryCandidate]:
        """Yield the documents that a search finds, the best first."""
        after: str | None = None
        size = max(count, _PAGE_MIN)
        while True:
            page = search(self.space, made, min(size, MEMORY_LIMIT_MAX), after)
            for hit in page:
                snippets = tuple(part.text for part in hit.snippets)
                yield _MemoryCandidate(hit.id, hit.document, hit.seq, hit.score, snippets)
            if page.next is None:
                return
            after, size = page.next, size * 4

    def _pages_of(self, prefix: Namespace) -> Iterator[Sequence[str]]:
        """Yield the ids of all items below a namespace, in pages."""
        after = ""
        start = encode_namespace(prefix)
        while page := self.space.ids(prefix=start, after=after, limit=limits.HISTORY_PAGE_ROWS):
            yield [id_ for id_ in page if decode_id(id_)[0][: len(prefix)] == prefix]
            after = page[-1]

    def _forget_page(self, ids: Sequence[str]) -> int:
        if ids:
            self.space.transact([{"op": "delete", "id": id_} for id_ in ids])
        return len(ids)

    def _transact_once(self, operations: Sequence[Mapping[str, Any]], session: str) -> int:
        """Commit operations, unless the session has committed them at another time."""
        seq = self._find_repeated(operations, session)
        if seq is not None:
            return seq
        try:
            return self.space.transact(operations, session=session, local_seq=1).seq
        except ReplayMismatch:
            # The same request, sent twice, was committed meanwhile; or another one.
            seq = self._find_repeated(operations, session)
            if seq is None:
                raise
            return seq

    def _find_repeated(self, operations: Sequence[Mapping[str, Any]], session: str) -> int | None:
        """Return the seq of the commit of a session with these operations, except their times."""
        with self.space.view() as view:
            row = view.one(view.sql.commit_of_session, (session, 1))
        if row is None:
            return None
        earlier = msgspec.json.decode(row[2])["operations"]
        if _without_times(earlier) != _without_times(operations):
            return None
        return int(row[0])

    def _may_be_uncommitted(self) -> bool:
        """Return True inside a transaction: reads do not show what it has put."""
        return self.space.database.in_transaction()

    def _refresh(self, entity: str, document: Document, seq: int, now: datetime) -> None:
        """Extend the time to live of an item, if enough of it is used and this process may."""
        expires_at = find_refresh(document, now)
        if expires_at is None or not self.space.database.writable:
            return
        patch = {"op": "replace", "path": "/expires_at", "value": expires_at}
        operation = {"op": "patch", "id": entity, "patches": [patch]}
        if self._commit_unless_changed(operation, entity, seq):
            document["expires_at"] = expires_at

    def _commit_unless_changed(self, operation: dict[str, Any], entity: str, seq: int) -> bool:
        """Commit an operation unless the item has changed since a seq, which decides then."""
        unchanged = {"kind": "seq", "id": entity, "seq": seq}
        try:
            self.space.transact([operation], preconditions=[unchanged])
        except PreconditionFailed:
            return False
        return True

    def _time_of(self, at: At) -> datetime:
        """Return the time at which items must be alive."""
        if at is None:
            return self._clock()
        if isinstance(at, datetime):
            return at
        times = self.space.commit_times([self.space.seq_at(at)])
        return datetime.fromisoformat(next(iter(times.values()))) if times else self._clock()


def _now() -> datetime:
    return datetime.now(UTC)


def _make_search(
    query: str | None, vector: Sequence[float] | None, prefix: Namespace, at: At
) -> DocumentSearch:
    """Return the search for words, a vector, or both below a namespace."""
    words = direction = None
    if query is not None:
        scope = (TextPart((scope_word(prefix),), required=True),) if prefix else ()
        words = TextQuery((*scope, *parse_text_query(query).parts), any_part=True)
    if vector is not None:
        direction = check_vector(vector)
    # The index of words has the namespaces, that of vectors has not.
    is_filtered = prefix and vector is not None
    where = parse_filter({"/scope": {"$any": scope_word(prefix)}}) if is_filtered else _ALL
    index = _VECTORS if words is None else _WORDS
    return DocumentSearch(
        *(words, direction, index, None, "score", "", at, where),
        snippet_paths=("/text/*",),
    )


def _without_times(operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        operation
        if operation["op"] == "delete"
        else {**operation, "value": without_times(operation["value"])}
        for operation in operations
    ]


def _document(state: State | None) -> Document | None:
    return None if state is None else state.document


def _alive(state: State | None, now: datetime) -> Document | None:
    document = _document(state)
    return document if is_alive(document, now) else None


def _value(state: State | None) -> Document | None:
    document = _document(state)
    return None if document is None else document["value"]


def check_limit(limit: object) -> int:
    """Return the number of items of a page; raise InvalidInput for other values."""
    if type(limit) is not int or not 1 <= limit <= MEMORY_LIMIT_MAX:
        raise InvalidInput(f"limit must be from 1 to {MEMORY_LIMIT_MAX}, got {limit!r:.100}")
    return limit


def check_offset(offset: object) -> int:
    """Return a number of items to skip; raise InvalidInput for other values."""
    if type(offset) is not int or not 0 <= offset <= MEMORY_SCAN_MAX:
        raise InvalidInput(f"offset must be from 0 to {MEMORY_SCAN_MAX}, got {offset!r:.100}")
    return offset


def check_max_depth(max_depth: int | None) -> int | None:
    """Return a number of labels, or None for all; raise InvalidInput for other values."""
    if max_depth is not None and (type(max_depth) is not int or max_depth < 1):
        raise InvalidInput(f"max_depth must be a number from 1 on, got {max_depth!r:.100}")
    return max_depth
