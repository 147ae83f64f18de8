"""Sessions that work for another: children, several at once, and sessions that start from a head.

The id of a child follows from its place in its parent: session, turn, step, and which child of the
step it is. So a parent that is run again after a crash finds the children that it had, those that
are done with their results, and the others where they stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.content import content_id, encode, is_content_id
from fourfold.errors import InvalidInput, LimitExceeded, NotFound, ReplayMismatch
from fourfold.models.sessions.records import Head
from fourfold.models.sessions.request import Payload, check_session_id
from fourfold.models.sessions.runtime.progress import TurnProgress
from fourfold.models.sessions.runtime.records import (
    PREVIEW_CHARS,
    SUSPENDED,
    Capability,
    TurnResult,
    TurnSettings,
    check_capability,
    check_source,
    clamp,
)
from fourfold.models.sessions.runtime.variables import Vars

if TYPE_CHECKING:
    from fourfold.models.sessions.runtime.loop import Turns

SESSION_FANOUT_MAX: Final = 50
"""Children that one call starts."""
SESSION_DEPTH_MAX: Final = 16
"""Nesting of children, so that a step function that always calls itself ends."""

_INHERITED = ("model", "provider")
_KEY = "task"


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """Options of a child. Omitted ones are inherited from the parent."""

    step: Callable[..., Any] | None = None
    vars: Mapping[str, Any] | None = None
    capability: Iterable[str] | None = None
    max_steps: int | None = None
    timeout_s: float | None = None
    budget: Mapping[str, float] | None = None

    def settings(self, settings: TurnSettings) -> TurnSettings:
        """Return the settings of the parent, with those that are given for the child."""
        fields = {
            name: getattr(self, name)
            for name in ("step", "max_steps", "timeout_s", "budget")
            if getattr(self, name) is not None
        }
        return replace(settings, **fields)


def child_id(parent: TurnProgress, place: int) -> str:
    """Return the id of a child session by its place in the parent's turn."""
    name = f"{parent.sid}/{parent.turn_id}.{parent.step_id}.{place}"
    if len(name) <= limits.SESSION_ID_CHARS_MAX:
        return name
    return f"c-{content_id(name.encode()).removeprefix('sha256:')}"


def check_fanout(tasks: Sequence[Any]) -> list[Any]:
    """Return the tasks of children as a list; raise if there are too many."""
    if isinstance(tasks, (str, bytes, Mapping)) or not isinstance(tasks, Iterable):
        raise InvalidInput(f"the tasks of children are a list, not {type(tasks).__name__}")
    listed = list(tasks)
    if len(listed) > SESSION_FANOUT_MAX:
        raise LimitExceeded(
            f"{len(listed)} children at once are more than {SESSION_FANOUT_MAX}",
            hint="Give the tasks to several calls.",
        )
    return listed


async def run_child(
    turns: Turns,
    parent: TurnProgress,
    place: int,
    task: Any,
    options: ChildOptions,
    *,
    index: int | None = None,
) -> TurnResult:
    """Run a task in a new session; if it succeeds, an edge points to it."""
    sid = child_id(parent, place)
    inherited = {name: parent.session[name] for name in _INHERITED if name in parent.session}
    capability = clamp(parent.capability, check_capability(options.capability))
    entity = {**inherited, "kind": "child", "parent_session": parent.sid}
    child = _ChildSession(
        sid, task, entity, capability, options.vars, options.settings(parent.settings)
    )
    result = await _run(turns, child, parent)
    if result.failed or result.status == SUSPENDED:
        return result
    edge = await turns.port.join(
        parent.sid,
        {
            "type": "invocation",
            "kind": "child" if index is None else "child-batch-item",
            "from_head": parent.basis,
            "to_session": sid,
            "to_head": result.head,
            "turn_id": parent.turn_id,
            "step_id": parent.step_id,
            **_about(task),
        },
    )
    return msgspec.structs.replace(result, edge=edge.data["edge"]["id"])


async def attach(
    turns: Turns,
    source: str | Head,
    task: Any,
    *,
    sid: str,
    options: ChildOptions,
    caller: TurnProgress | None = None,
    capability: Capability = None,
    settings: TurnSettings,
) -> TurnResult:
    """Run a task in a new session that starts with the variables of a head.

    The session of that head does not change. Errors are raised before a new session exists.
    """
    check_session_id(sid)
    if options.vars is not None:
        raise InvalidInput("an attached session has the variables of its source, and no others")
    head = source_head(turns, source)
    origin = dict(turns.sessions.current_view(head.session).session or {})
    allowed = capability if caller is None else caller.capability
    check_source(allowed, origin.get("capability"), head.session)
    clamped = clamp(allowed, origin.get("capability"), check_capability(options.capability))
    entity = {name: origin[name] for name in _INHERITED if name in origin}
    entity |= {"kind": "attached-child", "source_session": head.session, "source_head": head.id}
    child = _ChildSession(sid, task, entity, clamped, options.vars, options.settings(settings))
    result = await _run(turns, child, caller)
    if result.failed or result.status == SUSPENDED:
        return result
    edge = await turns.port.join(
        sid if caller is None else caller.sid,
        {
            "type": "derivation",
            "kind": "attach",
            "caller_session": None if caller is None else caller.sid,
            "from_session": head.session,
            "from_head": head.id,
            "to_session": sid,
            "to_head": result.head,
            **_about(task),
        },
    )
    return msgspec.structs.replace(result, edge=edge.data["edge"]["id"])


def source_head(turns: Turns, source: str | Head) -> Head:
    """Return a head: the head itself, by its id, or the current head of a session."""
    if isinstance(source, Head):
        return turns.sessions.head(source.id)
    if is_content_id(source):
        return turns.sessions.head(source)
    current = turns.sessions.current_view(source).current_head
    if current is None:
        raise NotFound(
            f"session {source!r} has no head to start from",
            hint="Finish a turn of it first.",
        )
    return turns.sessions.head(current)


@dataclass(frozen=True, slots=True)
class _ChildSession:
    """A session that is about to work for another."""

    sid: str
    task: Any
    entity: dict[str, Any]
    capability: Capability
    vars: Mapping[str, Any] | None
    settings: TurnSettings


async def _run(turns: Turns, child: _ChildSession, parent: TurnProgress | None) -> TurnResult:
    sid, entity = child.sid, child.entity
    turns.check_step(child.settings)
    depth = 0 if parent is None else parent.depth + 1
    if depth > SESSION_DEPTH_MAX:
        raise LimitExceeded(f"session {sid!r} would be a child of {depth} parents")
    entity |= {"depth": depth, "task_hash": content_id(encode(child.task))}
    if child.capability is not None:
        entity["capability"] = child.capability
    if child.vars is not None:
        variables = Vars({}, turns.sessions.read_payload)
        variables.update(child.vars)
        entity["vars_ref"] = Payload(await variables.snapshot(turns.port), "vars")
    await turns.port.create({"id": sid, **entity})
    session = turns.sessions.current_view(sid).session or {}
    for name in ("kind", "task_hash", "source_head"):
        if session.get(name) != entity.get(name):
            raise ReplayMismatch(
                f"session {sid!r} exists, for another task or from another source",
                hint="Name another session; inside a step, wrap what differs in turn.call().",
            )
    until = None if parent is None else parent.until
    try:
        return await turns.run(sid, child.task, child.settings, key=_KEY, until=until)
    except asyncio.CancelledError:
        if parent is not None and turns.late(parent):
            # The parent has ended, so nothing would continue this turn.
            await turns.abandon(sid, "the time of its parent ran out")
        raise


def _about(task: Any) -> dict[str, Any]:
    data = encode(task)
    shown = task if isinstance(task, str) else data.decode()
    return {"task_hash": content_id(data), "task_preview": shown[:PREVIEW_CHARS]}
