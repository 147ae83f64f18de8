"""What a caller says about a stream, as the JSON that its registry and its profile are changed by.
Pure, and the same for a stream of a store and for one of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from fourfold.errors import InvalidInput

UNCHANGED: Final = UNSET
"""For what stays as it is: None takes away."""


class KeyPlace(Protocol):
    """Where messages have their routing key, and whether each must have one."""

    @property
    def json_pointer(self) -> str: ...
    @property
    def required(self) -> bool: ...


KeyGiven: TypeAlias = str | KeyPlace | UnsetType | None
"""A place, a JSON pointer that not every message needs something at, or none."""
FieldsGiven: TypeAlias = Sequence[str] | UnsetType | None


def registry_change(
    schema: Any = UNCHANGED,
    lens: Any = None,
    routing_key: KeyGiven = UNCHANGED,
    search: FieldsGiven = UNCHANGED,
) -> dict[str, Any]:
    """A change of a registry: some of `schema`, `lens`, `routingKey` and `search`."""
    change: dict[str, Any] = {}
    if schema is not UNCHANGED:
        change["schema"] = schema
    if lens is not None:
        change["lens"] = lens
    if not isinstance(routing_key, UnsetType):
        change["routingKey"] = _key_place(routing_key)
    if not isinstance(search, UnsetType):
        change["search"] = None if search is None else {"fields": _names(search, "search")}
    return change


def profile(
    kind: str,
    touch: bool | None = None,
    redact: Sequence[str] | None = None,
    routing_key: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A profile with what is said of it; the rest is as it is by default."""
    given: dict[str, Any] = {"kind": kind}
    if touch is not None:
        given["touch"] = {"enabled": touch}
    if redact is not None:
        given["redact"] = _names(redact, "redact")
    if routing_key is not None:
        given["routingKey"] = _names(routing_key, "routing_key")
    return given


def _key_place(given: str | KeyPlace | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return {"jsonPointer": given, "required": False}
    return {"jsonPointer": given.json_pointer, "required": given.required}


def _names(given: Sequence[str], what: str) -> list[str]:
    if isinstance(given, str):
        # Or each of its letters would be taken for a name.
        raise InvalidInput(f"{what} is a list of names", hint=f"Write [{given!r:.80}].")
    return list(given)
