"""The Durable Streams protocol over requests and responses, without a transport.

    PUT create    POST append, close    GET read, long-poll, SSE    HEAD    DELETE    OPTIONS

Both the ASGI application and the fast append path call `StreamProtocol`, so their responses are
equal.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

import msgspec

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    ContentTypeMismatch,
    Forbidden,
    FourfoldError,
    HostRefused,
    InvalidInput,
    MissingDependency,
    NotFound,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    QuotaExceeded,
    StreamClosed,
    StreamGone,
    StreamSeqOutOfOrder,
    TooLarge,
    Unauthorized,
)
from fourfold.kernel import MetricsReading, combine, commit_traces
from fourfold.models.streams import Append, AppendResult, Fork, StreamOptions, Streams
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.listing import parse_filter, scan_streams
from fourfold.models.streams.validation import JSON, parse_offset, plain_type
from fourfold.server import errors, headers, listing, openapi, stream_rules
from fourfold.server.auth import Access, check_grant
from fourfold.server.budget import VISITORS, WORKERS, BodyBudget, Lease
from fourfold.server.connections import Connections
from fourfold.server.diagnostics import Diagnostics
from fourfold.server.hosts import Hosts
from fourfold.server.key_routes import KeyRoutes
from fourfold.server.key_store import Key
from fourfold.server.key_use import KeyUse
from fourfold.server.large_appends import LargeAppends
from fourfold.server.observer import Observer, is_live
from fourfold.server.origins import Origins
from fourfold.server.replies import encode_reply
from fourfold.server.request import Headers, Request, Response, json_response
from fourfold.server.request_head import AppendHead
from fourfold.server.routes import (
    Ok,
    Pages,
    Route,
    RouteGroup,
    RouteMatch,
    RouteTable,
    bind,
    check_body_size,
    decode_arguments,
)
from fourfold.server.signing_keys import FILE_NAME, Keys
from fourfold.server.stream_compaction import StreamCompaction
from fourfold.server.stream_feed import StreamFeed
from fourfold.server.stream_lists import StreamLists
from fourfold.server.stream_reads import STREAM, ReadTimeouts, StreamRead
from fourfold.server.stream_rules import StreamRules
from fourfold.server.stream_search import StreamSearch
from fourfold.server.subscriptions import Control, control_error_document, is_control
from fourfold.server.workers import Workers
from fourfold.wire.streams import (
    AppendedHeaders,
    AppendHeaders,
    CreatedHeaders,
    CreateHeaders,
    ListQuery,
    PositionHeaders,
    SettingHeaders,
    StreamDetails,
    StreamHeaders,
    StreamPage,
    StreamTotals,
)

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher

HTTP_APPEND_MESSAGES: Final = 200_000
HTTP_APPEND_COMMAS: Final = 1_000_000
"""Messages of a request, and commas in an array of messages, which are counted before the
array is split: each element takes about a hundred bytes and a microsecond.
"""


class AdmittedRequest(NamedTuple):
    """An admitted request: its route and the key that allows it."""

    match: RouteMatch | None
    """None for OPTIONS."""
    key: Key | None
    use: KeyUse | None = None
    """Use of the key, which counts the bytes of the bodies."""

    @property
    def is_cancellable(self) -> bool:
        """True if the work ends when the client disconnects."""
        route = None if self.match is None else self.match.route
        return route is not None and route.cancellable


class StreamProtocol:
    """Handle requests about the streams of one store."""

    def __init__(
        self,
        streams: Streams,
        timing: ReadTimeouts | None = None,
        access: Access | None = None,
        control: Control | None = None,
        *,
        hosts: Hosts | None = None,
        origins: Origins | None = None,
        budget: BodyBudget | None = None,
        publishing: ServerPublisher | None = None,
        transport: str = "asgi",
        models: Iterable[RouteGroup] = (),
        workers: Workers | None = None,
        observer: Observer | None = None,
        database_metrics: Callable[[], Iterable[MetricsReading]] | None = None,
    ) -> None:
        self.observer = observer or Observer()
        self.connections = Connections()
        """Connections of this server; replaced by those with the limits of its settings."""
        self.streams = self._streams = streams
        self._models = tuple(models)
        self._workers = workers or Workers()
        self._access = access
        timing = timing or ReadTimeouts()
        self._reads = StreamRead(streams, timing, lambda: self.is_open)
        self._rules = StreamRules(streams, timing)
        self._feed = StreamFeed(streams, timing)
        self.hosts = hosts or Hosts()
        self.origins = origins or Origins()
        self.budget = budget or BodyBudget()
        """Memory for request bodies that are being received."""
        self.large_appends = LargeAppends.of(streams.database)
        # By default the keys are in the store, next to the folder of the database.
        self.control = control or Control(
            streams, Keys(streams.database.path.parent.parent / FILE_NAME), access
        )
        self._pages: Pages | None = None
        self.pages_loader: Callable[[], Pages] | None = None
        """Loads the web pages for the first request that may need them."""
        self._documents: dict[str, bytes] = {}
        """OpenAPI documents, by the path where the server is mounted."""
        self.diagnostics = Diagnostics(
            *(self, self._workers, access, publishing, transport),
            database_metrics=database_metrics or self._stream_metrics,
        )
        self.routes = RouteTable(
            (
                *self.diagnostics.routes(),
                *KeyRoutes(access, self._workers).routes(),
                *(route for group in self._models for route in group.routes()),
                *self.control.routes(),
                # Their paths come before those of streams, which match too.
                *self._rules.routes(),
                *StreamSearch(streams, self._workers).routes(),
                *StreamCompaction(streams, self._workers).routes(),
                *StreamLists(streams, self._workers).routes(),
                *self._feed.routes(),
                *bind(_STREAM_ROUTES, self),
                *self._reads.routes(),
            )
        )

        self.api_routes = self.routes.routes
        self.append_route = next(route for route in self.api_routes if route.operation == "append")
        """Route of appends, for the fast append path."""

    def add_pages(self, pages: Pages) -> None:
        """Serve web pages besides the API; they are not part of the OpenAPI document."""
        self._pages = pages
        self.pages_loader = None
        self.routes = RouteTable((*pages.routes(), *self.api_routes))

    async def prepare(self, request: Request) -> None:
        """Load the web pages if they may answer this request, and are not loaded yet.

        Other requests go on meanwhile. Pages have no path that the API has; a browser also gets a
        page about an error of the API.
        """
        loader = self.pages_loader
        if loader is None:
            return
        if "text/html" not in request.headers.get("accept", ""):
            with suppress(NotFound):
                self.routes.find(request.method, request.path)
                return
        pages = await self._workers.run(loader)
        if self.pages_loader is not None:
            self.add_pages(pages)

    def stop(self) -> None:
        """End waiting requests as if they had timed out, before the server stops."""
        self._reads.stop()
        self._rules.stop()
        self._feed.stop()
        for group in self._models:
            group.stop()

    # Requests

    async def handle(self, request: Request) -> Response:
        """Return the response to any complete request; an error becomes a response too."""
        try:
            await self.prepare(request)
            return await self.run(self.admit(request), request)
        except FourfoldError as error:
            return self.error_response(error, request)

    def admit(self, request: Request) -> AdmittedRequest:
        """Find the route of a request, and check where it comes from, before its body arrives.

        Access is denied by default: a request that matches no route needs a key for everything.

        Raises:
            HostRefused: the server does not accept the host.
            Unauthorized: the request has no valid key.
            Forbidden: the key does not allow the request, or a page of a foreign origin sent it.
            NotFound: no route has this path.
            QuotaExceeded: a quota of the key is exhausted.
        """
        try:
            self._check_source(request)
            call = self._admit(request)
            if call.use is not None:
                call.use.admit()
        except _REFUSALS as error:
            self._record_refusal(request, error)
            raise
        return call

    def check_secret(self, request: Request, secret: str) -> None:
        """Check a key that an admitted request has in its body; a refusal is recorded as its own.

        Raises:
            Unauthorized: The key is not valid.
            QuotaExceeded: A quota of the key is exhausted.
        """
        if self._access is None:
            return
        probe = Request(request.method, request.path, headers={"authorization": f"Bearer {secret}"})
        try:
            key = self._access.identify(probe)
            use = None if key is None else self._access.uses.get(key)
            if use is not None:
                use.admit()
        except _REFUSALS as error:
            self._record_refusal(request, error)
            raise

    def _record_refusal(self, request: Request, error: FourfoldError) -> None:
        route = None
        with suppress(NotFound):
            route = self.routes.find(request.method, request.path).route
        self.observer.refused(request, error, "" if route is None else route.operation)

    def _stream_metrics(self) -> list[MetricsReading]:
        return [combine("streams", [self._streams.database.metrics()])]

    def record_refused_append(self, error: FourfoldError, name: str, address: str | None) -> None:
        """Record an append that was not admitted; for the fast append path."""
        if isinstance(error, _REFUSALS):
            path = headers.STREAM_PREFIX + name
            self.observer.refused(Request("POST", path, client=address or ""), error, "append")

    def _admit(self, request: Request) -> AdmittedRequest:
        # A browser sends a preflight request without the key.
        if request.method == "OPTIONS":
            return AdmittedRequest(None, None)
        try:
            match = self.routes.find(request.method, request.path)
        except NotFound:
            if self._access is not None:
                self._access.require(request, "admin", "", "streams")
            raise
        key = self._authorize(request, match)
        if key is None or self._access is None:
            return AdmittedRequest(match, key)
        return AdmittedRequest(match, key, self._access.uses.get(key))

    def _authorize(self, request: Request, target: RouteMatch) -> Key | None:
        """Return the key of an admitted request, or None if no key is required."""
        route = target.route or next(iter(target.routes.values()))
        if target.route is not None and route.scope == "token":
            self.control.check_token(request, target.path_parameters["subscription"])
        if self._access is None:
            return None
        resource: str | None = ""
        if route.resource == "prefix":
            resource = request.parameters().get("prefix", "")
        elif route.resource == "any":
            resource = None
        elif route.resource != "all":
            resource = target.path_parameters[route.resource]
        match route.scope:
            case "public":
                return None
            case "token":
                return None if target.route is not None else self._access.identify(request)
            case "owner":
                return self._access.identify(request)
            case scope:
                required = "admin" if target.route is None else scope
                return self._access.require(request, required, resource, route.model)

    def admit_append(self, head: AppendHead, name: str) -> Key | None:
        """Admit an append, without routing; for the fast append path.

        Only the stream is checked again for a head that was admitted with the same keys.
        """
        keys = () if self._access is None else self._access.keys()
        if head.keys is not keys:
            request = Request("POST", headers.STREAM_PREFIX + name, "", head.headers)
            self._check_source(request)
            head.key = None if self._access is None else self._access.identify(request)
            head.use = None
            if head.key is not None and self._access is not None:
                head.use = self._access.uses.get(head.key)
            head.keys = keys
        if head.key is not None:
            check_grant(head.key, "write", name, "streams")
        return head.key

    def _check_source(self, request: Request) -> None:
        self.hosts.check(request.header("host"), is_open=self.is_open)
        self.origins.check(request)

    def lease(self, call: AdmittedRequest) -> Lease | None:
        """Return a memory lease for the body of an admitted request.

        Returns None for a request that needs no key and whose body has no meaning: it is discarded.
        """
        if call.key is not None:
            return self.budget.lease(call.key.id)
        if self.is_open:
            return self.budget.lease(None)
        route = None if call.match is None else call.match.route
        if route is not None and route.scope == "token":
            return self.budget.lease(WORKERS)
        if route is not None and route.body is not None:
            return self.budget.lease(VISITORS)
        return None

    def lease_append(self, key: Key | None) -> Lease:
        """Return a memory lease for the body of an admitted append; for the fast append path."""
        return self.budget.lease(None if key is None else key.id)

    async def run(self, call: AdmittedRequest, request: Request) -> Response:
        """Return the response to an admitted request, with its body."""
        match = call.match
        if match is None:
            response = Response(204, self.origins.preflight_headers(request.header("origin")))
        elif match.route is None:
            response = Response(405, {"allow": match.allow()})
        else:
            response = await self._run(call, match.route, match.path_parameters, request)
        return self._complete(response, request.header("origin"))

    async def _run(
        self, call: AdmittedRequest, route: Route, parameters: Mapping[str, str], request: Request
    ) -> Response:
        """Return the response of a route, and record it."""
        observer, key, started = self.observer, call.key, time.perf_counter()
        live = observer.metrics.in_flight
        kind = "long-poll" if is_live(request) else "request"
        live[kind] += 1
        trace = observer.begin(request)
        record = partial(observer.answered, route, key, request, started=started, trace=trace)
        try:
            headers.check_encoding(request)
            with nullcontext() if trace is None else commit_traces.collecting(trace.commits):
                response = await self._handle_counted(call, route, parameters, request)
        except FourfoldError as error:
            record(status=errors.status_of(type(error)), error=error)
            raise
        except Exception:
            record(status=500)
            raise
        finally:
            live[kind] -= 1
        record(status=response.status)
        return response

    async def _handle_counted(
        self, call: AdmittedRequest, route: Route, parameters: Mapping[str, str], request: Request
    ) -> Response:
        """Return the response of a route, and count the bytes of its bodies for the key."""
        use = call.use if call.use is not None and call.use.counts_bytes else None
        if use is None:
            return await self._handle(route, parameters, call.key, request)
        use.spend(len(request.body))
        response = await self._handle(route, parameters, call.key, request)
        use.spend(len(response.body))
        if response.pieces is not None:
            response.pieces = _counted(response.pieces, use)
        return response

    async def _handle(
        self, route: Route, parameters: Mapping[str, str], key: Key | None, request: Request
    ) -> Response:
        """Decode the arguments of a route, call its handler, and encode the reply."""
        if len(request.body) > limits.HTTP_LOOP_BYTES and route.body not in {None, bytes}:
            check_body_size(route, request)
            arguments = await self._workers.run(decode_arguments, route, request)
        else:
            arguments = decode_arguments(route, request)
        if key is not None:
            grant = None if route.model == "any" else key.grant(route.model)
            request = msgspec.structs.replace(
                request, key_id=key.id, grant=grant, grants=key.grants
            )
        result = await route.handler(request, **parameters, **arguments)
        if isinstance(result, Response):
            return result
        if result.is_large:
            return await self._workers.run(encode_reply, result, request)
        return encode_reply(result, request)

    def _complete(self, response: Response, origin: str | None = None) -> Response:
        """Add the headers that every response has."""
        response.headers = {
            **headers.DEFAULT_HEADERS,
            **self.origins.response_headers(origin),
            **response.headers,
        }
        return response

    def error_response(self, error: FourfoldError, request: Request) -> Response:
        """Return the complete response to a request that failed: a page for a browser."""
        page = None if self._pages is None else self._pages.error_page(error, request)
        response = error_response(error, request) if page is None else page
        return self._complete(response, request.header("origin"))

    def append_response(self, result: AppendResult | FourfoldError, *, wrote: bool) -> Response:
        """Return the complete response to an append, for the fast append path."""
        if isinstance(result, FourfoldError):
            return self._complete(error_response(result))
        return self._complete(_success_response(result, wrote=wrote))

    def openapi_document(self, root: str = "") -> bytes:
        """Return the OpenAPI document of all routes, for a server mounted at `root`."""
        if root not in self._documents:
            self._documents[root] = openapi.document(self.api_routes, root)
        return self._documents[root]

    # Whole streams

    async def create(self, request: Request, name: str) -> Response:
        """Create a stream."""
        if name.endswith(stream_rules.RESERVED):
            reserved = ", ".join(map(repr, stream_rules.RESERVED))
            raise InvalidInput(
                f"stream {name!r:.200}: the name ends in a reserved path",
                hint=f"Choose a name that does not end in {reserved}.",
            )
        fork = self._fork(request)
        content_type = request.header("content-type")
        options = StreamOptions(
            name,
            content_type or (None if fork else "application/octet-stream"),
            headers.parse_number(request, "stream-ttl"),
            headers.parse_expiry_ms(request),
            headers.parse_closed(request),
            fork,
            headers.parse_number(request, "stream-retention-seconds"),
            headers.parse_number(request, "stream-retention-bytes"),
        )
        if request.body and plain_type(options.content_type or "") == JSON:
            _split_bounded(request.body, JSON, empty_list=True)
        result = await self._streams.create_with_options_async(options, request.body)
        info = result.info
        response_headers: Headers = {
            "content-type": info.content_type,
            **headers.position_headers(info, info.next_offset, closed=info.closed),
        }
        if result.created:
            path = quote(request.root + request.path)
            response_headers["location"] = request.address(request.path) or path
        return Response(201 if result.created else 200, response_headers)

    def _fork(self, request: Request) -> Fork | None:
        source = headers.parse_fork_source(request)
        offset = request.header("stream-fork-offset")
        sub = headers.parse_number(request, "stream-fork-sub-offset")
        if source is None:
            if sub is not None or offset is not None:
                raise InvalidInput("fork offset: requires Stream-Forked-From")
            return None
        if self._access is not None:
            self._access.require(request, "read", source, "streams")
        at = None if offset is None else parse_offset(offset)
        if sub and offset is None:
            raise InvalidInput("Stream-Fork-Sub-Offset: requires Stream-Fork-Offset")
        return Fork(source, at, sub or 0)

    async def delete(self, _request: Request, name: str) -> Response:
        """Delete a stream."""
        await self._streams.delete_async(name)
        return Response(204)

    async def head(self, _request: Request, name: str) -> Response:
        """Return the headers of a stream."""
        return Response(200, headers.stream_headers(self._streams.info(name)))

    async def configure(self, request: Request, name: str) -> Response:
        """Change the lifetime or the retention of a stream."""
        if request.body:
            raise InvalidInput(
                "body: must be empty for PATCH", hint="Send the new settings as headers."
            )
        info = await self._streams.configure_async(name, headers.parse_settings(request))
        return Response(200, headers.stream_headers(info))

    async def totals(self, _request: Request) -> Response:
        """Count the streams, records and bytes."""
        totals = await self._workers.run(self._streams.totals)
        return json_response(StreamTotals(**totals._asdict()))

    async def details(self, _request: Request, name: str) -> Response:
        """Return a stream with its statistics."""
        # It counts producers and subscriptions, of which there may be many.
        details = await self._workers.run(self._streams.details, name)
        return json_response(listing.stream_details(details))

    async def list_streams(self, _request: Request, query: ListQuery) -> Response:
        """Return a page of streams."""
        return await self._workers.run(self._stream_page, query)

    def _stream_page(self, query: ListQuery) -> Response:
        """Return a page of streams, made in short steps while other threads write."""
        wanted = parse_filter(query.prefix, query.content_type)
        now = self._streams.read_clock()
        with self._streams.database.read_current() as snapshot:
            page = scan_streams(snapshot, wanted, after=query.after, limit=query.limit, now=now)
        pauses = self._streams.database.pauses
        pauses.start()
        rows = []
        for info in page.infos:
            rows.append(listing.stream_row(info))
            pauses.pause()
        # Without a filter, a name is returned after the last page, too: streams may be created.
        last = rows[-1].name if rows and not query.content_type else None
        return json_response(StreamPage(streams=rows, next_after=page.next_after or last))

    # Appending

    async def append(self, request: Request, name: str) -> Response:
        """Append to a stream."""
        append = self.parse_append(request, name)
        submit = partial(self._streams.append_async, name, append)
        size = len(request.body)
        if self.large_appends.must_wait(size):
            result = await self.large_appends.run(size, submit)
        else:
            result = await submit()
        return _success_response(result, wrote=bool(append.records))

    @property
    def is_open(self) -> bool:
        """True if requests need no key; False if the keys cannot be read."""
        try:
            return self._access is None or not self._access.keys()
        except FourfoldError:
            return False

    def make_plain_append(self, name: str, content_type: str, body: bytes) -> Append:
        """Build an append with a body and no headers besides its content type."""
        return Append.unconditional(self._split(body, content_type, name), content_type)

    def parse_append(self, request: Request, name: str) -> Append:
        """Parse a POST to a stream; raise InvalidInput if it is not a valid append."""
        headers.check_encoding(request)
        fields, body = request.headers, request.body
        close = "stream-closed" in fields and headers.parse_closed(request)
        producer = headers.parse_producer(request)
        if not body and not close:
            self._streams.info(name)
            raise InvalidInput("append: the body is empty", hint="Send a body.")
        content_type = fields.get("content-type")
        records: list[bytes] = []
        if body:
            if content_type is None:
                raise InvalidInput("Content-Type: required for an append")
            records = self._split(body, content_type, name)
        key = headers.parse_routing_key(request) if "stream-key" in fields else None
        return Append(
            records,
            content_type,
            producer,
            fields.get("stream-seq"),
            close,
            key,
            expected=headers.parse_expected(request),
            headers=headers.parse_record_headers(request),
        )

    def _split(self, body: bytes, content_type: str, name: str) -> list[bytes]:
        """Split a body into records."""
        try:
            if len(body) <= HTTP_APPEND_MESSAGES:
                # It has no more messages than bytes.
                return split(body, content_type)
            return _split_bounded(body, content_type)
        except InvalidInput:
            # A wrong content type is reported before invalid JSON.
            info = self._streams.info(name)
            if plain_type(info.content_type) != plain_type(content_type) and not info.closed:
                return [body]
            raise


def _split_bounded(body: bytes, content_type: str, *, empty_list: bool = False) -> list[bytes]:
    """Split a body into records; raise TooLarge if it has too many messages.

    An array with very many commas is not even split, which would block the event loop.
    """
    count = 0
    if len(body) > HTTP_APPEND_COMMAS and body.lstrip()[:1] == b"[":
        count = body.count(b",")
    if count <= HTTP_APPEND_COMMAS or plain_type(content_type) != JSON:
        records = split(body, content_type, empty_list=empty_list)
        if len(records) <= HTTP_APPEND_MESSAGES:
            return records
        count = len(records)
    raise TooLarge(
        f"append: must have at most {HTTP_APPEND_MESSAGES} messages and "
        f"{HTTP_APPEND_COMMAS} commas, got {count}",
        hint="Send several requests with fewer messages.",
    )


async def _counted(pieces: AsyncIterator[bytes], use: KeyUse) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body, and count their bytes for a key."""
    try:
        async for piece in pieces:
            use.spend(len(piece))
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def error_response(error: FourfoldError, request: Request | None = None) -> Response:
    """Return the response to an error, without the headers that every response has.

    Every error that is sent to a client passes here.
    """
    error = errors.redact_paths(error)
    document: dict[str, object] = {"error": error.as_dict()}
    content_type = JSON
    if request is not None:
        control = control_error_document(error) if is_control(request.path) else None
        document = document if control is None else {"error": control}
        if errors.uses_problem(request.path, request.headers):
            content_type = errors.PROBLEM_JSON
            document = errors.problem(error, request.root)
            if control is not None and "code" in control:
                document["code"] = control["code"]
    response = Response(
        errors.status_of(type(error)),
        {"content-type": content_type, "cache-control": "no-store", **headers.error_headers(error)},
        # Messages and details may contain values that are not valid in UTF-8.
        json.dumps(document, default=str).encode(),
    )
    if response.status in {429, 503}:
        response.headers.setdefault("retry-after", str(limits.RETRY_AFTER_S))
    return response


def _success_response(result: AppendResult, *, wrote: bool) -> Response:
    response_headers: Headers = {"stream-next-offset": result.offset}
    if result.closed:
        response_headers["stream-closed"] = "true"
    if result.producer is not None:
        response_headers["producer-epoch"] = str(result.producer.epoch)
        response_headers["producer-seq"] = str(result.producer.seq)
    is_new = wrote and result.producer is not None and not result.duplicate
    return Response(200 if is_new else 204, response_headers)


_REFUSALS: Final = (Unauthorized, Forbidden, HostRefused, QuotaExceeded)
_GONE: Final = (NotFound, StreamGone)
_STREAM_ROUTES: Final = (
    Route(
        *("GET", "/v1/streams", StreamProtocol.list_streams),
        operation="list",
        summary="List streams in the order of their names.",
        scope="read",
        resource="prefix",
        query=ListQuery,
        ok={200: Ok("A page of streams.", StreamPage)},
    ),
    Route(
        *("GET", "/v1/streams/totals", StreamProtocol.totals),
        operation="totals",
        summary="Count the streams, records and bytes.",
        scope="admin",
        ok={200: Ok("The counts.", StreamTotals)},
    ),
    Route(
        *("GET", f"{STREAM}{stream_rules.DETAILS}", StreamProtocol.details),
        operation="details",
        summary="Get a stream with its statistics.",
        scope="read",
        resource="name",
        ok={200: Ok("The details.", StreamDetails)},
        errors=_GONE,
    ),
    Route(
        *("PUT", STREAM, StreamProtocol.create),
        operation="create",
        summary="Create a stream; idempotent.",
        scope="write",
        resource="name",
        headers=CreateHeaders,
        body=bytes,
        ok={
            200: Ok("It exists with the same settings.", headers=PositionHeaders),
            201: Ok("It was created.", headers=CreatedHeaders),
        },
        errors=(NotFound, AlreadyExists, MissingDependency),
    ),
    Route(
        *("POST", STREAM, StreamProtocol.append),
        operation="append",
        summary="Append to a stream, close it, or both.",
        scope="write",
        resource="name",
        headers=AppendHeaders,
        body=bytes,
        ok={
            200: Ok("Appended by a producer.", headers=AppendedHeaders),
            204: Ok("Appended, or a duplicate.", headers=AppendedHeaders),
        },
        errors=(
            *_GONE,
            *(StreamClosed, ContentTypeMismatch, PreconditionFailed, StreamSeqOutOfOrder),
            *(ProducerGap, ProducerFenced, MissingDependency),
        ),
    ),
    Route(
        *("HEAD", STREAM, StreamProtocol.head),
        operation="head",
        summary="Get the headers of a stream.",
        scope="read",
        resource="name",
        ok={200: Ok("The headers of the stream.", headers=StreamHeaders)},
        errors=_GONE,
    ),
    Route(
        *("PATCH", STREAM, StreamProtocol.configure),
        operation="configure",
        summary="Change the lifetime or the retention of a stream.",
        scope="admin",
        resource="name",
        headers=SettingHeaders,
        ok={200: Ok("Changed.", headers=StreamHeaders)},
        errors=_GONE,
    ),
    Route(
        *("DELETE", STREAM, StreamProtocol.delete),
        operation="delete",
        summary="Delete a stream.",
        scope="admin",
        resource="name",
        ok={204: Ok("Deleted.")},
        errors=_GONE,
    ),
)
