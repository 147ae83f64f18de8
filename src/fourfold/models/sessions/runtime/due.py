"""Suspended turns that may go on, without examining all sessions again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from fourfold.errors import NotFound
from fourfold.models.sessions.records import SessionInfo
from fourfold.models.sessions.runtime.ports import SessionStore
from fourfold.models.sessions.runtime.progress import interrupted, is_due
from fourfold.models.sessions.runtime.records import SUSPENDED

SESSION_DUE_SCAN_S: Final = 60.0
"""Interval at which all sessions are examined; in between only those that were updated are."""
_OVERLAP: Final = timedelta(seconds=2)
"""Events of writers at the same time need not be stored in the order of their times."""
_PAGE: Final = 100


class _Suspension(NamedTuple):
    """What a suspended turn waits for."""

    due_at: datetime | None
    has_children: bool
    """Its children may be due without an event of its session."""


class DueTurns:
    """The suspended turns of the sessions with a prefix.

    A turn that waits for a signal or a time changes only with an event of its session, so sessions
    that were not updated are not read before their time.
    """

    def __init__(
        self, sessions: SessionStore, prefix: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sessions, self._prefix, self._clock = sessions, prefix, clock
        self._suspensions: dict[str, _Suspension] = {}
        self._unexamined: dict[str, None] = {}
        """Sessions that were updated, in order, until they are found not to be due."""
        self._since: datetime | None = None
        self._scan_at: float | None = None
        self._lock = threading.Lock()

    def iter_due(self, now: datetime) -> Iterator[str]:
        """Yield the ids of sessions whose turns can go on; not of children."""
        with self._lock:
            self._refresh()
            candidates = [
                sid
                for sid, suspension in self._suspensions.items()
                if sid in self._unexamined
                or suspension.has_children
                or (suspension.due_at is not None and suspension.due_at <= now)
            ]
        for sid in candidates:
            turn = self._read(sid)
            if turn is None:
                continue
            if is_due(self._sessions, sid, turn, now):
                # It is examined again until an event shows that it went on.
                yield sid
            else:
                with self._lock:
                    self._unexamined.pop(sid, None)

    def _read(self, sid: str) -> dict[str, Any] | None:
        """Return the suspended turn of a session, and remember what it waits for."""
        turn = None
        with suppress(NotFound):
            view = self._sessions.current_view(sid)
            if not (view.session or {}).get("depth", 0):  # The parent goes on with its children.
                turn = interrupted(view)
        with self._lock:
            if turn is None or turn.get("status") != SUSPENDED:
                self._suspensions.pop(sid, None)
                self._unexamined.pop(sid, None)
                return None
            due_at = turn.get("due_at")
            self._suspensions[sid] = _Suspension(
                None if due_at is None else datetime.fromisoformat(due_at),
                bool(turn.get("waits_for")),
            )
        return turn

    def _refresh(self) -> None:
        """List the sessions that were updated since the last call, or all of them."""
        newest = self._sessions.list(
            order="updated", newest_first=True, limit=1, prefix=self._prefix
        )
        since, clock = self._since, self._clock()
        if since is None or self._scan_at is None or clock >= self._scan_at + SESSION_DUE_SCAN_S:
            # Also for the case that a clock was set back.
            since, self._scan_at = None, clock
            self._suspensions.clear()
        for info in self._iter_suspended(since):
            self._suspensions.setdefault(info.id, _Suspension(None, has_children=False))
            self._unexamined[info.id] = None
        if newest:
            updated_at = datetime.fromisoformat(newest[0].updated_at)
            self._since = updated_at.replace(microsecond=0) - _OVERLAP

    def _iter_suspended(self, since: datetime | None) -> Iterator[SessionInfo]:
        after: SessionInfo | None = None
        while page := self._sessions.list(
            after=after,
            limit=_PAGE,
            prefix=self._prefix,
            where={"turn_status": SUSPENDED},
            order="created" if since is None else "updated",
            since=since,
        ):
            yield from page
            after = page[-1]
