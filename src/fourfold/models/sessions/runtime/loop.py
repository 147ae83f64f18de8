"""Running turns: open, step by step, and settle. Written once, for functions and coroutines.

A turn is opened by the user's message. Each step is started in the log before the step function is
called; what the step records is in the log before the next one starts. A final turn takes a
snapshot of the variables, gets its answer, and is published as a head; so is one that ends with a
question to a person. Every other outcome settles the turn and publishes nothing, so the session
continues from the previous head. A turn runs under a lease: if that is lost, the turn raises
LeaseLost, and nothing more of it is written.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from typing import Final as Constant

from fourfold.content import PayloadRef, encode
from fourfold.errors import (
    AlreadyClaimed,
    FourfoldError,
    HeadMoved,
    InvalidInput,
    LeaseLost,
    PreconditionFailed,
)
from fourfold.models.sessions.records import Claim, Event
from fourfold.models.sessions.request import Payload, check_key
from fourfold.models.sessions.runtime.ownership import RunningTurn, renewing
from fourfold.models.sessions.runtime.ports import Port, SessionStore, timed_out
from fourfold.models.sessions.runtime.progress import (
    SIGNAL,
    TurnProgress,
    begun,
    continued,
    interrupted,
    is_due,
    since_head,
    starting_vars,
    turn_of_key,
)
from fourfold.models.sessions.runtime.records import (
    BUDGET,
    ERROR,
    FINAL,
    RUNNING,
    STOPPED,
    SUSPENDED,
    WAITING,
    Final,
    Question,
    Timing,
    TurnEnded,
    TurnResult,
    TurnSettings,
    TurnSuspended,
    described,
    format_due,
)
from fourfold.models.sessions.runtime.turn import AsyncTurn, Turn, Work

_SUSPENSION: Constant = frozenset({"due_at", "signal", "signal_after", "waits_for"})
"""Fields of a suspended turn."""


class Turns:
    """The loop of turns."""

    def __init__(self, port: Port, running: RunningTurn, timing: Timing) -> None:
        self.port = port
        self.sessions: SessionStore = port.sessions
        self.timing = timing
        self._running = running

    async def run(
        self,
        sid: str,
        task: Any,
        settings: TurnSettings,
        *,
        key: str | None = None,
        until: float | None = None,
    ) -> TurnResult:
        """Run a turn for a task.

        With the key of an earlier turn, that turn is resumed, or its result returned.
        """
        encode(task)
        check_key(key)
        async with self._owned(sid):
            replayed = None if key is None else turn_of_key(self.sessions, sid, key, task)
            await self._mend(sid)
            if replayed is not None:
                return await self._again(sid, replayed, settings, until)
            await self._settle_interrupted(sid, "another turn was started instead")
            if await self._stopped(sid):
                return _refused(sid)
            if settings.compact_chars is not None and self._chars(sid) > settings.compact_chars:
                await self._compact(sid, settings)
            turn_id = await self._open(sid, task, key)
            progress = begun(self.sessions, sid, turn_id, settings)
            return await self._steps(progress, until)

    async def go_on(self, sid: str, settings: TurnSettings) -> TurnResult | None:
        """Go on with the turn that was interrupted, if there is one."""
        async with self._owned(sid):
            await self._mend(sid)
            turn = interrupted(self.sessions.current_view(sid))
            return None if turn is None else await self._again(sid, turn["id"], settings, None)

    async def abandon(self, sid: str, reason: str) -> int | None:
        """Record the interrupted turn as an error, and return its id; None if there is none."""
        async with self._owned(sid):
            await self._mend(sid)
            return await self._settle_interrupted(sid, reason)

    async def compact(self, sid: str, settings: TurnSettings) -> str:
        """Replace the transcript by a summary; return the id of the new head."""
        async with self._owned(sid):
            await self._mend(sid)
            await self._settle_interrupted(sid, "the session was compacted instead")
            return await self._compact(sid, settings)

    async def stop(self, sid: str) -> None:
        """Ask a session to stop: at the next step, or now if none is running."""
        status = (self.sessions.current_view(sid).session or {}).get("status")
        if status == STOPPED:
            return
        if status != "stop-requested":
            await self.port.append(sid, [{"type": "session/stop-requested"}])
        if sid not in self._running and interrupted(self.sessions.current_view(sid)) is None:
            await self._stopped(sid)

    async def signal(self, sid: str, name: str, value: Any, key: str | None) -> Event:
        """Append a signal."""
        if type(name) is not str or not name:
            raise InvalidInput(f"a signal has a name, not {repr(name)[:100]}")
        data = {"name": name, "value": Payload(value, "signal")}
        [event] = await self.port.append(sid, [{"type": SIGNAL, "signal": data}], key=key)
        return event

    def check_step(self, settings: TurnSettings) -> None:
        """Raise if a coroutine function runs without an event loop, or a function in one."""
        if inspect.iscoroutinefunction(settings.step) != self.port.awaits:
            kind = "a coroutine function" if not self.port.awaits else "no coroutine function"
            raise InvalidInput(
                f"the step function is {kind}",
                hint="Call run_turn() with a function, run_turn_async() with a coroutine function; "
                "children are of the same kind as their parent.",
            )

    def remaining(self, progress: TurnProgress) -> float | None:
        """Return the seconds until the deadline of a turn; None without one."""
        return None if progress.until is None else max(0.0, progress.until - self.timing.clock())

    def after(self, seconds: float) -> datetime:
        """Return the time so many seconds from now."""
        return self.timing.now() + timedelta(seconds=seconds)

    def until(self, due: datetime) -> float:
        """Return the seconds until a time; a negative number if it has passed."""
        return (due - self.timing.now()).total_seconds()

    def late(self, progress: TurnProgress) -> bool:
        """Return True if the time of a turn is over."""
        return progress.until is not None and self.timing.clock() >= progress.until

    def messages(self, sid: str) -> list[dict[str, Any]]:
        """Return the messages of a session that a model reads."""
        messages = self.sessions.current_view(sid).kept_messages()
        return [
            {**message, "content": self.sessions.read_payload(message.get("content"))}
            for message in messages
        ]

    # Ownership

    @asynccontextmanager
    async def _owned(self, sid: str) -> AsyncIterator[None]:
        """Run one turn of a session, under a lease that all of its writes are checked against."""
        epochs = self._running.epochs
        with self._running.one(sid):
            claim = await self._claim(sid)
            epochs[sid] = claim.epoch
            try:
                with renewing(self.sessions, sid, claim.epoch, self.timing.lease_s):
                    yield
            finally:
                del epochs[sid]
                with suppress(FourfoldError):
                    # What ended the turn matters more; a lease that stays expires.
                    await self.port.release(sid, claim.epoch)

    async def _claim(self, sid: str) -> Claim:
        holder = self._running.holder
        try:
            return await self.port.claim(sid, holder, self.timing.lease_s)
        except AlreadyClaimed as error:
            epoch = error.details.get("epoch")
            if not isinstance(epoch, int) or not self._running.is_dead(error.details.get("holder")):
                raise
            with suppress(LeaseLost):
                await self.port.release(sid, epoch)
        return await self.port.claim(sid, holder, self.timing.lease_s)

    # One turn

    async def _again(
        self, sid: str, turn_id: int, settings: TurnSettings, until: float | None
    ) -> TurnResult:
        turn = self.sessions.current_view(sid).turns[turn_id - 1]
        if turn.get("status") == SUSPENDED and is_due(self.sessions, sid, turn, self.timing.now()):
            running = {name: value for name, value in turn.items() if name not in _SUSPENSION}
            put = {"type": "turn/put", "turn": {**running, "status": RUNNING}}
            await self.port.append(sid, [put])
        elif turn.get("status") != RUNNING:
            return self._result(sid, turn)
        return await self._steps(continued(self.sessions, sid, turn_id, settings), until)

    async def _open(self, sid: str, task: Any, key: str | None) -> int:
        while True:
            counters = self.sessions.current_view(sid).counters
            message = {"role": "user", "turn_id": counters.turn + 1, "content": Payload(task)}
            turn = {"status": RUNNING, "user_message_id": counters.message + 1}
            events = [
                {"type": "message/appended", "message": message},
                {"type": "turn/started", "turn": turn},
            ]
            try:
                stored = await self.port.append(
                    sid, events, expected_last_id=counters.event, key=key
                )
            except PreconditionFailed:
                continue  # Others may append too, an edge for instance; then the ids are others.
            assert stored[1].entity_id is not None
            return stored[1].entity_id

    async def _steps(self, progress: TurnProgress, until: float | None) -> TurnResult:
        self.check_step(progress.settings)
        own = progress.settings.timeout_s
        ends = [] if own is None else [self.timing.clock() + own]
        progress.until = min([*ends, *([] if until is None else [until])], default=None)
        while True:
            ended = self._due(progress)
            if ended is None:
                outcome = await self._step(progress)
                if isinstance(outcome, TurnResult):
                    return outcome
                if isinstance(outcome, TurnSuspended):
                    return await self._suspend(progress, outcome)
                ended = outcome
            if ended is not None:
                return await self._settle(progress, ended.status, ended.error)

    async def _step(self, progress: TurnProgress) -> TurnResult | TurnEnded | TurnSuspended | None:
        """Run one step: the result of a final turn, what ended or suspended it, or None."""
        if progress.step_id is None:
            step = {"turn_id": progress.turn_id, "number": progress.steps + 1, "status": RUNNING}
            [event] = await self.port.append(progress.sid, [{"type": "step/started", "step": step}])
            progress.step_id, progress.records, progress.attempts = event.entity_id, {}, {}
            progress.steps += 1
        work = Work(self, progress)
        handed = AsyncTurn(work) if self.port.awaits else Turn(work)
        try:
            outcome = await self.port.invoke(
                progress.settings.step, handed, within_s=self.remaining(progress)
            )
            _check_outcome(outcome)
            variables = await progress.vars.snapshot(self.port)
        except TurnEnded as ended:
            progress.usage.update(work.usage)
            return ended
        except TurnSuspended as suspended:
            # The step runs again from its beginning, and counts its usage again.
            return suspended
        except Exception as error:  # noqa: BLE001 - whatever it raises is how the turn ends
            progress.usage.update(work.usage)
            return TurnEnded(ERROR, ERROR, "", described(error))
        finally:
            work.close()
        progress.usage.update(work.usage)
        done: dict[str, Any] = {
            "id": progress.step_id,
            "turn_id": progress.turn_id,
            "number": progress.steps,
            "status": "done",
            "usage": work.usage,
        }
        if outcome is not None:
            return await self._finish(progress, done, variables, outcome)
        done["vars_ref"] = Payload(variables, "vars")
        await self.port.append(progress.sid, [{"type": "step/put", "step": done}])
        progress.step_id, progress.records = None, {}
        return None

    def _due(self, progress: TurnProgress) -> TurnEnded | None:
        """Return why the turn ends before its next step, or None."""
        session = self.sessions.current_view(progress.sid).session or {}
        if session.get("status") in {"stop-requested", STOPPED}:
            return TurnEnded(STOPPED, "session-stopped", "the session was asked to stop")
        if self.late(progress):
            return timed_out()
        settings = progress.settings
        for name, most in (settings.budget or {}).items():
            if progress.usage[name] > most:
                used = progress.usage[name]
                return TurnEnded(BUDGET, BUDGET, f"{used} of {most} {name} are used up")
        if progress.step_id is None and progress.steps >= settings.max_steps:
            return TurnEnded(BUDGET, "max-steps", f"no answer after {progress.steps} steps")
        return None

    async def _finish(
        self,
        progress: TurnProgress,
        step: dict[str, Any],
        variables: dict[str, Any],
        outcome: Final | Question,
    ) -> TurnResult:
        """End a turn with its answer or question and publish the head, in one transaction."""
        is_final = isinstance(outcome, Final)
        name = "final" if is_final else "question"
        value = Payload(outcome.value, name)
        turn = {**self._turn(progress, FINAL if is_final else WAITING), f"{name}_ref": value}
        published: dict[str, Any] = {"kind": f"turn-{turn['status']}", "turn_id": progress.turn_id}
        if is_final:
            published["final_ref"] = value
        events: list[dict[str, Any]] = [
            {"type": "step/put", "step": step},
            {"type": "session/vars-snapshotted", "vars_ref": Payload(variables, "vars")},
            {"type": "turn/put", "turn": turn},
        ]
        try:
            head = await self.port.publish(
                progress.sid,
                published,
                expected_basis=progress.basis,
                events=events,
            )
        except HeadMoved as error:
            return await self._settle(progress, ERROR, described(error))
        if is_final:
            turn["final_ref"] = head.final_ref
        else:
            turn = self.sessions.current_view(progress.sid).turns[progress.turn_id - 1]
        return self._result(progress.sid, turn, head.id)

    async def _suspend(self, progress: TurnProgress, suspended: TurnSuspended) -> TurnResult:
        """Record what the turn waits for; its worker is free."""
        turn = self._turn(progress, SUSPENDED)
        if suspended.due_at is not None:
            turn["due_at"] = format_due(suspended.due_at)
        if suspended.signal is not None:
            turn |= {"signal": suspended.signal, "signal_after": suspended.after}
        if suspended.waits_for:
            turn["waits_for"] = list(suspended.waits_for)
        await self.port.append(progress.sid, [{"type": "turn/put", "turn": turn}])
        return self._result(progress.sid, turn)

    async def _settle(
        self, progress: TurnProgress, status: str, error: dict[str, Any]
    ) -> TurnResult:
        turn = {**self._turn(progress, status), "error": error}
        events: list[dict[str, Any]] = []
        if progress.step_id is not None:
            step = {"id": progress.step_id, "turn_id": progress.turn_id, "status": ERROR}
            events.append({"type": "step/put", "step": {**step, "number": progress.steps}})
        events.append({"type": "turn/put", "turn": turn})
        if status == STOPPED:
            events.append({"type": "session/stopped"})
        await self.port.append(progress.sid, events)
        return self._result(progress.sid, turn)

    def _turn(self, progress: TurnProgress, status: str) -> dict[str, Any]:
        turn = self.sessions.current_view(progress.sid).turns[progress.turn_id - 1]
        return {**turn, "status": status, "steps": progress.steps, "usage": dict(progress.usage)}

    def _result(self, sid: str, turn: dict[str, Any], head: str | None = None) -> TurnResult:
        if turn["status"] in {FINAL, WAITING} and head is None:
            heads = self.sessions.current_view(sid).heads
            head = next(
                (candidate.id for candidate in heads if candidate.turn_id == turn["id"]), None
            )
        return TurnResult(
            sid,
            turn["status"],
            turn["id"],
            self.sessions.read_payload(turn.get("final_ref", turn.get("question_ref"))),
            head,
            turn.get("error"),
            turn.get("usage", {}),
            due_at=turn.get("due_at"),
            signal=turn.get("signal"),
        )

    # What a dead process left

    async def _mend(self, sid: str) -> None:
        """Publish the head that an earlier version did not: it appended a final turn, or a
        compaction, in one transaction and the head in the next.
        """
        view = self.sessions.current_view(sid)
        done = view.counters.turn > 0 and view.turns[-1].get("status") == FINAL
        compacted = (view.compact_from_event_id or 0) > view.covered
        if not done and not compacted:
            return
        for event in list(since_head(self.sessions, sid)):
            if event.type == "session/compacted":
                await self.port.publish(sid, {"kind": "compaction"}, to_event_id=event.id)
            elif event.type == "turn/put" and event.data["turn"].get("status") == FINAL:
                turn = event.data["turn"]
                head = {"turn_id": turn["id"], "final_ref": turn.get("final_ref")}
                await self.port.publish(sid, head, to_event_id=event.id)

    async def _settle_interrupted(self, sid: str, reason: str) -> int | None:
        view = self.sessions.current_view(sid)
        turn = interrupted(view)
        if turn is None:
            return None
        error = {"type": "interrupted", "message": reason, "data": {}}
        events: list[dict[str, Any]] = []
        newest = view.steps[-1] if view.counters.step else {}
        if newest.get("turn_id") == turn["id"] and newest.get("status") == RUNNING:
            events.append({"type": "step/put", "step": {**newest, "status": ERROR}})
        rest = {name: value for name, value in turn.items() if name not in _SUSPENSION}
        events.append({"type": "turn/put", "turn": {**rest, "status": ERROR, "error": error}})
        await self.port.append(sid, events)
        return int(turn["id"])

    async def _stopped(self, sid: str) -> bool:
        status = (self.sessions.current_view(sid).session or {}).get("status")
        if status == "stop-requested":
            await self.port.append(sid, [{"type": "session/stopped"}])
        return status in {"stop-requested", STOPPED}

    # Compaction

    def _chars(self, sid: str) -> int:
        """Return the length of the transcript, without reading its large parts."""
        total = 0
        for message in self.sessions.current_view(sid).kept_messages():
            content = message.get("content")
            total += content.size if isinstance(content, PayloadRef) else len(encode(content))
        return total

    async def _compact(self, sid: str, settings: TurnSettings) -> str:
        if settings.summarize is None:
            raise InvalidInput(
                "there is no function that summarizes",
                hint="Give one: Runtime(sessions, step, summarize=...).",
            )
        summary = await self.port.invoke(settings.summarize, self.messages(sid))
        view = self.sessions.current_view(sid)
        event = {
            "type": "session/compacted",
            "vars_ref": starting_vars(self.sessions, view),
            "message": {"role": "system", "content": Payload(summary)},
        }
        head = await self.port.publish(
            sid, {"kind": "compaction"}, expected_basis=view.current_head, events=[event]
        )
        return head.id


def _refused(sid: str) -> TurnResult:
    """Return the result of a stopped session; nothing is recorded."""
    error = {"type": "session-stopped", "message": f"session {sid!r} is stopped", "data": {}}
    return TurnResult(sid, STOPPED, error=error)


def _check_outcome(outcome: Any) -> None:
    if isinstance(outcome, Final | Question):
        encode(outcome.value)
    elif outcome is not None:
        raise InvalidInput(
            f"the step function returned {type(outcome).__name__}",
            hint="Return Final(value) to finish the turn, Question(value) to wait for a person, "
            "or None to be called again.",
        )
