"""The fold of a state stream: the newest value of each key. Pure.

A state stream is a JSON stream of changes: {"type", "key", "value", "headers": {"operation": ...}},
where the operation is insert, update, upsert or delete. Other messages of the stream are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Key = tuple[str, str]
_WRITES = frozenset({"insert", "update", "upsert"})


def find_change(message: Any) -> tuple[Key, bool] | None:
    """Return the key that a message changes, and True if it writes a value; None for others."""
    if not isinstance(message, dict):
        return None
    headers = message.get("headers")
    operation = headers.get("operation") if isinstance(headers, dict) else None
    key = message.get("key")
    if not isinstance(key, str) or not isinstance(operation, str):
        return None
    writes = operation in _WRITES and "value" in message
    if not writes and operation != "delete":
        return None
    return (str(message.get("type", "")), key), writes


def apply(state: dict[Key, Any], change: Any) -> None:
    """Apply one change to `state`."""
    found = find_change(change)
    if found is None:
        return
    key, writes = found
    # A rewritten key moves to the end: the state is in the order of last changes.
    state.pop(key, None)
    if writes:
        state[key] = change["value"]


def fold(changes: Iterable[Any]) -> dict[Key, Any]:
    """Return the state after applying all changes in order."""
    state: dict[Key, Any] = {}
    for change in changes:
        apply(state, change)
    return state
