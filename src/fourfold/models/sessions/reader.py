"""Cache of the newest state of sessions, in bounded memory, and views of them.

It holds committed states only. A commit marks its session as moving before the log has the new
events, and publishes the new state after that and before its caller continues. So a writer reads
its own writes. Inside a transaction, the state of a moving session is read from the transaction:
the state in here may be older than what an earlier request of the transaction wrote.

A session as one moment shows it: the small things at once, the lists when they are asked for.

The lists look like lists and are read from the log a page at a time, so that a view of a session of
a million events costs no more than one of ten. A view never changes: what was appended later is not
in it, and what it hands out is a copy. It can be read for as long as its store is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from msgspec.structs import replace

from fourfold import html
from fourfold.cache import LruCache
from fourfold.errors import CorruptData, NotFound
from fourfold.limits import SESSION_PAGE_EVENTS
from fourfold.models.sessions.fold import LISTS, Counters, FoldState, View, advance, fold
from fourfold.models.sessions.log import Log, LogReader, LogWriter, SessionRow
from fourfold.models.sessions.records import Event, Head, LineageEdge, copied, edge_of, head_of
from fourfold.models.sessions.stamps import ENTITY_CODES, event_of, state_of
from fourfold.tabular import RecordTable, Shape

SESSION_SLOTS_MAX: Final = 4_096
"""Sessions whose state is cached in memory."""

_SCRATCH = "sessions"
_POSITION = "position of the sessions"


class Slot(NamedTuple):
    """A session, its state, and the event of its newest snapshot."""

    row: SessionRow
    state: FoldState
    snapshot_at: int
    second: str = ""
    """Second of the newest event, which the index of sessions has; empty if it is unknown."""


class Slots:
    """Least recently used first out.

    `notify` is called with the id of a session after each commit that changed it.
    """

    def __init__(
        self, notify: Callable[[str], None] = lambda _: None, most: int = SESSION_SLOTS_MAX
    ) -> None:
        self._notify = notify
        self._slots: LruCache[str, Slot] = LruCache(most)
        self._moving: set[str] = set()
        self._published = 0
        self._position: int | None = None
        self._lock = threading.Lock()

    def committed(self, reading: LogReader, sid: str, mark: int) -> Slot:
        """Return the newest committed state.

        `mark` is `published` before the read transaction began.
        """
        cached = self.get(sid)
        slot = load(reading, sid, cached)
        if slot is not cached:
            with self._lock:
                # Something may have been published since the reading began, and be newer.
                if mark == self._published and sid not in self._moving:
                    self._slots.put(sid, slot)
        return slot

    def get(self, sid: str) -> Slot | None:
        """Return the cached state of a session, or None."""
        with self._lock:
            return self._slots.get(sid)

    def inside(self, writing: LogWriter, sid: str) -> Slot:
        """Return the state that a transaction sees, including its own writes."""
        shared: Slot | None = writing.scratch.get(_SCRATCH, {}).get(sid)
        if shared is not None:
            return shared
        with self._lock:
            cached = None if sid in self._moving else self._slots.get(sid)
        return cached or load(writing, sid, None)

    def position(self, writing: LogWriter) -> int:
        """Return the newest position that a transaction sees."""
        shared: int | None = writing.scratch.get(_POSITION)
        if shared is not None:
            return shared
        with self._lock:
            cached = None if self._moving else self._position
        return writing.position() if cached is None else cached

    def move(self, writing: LogWriter, sid: str, slot: Slot, position: int | None = None) -> None:
        """Set the state of a session, as the last step of a request.

        Requests of the same transaction see it at once, others after the commit.
        """
        with self._lock:
            self._moving.add(sid)
        scratch = writing.scratch
        scratch.setdefault(_SCRATCH, {})[sid] = slot
        if position is not None:
            scratch[_POSITION] = position
        writing.after_commit(partial(self.publish, sid, slot, position))

    def leave(self, writing: LogWriter, sid: str) -> None:
        """Remove a deleted session; requests of the same transaction must not find it any more."""
        with self._lock:
            self._moving.add(sid)
        writing.scratch.get(_SCRATCH, {}).pop(sid, None)
        writing.after_commit(partial(self.publish, sid, None))

    @property
    def published(self) -> int:
        """Number of states published so far, by which a reader detects a newer one."""
        return self._published

    def publish(self, sid: str, slot: Slot | None, position: int | None = None) -> None:
        """Cache the newest state and wake the feeds of a session; None evicts it.

        Only one transaction commits at a time, so whatever else was moving is in the log by now, or
        never will be.
        """
        with self._lock:
            self._published += 1
            self._moving.clear()
            if position is not None:
                self._position = position
            if slot is None:
                self._slots.pop(sid)
            else:
                self._slots.put(sid, slot)
        self._notify(sid)


def load(reading: LogReader, sid: str, known: Slot | None) -> Slot:
    """Return the state of a session as a reader sees it.

    It is folded from the cached state `known` or a snapshot, whichever is newer. Returns `known`
    itself if nothing is newer.
    """
    if known is not None and reading.last_event(known.row.key) == known.state.counters.event:
        row = reading.session(sid)
        if row is not None and row.deleted_at is None:
            return known
    row = existing(reading, sid)
    if known is None:
        return state_at(reading, row, reading.last_event(row.key))
    return _folded(reading, known._replace(row=row), reading.last_event(row.key))


def state_at(reading: LogReader, row: SessionRow, event_id: int) -> Slot:
    """Return the state at an event, from the nearest snapshot before it."""
    snapshot = reading.snapshot_before(row.key, event_id)
    if snapshot is None:
        return _folded(reading, Slot(row, FoldState(), 0), event_id)
    at, text = snapshot
    try:
        state = state_of(text)
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptData(f"the snapshot of session {row.id!r} at event {at} is damaged") from error
    return _folded(reading, Slot(row, state, at), event_id)


def event_at(reading: LogReader, key: int, at: str) -> int:
    """Return the newest event of a session at or before a time; 0 if there is none.

    Found by bisection: if the clock was set back, it is one of the events where the time passed.
    """
    first, last = 0, reading.last_event(key)
    while first < last:
        middle = (first + last + 1) // 2
        [row] = reading.events(key, middle - 1, middle, 1)
        if row.at <= at:
            first = middle
        else:
            last = middle - 1
    return first


def existing(reading: LogReader, sid: str) -> SessionRow:
    """Return the row of a session; raise NotFound if there is none, or it is deleted."""
    row = reading.session(sid)
    if row is None:
        raise NotFound(
            f"there is no session {sid!r}", hint="Create it with create_session(), or list them."
        )
    if row.deleted_at is not None:
        raise NotFound(
            f"session {sid!r} was deleted at {row.deleted_at}", hint="Its id is used up."
        )
    return row


def existing_at(reading: LogReader, sid: str, at: str | None) -> SessionRow:
    """Return the row of a session; raise NotFound unless it exists, and existed at a time."""
    row = existing(reading, sid)
    if at is not None and row.created_at > at:
        raise NotFound(f"session {sid!r} did not exist at {at}; it was created at {row.created_at}")
    return row


def _folded(reading: LogReader, slot: Slot, until: int) -> Slot:
    row, state, snapshot_at, _ = slot
    while state.counters.event < until:
        rows = reading.events(row.key, state.counters.event, until, SESSION_PAGE_EVENTS)
        if not rows:
            raise CorruptData(
                f"the log of session {row.id!r} has no event {state.counters.event + 1}"
            )
        state = advance(state, *(event_of(row.id, event) for event in rows))
    return Slot(row, state, snapshot_at)


T = TypeVar("T")


class SessionListing(RecordTable, Sequence[T], Generic[T]):
    """A list stored in the log. `load(reading, first, last)` reads items of it, from 0."""

    def __init__(
        self,
        log: Log,
        size: Callable[[LogReader], int] | int,
        load: Callable[[LogReader, int, int], list[T]],
    ) -> None:
        self._log = log
        self._size = size
        self._load = load

    def _table_shape(self) -> Shape:
        return ()

    def __len__(self) -> int:
        if not isinstance(self._size, int):
            with self._log.read() as reading:
                self._size = self._size(reading)
        return self._size

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return [item for page in self._pages(start, stop) for item in page]
            return [self[position] for position in range(start, stop, step)]
        place = at + len(self) if at < 0 else at
        if not 0 <= place < len(self):
            raise IndexError(at)
        with self._log.read() as reading:
            return self._load(reading, place, place + 1)[0]

    def __iter__(self) -> Iterator[T]:
        for page in self._pages(0, len(self)):
            yield from page

    def _pages(self, start: int, stop: int) -> Iterator[list[T]]:
        for first in range(start, stop, SESSION_PAGE_EVENTS):
            with self._log.read() as reading:
                page = self._load(reading, first, min(first + SESSION_PAGE_EVENTS, stop))
            yield page

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple, SessionListing)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} items in the log>"


class SessionView:
    """A session at one event: the fold of its events up to there. Made by `Session.read`.

    Lists such as `messages` are read from the log a page at a time. A view never changes, and what
    it returns is a copy.
    """

    def __init__(self, log: Log, row: SessionRow, state: FoldState) -> None:
        self._log = log
        self._row = row
        self._state = state

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._row.id

    @property
    def state(self) -> FoldState:
        """A copy of everything that does not grow with the log."""
        return replace(self._state, session=self.session, vars_ref=self.vars_ref, error=self.error)

    @property
    def session(self) -> dict[str, Any] | None:
        """A copy of the session entity; None before `session/started`."""
        session: dict[str, Any] | None = copied(self._state.session)
        return session

    @property
    def counters(self) -> Counters:
        """The newest ids of events, messages, turns, steps and evals."""
        return self._state.counters

    @property
    def current_head(self) -> str | None:
        """The id of the newest head; None without a head."""
        return self._state.current_head

    @property
    def covered(self) -> int:
        """The last event that the current head covers; 0 without a head."""
        return self._state.covered

    @property
    def vars_ref(self) -> Any:
        """A copy of the newest snapshot of the variables."""
        return copied(self._state.vars_ref)

    @property
    def compact_from_event_id(self) -> int | None:
        """The event at which the compacted transcript begins; None if it was not compacted."""
        return self._state.compact_from_event_id

    @property
    def error(self) -> Any:
        """A copy of the error of the session."""
        return copied(self._state.error)

    @property
    def messages(self) -> SessionListing[dict[str, Any]]:
        """The messages, oldest first."""
        return self._entities("message", self.counters.message)

    @property
    def turns(self) -> SessionListing[dict[str, Any]]:
        """The turns, oldest first."""
        return self._entities("turn", self.counters.turn)

    @property
    def steps(self) -> SessionListing[dict[str, Any]]:
        """The steps of all turns, oldest first."""
        return self._entities("step", self.counters.step)

    @property
    def evals(self) -> SessionListing[dict[str, Any]]:
        """The evals, oldest first."""
        return self._entities("eval", self.counters.eval)

    @property
    def heads(self) -> SessionListing[Head]:
        """The published heads, oldest first."""
        return self._marked("heads", lambda event: head_of(event.data["head"]))

    @property
    def edges(self) -> SessionListing[LineageEdge]:
        """The lineage edges in the log of this session, oldest first."""
        return self._marked("edges", lambda event: edge_of(event.data["edge"]))

    @property
    def events(self) -> SessionListing[Event]:
        """The events, oldest first."""

        def load(reading: LogReader, first: int, last: int) -> list[Event]:
            rows = reading.events(self._row.key, first, last, last - first)
            return [event_of(self.id, row) for row in rows]

        return SessionListing(self._log, self.counters.event, load)

    def kept_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages of the transcript from the compaction boundary, oldest first."""
        after, until = (self.compact_from_event_id or 1) - 1, self.counters.event
        while after < until:
            with self._log.read() as reading:
                rows = reading.messages_from(self._row.key, after + 1, until, SESSION_PAGE_EVENTS)
            if not rows:
                return
            for row in rows:
                yield event_of(self.id, row).data["message"]
            after = rows[-1].event_id

    def materialize(self) -> View:
        """Fold the events into a view with plain lists."""
        return fold(None, self.events)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (SessionView, View)):
            state = other._state if isinstance(other, SessionView) else other.state
            return self._state == state and all(
                getattr(self, name) == getattr(other, name) for name in LISTS
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        messages = self.messages
        newest = messages[max(0, len(messages) - html.ROWS_MAX) :]
        rows = ((entry.get("role"), html.block(entry.get("content"))) for entry in newest)
        hidden = len(messages) - len(newest)
        caption = f"Session {self.id} at event {self.counters.event}"
        facts = html.facts(
            {
                "turns": self.counters.turn,
                "messages": self.counters.message,
                "current head": self.current_head,
                "messages not shown": hidden,
            }
        )
        return html.fragment(facts, html.table(("role", "content"), rows), caption=caption)

    def __repr__(self) -> str:
        return f"<SessionView of {self.id} at event {self.counters.event}>"

    def _entities(self, entity: str, count: int) -> SessionListing[dict[str, Any]]:
        code, until = ENTITY_CODES[entity], self.counters.event

        def load(reading: LogReader, first: int, last: int) -> list[dict[str, Any]]:
            rows = reading.entities(self._row.key, code, first + 1, last, until)
            return [event_of(self.id, row).data[entity] for row in rows]

        return SessionListing(self._log, count, load)

    def _marked(self, what: str, made: Callable[[Event], T]) -> SessionListing[T]:
        key, until = self._row.key, self.counters.event

        def load(reading: LogReader, first: int, last: int) -> list[T]:
            items = []
            for event_id in reading.marks(what, key, until, first, last - first):
                [row] = reading.events(key, event_id - 1, event_id, 1)
                items.append(made(event_of(self.id, row)))
            return items

        return SessionListing(
            self._log, lambda reading: reading.marks_count(what, key, until), load
        )
