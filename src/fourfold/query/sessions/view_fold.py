"""The fold of a session from rows of the table `tail`: a snapshot, and the events after it.

A session is folded a page at a time, so that the longest needs no more memory than any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from fourfold import limits
from fourfold.content import encode
from fourfold.errors import CorruptData, FourfoldError
from fourfold.models.sessions.fold import FoldState, advance
from fourfold.models.sessions.stamps import StoredEvent, event_of, state_of

INPUT: Final = (
    "session",
    "base",
    "state",
    "position",
    "event_id",
    "type",
    "at",
    "entity",
    "entity_id",
    "request_key",
    "body",
    "digest",
)
"""Columns of the rows that are folded."""


def fold_view(sid: str, rows: Iterator[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the state of a session as a row of the table `view`, from its rows of `tail`."""
    first = next(rows)
    position: int | None = first[3]
    try:
        state = FoldState() if first[1] is None else state_of(first[2])
        page = [first] if first[4] is not None else []
        while page:
            state = advance(state, *(event_of(sid, _event(row)) for row in page))
            position = page[-1][3]
            page = list(islice(rows, limits.SESSION_PAGE_EVENTS))
        return _row(sid, state, position)
    except (FourfoldError, TypeError, ValueError, KeyError) as error:
        message = error.message if isinstance(error, FourfoldError) else str(error)
        raise CorruptData(f"session {sid!r}: cannot fold: {message}") from error


def _event(row: tuple[Any, ...]) -> StoredEvent:
    _, _, _, position, *event = row
    return StoredEvent(position, *event)


def _row(sid: str, state: FoldState, position: int | None) -> dict[str, Any]:
    session = state.session
    status = session.get("status") if isinstance(session, dict) else None
    return {
        "session": sid,
        "event_id": state.counters.event,
        "position": position,
        "status": status if isinstance(status, str) or status is None else _json(status),
        "info": None if session is None else _json(session),
        "messages": state.counters.message,
        "turns": state.counters.turn,
        "steps": state.counters.step,
        "evals": state.counters.eval,
        "current_head": state.current_head,
        "covered": state.covered,
        "vars_ref": None if state.vars_ref is None else _json(state.vars_ref),
        "compact_from_event_id": state.compact_from_event_id,
        "error": None if state.error is None else _json(state.error),
        "digest": f"sha256:{state.digest.hex()}" if state.digest else None,
    }


def _json(value: Any) -> str:
    return encode(value).decode()
