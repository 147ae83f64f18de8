"""Checkpoints as events of a session; each stores the difference to an earlier one.

A checkpoint is a `step/started` event. Its step refers to the event of another checkpoint, its
*base*, and stores what differs: versions of channels, versions that nodes have seen, and values of
channels that changed. A value is written in one of four forms, called *nodes* here:

    {"value": item}                               the whole value
    {"list": [item...], "keep": n, "on": event}   a list: the first n items of the list that another
                                                  event holds for this channel, and then these
    {"delta": item, "on": event}                  the value that another event holds for this
                                                  channel, changed by a delta
    {"at": event}                                 the value that another event holds

Long chains of lists and deltas repeat their parts in packs (`list_chain`, `delta_chain`).

Some checkpoints have no base and are complete, with `at` for values, so that a checkpoint is read
in few steps, however long its thread is. References are to events, which never change.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fourfold.adapters.session_ids import expand_name
from fourfold.errors import CorruptData
from fourfold.models.sessions import Event

DEPTH_MAX = 32
"""Maximum number of differences on top of a complete checkpoint."""
TYPES = frozenset({"step/started", "step/put"})


class CheckpointRecord(msgspec.Struct):
    """A checkpoint without the values of its channels."""

    event: int
    id: str
    parent: str | None
    depth: int
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]
    places: dict[str, int]
    """The event that holds the value of each channel."""
    rest: tuple[str, Any]
    metadata: tuple[str, Any]
    latest: int | None
    """The event of the checkpoint with the greatest id, if that is another one."""

    @property
    def newest(self) -> int:
        """The event of the newest checkpoint, if this one is the last of the log."""
        return self.event if self.latest is None else self.latest


def is_checkpoint(event: Event) -> bool:
    """Return True for a checkpoint, False for a step that another program added."""
    return (
        event.type in TYPES
        and event.key is not None
        and event.key.startswith("c")
        and ("rest" in event.data["step"] or "rest_item" in event.data["step"])
    )


def get_base_event(event: Event) -> int | None:
    """Return the id of the base event, or None."""
    base: int | None = event.data["step"].get("base")
    return base


def parse_record(event: Event, base: CheckpointRecord | None) -> CheckpointRecord:
    """Return the checkpoint of an event whose base is `base`."""
    try:
        step = event.data["step"]
        places = {} if base is None else dict(base.places)
        for name in step.get("gone", ()):
            places.pop(name, None)
        for name, node in step.get("channels", {}).items():
            places[name] = node.get("at", event.id)
        return CheckpointRecord(
            event=event.id,
            id=step["checkpoint_id"]
            if "checkpoint_id" in step
            else _parse_checkpoint_id(event.key),
            parent=step["parent_id"] if "parent_id" in step or base is None else base.id,
            depth=0 if base is None else base.depth + 1,
            versions=_apply_changes(None if base is None else base.versions, step, "versions"),
            seen=_apply_changes(None if base is None else base.seen, step, "seen"),
            places=places,
            rest=_get_document(step, "rest"),
            metadata=_get_document(step, "metadata"),
            latest=step.get("latest"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptData(
            f"event {event.id} of session {event.session!r} is not a checkpoint: {error!r}"
        ) from error


def begin_step(base: CheckpointRecord | None, parent: str | None) -> dict[str, Any]:
    """Return the start of a step that refers to `base`, or that is complete."""
    if base is None:
        return {"parent_id": parent}
    step: dict[str, Any] = {"base": base.event}
    if parent != base.id:
        step["parent_id"] = parent
    return step


def diff_mapping(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a step that turn one mapping into another: names set, names removed."""
    if before is None:
        return {name: after}
    fields: dict[str, Any] = {}
    added = {key: value for key, value in after.items() if before.get(key, _NOTHING) != value}
    removed = sorted(key for key in before if key not in after)
    if added:
        fields[name] = added
    if removed:
        fields[f"{name}_gone"] = removed
    return fields


def omit_updated_channels(step: dict[str, Any]) -> None:
    """Omit the updated channels if they equal those with a new version and a value.

    This is how LangGraph usually sets them.
    """
    rest = step.get("rest", {})
    if "updated_channels" in rest and rest["updated_channels"] == _updated_channels(step):
        step["rest"] = {k: v for k, v in rest.items() if k != "updated_channels"}
        step["updated"] = True


def _updated_channels(step: dict[str, Any]) -> list[str]:
    gone = step.get("gone", ())
    return sorted(name for name in step.get("versions", ()) if name not in gone)


_NOTHING = object()


def _parse_checkpoint_id(key: str | None) -> str:
    """Return the checkpoint id from an event key: `c<id>`, or `c<id>#<number>`."""
    if key is None:
        raise KeyError("checkpoint_id")
    return expand_name(key[1:].partition("#")[0])


def _get_document(step: dict[str, Any], name: str) -> tuple[str, Any]:
    """Return a dict of a step and its form: plain or serialized."""
    if name in step:
        if name == "rest" and step.get("updated"):
            return "plain", {**step[name], "updated_channels": _updated_channels(step)}
        return "plain", step[name]
    return "item", step[f"{name}_item"]


def _apply_changes(
    before: dict[str, Any] | None, step: dict[str, Any], name: str
) -> dict[str, Any]:
    removed = step.get(f"{name}_gone", ())
    remaining = {key: value for key, value in (before or {}).items() if key not in removed}
    return {**remaining, **step.get(name, {})}
