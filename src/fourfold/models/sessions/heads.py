"""Heads and edges before they are published: their content, and the id that follows from it.

A head covers the events after its basis, up to a boundary. So the ranges of the heads of a session
tile its log: each begins where the one before it ended. The `head/published` event itself is
beyond its own boundary and belongs to the range of the next head.

Lineage of sessions: walks over heads and the edges between them.

A head stands on its basis, and on the heads from which edges lead to it. Heads and edges are facts
in the log, so every walk gives the same answer in every store that holds the same logs. An edge may
lead to a head of another store; its id is given, and the walk ends there.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from fourfold import limits
from fourfold.content import content_id, encode, is_content_id, parse_content_id
from fourfold.errors import HeadMoved, InvalidInput, NotFound
from fourfold.limits import SESSION_PAGE_EVENTS
from fourfold.models.sessions.fold import FoldState
from fourfold.models.sessions.log import LogReader
from fourfold.models.sessions.reader import event_at, existing_at
from fourfold.models.sessions.records import (
    EDGE_FIELDS,
    HEAD_FIELDS,
    UNSET,
    Event,
    Head,
    LineageEdge,
    LineageGraph,
    Unset,
    edge_of,
    head_of,
)
from fourfold.models.sessions.request import check_session_id
from fourfold.models.sessions.stamps import event_of

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_GIVEN = ("kind", "turn_id", "vars_ref", "final_ref", "compact_from_event_id")


def check_head(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a head that a caller may set; raise InvalidInput for others."""
    if not isinstance(head, Mapping):
        raise InvalidInput(f"a head is a dict, not {type(head).__name__}")
    fields = {"kind": "turn-final", **head}
    for name in ("id", *HEAD_FIELDS):
        if name in fields and name not in _GIVEN:
            raise InvalidInput(f"the head has {name!r}, which only the store works out")
    for name in ("expected_basis", "to_event_id"):
        if name in fields:
            raise InvalidInput(f"{name} is an argument of publish_head, not a part of the head")
    _check_name(fields["kind"], "the kind of a head")
    for name in ("turn_id", "compact_from_event_id"):
        value = fields.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidInput(f"the {name} of a head is {value!r}, not an id")
    return fields


def check_basis(sid: str, state: FoldState, expected: str | Unset | None) -> None:
    """Refuse to move a head that is not where its author thinks it is."""
    if expected is not UNSET and expected != state.current_head:
        raise HeadMoved(
            f"the current head of session {sid!r} is {state.current_head}, not {expected}",
            details={"session": sid, "expected": expected, "current": state.current_head},
        )


def check_expected_basis(expected: Any) -> None:
    """Raise InvalidInput unless a value is the id of a head, None, or not given."""
    if expected is not UNSET and expected is not None and not is_content_id(expected):
        raise InvalidInput(
            f"expected_basis is {repr(expected)[:100]}, not the id of a head or None"
        )


def check_boundary(sid: str, state: FoldState, to_event_id: int | None) -> int:
    """Return the last event that the next head covers."""
    last = state.counters.event
    boundary = last if to_event_id is None else to_event_id
    if type(boundary) is not int or not state.covered < boundary <= last:
        raise InvalidInput(
            f"a head of session {sid!r} cannot end at event {boundary!r}: "
            f"its events after the current head are {state.covered + 1} to {last}",
            hint="Append what the head shall cover first.",
        )
    return boundary


def head_content(
    sid: str, state: FoldState, at_boundary: FoldState, boundary: int, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the stored form of the head, including its id.

    Omitted fields have their values at the boundary. Every field is present, so that the id depends
    on the meaning alone.
    """
    turn = fields.get("turn_id")
    if turn is not None and turn > at_boundary.counters.turn:
        raise NotFound(f"session {sid!r} has no turn {turn} at event {boundary}")
    compacted = fields.get("compact_from_event_id", at_boundary.compact_from_event_id)
    if compacted is not None and compacted > boundary:
        raise InvalidInput(
            f"the head ends at event {boundary}, before its compact_from_event_id {compacted}"
        )
    content = {
        "turn_id": None,
        "final_ref": None,
        "vars_ref": at_boundary.vars_ref,
        **fields,
        "compact_from_event_id": compacted,
        "version": 1,
        "session": sid,
        "basis": state.current_head,
        "event_range": [state.covered + 1, boundary],
        "events_digest": f"sha256:{at_boundary.digest.hex()}",
    }
    return {**content, "id": content_id(encode(content))}


def edge_content(sid: str, edge: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored form of an edge, with its id; by default it begins at its own session."""
    if not isinstance(edge, Mapping):
        raise InvalidInput(f"an edge is a dict, not {type(edge).__name__}")
    for name in ("id", "version"):
        if name in edge:
            raise InvalidInput(f"the edge has {name!r}, which only the store works out")
    content = {"from_session": sid, "from_head": None, **edge, "version": 1}
    for name in EDGE_FIELDS:
        if name not in content:
            raise InvalidInput(f"the edge has no {name!r}")
    _check_name(content["type"], "the type of an edge")
    check_session_id(content["from_session"])
    check_session_id(content["to_session"])
    for name in ("from_head", "to_head"):
        value = content[name]
        if not is_content_id(value) and not (name == "from_head" and value is None):
            raise InvalidInput(
                f"the {name} of the edge must be a head's id, got {repr(value)[:100]}"
            )
    return {**content, "id": content_id(encode(content))}


def _check_name(value: Any, what: str) -> None:
    if (
        type(value) is not str
        or len(value) > limits.PAYLOAD_KIND_CHARS_MAX
        or not _NAME.fullmatch(value)
    ):
        raise InvalidInput(
            f"{repr(value)[:100]} cannot be {what}",
            hint="It is a lower-case name with single hyphens, such as `turn-final`.",
        )


def head(reading: LogReader, head_id: str) -> Head:
    """Return a published head of a session that is not deleted."""
    parse_content_id(head_id)
    row = _find(reading, head_id)
    if row is None:
        raise NotFound(f"there is no head {head_id}")
    return row


def ancestors(reading: LogReader, head_id: str) -> list[str]:
    """Return the ancestors of a head, nearest first."""

    def before(current: str) -> Iterable[str]:
        row = _find(reading, current)
        basis = [] if row is None or row.basis is None else [row.basis]
        return (*basis, *reading.heads_joined(current, forward=False))

    return _walk(head(reading, head_id).id, before)


def descendants(reading: LogReader, head_id: str) -> list[str]:
    """Return the descendants of a head, nearest first."""

    def after(current: str) -> Iterable[str]:
        return (*reading.heads_on(current), *reading.heads_joined(current, forward=True))

    return _walk(head(reading, head_id).id, after)


def edges_of(reading: LogReader, sid: str, at: str | None = None) -> list[LineageEdge]:
    """Return the edges that begin or end at a session, whichever log contains them, each once.

    With `at`, those that were added at or before this time.
    """
    existing_at(reading, sid, at)
    return list(_edges(reading, sid, at))


def graph(
    reading: LogReader, sid: str, limit: int | None = None, at: str | None = None
) -> LineageGraph:
    """Return the heads of all sessions that are connected with one, and the edges between them.

    `limit` is the maximum of both together: those of the nearest sessions. With `at`, those that
    were published at or before this time.
    """
    existing_at(reading, sid, at)
    heads: list[Head] = []
    edges: dict[str, LineageEdge] = {}
    seen, waiting = {sid}, deque([sid])
    while waiting:
        current = waiting.popleft()
        rows_max = None if limit is None else limit + 1
        nearest: Iterator[LineageEdge | Head] = chain(
            _edges(reading, current, at), islice(_heads(reading, current, at), rows_max)
        )
        for item in nearest:
            if item.id in edges:
                continue
            if limit is not None and len(heads) + len(edges) >= limit:
                return LineageGraph(tuple(heads), tuple(edges.values()), complete=False)
            if isinstance(item, Head):
                heads.append(item)
                continue
            edges[item.id] = item
            for other in (item.from_session, item.to_session):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
    return LineageGraph(tuple(heads), tuple(edges.values()))


def _walk(start: str, step: Callable[[str], Iterable[str]]) -> list[str]:
    seen, waiting, ids = {start}, deque([start]), []
    while waiting:
        for next_id in step(waiting.popleft()):
            if next_id not in seen:
                seen.add(next_id)
                ids.append(next_id)
                waiting.append(next_id)
    return ids


def _find(reading: LogReader, head_id: str) -> Head | None:
    place = reading.head(head_id)
    if place is None:
        return None
    event = _event(reading, *place)
    return None if event is None else head_of(event.data["head"])


def _heads(reading: LogReader, sid: str, at: str | None) -> Iterator[Head]:
    row = reading.session(sid)
    if row is None or row.deleted_at is not None:
        return
    until = reading.last_event(row.key) if at is None else event_at(reading, row.key, at)
    first = 0
    while ids := reading.marks("heads", row.key, until, first, SESSION_PAGE_EVENTS):
        for event_id in ids:
            event = _event(reading, row.key, event_id)
            assert event is not None
            yield head_of(event.data["head"])
        first += len(ids)


def _edges(reading: LogReader, sid: str, at: str | None) -> Iterator[LineageEdge]:
    seen = set()
    for key, event_id in reading.edges_of_session(sid):
        event = _event(reading, key, event_id)
        if event is not None and (at is None or event.at <= at):
            edge = edge_of(event.data["edge"])
            if edge.id not in seen:
                seen.add(edge.id)
                yield edge


def _event(reading: LogReader, key: int, event_id: int) -> Event | None:
    """Return an event; None if its session is deleted."""
    row = reading.session_by_key(key)
    if row is None or row.deleted_at is not None:
        return None
    [event_row] = reading.events(key, event_id - 1, event_id, 1)
    return event_of(row.id, event_row)
