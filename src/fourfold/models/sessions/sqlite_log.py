"""The log of sessions in a database, under the kernel's guarantees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from fourfold import limits
from fourfold.content import InternedPayload, encode, parse_content_id
from fourfold.errors import FourfoldError
from fourfold.kernel import Database, ReadTransaction, Transaction, load_queries
from fourfold.models.sessions.log import (
    EVENT_MAX,
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
    session_word,
)
from fourfold.models.sessions.stamps import EventBatch, StoredEvent, position_check

SESSION_UPKEEP_DEADLINE_S: Final = 3_600.0

T = TypeVar("T")

SQL = load_queries("fourfold.models.sessions")

_MARKS = {
    "heads": (SQL.head_events, SQL.heads_count),
    "edges": (SQL.edge_events, SQL.edges_count),
}


_DERIVED: Final = {
    "snapshot": SQL.verify_snapshots,
    "head": SQL.verify_heads,
    "edge": SQL.verify_edges,
}
_OWNERS: Final = {
    "event": (SQL.verify_event_owners, SQL.verify_event_ids),
    "head": (SQL.verify_head_owners, SQL.verify_head_ids),
    "edge": (SQL.verify_edge_owners, SQL.verify_edge_ids),
    "snapshot": (SQL.verify_snapshot_owners, SQL.verify_snapshot_ids),
}
_LEAST: Final = float("-inf")
_GREATEST: Final = float("inf")


class SqliteLogReader:
    """Questions to one snapshot of the database."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: ReadTransaction) -> None:
        self._snapshot = snapshot

    def session(self, sid: str) -> SessionRow | None:
        """Return the row of a session by its id, also of a deleted one; None if there is none."""
        row = self._snapshot.one(SQL.session, (sid,))
        return None if row is None else SessionRow(*row)

    def session_by_key(self, key: int) -> SessionRow | None:
        """Return the row of a session by its key, also of a deleted one; None if there is none."""
        row = self._snapshot.one(SQL.session_by_key, (key,))
        return None if row is None else SessionRow(*row)

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
        if prefix.find("/") == len(prefix) - 1 > 0 and not deleted:
            family = SQL.newest_sessions_of_family if newest_first else SQL.sessions_of_family
            rows = self._snapshot.all(family, (after, limit, prefix))
        elif prefix:
            beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            named = (after, deleted, limit, prefix, beyond)
            newest = SQL.newest_sessions_with_prefix
            rows = self._snapshot.all(newest if newest_first else SQL.sessions_with_prefix, named)
        else:
            sql = SQL.newest_sessions if newest_first else SQL.sessions
            rows = self._snapshot.all(sql, (after, deleted, limit))
        return [SessionRow(*row) for row in rows]

    def updated_sessions(self, page: UpdateRange) -> list[tuple[str, SessionRow]]:
        """Return sessions that are not deleted with the second of their newest event."""
        name = "update" if page.kind is None else "kind"
        if page.status is not None:
            name = "status"
        sql = getattr(SQL, f"{'newest_' if page.newest_first else ''}sessions_by_{name}")
        params: tuple[Any, ...] = (*page.after, page.limit, page.bound)
        if name != "update":
            params += (page.status if name == "status" else page.kind,)
        rows = self._snapshot.all(sql, params)
        return [(updated, SessionRow(*row)) for updated, *row in rows]

    def kind(self, key: int, until: int = EVENT_MAX) -> str | None:
        """Return the kind of a session, after an event."""
        kind: str | None = self._snapshot.value(SQL.session_kind, (key, until))
        return kind

    def summary(self, key: int, until: int = EVENT_MAX) -> SessionSummary:
        """Return id and time of the newest event up to `until`, and the statuses at that event."""
        row = self._snapshot.one(SQL.session_summary, (key, until))
        assert row is not None
        return SessionSummary(*row)

    def sessions_of_run(self, family: str, run_id: str) -> list[SessionRow]:
        """Return the sessions of a family that may have a checkpoint of LangGraph by a run."""
        rows = self._snapshot.all(SQL.sessions_of_run, (family, run_id))
        return [SessionRow(*row) for row in rows]

    def position(self) -> int:
        """Return the newest position of the log of all sessions."""
        return int(self._snapshot.value(SQL.last_position))

    def retention_policies(self) -> list[PolicyRow]:
        """Return the stored retention policies in the order of their prefixes."""
        return [PolicyRow(*row) for row in self._snapshot.all(SQL.retention_policies, ())]

    def lease(self, key: int) -> LeaseRow | None:
        """Return the newest lease of a session; None if it never had one."""
        row = self._snapshot.one(SQL.lease, (key,))
        return None if row is None else LeaseRow(*row)

    def held_leases(self, after: str, prefix: str, limit: int) -> list[tuple[str, LeaseRow]]:
        """Return leases that were not released, with their session's id, in the order of ids."""
        rows = self._snapshot.all(SQL.held_leases, (after, prefix, limit))
        return [(sid, LeaseRow(*row)) for sid, *row in rows]

    def last_event(self, key: int) -> int:
        """Return the id of the newest event of a session; 0 if it has none."""
        return int(self._snapshot.value(SQL.last_event, (key,)))

    def events(self, key: int, after: int, until: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events of a session, after one id and until another."""
        return self._rows(SQL.events, (key, after, until, limit))

    def events_of_request(self, key: int, request_key: str) -> list[StoredEvent]:
        """Return the events that a session stored for an idempotency key, oldest first."""
        return self._rows(SQL.events_of_request, (key, request_key))

    def all_events(self, after: int, limit: int) -> list[tuple[str, StoredEvent]]:
        """Return events of all sessions that are not deleted, with their session's id."""
        rows = self._snapshot.all(SQL.all_events, (after, limit))
        return [(sid, StoredEvent(*row)) for sid, *row in rows]

    def events_with_refs(
        self, key: int | None, after: int, limit: int
    ) -> list[tuple[int, StoredEvent]]:
        """Return events that may refer to payloads, with their session's key."""
        if key is None:
            rows = self._snapshot.all(SQL.events_with_refs, (after, limit))
        else:
            rows = self._snapshot.all(SQL.session_events_with_refs, (key, after, limit))
        return [(owner, StoredEvent(*row)) for owner, *row in rows]

    def text_until(self) -> int:
        """Return the position up to which the words of events are indexed."""
        return int(self._snapshot.value(SQL.text_until))

    def text_hits(self, query: TextHitsQuery) -> list[tuple[int, float]]:
        """Return positions of indexed events that match, with scores; smaller ones are better."""
        sql = SQL.text_hits_by_score if query.by_score else SQL.text_hits_by_position
        bounds = (query.until, query.until_at, query.until_event, *query.ids)
        types = encode(query.types).decode()
        page = (types, query.limit, query.offset)
        rows = self._snapshot.all(sql, (query.expression, *bounds, *page))
        return [(position, score) for position, score in rows]

    def event_at_position(self, position: int) -> tuple[str, StoredEvent] | None:
        """Return the event at a position with its session's id."""
        row = self._snapshot.one(SQL.event_at_position, (position,))
        return None if row is None else (row[0], StoredEvent(*row[1:]))

    def entities(self, key: int, code: int, first: int, last: int, until: int) -> list[StoredEvent]:
        """Return the newest event until `until` of each entity with an id from first to last."""
        return self._rows(SQL.entities, (key, code, first, last, until))

    def messages_from(self, key: int, event_id: int, until: int, limit: int) -> list[StoredEvent]:
        """Return the messages of a session from an event on, until another."""
        return self._rows(SQL.messages_from, (key, event_id, until, limit))

    def snapshot_before(self, key: int, event_id: int) -> tuple[int, str] | None:
        """Return the event and the text of the newest snapshot at or before an event, or None."""
        row = self._snapshot.one(SQL.snapshot_before, (key, event_id))
        return None if row is None else (row[0], row[1])

    def head(self, head_id: str) -> tuple[int, int] | None:
        """Return the key of the session that published a head, and the id of the event."""
        row = self._snapshot.one(SQL.head, (head_id,))
        return None if row is None else (row[0], row[1])

    def heads_on(self, head_id: str) -> list[str]:
        """Return the ids of the heads that are based on a head."""
        return [row[0] for row in self._snapshot.all(SQL.heads_on, (head_id,))]

    def heads_joined(self, head_id: str, *, forward: bool) -> list[str]:
        """Return the heads at the other ends of edges from (or to) a head."""
        sql = SQL.heads_after if forward else SQL.heads_before
        return [row[0] for row in self._snapshot.all(sql, (head_id,))]

    def edge(self, key: int, edge_id: str) -> int | None:
        """Return the id of the event that added an edge to the log of a session."""
        event_id: int | None = self._snapshot.value(SQL.edge, (key, edge_id))
        return event_id

    def edges_of_session(self, sid: str) -> list[tuple[int, int]]:
        """Return the keys and event ids of the edges that begin or end at a session."""
        return [(row[0], row[1]) for row in self._snapshot.all(SQL.edges_of_session, (sid,))]

    def marks(self, what: str, key: int, until: int, offset: int, limit: int) -> list[int]:
        """Return the events, at or before `until`, that added `heads` or `edges` to a session."""
        rows = self._snapshot.all(_MARKS[what][0], (key, until, offset, limit))
        return [row[0] for row in rows]

    def marks_count(self, what: str, key: int, until: int) -> int:
        """Return how many `heads` or `edges` a session has at or before an event."""
        return int(self._snapshot.value(_MARKS[what][1], (key, until)))

    def payload_size(self, digest: bytes) -> int | None:
        """Return the size of a stored payload in bytes; None if it is not stored."""
        size: int | None = self._snapshot.value(SQL.payload_size, (digest,))
        return size

    def payload(self, digest: bytes) -> tuple[int, bytes | None] | None:
        """Size and bytes; the bytes are None where they are a file."""
        row = self._snapshot.one(SQL.payload, (digest,))
        return None if row is None else (row[0], row[1])

    def payloads(self, after: bytes, limit: int) -> list[PayloadRow]:
        """Return up to `limit` stored payloads, after a digest."""
        rows = self._snapshot.all(SQL.payloads, (after, limit))
        return [PayloadRow(row[0], row[1], row[2], bool(row[3])) for row in rows]

    def _rows(self, sql: str, params: tuple[Any, ...]) -> list[StoredEvent]:
        return list(map(StoredEvent._make, self._snapshot.all(sql, params)))


class SqliteLogWriter(SqliteLogReader):
    """Reads and writes of a log in one transaction."""

    __slots__ = ("_txn", "scratch")

    def __init__(self, txn: Transaction) -> None:
        self._snapshot = self._txn = txn
        self.scratch: dict[str, Any] = txn.scratch

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call a hook after the commit, before the caller returns."""
        self._txn.after_commit(hook)

    def insert_session(self, sid: str, created_at: str) -> int:
        """Insert a session and return its key."""
        key = int(self._snapshot.value(SQL.next_session_key))
        seal = seal_of(SessionRow(key, sid, created_at))
        self._txn.execute(SQL.insert_session, (key, sid, created_at, seal))
        self.index_session(key)
        return key

    def put_retention_policy(self, policy: PolicyRow) -> None:
        """Store a policy in place of another one of its prefix."""
        self._txn.execute(SQL.put_retention_policy, policy)

    def delete_retention_policy(self, prefix: str) -> bool:
        """Delete a policy; return False if there is none."""
        self._txn.execute(SQL.delete_retention_policy, (prefix,))
        return self._txn.changes > 0

    def put_lease(self, lease: LeaseRow) -> None:
        """Store a lease in place of the earlier one of its session."""
        self._txn.execute(SQL.put_lease, lease)

    def extend_lease(self, key: int, until_ms: int) -> None:
        """Set the time at which the lease of a session ends."""
        self._txn.execute(SQL.extend_lease, (key, until_ms))

    def mark_session(self, row: SessionRow) -> None:
        """Note that a session is deleted, or purged."""
        self._txn.execute(SQL.mark_session, (row.key, row.deleted_at, row.purged, seal_of(row)))
        self._txn.execute(SQL.unindex_session, (row.key,))

    def index_session(self, key: int, second: str | None = None) -> None:
        """Index a session by its events, for lists."""
        if second is None:
            self._txn.execute(SQL.unindex_session, (key,))
        self._txn.execute(SQL.index_session, (key, second))

    def insert_event(self, key: int, row: StoredEvent) -> None:
        """Insert an event. The caller indexes the session."""
        self._txn.execute(SQL.insert_event, (row[0], key, *row[1:], position_check(row)))

    def insert_events(self, key: int, appended: EventBatch) -> None:
        """Insert the events of one request. The caller indexes the session."""
        found = appended
        count = len(found)
        if count == 1:
            self.insert_event(key, found.rows()[0])
            return
        self._insert_many(key, found)

    def _insert_many(self, key: int, found: EventBatch) -> None:
        count = len(found)
        fixed = {"session_key": key, "at": found.at, "request_key": found.key}
        counted: dict[tuple[str, ...], int] = {
            ("position",): found.position,
            ("event_id",): found.event_id,
        }
        varying: dict[str, Sequence[Any]] = {
            "body": found.bodies,
            "digest": found.digests,
            "position_check": found.position_checks(),
        }
        about = {"type": found.types, "entity": found.codes}
        if found.alike and found.entity_ids[0] is not None:
            fixed.update({name: column[0] for name, column in about.items()})
            counted["entity_id",] = found.entity_ids[0]
        else:
            varying.update(about, entity_id=found.entity_ids)
        self._txn.insert_alike("events", count, fixed=fixed, counted=counted, varying=varying)

    def index_texts(self, texts: Sequence[tuple[int, int, str]], until: int) -> None:
        """Index the words of events, and store that all until `until` are."""
        for position, key, text in texts:
            self._txn.execute(SQL.insert_text, (position, session_word(key), text))
        self._txn.execute(SQL.set_text_until, (until,))

    def insert_head(self, key: int, head: HeadRow) -> None:
        """Insert the row of a published head."""
        self._txn.execute(SQL.insert_head, (head.head_id, key, head.event_id, head.basis))

    def insert_edge(self, key: int, edge: LineageEdgeRow) -> None:
        """Insert the row of an edge."""
        self._txn.execute(SQL.insert_edge, (key, *edge))

    def insert_snapshot(self, key: int, event_id: int, state: str) -> None:
        """Store the folded state of a session after an event."""
        self._txn.execute(SQL.insert_snapshot, (key, event_id, state))

    def put_payload(self, payload: InternedPayload, now: int, *, is_file: bool) -> None:
        """Store a payload; with `is_file`, only that its bytes are a file."""
        digest = bytes.fromhex(parse_content_id(payload.ref.id))
        data = None if is_file else payload.data
        slack = limits.SESSION_PAYLOAD_TOUCH_S
        self._txn.execute(SQL.put_payload, (digest, payload.ref.size, now, data, slack))

    def delete_payload(self, digest: bytes) -> None:
        """Remove a payload by its digest."""
        self._txn.execute(SQL.delete_payload, (digest,))

    def purge(self, key: int, limit: int) -> int:
        """Remove the newest events of a session, `limit` of them, and what is derived from them."""
        # The newest events may be among them, and their positions must not come again.
        self._txn.execute(SQL.lift_position, (self.position(),))
        last = max(0, self.last_event(key) - limit)
        self._txn.execute(SQL.purge_texts, (key, last))
        for sql in (SQL.purge_heads, SQL.purge_edges, SQL.purge_snapshots, SQL.purge_events):
            self._txn.execute(sql, (key, last))
        return self._txn.changes


class SqliteLogAudit:
    """Every stored row."""

    def __init__(self, snapshot: ReadTransaction) -> None:
        self._snapshot = snapshot

    def last_session(self) -> Any:
        """Return the largest key of a session, or None."""
        return self._snapshot.value(SQL.verify_last_session)

    def last_event(self, key: int) -> Any:
        """Return the largest event id of a session, or None."""
        return self._snapshot.value(SQL.verify_last_event, (key,))

    def sessions(self, after: Any = None, until: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of sessions, after one key and until another."""
        return self._snapshot.rows(SQL.verify_sessions, (_low(after), _high(until)))

    def events(self, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of a session's events, after an event id."""
        return self._snapshot.rows(SQL.verify_events, (key, _low(after)))

    def digest(self, key: int, event_id: int) -> bytes | None:
        """Return the stored digest of an event; None if there is no such event."""
        stored: bytes | None = self._snapshot.value(SQL.verify_digest, (key, event_id))
        return stored

    def derived(self, what: str, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one of `DERIVED` in the order of events: the event id, then the row."""
        return self._snapshot.rows(_DERIVED[what], (key, _low(after)))

    def owners(self, what: str, after: Any, limit: int) -> list[tuple[Any, bool]]:
        """Return the session keys of rows of one of `OWNED`, and True if the session exists."""
        rows = self._snapshot.all(_OWNERS[what][0], (after, limit))
        return [(key, bool(exists)) for key, exists in rows]

    def ids(self, what: str, key: Any) -> list[int]:
        """Return the positions of the events, or the event ids of other rows, of a session."""
        return [row[0] for row in self._snapshot.all(_OWNERS[what][1], (key,))]

    def payloads(self, after: bytes | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of payloads, after a digest."""
        return self._snapshot.rows(SQL.verify_payloads, (_low(after),))

    def payload(self, digest: bytes) -> tuple[Any, ...] | None:
        """Return the stored row of a payload; None if there is none."""
        return self._snapshot.one(SQL.verify_payload, (digest,))

    def text_rows(self, first: int, last: int) -> list[int]:
        """Return the positions of indexed texts from first to last."""
        return [row[0] for row in self._snapshot.all(SQL.verify_text_rows, (first, last))]

    def has_words(self, expression: str, position: int) -> bool:
        """Return True if the indexed text at a position matches an expression of FTS5."""
        return bool(self._snapshot.value(SQL.verify_text_words, (expression, position)))

    def indexed(self, after: Any, limit: int) -> list[tuple[Any, Any, bool]]:
        """Return sessions after a key: key, id, and True if their row of the index is right."""
        rows = self._snapshot.all(SQL.verify_index, (after, limit))
        return [(key, name, bool(is_right)) for key, name, is_right in rows]


def _low(after: Any) -> Any:
    """Return a bound below all values but NULL, unless there is one."""
    return _LEAST if after is None else after


def _high(until: Any) -> Any:
    return _GREATEST if until is None else until


class SqliteLog:
    """The log in the tables of a database."""

    indexes_texts = True

    def __init__(self, database: Database) -> None:
        self.database = database

    def __repr__(self) -> str:
        return f"<TableLog {self.database.path}>"

    def __str__(self) -> str:
        return str(self.database.path)

    @property
    def writable(self) -> bool:
        """True if this process may write the log."""
        return self.database.writable

    def in_transaction(self) -> bool:
        """Return True inside an open transaction of the calling thread."""
        return self.database.in_transaction()

    def drop_copies(self) -> None:
        """Remove copies of the log that still hold what was purged from it."""
        self.database.drop_migration_backups()

    @contextmanager
    def read(self) -> Iterator[SqliteLogReader]:
        """Open one consistent state of the log."""
        with self.database.read() as snapshot:
            yield SqliteLogReader(snapshot)

    def paced(self) -> AbstractContextManager[Callable[[], None]]:
        """Pause after a block that reads a page or writes a slice, while others write."""
        return self.database.paced()

    def transact(self, work: Callable[[LogWriter], T], size: int = 0) -> T:
        """Run `work` in a transaction that other callers may share; return its result after the
        commit.
        """
        if size >= limits.GROUP_BYTES_MAX:
            # Too large to share a commit with others.
            return self.transact_alone(work)
        return self.database.transact(lambda txn: work(SqliteLogWriter(txn)), size=size)

    def transact_alone(self, work: Callable[[LogWriter], T]) -> T:
        """Open a transaction with a commit of its own, for long work."""
        with self.database.write(deadline_s=SESSION_UPKEEP_DEADLINE_S) as txn:
            return work(SqliteLogWriter(txn))

    def transact_async(self, work: Callable[[LogWriter], T], size: int = 0) -> Awaitable[T]:
        """Run `work` in a transaction that other callers may share; await its result."""
        if size >= limits.GROUP_BYTES_MAX:
            return asyncio.to_thread(self.transact_alone, work)
        return self.database.transact_async(lambda txn: work(SqliteLogWriter(txn)), size=size)

    @contextmanager
    def audit(self) -> Iterator[SqliteLogAudit]:
        """Open one state of the stored rows, for verification."""
        with self.database.read_in_background() as snapshot:
            yield SqliteLogAudit(snapshot)

    @contextmanager
    def read_step(self) -> Iterator[SqliteLogReader]:
        """Open one state like `read` for a step of verification: without a deadline, and with a
        pause after it if others write.
        """
        with self.database.read_step() as snapshot:
            yield SqliteLogReader(snapshot)

    @contextmanager
    def audit_step(self) -> Iterator[SqliteLogAudit]:
        """Open one state for a step of verification; pause after it if others write."""
        with self.database.read_step() as snapshot:
            yield SqliteLogAudit(snapshot)

    def problems(self) -> list[str]:
        """Return the problems of the storage of the log."""
        try:
            return self.database.integrity_check()
        except FourfoldError as error:
            return [error.message]
