"""The route table of the server: it routes requests, and `openapi` describes them from it.

A route names its handler, and declares the parameters, bodies and responses that the OpenAPI
document contains and the fuzzer checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, NamedTuple

from fourfold.errors import InvalidInput, NotFound
from fourfold.server import stream_rules, subscriptions
from fourfold.server.auth import Scope
from fourfold.server.request import Request

Guard = Literal["stream", "list", "admin", "open", "control"]
"""Key that a route requires: for the stream, for the listed prefix, for all streams, none, or
decided by the handler.
"""
Schema = Mapping[str, Any]
TEXT: Final[Schema] = {"type": "string"}
OFFSET: Final[Schema] = {"type": "string", "pattern": "^[0-9]{16}_[0-9]{16}$"}
TRUE: Final[Schema] = {"const": "true"}
COUNT: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,15})$"}
_PARTS: Final = {
    "name": r"(?P<name>(?!__ds(?:/|\Z)).*)",
    "link": r"(?P<name>.+)",
    "subscription": r"(?P<subscription>[^/]+)",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header of a request."""

    name: str
    where: Literal["query", "header"]
    description: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """The meaning, content and headers of a response status."""

    description: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """An operation: method, path, handler and description."""

    method: str
    path: str
    operation: str
    description: str
    responses: Mapping[int, RouteResponse]
    guard: Guard = "stream"
    parameters: tuple[Parameter, ...] = ()
    body: type | Mapping[str, Schema] | None = None
    scope: Scope | None = None
    """Scope that the key needs, if it is not the one of the method."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression that matches the path."""
        pieces = re.split(r"\{(\w+)\}", self.path)
        text = "".join(
            _PARTS[piece] if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)
        )
        return re.compile(text, re.DOTALL)


class RouteMatch(NamedTuple):
    """Result of `find`: the route, the parameters in the path, and the methods of that path."""

    route: Route | None
    """None if the path does not support the method."""
    path_parameters: dict[str, str]
    methods: tuple[str, ...]


@lru_cache(maxsize=1)
def _routes_by_path() -> tuple[tuple[re.Pattern[str], dict[str, Route], bool], ...]:
    """Return each path's pattern and routes by method, and True if a stream may have that path."""
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    return tuple(
        (next(iter(methods.values())).pattern, methods, path.endswith(RESERVED))
        for path, methods in paths.items()
    )


def find(method: str, path: str) -> RouteMatch:
    """Return the route of a request.

    Raises:
        NotFound: no route has this path.
    """
    for pattern, methods, is_shared in _routes_by_path():
        match = pattern.fullmatch(path)
        if match is None:
            continue
        route = methods.get(method)
        # A stream may have a reserved name: methods without a reserved route address the stream.
        if route is None and is_shared:
            continue
        return RouteMatch(route, match.groupdict(), tuple(methods))
    raise NotFound(f"unknown path {path!r:.200}")


FILTER_PARAMETERS: Final = frozenset(
    {"after", "at", "before", "filter", "order", "prefix", "q", "query", "reverse", "search"}
    | {"since", "timestamp", "until", "where"}
)
"""Parameters by which other servers filter records; this server supports none of them."""


def check_parameters(route: Route, request: Request) -> None:
    """Raise InvalidInput for an unknown parameter.

    When a stream is read the protocol requires that unknown parameters are ignored; there only
    filters are refused, since ignoring a filter would return the wrong records.
    """
    if request.method != "GET" or route.guard in {"open", "admin"}:
        return
    known = [parameter.name for parameter in route.parameters if parameter.where == "query"]
    for name in request.parameters():
        if name not in known and (route.operation != "read" or name in FILTER_PARAMETERS):
            raise InvalidInput(
                f"unknown parameter {name!r:.80}",
                hint=f"Use one of: {', '.join(known)}."
                if known
                else "This path has no parameters.",
            )


def required_access(method: str, path: str) -> tuple[str, Scope | None]:
    """Return the stream whose key a request needs, and the scope unless the method implies it."""
    match = find(method, path)
    return match.path_parameters["name"], None if match.route is None else match.route.scope


DETAILS: Final = "/_details"
SCHEMA: Final = "/_schema"
PROFILE: Final = "/_profile"
TOUCH: Final = "/_touch"
RESERVED: Final = (DETAILS, SCHEMA, PROFILE, TOUCH, f"{TOUCH}/wait", f"{TOUCH}/templates")
"""Suffixes of reserved paths below a stream; names of new streams must not end in them."""
_ERROR: Final[Schema] = {"$ref": "#/components/schemas/Error"}
_POSITION: Final = {"Stream-Next-Offset": OFFSET, "Stream-Closed": TRUE}
_ANY: Final[Schema] = {}


def _error_response(description: str, **headers: Schema) -> RouteResponse:
    named = {name.replace("_", "-"): schema for name, schema in headers.items()}
    return RouteResponse(description, {"application/json": _ERROR}, named)


_RETRY: Final = {"Retry_After": {"type": "string", "pattern": "^[0-9]+$"}}
_ALWAYS: Final = {
    400: _error_response("The request is invalid; nothing was written."),
    401: _error_response("A key is required.", WWW_Authenticate=TEXT),
    403: _error_response(
        "The key does not allow this, or the producer is fenced.", Producer_Epoch=COUNT
    ),
    405: RouteResponse("The path does not support this method.", {}, {"Allow": TEXT}),
    408: RouteResponse("The request arrived too slowly."),
    415: _error_response("The body has a Content-Encoding."),
    413: RouteResponse("The body is too large.", {"application/json": _ERROR}),
    421: _error_response("The server does not accept the Host of the request."),
    429: _error_response("The server is overloaded; nothing was written.", **_RETRY),
    503: _error_response("The database does not respond in time, or is unhealthy.", **_RETRY),
}
_NOT_FOUND: Final = {404: _error_response("Not found.")}
_STREAM_GONE: Final = {
    410: _error_response(
        "The stream was deleted, or retention removed the record at that offset.",
        Stream_First_Offset=OFFSET,
    )
}
_NO_SCHEMAS: Final = {
    501: _error_response("The stream has a schema, and the extra for schemas is not installed.")
}


def _responses(*parts: Mapping[int, RouteResponse]) -> dict[int, RouteResponse]:
    return {status: answer for part in (_ALWAYS, *parts) for status, answer in part.items()}


def _header(name: str, description: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "header", description, schema)


def _query(name: str, description: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "query", description, schema)


_BODY: Final = {"application/json": _ANY, "*/*": {"type": "string", "format": "binary"}}
_PRODUCER: Final = (
    _header("Producer-Id", "Id of the producer; all three producer headers are required, or none."),
    _header("Producer-Epoch", "Incremented when the producer restarts.", COUNT),
    _header("Producer-Seq", "Sequence number of the request in its epoch, from 0.", COUNT),
)
_CLOSED: Final = _header("Stream-Closed", "`true` closes the stream.")
_CONTENT_TYPE: Final = _header("Content-Type", "Media type of the body.")
_STREAM: Final = "/v1/stream/{name}"
_SUBSCRIPTION: Final = "/v1/stream/__ds/subscriptions/{subscription}"
_READ_HEADERS: Final = {
    **_POSITION,
    "Stream-First-Offset": OFFSET,
    "Stream-Up-To-Date": TRUE,
    "Stream-Cursor": TEXT,
    "ETag": TEXT,
    "Cache-Control": TEXT,
}
_STREAM_HEADERS: Final = {
    **_POSITION,
    "Stream-First-Offset": OFFSET,
    "Stream-TTL": COUNT,
    "Stream-Expires-At": TEXT,
    "Stream-Retention-Seconds": COUNT,
    "Stream-Retention-Bytes": COUNT,
}
_NUMBER: Final = {"type": "string", "pattern": "^(none|0|[1-9][0-9]{0,15})$"}
_OPEN: Final[Guard] = "open"
_JSON: Final = "application/json"


def _document(schema: str) -> dict[str, Schema]:
    return {_JSON: {"$ref": f"#/components/schemas/{schema}"}}


_RULES: Final = (
    Route(
        *("GET", f"{_STREAM}{SCHEMA}", "schema", "Get the schemas of a stream's messages."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {200: RouteResponse("The schema registry.", _document("Registry"))},
        ),
    ),
    Route(
        *("POST", f"{_STREAM}{SCHEMA}", "set_schema", "Change the schemas of a stream's messages."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            _NO_SCHEMAS,
            {
                200: RouteResponse("The changed schema registry.", _document("Registry")),
                409: _error_response(
                    "The stream has records already, or its registry changed concurrently."
                ),
            },
        ),
        body=_document("RegistryChange"),
        scope="admin",
    ),
    Route(
        *("GET", f"{_STREAM}{PROFILE}", "profile", "Get the profile of a stream."),
        _responses(
            _NOT_FOUND, _STREAM_GONE, {200: RouteResponse("The profile.", _document("Profile"))}
        ),
    ),
    Route(
        *("POST", f"{_STREAM}{PROFILE}", "set_profile", "Change the profile of a stream."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {
                200: RouteResponse("The changed profile, with all defaults.", _document("Profile")),
                409: _error_response("The stream has records already."),
            },
        ),
        body=_document("Profile"),
        scope="admin",
    ),
    Route(
        *(
            "GET",
            f"{_STREAM}{TOUCH}",
            "touch",
            "Get the touch cursor and the templates of a stream.",
        ),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {200: RouteResponse("The cursor and the templates.", _document("Touch"))},
        ),
    ),
    Route(
        *("POST", f"{_STREAM}{TOUCH}/wait", "touch_wait", "Wait for a change of rows."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {200: RouteResponse("The keys that were touched.", _document("Touched"))},
        ),
        body=stream_rules.WaitBody,
        scope="read",
    ),
    Route(
        *(
            "POST",
            f"{_STREAM}{TOUCH}/templates",
            "touch_templates",
            "Activate templates, to wait for rows by their fields.",
        ),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {
                200: RouteResponse("The active templates.", _document("Templates")),
                409: _error_response("There are too many templates."),
            },
        ),
        body=stream_rules.TemplatesBody,
        scope="read",
    ),
)
ROUTES: Final[tuple[Route, ...]] = (
    Route(
        *("GET", "/health", "health", "Check the health of the server."),
        {
            **_responses(),
            200: RouteResponse("The server is healthy.", _document("Health")),
            503: RouteResponse(
                "The server is unhealthy; the body has the error.", _document("Health")
            ),
        },
        _OPEN,
    ),
    Route(
        *("GET", "/metrics", "metrics", "Get metrics in the Prometheus text format."),
        _responses({200: RouteResponse("The metrics.", {"text/plain": TEXT})}),
        "admin",
    ),
    Route(
        *("GET", "/openapi.json", "openapi", "Get this OpenAPI document."),
        _responses({200: RouteResponse("The document.", {_JSON: {"type": "object"}})}),
        _OPEN,
    ),
    Route(
        *("GET", "/v1/streams", "list", "List streams in the order of their names."),
        _responses({200: RouteResponse("A page of streams.", _document("Streams"))}),
        "list",
        (
            _query("prefix", "Only names with this prefix."),
            _query("after", "Only names after this one."),
            _query(
                "limit",
                "Maximum number of streams.",
                {"type": "integer", "minimum": 1, "maximum": 1000},
            ),
        ),
    ),
    Route(
        *("GET", "/v1/streams/totals", "totals", "Count the streams, records and bytes."),
        _responses({200: RouteResponse("The counts.", _document("Totals"))}),
        "admin",
    ),
    Route(
        *(
            "GET",
            "/v1/stream/__ds/jwks.json",
            "jwks",
            "Get the public keys for webhook signatures.",
        ),
        _responses(
            {200: RouteResponse("A JWK set.", {"application/jwk-set+json": {"type": "object"}})}
        ),
        _OPEN,
    ),
    Route(
        *("PUT", _SUBSCRIPTION, "subscribe", "Create a subscription; idempotent."),
        _responses(
            {
                200: RouteResponse("It exists with the same settings.", _document("Subscription")),
                201: RouteResponse("It was created.", _document("Subscription")),
                409: _error_response("It exists with other settings, or there are too many."),
                501: _error_response("The extra for signatures is not installed."),
            }
        ),
        "control",
        (),
        subscriptions.SubscribeBody,
    ),
    Route(
        *("GET", _SUBSCRIPTION, "subscription", "Get a subscription and a page of its streams."),
        _responses(
            _NOT_FOUND, {200: RouteResponse("The subscription.", _document("Subscription"))}
        ),
        "control",
        (_query("after", "Only streams after this name."),),
    ),
    Route(
        *("DELETE", _SUBSCRIPTION, "unsubscribe", "Delete a subscription."),
        _responses({204: RouteResponse("It does not exist any more.")}),
        "control",
    ),
    Route(
        *("POST", f"{_SUBSCRIPTION}/streams", "follow", "Follow more streams by name."),
        _responses(_NOT_FOUND, {204: RouteResponse("They are followed from their current end.")}),
        "control",
        (),
        subscriptions.StreamsBody,
    ),
    Route(
        *(
            "DELETE",
            f"{_SUBSCRIPTION}/streams/{{link}}",
            "unfollow",
            "Stop following a stream by name.",
        ),
        _responses(_NOT_FOUND, {204: RouteResponse("It is not followed by name any more.")}),
        "control",
    ),
    Route(
        *(
            "POST",
            f"{_SUBSCRIPTION}/claim",
            "claim",
            "Claim the lease of a pull-wake subscription.",
        ),
        _responses(
            _NOT_FOUND,
            {
                200: RouteResponse("The wake.", _document("Wake")),
                409: _error_response("Another worker holds the lease, or nothing is pending."),
            },
        ),
        "control",
        (),
        subscriptions.ClaimBody,
    ),
    *(
        Route(
            *("POST", f"{_SUBSCRIPTION}/{name}", name, description),
            _responses(
                _NOT_FOUND,
                {
                    200: RouteResponse("Acknowledged.", _document("Acknowledged")),
                    409: _error_response("The wake is not current, or an offset is invalid."),
                },
            ),
            "control",
            (),
            subscriptions.WorkBody,
        )
        for name, description in (
            ("callback", "Acknowledge offsets from a webhook."),
            ("ack", "Acknowledge offsets from a worker."),
        )
    ),
    Route(
        *(
            "POST",
            f"{_SUBSCRIPTION}/release",
            "release",
            "Release a lease without finishing the work.",
        ),
        _responses(
            _NOT_FOUND,
            {204: RouteResponse("Released."), 409: _error_response("The wake is not current.")},
        ),
        "control",
        (),
        subscriptions.WorkBody,
    ),
    Route(
        *("GET", f"{_STREAM}{DETAILS}", "details", "Get a stream with its statistics."),
        _responses(
            _NOT_FOUND, _STREAM_GONE, {200: RouteResponse("The details.", _document("Details"))}
        ),
    ),
    *_RULES,
    Route(
        *("PUT", _STREAM, "create", "Create a stream; idempotent."),
        _responses(
            _NOT_FOUND,
            _NO_SCHEMAS,
            {
                200: RouteResponse("It exists with the same settings.", {}, _POSITION),
                201: RouteResponse("It was created.", {}, {**_POSITION, "Location": TEXT}),
                409: _error_response("It exists with other settings."),
            },
        ),
        "stream",
        (
            _CONTENT_TYPE,
            _header("Stream-TTL", "Seconds until it expires after its last use.", COUNT),
            _header("Stream-Expires-At", "When it expires; RFC 3339."),
            _CLOSED,
            _header("Stream-Forked-From", "The stream to fork."),
            _header("Stream-Fork-Offset", "The offset of the fork."),
            _header("Stream-Fork-Sub-Offset", "Number of messages after the fork offset.", COUNT),
            _header("Stream-Retention-Seconds", "Seconds for which it retains records.", COUNT),
            _header("Stream-Retention-Bytes", "Bytes of records that it retains.", COUNT),
        ),
        _BODY,
    ),
    Route(
        *("POST", _STREAM, "append", "Append to a stream, close it, or both."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            _NO_SCHEMAS,
            {
                200: RouteResponse(
                    "Appended by a producer.",
                    {},
                    {**_POSITION, "Producer-Epoch": COUNT, "Producer-Seq": COUNT},
                ),
                204: RouteResponse(
                    "Appended, or a duplicate.",
                    {},
                    {**_POSITION, "Producer-Epoch": COUNT, "Producer-Seq": COUNT},
                ),
                409: _error_response(
                    "Closed, of another type, or out of order.",
                    Stream_Closed=TRUE,
                    Stream_Next_Offset=OFFSET,
                    Producer_Expected_Seq=COUNT,
                    Producer_Received_Seq=COUNT,
                ),
            },
        ),
        "stream",
        (
            *(
                _CONTENT_TYPE,
                _CLOSED,
                _header("Stream-Seq", "Text that increases with each append."),
                *_PRODUCER,
            ),
            _header("Stream-Key", "Routing key of the records; percent-encoded."),
        ),
        _BODY,
    ),
    Route(
        *("GET", _STREAM, "read", "Read a stream, or follow it."),
        _responses(
            _NOT_FOUND,
            _STREAM_GONE,
            {
                200: RouteResponse("The records after the offset.", {"*/*": _ANY}, _READ_HEADERS),
                204: RouteResponse("No record arrived in time.", {}, _READ_HEADERS),
                304: RouteResponse("The reader has the content already.", {}, _READ_HEADERS),
            },
        ),
        "stream",
        (
            _query(
                "offset",
                "Where to begin: -1 (the earliest retained record), now, or an offset.",
            ),
            _query("live", "Wait for more.", {"enum": ["long-poll", "sse"]}),
            _query("cursor", "The last Stream-Cursor."),
            _query("format", "Return each record with its offset and time.", {"enum": ["records"]}),
            _query("limit", "Maximum number of records.", {"type": "integer", "minimum": 1}),
            _query("key", "Only records that were appended with this routing key."),
            _query("field", "Only JSON messages whose field has the given value."),
            _query("value", "The value of the field, as JSON."),
            _header("If-None-Match", "ETag of the content that the reader has."),
        ),
    ),
    Route(
        *("HEAD", _STREAM, "head", "Get the headers of a stream."),
        {
            **_responses(
                {
                    404: RouteResponse("The stream does not exist."),
                    410: RouteResponse("The stream was deleted."),
                }
            ),
            200: RouteResponse("The headers of the stream.", {}, _STREAM_HEADERS),
        },
    ),
    Route(
        *("PATCH", _STREAM, "configure", "Change the lifetime or the retention of a stream."),
        _responses(_NOT_FOUND, _STREAM_GONE, {200: RouteResponse("Changed.", {}, _STREAM_HEADERS)}),
        "stream",
        (
            _header("Stream-TTL", "Seconds until it expires after its last use, or none.", _NUMBER),
            _header("Stream-Expires-At", "When it expires, RFC 3339, or none."),
            _header(
                "Stream-Retention-Seconds",
                "Seconds for which it retains records, or none.",
                _NUMBER,
            ),
            _header(
                "Stream-Retention-Bytes", "Bytes of records that it retains, or none.", _NUMBER
            ),
        ),
    ),
    Route(
        *("DELETE", _STREAM, "delete", "Delete a stream."),
        _responses(_NOT_FOUND, _STREAM_GONE, {204: RouteResponse("Deleted.")}),
    ),
)
"""The first path that matches wins."""
