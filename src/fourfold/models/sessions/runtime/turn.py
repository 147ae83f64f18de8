"""The argument of a step function: the turn that it works on.

    def step(turn):
        answer = turn.call("model", ask, turn.messages())
        turn.say("assistant", answer)
        return Final(answer)

Each call with an effect is recorded, with its place in the step, before it returns.
When a step is run again because its process died, the same calls give what was recorded, and the
first one that was not recorded is the first that is really made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import CallFailed, CapabilityDenied, InvalidInput, Refused, ReplayMismatch
from fourfold.models.sessions.records import Event, Head, copied
from fourfold.models.sessions.request import Payload
from fourfold.models.sessions.runtime import children
from fourfold.models.sessions.runtime.ports import drive, timed_out
from fourfold.models.sessions.runtime.progress import (
    ATTEMPT,
    RECEIVED,
    TurnProgress,
    find_signal,
    same,
)
from fourfold.models.sessions.runtime.records import (
    SUSPENDED,
    Retry,
    TurnResult,
    TurnSuspended,
    described,
    format_due,
)
from fourfold.models.sessions.runtime.variables import Vars

if TYPE_CHECKING:
    from fourfold.models.sessions.runtime.loop import Turns


SESSION_TIMER_S_MAX: Final = 100 * 366 * 86_400
"""Longest wait of a step, in seconds."""
_ONCE: Final = Retry(attempts=1)


class Work:
    """One step being run: the calls of a turn, written once for functions and coroutines."""

    def __init__(self, turns: Turns, progress: TurnProgress) -> None:
        self.turns = turns
        self.progress = progress
        self.usage: dict[str, float] = {}
        self._index = 0
        self._children = 0
        self._open = True

    def close(self) -> None:
        """End the turn: later calls raise."""
        self._open = False

    def check_open(self) -> None:
        """Raise if the step has returned: nothing is recorded for it any more."""
        if not self._open:
            raise Refused(
                f"this step of turn {self.progress.turn_id} is over",
                hint="Use the turn inside the step function that it was given to.",
            )

    def check(self) -> None:
        """Nor is anything begun once the time of the turn has run out."""
        self.check_open()
        if self.turns.late(self.progress):
            raise timed_out()

    async def say(self, role: str, content: Any) -> int:
        """Append a message; return its id."""
        self.check()
        if not isinstance(role, str) or not role:
            raise InvalidInput(f"the role of a message must be a text, got {repr(role)[:100]}")
        recorded = self._known("message", "role", role)
        if recorded is not None:
            if not same(recorded["content"], content):
                raise self._mismatch("a message has another content")
            return int(recorded["id"])
        event = await self._record(
            "message/appended", "message", {"role": role, "content": Payload(content)}
        )
        return int(event.data["message"]["id"])

    async def call(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], retry: Retry | None
    ) -> Any:
        """Call a function and record its result; a repeated turn returns the recorded one."""
        self.check()
        if type(name) is not str or not name:
            raise InvalidInput(f"a call has a name, not {repr(name)[:100]}")
        recorded = self._known("eval", "name", name)
        if recorded is None:
            index = self._index
            outcome, cause = await self._attempts(index, function, args, retry or _ONCE)
            event = await self._record("eval/added", "eval", {"name": name, **outcome}, index)
            recorded = event.data["eval"]
            if cause is not None:
                raise _failed(recorded) from cause
        if recorded["status"] == "error":
            raise _failed(recorded)
        return self.turns.sessions.read_payload(recorded["result_ref"])

    async def _attempts(
        self, index: int, function: Callable[..., Any], args: tuple[Any, ...], retry: Retry
    ) -> tuple[dict[str, Any], Exception | None]:
        """Call a function until it returns, or its attempts are used up; the earlier ones count."""
        before = self.progress.attempts.get(index)
        number = 0
        if before is not None:
            number = before["number"]
            await self._wait_until(datetime.fromisoformat(before["due_at"]))
        while True:
            number += 1
            outcome, cause = await self._called(function, args)
            if cause is None or number >= retry.attempts or not isinstance(cause, retry.on):
                return (outcome if number == 1 else {**outcome, "attempts": number}), cause
            due = self.turns.after(retry.delay(number))
            failed = {"number": number, "error": outcome["error"], "due_at": format_due(due)}
            await self._record(ATTEMPT, "attempt", failed, index)
            await self._wait_until(due)
            self.check()

    async def sleep(self, seconds: float) -> None:
        """Wait until a time that is recorded."""
        self.check()
        await self._wait_until(await self._timer(seconds))

    async def wait_signal(self, name: str, timeout_s: float | None, default: Any) -> Any:
        """Return the value of the next signal of a name, or `default` after a time without one."""
        self.check()
        if type(name) is not str or not name:
            raise InvalidInput(f"a signal has a name, not {repr(name)[:100]}")
        due = None if timeout_s is None else await self._timer(timeout_s)
        recorded = self._known("signal", "name", name)
        while recorded is None:
            sessions, sid = self.turns.sessions, self.progress.sid
            signal, last = find_signal(sessions, sid, name)
            if signal is not None:
                data = {"event": signal.id, "value": signal.data["signal"].get("value")}
            elif due is not None and self.turns.until(due) <= 0:
                data = {"event": None}
            else:
                await self._wait_until(due, name, last)
                continue
            event = await self._record(RECEIVED, "signal", {"name": name, **data})
            recorded = event.data["signal"]
        if recorded["event"] is None:
            return default
        return self.turns.sessions.read_payload(recorded["value"])

    async def _timer(self, seconds: float) -> datetime:
        """Return when a timer at this place ends; it is set once."""
        if type(seconds) not in {int, float} or not 0 <= seconds <= SESSION_TIMER_S_MAX:
            raise InvalidInput(
                f"seconds must be a number from 0 to {SESSION_TIMER_S_MAX}, got {seconds!r:.100}"
            )
        recorded = self._known("timer", "seconds", seconds)
        if recorded is None:
            due_at = format_due(self.turns.after(seconds))
            data = {"seconds": seconds, "due_at": due_at}
            recorded = (await self._record("timer/set", "timer", data)).data["timer"]
        return datetime.fromisoformat(recorded["due_at"])

    async def _wait_until(
        self, due: datetime | None, signal: str | None = None, after: int = 0
    ) -> None:
        """Wait here for a short time; suspend the turn for a long one, or for a signal."""
        left = None if due is None else self.turns.until(due)
        if left is not None and left <= 0:
            return
        if left is None or left > self.turns.timing.suspend_after_s:
            raise TurnSuspended(due, signal, after=after)
        remaining = self.turns.remaining(self.progress)
        if remaining is not None and remaining < left:
            await self.turns.port.pause(remaining)
            raise timed_out()
        await self.turns.port.pause(left)

    async def _called(
        self, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[dict[str, Any], Exception | None]:
        try:
            result = await self.turns.port.invoke(function, *args)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its outcome
            return {"status": "error", "error": described(error)}, error
        return {"status": "ok", "result_ref": Payload(result, "eval-result")}, None

    async def run_child(self, task: Any, options: children.ChildOptions) -> TurnResult:
        """Run a task in a child session; return its result."""
        [place] = self._places([task])
        result = await children.run_child(self.turns, self.progress, place, task, options)
        _suspend_for([result])
        return result

    async def map_children(
        self, tasks: Sequence[Any], options: children.ChildOptions
    ) -> list[TurnResult]:
        """Run tasks in child sessions; return their results in their order."""
        listed = children.check_fanout(tasks)
        places = self._places(listed)
        lanes = [
            partial(
                children.run_child, self.turns, self.progress, place, task, options, index=index
            )
            for index, (place, task) in enumerate(zip(places, listed, strict=True))
        ]
        results = await self.turns.port.gather(lanes)
        _suspend_for(results)
        return results

    async def attach(
        self, source: str | Head, task: Any, options: children.ChildOptions
    ) -> TurnResult:
        """Run a task in a new session with the variables of a head; return its result."""
        [place] = self._places([task])
        sid = children.child_id(self.progress, place)
        result = await children.attach(
            self.turns,
            source,
            task,
            sid=sid,
            options=options,
            caller=self.progress,
            settings=self.progress.settings,
        )
        _suspend_for([result])
        return result

    def _places(self, tasks: Sequence[Any]) -> list[int]:
        self.check()
        first = self._children + 1
        self._children += len(tasks)
        return list(range(first, self._children + 1))

    def _known(self, entity: str, field: str, value: Any) -> dict[str, Any] | None:
        """Return what was recorded at this place of the step before; raise if it differs."""
        self._index += 1
        event = self.progress.records.get(self._index)
        if event is None:
            return None
        recorded: dict[str, Any] | None = event.data.get(entity)
        if recorded is None or recorded.get(field) != value:
            raise self._mismatch(f"{event.type} is recorded, not {entity} {value!r}")
        return recorded

    async def _record(
        self, kind: str, entity: str, data: Mapping[str, Any], index: int | None = None
    ) -> Event:
        progress = self.progress
        place = {"turn_id": progress.turn_id, "step_id": progress.step_id}
        about = {**place, "index": self._index if index is None else index, **data}
        [event] = await self.turns.port.append(progress.sid, [{"type": kind, entity: about}])
        return event

    def _mismatch(self, what: str) -> ReplayMismatch:
        return ReplayMismatch(
            f"step {self.progress.step_id} of session {self.progress.sid!r} does not repeat what "
            f"it did before it was interrupted: at place {self._index}, {what}",
            hint="Wrap whatever may differ from run to run in turn.call().",
        )


def _suspend_for(results: Sequence[TurnResult]) -> None:
    """Suspend the turn if children are suspended: it goes on when one of them can."""
    suspended = [result.session for result in results if result.status == SUSPENDED]
    if suspended:
        raise TurnSuspended(waits_for=suspended)


def _failed(recorded: Mapping[str, Any]) -> CallFailed:
    error = recorded["error"]
    return CallFailed(
        f"{recorded['name']} raised {error['type']}: {error['message']}", details={"error": error}
    )


class _TurnProperties:
    """Properties of a turn that need no waiting."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @property
    def session(self) -> str:
        return self._work.progress.sid

    @property
    def id(self) -> int:
        return self._work.progress.turn_id

    @property
    def step_id(self) -> int:
        assert self._work.progress.step_id is not None
        return self._work.progress.step_id

    @property
    def number(self) -> int:
        """Number of the step in its turn, from 1."""
        return self._work.progress.steps

    @property
    def task(self) -> Any:
        """The task of the turn: a copy, each time."""
        return copied(self._work.progress.task)

    @property
    def vars(self) -> Vars:
        """The variables of the session. What a final turn leaves in them is what the next finds."""
        return self._work.progress.vars

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline of the turn, or None without one."""
        return self._work.turns.remaining(self._work.progress)

    def messages(self) -> list[dict[str, Any]]:
        """Return the current transcript, with its contents."""
        return self._work.turns.messages(self.session)

    def use(self, **amounts: float) -> None:
        """Count what this step used up, such as tokens, against the budget of the turn."""
        self._work.check_open()
        for name, amount in amounts.items():
            if type(amount) not in {int, float} or not 0 <= amount < float("inf"):
                raise InvalidInput(
                    f"the use of {name!r} must be a number, got {repr(amount)[:100]}"
                )
            self._work.usage[name] = self._work.usage.get(name, 0) + amount

    def may(self, name: str) -> bool:
        """Return True if the session has a capability."""
        capability = self._work.progress.capability
        return capability is None or name in capability

    def require(self, name: str) -> None:
        if not self.may(name):
            raise CapabilityDenied(
                f"session {self.session!r} may not {name!r}",
                details={"session": self.session, "capability": name},
            )

    def emit(self, item: Any) -> None:
        """Deliver a transient item, such as a token, to current followers, best effort."""
        self._work.turns.sessions.notify_transient(self.session, item)


class Turn(_TurnProperties):
    """The turn that a step function receives."""

    def say(self, role: str, content: Any) -> int:
        """Add a message to the transcript, and return its id."""
        return drive(self._work.say(role, content))

    def call(
        self, name: str, function: Callable[..., Any], *args: Any, retry: Retry | None = None
    ) -> Any:
        """Call a function once: its result is recorded, and returned when the step runs again.

        With `retry`, a function that raises is called again after a while. Raises CallFailed if
        the function raised, the last time.
        """
        return drive(self._work.call(name, function, args, retry))

    def sleep(self, seconds: float) -> None:
        """Wait. The end of the wait is recorded, so it is the same when the step runs again.

        A long wait suspends the turn: `run_turn` returns, and `resume` or `run_due` goes on.
        """
        drive(self._work.sleep(seconds))

    def wait_signal(self, name: str, *, timeout_s: float | None = None, default: Any = None) -> Any:
        """Return the value of the next signal of a name; suspend the turn until it is sent.

        With `timeout_s`, return `default` after that time without a signal.
        """
        return drive(self._work.wait_signal(name, timeout_s, default))

    def run_child(self, task: Any, **options: Any) -> TurnResult:
        """Run a task in a new child session."""
        return drive(self._work.run_child(task, children.ChildOptions(**options)))

    def map_children(self, tasks: Sequence[Any], **options: Any) -> list[TurnResult]:
        """Run each task in a new child session, concurrently; return a result for each."""
        return drive(self._work.map_children(tasks, children.ChildOptions(**options)))

    def attach(self, source: str | Head, task: Any, **options: Any) -> TurnResult:
        """Run a task in a new session that starts from a head of another one."""
        return drive(self._work.attach(source, task, children.ChildOptions(**options)))


class AsyncTurn(_TurnProperties):
    """The turn that a coroutine receives."""

    async def say(self, role: str, content: Any) -> int:
        """Append a message; return its id."""
        return await self._work.say(role, content)

    async def call(
        self, name: str, function: Callable[..., Any], *args: Any, retry: Retry | None = None
    ) -> Any:
        """Call a function once, or until it does not raise, like `Turn.call`."""
        return await self._work.call(name, function, args, retry)

    async def sleep(self, seconds: float) -> None:
        """Wait until a time that is recorded, like `Turn.sleep`."""
        await self._work.sleep(seconds)

    async def wait_signal(
        self, name: str, *, timeout_s: float | None = None, default: Any = None
    ) -> Any:
        """Return the value of the next signal of a name, like `Turn.wait_signal`."""
        return await self._work.wait_signal(name, timeout_s, default)

    async def run_child(self, task: Any, **options: Any) -> TurnResult:
        """Run a task in a child session; return its result."""
        return await self._work.run_child(task, children.ChildOptions(**options))

    async def map_children(self, tasks: Sequence[Any], **options: Any) -> list[TurnResult]:
        """Run tasks in child sessions; return their results in their order."""
        return await self._work.map_children(tasks, children.ChildOptions(**options))

    async def attach(self, source: str | Head, task: Any, **options: Any) -> TurnResult:
        """Run a task in a new session with the variables of a head; return its result."""
        return await self._work.attach(source, task, children.ChildOptions(**options))
