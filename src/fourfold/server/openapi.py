"""The OpenAPI document of the server, generated from the route table and the Structs of `wire`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from fourfold._version import __version__
from fourfold.server import errors
from fourfold.server.headers import DEFAULT_HEADERS
from fourfold.server.replies import NDJSON
from fourfold.server.routes import JSON, Ok, Route
from fourfold.wire.errors import ErrorBody, Problem
from fourfold.wire.pages import Page

_REF: Final = "#/components/schemas/{name}"
_TEXT: Final = {"type": "string"}
_SCHEMAS: Final = {"any": {}, "events": {}, "object": {"type": "object"}, "text": _TEXT}
_BYTES: Final = {JSON: {}, "*/*": {"type": "string", "format": "binary"}}
_ERRORS: Final = {
    JSON: {"$ref": _REF.format(name="ErrorBody")},
    errors.PROBLEM_JSON: {"$ref": _REF.format(name="Problem")},
}
_PROBLEMS: Final = {errors.PROBLEM_JSON: _ERRORS[errors.PROBLEM_JSON]}
_PARAMETER: Final = re.compile(r"\{(\w+):?\w*\}")


def document(routes: Iterable[Route], root: str = "") -> bytes:
    """Return the OpenAPI document of a server mounted at `root`, as JSON."""
    routes = tuple(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    kinds = [route.body for route in routes if route.body not in {None, bytes}]
    kinds += [
        ok.body for route in routes for ok in route.ok.values() if not isinstance(ok.body, str)
    ]
    _, schemas = msgspec.json.schema_components((*kinds, ErrorBody, Problem), ref_template=_REF)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Fourfold",
                "version": __version__,
                "description": "Documents, streams, graphs and sessions over HTTP. The last "
                "parameter of a path may contain slashes, as they are or encoded.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": quote(root) or "/"}],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(route: Route) -> dict[str, Any]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": [
            *named,
            *_parameters(route.query, "query"),
            *_parameters(route.headers, "header"),
        ],
        "responses": {
            **{str(status): _ok(ok) for status, ok in route.ok.items()},
            **{str(status): error for status, error in _errors(route).items()},
        },
        # A server without keys requires none.
        "security": [] if route.scope == "public" else [{}, {"key": []}],
    }
    if route.body is bytes:
        operation["requestBody"] = {"content": _content(_BYTES)}
    elif route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": _content({JSON: _schema(route.body)}),
        }
    return operation


def _schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a body, which refers to the schemas of Structs."""
    (schema,), _ = msgspec.json.schema_components((kind,), ref_template=_REF)
    return schema


def _parameters(kind: type[Struct] | None, where: str) -> list[dict[str, Any]]:
    if kind is None:
        return []
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    return [
        {
            "name": name,
            "in": where,
            "description": schema.pop("description", ""),
            "required": name in required,
            "schema": schema,
        }
        for name, schema in _properties(kind).items()
    ]


def _properties(kind: type[Struct] | None) -> dict[str, dict[str, Any]]:
    """Return the schemas of the fields of a query or of headers."""
    if kind is None:
        return {}
    return dict(msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"])


def _ok(ok: Ok) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if not isinstance(ok.body, str):
        content = {ok.content_type: _schema(ok.body)}
        if issubclass(ok.body, Page):
            content[NDJSON] = _TEXT
        content |= dict.fromkeys(ok.others, _TEXT)
    elif ok.body != "none":
        kind = "*/*" if ok.body == "any" else ok.content_type
        content = {kind: _SCHEMAS[ok.body]}
    return _response(ok.description, content, _properties(ok.headers))


def _errors(route: Route) -> dict[int, dict[str, Any]]:
    """Return the responses to errors, by status."""
    by_status: dict[int, list[str]] = {}
    for kind in (*route.errors, *errors.COMMON):
        summary = (kind.__doc__ or "").strip().partition("\n")[0]
        by_status.setdefault(errors.status_of(kind), []).append(summary)
    content = _ERRORS if route.model == "streams" else _PROBLEMS
    # HEAD has no bodies.
    content = {} if route.method == "HEAD" else content
    responses = {
        status: _response(
            " ".join(summaries), content, dict.fromkeys(errors.HEADERS.get(status, ()), _TEXT)
        )
        for status, summaries in sorted(by_status.items())
        if status not in route.ok
    }
    responses[405] = _response("The path does not support this method.", {}, {"Allow": _TEXT})
    responses[408] = _response("The request arrived too slowly.")
    responses[431] = _response("The request head, with its URL, is too large.")
    return responses


def _response(
    description: str,
    content: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": description,
        "headers": {
            **{name.title(): {"schema": _TEXT, "required": True} for name in DEFAULT_HEADERS},
            **{name: {"schema": schema} for name, schema in (headers or {}).items()},
        },
    }
    if content:
        response["content"] = _content(content)
    return response


def _content(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}
