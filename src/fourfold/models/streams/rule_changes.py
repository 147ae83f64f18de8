"""Changes of a stream's schema registry and profile, as the JSON that stores and servers accept.

This module is pure: clients use it without loading a database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from fourfold.errors import InvalidInput

UNCHANGED: Final = UNSET
"""Marks a setting that does not change; None removes it."""


class KeyPlace(Protocol):
    """Location of the routing key in messages, and whether it is required."""

    @property
    def json_pointer(self) -> str:
        """Pointer to the key in a message."""
        ...

    @property
    def required(self) -> bool:
        """True if every message must have the key."""
        ...


KeyChange: TypeAlias = str | KeyPlace | UnsetType | None
"""A location, a JSON pointer (not required), None for no routing key, or UNCHANGED."""
FieldsChange: TypeAlias = Sequence[str] | Mapping[str, Any] | UnsetType | None
"""Fields to find messages by, or a whole search declaration; None for none, or UNCHANGED."""


def registry_change(
    schema: Any = UNCHANGED,
    lens: Any = None,
    routing_key: KeyChange = UNCHANGED,
    search: FieldsChange = UNCHANGED,
) -> dict[str, Any]:
    """Build the JSON that changes a registry: `schema`, `lens`, `routingKey`, `search`."""
    change: dict[str, Any] = {}
    if schema is not UNCHANGED:
        change["schema"] = schema
    if lens is not None:
        change["lens"] = lens
    if not isinstance(routing_key, UnsetType):
        change["routingKey"] = _key_place(routing_key)
    if not isinstance(search, UnsetType):
        change["search"] = _search(search)
    return change


def profile(
    kind: str,
    touch: bool | None = None,
    redact: Sequence[str] | None = None,
    routing_key: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Build the JSON of a profile; omitted options have their defaults."""
    options: dict[str, Any] = {"kind": kind}
    if touch is not None:
        options["touch"] = {"enabled": touch}
    if redact is not None:
        options["redact"] = _names(redact, "redact")
    if routing_key is not None:
        options["routingKey"] = _names(routing_key, "routing_key")
    return options


def _key_place(place: str | KeyPlace | None) -> dict[str, Any] | None:
    if place is None:
        return None
    if isinstance(place, str):
        return {"jsonPointer": place, "required": False}
    if not hasattr(place, "json_pointer") or not hasattr(place, "required"):
        raise InvalidInput(
            f"routing_key must be a JSON pointer or a KeyPlace, got {place!r:.80}",
            hint='For example "/user/id".',
        )
    return {"jsonPointer": place.json_pointer, "required": place.required}


def _search(search: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if search is None:
        return None
    if isinstance(search, Mapping):
        return dict(search)
    return {"fields": _names(search, "search")}


def _names(names: Sequence[str], option: str) -> list[str]:
    if isinstance(names, str):
        # Otherwise each of its characters would become a name.
        raise InvalidInput(
            f"{option} must be a list of names, got {names!r:.80}",
            hint=f"Write [{names!r:.80}].",
        )
    return list(names)
