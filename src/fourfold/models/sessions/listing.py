"""Lists of sessions, in the order of creation, and filters on their fields."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from fourfold.content import decode
from fourfold.content.filters import Filter
from fourfold.errors import NotFound
from fourfold.models.sessions.log import EVENT_MAX, LogReader, SessionRow
from fourfold.models.sessions.reader import event_at
from fourfold.models.sessions.records import SessionInfo

_LAST_KEY: Final = 2**62
"""A key after those of all sessions."""


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

    def includes(self, row: SessionRow) -> bool:
        """Return True if a session existed at the time of the list."""
        if self.at is None:
            return True
        was_deleted = row.deleted_at is not None and row.deleted_at <= self.at
        return row.created_at <= self.at and (self.deleted or not was_deleted)


class SessionMatches(NamedTuple):
    """The sessions of a list that match a filter, as far as it was read."""

    matches: list[SessionInfo]
    last: str | None
    """Id of the last session that was read; None if there was none."""
    more: bool


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
    key = (_LAST_KEY if listing.newest_first else 0) if row is None else row.key
    # One more than is read shows whether there are more.
    rows = reading.sessions(
        key,
        sessions_max + 1,
        # One that was deleted later existed at an earlier time.
        deleted=listing.deleted or listing.at is not None,
        prefix=listing.prefix,
        newest_first=listing.newest_first,
    )
    matches: list[SessionInfo] = []
    last = None
    for row in rows[:sessions_max]:
        last = row.id
        if not listing.includes(row):
            continue
        until = None if listing.at is None else event_at(reading, row.key, listing.at)
        info = session_info(reading, row, until)
        if where is None or where.matches(_fields(reading, row, info)):
            matches.append(info)
            if len(matches) == listing.limit:
                break
    return SessionMatches(matches, last, bool(rows) and last != rows[-1].id)


def session_info(reading: LogReader, row: SessionRow, until: int | None = None) -> SessionInfo:
    """Return what a list shows of a session, now or after one of its events."""
    summary = reading.summary(row.key, EVENT_MAX if until is None else until)
    updated_at = summary.updated_at or row.created_at
    return SessionInfo(
        row.id,
        row.created_at,
        summary.last_event,
        row.deleted_at,
        summary.status,
        updated_at,
        summary.turn_status,
    )


def _fields(reading: LogReader, row: SessionRow, info: SessionInfo) -> dict[str, Any]:
    """Return the fields that a session was created with, and those of its info."""
    events = reading.events(row.key, 0, 1, 1)
    started = bool(events) and events[0].type == "session/started"
    fields = decode(events[0].body.encode())["session"] if started else {}
    return {**fields, **msgspec.structs.asdict(info)}
