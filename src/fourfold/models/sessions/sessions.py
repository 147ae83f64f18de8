"""The sessions of a store: the calls of the session store port, over a log in memory or on disk.

    s = sessions.create_session({"id": "s-1", "model": "any"})
    sessions.append_event("s-1", {"type": "turn/started", "turn": {"status": "running"}})
    sessions.current_view("s-1").turns[0]["id"]                      # 1
    head = sessions.publish_head("s-1", {"kind": "turn-final", "turn_id": 1})

A session is a log of events and nothing else; its view is the fold of that log. What a call
returned is committed; a call that raised wrote nothing. Calls that write have a twin for
coroutines, whose name ends in `_async`; those share their commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fourfold import limits
from fourfold.blobs import FolderBlobs
from fourfold.content import PayloadRef, encode, is_ref
from fourfold.errors import InvalidInput, NotFound, ReadOnly
from fourfold.models.sessions import bundle, heads, payloads, writer
from fourfold.models.sessions.feed import Broadcast, Feed, Item, Subscription
from fourfold.models.sessions.log import Log, LogWriter, SessionRow
from fourfold.models.sessions.memory_log import MemoryLog
from fourfold.models.sessions.prepared import RequestBuilder
from fourfold.models.sessions.reader import SessionView, Slot, Slots, existing, state_at
from fourfold.models.sessions.records import (
    UNSET,
    BundleReport,
    Edge,
    Event,
    GcReport,
    Head,
    LineageGraph,
    SessionInfo,
    Unset,
)
from fourfold.models.sessions.request import check_count, check_key, check_session_id
from fourfold.models.sessions.session import Session
from fourfold.models.sessions.stamps import event_of
from fourfold.models.sessions.verify import problems
from fourfold.models.sessions.writer import Append

T = TypeVar("T")
COUNTERS = ("event", "message", "turn", "step", "eval")


class Sessions:
    """All sessions of one log. Made by `store.sessions`, or by `Sessions()` in memory."""

    def __init__(
        self,
        log: Log | None = None,
        *,
        files: FolderBlobs | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.log = MemoryLog() if log is None else log
        self.files = files
        self._preparing = RequestBuilder(clock, files)
        self._slots = Slots()
        self._broadcast = Broadcast(self.log)
        self._closed = False

    # Sessions

    def create_session(self, session: Mapping[str, Any] | None = None) -> Session:
        """A session under `session["id"]`, or under a new id. One that exists is left as it is.

        With more than an id, a new session begins with a `session/started` event that holds it all.
        """
        request = self._preparing.creation(session)
        row = self._submit(lambda txn: writer.create(txn, self._slots, request), request)
        return Session(self, row.id, row.created_at)

    async def create_session_async(self, session: Mapping[str, Any] | None = None) -> Session:
        request = self._preparing.creation(session)
        row: SessionRow = await self._submit_async(
            lambda txn: writer.create(txn, self._slots, request), request
        )
        return Session(self, row.id, row.created_at)

    def open_session(self, sid: str) -> Session:
        """A session that exists; NotFound otherwise."""
        row = self._slot(sid).row
        return Session(self, row.id, row.created_at)

    def list_sessions(
        self,
        *,
        after: str | None = None,
        limit: int = limits.SESSION_PAGE_EVENTS,
        deleted: bool = False,
        prefix: str = "",
    ) -> list[SessionInfo]:
        """Sessions in the order of their creation, behind the one that `after` names; those whose
        ids begin with `prefix`.
        """
        check_count(limit, "limit", least=1)
        if prefix:
            check_session_id(prefix)
        with self.log.read() as reading:
            row = None if after is None else reading.session(check_session_id(after))
            if after is not None and row is None:
                raise NotFound(f"there is no session {after!r}")
            behind = 0 if row is None else row.key
            rows = reading.sessions(behind, limit, deleted=deleted, prefix=prefix)
            return [
                SessionInfo(each.id, each.created_at, reading.last_event(each.key), each.deleted_at)
                for each in rows
            ]

    def delete_session(self, sid: str) -> None:
        """Mark a session as deleted: it cannot be read or written any more, and its id is used up.
        Its events go with the next collection that it is old enough for.
        """
        check_session_id(sid)
        at, _ = self._preparing.now()
        self._broadcast.refuse_reentry(sid)
        self.log.transact(lambda txn: writer.delete(txn, self._slots, sid, at))
        self._broadcast.notify(sid)

    # Appending

    def append_event(
        self,
        sid: str,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Event:
        """Append one event; it comes back with its numbers.

        `expected_last_id` is the id of the last event that its author knows of; if there are later
        ones, it is refused. With a `key`, the same request sent again gives the same event again.
        """
        request = self._preparing.appending_one(sid, event, expected_last_id, key)
        return self._submit(lambda txn: writer.append(txn, self._slots, request), request)[0]

    def append_events(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Sequence[Event]:
        """Append several events, with consecutive ids: all of them or none."""
        request = self._preparing.appending(sid, events, expected_last_id, key)
        return self._submit(lambda txn: writer.append(txn, self._slots, request), request)

    async def append_event_async(
        self,
        sid: str,
        event: Mapping[str, Any],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Event:
        request = self._preparing.appending_one(sid, event, expected_last_id, key)
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
    ) -> Sequence[Event]:
        request = self._preparing.appending(sid, events, expected_last_id, key)
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
    ) -> Head:
        """Publish a head over the events since the current one, up to `to_event_id` (the last one).

        `expected_basis` is the id of the head that its author knows as the current one, or None for
        none; if it is another, HeadMoved is raised and nothing is written. `events` are appended
        first and covered by the head, all in one transaction.
        """
        request = self._preparing.publishing(
            sid, head, expected_basis, to_event_id, key, events=events
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
    ) -> Head:
        """Publish a head over the events since the current one, as `publish_head` does."""
        request = self._preparing.publishing(
            sid, head, expected_basis, to_event_id, key, events=events
        )
        return await self._submit_async(
            lambda txn: writer.publish_head(txn, self._slots, request), request.whole
        )

    def append_lineage_edge(self, sid: str, edge: Mapping[str, Any]) -> Event:
        """Add an edge to the log of a session; the event that holds it. An edge that is in this log
        already is not added again.
        """
        request = self._preparing.joining(sid, edge)
        return self._submit(lambda txn: writer.append_edge(txn, self._slots, request), request)

    async def append_lineage_edge_async(self, sid: str, edge: Mapping[str, Any]) -> Event:
        request = self._preparing.joining(sid, edge)
        return await self._submit_async(
            lambda txn: writer.append_edge(txn, self._slots, request), request
        )

    # Payloads

    def intern_payload(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value under the hash of its canonical bytes; the reference to it."""
        payload = payloads.interned(value, kind)
        _, now = self._preparing.now()
        payloads.write_files([payload], self.files)
        self.log.transact(
            lambda txn: writer.put_payload(txn, payload, now, self.files), payload.ref.size
        )
        return payload.ref

    async def intern_payload_async(self, value: Any, kind: str = "message") -> PayloadRef:
        payload = payloads.interned(value, kind)
        _, now = self._preparing.now()
        if writer.is_file(payload, self.files):
            await asyncio.to_thread(payloads.write_files, [payload], self.files)
        await self.log.transact_async(
            lambda txn: writer.put_payload(txn, payload, now, self.files), payload.ref.size
        )
        return payload.ref

    def maybe_intern(self, value: Any, kind: str = "message") -> Any:
        """The value itself up to 512 canonical bytes; beyond that a reference to it, stored."""
        if is_ref(value) or len(encode(value)) <= limits.PAYLOAD_INLINE_BYTES_MAX:
            return value
        return self.intern_payload(value, kind)

    def read_payload(self, ref: Any) -> Any:
        """The value behind a reference, verified by its hash; anything else as it is."""
        return payloads.fetch(self.log, self.files, ref) if isinstance(ref, PayloadRef) else ref

    def verify_no_dangling_refs(self, sid: str | None = None) -> list[PayloadRef]:
        """The references of a session, or of all, that lead to no payload; none, one hopes."""
        return payloads.dangling(self.log, self.files, sid)

    def gc(self, grace_s: float = limits.SESSION_GRACE_S) -> GcReport:
        """Remove payloads that no event leads to, and the events of deleted sessions, once they are
        older than the grace age. With an age of 0 nobody may be about to use a payload that was
        just stored.
        """
        if not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        return payloads.collect(self.log, self.files, self._preparing.cutoff(grace_s))

    # Reading

    def current_view(self, sid: str) -> SessionView:
        """The session as of the last append that returned."""
        slot = self._slot(sid)
        return SessionView(self.log, slot.row, slot.state)

    def read_state(self, sid: str) -> SessionView:
        """The session as the log on disk has it, whoever wrote it."""
        slot = self._stored(sid)
        return SessionView(self.log, slot.row, slot.state)

    def view_at(self, sid: str, at: int | str) -> SessionView:
        """The session as it was: right after an event, or where a head of it ends."""
        check_session_id(sid)
        with self.log.read() as reading:
            row = existing(reading, sid)
            last = reading.last_event(row.key)
            if isinstance(at, str):
                found = heads.head(reading, at)
                if found.session != sid:
                    raise NotFound(f"session {sid!r} has no head {at}")
                at = found.event_range[1]
            if check_count(at, "the event to look at") > last:
                raise NotFound(f"session {sid!r} has no event {at}; the newest is {last}")
            return SessionView(self.log, row, state_at(reading, row, at).state)

    def events_since(self, sid: str, event_id: int = 0, *, limit: int | None = None) -> list[Event]:
        """The events behind one, in order; as many as there are, or `limit` of them."""
        after = check_count(event_id, "event_id")
        most = 2**62 if limit is None else check_count(limit, "limit", least=1)
        check_session_id(sid)
        with self.log.read() as reading:
            row = existing(reading, sid)
            rows = reading.events(row.key, after, 2**62, most)
        return [event_of(sid, each) for each in rows]

    def events_of_key(self, sid: str, key: str) -> list[Event]:
        """The events that a request with this key appended; none if there was no such request."""
        check_session_id(sid)
        named = check_key(key)
        if named is None:
            return []
        with self.log.read() as reading:
            rows = reading.events_of_request(existing(reading, sid).key, named)
        return [event_of(sid, each) for each in rows]

    def all_events_since(self, position: int = 0, *, limit: int | None = None) -> list[Event]:
        """The events of all sessions behind a position of the store, in the order in which they
        were committed.
        """
        after = check_count(position, "position")
        most = 2**62 if limit is None else check_count(limit, "limit", least=1)
        with self.log.read() as reading:
            return [event_of(sid, row) for sid, row in reading.all_events(after, most)]

    def position(self) -> int:
        """The newest position of the store: how many events were ever committed in it."""
        with self.log.read() as reading:
            return reading.position()

    def peek_next_id(self, sid: str, counter: str = "event") -> int:
        """The id that the next event (message, turn, step, eval) gets, if nobody else is faster."""
        if counter not in COUNTERS:
            raise InvalidInput(f"{counter!r} is not one of {', '.join(COUNTERS)}")
        return int(getattr(self._slot(sid).state.counters, counter)) + 1

    # Lineage

    def head(self, head_id: str) -> Head:
        """A published head, by its id."""
        with self.log.read() as reading:
            return heads.head(reading, head_id)

    def lineage(self, sid: str) -> list[Edge]:
        """The edges that begin or end at a session, in whichever log they stand."""
        with self.log.read() as reading:
            return heads.edges_of(reading, check_session_id(sid))

    def lineage_graph(self, sid: str) -> LineageGraph:
        """The heads and edges of everything that hangs together with a session."""
        with self.log.read() as reading:
            return heads.graph(reading, check_session_id(sid))

    def ancestors(self, head_id: str) -> list[str]:
        """The ids of all heads that a head goes back to, nearest first."""
        with self.log.read() as reading:
            return heads.ancestors(reading, head_id)

    def descendants(self, head_id: str) -> list[str]:
        """The ids of all heads that go back to a head, nearest first."""
        with self.log.read() as reading:
            return heads.descendants(reading, head_id)

    # Bundles

    def export_bundle(self, sid: str) -> Iterator[bytes]:
        """A session and all that edges lead to from it, with every payload, as lines of JSON."""
        return bundle.lines(self, check_session_id(sid))

    def import_bundle(self, path: str | Path) -> BundleReport:
        """Add the sessions of a bundle, under their ids. Every digest in it is checked first; a
        session that is here already must have the same history, and gets what is missing.
        """
        if not self.log.writable:
            raise ReadOnly(f"{self.log!r} is open for reading only")
        _, now = self._preparing.now()
        done = bundle.take_in(self, self._slots, Path(path), now)
        self._broadcast.notify_all()
        return done

    # Live

    def notify_transient(self, sid: str, item: Any) -> None:
        """Hand something live to whoever listens right now; it is not kept."""
        self._broadcast.send(sid, item, self._slot(sid).state.counters.event)

    def subscribe(
        self,
        sid: str,
        callback: Callable[[Item], Any],
        *,
        after: int | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> Subscription:
        """Call back for every event of a session behind `after` (from now on, if not given), each
        once and in order, and for transient items. Call the result to end it.
        """
        return self._subscribe(Feed(self._broadcast, sid, after, bound=bound), callback)

    def subscribe_all(
        self,
        callback: Callable[[Item], Any],
        *,
        after: int | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> Subscription:
        """The same for all sessions; `after` is a position of the store."""
        return self._subscribe(Feed(self._broadcast, None, after, bound=bound), callback)

    def follow(
        self,
        sid: str,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> Feed:
        """The same as an iterator, for `for` and `async for`."""
        return self._broadcast.join(Feed(self._broadcast, sid, after, bound=bound, timeout=timeout))

    def follow_all(
        self,
        *,
        after: int | None = None,
        timeout: float | None = None,
        bound: int = limits.SESSION_FEED_TRANSIENTS_MAX,
    ) -> Feed:
        return self._broadcast.join(
            Feed(self._broadcast, None, after, bound=bound, timeout=timeout)
        )

    # Upkeep

    def verify(self) -> list[str]:
        """What is wrong with the sessions, in sentences; empty when everything agrees."""
        return problems(self.log, self.files)

    def close(self) -> None:
        """End every feed. What is on disk stays; a log in memory is gone."""
        self._closed = True
        self._broadcast.close()
        if isinstance(self.log, MemoryLog):
            self.log.close()

    def __repr__(self) -> str:
        return f"<Sessions in {self.log!r}>"

    # Inside

    def _submit(self, work: Callable[[LogWriter], T], request: Append) -> T:
        self._broadcast.refuse_reentry(request.sid)
        if request.payloads:
            payloads.write_files(request.payloads, self.files)
        result = self.log.transact(work, request.size)
        self._broadcast.notify(request.sid)
        return result

    async def _submit_async(self, work: Callable[[LogWriter], T], request: Append) -> T:
        self._broadcast.refuse_reentry(request.sid)
        if any(writer.is_file(each, self.files) for each in request.payloads):
            await asyncio.to_thread(payloads.write_files, request.payloads, self.files)
        result = await self.log.transact_async(work, request.size)
        self._broadcast.notify(request.sid)
        return result

    def _subscribe(self, feed: Feed, callback: Callable[[Item], Any]) -> Subscription:
        if not callable(callback):
            raise InvalidInput(f"the callback is {type(callback).__name__}, which cannot be called")
        self._broadcast.join(feed)
        return self._broadcast.keep(Subscription(self._broadcast, feed, callback))

    def _slot(self, sid: str) -> Slot:
        """The newest state. Only the writer can trust its memory: another process may write while
        this one reads.
        """
        check_session_id(sid)
        known = self._slots.get(sid) if self.log.writable else None
        if known is not None and not self._closed:
            return known
        return self._stored(sid)

    def _stored(self, sid: str) -> Slot:
        check_session_id(sid)
        mark = self._slots.published
        with self.log.read() as reading:
            return self._slots.committed(reading, sid, mark)
