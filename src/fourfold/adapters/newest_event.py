"""Find the newest event of an adapter in a session that other programs may write to as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fourfold.models.sessions import Event, SessionView

_PAGE: Final = 256


def find_newest_event(
    view: SessionView, matches: Callable[[Event], bool], floor: int = 0
) -> Event | None:
    """Return the newest event after the event `floor` that matches, or None."""
    end, size = view.counters.event, 1
    while end > floor:
        # The last event is nearly always the adapter's; each further page is larger.
        start = max(floor, end - size)
        event = next(filter(matches, reversed(view.events[start:end])), None)
        if event is not None:
            return event
        end, size = start, min(2 * size, _PAGE)
    return None
