"""Profiles from JSON. Pure.

Unknown fields are rejected: a misspelled field of a profile that redacts secrets must not be
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from fourfold.errors import InvalidInput
from fourfold.models.streams.profiles.evlog import (
    LEVEL,
    ROUTING_KEY,
    TIMESTAMP,
    EventLog,
    plain_name,
)
from fourfold.models.streams.profiles.profile import GENERIC, GenericProfile
from fourfold.models.streams.profiles.state import StateProtocol

EVENT_REDACT_NAMES_MAX: Final = 100
"""Fields of an event log that are redacted."""
EVENT_ROUTING_NAMES_MAX: Final = 8
"""Fields that the routing key is taken from."""
EVENT_FIELD_NAME_MAX: Final = 200
"""Length of a field name."""


def read(config: Any) -> GenericProfile:
    """Return the profile of a JSON object, or raise InvalidInput."""
    kind = config.get("kind") if isinstance(config, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(
            f"unknown kind of profile {kind!r:.80}"
            if kind is not None
            else "a profile must be an object with a 'kind'",
            hint=f"Use one of {', '.join(_KINDS)}; the default is {GENERIC.to_json()}.",
        )
    return _KINDS[kind](config)


def _generic(config: dict[str, Any]) -> GenericProfile:
    _check_known(config, ("kind",), "profile 'generic'")
    return GENERIC


def _state_protocol(config: dict[str, Any]) -> GenericProfile:
    _check_known(config, ("kind", "touch"), f"profile {StateProtocol.kind!r}")
    touch = config.get("touch", {})
    if not isinstance(touch, dict):
        raise InvalidInput(
            "'touch' of a profile must be an object", hint='Write {"enabled": true}.'
        )
    _check_known(touch, ("enabled",), "'touch' of a profile")
    enabled = touch.get("enabled", False)
    if not isinstance(enabled, bool):
        raise InvalidInput("'touch.enabled' of a profile must be true or false")
    return StateProtocol(touch=enabled)


def _event_log(config: dict[str, Any]) -> GenericProfile:
    _check_known(config, ("kind", "redact", "routingKey"), f"profile {EventLog.kind!r}")
    redact = _names(config.get("redact", ()), "redact", EVENT_REDACT_NAMES_MAX)
    routing = _names(config.get("routingKey", ROUTING_KEY), "routingKey", EVENT_ROUTING_NAMES_MAX)
    profile = EventLog(redact=redact, routing_key=routing)
    for name in redact:
        if not plain_name(name):
            raise InvalidInput(f"'redact' contains {name!r}, which matches no field")
    for name in (TIMESTAMP, LEVEL):
        if name in profile.secrets:
            raise InvalidInput(f"cannot redact {name!r}: readers of events need it")
    for name in routing:
        if name in profile.secrets:
            raise InvalidInput(
                f"cannot use {name!r} as routing key: it is redacted, and routing keys are stored",
                hint="Set 'routingKey' to other fields, or to an empty list for no routing key.",
            )
    return profile


def _names(names: Any, field: str, names_max: int) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or len(names) > names_max:
        raise InvalidInput(
            f"{field!r} of a profile must be a list of at most {names_max} field names"
        )
    for name in names:
        if (
            not isinstance(name, str)
            or not 0 < len(name) <= EVENT_FIELD_NAME_MAX
            or not name.isprintable()
        ):
            raise InvalidInput(
                f"{field!r} of a profile contains an invalid field name {name!r:.80}",
                hint=f"Use printable text of 1 to {EVENT_FIELD_NAME_MAX} characters.",
            )
    return tuple(names)


def _check_known(config: dict[str, Any], known: Collection[str], where: str) -> None:
    unknown = sorted(str(name) for name in config if name not in known)
    if unknown:
        raise InvalidInput(
            f"{where}: unknown field {', '.join(map(repr, unknown)):.200}",
            hint=f"Use {', '.join(known)}.",
        )


_KINDS: dict[str, Callable[[dict[str, Any]], GenericProfile]] = {
    GENERIC.kind: _generic,
    StateProtocol.kind: _state_protocol,
    EventLog.kind: _event_log,
}
