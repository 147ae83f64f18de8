"""Bundles: a session and its descendants, as self-verifying lines of JSON.

    {"kind": "bundle", "version": 1, "session": "research"}
    {"kind": "session", "id": ..., "created_at": ..., "events": 12}
    {"kind": "event", "id": 1, "type": ..., "at": ..., "entity_id": ..., "key": ..., "body": ..., "digest": ...}
    {"kind": "payload", "id": "sha256:...", "data": ...}
    {"kind": "end", "sessions": 1, "events": 12, "payloads": 3, "sha256": ...}

`body` and `data` are canonical text. Every digest is worked out again before anything is written:
of each event over those before it, of each head, edge and payload, and of the whole file. The
import keeps ids, times and keys, so heads and edges have the same names in every store. It writes
in pages, so that others write in between.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold import limits
from fourfold.content import InternedPayload, PayloadRef, content_id, decode, encode, find_refs
from fourfold.errors import AlreadyExists, ContentError, FourfoldError, InvalidInput, NotFound
from fourfold.kernel.pauses import Pauses
from fourfold.models.sessions import heads, payloads, writer
from fourfold.models.sessions.fold import HELD, MINTING, FoldState
from fourfold.models.sessions.log import LogReader, LogWriter, SessionRow
from fourfold.models.sessions.reader import Slot, Slots, existing
from fourfold.models.sessions.records import ENTITY_OF, BundleReport, Event
from fourfold.models.sessions.request import EventDraft, check_key, check_session_id, check_type
from fourfold.models.sessions.stamps import EventBatch, stamp

if TYPE_CHECKING:
    from fourfold.models.sessions.sessions import Sessions

Stamped = tuple[EventBatch, FoldState]
Includes = Callable[[str], bool]
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_MARK = '"~ref"'
_BATCH_BYTES = limits.MIB
IMPORT_PAGE_EVENTS: Final = 200
"""Events after which a transaction of an import ends, at the next event of another time."""
IMPORT_PAGE_EVENTS_MAX: Final = 1_000
"""Events of a transaction of an import, even if all of them have the same time."""


def subtree(sessions: Sessions, sid: str, includes: Includes) -> list[str]:
    """Return a session and all that edges lead to from it, nearest first, if `includes` agrees."""
    ids = [sessions.open_session(sid).id]
    with sessions.log.read() as reading:
        for session_id in ids:
            for edge in heads.edges_of(reading, session_id):
                row = reading.session(edge.to_session)
                alive = row is not None and row.deleted_at is None
                is_next = edge.from_session == session_id and includes(edge.to_session)
                if is_next and alive and edge.to_session not in ids:
                    ids.append(edge.to_session)
    return ids


def session_ids(path: Path) -> set[str]:
    """Return the ids of the sessions in a bundle, which may be invalid in any other way."""
    documents = [document for _, document in _read(path) if document["kind"] == "session"]
    return {document["id"] for document in documents if isinstance(document.get("id"), str)}


def lines(sessions: Sessions, sid: str, includes: Includes = lambda _: True) -> Iterator[bytes]:
    """Yield the bundle of a session, line by line.

    Args:
        includes: Returns False for sessions that the bundle shall not have.
    """
    whole = hashlib.sha256()
    counts = {"sessions": 0, "events": 0, "payloads": 0}
    names = {"session": "sessions", "event": "events", "payload": "payloads"}
    for document in Pauses.for_process().between(_documents(sessions, sid, includes)):
        line = _line(document)
        whole.update(line)
        if document["kind"] in names:
            counts[names[document["kind"]]] += 1
        yield line
    yield _line({"kind": "end", **counts, "sha256": whole.hexdigest()})


def _documents(sessions: Sessions, sid: str, includes: Includes) -> Iterator[dict[str, Any]]:
    yield {"kind": "bundle", "version": 1, "session": sid}
    refs: set[str] = set()
    for session_id in subtree(sessions, sid, includes):
        with sessions.log.read() as reading:
            row = existing(reading, session_id)
            last = reading.last_event(row.key)
        yield {"kind": "session", "id": session_id, "created_at": row.created_at, "events": last}
        after = 0
        while after < last:
            with sessions.log.read() as reading:
                page = reading.events(row.key, after, last, limits.SESSION_PAGE_EVENTS)
            for event in page:
                if _MARK in event.body:
                    refs.update(ref.id for ref in find_refs(decode(event.body.encode())))
                yield {
                    "kind": "event",
                    "id": event.event_id,
                    "type": event.type,
                    "at": event.at,
                    "entity_id": event.entity_id,
                    "key": event.request_key,
                    "body": event.body,
                    "digest": event.digest.hex(),
                }
            after = page[-1].event_id
    for name, data in payloads.closure(sessions.log, sessions.files, refs):
        yield {"kind": "payload", "id": name, "data": data.decode()}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def import_bundle(sessions: Sessions, slots: Slots, path: Path, now: int) -> BundleReport:
    """Import the missing events of a bundle, after checking all of it.

    Each page of events is a transaction. An import that is killed leaves states that the sessions
    had at an earlier event, and the next import of the bundle continues there.
    """
    if not path.exists():
        raise NotFound(f"{path}: there is no such file")
    if not path.is_file():
        raise InvalidInput(f"{path}: a bundle must be a file")
    with sessions.log.read() as reading:
        check = _BundleCheck(reading)
        done = check.run(path)
    waiting: list[InternedPayload] = []
    for number, document in _read(path):
        if document["kind"] == "payload":
            waiting.append(_payload(document, number))
        if waiting and (sum(payload.ref.size for payload in waiting) > _BATCH_BYTES):
            _store(sessions, waiting, now)
            waiting = []
    _store(sessions, waiting, now)
    for page in _pages(path, check.stored):
        work = partial(_write_page, slots=slots, page=page)
        with sessions.log.paced():
            sessions.log.transact_alone(work)
    return done


def _store(sessions: Sessions, batch: list[InternedPayload], now: int) -> None:
    payloads.write_files(batch, sessions.files)

    def work(writing: LogWriter) -> None:
        for payload in batch:
            writer.put_payload(writing, payload, now, sessions.files)

    if batch:
        sessions.log.transact_alone(work)


class _SessionPart(NamedTuple):
    """Consecutive events of a session in one page of an import."""

    sid: str
    created_at: str
    events: list[dict[str, Any]]


def _pages(path: Path, stored: Mapping[str, int]) -> Iterator[list[_SessionPart]]:
    """Yield the sessions and events that the store lacks, in pages.

    Events of one request have the same time, and the head of a turn follows its end directly. A
    page ends between two times and not before a head, unless it becomes too large.
    """
    page: list[_SessionPart] = []
    sid = created_at = time = ""
    events = size = 0
    for _, document in _read(path):
        kind = document["kind"]
        if kind == "session":
            sid, created_at, time = document["id"], document["created_at"], ""
            if sid not in stored:
                page.append(_SessionPart(sid, created_at, []))
        elif kind == "event" and document["id"] > stored.get(sid, 0):
            is_full = events >= IMPORT_PAGE_EVENTS or size >= _BATCH_BYTES
            may_end = document["at"] != time and document["type"] != "head/published"
            if (is_full and may_end) or events >= IMPORT_PAGE_EVENTS_MAX:
                yield page
                page, events, size = [], 0, 0
            if not page or page[-1].sid != sid:
                page.append(_SessionPart(sid, created_at, []))
            page[-1].events.append(document)
            time = document["at"]
            events += 1
            size += len(document["body"])
    if page:
        yield page


def _write_page(writing: LogWriter, *, slots: Slots, page: list[_SessionPart]) -> None:
    """Write a page, except what another import or request wrote since the check."""
    for part in page:
        if writing.session(part.sid) is None:
            key = writing.insert_session(part.sid, part.created_at)
            slot = Slot(SessionRow(key, part.sid, part.created_at), FoldState(), 0)
            slots.move(writing, part.sid, slot)
        else:
            slot = slots.inside(writing, part.sid)
        _check_same(writing, slot, part.events)
        last = slot.state.counters.event
        for document in (event for event in part.events if event["id"] > last):
            stamped = _stamped(part.sid, slot.state, document, slots.position(writing) + 1)
            if stamped[0].digests[0].hex() != document["digest"]:
                raise _another_history(part.sid)
            slot = writer.keep(writing, slots, slot, *stamped)


def _check_same(writing: LogWriter, slot: Slot, events: list[dict[str, Any]]) -> None:
    """Raise unless the newest of the events that the store has by now is the same there."""
    last = slot.state.counters.event
    known = [document for document in events if document["id"] <= last]
    if known:
        number = known[-1]["id"]
        [stored] = writing.events(slot.row.key, number - 1, number, 1)
        if stored.digest.hex() != known[-1]["digest"]:
            raise _another_history(slot.row.id)


def _stamped(sid: str, state: FoldState, document: dict[str, Any], position: int) -> Stamped:
    return stamp(
        sid,
        state,
        [_draft(document)],
        at=document["at"],
        position=position,
        key=document["key"],
    )


def _draft(document: dict[str, Any]) -> EventDraft:
    kind = document["type"]
    replaces = kind in ENTITY_OF and kind not in MINTING
    return EventDraft(kind, document["body"], document["entity_id"] if replaces else None)


class _KnownSessions(NamedTuple):
    """Part of a session that the store already has."""

    row: SessionRow | None
    last: int


class _BundleCheck:
    """One walk over a bundle that believes nothing."""

    def __init__(self, reading: LogReader) -> None:
        self._reading = reading
        self._sids: set[str] = set()
        self._payloads: dict[str, int] = {}
        self._refs: set[PayloadRef] = set()
        self._events = 0
        self._left = 0
        self._sid = ""
        self._state = FoldState()
        self._digests: dict[int, bytes] = {}
        self._known = _KnownSessions(None, 0)
        self.stored: dict[str, int] = {}
        """Newest events of those sessions of the bundle that the store has."""

    def run(self, path: Path) -> BundleReport:
        for number, document in _read(path, check=True):
            try:
                self._take(document, number)
            except AlreadyExists:
                raise
            except FourfoldError as error:
                raise InvalidInput(f"line {number} of {path}: {error.message}") from error
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise InvalidInput(f"line {number} of {path} is not a line of a bundle") from error
        self._finish_session()
        for ref in sorted(self._refs):
            if self._payloads.get(ref.id) != ref.size:
                writer.check_ref(self._reading, ref)
        return BundleReport(len(self._sids), self._events, len(self._payloads))

    def _take(self, document: dict[str, Any], number: int) -> None:
        kind = document["kind"]
        if kind == "session":
            self._begin_session(document)
        elif kind == "event":
            self._event(document)
        elif kind == "payload":
            payload = _payload(document, number)
            self._payloads[payload.ref.id] = payload.ref.size
            if _MARK in document["data"]:
                self._refs.update(find_refs(decode(payload.data)))
        else:
            counts = (len(self._sids), self._events, len(self._payloads))
            if counts != (document["sessions"], document["events"], document["payloads"]):
                raise InvalidInput("the counts of the last line do not match the bundle")

    def _begin_session(self, document: dict[str, Any]) -> None:
        self._finish_session()
        sid = check_session_id(document["id"])
        if sid in self._sids:
            raise InvalidInput(f"duplicate session {sid!r} in the bundle")
        if not _is_time(document["created_at"]):
            raise InvalidInput(f"session {sid!r}: created_at must be a timestamp")
        self._sids.add(sid)
        row = self._reading.session(sid)
        if row is not None and row.deleted_at is not None:
            raise AlreadyExists(f"session {sid!r} was deleted here; its id is used up")
        last = 0 if row is None else self._reading.last_event(row.key)
        self._known = _KnownSessions(row, last)
        if row is not None:
            self.stored[sid] = last
        self._sid, self._state, self._digests = sid, FoldState(), {}
        self._left = document["events"]

    def _finish_session(self) -> None:
        if self._left:
            raise InvalidInput(f"{self._left} events of session {self._sid!r} are missing")

    def _event(self, document: dict[str, Any]) -> None:
        kind, body = document["type"], document["body"]
        check_type(kind)
        check_key(document["key"])
        data = decode(body.encode())
        if encode(data).decode() != body or not _is_time(document["at"]):
            raise InvalidInput("the event is not in canonical form")
        if type(data) is not dict or any(name not in data for name in HELD.get(kind, ())):
            raise InvalidInput(f"the {kind} event does not carry what it must")
        before = self._state
        [event], self._state = _stamped(self._sid, before, document, 1)
        place = (event.id, event.entity_id, event.digest.hex())
        if place != (document["id"], document["entity_id"], document["digest"]):
            raise InvalidInput(f"event {document['id']} does not match its digest")
        self._digests[event.id] = event.digest
        if kind == "head/published":
            self._head(before, event)
        elif kind == "lineage/edge-added":
            _check_name(event.data["edge"], "edge")
        if _MARK in body:
            self._refs.update(find_refs(data))
        self._compare(event)
        self._left -= 1
        self._events += 1

    def _head(self, before: FoldState, event: Event) -> None:
        head = event.data["head"]
        _check_name(head, "head")
        first, last = head["event_range"]
        digest = self._digests.get(last)
        placed = (before.covered + 1, before.current_head, self._sid)
        if digest is None or f"sha256:{digest.hex()}" != head["events_digest"]:
            raise InvalidInput(f"head {head['id']} does not cover the events in its range")
        if (first, head["basis"], head["session"]) != placed or not first <= last < event.id:
            raise InvalidInput(f"head {head['id']} does not follow the one before it")
        self._digests = {
            at: event_digest for at, event_digest in self._digests.items() if at > last
        }

    def _compare(self, event: Event) -> None:
        """Raise unless the log of the store and that of the bundle agree as far as both go."""
        row, last = self._known
        if row is None or event.id > last:
            return
        if event.id == last or self._left == 1:
            [stored] = self._reading.events(row.key, event.id - 1, event.id, 1)
            if stored.digest != event.digest:
                raise _another_history(self._sid)


def _is_time(text: str) -> bool:
    """Return True for a time as events have it; raise ValueError for a day that does not exist."""
    return _AT.fullmatch(text) is not None and bool(datetime.fromisoformat(text))


def _another_history(sid: str) -> AlreadyExists:
    return AlreadyExists(
        f"session {sid!r} exists here with another history",
        hint="Import the bundle into another store.",
    )


def _check_name(content: dict[str, Any], what: str) -> None:
    rest = {name: value for name, value in content.items() if name != "id"}
    if content_id(encode(rest)) != content["id"]:
        raise InvalidInput(f"the {what} {content['id']} does not match its id")


def _payload(document: dict[str, Any], number: int) -> InternedPayload:
    data = document["data"].encode()
    if content_id(data) != document["id"]:
        raise InvalidInput(f"payload {document['id']} in line {number} is not what its id names")
    try:
        decode(data)
    except ContentError as error:
        raise InvalidInput(f"payload {document['id']} is not canonical content") from error
    return InternedPayload(PayloadRef(document["id"], "message", len(data)), data)


def _read(path: Path, *, check: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines after the first; the last one, a digest of the others, is only checked."""
    whole = hashlib.sha256()
    ended = False
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(Pauses.for_process().between(file), start=1):
            document = _parsed(line, number)
            if ended or (number == 1) != (document["kind"] == "bundle"):
                raise InvalidInput(f"line {number} of {path} is out of place")
            if number == 1 and document.get("version") != 1:
                raise InvalidInput(
                    f"{path} has version {document.get('version')!r}; this Fourfold reads 1",
                    hint="Upgrade: `pip install --upgrade fourfold`.",
                )
            if document["kind"] == "end":
                ended = True
                if check and document.get("sha256") != whole.hexdigest():
                    raise InvalidInput(f"{path} was changed since it was written")
            whole.update(line)
            if document["kind"] not in {"bundle", "end"} or (check and ended):
                yield number, document
    if not ended:
        raise InvalidInput(f"{path} ends after {number} lines, before its last one")


def _parsed(line: bytes, number: int) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"line {number} is not JSON: {error}") from error
    kinds = {"bundle", "session", "event", "payload", "end"}
    if type(document) is not dict or not any(document.get("kind") == kind for kind in kinds):
        raise InvalidInput(f"line {number} is not a line of a bundle of sessions")
    return document
