"""Search over what sessions say: messages, calls, summaries, errors and ends of turns.

    page = sessions.search('refund "order 4711" pay* -test')
    page.items[0].session, page.items[0].event, page.items[0].text

A hit is one event. At a point of the past, the hits are events that had been appended by then.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.blobs import BlobStore
from fourfold.content import encode
from fourfold.content.text import TextQuery, parse_text_query
from fourfold.errors import Busy, InvalidInput
from fourfold.models.sessions.hits import (
    SessionHit,
    SessionHitKind,
    SessionHitOrder,
    SessionHitPage,
)
from fourfold.models.sessions.log import EVENT_MAX, Log, LogReader, TextHitsQuery, session_word
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import Event
from fourfold.models.sessions.request import At, check_count, check_session_id, check_time
from fourfold.models.sessions.stamps import StoredEvent, event_of
from fourfold.models.sessions.text_index import THREAD_TYPES, EventText, read_text
from fourfold.tabular import Rows

if TYPE_CHECKING:
    from fourfold.models.sessions.sessions import Sessions

SESSION_HITS_MAX: Final = 1_000
"""Hits of one page."""
SESSION_HITS_OFFSET_MAX: Final = 100_000
"""Hits before those of a page."""
SESSION_SCAN_EVENTS_MAX: Final = 100_000
"""Events that are not in the index and that a search reads, if it cannot index them."""
_TYPES: Final[dict[SessionHitKind, tuple[str, ...]]] = {
    "message": ("message/appended", *THREAD_TYPES),
    "call": ("eval/added",),
    "turn": ("turn/put",),
    "summary": ("session/compacted",),
    "error": ("session/error",),
}
HIT_KINDS: Final[tuple[SessionHitKind, ...]] = tuple(_TYPES)
_TIME_MAX: Final = "~"
_ID_MAX: Final = "~"
"""Texts after all times and all ids of sessions."""


class SessionSearch(NamedTuple):
    """A search, checked."""

    text: TextQuery
    sid: str | None
    prefix: str
    at: At
    types: tuple[str, ...]
    order: SessionHitOrder

    @property
    def digest(self) -> str:
        """Identifies the search in its cursors."""
        parts = [self.text.match_expression(), self.sid, self.prefix, str(self.at)]
        text = encode([*parts, *self.types, self.order])
        return hashlib.sha256(text).hexdigest()[:16]


class SessionSearchCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Start of a page: so many hits after the first, among the events up to a position."""

    search: str
    until: Annotated[int, msgspec.Meta(ge=0, le=EVENT_MAX)]
    indexed: Annotated[int, msgspec.Meta(ge=0, le=EVENT_MAX)]
    """Position until which the first page used the index."""
    offset: Annotated[int, msgspec.Meta(ge=0, le=SESSION_HITS_OFFSET_MAX)]

    def format(self) -> str:
        """Return the cursor as `next` of a page has it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def check_search(
    query: str,
    *,
    sid: str | None,
    prefix: str,
    at: At,
    kinds: Sequence[SessionHitKind] | None,
    order: SessionHitOrder,
) -> SessionSearch:
    """Return a search; raise InvalidInput for arguments that are not valid."""
    text = parse_text_query(query)
    for name in (sid, prefix):
        if name:
            check_session_id(name)
    if sid is not None and prefix:
        raise InvalidInput("pass `sid` or `prefix`, not both")
    if sid is None and at is not None and not isinstance(at, datetime):
        raise InvalidInput(
            f"at must be a time for a search of several sessions, got {at!r:.100}",
            hint="Event ids and heads belong to one session: pass it as `sid`.",
        )
    if order not in {"score", "newest"}:
        raise InvalidInput(f"order must be 'score' or 'newest', got {order!r:.100}")
    chosen = HIT_KINDS if kinds is None else tuple(kinds)
    if isinstance(kinds, str) or not chosen or not set(chosen) <= set(HIT_KINDS):
        raise InvalidInput(f"kinds must be some of {', '.join(HIT_KINDS)}, got {kinds!r:.100}")
    types = tuple(kind for name in HIT_KINDS if name in chosen for kind in _TYPES[name])
    return SessionSearch(text, sid, prefix, at, types, order)


def check_page(
    sessions: Sessions, request: SessionSearch, limit: int, after: str | None
) -> SessionSearchCursor | None:
    """Return the start of a page; refuse arguments that are not valid, before events are indexed.

    Raises:
        NotFound: The session, or its point, does not exist.
        InvalidInput: The limit, the cursor or the point is malformed.
    """
    if not 1 <= check_count(limit, "limit", least=1) <= SESSION_HITS_MAX:
        raise InvalidInput(f"limit must be from 1 to {SESSION_HITS_MAX}, got {limit}")
    cursor = None if after is None else _parse_cursor(after, request)
    with sessions.log.read() as reading:
        _bounds(sessions, reading, request)
    return cursor


def search(
    sessions: Sessions, request: SessionSearch, limit: int, cursor: SessionSearchCursor | None
) -> SessionHitPage:
    """Return a page of hits.

    Args:
        sessions: The sessions.
        request: What is searched for.
        limit: Maximum number of hits.
        cursor: The start of the page, from `check_page`.
    """
    log, files = sessions.log, sessions.files
    with log.read() as reading:
        bounds = _bounds(sessions, reading, request)
        until = reading.position() if cursor is None else cursor.until
        indexed = min(reading.text_until(), until) if cursor is None else cursor.indexed
        offset = 0 if cursor is None else cursor.offset
        hits = _tail_hits(log, files, request, bounds, (indexed, until))
        page: list[tuple[int, float | None]] = [(place, None) for place in hits]
        page = page[offset : offset + limit + 1]
        if len(page) <= limit:
            query = bounds._replace(
                until=indexed,
                limit=limit + 1 - len(page),
                offset=max(0, offset - len(hits)),
            )
            page += reading.text_hits(query)
        events = [
            (stored, score)
            for position, score in page[:limit]
            if (stored := reading.event_at_position(position)) is not None
        ]
    following = None
    if len(page) > limit and offset + limit <= SESSION_HITS_OFFSET_MAX:
        following = SessionSearchCursor(request.digest, until, indexed, offset + limit).format()
    items = [_hit(log, files, request.text, stored, score) for stored, score in events]
    return SessionHitPage(Rows(items, SessionHit), following)


def _parse_cursor(text: str, request: SessionSearch) -> SessionSearchCursor:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=SessionSearchCursor)
    except (TypeError, binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = None
    if cursor is None or cursor.search != request.digest:
        raise InvalidInput(
            f"after: must be `next` of a page of this search, got {text!r:.80}",
            hint="Repeat the search without `after`, and then change nothing but `after`.",
        )
    return cursor


def _bounds(sessions: Sessions, reading: LogReader, request: SessionSearch) -> TextHitsQuery:
    """Return the query of the index, without the bounds of a page."""
    expression = f"text : ({request.text.match_expression()})"
    ids = (request.prefix, f"{request.prefix}{_ID_MAX}")
    until_at, until_event = _TIME_MAX, EVENT_MAX
    if request.sid is not None:
        row = existing(reading, request.sid)
        expression = f'session : "{session_word(row.key)}" AND ({expression})'
        ids = (row.id, f"{row.id} ")
        if request.at is not None:
            until_event = sessions._event_id(reading, row, request.at)  # noqa: SLF001 - its store
    elif isinstance(request.at, datetime):
        until_at = check_time(request.at)
    by_score = request.order == "score"
    return TextHitsQuery(
        expression, 0, until_at, until_event, ids, request.types, by_score, limit=0, offset=0
    )


def _tail_hits(
    log: Log,
    files: BlobStore | None,
    request: SessionSearch,
    bounds: TextHitsQuery,
    span: tuple[int, int],
) -> list[int]:
    """Return positions of matching events that are not in the index, newest first."""
    after, until = span
    if log.indexes_texts and until - after > SESSION_SCAN_EVENTS_MAX:
        raise Busy(
            f"{until - after} events are not in the index of words yet",
            hint="Search in a program that has the store open for writing, which indexes them.",
        )
    hits: list[int] = []
    while after < until:
        with log.paced(), log.read() as reading:
            rows = reading.all_events(after, limits.SESSION_PAGE_EVENTS)
        for sid, row in rows:
            if row.position > until:
                break
            if not (bounds.ids[0] <= sid < bounds.ids[1] and row.type in bounds.types):
                continue
            if row.at > bounds.until_at or row.event_id > bounds.until_event:
                continue
            text = read_text(log.read, files, event_of(sid, row))
            if text is not None and request.text.matches(text.text):
                hits.append(row.position)
        if len(rows) < limits.SESSION_PAGE_EVENTS:
            break
        after = rows[-1][1].position
    return hits[::-1]


def _hit(
    log: Log,
    files: BlobStore | None,
    query: TextQuery,
    stored: tuple[str, StoredEvent],
    score: float | None,
) -> SessionHit:
    event: Event = event_of(*stored)
    text = read_text(log.read, files, event) or EventText("message", "", "")
    snippet = query.snippet(text.text)
    kind: Any = text.kind
    relevance = None if score is None else -score
    return SessionHit(
        *(event.session, event.id, event.at, kind, text.title, relevance),
        snippet.text,
        snippet.highlights,
    )
