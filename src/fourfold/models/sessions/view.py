"""A session as one moment shows it: the small things at once, the lists when they are asked for.

The lists look like lists and are read from the log a page at a time, so that a view of a session of
a million events costs no more than one of ten. A view never changes: what was appended later is not
in it, and what it hands out is a copy. It can be read for as long as its store is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from msgspec.structs import replace

from fourfold.limits import SESSION_PAGE_EVENTS
from fourfold.models.sessions.fold import LISTS, Counters, State, View, fold
from fourfold.models.sessions.log import Log, Reading, SessionRow
from fourfold.models.sessions.records import Edge, Event, Head, copied, edge_of, head_of
from fourfold.models.sessions.stamping import ENTITY_CODES, event_of

T = TypeVar("T")


class Listed(Sequence[T], Generic[T]):
    """A list that lies in the log. `load(reading, first, last)` reads items of it, from 0."""

    def __init__(
        self,
        log: Log,
        size: Callable[[Reading], int] | int,
        load: Callable[[Reading, int, int], list[T]],
    ) -> None:
        self._log = log
        self._size = size
        self._load = load

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
            return [self[each] for each in range(start, stop, step)]
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
        if isinstance(other, (list, tuple, Listed)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} items in the log>"


class SessionView:
    """A session at one event. Made by `current_view`, `read_state` and `view_at`."""

    def __init__(self, log: Log, row: SessionRow, state: State) -> None:
        self._log = log
        self._row = row
        self._state = state

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def state(self) -> State:
        """Everything that does not grow with the log: a copy."""
        return replace(self._state, session=self.session, vars_ref=self.vars_ref, error=self.error)

    @property
    def session(self) -> dict[str, Any] | None:
        """The session entity: a copy, each time."""
        found: dict[str, Any] | None = copied(self._state.session)
        return found

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def current_head(self) -> str | None:
        return self._state.current_head

    @property
    def covered(self) -> int:
        """The last event that the current head covers; 0 without a head."""
        return self._state.covered

    @property
    def vars_ref(self) -> Any:
        """The newest snapshot of the variables: a copy, each time."""
        return copied(self._state.vars_ref)

    @property
    def compact_from_event_id(self) -> int | None:
        return self._state.compact_from_event_id

    @property
    def error(self) -> Any:
        """The error of the session: a copy, each time."""
        return copied(self._state.error)

    @property
    def messages(self) -> Listed[dict[str, Any]]:
        return self._entities("message", self.counters.message)

    @property
    def turns(self) -> Listed[dict[str, Any]]:
        return self._entities("turn", self.counters.turn)

    @property
    def steps(self) -> Listed[dict[str, Any]]:
        return self._entities("step", self.counters.step)

    @property
    def evals(self) -> Listed[dict[str, Any]]:
        return self._entities("eval", self.counters.eval)

    @property
    def heads(self) -> Listed[Head]:
        return self._marked("heads", lambda event: head_of(event.data["head"]))

    @property
    def edges(self) -> Listed[Edge]:
        return self._marked("edges", lambda event: edge_of(event.data["edge"]))

    @property
    def events(self) -> Listed[Event]:
        def load(reading: Reading, first: int, last: int) -> list[Event]:
            rows = reading.events(self._row.key, first, last, last - first)
            return [event_of(self.id, row) for row in rows]

        return Listed(self._log, self.counters.event, load)

    def kept_messages(self) -> Iterator[dict[str, Any]]:
        """The transcript that still counts: from the compaction boundary on, oldest first."""
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
        """The same view with plain lists, folded from the events themselves."""
        return fold(None, self.events)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (SessionView, View)):
            state = other._state if isinstance(other, SessionView) else other.state
            return self._state == state and all(
                getattr(self, name) == getattr(other, name) for name in LISTS
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<SessionView of {self.id} at event {self.counters.event}>"

    def _entities(self, entity: str, count: int) -> Listed[dict[str, Any]]:
        code, until = ENTITY_CODES[entity], self.counters.event

        def load(reading: Reading, first: int, last: int) -> list[dict[str, Any]]:
            rows = reading.entities(self._row.key, code, first + 1, last, until)
            return [event_of(self.id, row).data[entity] for row in rows]

        return Listed(self._log, count, load)

    def _marked(self, what: str, made: Callable[[Event], T]) -> Listed[T]:
        key, until = self._row.key, self.counters.event

        def load(reading: Reading, first: int, last: int) -> list[T]:
            found = []
            for event_id in reading.marks(what, key, until, first, last - first):
                [row] = reading.events(key, event_id - 1, event_id, 1)
                found.append(made(event_of(self.id, row)))
            return found

        return Listed(self._log, lambda reading: reading.marks_count(what, key, until), load)
