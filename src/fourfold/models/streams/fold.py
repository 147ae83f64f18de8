"""The fold of a state stream: the newest value of each key. Pure.

A state stream is a JSON stream of changes: {"type", "key", "value", "headers": {"operation": ...}},
where the operation is insert, update, upsert or delete. Other messages of the stream are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Key = tuple[str, str]
_WRITES = frozenset({"insert", "update", "upsert"})


def apply(state: dict[Key, Any], change: Any) -> None:
    """Apply one change to `state`."""
    if not isinstance(change, dict):
        return
    headers = change.get("headers")
    operation = headers.get("operation") if isinstance(headers, dict) else None
    key = (str(change.get("type", "")), change.get("key"))
    if not isinstance(key[1], str) or not isinstance(operation, str):
        return
    if operation in _WRITES and "value" in change:
        # A rewritten key moves to the end: the state is in the order of last changes.
        state.pop(key, None)  # type: ignore[arg-type]
        state[key] = change["value"]  # type: ignore[index]
    elif operation == "delete":
        state.pop(key, None)  # type: ignore[arg-type]


def fold(changes: Iterable[Any]) -> dict[Key, Any]:
    """Return the state after applying all changes in order."""
    state: dict[Key, Any] = {}
    for change in changes:
        apply(state, change)
    return state
