"""Rules of a stream over HTTP: schemas, profiles, and waiting for changes of rows.

    client.set_schema("orders", {"type": "object", "required": ["id"]})
    client.set_profile("todos", "state-protocol", touch=True)
    change = client.touch_wait("todos", [Row("todo", "7")], timeout=60)

These are features of Fourfold's server. Unknown fields in responses of a newer server are ignored.
Nothing here needs the database.

A wait consists of several requests, since a server limits how long a request may wait, and
connections break. The cursor of the last response lets the next request continue without missing a
change. A wait without a cursor fetches one first: if it waited at once and the connection broke, it
would restart at a later end of the stream and miss the changes in between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Response
from fourfold.errors import InvalidInput
from fourfold.models.streams.touch.records import (
    EntityKey,
    Key,
    RowKey,
    Template,
    TemplateKey,
    WaitResult,
)
from fourfold.wire.streams import (
    NewTemplate,
    NewTemplates,
    ProfileBody,
    RegistryBody,
    TouchKey,
    TouchResult,
    TouchState,
    TouchTemplate,
    TouchTemplates,
    TouchWait,
)


class RoutingKey(NamedTuple):
    """Location of the routing key in messages; `required` refuses messages without it."""

    json_pointer: str
    required: bool = False


class Boundary(NamedTuple):
    """The first offset to which a schema version applies."""

    offset: str
    version: int


class SchemaRegistry(NamedTuple):
    """Schemas of a stream's messages. A lens converts from its version to the next one."""

    current_version: int
    """0 if there is no schema."""
    schemas: dict[int, Any]
    lenses: dict[int, Any]
    boundaries: tuple[Boundary, ...]
    routing_key: RoutingKey | None
    search: tuple[str, ...] | None
    """Fields by which messages can be found in indexes."""
    declaration: dict[str, Any] | None = None
    """The whole search declaration."""

    @property
    def schema(self) -> Any:
        """The current schema, or None."""
        return self.schemas.get(self.current_version)


class StreamProfile(NamedTuple):
    """The profile of a stream."""

    kind: str
    touch: bool
    """True if `touch_wait` is available."""
    redact: tuple[str, ...]
    """Fields that an event log redacts, besides those that are always secret."""
    routing_key: tuple[str, ...]
    """Fields that form the routing key of an event log."""


class LiveTemplate(NamedTuple):
    """A template of a stream."""

    id: str
    entity: str
    fields: dict[str, str]
    state: str
    active_from_offset: str
    last_seen_at_ms: int | None = None
    inactivity_ttl_ms: int | None = None


class TouchFacts(NamedTuple):
    """Touch state of a stream: a cursor at its end, the processed offset, and its templates.

    Retired templates are included.
    """

    cursor: str
    processed_offset: str
    templates: tuple[LiveTemplate, ...]


def schema(address: Address, name: str) -> Call:
    """Build the request for the schema registry."""
    return _get_call(address, name, "_schema", f"get the schema of {name!r}")


def set_schema(address: Address, name: str, change: Mapping[str, Any]) -> Call:
    """Build the request that changes the schema registry.

    A schema is not sent twice: another client may have set one in between, and it would become a
    version again. Other changes are idempotent.
    """
    operation = f"set the schema of {name!r}"
    return _post_call(
        address, name, "_schema", operation, change, repeatable="schema" not in change
    )


def profile(address: Address, name: str) -> Call:
    """Build the request for the profile."""
    return _get_call(address, name, "_profile", f"get the profile of {name!r}")


def set_profile(address: Address, name: str, document: Mapping[str, Any]) -> Call:
    """Build the request that changes the profile."""
    return _post_call(address, name, "_profile", f"set the profile of {name!r}", document)


def touch(address: Address, name: str) -> Call:
    """Build the request for the touch cursor and the templates."""
    return _get_call(address, name, "_touch", f"get the touches of {name!r}")


def touch_wait(
    address: Address, name: str, keys: Iterable[Key], cursor: str | None, timeout_ms: int
) -> Call:
    """Build a request that waits for one of the keys."""
    body = TouchWait(keys=[_key(key) for key in keys], cursor=cursor, timeout_ms=timeout_ms)
    document = msgspec.to_builtins(body)
    call = _post_call(address, name, "_touch/wait", f"wait for changes of {name!r}", document)
    return call._replace(live=True)


def touch_templates(address: Address, name: str, templates: Iterable[Template]) -> Call:
    """Build the request that activates templates."""
    body = NewTemplates(
        [
            NewTemplate(
                entity=template.entity,
                fields=dict(template.fields),
                inactivity_ttl_ms=template.inactivity_ttl_ms,
            )
            for template in templates
        ]
    )
    operation = f"activate templates of {name!r}"
    return _post_call(address, name, "_touch/templates", operation, msgspec.to_builtins(body))


def parse_registry(response: Response) -> SchemaRegistry:
    """Parse a schema registry."""
    body = responses.decode(response, RegistryBody, "the schemas of a stream")
    key, search = body.routing_key, body.search
    return SchemaRegistry(
        body.current_version,
        {int(version): entry for version, entry in body.schemas.items()},
        {int(version): entry for version, entry in body.lenses.items()},
        tuple(Boundary(entry.offset, entry.version) for entry in body.boundaries),
        None if key is None else RoutingKey(key.json_pointer, key.required),
        None if search is None else tuple(search.fields),
        None if search is None else msgspec.to_builtins(search),
    )


def parse_profile(response: Response) -> StreamProfile:
    """Parse a profile."""
    body = responses.decode(response, ProfileBody, "the profile of a stream")
    touch = False if body.touch is UNSET else body.touch.enabled
    return StreamProfile(body.kind, touch, tuple(body.redact or ()), tuple(body.routing_key or ()))


def parse_touch_facts(response: Response) -> TouchFacts:
    """Parse the touch cursor and the templates."""
    body = responses.decode(response, TouchState, "the touches of a stream")
    return TouchFacts(body.cursor, body.processed_offset, tuple(map(_template, body.templates)))


def parse_touched(response: Response) -> WaitResult:
    """Parse the result of a wait."""
    body = responses.decode(response, TouchResult, "the result of a wait")
    return WaitResult(body.touched, body.stale, body.cursor, tuple(body.keys))


def parse_templates(response: Response) -> tuple[LiveTemplate, ...]:
    """Parse active templates."""
    body = responses.decode(response, TouchTemplates, "the templates of a stream")
    return tuple(map(_template, body.templates))


def _template(body: TouchTemplate) -> LiveTemplate:
    return LiveTemplate(*(getattr(body, name) for name in LiveTemplate._fields))


def _get_call(address: Address, name: str, part: str, operation: str) -> Call:
    return Call("GET", f"{address.stream(name)}/{part}", operation, {}, {})


def _post_call(
    address: Address,
    name: str,
    part: str,
    operation: str,
    document: Mapping[str, Any],
    *,
    repeatable: bool = True,
) -> Call:
    url = f"{address.stream(name)}/{part}"
    headers = {"content-type": "application/json"}
    return Call("POST", url, operation, headers, {}, requests.to_json(document), repeatable)


def _key(key: Key) -> TouchKey:
    match key:
        case EntityKey(entity):
            return TouchKey(entity=entity)
        case RowKey(entity, row):
            return TouchKey(entity=entity, key=row)
        case TemplateKey(template_id, values):
            return TouchKey(template=template_id, values=dict(values))
        case _:
            raise InvalidInput(f"key: must be an Entity, a Row or Rows, got {key!r:.80}")


# Less than CLIENT_LIVE_TIMEOUT_S, after which the client closes a silent connection.
_REQUEST_TIMEOUT_S = limits.CLIENT_LIVE_TIMEOUT_S / 2


class TouchWaiter:
    """A wait: send `call()` and pass the response to `receive()` until that returns a result."""

    def __init__(
        self,
        address: Address,
        name: str,
        keys: Sequence[Key],
        cursor: str | None,
        timeout: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if timeout is not None and not 0 <= timeout < math.inf:
            raise InvalidInput(f"timeout: must be 0 or more seconds, got {timeout!r:.80}")
        if isinstance(keys, tuple) and hasattr(keys, "_fields"):
            raise InvalidInput(
                f"keys: must be a list, got {keys!r:.80}", hint="Put the key into a list."
            )
        self._address = address
        self._name = name
        self._keys = list(keys)
        self._cursor = cursor
        self._clock = clock
        self._deadline = math.inf if timeout is None else clock() + timeout

    def call(self) -> Call:
        """Return the next request."""
        pause = 0.0 if self._cursor is None else min(max(self._left_s(), 0.0), _REQUEST_TIMEOUT_S)
        # Rounded up: otherwise the last milliseconds would be spent on requests that do not wait.
        return touch_wait(
            self._address, self._name, self._keys, self._cursor, math.ceil(1000 * pause)
        )

    def receive(self, response: Response) -> WaitResult | None:
        """Process a response; return the result of the wait, or None if it continues."""
        change = parse_touched(response)
        self._cursor = change.cursor
        return change if change.touched or change.stale or self._left_s() <= 0 else None

    def _left_s(self) -> float:
        return self._deadline - self._clock()
