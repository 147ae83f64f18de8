"""Result and horizon of a compaction by key. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fourfold.errors import InvalidInput
from fourfold.models.streams.validation import Offset


class CompactionResult(NamedTuple):
    """Result of a compaction by key."""

    complete: bool
    """False if the time ran out; repeat the call with the same horizon."""
    horizon: Offset
    """Records before this offset are removed."""
    first_offset: Offset
    """The earliest record of the stream now."""
    copied: int
    """Keys that were appended once more."""
    removed: int
    """Records that were trimmed."""


def check_horizon(horizon: str | int | None, since: object) -> None:
    """Raise InvalidInput unless a horizon is given, as an offset or as a time."""
    if (horizon is None) == (since is None):
        raise InvalidInput(
            "compact: pass the horizon as an offset, or as a time with since",
            hint="History before it is removed for good; 'now' removes all of it.",
        )
