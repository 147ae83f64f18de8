"""Retention: delete the sessions under a prefix that are old, or not among the newest.

A session is kept as long as another one needs it. Sessions are connected by lineage edges, and by
their ids: `a/b/c` belongs to `a/b`, if there is such a session. Connected sessions are deleted
together, in one transaction that checks all of them again, or not at all; so no edge and no head
loses an end. Values that are stored as deltas refer to their own session only.

A session with a lease in force is kept, and so is one that stores the generation of a name.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from fourfold import limits
from fourfold.content import decode
from fourfold.errors import InvalidInput
from fourfold.models.sessions import writer
from fourfold.models.sessions.listing import LAST_KEY, LAST_SECOND
from fourfold.models.sessions.log import (
    EVENT_MAX,
    SECOND_CHARS,
    LogReader,
    LogWriter,
    SessionRow,
    UpdateRange,
)
from fourfold.models.sessions.reader import Slots
from fourfold.models.sessions.records import edge_of
from fourfold.models.sessions.request import check_count, check_session_id
from fourfold.models.sessions.request_builder import RequestBuilder, iso

SESSION_RETENTION_NEWEST_MAX: Final = 100_000
"""Greatest number of newest sessions to keep."""
SESSION_RETENTION_GROUP_MAX: Final = 1_000
"""Connected sessions that one transaction deletes; more are kept."""
_NAME_KIND = "-name"
"""End of the kind of a session that stores the generation of a name, for an adapter."""


class RetentionPolicy(NamedTuple):
    """A policy, checked, at one time."""

    prefix: str
    before: str
    """Sessions with an event at or after this time are kept."""
    keep_latest: int
    now: str
    now_ms: int
    others: tuple[str, ...] = ()
    """Longer prefixes with policies of their own; their sessions are kept."""

    def covers(self, sid: str) -> bool:
        """Return True if the policy decides about a session."""
        return sid.startswith(self.prefix) and not sid.startswith(self.others)


Place: TypeAlias = tuple[str, int]
"""Second of the newest event, and key, of a session: its place in the order of updates."""


def parse_place(text: str | None) -> Place | None:
    """Return the place of a report's `next_after`; raise InvalidInput if it is not one."""
    if text is None:
        return None
    second, _, key = text.partition(" ") if isinstance(text, str) else ("", "", "")
    if not second or not key.isdecimal() or len(key) > len(str(LAST_KEY)):
        raise InvalidInput(f"after must be the next_after of a retention, got {text!r:.100}")
    return second, int(key)


def format_place(place: Place | None) -> str | None:
    """Return a place as text."""
    return None if place is None else f"{place[0]} {place[1]}"


def check_policy(
    builder: RequestBuilder, prefix: str, max_age_s: float | None, keep_latest: int | None
) -> RetentionPolicy:
    """Return a policy at the current time.

    Raises:
        InvalidInput: There is no limit, or one is malformed.
    """
    if prefix:
        check_session_id(prefix)
    if max_age_s is None and keep_latest is None:
        raise InvalidInput(
            "retention: needs max_age_s or keep_latest, got neither",
            hint="Pass the greatest age of a session, or how many of the newest ones to keep.",
        )
    if keep_latest is not None:
        check_count(keep_latest, "keep_latest")
        if keep_latest > SESSION_RETENTION_NEWEST_MAX:
            raise InvalidInput(
                f"keep_latest must be at most {SESSION_RETENTION_NEWEST_MAX}, got {keep_latest}"
            )
    if max_age_s is not None and (
        type(max_age_s) not in {int, float} or not math.isfinite(max_age_s) or max_age_s < 0
    ):
        raise InvalidInput(f"max_age_s must be a number of seconds, got {max_age_s!r:.100}")
    now = builder.time()
    try:
        before = LAST_SECOND if max_age_s is None else iso(now - timedelta(seconds=max_age_s))
    except OverflowError:
        before = ""
    return RetentionPolicy(prefix, before, keep_latest or 0, iso(now), builder.now_ms())


def newest_sessions(reading: LogReader, policy: RetentionPolicy) -> frozenset[str]:
    """Return the ids of the newest sessions under the prefix, which are kept."""
    newest: set[str] = set()
    place = (LAST_SECOND, LAST_KEY)
    while len(newest) < policy.keep_latest:
        page = UpdateRange(place, limits.PAGE_ITEMS_MAX, newest_first=True)
        rows = reading.updated_sessions(page)
        for second, row in rows:
            place = (second, row.key)
            if policy.covers(row.id) and not _is_name(reading, row):
                newest.add(row.id)
                if len(newest) == policy.keep_latest:
                    break
        if len(rows) < limits.PAGE_ITEMS_MAX:
            break
    return frozenset(newest)


def read_candidates(
    reading: LogReader, policy: RetentionPolicy, after: Place | None, limit: int
) -> tuple[list[SessionRow], Place | None]:
    """Return sessions under the prefix that are old enough, oldest first, of the next `limit`.

    The second value is where the next page begins; None after the last one.
    """
    bound = policy.before[:SECOND_CHARS]
    rows = reading.updated_sessions(UpdateRange(after or ("", 0), limit, bound=bound))
    candidates = [
        row
        for _, row in rows
        if policy.covers(row.id) and not _is_name(reading, row)
        if _updated(reading, row) < policy.before
    ]
    more = len(rows) == limit
    return candidates, (rows[-1][0], rows[-1][1].key) if more else None


def find_group(
    reading: LogReader, policy: RetentionPolicy, sid: str, newest: frozenset[str]
) -> list[SessionRow] | None:
    """Return a session with all that are connected with it; None if one of them is to be kept."""
    first = reading.session(sid)
    if first is None or first.deleted_at is not None:
        return []
    group = {sid: first}
    waiting = deque([first])
    while waiting:
        row = waiting.popleft()
        if (
            not policy.covers(row.id)
            or row.id in newest
            or _updated(reading, row) >= policy.before
            or _is_leased(reading, row, policy.now_ms)
        ):
            return None
        for near in _connected(reading, row):
            if near.id not in group:
                if len(group) == SESSION_RETENTION_GROUP_MAX:
                    return None
                group[near.id] = near
                waiting.append(near)
    return [*group.values()]


def delete_group(
    writing: LogWriter, slots: Slots, policy: RetentionPolicy, sid: str, newest: frozenset[str]
) -> list[str] | None:
    """Delete a session with those connected with it; None if one of them is to be kept."""
    group = find_group(writing, policy, sid, newest)
    if group is None:
        return None
    for row in group:
        writer.delete(writing, slots, row.id, policy.now)
    return [row.id for row in group]


def _connected(reading: LogReader, row: SessionRow) -> Iterator[SessionRow]:
    """Yield the sessions that a session is connected with, at most one more than a group has."""
    # An edge is in the log of one of its ends, or of a third session.
    own = ((row.key, event_id) for event_id in _own_edges(reading, row))
    for key, event_id in chain(reading.edges_of_session(row.id), own):
        owner = reading.session_by_key(key)
        if owner is None or owner.deleted_at is not None:
            continue
        yield owner
        [event] = reading.events(key, event_id - 1, event_id, 1)
        edge = edge_of(decode(event.body.encode())["edge"])
        for end in (edge.from_session, edge.to_session):
            yield from _living(reading, end)
    yield from reading.sessions(
        0, SESSION_RETENTION_GROUP_MAX + 1, deleted=False, prefix=f"{row.id}/"
    )
    for parent in _parents(row.id):
        for above in _living(reading, parent):
            if not _is_name(reading, above):
                yield above


def _own_edges(reading: LogReader, row: SessionRow) -> Iterator[int]:
    """Yield the events of a log that added edges."""
    offset = 0
    while page := reading.marks("edges", row.key, EVENT_MAX, offset, limits.PAGE_ITEMS_MAX):
        yield from page
        offset += len(page)


def _living(reading: LogReader, sid: str) -> Iterator[SessionRow]:
    row = reading.session(sid)
    if row is not None and row.deleted_at is None:
        yield row


def _parents(sid: str) -> Iterator[str]:
    """Yield what is before each slash of an id."""
    parent = sid.rpartition("/")[0]
    while parent:
        yield parent
        parent = parent.rpartition("/")[0]


def _is_leased(reading: LogReader, row: SessionRow, now_ms: int) -> bool:
    """Return True if a worker has claimed a session, or the name that it belongs to."""
    for sid in (row.id, *_parents(row.id)):
        for above in _living(reading, sid):
            lease = reading.lease(above.key)
            if lease is not None and lease.holder is not None and lease.until_ms > now_ms:
                return True
    return False


def _is_name(reading: LogReader, row: SessionRow) -> bool:
    return (reading.kind(row.key) or "").endswith(_NAME_KIND)


def _updated(reading: LogReader, row: SessionRow) -> str:
    return reading.summary(row.key).updated_at or row.created_at
