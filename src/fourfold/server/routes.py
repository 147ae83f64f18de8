"""Every route of the server, in one table: by it requests are led, and by it they are described.

A route names the handler that answers it. What stands beside it (parameters, bodies, answers) is
what `openapi` writes down, and what the fuzzer holds the server to.
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
"""Whose key a route asks for: one for the stream, for those that begin so, for everything, none, or
what the route itself decides.
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
    """Something that a request may say beside its path and its body."""

    name: str
    where: Literal["query", "header"]
    says: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a status means, and what comes with it."""

    says: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """One thing that can be asked."""

    method: str
    path: str
    operation: str
    says: str
    answers: Mapping[int, RouteResponse]
    guard: Guard = "stream"
    parameters: tuple[Parameter, ...] = ()
    body: type | Mapping[str, Schema] | None = None
    scope: Scope | None = None
    """What the key must allow, where the method does not tell."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        pieces = re.split(r"\{(\w+)\}", self.path)
        text = "".join(
            _PARTS[piece] if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)
        )
        return re.compile(text, re.DOTALL)


class RouteMatch(NamedTuple):
    route: Route | None
    """None when nothing answers this method here."""
    given: dict[str, str]
    methods: tuple[str, ...]


@lru_cache(maxsize=1)
def _by_path() -> tuple[tuple[re.Pattern[str], dict[str, Route], bool], ...]:
    """Each path with who answers which method, and whether a stream may be called so too."""
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    return tuple(
        (next(iter(methods.values())).pattern, methods, path.endswith(RESERVED))
        for path, methods in paths.items()
    )


def find(method: str, path: str) -> RouteMatch:
    """The route of a request; NotFound when the server has nothing there."""
    for pattern, methods, is_shared in _by_path():
        match = pattern.fullmatch(path)
        if match is None:
            continue
        route = methods.get(method)
        # A stream may be called like what is asked with some methods only: the others mean it.
        if route is None and is_shared:
            continue
        return RouteMatch(route, match.groupdict(), tuple(methods))
    raise NotFound(f"there is nothing at {path!r:.200}")


NARROWING: Final = frozenset(
    {"after", "at", "before", "filter", "order", "prefix", "q", "query", "reverse", "search"}
    | {"since", "timestamp", "until", "where"}
)
"""Parameters by which other servers choose records; this one has none of them."""


def refuse_unknown_parameters(route: Route, request: Request) -> None:
    """Raise InvalidInput for a parameter that a read does not have. The protocol wants other ones
    ignored when a stream is read, so there it is those that would narrow the read: to ignore a
    filter would give the wrong records.
    """
    if request.method != "GET" or route.guard in {"open", "admin"}:
        return
    known = [each.name for each in route.parameters if each.where == "query"]
    for name in request.parameters():
        if name not in known and (route.operation != "read" or name in NARROWING):
            raise InvalidInput(
                f"unknown parameter {name!r:.80}",
                hint=f"Known here: {', '.join(known)}." if known else "There are none here.",
            )


def guarded(method: str, path: str) -> tuple[str, Scope | None]:
    """Whose key a request about a stream needs: the stream's name, and what it must allow where the
    method does not tell.
    """
    found = find(method, path)
    return found.given["name"], None if found.route is None else found.route.scope


DETAILS: Final = "/_details"
SCHEMA: Final = "/_schema"
PROFILE: Final = "/_profile"
TOUCH: Final = "/_touch"
RESERVED: Final = (DETAILS, SCHEMA, PROFILE, TOUCH, f"{TOUCH}/wait", f"{TOUCH}/templates")
"""What is asked of a stream beside its records; the name of a stream made here ends otherwise."""
_ERROR: Final[Schema] = {"$ref": "#/components/schemas/Error"}
_POSITION: Final = {"Stream-Next-Offset": OFFSET, "Stream-Closed": TRUE}
_ANY: Final[Schema] = {}


def _error(says: str, **headers: Schema) -> RouteResponse:
    named = {name.replace("_", "-"): schema for name, schema in headers.items()}
    return RouteResponse(says, {"application/json": _ERROR}, named)


_RETRY: Final = {"Retry_After": {"type": "string", "pattern": "^[0-9]+$"}}
_ALWAYS: Final = {
    400: _error("The request does not fit; nothing was written."),
    401: _error("The server asks for a key.", WWW_Authenticate=TEXT),
    403: _error(
        "The key does not allow that, or the producer was fenced off.", Producer_Epoch=COUNT
    ),
    405: RouteResponse("Nothing answers this method here.", {}, {"Allow": TEXT}),
    408: RouteResponse("The request came too slowly."),
    415: _error("The body has a Content-Encoding."),
    413: RouteResponse("The body is larger than the server takes.", {"application/json": _ERROR}),
    421: _error("The server does not answer under the host of the request."),
    429: _error("Too much waits already; nothing was written.", **_RETRY),
    503: _error("The database does not answer in time, or is not sound.", **_RETRY),
}
_MISSING: Final = {404: _error("There is no such thing.")}
_GONE: Final = {
    410: _error(
        "It was deleted, or retention trimmed the record at that offset.",
        Stream_First_Offset=OFFSET,
    )
}
_NO_SCHEMAS: Final = {501: _error("The stream has a schema, and an extra is not installed.")}


def _told(*parts: Mapping[int, RouteResponse]) -> dict[int, RouteResponse]:
    return {status: answer for part in (_ALWAYS, *parts) for status, answer in part.items()}


def _header(name: str, says: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "header", says, schema)


def _query(name: str, says: str, schema: Schema = TEXT) -> Parameter:
    return Parameter(name, "query", says, schema)


_BODY: Final = {"application/json": _ANY, "*/*": {"type": "string", "format": "binary"}}
_PRODUCER: Final = (
    _header("Producer-Id", "Who appends; all three headers of a producer, or none."),
    _header("Producer-Epoch", "Goes up when the producer starts anew.", COUNT),
    _header("Producer-Seq", "The number of the request in its epoch, from 0.", COUNT),
)
_CLOSED: Final = _header("Stream-Closed", "`true` closes the stream.")
_KIND: Final = _header("Content-Type", "What the body is.")
_STREAM: Final = "/v1/stream/{name}"
_SUB: Final = "/v1/stream/__ds/subscriptions/{subscription}"
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
        *("GET", f"{_STREAM}{SCHEMA}", "schema", "The schemas of a stream's messages."),
        _told(_MISSING, _GONE, {200: RouteResponse("The registry.", _document("Registry"))}),
    ),
    Route(
        *("POST", f"{_STREAM}{SCHEMA}", "set_schema", "Ask for something else of messages."),
        _told(
            _MISSING,
            _GONE,
            _NO_SCHEMAS,
            {
                200: RouteResponse("The registry as it is now.", _document("Registry")),
                409: _error("The stream has records already, or its registry changed meanwhile."),
            },
        ),
        body=_document("RegistryChange"),
        scope="admin",
    ),
    Route(
        *("GET", f"{_STREAM}{PROFILE}", "profile", "What a stream is used as."),
        _told(_MISSING, _GONE, {200: RouteResponse("Its profile.", _document("Profile"))}),
    ),
    Route(
        *("POST", f"{_STREAM}{PROFILE}", "set_profile", "Use a stream as something else."),
        _told(
            _MISSING,
            _GONE,
            {
                200: RouteResponse("Its profile now, with all defaults.", _document("Profile")),
                409: _error("The stream has records already."),
            },
        ),
        body=_document("Profile"),
        scope="admin",
    ),
    Route(
        *("GET", f"{_STREAM}{TOUCH}", "touch", "Where a stream is for those who wait at it."),
        _told(_MISSING, _GONE, {200: RouteResponse("Where it is.", _document("Touch"))}),
    ),
    Route(
        *("POST", f"{_STREAM}{TOUCH}/wait", "touch_wait", "Wait for a change of some rows."),
        _told(_MISSING, _GONE, {200: RouteResponse("What was touched.", _document("Touched"))}),
        body=stream_rules.WaitBody,
        scope="read",
    ),
    Route(
        *("POST", f"{_STREAM}{TOUCH}/templates", "touch_templates", "Wait by fields of rows."),
        _told(
            _MISSING,
            _GONE,
            {
                200: RouteResponse("The templates, which are active.", _document("Templates")),
                409: _error("There are too many."),
            },
        ),
        body=stream_rules.TemplatesBody,
        scope="read",
    ),
)
ROUTES: Final[tuple[Route, ...]] = (
    Route(
        *("GET", "/health", "health", "Whether the server is well."),
        {
            **_told(),
            200: RouteResponse("It is.", _document("Health")),
            503: RouteResponse("It is not, and why.", _document("Health")),
        },
        _OPEN,
    ),
    Route(
        *("GET", "/metrics", "metrics", "The numbers of the database, for Prometheus."),
        _told({200: RouteResponse("The numbers.", {"text/plain": TEXT})}),
        "admin",
    ),
    Route(
        *("GET", "/openapi.json", "openapi", "This description."),
        _told({200: RouteResponse("It.", {_JSON: {"type": "object"}})}),
        _OPEN,
    ),
    Route(
        *("GET", "/v1/streams", "list", "Streams in the order of their names."),
        _told({200: RouteResponse("A page of them.", _document("Streams"))}),
        "list",
        (
            _query("prefix", "Only names that begin so."),
            _query("after", "Only names behind this one."),
            _query(
                "limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 1000}
            ),
        ),
    ),
    Route(
        *("GET", "/v1/streams/totals", "totals", "How much there is in all streams."),
        _told({200: RouteResponse("The counts.", _document("Totals"))}),
        "admin",
    ),
    Route(
        *("GET", "/v1/stream/__ds/jwks.json", "jwks", "The keys that webhooks are signed with."),
        _told({200: RouteResponse("A JWK set.", {"application/jwk-set+json": {"type": "object"}})}),
        _OPEN,
    ),
    Route(
        *("PUT", _SUB, "subscribe", "Make a subscription, or confirm it."),
        _told(
            {
                200: RouteResponse("It is there, and is like that.", _document("Subscription")),
                201: RouteResponse("It was made.", _document("Subscription")),
                409: _error("There is another of this id, or there are too many."),
                501: _error("The server cannot sign: an extra is not installed."),
            }
        ),
        "control",
        (),
        subscriptions.SubscribeBody,
    ),
    Route(
        *("GET", _SUB, "subscription", "A subscription, and a page of the streams it follows."),
        _told(_MISSING, {200: RouteResponse("It.", _document("Subscription"))}),
        "control",
        (_query("after", "Only streams behind this name."),),
    ),
    Route(
        *("DELETE", _SUB, "unsubscribe", "Remove a subscription."),
        _told({204: RouteResponse("It is not there any more.")}),
        "control",
    ),
    Route(
        *("POST", f"{_SUB}/streams", "follow", "Follow more streams by name."),
        _told(_MISSING, {204: RouteResponse("They are followed, from their end on.")}),
        "control",
        (),
        subscriptions.StreamsBody,
    ),
    Route(
        *("DELETE", f"{_SUB}/streams/{{link}}", "unfollow", "Follow a stream no longer by name."),
        _told(_MISSING, {204: RouteResponse("It is not followed by name.")}),
        "control",
    ),
    Route(
        *("POST", f"{_SUB}/claim", "claim", "Take the lease of a pull-wake subscription."),
        _told(
            _MISSING,
            {
                200: RouteResponse("The wake.", _document("Wake")),
                409: _error("Somebody holds it, or nothing is pending."),
            },
        ),
        "control",
        (),
        subscriptions.ClaimBody,
    ),
    *(
        Route(
            *("POST", f"{_SUB}/{name}", name, says),
            _told(
                _MISSING,
                {
                    200: RouteResponse("Taken.", _document("Acknowledged")),
                    409: _error("The wake is over, or an offset cannot be."),
                },
            ),
            "control",
            (),
            subscriptions.WorkBody,
        )
        for name, says in (
            ("callback", "A webhook says how far it is."),
            ("ack", "A worker says how far it is."),
        )
    ),
    Route(
        *("POST", f"{_SUB}/release", "release", "Give a lease back with the work undone."),
        _told(_MISSING, {204: RouteResponse("Given back."), 409: _error("The wake is over.")}),
        "control",
        (),
        subscriptions.WorkBody,
    ),
    Route(
        *("GET", f"{_STREAM}{DETAILS}", "details", "A stream, and what is counted of it."),
        _told(_MISSING, _GONE, {200: RouteResponse("Its details.", _document("Details"))}),
    ),
    *_RULES,
    Route(
        *("PUT", _STREAM, "create", "Make a stream, or confirm that it is like that."),
        _told(
            _MISSING,
            _NO_SCHEMAS,
            {
                200: RouteResponse("It is there, and is like that.", {}, _POSITION),
                201: RouteResponse("It was made.", {}, {**_POSITION, "Location": TEXT}),
                409: _error("It is there, and is different."),
            },
        ),
        "stream",
        (
            _KIND,
            _header("Stream-TTL", "Seconds that it lives after its last use.", COUNT),
            _header("Stream-Expires-At", "When it ends; RFC 3339."),
            _CLOSED,
            _header("Stream-Forked-From", "The stream that it leaves."),
            _header("Stream-Fork-Offset", "Where it leaves it."),
            _header("Stream-Fork-Sub-Offset", "How much further.", COUNT),
            _header("Stream-Retention-Seconds", "How long it keeps records.", COUNT),
            _header("Stream-Retention-Bytes", "How many bytes of records it keeps.", COUNT),
        ),
        _BODY,
    ),
    Route(
        *("POST", _STREAM, "append", "Append to a stream, close it, or both."),
        _told(
            _MISSING,
            _GONE,
            _NO_SCHEMAS,
            {
                200: RouteResponse(
                    "Appended for a producer.",
                    {},
                    {**_POSITION, "Producer-Epoch": COUNT, "Producer-Seq": COUNT},
                ),
                204: RouteResponse(
                    "Appended, or there already.",
                    {},
                    {**_POSITION, "Producer-Epoch": COUNT, "Producer-Seq": COUNT},
                ),
                409: _error(
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
            *(_KIND, _CLOSED, _header("Stream-Seq", "Text that only ever goes up."), *_PRODUCER),
            _header("Stream-Key", "What the records can be read by; percent-encoded."),
        ),
        _BODY,
    ),
    Route(
        *("GET", _STREAM, "read", "Read a stream, or follow it."),
        _told(
            _MISSING,
            _GONE,
            {
                200: RouteResponse("What comes behind the offset.", {"*/*": _ANY}, _READ_HEADERS),
                204: RouteResponse("Nothing came in time.", {}, _READ_HEADERS),
                304: RouteResponse("The reader has it already.", {}, _READ_HEADERS),
            },
        ),
        "stream",
        (
            _query(
                "offset",
                "Where to begin: -1 (the earliest kept record), now, or an offset of a read.",
            ),
            _query("live", "Wait for more.", {"enum": ["long-poll", "sse"]}),
            _query("cursor", "The last Stream-Cursor."),
            _query("format", "Records one by one.", {"enum": ["records"]}),
            _query("limit", "How many records at most.", {"type": "integer", "minimum": 1}),
            _query("key", "Only records that were appended with this routing key."),
            _query("field", "Only JSON messages whose field has a value; with value."),
            _query("value", "That value, as JSON."),
            _header("If-None-Match", "The ETag of what the reader has."),
        ),
    ),
    Route(
        *("HEAD", _STREAM, "head", "Where a stream is."),
        {
            **_told(
                {
                    404: RouteResponse("There is no such stream."),
                    410: RouteResponse("It was deleted."),
                }
            ),
            200: RouteResponse("Here.", {}, _STREAM_HEADERS),
        },
    ),
    Route(
        *("PATCH", _STREAM, "configure", "Change the lifetime or the retention of a stream."),
        _told(_MISSING, _GONE, {200: RouteResponse("Changed.", {}, _STREAM_HEADERS)}),
        "stream",
        (
            _header("Stream-TTL", "Seconds that it lives after its last use, or none.", _NUMBER),
            _header("Stream-Expires-At", "When it ends, RFC 3339, or none."),
            _header("Stream-Retention-Seconds", "How long it keeps records, or none.", _NUMBER),
            _header("Stream-Retention-Bytes", "How many bytes it keeps, or none.", _NUMBER),
        ),
    ),
    Route(
        *("DELETE", _STREAM, "delete", "Delete a stream."),
        _told(_MISSING, _GONE, {204: RouteResponse("It is gone.")}),
    ),
)
"""The first path that fits is the one."""
