"""The Durable Streams protocol over requests and responses, without a transport.

    PUT create    POST append, close    GET read, long-poll, SSE    HEAD    DELETE    OPTIONS

Both the ASGI application and the fast append path call `Protocol`, so their responses are equal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fourfold import limits
from fourfold.errors import (
    Busy,
    CorruptData,
    FormatError,
    FourfoldError,
    InvalidInput,
    NotFound,
    PublisherFenced,
    StorageError,
    TooLarge,
)
from fourfold.kernel import prometheus_text
from fourfold.models.streams import Append, Appended, Fork, StreamOptions, Streams
from fourfold.models.streams.archive.status import ArchiveStatus
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.records import Details, StreamInfo
from fourfold.models.streams.validation import JSON, format_offset, parse_offset, plain_type
from fourfold.server import errors, headers, health, listing, openapi, routes
from fourfold.server.auth import Access, Key
from fourfold.server.budget import WORKERS, BodyBudget, Lease
from fourfold.server.hosts import Hosts
from fourfold.server.request import Headers, Request, Response
from fourfold.server.signing_keys import FILE_NAME, Keys
from fourfold.server.stream_reads import ReadTimeouts, StreamRead
from fourfold.server.stream_rules import StreamRules
from fourfold.server.subscriptions import (
    Control,
    control_error_document,
    is_control,
    worker_subscription,
)

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher


def details_document(details: Details) -> dict[str, Any]:
    """Return the document of `_details`: a stream with its statistics."""
    info = details.info
    return {
        **listing.stream_row(info),
        "updated_at_ms": details.updated_at_ms,
        "rows": info.next_offset - info.first_offset,
        "wal_rows": details.wal_rows,
        "wal_bytes": details.wal_bytes,
        "pending_rows": details.pending_rows,
        "pending_bytes": details.pending_bytes,
        "profile": info.profile,
        "schema_version": info.schema_version,
        "retention_seconds": info.retention_seconds,
        "retention_bytes": info.retention_bytes,
        "forked_from": details.forked_from,
        "fork_offset": _format_offset(info, info.fork_offset),
        "forks": info.forks,
        "producers": details.producers,
        "subscriptions": details.subscriptions,
        "archive": _archive_document(info, details.archived),
    }


def _format_offset(info: StreamInfo, offset: int | None) -> str | None:
    return None if offset is None else format_offset(offset, info.incarnation_number)


def _archive_document(info: StreamInfo, status: ArchiveStatus) -> dict[str, Any]:
    """Return how far a stream is sealed and published, and at what cost."""
    return {
        "sealed_offset": _format_offset(info, status.sealed_through + 1),
        "published_offset": _format_offset(info, status.uploaded_through + 1),
        "segments": status.segments,
        "published_segments": status.uploaded_segments,
        "generation": status.generation,
        "published_generation": status.uploaded_generation,
        "published_at_ms": status.uploaded_at_ms,
        "manifest_bytes": status.manifest_bytes,
        "requests": [
            {
                "artifact": entry.artifact,
                "op": entry.op,
                "count": entry.number,
                "bytes": entry.bytes,
            }
            for entry in status.requests
        ],
        "indexes": [
            {
                "field": entry.name or None,
                "indexed_offset": _format_offset(info, entry.indexed_offset),
                "indexed_segments": entry.indexed_segments,
                "runs": entry.runs,
                "bytes": entry.bytes,
                "levels": entry.levels,
            }
            for entry in status.indexes
        ],
        "compactions_pending": status.swaps,
    }


PREFIX: Final = headers.STREAM_PREFIX
LIST: Final = "/v1/streams"
_STATUS: Final[dict[str, int]] = {
    "stream_gone": 410,
    "offset_gone": 410,
    "stream_recreated": 410,
    "producer_fenced": 403,
    "unauthorized": 401,
    "forbidden": 403,
    "host_refused": 421,
    "stream_closed": 409,
    "read_only": 403,
    "too_large": 413,
    "unsupported_encoding": 415,
    "closed": 503,
    "missing_dependency": 501,
}


class Protocol:
    """Handle requests about the streams of one store."""

    def __init__(
        self,
        streams: Streams,
        timing: ReadTimeouts | None = None,
        access: Access | None = None,
        control: Control | None = None,
    ) -> None:
        self.streams = self._streams = streams
        self._access = access
        timing = timing or ReadTimeouts()
        self._reads = StreamRead(streams, timing, lambda: self.is_open)
        self._rules = StreamRules(streams, timing)
        self.transport = "asgi"
        """Transport of the requests, as reported by `/health`."""
        self.hosts = Hosts()
        self.budget = BodyBudget()
        """Memory for request bodies that are being received."""
        self.publishing: ServerPublisher | None = None
        """Publisher of the store, if there is one."""
        # By default the keys are in the store, next to the folder of the database.
        self.control = control or Control(
            streams, Keys(streams.database.path.parent.parent / FILE_NAME), access
        )
        self._handlers: dict[str, Callable[..., Awaitable[Response]]] = {
            "health": self._health,
            "metrics": self._metrics,
            "openapi": self._openapi,
            "list": self._list,
            "totals": self._totals,
            "details": self._details,
            "create": self._create,
            "append": self._append,
            "read": self._reads.handle,
            "head": self._head,
            "configure": self._configure,
            "delete": self._delete,
            **self._rules.handlers(),
            **self.control.handlers(),
        }

    def stop(self) -> None:
        """End waiting requests as if they had timed out, before the server stops."""
        self._reads.stop()
        self._rules.stop()

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that have a handler."""
        return tuple(self._handlers)

    async def handle(self, request: Request) -> Response:
        """Return the response to any request; an error becomes a response too."""
        try:
            response = await self._route(request)
        except FourfoldError as error:
            return error_response(error, control=is_control(request.path))
        return _with_default_headers(response)

    async def _route(self, request: Request) -> Response:
        self.admit(request)
        if request.method == "OPTIONS":
            return Response(204, dict(headers.PREFLIGHT))
        match = routes.find(request.method, request.path)
        if match.route is None:
            return Response(405, {"allow": ", ".join((*match.methods, "OPTIONS"))})
        headers.check_encoding(request)
        routes.check_parameters(match.route, request)
        return await self._handlers[match.route.operation](request, **match.path_parameters)

    # The server itself

    async def _health(self, request: Request) -> Response:
        """Return the health of the server.

        Names, and messages that may contain them, are only for keys that may read every stream.
        """
        failure = self._streams.sweep_failure or self._streams.subscriptions.failure
        ready = self._streams.database.health().ready and failure is None
        failing = self._streams.unpublished() if self._streams.unpublished is not None else {}
        detailed = self._access is None or self._access.may_read_all(request)
        # A stream that cannot be published is still served.
        document: dict[str, object] = {
            "ok": ready,
            "error": _error_document(failure, detailed=detailed),
            "front": self.transport,
            "unpublished_count": len(failing),
            "fenced_count": sum(isinstance(error, PublisherFenced) for error in failing.values()),
            "databases": None,
            "objects": None,
        }
        if detailed:
            document["unpublished"] = sorted(failing)
        if self.publishing is not None:
            document["databases"] = health.status(self.publishing.backup, detailed=detailed)
            document["objects"] = {
                "ok": self.publishing.failure is None,
                "error": _error_document(self.publishing.failure, detailed=detailed),
            }
        return _json(200 if ready else 503, document)

    async def _metrics(self, _request: Request) -> Response:
        text = prometheus_text([self._streams.database.metrics()])
        if self.publishing is not None:
            text += health.metrics_text(self.publishing.backup)
        return Response(200, {"content-type": "text/plain; version=0.0.4"}, text.encode())

    async def _openapi(self, request: Request) -> Response:
        response_headers = {"content-type": JSON, "cache-control": "public, max-age=300"}
        return Response(200, response_headers, openapi.document(request.root))

    def admit(self, request: Request) -> None:
        """Raise Unauthorized or Forbidden if the request's key does not allow it."""
        self._authorize(request)

    def lease(self, request: Request) -> Lease | None:
        """Admit a request by its head and return a memory lease for its body.

        Returns None for a request that needs no key: its body has no meaning, and is discarded.
        """
        is_open = self.is_open
        key = self._authorize(request)
        if is_open:
            return self.budget.lease(None)
        if key is not None:
            return self.budget.lease(key.id)
        return None if worker_subscription(request) is None else self.budget.lease(WORKERS)

    def _authorize(self, request: Request) -> Key | None:
        """Return the key of an admitted request, or None if no key is required."""
        self.hosts.check(request.header("host"), is_open=self.is_open)
        if self._access is None or request.path == "/openapi.json":
            return None
        # A browser sends a preflight request without the key.
        if request.method == "OPTIONS":
            return None
        if is_control(request.path):
            return self.control.admit(request)
        name, scope = None, None
        if request.path.startswith(PREFIX):
            name = request.path.removeprefix(PREFIX)
            if name.endswith(routes.RESERVED):
                name, scope = routes.required_access(request.method, request.path)
        elif request.path == LIST:
            name = request.parameters().get("prefix", "")
        elif request.path == "/metrics":
            name, scope = "", "metrics"
        return self._access.check(request, name, scope)

    # Whole streams

    async def _create(self, request: Request, name: str) -> Response:
        if name.endswith(routes.RESERVED):
            raise InvalidInput(
                f"stream {name!r:.200}: the name ends in a reserved path",
                hint=f"Choose a name that does not end in {', '.join(map(repr, routes.RESERVED))}.",
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
        at = None if offset is None else parse_offset(offset)
        if sub and offset is None:
            raise InvalidInput("Stream-Fork-Sub-Offset: requires Stream-Fork-Offset")
        return Fork(source, at, sub or 0)

    async def _delete(self, _request: Request, name: str) -> Response:
        await self._streams.delete_async(name)
        return Response(204)

    async def _head(self, _request: Request, name: str) -> Response:
        return Response(200, headers.stream_headers(self._streams.info(name)))

    async def _configure(self, request: Request, name: str) -> Response:
        if request.body:
            raise InvalidInput(
                "body: must be empty for PATCH", hint="Send the new settings as headers."
            )
        info = await self._streams.configure_async(name, headers.parse_settings(request))
        return Response(200, headers.stream_headers(info))

    async def _totals(self, _request: Request) -> Response:
        totals = await asyncio.to_thread(self._streams.totals)
        return _json(200, totals._asdict())

    async def _details(self, _request: Request, name: str) -> Response:
        # It counts producers and subscriptions, of which there may be many.
        details = await asyncio.to_thread(self._streams.details, name)
        return _json(200, details_document(details))

    async def _list(self, request: Request) -> Response:
        parameters = request.parameters()
        limit = parameters.get("limit", "100")
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= limits.LIST_STREAMS_MAX:
            raise InvalidInput(
                f"limit: must be from 1 to {limits.LIST_STREAMS_MAX}, got {limit!r:.80}"
            )
        infos = self._streams.list(
            prefix=parameters.get("prefix", ""),
            after=parameters.get("after", ""),
            limit=int(limit[:9]),
        )
        rows = [listing.stream_row(info) for info in infos]
        return _json(200, {"streams": rows, "next_after": rows[-1]["name"] if rows else None})

    # Appending

    async def _append(self, request: Request, name: str) -> Response:
        append = self.parse_append(request, name)
        result = await self._streams.append_async(name, append)
        return _success_response(result, wrote=bool(append.records))

    @property
    def is_open(self) -> bool:
        """True if requests need no key; False if the keys cannot be read."""
        try:
            return self._access is None or not self._access.keys()
        except FormatError:
            return False

    def make_plain_append(self, name: str, content_type: str, body: bytes) -> Append:
        """Build an append with a body and no headers besides its content type."""
        return Append(self._split(body, content_type, name), content_type)

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
        return Append(records, content_type, producer, fields.get("stream-seq"), close, key)

    def _split(self, body: bytes, content_type: str, name: str) -> list[bytes]:
        """Split a body into records."""
        try:
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
    if len(body) > limits.HTTP_APPEND_COMMAS and body.lstrip()[:1] == b"[":
        count = body.count(b",")
    if count <= limits.HTTP_APPEND_COMMAS or plain_type(content_type) != JSON:
        records = split(body, content_type, empty_list=empty_list)
        if len(records) <= limits.HTTP_APPEND_MESSAGES:
            return records
        count = len(records)
    raise TooLarge(
        f"append: must have at most {limits.HTTP_APPEND_MESSAGES} messages and "
        f"{limits.HTTP_APPEND_COMMAS} commas, got {count}",
        hint="Send several requests with fewer messages.",
    )


def append_response(result: Appended | FourfoldError, *, wrote: bool) -> Response:
    """Return the complete response to an append, for the fast append path."""
    if isinstance(result, FourfoldError):
        return error_response(result)
    return _with_default_headers(_success_response(result, wrote=wrote))


def error_response(error: FourfoldError, *, control: bool = False) -> Response:
    """Return the complete response to an error; every error sent to a client passes here."""
    redacted = errors.redact_paths(error)
    return _with_default_headers(
        _error_response(
            redacted, control_error_document(redacted) if control else {"error": redacted.as_dict()}
        )
    )


def _with_default_headers(response: Response) -> Response:
    response.headers = {**headers.DEFAULT_HEADERS, **response.headers}
    return response


def _success_response(result: Appended, *, wrote: bool) -> Response:
    response_headers: Headers = {"stream-next-offset": result.offset}
    if result.closed:
        response_headers["stream-closed"] = "true"
    if result.producer is not None:
        response_headers["producer-epoch"] = str(result.producer.epoch)
        response_headers["producer-seq"] = str(result.producer.seq)
    is_new = wrote and result.producer is not None and not result.duplicate
    return Response(200 if is_new else 204, response_headers)


def _error_document(error: FourfoldError | None, *, detailed: bool) -> dict[str, object] | None:
    """Return an error as `/health` reports it: only its kind unless `detailed`."""
    if error is None:
        return None
    if not detailed:
        return {"kind": error.kind, "retryable": error.retryable}
    return errors.redact_paths(error).as_dict()


def _json(status: int, document: object) -> Response:
    body = json.dumps(document).encode()
    return Response(status, {"content-type": JSON, "cache-control": "no-store"}, body)


def _error_response(error: FourfoldError, document: dict[str, object]) -> Response:
    response = _json(_status(error), document)
    response.headers |= headers.error_headers(error)
    if response.status in {429, 503}:
        response.headers.setdefault("retry-after", str(limits.RETRY_AFTER_S))
    return response


def _status(error: FourfoldError) -> int:
    if error.kind in _STATUS:
        return _STATUS[error.kind]
    if isinstance(error, InvalidInput):
        return 400
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Busy):
        return 429 if error.kind == "overloaded" else 503
    if isinstance(error, StorageError | CorruptData | FormatError):
        return 503
    return 409
