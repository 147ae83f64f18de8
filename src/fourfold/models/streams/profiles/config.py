"""A profile from the JSON that somebody asked for it with. Pure.

Nothing that is not known is let through: a field that is spelled wrong in a profile that keeps
secrets out must not pass for one that works.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.profiles.evlog import (
    LEVEL,
    ROUTING_KEY,
    TIMESTAMP,
    EventLog,
    plain_name,
)
from fourfold.models.streams.profiles.profile import GENERIC, Profile
from fourfold.models.streams.profiles.state import StateProtocol


def read(given: Any) -> Profile:
    """The profile that `given` stands for; InvalidInput when there is none such."""
    kind = given.get("kind") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(
            f"{kind!r:.80} is no kind of profile"
            if kind is not None
            else "a profile is an object with a 'kind'",
            hint=f"There are {', '.join(_KINDS)}; the usual one is {GENERIC.plain()}.",
        )
    return _KINDS[kind](given)


def _generic(given: dict[str, Any]) -> Profile:
    _refuse_unknown(given, ("kind",), "the profile 'generic'")
    return GENERIC


def _state_protocol(given: dict[str, Any]) -> Profile:
    _refuse_unknown(given, ("kind", "touch"), f"the profile {StateProtocol.kind!r}")
    touch = given.get("touch", {})
    if not isinstance(touch, dict):
        raise InvalidInput("'touch' of a profile is an object", hint='Write {"enabled": true}.')
    _refuse_unknown(touch, ("enabled",), "'touch' of a profile")
    enabled = touch.get("enabled", False)
    if not isinstance(enabled, bool):
        raise InvalidInput("'touch.enabled' of a profile is true or false")
    return StateProtocol(touch=enabled)


def _event_log(given: dict[str, Any]) -> Profile:
    _refuse_unknown(given, ("kind", "redact", "routingKey"), f"the profile {EventLog.kind!r}")
    redact = _names(given.get("redact", ()), "redact", limits.EVENT_REDACT_NAMES_MAX)
    routing = _names(
        given.get("routingKey", ROUTING_KEY), "routingKey", limits.EVENT_ROUTING_NAMES_MAX
    )
    profile = EventLog(redact=redact, routing_key=routing)
    for name in redact:
        if not plain_name(name):
            raise InvalidInput(f"'redact' has {name!r}, which names nothing")
    for name in (TIMESTAMP, LEVEL):
        if name in profile.secrets:
            raise InvalidInput(f"{name!r} of an event cannot be redacted: readers need it")
    for name in routing:
        if name in profile.secrets:
            raise InvalidInput(
                f"{name!r} is redacted and cannot be a routing key, which is kept as it is",
                hint="Give 'routingKey' other fields, or an empty list for no routing key.",
            )
    return profile


def _names(given: Any, field: str, most: int) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or len(given) > most:
        raise InvalidInput(f"{field!r} of a profile is a list of at most {most} names of fields")
    for name in given:
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= limits.EVENT_FIELD_NAME_MAX
            or not name.isprintable()
        ):
            raise InvalidInput(
                f"{name!r:.80} in {field!r} of a profile is not the name of a field",
                hint=f"Use printable text of 1 to {limits.EVENT_FIELD_NAME_MAX} characters.",
            )
    return tuple(given)


def _refuse_unknown(given: dict[str, Any], known: Collection[str], where: str) -> None:
    unknown = sorted(str(name) for name in given if name not in known)
    if unknown:
        raise InvalidInput(
            f"{where} has no field {', '.join(map(repr, unknown)):.200}",
            hint=f"There are {', '.join(known)}.",
        )


_KINDS: dict[str, Callable[[dict[str, Any]], Profile]] = {
    GENERIC.kind: _generic,
    StateProtocol.kind: _state_protocol,
    EventLog.kind: _event_log,
}
