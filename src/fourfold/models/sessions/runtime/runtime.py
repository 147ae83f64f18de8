"""The runtime of sessions: what programs call. Each call that runs something has a twin for
coroutines, whose name ends in `_async`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.errors import AlreadyClaimed, Busy
from fourfold.models.sessions.leases import check_ttl
from fourfold.models.sessions.records import Head
from fourfold.models.sessions.runtime import children
from fourfold.models.sessions.runtime.due import DueTurns
from fourfold.models.sessions.runtime.loop import Turns
from fourfold.models.sessions.runtime.ownership import running_of
from fourfold.models.sessions.runtime.ports import Direct, PendingCall, SessionStore, drive
from fourfold.models.sessions.runtime.progress import interrupted, starting_vars
from fourfold.models.sessions.runtime.records import (
    Timing,
    TurnResult,
    TurnSettings,
    check_capability,
)
from fourfold.models.sessions.runtime.variables import Vars, restored
from fourfold.models.sessions.session import Session

SESSION_SUSPEND_AFTER_S: Final = 5.0
"""Time for which a worker waits with a turn, by default; longer waits suspend it."""
SESSION_DUE_TURNS: Final = 100
"""Turns that one call of `run_due` resumes, by default."""
_PREFIXES_MAX: Final = 16
"""Prefixes of `run_due` whose suspended turns are remembered."""


class Runtime:
    """Runs the turns of sessions with a step function.

    All state is in the log, so another runtime in another process continues where this one died.
    Each turn runs under a lease: a call raises AlreadyClaimed while another worker has the session,
    and LeaseLost if another one has claimed it meanwhile.

    Args:
        sessions: `store.sessions` of `fourfold.open`, or of `fourfold.connect`: then the log is on
            the server, and the step function runs here.
        step: Function that is called with a `Turn` until it returns `Final`.
        max_steps: Steps after which a turn ends without an answer.
        timeout_s: Seconds after which a turn ends.
        budget: Maximum usage of a turn, by name.
        summarize: Function that summarizes a transcript, for `compact`.
        compact_chars: Length of the transcript after which a turn starts with `compact`.
        clock: Clock of `timeout_s`.
        lease_s: Duration of the lease under which a turn runs; it is renewed while the turn runs.
        suspend_after_s: A turn that waits longer than this is suspended: `run_turn` returns.
        now: Clock of the timers of turns; by default the current time in UTC.
    """

    def __init__(
        self,
        sessions: SessionStore,
        step: Callable[..., Any],
        *,
        max_steps: int = limits.SESSION_STEPS_MAX,
        timeout_s: float | None = None,
        budget: Mapping[str, float] | None = None,
        summarize: Callable[..., Any] | None = None,
        compact_chars: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        lease_s: float = limits.SESSION_LEASE_S,
        suspend_after_s: float = SESSION_SUSPEND_AFTER_S,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self.sessions = sessions
        self._settings = TurnSettings(step, max_steps, timeout_s, budget, summarize, compact_chars)
        self._awaits = inspect.iscoroutinefunction(step)
        self._due: LruCache[str, DueTurns] = LruCache(_PREFIXES_MAX)
        self._due_lock = threading.Lock()
        running = running_of(sessions)
        check_ttl(lease_s)
        timing = Timing(clock, now or _utc_now, lease_s, suspend_after_s)
        self._direct = Turns(Direct(sessions, running.epochs), running, timing)
        self._awaiting = Turns(PendingCall(sessions, running.epochs), running, timing)

    def __repr__(self) -> str:
        return f"<Runtime of {self.sessions!r}>"

    def start(self, session: Mapping[str, Any]) -> Session:
        """Create a session with `session["id"]`; an existing one is not changed.

        Its `capability`, a list of names, is what it and its children may do; without one they may
        do everything.
        """
        fields = dict(session)
        capability = check_capability(fields.pop("capability", None))
        if capability is not None:
            fields["capability"] = capability
        handle: Session = self.sessions.create_session({"kind": "root", **fields})
        return handle

    def run_turn(self, sid: str, task: Any, *, key: str | None = None) -> TurnResult:
        """Run a turn for a task, until it is final or ends otherwise.

        A turn that was interrupted before is first recorded as an error. With a `key`, a repeated
        call resumes the turn that it started before, or returns its result.
        """
        self._direct.check_step(self._settings)
        return drive(self._direct.run(sid, task, self._settings, key=key))

    async def run_turn_async(self, sid: str, task: Any, *, key: str | None = None) -> TurnResult:
        """Run a turn for a task, until it is final or ends otherwise.

        A turn that was interrupted before is first recorded as an error. With a `key`, a repeated
        call resumes the turn that it started before, or returns its result.
        """
        if not self._awaits:
            return await asyncio.to_thread(self.run_turn, sid, task, key=key)
        return await self._awaiting.run(sid, task, self._settings, key=key)

    def resume(self, sid: str) -> TurnResult | None:
        """Resume the interrupted turn, or return None if there is none.

        Calls that it recorded are not made again.
        """
        self._direct.check_step(self._settings)
        return drive(self._direct.go_on(sid, self._settings))

    async def resume_async(self, sid: str) -> TurnResult | None:
        """Resume the interrupted turn, or return None if there is none.

        Calls that it recorded are not made again.
        """
        if not self._awaits:
            return await asyncio.to_thread(self.resume, sid)
        return await self._awaiting.go_on(sid, self._settings)

    def signal(self, sid: str, name: str, value: Any = None, *, key: str | None = None) -> int:
        """Send a signal to the turn that runs, or to the next one; return the id of the event.

        Each signal is received once, by `turn.wait_signal(name)`. With a `key`, a repeated call
        sends it once.
        """
        return drive(self._direct.signal(sid, name, value, key)).id

    async def signal_async(
        self, sid: str, name: str, value: Any = None, *, key: str | None = None
    ) -> int:
        """Send a signal to the turn that runs, or to the next one, like `signal`."""
        event = await self._awaiting.signal(sid, name, value, key)
        return event.id

    def run_due(self, *, prefix: str = "", limit: int = SESSION_DUE_TURNS) -> list[TurnResult]:
        """Resume suspended turns whose time has come, or whose signal was sent.

        Returns the results, one for each. Sessions of other workers are left to them. The first
        call examines all sessions of the prefix; later ones those that were updated since, and
        once a minute all.
        """
        results = []
        for sid in self._iter_due(prefix):
            with suppress(AlreadyClaimed, Busy):
                result = self.resume(sid)
                results += [] if result is None else [result]
            if len(results) == limit:
                break
        return results

    async def run_due_async(
        self, *, prefix: str = "", limit: int = SESSION_DUE_TURNS
    ) -> list[TurnResult]:
        """Resume suspended turns that can go on, like `run_due`."""
        results: list[TurnResult] = []
        due = self._iter_due(prefix)
        while len(results) < limit and (sid := await asyncio.to_thread(next, due, None)):
            with suppress(AlreadyClaimed, Busy):
                result = await self.resume_async(sid)
                results += [] if result is None else [result]
        return results

    def _iter_due(self, prefix: str) -> Iterator[str]:
        """Yield the ids of sessions with a suspended turn that can go on; not of children."""
        with self._due_lock:
            due = self._due.get(prefix)
            if due is None:
                due = DueTurns(self.sessions, prefix)
                self._due.put(prefix, due)
        yield from due.iter_due(self._direct.timing.now())

    def abandon(self, sid: str, reason: str = "the turn was given up") -> int | None:
        """Record the interrupted turn as an error; return its id, or None if there is none."""
        return drive(self._direct.abandon(sid, reason))

    def attach(
        self,
        source: str | Head,
        task: Any,
        *,
        sid: str,
        capability: Iterable[str] | None = None,
    ) -> TurnResult:
        """Run a task in a new session `sid` that starts from a head, or from that of a session.

        With a `capability`, a source that may do more is refused.
        """
        self._direct.check_step(self._settings)
        return drive(self._attach(self._direct, source, task, sid, capability))

    async def attach_async(
        self,
        source: str | Head,
        task: Any,
        *,
        sid: str,
        capability: Iterable[str] | None = None,
    ) -> TurnResult:
        """Run a task in a new session `sid` that starts from a head, or from that of a session.

        With a `capability`, a source that may do more is refused.
        """
        if not self._awaits:
            return await asyncio.to_thread(
                self.attach, source, task, sid=sid, capability=capability
            )
        return await self._attach(self._awaiting, source, task, sid, capability)

    async def _attach(
        self,
        turns: Turns,
        source: str | Head,
        task: Any,
        sid: str,
        capability: Iterable[str] | None,
    ) -> TurnResult:
        return await children.attach(
            turns,
            source,
            task,
            sid=sid,
            options=children.ChildOptions(),
            capability=check_capability(capability),
            settings=self._settings,
        )

    def compact(self, sid: str) -> str:
        """Replace the transcript by a summary. Returns the new head's id."""
        return drive(self._direct.compact(sid, self._settings))

    async def compact_async(self, sid: str) -> str:
        """Replace the transcript by a summary. Returns the new head's id."""
        return await self._awaiting.compact(sid, self._settings)

    def request_stop(self, sid: str) -> None:
        """Stop a session: after the step that is running, or now. It runs no more turns."""
        drive(self._direct.stop(sid))

    def interrupted(self, sid: str) -> int | None:
        """Return the turn that was running when its process died, or is running now."""
        view = self.sessions.current_view(sid)
        turn = interrupted(view)
        return None if turn is None else int(turn["id"])

    def vars(self, sid: str) -> Vars:
        """Return the variables that the next turn starts with."""
        return restored(
            self.sessions, starting_vars(self.sessions, self.sessions.current_view(sid))
        )

    def messages(self, sid: str) -> list[dict[str, Any]]:
        """Return the current transcript, with its contents."""
        return self._direct.messages(sid)


def _utc_now() -> datetime:
    return datetime.now(UTC)
