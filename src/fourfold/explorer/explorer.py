"""The explorer of one server: its routes, and the rendering of pages, errors and the login.

Every page is a handler that returns data and a template that shows it; the same data is served as
JSON. Pages allow scripts and styles of this server only, and no other site may frame them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import Struct

from fourfold._version import __version__
from fourfold.archive.restore_points import time_of
from fourfold.errors import FourfoldError, InvalidInput, Unauthorized
from fourfold.explorer import (
    archive,
    audit,
    blobs,
    branches,
    documents,
    drawings,
    graph_matches,
    graph_paths,
    graphs,
    home,
    jobs,
    keys,
    memory,
    neighbourhood,
    pipeline,
    server_pages,
    sessions,
    sql,
    streams,
    sync,
    timeline,
    usage,
    values,
)
from fourfold.explorer.api import Api
from fourfold.explorer.assets import FOLDER, Assets
from fourfold.explorer.links import LOG_PARAMETERS, Links, format_at, parse_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Form, Fragment, PageFeed, Visit
from fourfold.server import errors
from fourfold.server.auth import COOKIE
from fourfold.server.request import Headers, Request, Response
from fourfold.server.routes import Ok, Route
from fourfold.server.streams import StreamProtocol
from fourfold.wire.fields import POINT_PATTERN
from fourfold.wire.store import PointRow

if TYPE_CHECKING:
    from jinja2 import Environment

HTML: Final = "text/html; charset=utf-8"
FORM_BODY_MAX: Final = 256 * 1024
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[Headers] = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
NAVIGATION: Final = (
    ("Documents", "/documents"),
    ("Streams", "/streams"),
    ("Graphs", "/graphs"),
    ("Sessions", "/sessions"),
    ("SQL", "/sql"),
    ("Pipeline", "/pipeline"),
    ("Archive", "/archive"),
    ("Jobs", "/jobs"),
    ("Health", "/status"),
    ("Keys", "/keys"),
)
_MODULES: Final = (
    home,
    documents,
    memory,
    branches,
    blobs,
    streams,
    graphs,
    graph_matches,
    graph_paths,
    sync,
    sessions,
    sql,
    pipeline,
    archive,
    jobs,
    keys,
    audit,
    server_pages,
)


class LoginQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the login page."""

    next: str = "/"
    """Path to open after the login."""


class LoginFields(Struct, kw_only=True, frozen=True):
    """Fields of the login form."""

    key: str
    next: str = "/"


class Explorer:
    """Web pages over the API of one server."""

    def __init__(self, protocol: StreamProtocol, name: str) -> None:
        self._protocol = protocol
        self._name = name
        self._assets = Assets()

    @cached_property
    def _templates(self) -> Environment:
        """The templates of the pages, loaded for the first page."""
        from jinja2 import (  # noqa: PLC0415 - large, and not every server shows pages
            Environment,
            PackageLoader,
            StrictUndefined,
        )

        environment = Environment(
            loader=PackageLoader("fourfold.explorer"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "amount": usage.amount,
            "count": values.count,
            "size": values.size,
            "clock": values.clock,
            "dump": values.dump,
            "duration": values.duration,
            "lens": values.lens_text,
            "line": values.line,
            "message": values.message,
            "ms": values.to_ms,
            "offset": streams.offset_number,
            "pretty": values.pretty,
            "prose": values.prose,
            "seconds": timeline.seconds,
            "rate": values.rate,
            "tokens": usage.tokens_of,
            "upto": values.count_up_to,
        }
        environment.globals |= {
            "asset": self._assets.path,
            "drawings": drawings,
            "draw_branches": branches.draw,
            "draw_neighbourhood": neighbourhood.draw,
            "draw_timeline": timeline.draw,
            "main": documents.MAIN,
            "block": values.block,
            "store": self._name,
            "version": __version__,
            "navigation": NAVIGATION,
        }
        return environment

    # Routes

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of all pages, their data, forms, feeds and static files."""
        pages = [page for module in _MODULES for page in module.PAGES]
        feeds = [feed for module in _MODULES for feed in getattr(module, "FEEDS", ())]
        fragments = [part for module in _MODULES for part in getattr(module, "FRAGMENTS", ())]
        forms = [form for module in _MODULES for form in getattr(module, "FORMS", ())]
        return (
            *(_route("GET", page.path, partial(self._page, page), page) for page in pages),
            *(_route("GET", page.json_path, partial(self._data, page), page) for page in pages),
            *(_route("GET", part.path, partial(self._page, part), part) for part in fragments),
            *(_route("GET", feed.path, partial(self._feed, feed), feed) for feed in feeds),
            *(_route("POST", form.path, partial(self._form, form), form) for form in forms),
            Route(
                *("GET", f"{FOLDER}{{file}}", self._static),
                operation="static",
                summary="Get a static file of the explorer.",
                scope="public",
                ok={200: Ok("The file.", "any")},
            ),
            Route(
                *("GET", "/login", self._login_page),
                operation="login_page",
                summary="Show the login.",
                scope="public",
                query=LoginQuery,
                ok={200: Ok("The page.", "text", content_type=HTML)},
            ),
            Route(
                *("POST", "/login", self._login),
                operation="login",
                summary="Store a key in a cookie.",
                scope="public",
                body=bytes,
                ok={303: Ok("Logged in.")},
            ),
            Route(
                *("POST", "/logout", self._logout),
                operation="logout",
                summary="Delete the cookie with the key.",
                scope="public",
                ok={303: Ok("Logged out.")},
            ),
        )

    async def _page(
        self, page: ExplorerPage | Fragment, request: Request, query: ExplorerQuery
    ) -> Response:
        visit = await self._visit(request, query)
        data = await page.handler(visit, query)
        body = await asyncio.to_thread(visit.render, page.template, **data)
        return Response(200, {**_HEADERS, "content-type": HTML}, body.encode())

    async def _data(self, page: ExplorerPage, request: Request, query: ExplorerQuery) -> Response:
        data = await page.handler(await self._visit(request, query), query)
        headers = {**_HEADERS, "content-type": "application/json"}
        return Response(200, headers, msgspec.json.encode(data))

    async def _feed(self, feed: PageFeed, request: Request, query: ExplorerQuery) -> Response:
        return await feed.handler(await self._visit(request, query), query)

    async def _form(self, form: Form, request: Request) -> Response:
        fields = decode_form(request.body, form.fields)
        visit = await self._visit(request, ExplorerQuery())
        result = await form.handler(visit, fields)
        if isinstance(result, str):
            return _redirect(result)
        body = await asyncio.to_thread(visit.render, form.template, **result)
        return Response(200, {**_HEADERS, "content-type": HTML}, body.encode())

    async def _static(self, _request: Request, file: str) -> Response:
        return self._assets.response(file)

    # Rendering

    async def _visit(self, request: Request, query: ExplorerQuery) -> Visit:
        api = Api(self._protocol, request)
        at = await _resolve_at(api, query.at)
        logs = (getattr(query, name, "") for name in LOG_PARAMETERS)
        link = Links(request.root, format_at(at), next(filter(None, logs), ""))
        now_ms = time.time_ns() // 1_000_000
        render = partial(self._render, request, link, format_at(at), now_ms)
        return Visit(request, api, link, at, now_ms, render)

    def _render(
        self, request: Request, link: Links, at: str, now_ms: int, template: str, **data: Any
    ) -> str:
        parameters = dict(parse_qsl(request.query))
        path = "/index.json" if request.path == "/" else f"{request.path}.json"
        return self._templates.get_template(template).render(
            **data,
            link=link,
            at=at,
            parameters={name: value for name, value in parameters.items() if name != "at"},
            path=request.path,
            json_url=link(path, **{**parameters, "at": at}),
            now_url=link(request.path, **{**parameters, "at": None}),
            root=link.root,
            origin=request.address() or "",
            age=partial(values.age, now_ms=now_ms),
            until=partial(values.until, now_ms=now_ms),
            clock_ms=partial(values.clock_ms, now_ms=now_ms),
            has_key=COOKIE in (request.header("cookie") or ""),
        )

    def error_page(self, error: FourfoldError, request: Request) -> Response | None:
        """Return a page about an error; the login if a key is missing.

        Only requests of browsers get a page: they accept HTML, which programs do not ask for.
        """
        if "text/html" not in request.headers.get("accept", "") or request.path.endswith(".json"):
            return None
        error = errors.redact_paths(error)
        link = Links(request.root)
        now_ms = time.time_ns() // 1_000_000
        if isinstance(error, Unauthorized):
            address = link(request.path, **dict(parse_qsl(request.query)))
            return self._login_response(request, address, error, 401)
        problem = errors.problem(error, request.root)
        status = errors.status_of(type(error))
        body = self._render(
            *(request, link, "", now_ms, "error.html"),
            problem=problem,
            reason=HTTPStatus(status).phrase,
            address=link(request.path, **dict(parse_qsl(request.query))),
            has_at="at=" in request.query,
        )
        return Response(status, {**_HEADERS, "content-type": HTML}, body.encode())

    # Login

    def _login_response(
        self, request: Request, following: str, error: FourfoldError | None, status: int
    ) -> Response:
        now_ms = time.time_ns() // 1_000_000
        # A first visit without a key is not a mistake.
        shown = error if error is not None and COOKIE in request.headers.get("cookie", "") else None
        body = self._render(
            *(request, Links(request.root), "", now_ms, "login.html"),
            following=following,
            message="" if shown is None else shown.message,
        )
        headers = {**_HEADERS, "content-type": HTML}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(status, headers, body.encode())

    async def _login_page(self, request: Request, query: LoginQuery) -> Response:
        if self._protocol.is_open:
            return _redirect(Links(request.root)("/"))
        return self._login_response(request, query.next, None, 200)

    async def _login(self, request: Request) -> Response:
        """Set the cookie if the key is valid; it may be any key of the store."""
        fields = decode_form(request.body, LoginFields)
        key = fields.key.strip()
        following = fields.next if _is_local(fields.next) else Links(request.root)("/")
        try:
            self._protocol.check_secret(request, key)
        except Unauthorized:
            failed = Request("GET", "/login", headers={**request.headers, "cookie": COOKIE})
            return self._login_response(failed, following, Unauthorized("unknown key"), 401)
        return _redirect(following, {"set-cookie": _cookie(request, key)})

    async def _logout(self, request: Request) -> Response:
        expired = f"{_cookie(request, '')}; Max-Age=0"
        return _redirect(Links(request.root)("/login"), {"set-cookie": expired})


async def _resolve_at(api: Api, text: str) -> int | datetime | None:
    """Return the point in history of a visit; the id of a restore point is its time."""
    if re.fullmatch(POINT_PATTERN, text) is None:
        return parse_at(text)
    point = await api.get(f"/v1/points/{text}", PointRow)
    return time_of(point.started_ms)


def _route(
    method: str,
    path: str,
    handler: Callable[..., Awaitable[Response]],
    part: ExplorerPage | Fragment | PageFeed | Form,
) -> Route:
    """Return the route of a page, of its data, of a feed or of a form.

    Any valid key opens it: what it shows and changes is checked by the API.
    """
    return Route(
        *(method, path, handler),
        operation=path.strip("/") or "home",
        summary=part.summary,
        scope="owner",
        query=None if isinstance(part, Form) else part.query,
        body=bytes if isinstance(part, Form) else None,
        cancellable=not isinstance(part, Form | Fragment) and part.cancellable,
        ok={200: Ok(part.summary, "text", content_type=HTML)},
    )


def decode_form(body: bytes, kind: type[Any]) -> Any:
    """Decode the fields of a form; raise InvalidInput if they do not match."""
    if len(body) > FORM_BODY_MAX:
        raise InvalidInput(f"form: must be at most {FORM_BODY_MAX} bytes, got {len(body)}")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except (UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"form: {error}") from None


def _cookie(request: Request, secret: str) -> str:
    secure = "; Secure" if request.scheme == "https" else ""
    path = urlencode({"": request.root}, safe="/")[1:] or "/"
    return f"{COOKIE}={secret}; Path={path}; HttpOnly; SameSite=Strict{secure}"


def _is_local(address: str) -> bool:
    """Return True for an address on this server: a path, and not `//host`."""
    return address[:1] == "/" and address[1:2] not in {"/", "\\"} and address.isprintable()


def _redirect(address: str, headers: Headers | None = None) -> Response:
    return Response(303, {"location": address, "cache-control": "no-store", **(headers or {})})
