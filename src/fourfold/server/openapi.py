"""The OpenAPI document of the server, generated from the route table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from fourfold._version import __version__
from fourfold.server.headers import DEFAULT_HEADERS
from fourfold.server.routes import OFFSET, ROUTES, Parameter, Route, RouteResponse
from fourfold.server.stream_rules import TemplatesBody, WaitBody
from fourfold.server.subscriptions import ClaimBody, StreamsBody, SubscribeBody, WorkBody

_BODIES: Final = (SubscribeBody, StreamsBody, ClaimBody, WorkBody, WaitBody, TemplatesBody)
_TEXT: Final = {"type": "string"}
_NULLABLE: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 0}
_OPTIONAL_COUNT: Final = {"type": ["integer", "null"]}
_FLAG: Final = {"type": "boolean"}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": sorted(fields), "properties": fields}


_STREAM_FIELDS: Final = {
    "name": _TEXT,
    "content_type": _TEXT,
    "created_at_ms": _COUNT,
    "ttl_seconds": _OPTIONAL_COUNT,
    "expires_at_ms": _OPTIONAL_COUNT,
    "first_offset": OFFSET,
    "next_offset": OFFSET,
    "size_bytes": _COUNT,
    "closed": _FLAG,
}
_NAMES: Final = {"type": "array", "items": _TEXT}
_SCHEMA: Final = {"type": ["object", "boolean"]}
_LENS: Final = {"type": "object", "required": ["ops"], "properties": {"ops": {"type": "array"}}}
_BY_VERSION: Final = {"propertyNames": {"pattern": "^[1-9][0-9]*$"}}
_ROUTING_KEY: Final = {
    "type": ["object", "null"],
    "required": ["jsonPointer"],
    "properties": {"jsonPointer": _TEXT, "required": _FLAG},
    "additionalProperties": False,
}
_SEARCH: Final = {
    "type": ["object", "null"],
    "required": ["fields"],
    "properties": {"fields": _NAMES},
    "additionalProperties": False,
}
_TEMPLATE: Final = _object(
    id=_TEXT,
    entity=_TEXT,
    fields={
        "type": "object",
        "additionalProperties": {"enum": ["string", "integer", "number", "boolean"]},
    },
    state={"enum": ["active", "retired"]},
    active_from_offset=OFFSET,
    last_seen_at_ms=_COUNT,
    inactivity_ttl_ms=_COUNT,
)
_LINK: Final = _object(path=_TEXT, link_type={"enum": ["explicit", "glob"]}, acked_offset=OFFSET)
_SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(
        error=_object(kind=_TEXT, message=_TEXT, hint=_TEXT, retryable={"type": "boolean"})
    ),
    "Health": _object(
        ok=_FLAG,
        error={"type": ["object", "null"]},
        unpublished_count=_COUNT,
        fenced_count=_COUNT,
        databases={"type": ["object", "null"]},
        objects={"type": ["object", "null"]},
    ),
    "Streams": _object(
        streams={"type": "array", "items": _object(**_STREAM_FIELDS)}, next_after=_NULLABLE
    ),
    "Totals": _object(streams=_COUNT, records=_COUNT, bytes=_COUNT),
    "Details": _object(
        **_STREAM_FIELDS,
        updated_at_ms=_COUNT,
        rows=_COUNT,
        wal_rows=_COUNT,
        wal_bytes=_COUNT,
        pending_rows=_COUNT,
        pending_bytes=_COUNT,
        profile=_TEXT,
        schema_version=_OPTIONAL_COUNT,
        retention_seconds=_OPTIONAL_COUNT,
        retention_bytes=_OPTIONAL_COUNT,
        forked_from=_NULLABLE,
        fork_offset=_NULLABLE,
        forks=_COUNT,
        producers=_COUNT,
        subscriptions=_COUNT,
        archive=_object(
            sealed_offset=OFFSET,
            published_offset=OFFSET,
            segments=_COUNT,
            published_segments=_COUNT,
            generation=_COUNT,
            published_generation=_COUNT,
            published_at_ms=_OPTIONAL_COUNT,
            manifest_bytes=_OPTIONAL_COUNT,
            requests={
                "type": "array",
                "items": _object(artifact=_TEXT, op=_TEXT, count=_COUNT, bytes=_COUNT),
            },
            indexes={
                "type": "array",
                "items": _object(
                    field=_NULLABLE,
                    indexed_offset=OFFSET,
                    indexed_segments=_COUNT,
                    runs=_COUNT,
                    bytes=_COUNT,
                    levels=_COUNT,
                ),
            },
            compactions_pending=_COUNT,
        ),
    ),
    "Registry": _object(
        currentVersion=_COUNT,
        schemas={"type": "object", **_BY_VERSION, "additionalProperties": _SCHEMA},
        lenses={"type": "object", **_BY_VERSION, "additionalProperties": _LENS},
        boundaries={"type": "array", "items": _object(offset=OFFSET, version=_COUNT)},
        routingKey=_ROUTING_KEY,
        search=_SEARCH,
    ),
    "RegistryChange": {
        "type": "object",
        "minProperties": 1,
        "properties": {
            "schema": _SCHEMA,
            "lens": {"anyOf": [_LENS, {"type": ["array", "null"]}]},
            "routingKey": _ROUTING_KEY,
            "search": _SEARCH,
        },
        "additionalProperties": False,
    },
    "Profile": {
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": {"enum": ["generic", "state-protocol", "evlog"]},
            "touch": {"type": "object", "properties": {"enabled": _FLAG}},
            "redact": _NAMES,
            "routingKey": _NAMES,
        },
        "additionalProperties": False,
    },
    "Touch": _object(
        cursor=_TEXT, processed_offset=OFFSET, templates={"type": "array", "items": _TEMPLATE}
    ),
    "Touched": _object(
        touched=_FLAG, stale=_FLAG, cursor=_TEXT, keys={"type": "array", "items": _COUNT}
    ),
    "Templates": _object(templates={"type": "array", "items": _TEMPLATE}),
    "Subscription": _object(
        id=_TEXT,
        subscription_id=_TEXT,
        type={"enum": ["webhook", "pull-wake"]},
        pattern=_NULLABLE,
        streams={"type": "array", "items": _LINK},
        next_after=_NULLABLE,
        wake_stream=_NULLABLE,
        lease_ttl_ms=_COUNT,
        created_at=_TEXT,
        status={"enum": ["active", "failed"]},
        description=_NULLABLE,
        generation=_COUNT,
        holder=_NULLABLE,
    ),
    "Wake": _object(
        wake_id=_TEXT,
        generation=_COUNT,
        token=_TEXT,
        streams={"type": "array", "items": {"type": "object"}},
        lease_ttl_ms=_COUNT,
    ),
    "Acknowledged": _object(ok={"const": True}, next_wake=_FLAG),
}


@lru_cache(maxsize=16)
def document(root: str = "") -> bytes:
    """Return the OpenAPI document of a server mounted at `root`, as JSON."""
    _, bodies = msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Fourfold streams",
                "version": __version__,
                "description": "Durable Streams over HTTP. `name` may have slashes in it.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": quote(root) or "/"}],
            "paths": paths,
            "components": {
                "schemas": {**_SCHEMAS, **bodies},
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    # OpenAPI describes Content-Type and Authorization elsewhere.
    parameters += [_parameter(item) for item in route.parameters if item.name != "Content-Type"]
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.description,
        "responses": {
            str(status): _response(item) for status, item in sorted(route.responses.items())
        },
        # A server without keys requires none.
        "security": [] if route.guard == "open" else [{}, {"key": []}],
    }
    if parameters:
        operation["parameters"] = parameters
    if isinstance(route.body, Mapping):
        operation["requestBody"] = {"content": _content(route.body)}
    elif route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {
            "required": True,
            "content": _content({"application/json": schema}),
        }
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.description,
        "required": parameter.required,
        "schema": parameter.schema,
    }


def _response(response: RouteResponse) -> dict[str, Any]:
    response_object: dict[str, Any] = {"description": response.description}
    response_object["headers"] = {
        **{name.title(): {"schema": _TEXT, "required": True} for name in DEFAULT_HEADERS},
        **{name: {"schema": schema} for name, schema in response.headers.items()},
    }
    if response.content:
        response_object["content"] = _content(response.content)
    return response_object


def _content(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}
