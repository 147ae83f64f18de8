"""Verification: one changed byte in the log, or in what is derived from it, is found and named.

One pass over each log, in bounded memory. The digests show which event is not what was appended;
what is derived (heads, edges, snapshots of the fold) is derived again and compared. The one thing
that nothing proves is the age of a payload, which is not part of the stored content.

The pass is divided into steps, each a short read transaction, so that the log of a database that is
written meanwhile can be restarted between them. Sessions and events that are written meanwhile are
not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from fourfold import limits
from fourfold.blobs import BlobStore
from fourfold.content import content_id, decode, encode, find_refs, parse_content_id
from fourfold.content.hashes import PREFIX
from fourfold.errors import ContentError, CorruptData, FourfoldError, NotFound
from fourfold.models.sessions.fold import FoldState, advance
from fourfold.models.sessions.log import DERIVED, OWNED, Log, LogAudit, SessionRow, seal_of
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
from fourfold.models.sessions.text_index import text_problems
from fourfold.models.sessions.writer import edge_row, head_row

VERIFY_STEP_BYTES: Final = 64 * limits.KIB
"""Approximate bytes that are verified in one read transaction."""
VERIFY_ROW_BYTES: Final = 600
"""Cost of a row in addition to its data, in bytes that are verified in the same time."""
VERIFY_OWNERS: Final = 256
"""Sessions that are looked up in one read transaction, to find rows that belong to none."""

OpenAudit = Callable[[], AbstractContextManager[LogAudit]]
HasPayload = Callable[[LogAudit, str], bool]
"""Returns True if a payload is stored and sound."""
_DERIVING: Final = frozenset({"head/published", "lineage/edge-added"})
"""Types of events that a head or an edge is derived from."""
_MARK: Final = b'"~ref"'
"""Part of every body that refers to a payload."""


def problems(log: Log, files: BlobStore | None) -> list[str]:
    """Return the problems of the log as messages."""
    return log.problems() + contents(log, files)


def contents(log: Log, files: BlobStore | None) -> list[str]:
    """Return the problems of the log without a check of the pages of the file."""
    messages: list[str] = []
    try:
        payloads: set[str] = set()
        messages += of_payloads(log.audit_step, files, payloads)

        def has_payload(audit: LogAudit, name: str) -> bool:
            return name in payloads or _is_sound(audit, files, name)

        damaged: set[Any] = set()
        for name, problem in of_sessions(log.audit_step, has_payload):
            messages.append(problem)
            damaged.add(_shown(name))
        messages += strays(log.audit_step)
        messages += of_index(log.audit_step)
        # What differs because the event itself is damaged was reported.
        messages += text_problems(log, files, lambda sid: repr(sid) in damaged)
    except FourfoldError as error:
        messages.append(error.message)
    return messages


def strays(open_audit: OpenAudit) -> Iterator[str]:
    """Yield problems of rows that belong to no session."""
    for what in OWNED:
        after: Any = float("-inf")
        while True:
            with open_audit() as audit:
                owners = audit.owners(what, after, VERIFY_OWNERS)
                for key, exists in owners:
                    if not exists:
                        for at in audit.ids(what, key):
                            yield f"{what} {at}: its session does not exist"
            if len(owners) < VERIFY_OWNERS:
                break
            after = owners[-1][0]


def of_index(open_audit: OpenAudit) -> Iterator[str]:
    """Yield problems of the index of sessions by update, status and kind."""
    after: Any = float("-inf")
    while True:
        with open_audit() as audit:
            rows = audit.indexed(after, VERIFY_OWNERS)
        for _, name, is_right in rows:
            if not is_right:
                yield f"session {_shown(name)}: its row of the index differs from its events"
        if len(rows) < VERIFY_OWNERS:
            return
        after = rows[-1][0]


class _StepBudget:
    """Work left of a step."""

    def __init__(self) -> None:
        self._left = VERIFY_STEP_BYTES

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def spend(self, data: Any = None) -> None:
        """Count a row with this data, which may be damaged."""
        self._left -= VERIFY_ROW_BYTES + (len(data) if isinstance(data, bytes) else 0)


def of_sessions(
    open_audit: OpenAudit, has_payload: HasPayload, after: int | None = None, until: Any = None
) -> Iterator[tuple[Any, str]]:
    """Yield the stored ids of sessions, and their problems.

    Args:
        after: Check sessions with larger keys only.
        until: The largest key; that of the newest session by default.
    """
    if until is None:
        with open_audit() as audit:
            until = audit.last_session()
    walk: _SessionWalk | None = None
    is_done = False
    while not is_done:
        with open_audit() as audit:
            budget = _StepBudget()
            if walk is not None and not walk.is_done:
                yield from walk.continue_step(audit, budget)
                if not walk.is_done:
                    continue
            for row in audit.sessions(after, until):
                after = row[0]
                walk = _SessionWalk(row, has_payload)
                yield from walk.continue_step(audit, budget)
                if budget.is_spent:
                    break
            else:
                is_done = True


class _SessionWalk:
    """The log of one session, from its first event to its last, and what was derived from it.

    Args:
        row: A row of `audit.sessions()`.
    """

    def __init__(self, row: tuple[Any, ...], has_payload: HasPayload) -> None:
        self._session = row
        self._key = row[0]
        self._has_payload = has_payload
        self.is_done = False
        self._after: int | None = None
        """Id of the last event of the steps before."""
        self._until: Any = None
        """Id of the newest event when the walk began."""
        self._sid = ""
        self._odd: dict[str, list[Any]] = {what: [] for what in DERIVED}
        self._rows: dict[str, _DerivedRows] = {}
        self._state: FoldState | None = FoldState()
        self._unfolded: list[Event] = []
        self._digest = b""
        self._position = 0
        self._expected = 1
        self._basis: str | None = None
        self._covered = 0

    def continue_step(self, audit: LogAudit, budget: _StepBudget) -> Iterator[tuple[Any, str]]:
        """Check the next events, until the budget is spent."""
        try:
            for problem in self._continue(audit, budget):
                yield self._session[1], problem
        except TypeError as error:
            # A damaged page can make a number of a text; columns of numbers are compared as such.
            self.is_done = True
            sentence = f"a row of it holds a value of another type: {error}"
            yield self._session[1], f"session {self._sid!r}: {sentence}"

    def _continue(self, audit: LogAudit, budget: _StepBudget) -> Iterator[str]:
        if self._after is None:
            yield from self._begin(audit, budget)
            if self.is_done:
                return
        for problem in self._events(audit, budget):
            yield f"session {self._sid!r}: {problem}"

    def _begin(self, audit: LogAudit, budget: _StepBudget) -> Iterator[str]:
        key, *fields, seal = self._session
        budget.spend()
        try:
            sid = _text(fields[0])
            sealed = seal_of(SessionRow(key, *map(_text, fields))) == seal
        except (UnicodeDecodeError, ContentError):
            sid, sealed = _shown(fields[0]), False
        if not sealed:
            yield f"session {_shown(fields[0])}: its row is not what was stored"
            if not isinstance(sid, str):
                self.is_done = True
                return
        self._sid = sid
        self._digest = first_digest(sid)
        self._until = audit.last_event(key)

    def _events(self, audit: LogAudit, budget: _StepBudget) -> Iterator[str]:
        before = self._after
        self._rows = {
            what: _DerivedRows(audit.derived(what, self._key, before), self._odd[what])
            for what in DERIVED
        }
        for raw in audit.events(self._key, before):
            event_id = raw[1]
            yield from self._event(audit, raw)
            budget.spend(raw[7])
            if event_id == self._until:
                break
            # A damaged id may have another place when it is searched for.
            if budget.is_spent and type(event_id) is int and (before is None or event_id > before):
                yield from self._fold()
                self._after = event_id
                return
        yield from self._fold()
        self.is_done = True
        # Events that were written since may have some.
        newest = audit.last_event(self._key)
        for what, odd in self._odd.items():
            later = (row[0] for row in audit.derived(what, self._key, newest))
            for at in (*odd, *later):
                yield f"{what} at event {at} has no event"

    def _event(self, audit: LogAudit, raw: tuple[Any, ...]) -> Iterator[str]:
        position, event_id = raw[:2]
        name = f"event {event_id}"
        if event_id != self._expected:
            yield f"expected event {self._expected}, found {name}"
        if position <= self._position:
            yield f"{name} has position {position}, expected one after {self._position}"
        self._expected, self._position = event_id + 1, position
        row, problem = self._row(raw)
        if row is None:
            yield from self._fold()
            self._digest, self._state = raw[8], None
            yield f"{name} is not what was appended: {problem}"
            return
        event = event_of(self._sid, row)
        try:
            data = event.data
        except (FourfoldError, KeyError, TypeError) as error:
            yield from self._fold()
            self._state = None
            yield f"{name} cannot be read: {error}"
            return
        if _MARK in raw[7]:
            for ref in find_refs(data):
                if not self._has_payload(audit, ref.id):
                    yield f"{name} refers to payload {ref.id}, which is missing or damaged"
        if self._state is not None:
            self._unfolded.append(event)
        yield from self._snapshots(event)
        yield from self._derived(audit, event)

    def _row(self, raw: tuple[Any, ...]) -> tuple[StoredEvent | None, str]:
        """Return the row if its digest is right, or else the problem."""
        position, event_id, kind, at, entity, entity_id, key, body, stored, _ = raw
        try:
            row = StoredEvent(
                position,
                event_id,
                _text(kind),
                _text(at),
                _text(entity),
                _text(entity_id),
                _text(key),
                _text(body),
                stored,
            )
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

    def _fold(self) -> Iterator[str]:
        """Fold the events since the last call."""
        events, self._unfolded = self._unfolded, []
        if self._state is None:
            # Nothing that follows a damaged event can be folded.
            return
        try:
            self._state = advance(self._state, *events)
        except FourfoldError:
            yield from self._fold_one_by_one(events)

    def _fold_one_by_one(self, events: list[Event]) -> Iterator[str]:
        """Fold events one by one, to find the one that cannot be folded."""
        assert self._state is not None
        for event in events:
            try:
                self._state = advance(self._state, event)
            except FourfoldError as error:
                self._state = None
                yield f"event {event.id} cannot be folded: {error.message}"
                return

    def _snapshots(self, event: Event) -> Iterator[str]:
        for row in self._rows["snapshot"].take(event.id):
            yield from self._fold()
            if self._state is not None and row[0] != state_text(self._state).encode():
                yield f"the snapshot at event {event.id} is not the fold of the events"

    def _derived(self, audit: LogAudit, event: Event) -> Iterator[str]:
        event_id = event.id
        heads, edges = self._rows["head"].take(event_id), self._rows["edge"].take(event_id)
        if not heads and not edges and event.type not in _DERIVING:
            return
        wanted_heads: list[tuple[Any, ...]] = []
        wanted_edges: list[tuple[Any, ...]] = []
        try:
            if event.type == "head/published":
                head = head_of(event.data["head"])
                wanted_heads = [tuple(map(_bytes, head_row(event, head)))]
                yield from self._head(audit, event)
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

    def _head(self, audit: LogAudit, event: Event) -> Iterator[str]:
        head = head_of(event.data["head"])
        first, last = head.event_range
        if content_id(encode(head.content())) != head.id:
            yield f"event {event.id}: the id of its head is not that of its content"
        if head.basis != self._basis or first != self._covered + 1:
            yield f"event {event.id}: its head does not follow the one before it"
        # It was proved when the walk came by.
        covered_digest = audit.digest(self._key, last) if last < event.id else None
        if covered_digest is None or head.events_digest != f"{PREFIX}{covered_digest.hex()}":
            yield f"event {event.id}: its head does not cover the events {first} to {last}"
        self._basis, self._covered = head.id, last


class _DerivedRows:
    """Derived rows in the order of their events, consumed as the events are read.

    Args:
        odd: Receives the ids of events that were passed by without being read.
    """

    def __init__(self, rows: Iterator[tuple[Any, ...]], odd: list[Any]) -> None:
        self._rows = rows
        self._next = next(rows, None)
        self._odd = odd

    def take(self, event_id: int) -> list[tuple[Any, ...]]:
        """Return the rows of an event, without its id."""
        rows: list[tuple[Any, ...]] = []
        while self._next is not None and self._next[0] <= event_id:
            if self._next[0] == event_id:
                rows.append(self._next[1:])
            else:
                self._odd.append(self._next[0])
            self._next = next(self._rows, None)
        return rows


def of_payloads(open_audit: OpenAudit, files: BlobStore | None, known: set[str]) -> Iterator[str]:
    """Prove the bytes of every payload; the ids of the sound ones are added to `known`."""
    refers: dict[str, list[str]] = {}
    after: bytes | None = None
    is_done = False
    while not is_done:
        before = after
        with open_audit() as audit:
            budget = _StepBudget()
            for row in audit.payloads(before):
                yield from _of_payload(row, files, known, refers)
                digest = row[0]
                budget.spend(row[3])
                if budget.is_spent and isinstance(digest, bytes) and digest > (before or b""):
                    after = digest
                    break
            else:
                is_done = True
    for name, inner in refers.items():
        for inner_ref in inner:
            if inner_ref not in known and not _is_stored(open_audit, files, inner_ref):
                yield f"payload {name} refers to payload {inner_ref}, which is missing or damaged"


def _of_payload(
    row: tuple[Any, ...], files: BlobStore | None, known: set[str], refers: dict[str, list[str]]
) -> Iterator[str]:
    digest, size, _, data = row
    name = f"{PREFIX}{digest.hex()}" if isinstance(digest, bytes) else repr(digest)
    try:
        content = data if data is not None else _file(files, name)
    except FourfoldError as error:
        yield f"payload {name}: {error.message}"
        return
    if not isinstance(content, bytes) or content_id(content) != name or len(content) != size:
        yield f"payload {name}: its bytes are not the ones that it names"
        return
    known.add(name)
    if _MARK in content:
        try:
            refers[name] = [ref.id for ref in find_refs(decode(content))]
        except ContentError as error:
            yield f"payload {name}: is not canonical content: {error.message}"


def _is_stored(open_audit: OpenAudit, files: BlobStore | None, name: str) -> bool:
    with open_audit() as audit:
        return _is_sound(audit, files, name)


def _is_sound(audit: LogAudit, files: BlobStore | None, name: str) -> bool:
    """Return True if a payload is stored, and its bytes are right: it may be newer than a pass."""
    row = audit.payload(bytes.fromhex(parse_content_id(name)))
    return row is not None and not list(_of_payload(row, files, set(), {}))


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
