"""Checkpoints as events of a session: each says what it changes of an earlier one.

A checkpoint is a `step/started` event. Its step names the event of another checkpoint, its *base*,
and holds what differs: the versions of channels, what nodes have seen, and the values of channels
that changed. A value is written in one of three ways, called *nodes* here:

    {"value": item}                               the whole value
    {"list": [item...], "keep": n, "on": event}   a list: the first n items of the list that another
                                                  event holds for this channel, and then these
    {"at": event}                                 the value that another event holds

Every so often a checkpoint has no base and says everything, with `at` for values: so a checkpoint
is found in few steps, however long its thread is. References are to events, which never change.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fourfold.adapters.session_ids import long
from fourfold.errors import CorruptData
from fourfold.models.sessions import Event

DEPTH_MAX = 32
"""So many differences lie on top of a checkpoint that says everything."""
TYPES = frozenset({"step/started", "step/put"})


class Record(msgspec.Struct):
    """A checkpoint with all but the values of its channels."""

    event: int
    id: str
    parent: str | None
    depth: int
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    places: dict[str, int]
    """Which event holds the value of each channel."""
    rest: tuple[str, Any]
    metadata: tuple[str, Any]
    latest: int | None
    """The event of the checkpoint with the greatest id, where that is another one."""

    @property
    def newest(self) -> int:
        """The event of the newest checkpoint, when this one is the last of the log."""
        return self.event if self.latest is None else self.latest


def is_checkpoint(event: Event) -> bool:
    """Tell a checkpoint from a step that another program added to the session."""
    return (
        event.type in TYPES
        and event.key is not None
        and event.key.startswith("c")
        and ("rest" in event.data["step"] or "rest_item" in event.data["step"])
    )


def base_of(event: Event) -> int | None:
    base: int | None = event.data["step"].get("base")
    return base


def record_of(event: Event, base: Record | None) -> Record:
    """The checkpoint that an event holds, whose base is `base`."""
    try:
        step = event.data["step"]
        places = {} if base is None else dict(base.places)
        for name in step.get("gone", ()):
            places.pop(name, None)
        for name, node in step.get("channels", {}).items():
            places[name] = node.get("at", event.id)
        return Record(
            event=event.id,
            id=step["checkpoint_id"] if "checkpoint_id" in step else _id_of(event.key),
            parent=step["parent_id"] if "parent_id" in step or base is None else base.id,
            depth=0 if base is None else base.depth + 1,
            versions=_changed(None if base is None else base.versions, step, "versions"),
            seen=_changed(None if base is None else base.seen, step, "seen"),
            places=places,
            rest=_told(step, "rest"),
            metadata=_told(step, "metadata"),
            latest=step.get("latest"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptData(
            f"event {event.id} of session {event.session!r} is no checkpoint: {error!r}"
        ) from error


def difference(base: Record | None, parent: str | None) -> dict[str, Any]:
    """The beginning of a step that stands on `base`, or on nothing."""
    if base is None:
        return {"parent_id": parent}
    step: dict[str, Any] = {"base": base.event}
    if parent != base.id:
        step["parent_id"] = parent
    return step


def changes(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    """What a step says to turn one mapping into another: names that are set, names that go."""
    if before is None:
        return {name: after}
    told: dict[str, Any] = {}
    new = {key: value for key, value in after.items() if before.get(key, _NOTHING) != value}
    gone = sorted(key for key in before if key not in after)
    if new:
        told[name] = new
    if gone:
        told[f"{name}_gone"] = gone
    return told


def shorten(step: dict[str, Any]) -> None:
    """Leave out the channels that were updated where they are those with a new version and a
    value, as LangGraph has it.
    """
    rest = step.get("rest", {})
    if "updated_channels" in rest and rest["updated_channels"] == _updated(step):
        step["rest"] = {k: v for k, v in rest.items() if k != "updated_channels"}
        step["updated"] = True


def _updated(step: dict[str, Any]) -> list[str]:
    gone = step.get("gone", ())
    return sorted(name for name in step.get("versions", ()) if name not in gone)


_NOTHING = object()


def _id_of(key: str | None) -> str:
    """The id of a checkpoint from the key of its event: `c<id>`, or `c<id>#<number>`."""
    if key is None:
        raise KeyError("checkpoint_id")
    return long(key[1:].partition("#")[0])


def _told(step: dict[str, Any], name: str) -> tuple[str, Any]:
    """A dict that stands in a step as it is, or serialised."""
    if name in step:
        if name == "rest" and step.get("updated"):
            return "plain", {**step[name], "updated_channels": _updated(step)}
        return "plain", step[name]
    return "item", step[f"{name}_item"]


def _changed(before: dict[str, Any] | None, step: dict[str, Any], name: str) -> dict[str, Any]:
    gone = step.get(f"{name}_gone", ())
    kept = {key: value for key, value in (before or {}).items() if key not in gone}
    return {**kept, **step.get(name, {})}
