"""Schemas, profiles and touches of a stream over HTTP.

    {name}/_schema             GET the schema registry, POST changes of it
    {name}/_profile            GET the profile, POST another profile
    {name}/_touch              GET the touch cursor and the templates
    {name}/_touch/wait         POST keys: answered when one of them was touched, or after a timeout
    {name}/_touch/templates    POST templates of rows to wait for

Changing the rules of a stream requires a key of the scope admin; waiting requires read. Unknown
fields in a body are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, TooLarge
from fourfold.models.streams import Streams
from fourfold.models.streams.touch import ActiveTemplate, Encoding, Entity, Key, Row, Rows, Template
from fourfold.models.streams.validation import JSON, format_offset
from fourfold.server.request import Request, Response
from fourfold.server.stream_reads import ReadTimeouts


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Key to wait for: `entity` alone, `entity` and `key`, or `template` and `values`."""

    entity: str | None = None
    key: str | None = None
    template: str | None = None
    values: dict[str, str | int | float | bool | None] | None = None


class WaitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Keys to wait for, the cursor to start at (default: now), and the timeout."""

    keys: list[KeyBody]
    cursor: str | None = None
    timeout_ms: float | None = None


class TemplateBody(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of an entity by which rows can be waited for, with their encodings."""

    entity: str
    fields: dict[str, Encoding]
    inactivity_ttl_ms: int | None = None


class TemplatesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Templates to activate."""

    templates: list[TemplateBody]


_B = TypeVar("_B")


class StreamRules:
    """Handle requests about the rules and the touches of the streams of one store."""

    def __init__(self, streams: Streams, timing: ReadTimeouts) -> None:
        self._streams = streams
        self._timing = timing
        self._stopping = False

    def stop(self) -> None:
        """End waiting requests as if they had timed out."""
        self._stopping = True
        self._streams.touches.wake_all()

    def handlers(self) -> dict[str, Callable[..., Awaitable[Response]]]:
        """Return the handler of each route."""
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
        """Return the schema registry of a stream."""
        return _json(self._streams.schemas.get(name))

    async def set_schema(self, request: Request, name: str) -> Response:
        """Change the schema registry of a stream."""
        return _json(await self._streams.schemas.put_async(name, _body(request, object)))

    async def profile(self, _request: Request, name: str) -> Response:
        """Return the profile of a stream."""
        return _json(self._streams.profiles.get(name).to_json())

    async def set_profile(self, request: Request, name: str) -> Response:
        """Change the profile of a stream."""
        profile = await self._streams.profiles.put_async(name, _body(request, object))
        return _json(profile.to_json())

    # Touches

    async def touch(self, _request: Request, name: str) -> Response:
        """Return the touch cursor and the templates of a stream."""
        meta = self._streams.touches.meta(name)
        templates = self._streams.touches.templates(name)
        incarnation_number = self._streams.info(name).incarnation_number
        return _json(
            {
                "cursor": meta.cursor,
                "processed_offset": format_offset(meta.processed_through + 1, incarnation_number),
                "templates": [
                    _template_document(template, incarnation_number) for template in templates
                ],
            }
        )

    async def wait(self, request: Request, name: str) -> Response:
        """Wait until one of the keys is touched."""
        body = _body(request, WaitBody)
        keys = [_key(index, key) for index, key in enumerate(body.keys)]
        change = await self._streams.touches.wait_async(
            name, body.cursor, keys, self._timeout_s(body), should_stop=lambda: self._stopping
        )
        return _json(change._asdict())

    async def activate(self, request: Request, name: str) -> Response:
        """Activate templates of a stream."""
        templates = [
            Template(template.entity, template.fields, template.inactivity_ttl_ms)
            for template in _body(request, TemplatesBody).templates
        ]
        active = await self._streams.touches.activate_async(name, templates)
        incarnation_number = self._streams.info(name).incarnation_number
        return _json(
            {"templates": [_template_document(template, incarnation_number) for template in active]}
        )

    def _timeout_s(self, body: WaitBody) -> float:
        max_timeout_s = self._timing.long_poll_s
        if body.timeout_ms is None:
            return max_timeout_s
        if body.timeout_ms < 0:
            raise InvalidInput(f"timeout_ms: must be 0 or more, got {body.timeout_ms}")
        return min(max_timeout_s, body.timeout_ms / 1000)


def _key(number: int, body: KeyBody) -> Key:
    """Return a key of a wait; `number` is its index in the request, from 0."""
    fields = {name for name in body.__struct_fields__ if getattr(body, name) is not None}
    if body.entity is not None and fields == {"entity"}:
        return Entity(body.entity)
    if body.entity is not None and body.key is not None and fields == {"entity", "key"}:
        return Row(body.entity, body.key)
    if body.template is not None and body.values is not None and fields == {"template", "values"}:
        return Rows(body.template, body.values)
    field_names = ", ".join(sorted(fields)) or "nothing"
    raise InvalidInput(
        f"key {number}: unknown combination of fields, got {field_names}",
        hint="Send entity, entity and key, or template and values.",
    )


def _template_document(template: ActiveTemplate, number: int) -> dict[str, Any]:
    return {
        "id": template.id,
        "entity": template.entity,
        "fields": template.fields,
        "state": template.state,
        "active_from_offset": format_offset(template.active_from_offset, number),
        "last_seen_at_ms": template.last_seen_at_ms,
        "inactivity_ttl_ms": template.inactivity_ttl_ms,
    }


def _body(request: Request, kind: type[_B]) -> _B:
    """Decode the body of a request; a large one is refused before it is decoded."""
    size = len(request.body)
    if size > limits.HTTP_RULES_BODY_MAX:
        raise TooLarge(
            f"body: must be at most {limits.HTTP_RULES_BODY_MAX} bytes, got {size}",
            hint="Send fewer keys or templates at once.",
        )
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"body: does not match the schema: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"body: must be JSON: {error}") from None


def _json(document: object) -> Response:
    headers = {"content-type": JSON, "cache-control": "no-store"}
    return Response(200, headers, msgspec.json.encode(document))
