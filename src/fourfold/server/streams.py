"""The Durable Streams protocol over requests and responses, without any transport.

    PUT create    POST append, close    GET read, long-poll, SSE    HEAD    DELETE    OPTIONS

Both fronts of the server call `Protocol.answer`; what it says is what goes out.

A stream with everything that is counted of it, as `_details` shows it.
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
)
from fourfold.kernel import prometheus_text
from fourfold.models.streams import Append, Appended, Fork, StreamOptions, Streams
from fourfold.models.streams.archive.status import ArchiveStatus
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.records import Details, StreamInfo
from fourfold.models.streams.validation import JSON, plain_type, read_offset, show_offset
from fourfold.server import errors, headers, health, listing, openapi, routes
from fourfold.server.auth import Access, Key
from fourfold.server.budget import ANONYMOUS, BodyBudget, Lease
from fourfold.server.hosts import Hosts
from fourfold.server.request import Headers, Request, Response
from fourfold.server.signing_keys import FILE_NAME, Keys
from fourfold.server.stream_reads import ReadTimeouts, StreamRead
from fourfold.server.stream_rules import StreamRules
from fourfold.server.subscriptions import Control, is_control, of_error

if TYPE_CHECKING:
    from fourfold.server.publisher import ServerPublisher


def shown(details: Details) -> dict[str, Any]:
    info = details.info
    return {
        **listing.row(info),
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
        "fork_offset": _shown(info, info.fork_offset),
        "forks": info.forks,
        "producers": details.producers,
        "subscriptions": details.subscriptions,
        "archive": _archived(info, details.archived),
    }


def _shown(info: StreamInfo, offset: int | None) -> str | None:
    return None if offset is None else show_offset(offset, info.incarnation_number)


def _archived(info: StreamInfo, found: ArchiveStatus) -> dict[str, Any]:
    """Where the sealed and the published part of a stream end, and what that took."""
    return {
        "sealed_offset": _shown(info, found.sealed_through + 1),
        "published_offset": _shown(info, found.uploaded_through + 1),
        "segments": found.segments,
        "published_segments": found.uploaded_segments,
        "generation": found.generation,
        "published_generation": found.uploaded_generation,
        "published_at_ms": found.uploaded_at_ms,
        "manifest_bytes": found.manifest_bytes,
        "requests": [
            {"artifact": each.artifact, "op": each.op, "count": each.number, "bytes": each.bytes}
            for each in found.requests
        ],
        "indexes": [
            {
                "field": each.name or None,
                "indexed_offset": _shown(info, each.indexed_offset),
                "indexed_segments": each.indexed_segments,
                "runs": each.runs,
                "bytes": each.bytes,
                "levels": each.levels,
            }
            for each in found.indexes
        ],
        "compactions_pending": found.swaps,
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
    """Answers requests about the streams of one store."""

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
        self._reading = StreamRead(streams, timing, lambda: self.is_open)
        self._ruling = StreamRules(streams, timing)
        self.front = "asgi"
        """What carries the requests, as `/health` tells it."""
        self.hosts = Hosts()
        self.budget = BodyBudget()
        """Memory for the bodies that are being received."""
        self.publishing: ServerPublisher | None = None
        """What publishes the store, if anything does."""
        # Without one the keys are beside the folder of the database, in the store.
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
            "read": self._reading.answer,
            "head": self._head,
            "configure": self._configure,
            "delete": self._delete,
            **self._ruling.handlers(),
            **self.control.handlers(),
        }

    def stop(self) -> None:
        """End those who wait, as if their time were over: the server is about to stop."""
        self._reading.stop()
        self._ruling.stop()

    @property
    def operations(self) -> tuple[str, ...]:
        """The routes that somebody answers."""
        return tuple(self._handlers)

    async def answer(self, request: Request) -> Response:
        """The response to any request; an error becomes one too."""
        try:
            response = await self._route(request)
        except FourfoldError as error:
            return refusal(error, control=is_control(request.path))
        return _finished(response)

    async def _route(self, request: Request) -> Response:
        self.admit(request)
        if request.method == "OPTIONS":
            return Response(204, dict(headers.PREFLIGHT))
        found = routes.find(request.method, request.path)
        if found.route is None:
            return Response(405, {"allow": ", ".join((*found.methods, "OPTIONS"))})
        headers.refuse_encoding(request)
        routes.refuse_unknown_parameters(found.route, request)
        return await self._handlers[found.route.operation](request, **found.given)

    # The server itself

    async def _health(self, request: Request) -> Response:
        """Names, and messages that may contain some, are for keys that may read every stream."""
        failure = self._streams.sweep_failure or self._streams.subscriptions.failure
        ready = self._streams.database.health().ready and failure is None
        failing = self._streams.unpublished() if self._streams.unpublished is not None else {}
        detailed = self._access is None or self._access.may_read_all(request)
        # What cannot be published is served all the same.
        document: dict[str, object] = {
            "ok": ready,
            "error": _problem(failure, detailed=detailed),
            "front": self.front,
            "unpublished_count": len(failing),
            "fenced_count": sum(isinstance(each, PublisherFenced) for each in failing.values()),
            "databases": None,
            "objects": None,
        }
        if detailed:
            document["unpublished"] = sorted(failing)
        if self.publishing is not None:
            document["databases"] = health.shown(self.publishing.backup, detailed=detailed)
            document["objects"] = {
                "ok": self.publishing.failure is None,
                "error": _problem(self.publishing.failure, detailed=detailed),
            }
        return _json(200 if ready else 503, document)

    async def _metrics(self, _request: Request) -> Response:
        text = prometheus_text([self._streams.database.metrics()])
        if self.publishing is not None:
            text += health.metrics_text(self.publishing.backup)
        return Response(200, {"content-type": "text/plain; version=0.0.4"}, text.encode())

    async def _openapi(self, request: Request) -> Response:
        told = {"content-type": JSON, "cache-control": "public, max-age=300"}
        return Response(200, told, openapi.document(request.root))

    def admit(self, request: Request) -> None:
        """Refuse a request that its key does not allow, before anything else is said."""
        self._key_of(request)

    def lease(self, request: Request) -> Lease:
        """Admit a request by its head; what its body may hold of the budget while it comes."""
        key = self._key_of(request)
        owner = ANONYMOUS if key is None else key.id
        return self.budget.lease(None if self.is_open else owner)

    def _key_of(self, request: Request) -> Key | None:
        self.hosts.check(request.header("host"), is_open=self.is_open)
        if self._access is None or request.path == "/openapi.json":
            return None
        # A browser asks without its key whether it may ask.
        if request.method == "OPTIONS":
            return None
        if is_control(request.path):
            return self.control.admit(request)
        name, scope = None, None
        if request.path.startswith(PREFIX):
            name = request.path.removeprefix(PREFIX)
            if name.endswith(routes.RESERVED):
                name, scope = routes.guarded(request.method, request.path)
        elif request.path == LIST:
            name = request.parameters().get("prefix", "")
        elif request.path == "/metrics":
            name, scope = "", "metrics"
        return self._access.check(request, name, scope)

    # Whole streams

    async def _create(self, request: Request, name: str) -> Response:
        if name.endswith(routes.RESERVED):
            raise InvalidInput(
                f"the stream {name!r:.200} could not be reached: its end means something else",
                hint=f"A name does not end in {', '.join(map(repr, routes.RESERVED))}.",
            )
        fork = self._fork(request)
        kind = request.header("content-type")
        wanted = StreamOptions(
            name,
            kind or (None if fork else "application/octet-stream"),
            headers.number(request, "stream-ttl"),
            headers.expiry_ms(request),
            headers.is_closed(request),
            fork,
            headers.number(request, "stream-retention-seconds"),
            headers.number(request, "stream-retention-bytes"),
        )
        made = await self._streams.make_async(wanted, request.body)
        info = made.info
        found: Headers = {
            "content-type": info.content_type,
            **headers.position(info, info.next_offset, closed=info.closed),
        }
        if made.created:
            path = quote(request.root + request.path)
            found["location"] = request.address(request.path) or path
        return Response(201 if made.created else 200, found)

    def _fork(self, request: Request) -> Fork | None:
        source = headers.fork_source(request)
        offset = request.header("stream-fork-offset")
        sub = headers.number(request, "stream-fork-sub-offset")
        if source is None:
            if sub is not None or offset is not None:
                raise InvalidInput("a fork offset needs Stream-Forked-From")
            return None
        at = None if offset is None else read_offset(offset)
        if sub and offset is None:
            raise InvalidInput("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
        return Fork(source, at, sub or 0)

    async def _delete(self, _request: Request, name: str) -> Response:
        await self._streams.delete_async(name)
        return Response(204)

    async def _head(self, _request: Request, name: str) -> Response:
        return Response(200, headers.of_stream(self._streams.info(name)))

    async def _configure(self, request: Request, name: str) -> Response:
        if request.body:
            raise InvalidInput(
                "PATCH of a stream takes no body", hint="Send the new settings as headers."
            )
        info = await self._streams.configure_async(name, headers.settings(request))
        return Response(200, headers.of_stream(info))

    async def _totals(self, _request: Request) -> Response:
        totals = await asyncio.to_thread(self._streams.totals)
        return _json(200, totals._asdict())

    async def _details(self, _request: Request, name: str) -> Response:
        return _json(200, shown(self._streams.details(name)))

    async def _list(self, request: Request) -> Response:
        given = request.parameters()
        limit = given.get("limit", "100")
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= limits.LIST_STREAMS_MAX:
            raise InvalidInput(f"limit is a number from 1 to {limits.LIST_STREAMS_MAX}")
        found = self._streams.list(
            prefix=given.get("prefix", ""), after=given.get("after", ""), limit=int(limit[:9])
        )
        rows = [listing.row(each) for each in found]
        return _json(200, {"streams": rows, "next_after": rows[-1]["name"] if rows else None})

    # Appending

    async def _append(self, request: Request, name: str) -> Response:
        asked = self.append_asked(request, name)
        done = await self._streams.append_async(name, asked)
        return _appended(done, wrote=bool(asked.records))

    @property
    def is_open(self) -> bool:
        """Whether requests need no key. A server whose keys cannot be read is not open."""
        try:
            return self._access is None or not self._access.keys()
        except FormatError:
            return False

    def plain_append(self, name: str, kind: str, body: bytes) -> Append:
        """What an append with a body asks for whose headers tell only its type."""
        return Append(self._split(body, kind, name), kind)

    def append_asked(self, request: Request, name: str) -> Append:
        """What a POST to a stream asks for; an error when it cannot be."""
        headers.refuse_encoding(request)
        given, body = request.headers, request.body
        close = "stream-closed" in given and headers.is_closed(request)
        producer = headers.producer(request)
        if not body and not close:
            self._streams.info(name)
            raise InvalidInput("there is nothing to append", hint="Send a body.")
        kind = given.get("content-type")
        records: list[bytes] = []
        if body:
            if kind is None:
                raise InvalidInput("an append needs a Content-Type")
            records = self._split(body, kind, name)
        key = headers.routing_key(request) if "stream-key" in given else None
        return Append(records, kind, producer, given.get("stream-seq"), close, key)

    def _split(self, body: bytes, kind: str, name: str) -> list[bytes]:
        try:
            return split(body, kind)
        except InvalidInput:
            # What the stream is decides first: a body of another type is that, not bad JSON.
            info = self._streams.info(name)
            if plain_type(info.content_type) != plain_type(kind) and not info.closed:
                return [body]
            raise


def outcome(done: Appended | FourfoldError, *, wrote: bool) -> Response:
    """The whole answer to an append, for a front that hears of it by a callback."""
    if isinstance(done, FourfoldError):
        return refusal(done)
    return _finished(_appended(done, wrote=wrote))


def refusal(error: FourfoldError, *, control: bool = False) -> Response:
    """The whole answer to what went wrong: every error that leaves the server leaves it here."""
    shown = errors.redact_paths(error)
    return _finished(_of_error(shown, of_error(shown) if control else {"error": shown.as_dict()}))


def _finished(response: Response) -> Response:
    response.headers = {**headers.ALWAYS, **response.headers}
    return response


def _appended(done: Appended, *, wrote: bool) -> Response:
    told: Headers = {"stream-next-offset": done.offset}
    if done.closed:
        told["stream-closed"] = "true"
    if done.producer is not None:
        told["producer-epoch"] = str(done.producer.epoch)
        told["producer-seq"] = str(done.producer.seq)
    fresh = wrote and done.producer is not None and not done.duplicate
    return Response(200 if fresh else 204, told)


def _problem(error: FourfoldError | None, *, detailed: bool) -> dict[str, object] | None:
    """Return an error as `/health` shows it: only its kind unless `detailed`."""
    if error is None:
        return None
    if not detailed:
        return {"kind": error.kind, "retryable": error.retryable}
    return errors.redact_paths(error).as_dict()


def _json(status: int, document: object) -> Response:
    body = json.dumps(document).encode()
    return Response(status, {"content-type": JSON, "cache-control": "no-store"}, body)


def _of_error(error: FourfoldError, told: dict[str, object]) -> Response:
    response = _json(_status(error), told)
    response.headers |= headers.of_error(error)
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
