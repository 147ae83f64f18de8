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
from functools import partial
from typing import TYPE_CHECKING, Any

from fourfold.errors import CallFailed, CapabilityDenied, InvalidInput, Refused, ReplayMismatch
from fourfold.models.sessions.records import Event, Head, copied
from fourfold.models.sessions.request import Payload
from fourfold.models.sessions.runtime import children
from fourfold.models.sessions.runtime.ports import drive, timed_out
from fourfold.models.sessions.runtime.progress import TurnProgress, same
from fourfold.models.sessions.runtime.records import TurnResult, described
from fourfold.models.sessions.runtime.variables import Vars

if TYPE_CHECKING:
    from fourfold.models.sessions.runtime.loop import Turns


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

    async def call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        self.check()
        if type(name) is not str or not name:
            raise InvalidInput(f"a call has a name, not {repr(name)[:100]}")
        recorded = self._known("eval", "name", name)
        if recorded is None:
            index = self._index
            outcome, cause = await self._called(function, args)
            event = await self._record("eval/added", "eval", {"name": name, **outcome}, index)
            recorded = event.data["eval"]
            if cause is not None:
                raise _failed(recorded) from cause
        if recorded["status"] == "error":
            raise _failed(recorded)
        return self.turns.sessions.read_payload(recorded["result_ref"])

    async def _called(
        self, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[dict[str, Any], Exception | None]:
        try:
            result = await self.turns.port.invoke(function, *args)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its outcome
            return {"status": "error", "error": described(error)}, error
        return {"status": "ok", "result_ref": Payload(result, "eval-result")}, None

    async def run_child(self, task: Any, options: children.ChildOptions) -> TurnResult:
        [place] = self._places([task])
        return await children.run_child(self.turns, self.progress, place, task, options)

    async def map_children(
        self, tasks: Sequence[Any], options: children.ChildOptions
    ) -> list[TurnResult]:
        listed = children.check_fanout(tasks)
        places = self._places(listed)
        lanes = [
            partial(
                children.run_child, self.turns, self.progress, place, task, options, index=index
            )
            for index, (place, task) in enumerate(zip(places, listed, strict=True))
        ]
        return await self.turns.port.gather(lanes)

    async def attach(
        self, source: str | Head, task: Any, options: children.ChildOptions
    ) -> TurnResult:
        [place] = self._places([task])
        sid = children.child_id(self.progress, place)
        return await children.attach(
            self.turns,
            source,
            task,
            sid=sid,
            options=options,
            caller=self.progress,
            settings=self.progress.settings,
        )

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

    def call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function once: its result is recorded, and returned when the step runs again.

        Raises CallFailed if the function raised.
        """
        return drive(self._work.call(name, function, *args))

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
        return await self._work.say(role, content)

    async def call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        return await self._work.call(name, function, *args)

    async def run_child(self, task: Any, **options: Any) -> TurnResult:
        return await self._work.run_child(task, children.ChildOptions(**options))

    async def map_children(self, tasks: Sequence[Any], **options: Any) -> list[TurnResult]:
        return await self._work.map_children(tasks, children.ChildOptions(**options))

    async def attach(self, source: str | Head, task: Any, **options: Any) -> TurnResult:
        return await self._work.attach(source, task, children.ChildOptions(**options))
