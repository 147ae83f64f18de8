"""Restore points of a store: store-wide sets of consistent states, and their ids.

The id of a point starts with its time, and is greater than that of every earlier point.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import msgspec

from fourfold.errors import NotFound

_TIME = "%Y%m%dT%H%M%S.%f"


class Place(msgspec.Struct, frozen=True):
    """Position of a database or a stream at a restore point."""

    generation: int
    position: int
    incarnation: str = ""
    """Incarnation of the stream; empty for databases."""


class PointInfo(msgspec.Struct, frozen=True):
    """A restore point in the list."""

    id: str
    at: str
    """Time of completion, in UTC."""
    started_ms: int
    sha256: str
    """Digest of its object in format 1; empty for a point of archive tables."""
    databases: int
    """Number of databases and streams that advanced since the previous point."""
    streams: int = 0
    restored: str | None = None
    """The restore point from which the store continued."""
    whole: bool = False
    """It contains every stream, because earlier points were removed."""

    @property
    def time(self) -> datetime:
        """Time of the state that the point has at least: that at which it was begun."""
        return time_of(self.started_ms)


def time_of(started_ms: int) -> datetime:
    """Return the time of a point; commits have microseconds, so it is the end of a millisecond."""
    second = datetime.fromtimestamp(started_ms // 1_000, UTC)
    return second + timedelta(milliseconds=started_ms % 1_000, microseconds=999)


def next_id(now: datetime, newest: str | None) -> str:
    """Return an id for a point at a time, greater than the id of the newest one."""
    if newest is not None:
        last = datetime.strptime(newest.split("Z-")[0], _TIME).replace(tzinfo=UTC)
        # A clock that was set back must not order a point before existing ones.
        now = max(now, last + timedelta(milliseconds=1))
    return f"{now.strftime(_TIME)[:-3]}Z-{secrets.token_hex(2)}"


def find(points: list[PointInfo], text: str) -> PointInfo:
    """Return the restore point with an id, or the newest one at or before a time."""
    for point in points:
        if point.id == text:
            return point
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        oldest = f": the oldest is {points[0].id!r}" if points and text < points[0].id else ""
        raise NotFound(
            f"unknown restore point {text!r}{oldest}",
            hint="List the restore points: `fourfold publish ROOT --points`.",
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    before = [point for point in points if datetime.fromisoformat(point.at) <= time]
    if not before:
        raise NotFound(
            f"no restore point at or before {text}",
            hint="List the restore points: `fourfold publish ROOT --points`.",
        )
    return before[-1]
