"""The rules of a stream over HTTP: its schemas, its profile, and who waits for changes of it; as
requests, and as what a Fourfold server answers. Pure.

What a newer server tells beside this is passed over. Nothing here needs the database, as little as
the rest of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fourfold.client import answers, calls
from fourfold.client.answers import Answer
from fourfold.client.calls import Address, Call
from fourfold.errors import BadAnswer, InvalidInput
from fourfold.models.streams.touch.records import Entity, Key, Row, Rows, Template, Touched

Out = TypeVar("Out")


class RoutingKey(NamedTuple):
    """Where messages have their routing key, and whether each must have one."""

    json_pointer: str
    required: bool = False


class Boundary(NamedTuple):
    """From which offset on a version holds."""

    offset: str
    version: int


class SchemaRegistry(NamedTuple):
    """What a stream asks of its messages. A lens leads from the version that it stands under to
    the next one.
    """

    current_version: int
    """0 when there is no schema."""
    schemas: dict[int, Any]
    lenses: dict[int, Any]
    boundaries: tuple[Boundary, ...]
    routing_key: RoutingKey | None
    search: tuple[str, ...] | None
    """The fields that messages are found by."""

    @property
    def schema(self) -> Any:
        """The current schema; None when there is none."""
        return self.schemas.get(self.current_version)


class StreamProfile(NamedTuple):
    """What a stream is used as."""

    kind: str
    touch: bool
    """Whether somebody can wait for changes of it."""
    redact: tuple[str, ...]
    """What an event log keeps out, beside the names that are always secret."""
    routing_key: tuple[str, ...]
    """The fields that events of an event log are found by."""


class LiveTemplate(NamedTuple):
    """A template that a stream has."""

    id: str
    entity: str
    fields: dict[str, str]
    state: str
    active_from_offset: str
    last_seen_at_ms: int | None = None
    inactivity_ttl_ms: int | None = None


class TouchFacts(NamedTuple):
    """Where a stream is for those who wait: a cursor at its end, up to where its changes were
    looked at, and its templates, those included that were retired.
    """

    cursor: str
    processed_offset: str
    templates: tuple[LiveTemplate, ...]


def schema(address: Address, name: str) -> Call:
    return _ask(address, name, "_schema", f"look at the schema of {name!r}")


def set_schema(address: Address, name: str, change: Mapping[str, Any]) -> Call:
    """A schema is not sent twice: somebody else may have set another one in between, and it would
    become a version once more. The rest is as if it were sent once.
    """
    what = f"set the schema of {name!r}"
    return _tell(address, name, "_schema", what, change, repeatable="schema" not in change)


def profile(address: Address, name: str) -> Call:
    return _ask(address, name, "_profile", f"look at the profile of {name!r}")


def set_profile(address: Address, name: str, given: Mapping[str, Any]) -> Call:
    return _tell(address, name, "_profile", f"set the profile of {name!r}", given)


def touch(address: Address, name: str) -> Call:
    return _ask(address, name, "_touch", f"look at the touches of {name!r}")


def touch_wait(
    address: Address, name: str, keys: Iterable[Key], cursor: str | None, timeout_ms: int
) -> Call:
    asked = {
        "cursor": cursor,
        "keys": [_key(each) for each in keys],
        "timeout_ms": timeout_ms,
    }
    call = _tell(address, name, "_touch/wait", f"wait for changes of {name!r}", asked)
    return call._replace(live=True)


def touch_templates(address: Address, name: str, wanted: Iterable[Template]) -> Call:
    rows = []
    for each in wanted:
        row: dict[str, Any] = {"entity": each.entity, "fields": dict(each.fields)}
        if each.inactivity_ttl_ms is not None:
            row["inactivity_ttl_ms"] = each.inactivity_ttl_ms
        rows.append(row)
    what = f"activate templates of {name!r}"
    return _tell(address, name, "_touch/templates", what, {"templates": rows})


def registry_of(answer: Answer) -> SchemaRegistry:
    return _read(answer, _registry, "the schemas of a stream")


def profile_of(answer: Answer) -> StreamProfile:
    return _read(answer, _profile, "the profile of a stream")


def touch_of(answer: Answer) -> TouchFacts:
    return _read(answer, _facts, "the touches of a stream")


def touched_of(answer: Answer) -> Touched:
    return _read(answer, _touched, "what became of a wait")


def templates_of(answer: Answer) -> tuple[LiveTemplate, ...]:
    return _read(answer, _templates, "the templates of a stream")


def _ask(address: Address, name: str, part: str, what: str) -> Call:
    return Call("GET", f"{address.stream(name)}/{part}", what, {}, {})


def _tell(
    address: Address,
    name: str,
    part: str,
    what: str,
    told: Mapping[str, Any],
    *,
    repeatable: bool = True,
) -> Call:
    url = f"{address.stream(name)}/{part}"
    headers = {"content-type": "application/json"}
    return Call("POST", url, what, headers, {}, calls.as_json(told), repeatable)


def _key(key: Key) -> dict[str, Any]:
    match key:
        case Entity(entity):
            return {"entity": entity}
        case Row(entity, row):
            return {"entity": entity, "key": row}
        case Rows(template_id, values):
            return {"template": template_id, "values": dict(values)}
        case _:
            raise InvalidInput(
                f"{key!r:.80} cannot be waited for", hint="Wait for an Entity, a Row or the Rows."
            )


def _read(answer: Answer, understand: Callable[[Any], Out], what: str) -> Out:
    told = answers.document(answer)
    try:
        return understand(told)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswer(
            f"the server does not tell {what} as Fourfold does: {error!r:.200}",
            hint="Schemas, profiles and touches are those of Fourfold's own server.",
        ) from None


def _registry(told: Any) -> SchemaRegistry:
    key, search = told["routingKey"], told["search"]
    return SchemaRegistry(
        int(told["currentVersion"]),
        {int(version): each for version, each in told["schemas"].items()},
        {int(version): each for version, each in told["lenses"].items()},
        tuple(Boundary(each["offset"], each["version"]) for each in told["boundaries"]),
        None if key is None else RoutingKey(key["jsonPointer"], key["required"]),
        None if search is None else tuple(search["fields"]),
    )


def _profile(told: Any) -> StreamProfile:
    return StreamProfile(
        told["kind"],
        told.get("touch", {}).get("enabled", False),
        tuple(told.get("redact", ())),
        tuple(told.get("routingKey", ())),
    )


def _templates(told: Any) -> tuple[LiveTemplate, ...]:
    return tuple(map(_template, told["templates"]))


def _template(told: Any) -> LiveTemplate:
    return LiveTemplate(
        told["id"],
        told["entity"],
        dict(told["fields"]),
        told["state"],
        told["active_from_offset"],
        told.get("last_seen_at_ms"),
        told.get("inactivity_ttl_ms"),
    )


def _facts(told: Any) -> TouchFacts:
    return TouchFacts(told["cursor"], told["processed_offset"], _templates(told))


def _touched(told: Any) -> Touched:
    return Touched(told["touched"], told["stale"], told["cursor"], tuple(told["keys"]))
