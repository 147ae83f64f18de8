"""The log of sessions in memory, for tests and for data that need not outlive the process.

It keeps the same rows as the one in a database, encoded in the same way: nothing that a caller
holds is shared with it. A transaction that fails is undone step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from fourfold.content import InternedPayload, decode, encode, parse_content_id
from fourfold.errors import Closed, Refused
from fourfold.models.sessions.fold import STATUS_OF
from fourfold.models.sessions.log import (
    EVENT_MAX,
    INDEXED,
    SECOND_CHARS,
    HeadRow,
    LeaseRow,
    LineageEdgeRow,
    LogWriter,
    PayloadRow,
    PolicyRow,
    SessionRow,
    SessionSummary,
    TextHitsQuery,
    UpdateRange,
    seal_of,
)
from fourfold.models.sessions.records import ENTITY_OF
from fourfold.models.sessions.stamps import EventBatch, StoredEvent, position_check

T = TypeVar("T")


class _Tables:
    """All that there is."""

    def __init__(self) -> None:
        self.sessions: dict[int, SessionRow] = {}
        self.keys: dict[str, int] = {}
        self.events: dict[int, list[StoredEvent]] = {}
        self.order: list[tuple[int, int]] = []
        """Session key and event id, by position; a purged session's stay as holes."""
        self.entities: dict[tuple[int, int, int], list[int]] = {}
        self.requests: dict[tuple[int, str], list[int]] = {}
        self.heads: dict[str, tuple[int, HeadRow]] = {}
        self.edges: dict[tuple[int, str], LineageEdgeRow] = {}
        self.marks: dict[tuple[str, int], list[int]] = {}
        self.snapshots: dict[int, dict[int, str]] = {}
        self.payloads: dict[bytes, tuple[int, int, bytes]] = {}
        self.leases: dict[int, LeaseRow] = {}
        self.policies: dict[str, PolicyRow] = {}


class MemoryLogReader:
    """Reads of the tables while no writer changes them."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

    def session(self, sid: str) -> SessionRow | None:
        """Return the row of a session by its id, also of a deleted one; None if there is none."""
        key = self._tables.keys.get(sid)
        return None if key is None else self._tables.sessions[key]

    def session_by_key(self, key: int) -> SessionRow | None:
        """Return the row of a session by its key, also of a deleted one; None if there is none."""
        return self._tables.sessions.get(key)

    def sessions(
        self,
        after: int,
        limit: int,
        *,
        deleted: bool,
        prefix: str = "",
        newest_first: bool = False,
    ) -> list[SessionRow]:
        """Return sessions in the order of creation after a key, whose ids begin with `prefix`."""
        rows = [row for key, row in self._tables.sessions.items() if key > after]
        if newest_first:
            rows = [row for row in self._tables.sessions.values() if row.key < after][::-1]
        named = (row for row in rows if row.id.startswith(prefix))
        return [row for row in named if deleted or row.deleted_at is None][:limit]

    def updated_sessions(self, page: UpdateRange) -> list[tuple[str, SessionRow]]:
        """Return sessions that are not deleted with the second of their newest event."""
        rows = []
        for row in self.sessions(0, 2**62, deleted=False):
            summary = self.summary(row.key)
            place = ((summary.updated_at or row.created_at)[:SECOND_CHARS], row.key)
            inside = place > page.after and place[0] <= page.bound
            if page.newest_first:
                inside = place < page.after and place[0] >= page.bound
            if page.status not in {None, summary.status}:
                continue
            if inside and page.kind in {None, self.kind(row.key)}:
                rows.append((place, row))
        rows.sort(reverse=page.newest_first)
        return [(place[0], row) for place, row in rows[: page.limit]]

    def kind(self, key: int, until: int = EVENT_MAX) -> str | None:
        """Return the kind of a session, after an event."""
        rows = self._tables.events.get(key, [])[:until]
        started = next((row for row in reversed(rows) if row.type == "session/started"), None)
        fields = {} if started is None else decode(started.body.encode())["session"]
        kind = fields.get("kind")
        return kind if isinstance(kind, str) else None

    def summary(self, key: int, until: int = EVENT_MAX) -> SessionSummary:
        """Return id and time of the newest event up to `until`, and the statuses at that event."""
        rows = self._tables.events.get(key, [])[:until]
        last = next((r for r in reversed(rows) if r.type in INDEXED), None)
        status = None
        if last is not None and last.type == "session/started":
            status = decode(last.body.encode())["session"].get("status")
        elif last is not None:
            status = STATUS_OF[last.type]
        known = status if isinstance(status, str) else None
        turns = [row for row in rows if ENTITY_OF.get(row.type) == "turn"]
        newest = max(turns, key=lambda row: (row.entity_id or 0, row.event_id), default=None)
        turn = None if newest is None else decode(newest.body.encode())["turn"].get("status")
        turn_status = turn if isinstance(turn, str) else None
        return SessionSummary(len(rows), rows[-1].at if rows else None, known, turn_status)

    def sessions_of_run(self, family: str, run_id: str) -> list[SessionRow]:
        """Return the sessions of a family that may have a checkpoint of LangGraph by a run."""
        marks = (encode(run_id).decode(), '"metadata_item"')
        return [
            row
            for row in self.sessions(0, 2**62, deleted=False, prefix=family)
            if any(mark in event.body for event in self._tables.events[row.key] for mark in marks)
        ]

    def position(self) -> int:
        """Return the newest position of the log of all sessions."""
        return len(self._tables.order)

    def retention_policies(self) -> list[PolicyRow]:
        """Return the stored retention policies in the order of their prefixes."""
        return sorted(self._tables.policies.values())

    def lease(self, key: int) -> LeaseRow | None:
        """Return the newest lease of a session; None if it never had one."""
        return self._tables.leases.get(key)

    def held_leases(self, after: str, prefix: str, limit: int) -> list[tuple[str, LeaseRow]]:
        """Return leases that were not released, with their session's id, in the order of ids."""
        rows = [(self._tables.sessions[key].id, row) for key, row in self._tables.leases.items()]
        held = [
            (sid, row)
            for sid, row in rows
            if row.holder is not None and self._shown(row.session_key)
        ]
        return sorted(pair for pair in held if pair[0] > after and pair[0].startswith(prefix))[
            :limit
        ]

    def last_event(self, key: int) -> int:
        """Return the id of the newest event of a session; 0 if it has none."""
        return len(self._tables.events.get(key, ()))

    def events(self, key: int, after: int, until: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events of a session, after one id and until another."""
        return self._tables.events.get(key, [])[after : max(after, min(until, after + limit))]

    def events_of_request(self, key: int, request_key: str) -> list[StoredEvent]:
        """Return the events that a session stored for an idempotency key, oldest first."""
        return self._at(key, self._tables.requests.get((key, request_key), []))

    def all_events(self, after: int, limit: int) -> list[tuple[str, StoredEvent]]:
        """Return events of all sessions that are not deleted, with their session's id."""
        rows: list[tuple[str, StoredEvent]] = []
        for key, event_id in self._tables.order[after:]:
            row = self._tables.sessions[key]
            if row.deleted_at is None:
                rows.append((row.id, self._tables.events[key][event_id - 1]))
                if len(rows) == limit:
                    break
        return rows

    def events_with_refs(
        self, key: int | None, after: int, limit: int
    ) -> list[tuple[int, StoredEvent]]:
        """Return events that may refer to payloads, with their session's key."""
        if key is not None:
            rows = [(key, row) for row in self._tables.events.get(key, [])[after:]]
        else:
            rows = [
                (owner, self._tables.events[owner][event_id - 1])
                for owner, event_id in self._tables.order[after:]
                if event_id <= self.last_event(owner)
            ]
        return [pair for pair in rows if '"~ref"' in pair[1].body][:limit]

    def text_until(self) -> int:
        """Return the position up to which the words of events are indexed."""
        return 0

    def text_hits(self, query: TextHitsQuery) -> list[tuple[int, float]]:
        """Return positions of indexed events that match, with scores; smaller ones are better."""
        del query
        return []

    def event_at_position(self, position: int) -> tuple[str, StoredEvent] | None:
        """Return the event at a position with its session's id."""
        key, event_id = self._tables.order[position - 1]
        rows = self._tables.events.get(key, [])
        return (
            (self._tables.sessions[key].id, rows[event_id - 1]) if event_id <= len(rows) else None
        )

    def entities(self, key: int, code: int, first: int, last: int, until: int) -> list[StoredEvent]:
        """Return the newest event until `until` of each entity with an id from first to last."""
        rows = []
        for entity_id in range(first, last + 1):
            ids = self._tables.entities.get((key, code, entity_id), [])
            newest = max((event_id for event_id in ids if event_id <= until), default=None)
            if newest is not None:
                rows.append(newest)
        return self._at(key, rows)

    def messages_from(self, key: int, event_id: int, until: int, limit: int) -> list[StoredEvent]:
        """Return the messages of a session from an event on, until another."""
        rows = self._tables.events.get(key, [])[max(event_id - 1, 0) : until]
        return [row for row in rows if row.entity == 1][:limit]

    def snapshot_before(self, key: int, event_id: int) -> tuple[int, str] | None:
        """Return the event and the text of the newest snapshot at or before an event, or None."""
        snapshots = self._tables.snapshots.get(key, {})
        at = max((place for place in snapshots if place <= event_id), default=None)
        return None if at is None else (at, snapshots[at])

    def head(self, head_id: str) -> tuple[int, int] | None:
        """Return the key of the session that published a head, and the id of the event."""
        row = self._tables.heads.get(head_id)
        return None if row is None else (row[0], row[1].event_id)

    def heads_on(self, head_id: str) -> list[str]:
        """Return the ids of the heads that are based on a head."""
        rows = self._tables.heads.values()
        matches = [(key, row.event_id, row.head_id) for key, row in rows if row.basis == head_id]
        return [match[2] for match in sorted(matches) if self._shown(match[0])]

    def heads_joined(self, head_id: str, *, forward: bool) -> list[str]:
        """Return the heads at the other ends of edges from (or to) a head."""
        edges = [edge for (key, _), edge in self._tables.edges.items() if self._shown(key)]
        if forward:
            return sorted({edge.to_head for edge in edges if edge.from_head == head_id})
        return sorted({e.from_head for e in edges if e.to_head == head_id and e.from_head})

    def _shown(self, key: int) -> bool:
        """Return True if a session exists and is not deleted."""
        row = self._tables.sessions.get(key)
        return row is not None and row.deleted_at is None

    def edge(self, key: int, edge_id: str) -> int | None:
        """Return the id of the event that added an edge to the log of a session."""
        row = self._tables.edges.get((key, edge_id))
        return None if row is None else row.event_id

    def edges_of_session(self, sid: str) -> list[tuple[int, int]]:
        """Return the keys and event ids of the edges that begin or end at a session."""
        return sorted(
            (key, edge.event_id)
            for (key, _), edge in self._tables.edges.items()
            if sid in {edge.from_session, edge.to_session}
        )

    def marks(self, what: str, key: int, until: int, offset: int, limit: int) -> list[int]:
        """Return the events, at or before `until`, that added `heads` or `edges` to a session."""
        ids = [
            event_id for event_id in self._tables.marks.get((what, key), []) if event_id <= until
        ]
        return ids[offset : offset + limit]

    def marks_count(self, what: str, key: int, until: int) -> int:
        """Return how many `heads` or `edges` a session has at or before an event."""
        return sum(event_id <= until for event_id in self._tables.marks.get((what, key), []))

    def payload_size(self, digest: bytes) -> int | None:
        """Return the size of a stored payload in bytes; None if it is not stored."""
        row = self._tables.payloads.get(digest)
        return None if row is None else row[0]

    def payload(self, digest: bytes) -> tuple[int, bytes | None] | None:
        """Size and bytes; the bytes are None where they are a file."""
        row = self._tables.payloads.get(digest)
        return None if row is None else (row[0], row[2])

    def payloads(self, after: bytes, limit: int) -> list[PayloadRow]:
        """Return up to `limit` stored payloads, after a digest."""
        hashes = sorted(name for name in self._tables.payloads if name > after)[:limit]
        rows = self._tables.payloads
        return [PayloadRow(name, rows[name][0], rows[name][1], False) for name in hashes]

    def _at(self, key: int, event_ids: list[int]) -> list[StoredEvent]:
        rows = self._tables.events.get(key, [])
        return [rows[event_id - 1] for event_id in event_ids]


class MemoryLogWriter(MemoryLogReader):
    """Changes, with what undoes each of them."""

    def __init__(self, tables: _Tables) -> None:
        super().__init__(tables)
        self.scratch: dict[str, Any] = {}
        self.hooks: list[Callable[[], None]] = []
        self._undo: list[Callable[[], object]] = []

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call a hook after the commit, before the caller returns."""
        self.hooks.append(hook)

    def undo(self) -> None:
        """Reverse the changes of this transaction, the newest first."""
        while self._undo:
            self._undo.pop()()

    def insert_session(self, sid: str, created_at: str) -> int:
        """Insert a session and return its key."""
        key = len(self._tables.sessions) + 1
        self._set(self._tables.sessions, key, SessionRow(key, sid, created_at))
        self._set(self._tables.keys, sid, key)
        return key

    def put_retention_policy(self, policy: PolicyRow) -> None:
        """Store a policy in place of another one of its prefix."""
        self._set(self._tables.policies, policy.prefix, policy)

    def delete_retention_policy(self, prefix: str) -> bool:
        """Delete a policy; return False if there is none."""
        exists = prefix in self._tables.policies
        self._set(self._tables.policies, prefix, None)
        return exists

    def put_lease(self, lease: LeaseRow) -> None:
        """Store a lease in place of the earlier one of its session."""
        self._set(self._tables.leases, lease.session_key, lease)

    def extend_lease(self, key: int, until_ms: int) -> None:
        """Set the time at which the lease of a session ends."""
        self.put_lease(self._tables.leases[key]._replace(until_ms=until_ms))

    def mark_session(self, row: SessionRow) -> None:
        """Note that a session is deleted, or purged."""
        self._set(self._tables.sessions, row.key, row)

    def index_session(self, key: int, second: str | None = None) -> None:
        """Do nothing: lists read the events."""

    def insert_events(self, key: int, appended: EventBatch) -> None:
        """Insert the events of one request. The caller indexes the session."""
        for row in appended.rows():
            self.insert_event(key, row)

    def insert_event(self, key: int, row: StoredEvent) -> None:
        """Insert an event. The caller indexes the session."""
        self._append(self._tables.events, key, row)
        self._tables.order.append((key, row.event_id))
        self._undo.append(self._tables.order.pop)
        if row.entity is not None and row.entity_id is not None:
            self._append(self._tables.entities, (key, row.entity, row.entity_id), row.event_id)
        if row.request_key is not None:
            self._append(self._tables.requests, (key, row.request_key), row.event_id)

    def index_texts(self, texts: Sequence[tuple[int, int, str]], until: int) -> None:
        """Do nothing: a search reads the events."""

    def insert_head(self, key: int, head: HeadRow) -> None:
        """Insert the row of a published head."""
        self._set(self._tables.heads, head.head_id, (key, head))
        self._append(self._tables.marks, ("heads", key), head.event_id)

    def insert_edge(self, key: int, edge: LineageEdgeRow) -> None:
        """Insert the row of an edge."""
        self._set(self._tables.edges, (key, edge.edge_id), edge)
        self._append(self._tables.marks, ("edges", key), edge.event_id)

    def insert_snapshot(self, key: int, event_id: int, state: str) -> None:
        """Store the folded state of a session after an event."""
        self._set(self._tables.snapshots.setdefault(key, {}), event_id, state)

    def put_payload(self, payload: InternedPayload, now: int, *, is_file: bool) -> None:
        """Store a payload; with `is_file`, only that its bytes are a file."""
        assert not is_file
        digest = bytes.fromhex(parse_content_id(payload.ref.id))
        self._set(self._tables.payloads, digest, (payload.ref.size, now, payload.data))

    def delete_payload(self, digest: bytes) -> None:
        """Remove a payload by its digest."""
        self._set(self._tables.payloads, digest, None)

    def purge(self, key: int, limit: int) -> int:
        """Remove the newest events of a session, `limit` of them, and what is derived from them."""
        tables = self._tables
        events = tables.events.get(key, [])
        last = max(0, len(events) - limit)
        for head_id, (owner, head) in list(tables.heads.items()):
            if owner == key and head.event_id > last:
                self._set(tables.heads, head_id, None)
        for (owner, edge_id), edge in list(tables.edges.items()):
            if owner == key and edge.event_id > last:
                self._set(tables.edges, (owner, edge_id), None)
        for what in ("heads", "edges"):
            ids = [event_id for event_id in tables.marks.get((what, key), []) if event_id <= last]
            self._set(tables.marks, (what, key), ids or None)
        snapshots = {at: text for at, text in tables.snapshots.get(key, {}).items() if at <= last}
        self._set(tables.snapshots, key, snapshots or None)
        self._set(tables.events, key, events[:last] or None)
        return len(events) - last

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Change an entry; None removes it."""
        before = table.get(key)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        if before is None:
            self._undo.append(lambda: table.pop(key, None))
        else:
            self._undo.append(lambda: table.__setitem__(key, before))

    def _append(self, table: dict[Any, list[Any]], key: Any, value: Any) -> None:
        items = table.setdefault(key, [])
        items.append(value)
        self._undo.append(items.pop)


class MemoryAudit:
    """The rows as the one of a database shows them."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

    def last_session(self) -> Any:
        """Return the largest key of a session, or None."""
        return max((row.key for row in self._tables.sessions.values()), default=None)

    def last_event(self, key: int) -> Any:
        """Return the largest event id of a session, or None."""
        return len(self._tables.events.get(key, ())) or None

    def sessions(self, after: Any = None, until: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of sessions, after one key and until another."""
        for row in self._tables.sessions.values():
            if (after is None or row.key > after) and (until is None or row.key <= until):
                yield (*map(_bytes, row), seal_of(row))

    def events(self, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of a session's events, after an event id."""
        rows = self._tables.events.get(key, [])
        for row in islice(rows, after or 0, None):
            yield (*map(_bytes, row), position_check(row))

    def digest(self, key: int, event_id: int) -> bytes | None:
        """Return the stored digest of an event; None if there is no such event."""
        rows = self._tables.events.get(key, [])
        return rows[event_id - 1].digest if 0 < event_id <= len(rows) else None

    def derived(self, what: str, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one of `DERIVED` in the order of events: the event id, then the row."""
        tables = self._tables
        rows: list[tuple[Any, ...]]
        if what == "snapshot":
            rows = list(tables.snapshots.get(key, {}).items())
        elif what == "head":
            rows = [(row.event_id, *row) for owner, row in tables.heads.values() if owner == key]
        else:
            edges = tables.edges.items()
            rows = [(row.event_id, *row) for (owner, _), row in edges if owner == key]
        for row in sorted(rows, key=itemgetter(0)):
            if after is None or row[0] > after:
                yield tuple(map(_bytes, row))

    def owners(self, what: str, after: Any, limit: int) -> list[tuple[Any, bool]]:
        """Return the session keys of rows of one of `OWNED`, and True if the session exists."""
        del what, after, limit
        return []

    def ids(self, what: str, key: Any) -> list[int]:
        """Return the positions of the events, or the event ids of other rows, of a session."""
        del what, key
        return []

    def payloads(self, after: bytes | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of payloads, after a digest."""
        for digest in sorted(self._tables.payloads):
            if after is None or digest > after:
                yield (digest, *self._tables.payloads[digest])

    def payload(self, digest: bytes) -> tuple[Any, ...] | None:
        """Return the stored row of a payload; None if there is none."""
        row = self._tables.payloads.get(digest)
        return None if row is None else (digest, *row)

    def text_rows(self, first: int, last: int) -> list[int]:
        """Return the positions of indexed texts from first to last."""
        del first, last
        return []

    def has_words(self, expression: str, position: int) -> bool:
        """Return True if the indexed text at a position matches an expression of FTS5."""
        del expression, position
        return False

    def indexed(self, after: Any, limit: int) -> list[tuple[Any, Any, bool]]:
        """Return sessions after a key: key, id, and True if their row of the index is right."""
        del after, limit
        return []


class MemoryLog:
    """A log that ends with its process."""

    writable = True
    indexes_texts = False

    def __init__(self) -> None:
        self.tables = _Tables()
        self._lock = threading.RLock()
        self._writing = False
        self._closed = False

    def __repr__(self) -> str:
        return "<MemoryLog>"

    def __str__(self) -> str:
        return "memory"

    def in_transaction(self) -> bool:
        """Return True inside an open transaction of the calling thread."""
        return False

    @contextmanager
    def read(self) -> Iterator[MemoryLogReader]:
        """Open one consistent state of the log."""
        with self._lock:
            self.check_open()
            yield MemoryLogReader(self.tables)

    def paced(self) -> AbstractContextManager[Callable[[], None]]:
        """Pause after a block that reads a page or writes a slice, while others write."""
        return nullcontext(lambda: None)

    def transact(self, work: Callable[[LogWriter], T], size: int = 0) -> T:
        """Run `work` in a transaction that other callers may share; return its result after the
        commit.
        """
        del size
        with self._lock:
            self.check_open()
            if self._writing:
                raise Refused("a transaction cannot begin inside another one of this log")
            self._writing = True
            writing = MemoryLogWriter(self.tables)
            try:
                result = work(writing)
            except BaseException:
                writing.undo()
                raise
            finally:
                self._writing = False
            for hook in writing.hooks:
                hook()
        return result

    def transact_alone(self, work: Callable[[LogWriter], T]) -> T:
        """Open a transaction with a commit of its own, for long work."""
        return self.transact(work)

    async def transact_async(self, work: Callable[[LogWriter], T], size: int = 0) -> T:
        """Run `work` in a transaction that other callers may share; await its result."""
        return self.transact(work, size)

    def drop_copies(self) -> None:
        """Do nothing: a log in memory has no copies."""

    @contextmanager
    def audit(self) -> Iterator[MemoryAudit]:
        """Open one state of the stored rows, for verification."""
        with self._lock:
            self.check_open()
            yield MemoryAudit(self.tables)

    def read_step(self) -> AbstractContextManager[MemoryLogReader]:
        """Open one state like `read`, for a step of verification."""
        return self.read()

    def audit_step(self) -> AbstractContextManager[MemoryAudit]:
        """Open one state for a step of verification; pause after it if others write."""
        return self.audit()

    def problems(self) -> list[str]:
        """Return the problems of the storage of the log."""
        return []

    def check_open(self) -> None:
        """Raise Closed if the log was closed."""
        if self._closed:
            raise Closed("the sessions in memory were closed")

    def close(self) -> None:
        """Close the log; later calls raise Closed."""
        with self._lock:
            self._closed = True


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
