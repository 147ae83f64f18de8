"""The sessions of a store: event logs of agents, in memory or on disk.

    session = sessions.create({"id": "s-1", "model": "any"})
    session.append({"type": "turn/started", "turn": {"status": "running"}})
    session.read().turns[0]["id"]                                    # 1
    head = session.publish_head({"kind": "turn-final", "turn_id": 1})

A session is a log of events; its view is the fold of that log. When a call returns, its events are
committed; a call that raises writes nothing. Calls that write have a twin for coroutines whose name
ends in `_async`; concurrent ones share commits.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.blobs import FolderBlobs
from fourfold.content import PayloadRef, encode, is_ref
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput, NotFound, ReadOnly
from fourfold.models.handle_mapping import HandleMapping
from fourfold.models.problem import Problem, to_problems
from fourfold.models.sessions import heads, payloads, writer
from fourfold.models.sessions.feed import Broadcast
from fourfold.models.sessions.feed_calls import FeedCalls
from fourfold.models.sessions.fork import SessionFork, prepare_fork, write_fork
from fourfold.models.sessions.lease_calls import LeaseCalls
from fourfold.models.sessions.listing import (
    ListingOptions,
    SessionOrder,
    check_listing,
    scan_sessions,
    session_info,
)
from fourfold.models.sessions.log import Log, LogReader, LogWriter, SessionRow
from fourfold.models.sessions.reader import (
    SessionView,
    Slot,
    Slots,
    event_at,
    existing,
    existing_at,
    state_at,
)
from fourfold.models.sessions.records import (
    UNSET,
    BundleReport,
    Epoch,
    Event,
    Head,
    HeadComparison,
    LineageEdge,
    LineageGraph,
    SessionInfo,
    Unset,
)
from fourfold.models.sessions.request import (
    At,
    check_count,
    check_key,
    check_session_id,
    check_time,
)
from fourfold.models.sessions.request_builder import RequestBuilder
from fourfold.models.sessions.retention_calls import RetentionCalls
from fourfold.models.sessions.search_calls import SearchCalls
from fourfold.models.sessions.session import Session
from fourfold.models.sessions.stamps import event_of
from fourfold.models.sessions.writer import EventAppend
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.sessions.transcript import Transcript

T = TypeVar("T")
COUNTERS = ("event", "message", "turn", "step", "eval")
"""Columns of events in a notebook."""
_ALL = 2**62
"""A bound that no log reaches."""


@check_arguments(
    unchecked=("append_event", "append_event_async", "append_events", "append_events_async")
)
class Sessions(HandleMapping[str, Session], LeaseCalls, RetentionCalls, SearchCalls, FeedCalls):
    """The sessions of one store. Opened by `store.sessions`; `Sessions()` keeps them in memory.

    `create`, `open` and `list` return handles and summaries; iteration yields the ids. The calls
    that take a session id are those of specification 004; a `Session` has them without the id.
    """

    def __init__(
        self,
        log: Log | None = None,
        *,
        files: FolderBlobs | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if log is None:
            from fourfold.models.sessions.memory_log import MemoryLog  # noqa: PLC0415 - for tests

            log = MemoryLog()
        self.log = log
        self.files = files
        self._preparing = RequestBuilder(clock, files)
        self._broadcast = Broadcast(self.log)
        self._slots = Slots(self._broadcast.notify)
        self._closed = False

    # Sessions

    def create(self, session: Mapping[str, Any] | None = None) -> Session:
        """Create a session with the id `session["id"]`, by default a new one.

        An existing session is returned unchanged. Other keys of `session` are stored in the
        `session/started` event, the first of a new session.
        """
        request = self._preparing.creation(session)
        row, created = self._submit(lambda txn: writer.create(txn, self._slots, request), request)
        return Session(self, row.id, row.created_at, created=created)

    async def create_async(self, session: Mapping[str, Any] | None = None) -> Session:
        """Create a session with the id `session["id"]`, by default a new one, like `create`."""
        request = self._preparing.creation(session)
        row, created = await self._submit_async(
            lambda txn: writer.create(txn, self._slots, request), request
        )
        return Session(self, row.id, row.created_at, created=created)

    def fork(self, sid: str, session: Mapping[str, Any] | None = None, *, at: At = None) -> Session:
        """Create a session that continues from a point of another one, which stays as it is.

        It has the fields, the variables and the messages of the source at that point, a head that
        covers them, and a lineage edge to that head.

        Args:
            sid: The id of the source.
            session: Fields of the new session, such as its `id`.
            at: An event id, a time, or the id of a head of the source; by default now.

        Raises:
            AlreadyExists: There is a session of that id.
            NotFound: The source has no such event or head.
        """
        request = self._forking(sid, session, at)
        row = self._submit(lambda txn: write_fork(txn, self._slots, request), request.whole)
        return Session(self, row.id, row.created_at, created=True)

    async def fork_async(
        self, sid: str, session: Mapping[str, Any] | None = None, *, at: At = None
    ) -> Session:
        """Create a session that continues from a point of another one, like `fork`."""
        request = await asyncio.to_thread(self._forking, sid, session, at)
        row = await self._submit_async(
            lambda txn: write_fork(txn, self._slots, request), request.whole
        )
        return Session(self, row.id, row.created_at, created=True)

    def _forking(self, sid: str, session: Mapping[str, Any] | None, at: At) -> SessionFork:
        view = self.view_at(sid, at)
        head = at if isinstance(at, str) else view.current_head
        source = None if head is None else self.head(head)
        return prepare_fork(self._preparing, view, source, session)

    def open(self, sid: str) -> Session:
        """Return a handle of an existing session.

        Raises:
            NotFound: There is no session of that id, or it was deleted.
        """
        row = self._slot(sid).row
        return Session(self, row.id, row.created_at)

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
        """Return sessions in the order of creation, or of their newest events.

            sessions.list(order="updated", newest_first=True, status="running", limit=10)

        Args:
            after: A session or its id: return those that come after it in this order. A
                `SessionInfo` continues a list by update even if the session was updated since.
            limit: Maximum number of sessions.
            deleted: Include deleted sessions.
            prefix: Only sessions whose ids begin with it.
            newest_first: Reverse the order.
            where: A filter on the fields of the session and those of its `SessionInfo`. No index
                serves it: sessions are examined until `limit` match.
            at: Sessions that existed at this time, as they were; by default now. One that was
                deleted later has its `deleted_at`, and can no longer be read.
            order: `created`, or `updated` for the order of the newest events, to the second. In
                this order an index serves one of `status` and `kind`, and `since`.
            status: Only sessions with this status.
            kind: Only sessions of this kind.
            since: Only sessions with an event at or after this time.
        """
        options = ListingOptions(
            *(None, limit, deleted, prefix, newest_first, None, order, status, kind)
        )
        listing = check_listing(after, options, since, at)
        condition = None if where is None else parse_filter(where)
        matches: builtins.list[SessionInfo] = []
        while True:
            left = limit - len(matches)
            sessions_max = limits.PAGE_ITEMS_MAX if condition or listing.is_filtered else left
            with self.log.read() as reading:
                page = scan_sessions(reading, listing._replace(limit=left), condition, sessions_max)
            matches += page.matches
            listing = listing._replace(after=page.last, after_updated=page.last_updated)
            if len(matches) == limit or not page.more:
                return Rows(matches, SessionInfo)

    def info(self, sid: str, at: At = None) -> SessionInfo:
        """Return what a list shows of one session, now or at an event id, a time or a head.

        Raises:
            NotFound: There is no session of that id, or it was deleted, or has no such point.
        """
        check_session_id(sid)
        with self.log.read() as reading:
            time = check_time(at) if isinstance(at, datetime) else None
            row = existing_at(reading, sid, time)
            until = None if at is None else self._event_id(reading, row, at)
            return session_info(reading, row, until)

    def create_session(self, session: Mapping[str, Any] | None = None) -> Session:
        """Alias of `create`: the name in specification 004."""
        return self.create(session)

    async def create_session_async(self, session: Mapping[str, Any] | None = None) -> Session:
        """Alias of `create_async`."""
        return await self.create_async(session)

    def open_session(self, sid: str) -> Session:
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

    def delete_session(self, sid: str) -> None:
        """Delete a session: it can no longer be read or written, and its id is never reused.

        `gc` removes its events after the grace period.
        """
        check_session_id(sid)
        at, _ = self._preparing.now()
        self._broadcast.refuse_reentry(sid)
        self.log.transact(lambda txn: writer.delete(txn, self._slots, sid, at))

    # Appending

    def append_event(
        self,
        sid: str,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Event:
        """Append one event and return it with its ids, time and digest.

        Args:
            sid: The id of the session.
            event: A dict with a `type` and the fields of that type.
            expected_last_id: The id of the newest event that the caller knows; the append is
                refused if there are later ones.
            key: An idempotency key: a repeated request returns the events of the first one.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            PreconditionFailed: `expected_last_id` is not the newest event.
        """
        request = self._preparing.appending_one(sid, event, expected_last_id, key, epoch)
        return self._submit(lambda txn: writer.append(txn, self._slots, request), request)[0]

    def append_events(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events with consecutive ids, or none of them.

        Args:
            sid: The id of the session.
            events: Dicts with a `type` and the fields of that type.
            expected_last_id: The id of the newest event that the caller knows; the append is
                refused if there are later ones.
            key: An idempotency key: a repeated request returns the events of the first one.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            PreconditionFailed: `expected_last_id` is not the newest event.
        """
        request = self._preparing.appending(sid, events, expected_last_id, key, epoch)
        return self._submit(lambda txn: writer.append(txn, self._slots, request), request)

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
        request = self._preparing.appending_one(sid, event, expected_last_id, key, epoch)
        appended: Sequence[Event] = await self._submit_async(
            lambda txn: writer.append(txn, self._slots, request), request
        )
        return appended[0]

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
        request = self._preparing.appending(sid, events, expected_last_id, key, epoch)
        return await self._submit_async(
            lambda txn: writer.append(txn, self._slots, request), request
        )

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
        """Publish a head that covers the events since the current head.

        Args:
            sid: The id of the session.
            head: The fields of the head, such as `kind` and `turn_id`.
            expected_basis: The id of the head that the caller knows as the current one; None means
                that there is none.
            to_event_id: The last event that the head covers, by default the newest.
            key: An idempotency key: a repeated request returns the same head.
            events: Events to append first, in the same transaction; the head covers them.
            epoch: That of the caller's claim, or the claim: the write is refused if it is lost.

        Raises:
            LeaseLost: The lease of `epoch` is not the current one.
            HeadMoved: The current head is not `expected_basis`; nothing was written.
        """
        request = self._preparing.publishing(
            sid, head, expected_basis, to_event_id, key, events=events, epoch=epoch
        )
        return self._submit(
            lambda txn: writer.publish_head(txn, self._slots, request), request.whole
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
        request = self._preparing.publishing(
            sid, head, expected_basis, to_event_id, key, events=events, epoch=epoch
        )
        return await self._submit_async(
            lambda txn: writer.publish_head(txn, self._slots, request), request.whole
        )

    def append_lineage_edge(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Append a lineage edge and return its event; an existing edge is not added again."""
        request = self._preparing.joining(sid, edge, epoch)
        return self._submit(lambda txn: writer.append_edge(txn, self._slots, request), request)

    async def append_lineage_edge_async(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Append a lineage edge like `append_lineage_edge`, from a coroutine."""
        request = self._preparing.joining(sid, edge, epoch)
        return await self._submit_async(
            lambda txn: writer.append_edge(txn, self._slots, request), request
        )

    # Payloads

    def intern_payload(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value under the hash of its canonical bytes, and return a reference to it."""
        payload = payloads.interned(value, kind)
        _, now = self._preparing.now()
        payloads.write_files([payload], self.files)
        self.log.transact(
            lambda txn: writer.put_payload(txn, payload, now, self.files), payload.ref.size
        )
        return payload.ref

    async def intern_payload_async(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value and return a reference to it, like `intern_payload`."""
        payload = payloads.interned(value, kind)
        _, now = self._preparing.now()
        if writer.is_file(payload, self.files):
            await asyncio.to_thread(payloads.write_files, [payload], self.files)
        await self.log.transact_async(
            lambda txn: writer.put_payload(txn, payload, now, self.files), payload.ref.size
        )
        return payload.ref

    def maybe_intern(self, value: Any, kind: str = "message") -> Any:
        """Return the value if it has at most 512 canonical bytes, else store it as a payload."""
        if is_ref(value) or len(encode(value)) <= limits.PAYLOAD_INLINE_BYTES_MAX:
            return value
        return self.intern_payload(value, kind)

    def read_payload(self, ref: Any) -> Any:
        """Return the value of a reference, verified by its hash; other values unchanged."""
        return payloads.fetch(self.log, self.files, ref) if isinstance(ref, PayloadRef) else ref

    def payload_size(self, payload_id: str) -> int:
        """Return the number of canonical bytes of a payload.

        Raises:
            PayloadMissing: There is no payload of that id.
        """
        return payloads.size(self.log, payload_id)

    def payload_bytes(self, payload_id: str, start: int = 0, length: int | None = None) -> bytes:
        """Return the canonical bytes of a payload, or a part of them.

        Only a whole payload is verified by its hash.

        Raises:
            PayloadMissing: There is no payload of that id.
        """
        check_count(start, "start")
        return payloads.read_range(self.log, self.files, payload_id, start, length)

    def verify_no_dangling_refs(self, sid: str | None = None) -> builtins.list[PayloadRef]:
        """Return the references of a session, by default of all, whose payload is missing."""
        return payloads.dangling(self.log, self.files, sid)

    # Reading

    def current_view(self, sid: str) -> SessionView:
        """Return the view of a session, including every append that has returned."""
        slot = self._slot(sid)
        return SessionView(self.log, slot.row, slot.state)

    def read_state(self, sid: str) -> SessionView:
        """Return the view of a session as stored, including appends of other processes."""
        slot = self._stored(sid)
        return SessionView(self.log, slot.row, slot.state)

    def view_at(self, sid: str, at: At) -> SessionView:
        """Return the view at an event id, at or before a time, or at one of the heads.

        Raises:
            NotFound: The session has no such event or head.
        """
        if at is None:
            return self.current_view(sid)
        check_session_id(sid)
        with self.log.read() as reading:
            row = existing(reading, sid)
            event_id = self._event_id(reading, row, at)
            return SessionView(self.log, row, state_at(reading, row, event_id).state)

    def transcript(
        self,
        sid: str,
        at: At = None,
        *,
        limit: int | None = None,
        whole: bool = False,
        full: bool = False,
    ) -> Transcript:
        """Return a session as people read it: messages, calls and ends of turns, with contents.

        Args:
            sid: The id of the session.
            at: An event id, a time, or the id of a head; by default now.
            limit: Maximum number of entries, the newest; by default all.
            whole: Include what is before the newest compaction.
            full: Read payloads over 1 MiB too; otherwise they stay references.
        """
        from fourfold.models.sessions.transcript import read_transcript  # noqa: PLC0415 - readers

        return read_transcript(self, sid, at, limit=limit, whole=whole, full=full)

    @staticmethod
    def _event_id(reading: LogReader, row: SessionRow, at: int | str | datetime) -> int:
        """Return the event that a point means: an event id, a head, or a time."""
        if isinstance(at, str):
            head = heads.head(reading, at)
            if head.session != row.id:
                raise NotFound(f"session {row.id!r}: unknown head {at!r}")
            return head.event_range[1]
        if isinstance(at, datetime):
            return event_at(reading, row.key, check_time(at))
        last = reading.last_event(row.key)
        if check_count(at, "at") > last:
            raise NotFound(f"session {row.id!r}: no event {at}, the newest is {last}")
        return at

    def events_since(self, sid: str, event_id: int = 0, *, limit: int | None = None) -> Rows[Event]:
        """Return the events of a session after `event_id`, at most `limit`."""
        return self.events(sid, after=check_count(event_id, "event_id"), limit=limit)

    def events(
        self, sid: str, *, after: int = 0, until: int | None = None, limit: int | None = None
    ) -> Rows[Event]:
        """Return the events of a session after `after` and up to `until`, at most `limit`."""
        check_count(after, "after")
        last = _ALL if until is None else check_count(until, "until")
        rows_max = _ALL if limit is None else check_count(limit, "limit", least=1)
        check_session_id(sid)
        with self.log.paced() as end_step:
            with self.log.read() as reading:
                row = existing(reading, sid)
                rows = reading.events(row.key, after, last, rows_max)
            events = []
            for stored in rows:
                events.append(event_of(sid, stored))
                end_step()
            return Rows(events, Event)

    def events_of_key(self, sid: str, key: str) -> builtins.list[Event]:
        """Return the events that the request with this idempotency key appended, if any."""
        check_session_id(sid)
        request_key = check_key(key)
        if request_key is None:
            return []
        with self.log.read() as reading:
            rows = reading.events_of_request(existing(reading, sid).key, request_key)
        return [event_of(sid, row) for row in rows]

    def all_events_since(self, position: int = 0, *, limit: int | None = None) -> Rows[Event]:
        """Return the events of all sessions after a position of the store, in commit order."""
        after = check_count(position, "position")
        rows_max = _ALL if limit is None else check_count(limit, "limit", least=1)
        with self.log.read() as reading:
            rows = reading.all_events(after, rows_max)
            return Rows((event_of(sid, row) for sid, row in rows), Event)

    def position(self) -> int:
        """Return the newest position: the number of events ever committed in this store."""
        with self.log.read() as reading:
            return reading.position()

    def peek_next_id(self, sid: str, counter: str = "event") -> int:
        """Return the next id of a counter: event, message, turn, step or eval.

        Another writer may use it first.
        """
        if counter not in COUNTERS:
            raise InvalidInput(
                f"unknown counter {counter!r:.100}", hint=f"Use one of: {', '.join(COUNTERS)}."
            )
        return int(getattr(self._slot(sid).state.counters, counter)) + 1

    # Lineage

    def head(self, head_id: str) -> Head:
        """Return a published head by its id.

        Raises:
            NotFound: There is no head of that id.
        """
        with self.log.read() as reading:
            return heads.head(reading, head_id)

    def lineage(self, sid: str, *, at: datetime | None = None) -> builtins.list[LineageEdge]:
        """Return the edges that begin or end at a session, whichever log contains them.

        With `at`, those that were added at or before this time.
        """
        with self.log.read() as reading:
            return heads.edges_of(reading, check_session_id(sid), _optional_time(at))

    def lineage_graph(
        self, sid: str, *, limit: int | None = None, at: datetime | None = None
    ) -> LineageGraph:
        """Return the heads and edges of all sessions connected to a session.

        Args:
            sid: The id of the session.
            limit: Maximum of both together: those of the nearest sessions.
            at: Those that were published at or before this time; by default now.
        """
        if limit is not None:
            check_count(limit, "limit", least=1)
        with self.log.read() as reading:
            return heads.graph(reading, check_session_id(sid), limit, _optional_time(at))

    def ancestors(self, head_id: str) -> builtins.list[str]:
        """Return the ids of the heads that a head derives from, nearest first."""
        with self.log.read() as reading:
            return heads.ancestors(reading, head_id)

    def descendants(self, head_id: str) -> builtins.list[str]:
        """Return the ids of the heads that derive from a head, nearest first."""
        with self.log.read() as reading:
            return heads.descendants(reading, head_id)

    def compare_heads(self, one: str, other: str) -> HeadComparison:
        """Compare two heads, of the same session or of two: variables, messages, common ancestor.

        Raises:
            NotFound: There is no head of one of these ids.
        """
        from fourfold.models.sessions.comparison import compare_heads  # noqa: PLC0415 - the runtime

        return compare_heads(self, one, other)

    # Bundles

    def export_bundle(self, sid: str) -> Iterator[bytes]:
        """Yield a session, the sessions its edges lead to, and their payloads as JSON lines."""
        from fourfold.models.sessions import bundle  # noqa: PLC0415 - rare

        return bundle.lines(self, check_session_id(sid))

    def import_bundle(self, path: str | Path) -> BundleReport:
        """Import the sessions of a bundle under their ids, after checking every digest.

        An existing session must have the same history, and receives the events that it lacks.
        Events are written in pages, so readers see the sessions grow. An import that was stopped
        is continued by importing the bundle again.

        Raises:
            AlreadyExists: A session has another history, or something else is appended to it
                during the import. What was imported until then stays.
        """
        from fourfold.models.sessions import bundle  # noqa: PLC0415 - rare

        if not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        _, now = self._preparing.now()
        return bundle.import_bundle(self, self._slots, Path(path), now)

    # Maintenance

    def verify(self) -> builtins.list[Problem]:
        """Check logs, heads, digests and payloads; return the problems found."""
        from fourfold.models.sessions.verify import problems  # noqa: PLC0415 - rare

        return to_problems(problems(self.log, self.files))

    def close(self) -> None:
        """End every feed; sessions in memory are discarded."""
        self._closed = True
        self._broadcast.close()
        from fourfold.models.sessions.memory_log import MemoryLog  # noqa: PLC0415 - for tests

        if isinstance(self.log, MemoryLog):
            self.log.close()

    _describe = info

    def _names(self, after: str | None) -> Sequence[str]:
        with self.log.read() as reading:
            row = None if after is None else reading.session(after)
            rows = reading.sessions(
                0 if row is None else row.key, limits.PAGE_ITEMS_MAX, deleted=False
            )
            return [row.id for row in rows]

    def __repr__(self) -> str:
        return f"<Sessions in {self.log}>"

    # Internals

    def _submit(self, work: Callable[[LogWriter], T], request: EventAppend) -> T:
        self._broadcast.refuse_reentry(request.sid)
        if request.payloads:
            payloads.write_files(request.payloads, self.files)
        return self.log.transact(work, request.size)

    async def _submit_async(self, work: Callable[[LogWriter], T], request: EventAppend) -> T:
        self._broadcast.refuse_reentry(request.sid)
        if any(writer.is_file(payload, self.files) for payload in request.payloads):
            await asyncio.to_thread(payloads.write_files, request.payloads, self.files)
        return await self.log.transact_async(work, request.size)

    def _slot(self, sid: str) -> Slot:
        """Return the newest state, from the cache if this process is the writer."""
        check_session_id(sid)
        # Another process may write while this one reads, so only the writer can use its cache.
        cached = self._slots.get(sid) if self.log.writable else None
        if cached is not None and not self._closed:
            return cached
        return self._stored(sid)

    def _stored(self, sid: str) -> Slot:
        check_session_id(sid)
        mark = self._slots.published
        with self.log.read() as reading:
            return self._slots.committed(reading, sid, mark)


def _optional_time(at: datetime | None) -> str | None:
    return None if at is None else check_time(at)
