"""The log that a store of sessions uses: consistent reads and atomic writes.

There are two logs, one in memory and one in a database. Everything else about sessions is written
once, over this interface, so that the two behave alike. A LogReader is one committed state. A
LogWriter is a transaction: it sees its own writes, and all of them happen or none. The function
passed to `transact` may run more than once, and acts only through its LogWriter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from fourfold.content import InternedPayload, encode
from fourfold.models.sessions.fold import STATUS_OF
from fourfold.models.sessions.stamps import EventBatch, StoredEvent

T = TypeVar("T")
EVENT_MAX: Final = 2**62
"""An event id after those of all logs."""
SECOND_CHARS: Final = len("2026-03-01T12:00:00")
"""Characters of a time that the index of sessions keeps."""
INDEXED: Final = frozenset({"session/started", *STATUS_OF})
"""Events that set the kind or the status of a session."""
DERIVED: Final = ("snapshot", "head", "edge")
OWNED: Final = ("event", "head", "edge", "snapshot")
"""Rows that verification compares with the events, and rows that belong to a session."""


class SessionRow(NamedTuple):
    """A session's own row. `key` is its number in this log."""

    key: int
    id: str
    created_at: str
    deleted_at: str | None = None
    purged: int = 0


def seal_of(row: SessionRow) -> bytes:
    """Return a digest of the row of a session, which is stored with it."""
    return hashlib.sha256(encode(list(row))).digest()


def session_word(key: int) -> str:
    """Return the word that a session has in the index of texts."""
    return f"s{key}"


class SessionSummary(NamedTuple):
    """Part of a list entry besides the row of the session."""

    last_event: int
    updated_at: str | None
    status: str | None
    turn_status: str | None


class UpdateRange(NamedTuple):
    """A page of sessions in the order of their newest events."""

    after: tuple[str, int]
    """Second of the newest event, and key, of the session after which it begins."""
    limit: int
    newest_first: bool = False
    bound: str = ""
    """The last second; the first one with `newest_first`."""
    status: str | None = None
    kind: str | None = None


class PayloadRow(NamedTuple):
    """A stored payload, by its digest."""

    hash: bytes
    size: int
    touched: int
    is_file: bool


class LineageEdgeRow(NamedTuple):
    """The row of an edge between two sessions."""

    edge_id: str
    event_id: int
    from_session: str
    to_session: str
    from_head: str | None
    to_head: str


class HeadRow(NamedTuple):
    """The row of a published head."""

    head_id: str
    event_id: int
    basis: str | None


class LeaseRow(NamedTuple):
    """The newest lease of a session. `holder` is None once it is released."""

    session_key: int
    epoch: int
    holder: str | None
    until_ms: int
    resumed: str = "[]"
    """Claims while a turn was running, as JSON: event, epoch, holder and time of each."""


class TextHitsQuery(NamedTuple):
    """A search of the words of events, and the page of its hits."""

    expression: str
    """An expression of FTS5."""
    until: int
    """Greatest position."""
    until_at: str
    """Last time."""
    until_event: int
    """Greatest event id."""
    ids: tuple[str, str]
    """The least session id, and one after the greatest."""
    types: tuple[str, ...]
    by_score: bool
    limit: int
    offset: int


class PolicyRow(NamedTuple):
    """A stored retention policy."""

    prefix: str
    max_age_s: float | None
    keep_latest: int | None
    updated_at: str


class LogReader(Protocol):
    """Questions to one state of the log."""

    def session(self, sid: str) -> SessionRow | None:
        """Return the row of a session by its id, also of a deleted one; None if there is none."""
        ...

    def session_by_key(self, key: int) -> SessionRow | None:
        """Return the row of a session by its key, also of a deleted one; None if there is none."""
        ...

    def sessions(
        self,
        after: int,
        limit: int,
        *,
        deleted: bool,
        prefix: str = "",
        newest_first: bool = False,
    ) -> list[SessionRow]:
        """Return sessions in the order of creation after a key, whose ids begin with `prefix`.

        With `newest_first` the order is reversed, and those before the key are returned.
        """
        ...

    def updated_sessions(self, page: UpdateRange) -> list[tuple[str, SessionRow]]:
        """Return sessions that are not deleted with the second of their newest event.

        They are in the order of these seconds, and of keys within a second. With both a status
        and a kind, some may be of another kind.
        """
        ...

    def kind(self, key: int, until: int = EVENT_MAX) -> str | None:
        """Return the kind of a session, after an event."""
        ...

    def summary(self, key: int, until: int = EVENT_MAX) -> SessionSummary:
        """Return id and time of the newest event up to `until`, and the statuses at that event."""
        ...

    def sessions_of_run(self, family: str, run_id: str) -> list[SessionRow]:
        """Return the sessions of a family that may have a checkpoint of LangGraph by a run."""
        ...

    def position(self) -> int:
        """Return the newest position of the log of all sessions."""
        ...

    def retention_policies(self) -> list[PolicyRow]:
        """Return the stored retention policies in the order of their prefixes."""
        ...

    def lease(self, key: int) -> LeaseRow | None:
        """Return the newest lease of a session; None if it never had one."""
        ...

    def held_leases(self, after: str, prefix: str, limit: int) -> list[tuple[str, LeaseRow]]:
        """Return leases that were not released, with their session's id, in the order of ids."""
        ...

    def last_event(self, key: int) -> int:
        """Return the id of the newest event of a session; 0 if it has none."""
        ...

    def events(self, key: int, after: int, until: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events of a session, after one id and until another."""
        ...

    def events_of_request(self, key: int, request_key: str) -> list[StoredEvent]:
        """Return the events that a session stored for an idempotency key, oldest first."""
        ...

    def all_events(self, after: int, limit: int) -> list[tuple[str, StoredEvent]]:
        """Return events of all sessions that are not deleted, with their session's id."""
        ...

    def events_with_refs(
        self, key: int | None, after: int, limit: int
    ) -> list[tuple[int, StoredEvent]]:
        """Return events that may refer to payloads, with their session's key.

        They are those of one session, after an event id; or of all that are not purged, after a
        position.
        """
        ...

    def text_until(self) -> int:
        """Return the position up to which the words of events are indexed."""
        ...

    def text_hits(self, query: TextHitsQuery) -> list[tuple[int, float]]:
        """Return positions of indexed events that match, with scores; smaller ones are better."""
        ...

    def event_at_position(self, position: int) -> tuple[str, StoredEvent] | None:
        """Return the event at a position with its session's id."""
        ...

    def entities(self, key: int, code: int, first: int, last: int, until: int) -> list[StoredEvent]:
        """Return the newest event until `until` of each entity with an id from first to last."""
        ...

    def messages_from(self, key: int, event_id: int, until: int, limit: int) -> list[StoredEvent]:
        """Return the messages of a session from an event on, until another."""
        ...

    def snapshot_before(self, key: int, event_id: int) -> tuple[int, str] | None:
        """Return the event and the text of the newest snapshot at or before an event, or None."""
        ...

    def head(self, head_id: str) -> tuple[int, int] | None:
        """Return the key of the session that published a head, and the id of the event."""
        ...

    def heads_on(self, head_id: str) -> list[str]:
        """Return the ids of the heads that are based on a head."""
        ...

    def heads_joined(self, head_id: str, *, forward: bool) -> list[str]:
        """Return the heads at the other ends of edges from (or to) a head."""
        ...

    def edge(self, key: int, edge_id: str) -> int | None:
        """Return the id of the event that added an edge to the log of a session."""
        ...

    def edges_of_session(self, sid: str) -> list[tuple[int, int]]:
        """Return the keys and event ids of the edges that begin or end at a session."""
        ...

    def marks(self, what: str, key: int, until: int, offset: int, limit: int) -> list[int]:
        """Return the events, at or before `until`, that added `heads` or `edges` to a session."""
        ...

    def marks_count(self, what: str, key: int, until: int) -> int:
        """Return how many `heads` or `edges` a session has at or before an event."""
        ...

    def payload_size(self, digest: bytes) -> int | None:
        """Return the size of a stored payload in bytes; None if it is not stored."""
        ...

    def payload(self, digest: bytes) -> tuple[int, bytes | None] | None:
        """Size and bytes; the bytes are None where they are a file."""
        ...

    def payloads(self, after: bytes, limit: int) -> list[PayloadRow]:
        """Return up to `limit` stored payloads, after a digest."""
        ...


class LogWriter(LogReader, Protocol):
    """Changes that happen together."""

    @property
    def scratch(self) -> dict[str, Any]:
        """Values that requests of one transaction share."""
        ...

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call a hook after the commit, before the caller returns."""
        ...

    def put_lease(self, lease: LeaseRow) -> None:
        """Store a lease in place of the earlier one of its session."""
        ...

    def put_retention_policy(self, policy: PolicyRow) -> None:
        """Store a policy in place of another one of its prefix."""
        ...

    def delete_retention_policy(self, prefix: str) -> bool:
        """Delete a policy; return False if there is none."""
        ...

    def extend_lease(self, key: int, until_ms: int) -> None:
        """Set the time at which the lease of a session ends."""
        ...

    def insert_session(self, sid: str, created_at: str) -> int:
        """Insert a session and return its key."""
        ...

    def mark_session(self, row: SessionRow) -> None:
        """Note that a session is deleted, or purged."""
        ...

    def index_session(self, key: int, second: str | None = None) -> None:
        """Index a session by its events, for lists.

        `second` is that of the newest event, if no newer event has set the kind or the status.
        """
        ...

    def insert_event(self, key: int, row: StoredEvent) -> None:
        """Insert an event. The caller indexes the session."""
        ...

    def insert_events(self, key: int, appended: EventBatch) -> None:
        """Insert the events of one request. The caller indexes the session."""
        ...

    def index_texts(self, texts: Sequence[tuple[int, int, str]], until: int) -> None:
        """Index the words of events: position, session key and text. All until `until` are then."""
        ...

    def insert_head(self, key: int, head: HeadRow) -> None:
        """Insert the row of a published head."""
        ...

    def insert_edge(self, key: int, edge: LineageEdgeRow) -> None:
        """Insert the row of an edge."""
        ...

    def insert_snapshot(self, key: int, event_id: int, state: str) -> None:
        """Store the folded state of a session after an event."""
        ...

    def put_payload(self, payload: InternedPayload, now: int, *, is_file: bool) -> None:
        """Store a payload; with `is_file`, only that its bytes are a file."""
        ...

    def delete_payload(self, digest: bytes) -> None:
        """Remove a payload by its digest."""
        ...

    def purge(self, key: int, limit: int) -> int:
        """Remove the newest events of a session, `limit` of them, and what is derived from them.

        Returns how many. What is left is a log from its beginning, so that it stays sound.
        """
        ...


class LogAudit(Protocol):
    """The stored rows of a log, with bytes instead of text, for verification."""

    def last_session(self) -> Any:
        """Return the largest key of a session, or None."""
        ...

    def last_event(self, key: int) -> Any:
        """Return the largest event id of a session, or None."""
        ...

    def sessions(self, after: Any = None, until: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of sessions, after one key and until another."""
        ...

    def events(self, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of a session's events, after an event id."""
        ...

    def digest(self, key: int, event_id: int) -> bytes | None:
        """Return the stored digest of an event; None if there is no such event."""
        ...

    def derived(self, what: str, key: int, after: Any = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one of `DERIVED` in the order of events: the event id, then the row."""
        ...

    def owners(self, what: str, after: Any, limit: int) -> list[tuple[Any, bool]]:
        """Return the session keys of rows of one of `OWNED`, and True if the session exists."""
        ...

    def ids(self, what: str, key: Any) -> list[int]:
        """Return the positions of the events, or the event ids of other rows, of a session."""
        ...

    def payloads(self, after: bytes | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the stored rows of payloads, after a digest."""
        ...

    def payload(self, digest: bytes) -> tuple[Any, ...] | None:
        """Return the stored row of a payload; None if there is none."""
        ...

    def text_rows(self, first: int, last: int) -> list[int]:
        """Return the positions of indexed texts from first to last."""
        ...

    def has_words(self, expression: str, position: int) -> bool:
        """Return True if the indexed text at a position matches an expression of FTS5."""
        ...

    def indexed(self, after: Any, limit: int) -> list[tuple[Any, Any, bool]]:
        """Return sessions after a key: key, id, and True if their row of the index is right."""
        ...


OpenReading = Callable[[], AbstractContextManager[LogReader]]
"""Opens one consistent state of a log."""


class Log(Protocol):
    """The log itself."""

    @property
    def writable(self) -> bool:
        """True if this process may write the log."""
        ...

    @property
    def indexes_texts(self) -> bool:
        """True if the log has an index of words; without one, a search reads every event."""
        ...

    def in_transaction(self) -> bool:
        """Return True inside an open transaction of the calling thread."""
        ...

    def read(self) -> AbstractContextManager[LogReader]:
        """Open one consistent state of the log."""
        ...

    def paced(self) -> AbstractContextManager[Callable[[], None]]:
        """Pause after a block that reads a page or writes a slice, while others write.

        The block may call the function that it receives between its steps, and pauses there too.
        """
        ...

    def transact(self, work: Callable[[LogWriter], T], size: int = 0) -> T:
        """Run `work` in a transaction that other callers may share; return its result after the
        commit.
        """
        ...

    def transact_alone(self, work: Callable[[LogWriter], T]) -> T:
        """Open a transaction with a commit of its own, for long work."""
        ...

    def transact_async(self, work: Callable[[LogWriter], T], size: int = 0) -> Awaitable[T]:
        """Run `work` in a transaction that other callers may share; await its result."""
        ...

    def audit(self) -> AbstractContextManager[LogAudit]:
        """Open one state of the stored rows, for verification."""
        ...

    def read_step(self) -> AbstractContextManager[LogReader]:
        """Open one state like `read` for a step of verification: without a deadline, and with a
        pause after it if others write.
        """
        ...

    def audit_step(self) -> AbstractContextManager[LogAudit]:
        """Open one state for a step of verification; pause after it if others write."""
        ...

    def drop_copies(self) -> None:
        """Remove copies of the log that still hold what was purged from it."""
        ...

    def problems(self) -> list[str]:
        """Return the problems of the storage of the log."""
        ...
