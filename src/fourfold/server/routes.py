"""The route table: one entry per operation, for routing, access, decoding and documentation.

A model adds its routes with a class of handlers and a tuple of `Route`, bound as in `spaces.py`:

1. `wire/<model>.py` has the Structs of bodies, queries and headers; a list is a `wire.pages.Page`
   with a `PageQuery`.
2. `server/<model>.py` has a class with `routes()` and `stop()` (`RouteGroup`). A handler is called
   with the request, the parameters in the path, and `query` and `body` as the route declares them.
   It returns a `Reply`, which the table encodes; only server-sent events (`event_stream`) and
   bytes are a `Response`. It raises errors of `fourfold.errors`, and lists those in `errors`.
   Whatever has no bound on its cost runs in `Workers`.
3. `model` and `resource` state what a key must be for: the path parameter that names the object.
4. `server/models.py` has one line for the class.

`cursors`, `conditions` and `kernel.idempotency` have the rules for lists, for If-Match and for
Idempotency-Key.

Paths are compiled by Starlette and matched whole: its own router would accept a line feed after the
end, and would so confuse two names. Paths are never normalized: `a//b` and `a/` are other names
than `a/b` and `a`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from re import Pattern
from types import MethodType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, TooLarge
from fourfold.server.framework import Convertor, compile_path, register_url_convertor
from fourfold.server.key_store import Model, Scope
from fourfold.server.request import Reply, Request, Response

Handler = Callable[..., Awaitable[Response | Reply]]
"""Called with the request, the path parameters, and `query` and `body` if the route has them."""
_S = TypeVar("_S", bound=Struct)
JSON: Final = "application/json"


class _Name(Convertor[str]):
    """A name that may contain slashes and line feeds."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _StreamName(_Name):
    """A name outside of the paths that the protocol reserves; an empty one is refused later."""

    regex = r"(?!__ds(?:/|\Z))(?s:.*)"


register_url_convertor("name", _Name())
register_url_convertor("stream", _StreamName())


@dataclass(frozen=True, slots=True)
class Ok:
    """Meaning, body and headers of a successful response."""

    description: str
    body: type[Struct] | Literal["any", "events", "none", "object", "text"] = "none"
    """Struct of a JSON body, any JSON object, text, server-sent events, or `any` for bytes."""
    headers: type[Struct] | None = None
    content_type: str = JSON
    others: tuple[str, ...] = ()
    """Other content types that a client can accept."""


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the server.

    The default of `resource` is the strictest: a key for everything.
    """

    method: str
    path: str
    handler: Handler
    operation: str
    summary: str
    scope: Scope | Literal["public", "token", "owner"]
    """Scope that the key needs. `public` needs none; `token` is a token that the handler checks;
    `owner` is any valid key, and the handler compares it with the owner of the object.
    """
    ok: Mapping[int, Ok]
    errors: tuple[type[FourfoldError], ...] = ()
    """Errors besides those that every route has."""
    resource: str = "all"
    """Subject of the key: `all` objects, the `prefix` in the query, or the parameter of the path
    that names the object. `any` is a key with any prefix: the handler compares the names
    (`Request.covers`).
    """
    model: Model | Literal["any"] = "streams"
    """Model that the key must be for. `any`: the handler compares the grants of the key
    (`Request.grants`).
    """
    query: type[Struct] | None = None
    refused_parameters: frozenset[str] = frozenset()
    """Unknown parameters that are refused even if the query ignores others."""
    headers: type[Struct] | None = None
    body: Any = None
    """Type of a JSON body (a Struct, `dict[str, Any]`), or bytes for one that the handler reads."""
    body_max: int = limits.HTTP_BODY_MAX
    cancellable: bool = False
    """True if the handler is cancelled when the client disconnects; it must not write."""
    no_past: str = ""
    """Reason why a read has no parameter `at`."""


class RouteGroup(Protocol):
    """The handlers of one model."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes, with bound handlers."""

    def stop(self) -> None:
        """End waiting requests, before the server stops."""


class Pages(Protocol):
    """Web pages that a server has besides its API."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the pages."""
        ...

    def error_page(self, error: FourfoldError, request: Request) -> Response | None:
        """Return a page about an error, or None if the client is not a browser."""
        ...


def bind(routes: Iterable[Route], owner: object) -> tuple[Route, ...]:
    """Return the routes with handlers that are methods of `owner`."""
    return tuple(replace(route, handler=MethodType(route.handler, owner)) for route in routes)


class RouteMatch(NamedTuple):
    """Result of `find`: the route, the parameters in the path, and the routes of that path."""

    route: Route | None
    """None if the path does not support the method."""
    path_parameters: dict[str, str]
    routes: Mapping[str, Route]
    """Routes of the path by method."""

    def allow(self) -> str:
        """Return the value of the Allow header."""
        head = ("HEAD",) if "GET" in self.routes and "HEAD" not in self.routes else ()
        return ", ".join((*self.routes, *head, "OPTIONS"))


@dataclass(frozen=True, slots=True)
class _Path:
    """A path with parameters. Its fixed start and end are compared first, which is cheaper."""

    start: str
    end: str
    pattern: Pattern[str]
    routes: dict[str, Route] = field(default_factory=dict)


def _root(path: str) -> str | None:
    """Return the first two segments of a path, such as `/v1/spaces/`, or None if it has fewer."""
    first = path.find("/", 1)
    second = path.find("/", first + 1) if first > 0 else -1
    return path[: second + 1] if second > 0 else None


class RouteTable:
    """All routes of a server; the first path that matches and supports the method wins."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        paths: dict[str, _Path] = {}
        for route in self.routes:
            if "{" not in route.path:
                self._fixed.setdefault(route.path, {})[route.method] = route
                continue
            if route.path not in paths:
                start, end = route.path.partition("{")[0], route.path.rpartition("}")[2]
                paths[route.path] = _Path(start, end, compile_path(route.path)[0])
            paths[route.path].routes[route.method] = route
        self._paths = [path for path in paths.values() if _root(path.start) is None]
        """Paths with a parameter in one of their first two segments."""
        roots = {_root(path.start) for path in paths.values()} - {None}
        self._by_root = {
            root: [
                path
                for path in paths.values()
                if path.start.startswith(root) or root.startswith(path.start)
            ]
            for root in roots
            if root is not None
        }
        """Paths that can match, by the first two segments of a request."""

    def find(self, method: str, path: str) -> RouteMatch:
        """Return the route of a request. HEAD is answered by the route of GET.

        A path that does not support the method does not end the search: a stream may have the name
        of a reserved path, and methods without a reserved route address that stream.

        Raises:
            NotFound: no route has this path.
        """
        fixed = self._fixed.get(path)
        first = None if fixed is None else RouteMatch(fixed.get(method), {}, fixed)
        if first is None:
            for entry in self._by_root.get(_root(path) or "", self._paths):
                if not (path.startswith(entry.start) and path.endswith(entry.end)):
                    continue
                match = entry.pattern.fullmatch(path)
                if match is None:
                    continue
                route = entry.routes.get(method)
                if route is not None:
                    return RouteMatch(route, match.groupdict(), entry.routes)
                first = first or RouteMatch(None, match.groupdict(), entry.routes)
        if first is None:
            raise NotFound(f"unknown path {path!r:.200}")
        if first.route is None and method == "HEAD":
            return first._replace(route=first.routes.get("GET"))
        return first


def decode_arguments(route: Route, request: Request) -> dict[str, Any]:
    """Return the `query` and the `body` of a request, as the route declares them.

    Raises:
        InvalidInput: the request has an unknown parameter, or does not match the Structs.
        TooLarge: the body exceeds the limit of the route.
    """
    arguments: dict[str, Any] = {}
    if route.no_past and request.query and "at" in request.parameters():
        raise InvalidInput(f"at: not possible here: {route.no_past}", hint="Send it without `at`.")
    if route.query is not None:
        arguments["query"] = _decode_query(route.query, request, route.refused_parameters)
    elif request.query and request.method == "GET" and route.scope not in {"public", "metrics"}:
        for name in request.parameters():
            raise InvalidInput(
                f"unknown parameter {name!r:.80}", hint="This path has no parameters."
            )
    if route.body is not None and route.body is not bytes:
        arguments["body"] = _decode_body(route, request)
    return arguments


def check_body_size(route: Route, request: Request) -> None:
    """Raise TooLarge if the body exceeds the limit of the route."""
    if len(request.body) > route.body_max:
        raise TooLarge(
            f"body: must be at most {route.body_max} bytes, got {len(request.body)}",
            hint="Send fewer items at once.",
        )


def _decode_query(kind: type[_S], request: Request, refused: frozenset[str]) -> _S:
    known = kind.__struct_encode_fields__
    lists = _list_fields(kind)
    parameters: dict[str, Any] = {}
    if request.query:
        parameters = _collect(request, lists) if lists else request.parameters()
    strict = kind.__struct_config__.forbid_unknown_fields
    for name in parameters:
        if name not in known and (strict or name in refused):
            raise InvalidInput(
                f"unknown parameter {name!r:.80}", hint=f"Use one of: {', '.join(known)}."
            )
    try:
        query = msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        for field in msgspec.structs.fields(kind):
            if field.required and field.encode_name not in parameters:
                raise InvalidInput(f"parameter {field.encode_name!r} is required") from None
        reason, _, where = str(error).partition(" - at `$.")
        name = where.removesuffix("`").partition("[")[0]
        message = f"{name}: {_requirement(kind, name) or reason}, got {parameters[name]!r:.80}"
        raise InvalidInput(message, hint=_format_of(kind, name)) from None
    for name, text in parameters.items():
        if not _is_canonical(getattr(query, name, None), text):
            raise InvalidInput(f"{name}: {_requirement(kind, name)}, got {text!r:.80}")
    return query


def _is_canonical(value: Any, text: Any) -> bool:
    """Return False for other ways to write a number, such as 1e2, which are converted too."""
    if isinstance(value, list):
        return all(map(_is_canonical, value, text))
    return not isinstance(value, int) or str(value) == text


@cache
def _list_fields(kind: type[Struct]) -> frozenset[str]:
    """Return the parameters that may be repeated."""
    hints = get_type_hints(kind)
    return frozenset(name for name, hint in hints.items() if get_origin(hint) is list)


def _collect(request: Request, lists: frozenset[str]) -> dict[str, Any]:
    """Return the parameters, with the values of those that may be repeated as lists."""
    parameters: dict[str, Any] = {}
    for name, value in request.pairs():
        if name in lists:
            parameters.setdefault(name, []).append(value)
        elif name in parameters:
            raise InvalidInput(f"duplicate parameter {name!r}")
        else:
            parameters[name] = value
    return parameters


def _requirement(kind: type[Struct], name: str) -> str | None:
    """Return what a parameter must be; None if the error of the decoder says it best."""
    schema = _parameter_schema(kind, name)
    if "enum" in schema:
        return f"must be {' or '.join(map(str, schema['enum']))}"
    if "maximum" in schema:
        return f"must be from {schema['minimum']} to {schema['maximum']}"
    return "invalid value" if "pattern" in schema else None


def _format_of(kind: type[Struct], name: str) -> str | None:
    """Return the description of a parameter whose form is a regular expression."""
    schema = _parameter_schema(kind, name)
    return schema.get("description") if "pattern" in schema else None


def _parameter_schema(kind: type[Struct], name: str) -> dict[str, Any]:
    schema: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"][name]
    items: dict[str, Any] = schema.get("items", schema)
    return items


def _decode_body(route: Route, request: Request) -> Any:
    check_body_size(route, request)
    try:
        return _decoder(route.body).decode(request.body)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"body: does not match the schema: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"body: must be JSON: {error}") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
