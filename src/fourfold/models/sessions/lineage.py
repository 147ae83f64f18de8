"""Where sessions came from: walks over heads and the edges between them.

A head stands on its basis, and on the heads from which edges lead to it. Heads and edges are facts
in the log, so every walk gives the same answer in every store that holds the same logs. An edge may
lead to a head of another store; its id is given, and the walk ends there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from fourfold.content import parse_content_id
from fourfold.errors import NotFound
from fourfold.limits import SESSION_PAGE_EVENTS
from fourfold.models.sessions.log import Reading
from fourfold.models.sessions.records import Edge, Event, Head, LineageGraph, edge_of, head_of
from fourfold.models.sessions.slots import existing
from fourfold.models.sessions.stamping import event_of


def head(reading: Reading, head_id: str) -> Head:
    """A published head, of a session that is not deleted."""
    parse_content_id(head_id)
    found = _find(reading, head_id)
    if found is None:
        raise NotFound(f"there is no head {head_id}")
    return found


def ancestors(reading: Reading, head_id: str) -> list[str]:
    """Every head that a head goes back to, nearest first."""

    def before(each: str) -> Iterable[str]:
        found = _find(reading, each)
        basis = [] if found is None or found.basis is None else [found.basis]
        return (*basis, *reading.heads_joined(each, forward=False))

    return _walk(head(reading, head_id).id, before)


def descendants(reading: Reading, head_id: str) -> list[str]:
    """Every head that goes back to a head, nearest first."""

    def after(each: str) -> Iterable[str]:
        return (*reading.heads_on(each), *reading.heads_joined(each, forward=True))

    return _walk(head(reading, head_id).id, after)


def edges_of(reading: Reading, sid: str) -> list[Edge]:
    """The edges that begin or end at a session, in whichever log they stand, each once."""
    existing(reading, sid)
    return list(_edges(reading, sid))


def graph(reading: Reading, sid: str) -> LineageGraph:
    """The heads of all sessions that hang together with one, and the edges between them."""
    existing(reading, sid)
    heads: list[Head] = []
    edges: dict[str, Edge] = {}
    seen, waiting = {sid}, deque([sid])
    while waiting:
        each = waiting.popleft()
        heads += _heads(reading, each)
        for edge in _edges(reading, each):
            edges.setdefault(edge.id, edge)
            for other in (edge.from_session, edge.to_session):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
    return LineageGraph(tuple(heads), tuple(edges.values()))


def _walk(start: str, step: Callable[[str], Iterable[str]]) -> list[str]:
    seen, waiting, found = {start}, deque([start]), []
    while waiting:
        for each in step(waiting.popleft()):
            if each not in seen:
                seen.add(each)
                found.append(each)
                waiting.append(each)
    return found


def _find(reading: Reading, head_id: str) -> Head | None:
    place = reading.head(head_id)
    if place is None:
        return None
    event = _event(reading, *place)
    return None if event is None else head_of(event.data["head"])


def _heads(reading: Reading, sid: str) -> Iterator[Head]:
    row = reading.session(sid)
    if row is None or row.deleted_at is not None:
        return
    until, first = reading.last_event(row.key), 0
    while ids := reading.marks("heads", row.key, until, first, SESSION_PAGE_EVENTS):
        for event_id in ids:
            event = _event(reading, row.key, event_id)
            assert event is not None
            yield head_of(event.data["head"])
        first += len(ids)


def _edges(reading: Reading, sid: str) -> Iterator[Edge]:
    seen = set()
    for key, event_id in reading.edges_of_session(sid):
        event = _event(reading, key, event_id)
        if event is not None:
            edge = edge_of(event.data["edge"])
            if edge.id not in seen:
                seen.add(edge.id)
                yield edge


def _event(reading: Reading, key: int, event_id: int) -> Event | None:
    """An event, unless its session is deleted."""
    row = reading.session_by_key(key)
    if row is None or row.deleted_at is not None:
        return None
    [found] = reading.events(key, event_id - 1, event_id, 1)
    return event_of(row.id, found)
