"""What a stream asks of its records over HTTP, and waiting for changes of what they tell.

    {name}/_schema             the registry of its schemas: GET, and POST of what shall be different
    {name}/_profile            what it is used as: GET, and POST of another profile
    {name}/_touch              where it is for those who wait, and its templates: GET
    {name}/_touch/wait         POST of keys: answered when one of them was touched, or in time
    {name}/_touch/templates    POST of what rows shall be waited for by

Whoever changes what a stream asks for needs a key of the scope admin; to wait is to read. A body
has no fields but those that there are: what is misspelled is refused, and not passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, TooLarge
from fourfold.models.streams import Streams
from fourfold.models.streams.touch import ActiveTemplate, Encoding, Entity, Key, Row, Rows, Template
from fourfold.models.streams.validation import JSON, show_offset
from fourfold.server.request import Request, Response
from fourfold.server.stream_reads import ReadTimeouts


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is waited for: `entity` alone, `entity` and `key`, or `template` and `values`."""

    entity: str | None = None
    key: str | None = None
    template: str | None = None
    values: dict[str, str | int | float | bool | None] | None = None


class WaitBody(msgspec.Struct, forbid_unknown_fields=True):
    """For which keys, from where on (without a cursor: from now on), and how long at most."""

    keys: list[KeyBody]
    cursor: str | None = None
    timeout_ms: float | None = None


class TemplateBody(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of an entity that rows shall be waited for by, and what is in each."""

    entity: str
    fields: dict[str, Encoding]
    inactivity_ttl_ms: int | None = None


class TemplatesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Templates that shall be active."""

    templates: list[TemplateBody]


_B = TypeVar("_B")


class StreamRules:
    """Answers requests about the rules of the streams of one store, and about touches."""

    def __init__(self, streams: Streams, timing: ReadTimeouts) -> None:
        self._streams = streams
        self._timing = timing
        self._stopping = False

    def stop(self) -> None:
        """End those who wait, as if their time were over."""
        self._stopping = True
        self._streams.touches.wake_all()

    def handlers(self) -> dict[str, Callable[..., Awaitable[Response]]]:
        """Who answers which route."""
        return {
            "schema": self.schema,
            "set_schema": self.set_schema,
            "profile": self.profile,
            "set_profile": self.set_profile,
            "touch": self.touch,
            "touch_wait": self.wait,
            "touch_templates": self.activate,
        }

    # Schemas and profiles

    async def schema(self, _request: Request, name: str) -> Response:
        return _json(self._streams.schemas.get(name))

    async def set_schema(self, request: Request, name: str) -> Response:
        return _json(await self._streams.schemas.put_async(name, _body(request, object)))

    async def profile(self, _request: Request, name: str) -> Response:
        return _json(self._streams.profiles.get(name).plain())

    async def set_profile(self, request: Request, name: str) -> Response:
        done = await self._streams.profiles.put_async(name, _body(request, object))
        return _json(done.plain())

    # Touches

    async def touch(self, _request: Request, name: str) -> Response:
        found = self._streams.touches.meta(name)
        templates = self._streams.touches.templates(name)
        number = self._streams.info(name).incarnation_number
        return _json(
            {
                "cursor": found.cursor,
                "processed_offset": show_offset(found.processed_through + 1, number),
                "templates": [_shown(each, number) for each in templates],
            }
        )

    async def wait(self, request: Request, name: str) -> Response:
        body = _body(request, WaitBody)
        keys = [_key(number, each) for number, each in enumerate(body.keys)]
        told = await self._streams.touches.wait_async(
            name, body.cursor, keys, self._timeout_s(body), should_stop=lambda: self._stopping
        )
        return _json(told._asdict())

    async def activate(self, request: Request, name: str) -> Response:
        wanted = [
            Template(each.entity, each.fields, each.inactivity_ttl_ms)
            for each in _body(request, TemplatesBody).templates
        ]
        done = await self._streams.touches.activate_async(name, wanted)
        number = self._streams.info(name).incarnation_number
        return _json({"templates": [_shown(each, number) for each in done]})

    def _timeout_s(self, body: WaitBody) -> float:
        longest = self._timing.long_poll_s
        if body.timeout_ms is None:
            return longest
        if body.timeout_ms < 0:
            raise InvalidInput(f"timeout_ms is a number from 0 on, not {body.timeout_ms}")
        return min(longest, body.timeout_ms / 1000)


def _key(number: int, body: KeyBody) -> Key:
    """One of the keys of a wait; they are counted from 0, as the answer counts them."""
    given = {name for name in body.__struct_fields__ if getattr(body, name) is not None}
    if body.entity is not None and given == {"entity"}:
        return Entity(body.entity)
    if body.entity is not None and body.key is not None and given == {"entity", "key"}:
        return Row(body.entity, body.key)
    if body.template is not None and body.values is not None and given == {"template", "values"}:
        return Rows(body.template, body.values)
    said = ", ".join(sorted(given)) or "nothing"
    raise InvalidInput(
        f"key {number} of the wait has {said}",
        hint="A key has entity, entity and key, or template and values.",
    )


def _shown(template: ActiveTemplate, number: int) -> dict[str, Any]:
    return {
        "id": template.id,
        "entity": template.entity,
        "fields": template.fields,
        "state": template.state,
        "active_from_offset": show_offset(template.active_from_offset, number),
        "last_seen_at_ms": template.last_seen_at_ms,
        "inactivity_ttl_ms": template.inactivity_ttl_ms,
    }


def _body(request: Request, kind: type[_B]) -> _B:
    """The body of a request. These are small: what is large is refused before it is looked into."""
    size = len(request.body)
    if size > limits.HTTP_RULES_BODY_MAX:
        raise TooLarge(
            f"the body has {size} bytes; here it has at most {limits.HTTP_RULES_BODY_MAX}",
            hint="Ask for less at once.",
        )
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None


def _json(document: object) -> Response:
    told = {"content-type": JSON, "cache-control": "no-store"}
    return Response(200, told, msgspec.json.encode(document))
