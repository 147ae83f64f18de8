"""The rules of a stream over HTTP: its schemas, its profile, and who waits for changes of it; as
requests, and as what a Fourfold server answers. Pure.

What a newer server tells beside this is passed over. Nothing here needs the database, as little as
the rest of the client.

The calls of both clients on the rules of a stream: schemas, profiles, and waiting for changes.

    client.set_schema("orders", {"type": "object", "required": ["id"]})
    client.set_profile("todos", "state-protocol", touch=True)
    told = client.touch_wait("todos", [Row("todo", "7")], timeout=60)

They are of Fourfold's own server.

One who waits for changes at a server, request after request.

A server lets a request wait for so long only, and connections break. With the cursor of the last
answer the next request goes on where it ended, so no change is missed. One who comes without a
cursor asks for it first, and then waits: if it waited at once and the connection broke, it would
begin anew at a later end of the stream, and never be told of what came in between.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Response
from fourfold.client.transport import Settings
from fourfold.errors import BadAnswer, InvalidInput
from fourfold.models.streams import rules
from fourfold.models.streams.rules import UNCHANGED, FieldsGiven, KeyGiven
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


def registry_of(answer: Response) -> SchemaRegistry:
    return _read(answer, _registry, "the schemas of a stream")


def profile_of(answer: Response) -> StreamProfile:
    return _read(answer, _profile, "the profile of a stream")


def touch_of(answer: Response) -> TouchFacts:
    return _read(answer, _facts, "the touches of a stream")


def touched_of(answer: Response) -> Touched:
    return _read(answer, _touched, "what became of a wait")


def templates_of(answer: Response) -> tuple[LiveTemplate, ...]:
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
    return Call("POST", url, what, headers, {}, requests.as_json(told), repeatable)


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


def _read(answer: Response, understand: Callable[[Any], Out], what: str) -> Out:
    told = responses.document(answer)
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


# The client gives up on a silent connection after CLIENT_LIVE_TIMEOUT_S; the answer comes before.
_ONE_REQUEST_S = limits.CLIENT_LIVE_TIMEOUT_S / 2


class TouchWaiter:
    """Ask for the next `call` until `take` finds that the wait is over."""

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
            raise InvalidInput(f"a wait takes a number of seconds from 0 on, not {timeout!r:.80}")
        if isinstance(keys, tuple) and hasattr(keys, "_fields"):
            raise InvalidInput("the keys of a wait are a list", hint=f"Wait for [{keys!r:.80}].")
        self._address = address
        self._name = name
        self._keys = list(keys)
        self._cursor = cursor
        self._clock = clock
        self._until = math.inf if timeout is None else clock() + timeout

    def call(self) -> Call:
        """The next request."""
        pause = 0.0 if self._cursor is None else min(max(self._left_s(), 0.0), _ONE_REQUEST_S)
        # Rounded up, or the last moment would be spent on requests that do not wait.
        return touch_wait(
            self._address, self._name, self._keys, self._cursor, math.ceil(1000 * pause)
        )

    def take(self, answer: Response) -> Touched | None:
        """What became of the wait; None when it goes on."""
        told = touched_of(answer)
        self._cursor = told.cursor
        return told if told.touched or told.stale or self._left_s() <= 0 else None

    def _left_s(self) -> float:
        return self._until - self._clock()


class RuleCalls(ABC):
    """For threads."""

    settings: Settings

    @abstractmethod
    def send(self, call: Call) -> Response:
        """One request, repeated while that is safe."""

    def schema(self, name: str) -> SchemaRegistry:
        """The schemas of a stream, and what else is declared of its messages."""
        return registry_of(self.send(schema(self.settings.address, name)))

    def set_schema(
        self,
        name: str,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyGiven = UNCHANGED,
        search: FieldsGiven = UNCHANGED,
    ) -> SchemaRegistry:
        """A new version of the schema of a stream, with a lens that brings messages of the version
        before into it; and where messages have their routing key, and by which fields they are
        found. What is not given stays as it is. A schema is not sent again when no answer comes:
        that raises OutcomeUnknown.
        """
        change = rules.registry_change(schema, lens, routing_key, search)
        call = set_schema(self.settings.address, name, change)
        return registry_of(self.send(call))

    def profile(self, name: str) -> StreamProfile:
        """What a stream is used as."""
        return profile_of(self.send(profile(self.settings.address, name)))

    def set_profile(
        self,
        name: str,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> StreamProfile:
        """Use a stream as something: "generic", "state-protocol" (with `touch`), or "evlog" (with
        `redact` and `routing_key`). What is not given is as it is by default.
        """
        given = rules.profile(kind, touch, redact, routing_key)
        call = set_profile(self.settings.address, name, given)
        return profile_of(self.send(call))

    def touch(self, name: str) -> TouchFacts:
        """Where a stream is for those who wait for changes of it, and its live templates."""
        return touch_of(self.send(touch(self.settings.address, name)))

    def touch_wait(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        cursor: str | None = None,
        timeout: float | None = None,
    ) -> Touched:
        """Wait until one of the keys is touched by a change behind the cursor, from now on if there
        is none; at most `timeout` seconds, for ever if not given. It goes on over the limits of the
        server and over connections that break, and misses nothing.
        """
        waiting = TouchWaiter(self.settings.address, name, keys, cursor, timeout)
        while True:
            told = waiting.take(self.send(waiting.call()))
            if told is not None:
                return told

    def touch_templates(self, name: str, wanted: Sequence[Template]) -> tuple[LiveTemplate, ...]:
        """Make live templates active, so that somebody can wait with them; in the order given."""
        call = touch_templates(self.settings.address, name, wanted)
        return templates_of(self.send(call))


class AsyncRuleCalls(ABC):
    """The same for coroutines."""

    settings: Settings

    @abstractmethod
    async def send(self, call: Call) -> Response:
        """One request, repeated while that is safe."""

    async def schema(self, name: str) -> SchemaRegistry:
        """The schemas of a stream, and what else is declared of its messages."""
        return registry_of(await self.send(schema(self.settings.address, name)))

    async def set_schema(
        self,
        name: str,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyGiven = UNCHANGED,
        search: FieldsGiven = UNCHANGED,
    ) -> SchemaRegistry:
        """A new version of the schema of a stream, and other declarations; what is not given stays
        as it is.
        """
        change = rules.registry_change(schema, lens, routing_key, search)
        call = set_schema(self.settings.address, name, change)
        return registry_of(await self.send(call))

    async def profile(self, name: str) -> StreamProfile:
        """What a stream is used as."""
        return profile_of(await self.send(profile(self.settings.address, name)))

    async def set_profile(
        self,
        name: str,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> StreamProfile:
        """Use a stream as something; what is not given is as it is by default."""
        given = rules.profile(kind, touch, redact, routing_key)
        call = set_profile(self.settings.address, name, given)
        return profile_of(await self.send(call))

    async def touch(self, name: str) -> TouchFacts:
        """Where a stream is for those who wait for changes of it, and its live templates."""
        return touch_of(await self.send(touch(self.settings.address, name)))

    async def touch_wait(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        cursor: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a wait that is over gives a cursor
    ) -> Touched:
        """Wait until one of the keys is touched by a change behind the cursor. Cancel it to end
        it.
        """
        waiting = TouchWaiter(self.settings.address, name, keys, cursor, timeout)
        while True:
            told = waiting.take(await self.send(waiting.call()))
            if told is not None:
                return told

    async def touch_templates(
        self, name: str, wanted: Sequence[Template]
    ) -> tuple[LiveTemplate, ...]:
        """Make live templates active, so that somebody can wait with them; in the order given."""
        call = touch_templates(self.settings.address, name, wanted)
        return templates_of(await self.send(call))
