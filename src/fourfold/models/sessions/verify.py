"""Verification: one changed byte in the log, or in what is derived from it, is found and named.

One pass over each log, in bounded memory. The digests show which event is not what was appended;
what is derived (heads, edges, snapshots of the fold) is derived again and compared. The one thing
that nothing proves is the age of a payload, which is not part of the stored content.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

from fourfold.blobs import BlobStore
from fourfold.content import content_id, decode, encode, find_refs, parse_content_id
from fourfold.content.hashes import PREFIX
from fourfold.errors import ContentError, CorruptData, FourfoldError, NotFound
from fourfold.models.sessions.fold import FoldState, advance
from fourfold.models.sessions.log import Log, LogAudit, SessionRow, seal_of
from fourfold.models.sessions.records import Event, edge_of, head_of
from fourfold.models.sessions.stamps import (
    StoredEvent,
    entity_code,
    event_of,
    first_digest,
    header_of,
    next_digest,
    position_check,
    state_text,
)
from fourfold.models.sessions.writer import edge_row, head_row


def problems(log: Log, files: BlobStore | None) -> list[str]:
    """Return the problems of the log as messages."""
    return log.problems() + contents(log, files)


def contents(log: Log, files: BlobStore | None) -> list[str]:
    """Return the problems of the log without a check of the pages of the file."""
    messages: list[str] = []
    try:
        with log.audit() as audit:
            payloads: set[str] = set()
            messages += of_payloads(audit, files, payloads)
            for row in audit.sessions():
                messages += of_session(audit, row, payloads)
            messages += strays(audit)
    except FourfoldError as error:
        messages.append(error.message)
    return messages


def strays(audit: LogAudit) -> Iterator[str]:
    """Yield problems of rows that belong to no session."""
    for what, at in audit.strays():
        yield f"{what} {at}: its session does not exist"


def of_session(audit: LogAudit, row: tuple[Any, ...], payloads: Container[str]) -> Iterator[str]:
    """Yield the problems of a session, a row of `audit.sessions()`.

    A reference must lead to one of `payloads`.
    """
    key, *fields, seal = row
    try:
        sid = _text(fields[0])
        sealed = seal_of(SessionRow(key, *map(_text, fields))) == seal
    except (UnicodeDecodeError, ContentError):
        sid, sealed = _shown(fields[0]), False
    if not sealed:
        yield f"session {_shown(fields[0])}: its row is not what was stored"
        if not isinstance(sid, str):
            return
    try:
        yield from _SessionWalk(audit, key, sid, payloads).problems()
    except TypeError as error:
        # A damaged page can make a number of a text; columns of numbers are compared as such.
        yield f"session {sid!r}: a row of it holds a value of another type: {error}"


class _SessionWalk:
    """The log of one session, from its first event to its last, and what was derived from it."""

    def __init__(self, audit: LogAudit, key: int, sid: str, payloads: Container[str]) -> None:
        self._audit = audit
        self._key = key
        self._sid = sid
        self._payloads = payloads
        self._snapshots = _DerivedRows(audit.snapshots(key), lambda row: row[0])
        self._heads = _DerivedRows(audit.heads(key), lambda row: row[1])
        self._edges = _DerivedRows(audit.edges(key), lambda row: row[1])
        self._state: FoldState | None = FoldState()
        self._digest = first_digest(sid)
        self._position = 0
        self._expected = 1
        self._basis: str | None = None
        self._covered = 0

    def problems(self) -> Iterator[str]:
        for raw in self._audit.events(self._key):
            for problem in self._event(raw):
                yield f"session {self._sid!r}: {problem}"
        for what, left in (
            ("snapshot", self._snapshots),
            ("head", self._heads),
            ("edge", self._edges),
        ):
            for at in left.rest():
                yield f"session {self._sid!r}: {what} at event {at} has no event"

    def _event(self, raw: tuple[Any, ...]) -> Iterator[str]:
        position, event_id = raw[:2]
        name = f"event {event_id}"
        if event_id != self._expected:
            yield f"expected event {self._expected}, found {name}"
        if position <= self._position:
            yield f"{name} has position {position}, expected one after {self._position}"
        self._expected, self._position = event_id + 1, position
        row, problem = self._row(raw)
        if row is None:
            self._digest, self._state = raw[8], None
            yield f"{name} is not what was appended: {problem}"
            return
        event = event_of(self._sid, row)
        try:
            data = event.data
        except (FourfoldError, KeyError, TypeError) as error:
            self._state = None
            yield f"{name} cannot be read: {error}"
            return
        for ref in find_refs(data):
            if ref.id not in self._payloads:
                yield f"{name} refers to payload {ref.id}, which is missing or damaged"
        yield from self._fold(event)
        yield from self._derived(event)

    def _row(self, raw: tuple[Any, ...]) -> tuple[StoredEvent | None, str]:
        """Return the row if its digest is right, or else the problem."""
        try:
            row = StoredEvent._make((*map(_text, raw[:8]), raw[8]))
        except UnicodeDecodeError:
            return None, "it is not valid text"
        try:
            header = header_of(row.event_id, row.type, row.at, row.entity_id, row.request_key)
            digest = next_digest(self._digest, header, row.body)
        except (ContentError, TypeError, AttributeError):
            return None, "its row is malformed"
        if digest != row.digest:
            return None, "its digest does not follow"
        self._digest = digest
        if row.entity != entity_code(row.type):
            return None, f"its entity is {row.entity!r}"
        if raw[9] != position_check(row):
            return None, f"its position is not {row.position}"
        return row, ""

    def _fold(self, event: Event) -> Iterator[str]:
        if self._state is None:
            # Nothing that follows a damaged event can be folded.
            self._snapshots.take(event.id)
            return
        try:
            self._state = advance(self._state, event)
        except FourfoldError as error:
            self._state = None
            yield f"event {event.id} cannot be folded: {error.message}"
            return
        for row in self._snapshots.take(event.id):
            if row[1] != state_text(self._state).encode():
                yield f"the snapshot at event {event.id} is not the fold of the events"

    def _derived(self, event: Event) -> Iterator[str]:
        heads, edges = self._heads.take(event.id), self._edges.take(event.id)
        wanted_heads: list[tuple[Any, ...]] = []
        wanted_edges: list[tuple[Any, ...]] = []
        try:
            if event.type == "head/published":
                head = head_of(event.data["head"])
                wanted_heads = [tuple(map(_bytes, head_row(event, head)))]
                yield from self._head(event)
            elif event.type == "lineage/edge-added":
                edge = edge_of(event.data["edge"])
                wanted_edges = [tuple(map(_bytes, edge_row(event, edge)))]
                if content_id(encode(edge.content())) != edge.id:
                    yield f"event {event.id}: the id of its edge is not that of its content"
        except (KeyError, TypeError) as error:
            yield f"event {event.id} holds no sound {event.type}: {error}"
            return
        if heads != wanted_heads:
            yield f"the row of the head at event {event.id} differs from the event"
        if edges != wanted_edges:
            yield f"the row of the edge at event {event.id} differs from the event"

    def _head(self, event: Event) -> Iterator[str]:
        head = head_of(event.data["head"])
        first, last = head.event_range
        if content_id(encode(head.content())) != head.id:
            yield f"event {event.id}: the id of its head is not that of its content"
        if head.basis != self._basis or first != self._covered + 1:
            yield f"event {event.id}: its head does not follow the one before it"
        # It was proved when the walk came by.
        covered_digest = self._audit.digest(self._key, last) if last < event.id else None
        if covered_digest is None or head.events_digest != f"{PREFIX}{covered_digest.hex()}":
            yield f"event {event.id}: its head does not cover the events {first} to {last}"
        self._basis, self._covered = head.id, last


class _DerivedRows:
    """Derived rows in the order of their events, consumed as the events are read."""

    def __init__(
        self, rows: Iterator[tuple[Any, ...]], at: Callable[[tuple[Any, ...]], int]
    ) -> None:
        self._rows = rows
        self._at = at
        self._next = next(rows, None)
        self._odd: list[Any] = []

    def take(self, event_id: int) -> list[tuple[Any, ...]]:
        rows = []
        while self._next is not None and self._at(self._next) <= event_id:
            if self._at(self._next) == event_id:
                rows.append(self._next)
            else:
                self._odd.append(self._at(self._next))
            self._next = next(self._rows, None)
        return rows

    def rest(self) -> Iterator[Any]:
        yield from self._odd
        while self._next is not None:
            yield self._at(self._next)
            self._next = next(self._rows, None)


def of_payloads(audit: LogAudit, files: BlobStore | None, known: set[str]) -> Iterator[str]:
    """Prove the bytes of every payload; the ids of the sound ones are added to `known`."""
    refers: dict[str, list[str]] = {}
    for digest, size, _, data in audit.payloads():
        name = f"{PREFIX}{digest.hex()}" if isinstance(digest, bytes) else repr(digest)
        try:
            content = data if data is not None else _file(files, name)
        except FourfoldError as error:
            yield f"payload {name}: {error.message}"
            continue
        if not isinstance(content, bytes) or content_id(content) != name or len(content) != size:
            yield f"payload {name}: its bytes are not the ones that it names"
            continue
        known.add(name)
        if b'"~ref"' in content:
            try:
                refers[name] = [ref.id for ref in find_refs(decode(content))]
            except ContentError as error:
                yield f"payload {name}: is not canonical content: {error.message}"
    for name, inner in refers.items():
        for inner_ref in inner:
            if inner_ref not in known:
                yield f"payload {name} refers to payload {inner_ref}, which is missing or damaged"


def _file(files: BlobStore | None, name: str) -> bytes:
    parse_content_id(name)
    if files is None:
        raise NotFound("its file is missing")
    try:
        return files.get(name)
    except NotFound:
        raise NotFound("its file is missing") from None
    except CorruptData:
        raise CorruptData("its file is damaged") from None


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _shown(name: Any) -> str:
    return repr(name.decode(errors="backslashreplace") if isinstance(name, bytes) else name)
