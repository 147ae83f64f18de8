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

from typing import Final

import msgspec

from fourfold import limits
from fourfold.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    MissingDependency,
    NotFound,
    PreconditionFailed,
    StreamGone,
)
from fourfold.models.streams import Streams
from fourfold.models.streams.touch import (
    ActiveTemplate,
    EntityKey,
    Key,
    RowKey,
    Template,
    TemplateKey,
)
from fourfold.models.streams.validation import format_offset
from fourfold.server.request import Request, Response, json_response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.stream_reads import STREAM, ReadTimeouts
from fourfold.wire.streams import (
    NewProfile,
    NewTemplates,
    ProfileBody,
    RegistryBody,
    RegistryChange,
    TouchKey,
    TouchResult,
    TouchState,
    TouchTemplate,
    TouchTemplates,
    TouchWait,
)

HTTP_RULES_BODY_MAX: Final = 1 * limits.MIB
"""Bytes of a body that sets rules of a stream, or lists keys to wait for."""

DETAILS: Final = "/_details"
_SCHEMA: Final = "/_schema"
_PROFILE: Final = "/_profile"
_TOUCH: Final = "/_touch"
SEARCH: Final = "/_search"
AGGREGATE: Final = "/_aggregate"
COMPACT: Final = "/_compact"
RESERVED: Final = (
    *(DETAILS, SEARCH, AGGREGATE, _SCHEMA, _PROFILE, COMPACT),
    *(_TOUCH, f"{_TOUCH}/wait", f"{_TOUCH}/templates"),
)
"""Suffixes of reserved paths below a stream; names of new streams must not end in them."""


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

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    # Schemas and profiles

    async def schema(self, _request: Request, name: str) -> Response:
        """Return the schema registry of a stream."""
        return json_response(self._streams.schemas.get(name))

    async def set_schema(self, _request: Request, name: str, body: RegistryChange) -> Response:
        """Change the schema registry of a stream."""
        change = msgspec.to_builtins(body)
        return json_response(await self._streams.schemas.put_async(name, change))

    async def profile(self, _request: Request, name: str) -> Response:
        """Return the profile of a stream."""
        return json_response(self._streams.profiles.get(name).to_json())

    async def set_profile(self, _request: Request, name: str, body: NewProfile) -> Response:
        """Change the profile of a stream."""
        profile = await self._streams.profiles.put_async(name, msgspec.to_builtins(body))
        return json_response(profile.to_json())

    # Touches

    async def touch(self, _request: Request, name: str) -> Response:
        """Return the touch cursor and the templates of a stream."""
        meta = self._streams.touches.meta(name)
        templates = self._streams.touches.templates(name)
        incarnation_number = self._streams.info(name).incarnation_number
        return json_response(
            TouchState(
                cursor=meta.cursor,
                processed_offset=format_offset(meta.processed_through + 1, incarnation_number),
                templates=[_template(template, incarnation_number) for template in templates],
            )
        )

    async def wait(self, _request: Request, name: str, body: TouchWait) -> Response:
        """Wait until one of the keys is touched."""
        keys = [_key(index, key) for index, key in enumerate(body.keys)]
        change = await self._streams.touches.wait_async(
            name, body.cursor, keys, self._timeout_s(body), should_stop=lambda: self._stopping
        )
        return json_response(
            TouchResult(
                touched=change.touched,
                stale=change.stale,
                cursor=change.cursor,
                keys=list(change.keys),
            )
        )

    async def activate(self, _request: Request, name: str, body: NewTemplates) -> Response:
        """Activate templates of a stream."""
        templates = [
            Template(template.entity, template.fields, template.inactivity_ttl_ms)
            for template in body.templates
        ]
        active = await self._streams.touches.activate_async(name, templates)
        incarnation_number = self._streams.info(name).incarnation_number
        return json_response(
            TouchTemplates([_template(template, incarnation_number) for template in active])
        )

    def _timeout_s(self, body: TouchWait) -> float:
        max_timeout_s = self._timing.long_poll_s
        if body.timeout_ms is None:
            return max_timeout_s
        if body.timeout_ms < 0:
            raise InvalidInput(f"timeout_ms: must be 0 or more, got {body.timeout_ms}")
        return min(max_timeout_s, body.timeout_ms / 1000)


def _key(number: int, body: TouchKey) -> Key:
    """Return a key of a wait; `number` is its index in the request, from 0."""
    fields = {name for name in body.__struct_fields__ if getattr(body, name) is not None}
    if body.entity is not None and fields == {"entity"}:
        return EntityKey(body.entity)
    if body.entity is not None and body.key is not None and fields == {"entity", "key"}:
        return RowKey(body.entity, body.key)
    if body.template is not None and body.values is not None and fields == {"template", "values"}:
        return TemplateKey(body.template, body.values)
    field_names = ", ".join(sorted(fields)) or "nothing"
    raise InvalidInput(
        f"key {number}: unknown combination of fields, got {field_names}",
        hint="Send entity, entity and key, or template and values.",
    )


def _template(template: ActiveTemplate, incarnation_number: int) -> TouchTemplate:
    return TouchTemplate(
        id=template.id,
        entity=template.entity,
        fields=dict(template.fields),
        state=template.state,
        active_from_offset=format_offset(template.active_from_offset, incarnation_number),
        last_seen_at_ms=template.last_seen_at_ms,
        inactivity_ttl_ms=template.inactivity_ttl_ms,
    )


_GONE: Final = (NotFound, StreamGone)
_ROUTES: Final = (
    Route(
        *("GET", f"{STREAM}{_SCHEMA}", StreamRules.schema),
        operation="schema",
        summary="Get the schemas of a stream's messages.",
        scope="read",
        resource="name",
        ok={200: Ok("The schema registry.", RegistryBody)},
        errors=_GONE,
    ),
    Route(
        *("POST", f"{STREAM}{_SCHEMA}", StreamRules.set_schema),
        operation="set_schema",
        summary="Change the schemas of a stream's messages.",
        scope="admin",
        resource="name",
        body=RegistryChange,
        body_max=HTTP_RULES_BODY_MAX,
        ok={200: Ok("The changed schema registry.", RegistryBody)},
        errors=(*_GONE, PreconditionFailed, MissingDependency),
    ),
    Route(
        *("GET", f"{STREAM}{_PROFILE}", StreamRules.profile),
        operation="profile",
        summary="Get the profile of a stream.",
        scope="read",
        resource="name",
        ok={200: Ok("The profile.", ProfileBody)},
        errors=_GONE,
    ),
    Route(
        *("POST", f"{STREAM}{_PROFILE}", StreamRules.set_profile),
        operation="set_profile",
        summary="Change the profile of a stream.",
        scope="admin",
        resource="name",
        body=NewProfile,
        body_max=HTTP_RULES_BODY_MAX,
        ok={200: Ok("The changed profile, with all defaults.", ProfileBody)},
        errors=(*_GONE, Conflict),
    ),
    Route(
        *("GET", f"{STREAM}{_TOUCH}", StreamRules.touch),
        operation="touch",
        summary="Get the touch cursor and the templates of a stream.",
        scope="read",
        resource="name",
        ok={200: Ok("The cursor and the templates.", TouchState)},
        errors=_GONE,
    ),
    Route(
        *("POST", f"{STREAM}{_TOUCH}/wait", StreamRules.wait),
        operation="touch_wait",
        summary="Wait for a change of rows.",
        scope="read",
        resource="name",
        body=TouchWait,
        body_max=HTTP_RULES_BODY_MAX,
        ok={200: Ok("The keys that were touched.", TouchResult)},
        errors=_GONE,
    ),
    Route(
        *("POST", f"{STREAM}{_TOUCH}/templates", StreamRules.activate),
        operation="touch_templates",
        summary="Activate templates, to wait for rows by their fields.",
        scope="read",
        resource="name",
        body=NewTemplates,
        body_max=HTTP_RULES_BODY_MAX,
        ok={200: Ok("The active templates.", TouchTemplates)},
        errors=(*_GONE, LimitExceeded),
    ),
)
