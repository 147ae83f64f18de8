"""Lists of sessions, in the order of creation or of their newest events, and filters on them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from fourfold.content import decode
from fourfold.content.filters import Filter
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.sessions.log import EVENT_MAX, SECOND_CHARS, LogReader, SessionRow, UpdateRange
from fourfold.models.sessions.reader import event_at
from fourfold.models.sessions.records import SessionInfo
from fourfold.models.sessions.request import check_count, check_session_id, check_time

SessionOrder = Literal["created", "updated"]
LAST_KEY: Final = 2**62
"""A key after those of all sessions."""
LAST_SECOND: Final = "~"
"""Text after all seconds."""


class ListingOptions(NamedTuple):
    """Filters and page of a list of sessions."""

    after: str | None
    """The id of the session after which it begins."""
    limit: int
    deleted: bool = False
    prefix: str = ""
    newest_first: bool = False
    at: str | None = None
    """Only sessions that existed at this time, as they were."""
    order: SessionOrder = "created"
    status: str | None = None
    kind: str | None = None
    since: str | None = None
    """Only sessions with an event at or after this time."""
    after_updated: str | None = None
    """Time of the newest event of `after`, when the caller read it; by default now."""

    @property
    def is_filtered(self) -> bool:
        """True if sessions are read that the list may leave out."""
        if self.order == "updated":
            return bool(self.prefix) or (self.status is not None and self.kind is not None)
        return (self.at, self.status, self.kind, self.since) != (None,) * 4

    def includes(self, row: SessionRow) -> bool:
        """Return True if a session has the prefix, and existed at the time of the list."""
        if not row.id.startswith(self.prefix):
            return False
        if self.at is None:
            return True
        was_deleted = row.deleted_at is not None and row.deleted_at <= self.at
        return row.created_at <= self.at and (self.deleted or not was_deleted)

    def matches(self, info: SessionInfo) -> bool:
        """Return True if a session has the status and the kind, and was updated since."""
        return (
            self.status in {None, info.status}
            and self.kind in {None, info.kind}
            and (self.since is None or info.updated_at >= self.since)
        )


class SessionMatches(NamedTuple):
    """The sessions of a list that match a filter, as far as it was read."""

    matches: list[SessionInfo]
    last: str | None
    """Id of the last session that was read; None if there was none."""
    more: bool
    last_updated: str | None = None
    """Second of its newest event, in the order of these."""


def check_listing(
    after: str | SessionInfo | None,
    listing: ListingOptions,
    since: datetime | None,
    at: datetime | None,
) -> ListingOptions:
    """Return the options of a list with its start and its times, checked.

    Raises:
        InvalidInput: An id or a time is malformed, or options exclude each other.
    """
    check_count(listing.limit, "limit", least=1)
    updated = after.updated_at if isinstance(after, SessionInfo) else None
    first = after.id if isinstance(after, SessionInfo) else after
    for sid in (listing.prefix, first):
        if sid:
            check_session_id(sid)
    if listing.order not in {"created", "updated"}:
        raise InvalidInput(f"order must be 'created' or 'updated', got {listing.order!r:.100}")
    checked = listing._replace(
        after=first,
        after_updated=updated,
        since=None if since is None else check_time(since),
        at=None if at is None else check_time(at),
    )
    check_order(checked)
    return checked


def check_order(listing: ListingOptions) -> None:
    """Raise InvalidInput for a list in an order that the index does not have."""
    if listing.order == "updated" and (listing.deleted or listing.at is not None):
        raise InvalidInput(
            "order 'updated' lists current sessions, without deleted ones",
            hint="List the past, or deleted sessions, in the order 'created'.",
        )


def scan_sessions(
    reading: LogReader, listing: ListingOptions, where: Filter | None, sessions_max: int
) -> SessionMatches:
    """Read up to `sessions_max` sessions, and return those that match.

    Raises:
        NotFound: There is no session `listing.after`.
    """
    row = None if listing.after is None else reading.session(listing.after)
    if listing.after is not None and row is None:
        raise NotFound(f"unknown session {listing.after!r}")
    # One more than is read shows whether there are more.
    rows = _rows(reading, listing, row, sessions_max + 1)
    matches: list[SessionInfo] = []
    last = last_updated = None
    for updated, row in rows[:sessions_max]:
        last, last_updated = row.id, updated
        if not listing.includes(row):
            continue
        until = None if listing.at is None else event_at(reading, row.key, listing.at)
        info = session_info(reading, row, until)
        if listing.matches(info) and (where is None or where.matches(_fields(reading, row, info))):
            matches.append(info)
            if len(matches) == listing.limit:
                break
    more = bool(rows) and last != rows[-1][1].id
    return SessionMatches(matches, last, more, last_updated)


def _rows(
    reading: LogReader, listing: ListingOptions, after: SessionRow | None, limit: int
) -> list[tuple[str | None, SessionRow]]:
    """Return the next rows of a list, with the second of their newest event if it orders them."""
    newest_first = listing.newest_first
    if listing.order == "updated":
        place = (LAST_SECOND, LAST_KEY) if newest_first else ("", 0)
        if after is not None:
            updated = listing.after_updated or reading.summary(after.key).updated_at
            place = ((updated or after.created_at)[:SECOND_CHARS], after.key)
        since = (listing.since or "")[:SECOND_CHARS]
        bound = since if newest_first else LAST_SECOND
        if not newest_first and place[0] < since:
            place = (since, 0)
        page = UpdateRange(place, limit, newest_first, bound, listing.status, listing.kind)
        return [*reading.updated_sessions(page)]
    key = (LAST_KEY if newest_first else 0) if after is None else after.key
    rows = reading.sessions(
        key,
        limit,
        # One that was deleted later existed at an earlier time.
        deleted=listing.deleted or listing.at is not None,
        prefix=listing.prefix,
        newest_first=newest_first,
    )
    return [(None, row) for row in rows]


def session_info(reading: LogReader, row: SessionRow, until: int | None = None) -> SessionInfo:
    """Return what a list shows of a session, now or after one of its events."""
    last = EVENT_MAX if until is None else until
    summary = reading.summary(row.key, last)
    updated_at = summary.updated_at or row.created_at
    return SessionInfo(
        row.id,
        row.created_at,
        summary.last_event,
        row.deleted_at,
        summary.status,
        updated_at,
        summary.turn_status,
        reading.kind(row.key, last),
    )


def _fields(reading: LogReader, row: SessionRow, info: SessionInfo) -> dict[str, Any]:
    """Return the fields that a session was created with, and those of its info."""
    events = reading.events(row.key, 0, 1, 1)
    started = bool(events) and events[0].type == "session/started"
    fields = decode(events[0].body.encode())["session"] if started else {}
    facts = msgspec.structs.asdict(info)
    # A kind that is not text is not in the info.
    del facts["kind"]
    return {**fields, **facts}
