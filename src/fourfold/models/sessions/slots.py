"""The newest state of the sessions in use, in bounded memory.

It holds committed states only. A commit marks its session as moving before the log has the new
events, and publishes the new state after that and before its caller hears of it. So a writer reads
its own writes. Whoever is inside a transaction and finds its session moving asks the transaction
itself: the state in here may be behind what an earlier request of the same transaction wrote.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from fourfold.errors import CorruptData, NotFound
from fourfold.limits import SESSION_PAGE_EVENTS, SESSION_SLOTS_MAX
from fourfold.models.sessions.fold import State, advance
from fourfold.models.sessions.log import Reading, SessionRow, Writing
from fourfold.models.sessions.stamping import event_of, state_of

_SCRATCH = "sessions"
_POSITION = "position of the sessions"


class Slot(NamedTuple):
    """A session, its state, and the event of its newest snapshot."""

    row: SessionRow
    state: State
    snapshot_at: int


class Slots:
    """Least recently used first out."""

    def __init__(self, most: int = SESSION_SLOTS_MAX) -> None:
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._moving: set[str] = set()
        self._published = 0
        self._position: int | None = None
        self._most = most
        self._lock = threading.Lock()

    def committed(self, reading: Reading, sid: str, mark: int) -> Slot:
        """The newest committed state. `mark` is `published`, taken before the reading began."""
        known = self.get(sid)
        found = load(reading, sid, known)
        if found is not known:
            with self._lock:
                # Something may have been published since the reading began, and be newer.
                if mark == self._published and sid not in self._moving:
                    self._put(sid, found)
        return found

    def get(self, sid: str) -> Slot | None:
        with self._lock:
            found = self._slots.get(sid)
            if found is not None:
                self._slots.move_to_end(sid)
            return found

    def inside(self, writing: Writing, sid: str) -> Slot:
        """The state that a transaction sees, with what it wrote itself."""
        shared: Slot | None = writing.scratch.get(_SCRATCH, {}).get(sid)
        if shared is not None:
            return shared
        with self._lock:
            known = None if sid in self._moving else self._slots.get(sid)
        return known or load(writing, sid, None)

    def position(self, writing: Writing) -> int:
        """The newest position that a transaction sees."""
        shared: int | None = writing.scratch.get(_POSITION)
        if shared is not None:
            return shared
        with self._lock:
            known = None if self._moving else self._position
        return writing.position() if known is None else known

    def move(self, writing: Writing, sid: str, slot: Slot, position: int | None = None) -> None:
        """The last thing that a request does: others see the new state once it is committed, those
        of the same transaction at once.
        """
        with self._lock:
            self._moving.add(sid)
        scratch = writing.scratch
        scratch.setdefault(_SCRATCH, {})[sid] = slot
        if position is not None:
            scratch[_POSITION] = position
        writing.after_commit(lambda: self.publish(sid, slot, position))

    def leave(self, writing: Writing, sid: str) -> None:
        """The same for a session that is deleted: requests of the same transaction must not find it
        here any more.
        """
        with self._lock:
            self._moving.add(sid)
        writing.scratch.get(_SCRATCH, {}).pop(sid, None)
        writing.after_commit(lambda: self.publish(sid, None))

    @property
    def published(self) -> int:
        return self._published

    def publish(self, sid: str, slot: Slot | None, position: int | None = None) -> None:
        """The newest state now; None forgets the session. One transaction is on its way at a time,
        so whatever else was moving is in the log by now, or never will be.
        """
        with self._lock:
            self._published += 1
            self._moving.clear()
            if position is not None:
                self._position = position
            if slot is None:
                self._slots.pop(sid, None)
            else:
                self._put(sid, slot)

    def _put(self, sid: str, slot: Slot) -> None:
        self._slots[sid] = slot
        self._slots.move_to_end(sid)
        while len(self._slots) > self._most:
            self._slots.popitem(last=False)


def load(reading: Reading, sid: str, known: Slot | None) -> Slot:
    """The state of a session as a reading sees it: the newest of a known state and a snapshot,
    folded up to the end. The same object as `known` when nothing came since.
    """
    if known is not None and reading.last_event(known.row.key) == known.state.counters.event:
        row = reading.session(sid)
        if row is not None and row.deleted_at is None:
            return known
    row = existing(reading, sid)
    if known is None:
        return state_at(reading, row, reading.last_event(row.key))
    return _folded(reading, known._replace(row=row), reading.last_event(row.key))


def state_at(reading: Reading, row: SessionRow, event_id: int) -> Slot:
    """The state as it was at an event, from the nearest snapshot before it."""
    snapshot = reading.snapshot_before(row.key, event_id)
    if snapshot is None:
        return _folded(reading, Slot(row, State(), 0), event_id)
    at, text = snapshot
    try:
        state = state_of(text)
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptData(f"the snapshot of session {row.id!r} at event {at} is damaged") from error
    return _folded(reading, Slot(row, state, at), event_id)


def existing(reading: Reading, sid: str) -> SessionRow:
    """The row of a session that is there and not deleted."""
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


def _folded(reading: Reading, slot: Slot, until: int) -> Slot:
    row, state, snapshot_at = slot
    while state.counters.event < until:
        rows = reading.events(row.key, state.counters.event, until, SESSION_PAGE_EVENTS)
        if not rows:
            raise CorruptData(
                f"the log of session {row.id!r} has no event {state.counters.event + 1}"
            )
        state = advance(state, *(event_of(row.id, each) for each in rows))
    return Slot(row, state, snapshot_at)
