"""Points in history that requests name: a seq, a time, or the id of a restore point."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import UnsetType

from fourfold.errors import InvalidInput
from fourfold.server.workers import Workers
from fourfold.store import Store
from fourfold.wire.fields import POINT_PATTERN

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Before this there is nothing."""


def parse_at(at: str | int | UnsetType | None) -> int | datetime | None:
    """Return the point in history that a request names: a seq, a time, or None for now."""
    if at is None or isinstance(at, UnsetType | int):
        return None if isinstance(at, UnsetType) else at
    if at.isdigit():
        return int(at)
    try:
        return datetime.fromisoformat(at.upper())
    except ValueError:
        raise InvalidInput(
            f"at: must be a seq or an RFC 3339 time, got {at!r:.80}",
            hint="Send a time such as 2030-01-31T12:00:00Z; in a URL, + is %2B.",
        ) from None


async def parse_store_time(store: Store, workers: Workers, at: str | UnsetType) -> datetime | None:
    """Return the time that a request names; None for now.

    Raises:
        NotFound: there is no such restore point.
    """
    if isinstance(at, UnsetType):
        return None
    if re.fullmatch(POINT_PATTERN, at) is not None:
        time = await workers.run(store.point_of, at)
    else:
        time = parse_at(at)
    assert isinstance(time, datetime)
    return max(time, EPOCH)


def digest_text(at: str | UnsetType) -> str:
    """Return the point of a request for the digest of a cursor."""
    return "" if isinstance(at, UnsetType) else at
