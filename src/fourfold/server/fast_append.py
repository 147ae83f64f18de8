"""Fast append path: handle appends before an ASGI request is built for them.

`FastAppendProtocol` is `HttpProtocol` with one difference: a plain POST to a stream is parsed,
passed to the streams and answered by callbacks, without a scope, a task or a future. Every other
request takes the usual path. The same `StreamProtocol` decides the response, so both paths respond
alike. A head that equals an earlier one, byte for byte, is not parsed again.

    bytes ──> parser ──┬─ plain POST under /v1/stream/ ──> StreamProtocol ──> Streams ──┬──> bytes
                       └─ anything else ──> uvicorn ──> ASGI ──> StreamProtocol ────────┘

Responses leave a connection in the order of its requests, also when both paths are mixed. Reading
pauses while too many requests are in flight, or while the client does not read its responses.

Coalesced write: the head of a response is sent together with the first part of its body. uvicorn
writes them separately, and each write is a system call, a packet, and for a waiting reader a wake
for nothing. The head is held back until the body comes, but no longer than until the next
iteration of the loop.

Busy poll: a client that waits for each response has its next request ready some tens of
microseconds later. Putting the thread to sleep until then, and waking it with cold caches, can take
longer than that, so the event loop polls for a short time before it sleeps. That pays only while
requests do arrive in that time: otherwise polling stops, and is tried again now and then. On a
machine with one processor it is never done, since the client needs that processor.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.kernel import commit_traces
from fourfold.models.streams import AppendResult, Streams
from fourfold.models.streams.append import Outcome
from fourfold.server.budget import Lease
from fourfold.server.connections import Connections, Disconnects, ForwardedAddresses, proxies
from fourfold.server.errors import accepts_problem
from fourfold.server.headers import DEFAULT_HEADERS, STREAM_PREFIX
from fourfold.server.http_protocol import (
    BODY_TOO_LARGE,
    INTERNAL_ERROR,
    HttpProtocol,
    Phase,
    RequestTimeouts,
    encode_headers,
)
from fourfold.server.request import Request, Response
from fourfold.server.request_head import AppendHead, RawHeaders, check_head, parse_headers
from fourfold.server.request_metrics import Histogram, RequestMetrics
from fourfold.server.request_traces import RequestTrace, Tracer
from fourfold.server.routes import Route
from fourfold.server.stream_reads import STREAM
from fourfold.server.streams import StreamProtocol
from fourfold.settings import ServerSettings

HTTP_PIPELINE_MAX: Final = 1_024
"""Pending appends of one connection before reading from it pauses."""
HTTP_BUSY_POLL_S: Final = 0.000_1
"""Busy polling after a response, for the next request of a client."""
HTTP_PATHS_REMEMBERED: Final = 4_096
"""Paths of streams whose checks are cached."""
HTTP_HEADS_REMEMBERED: Final = 1_024
HTTP_HEAD_REMEMBERED_BYTES: Final = 1 * limits.KIB
"""Parsed request heads that are cached by their bytes, and the longest of them."""


class CoalescedWrite:
    """Transport of one response that holds its head back until the first part of the body."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = b""
        """Bytes held back; None once they were written."""

    def write(self, data: bytes) -> None:
        """Hold back the first data, and write everything after it at once."""
        head = self._head
        if head is None:
            self._transport.write(data)
        elif head:
            self._head = None
            self._transport.write(head + data)
        else:
            self._head = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what is held back and close the transport."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Return True if the transport is closing."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, None
            self._transport.write(head)


_TRUST_MAX = 16
_TRUST_LOSS = 4
"""Confidence that the next request arrives soon: plus 1 for each that did, minus `_TRUST_LOSS` for
each that did not.
"""
_RETRY_EVERY = 64
"""Without confidence, polling is still tried after one in this many responses."""


class BusyPoll:
    """Keep the event loop of one server awake for a short time after a response."""

    def __init__(
        self,
        seconds: float = HTTP_BUSY_POLL_S,
        *,
        processors: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        processor_count = os.cpu_count() if processors is None else processors
        self._seconds = seconds if (processor_count or 1) > 1 else 0.0
        self._clock = clock
        self._until = 0.0
        self._polling = False
        self._trust = _TRUST_LOSS
        self._skipped = 0
        self.request_seen = False
        """True if a request arrived since the last response; set by the connections."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start polling after a response, when nothing else is pending for its client."""
        if self._trust == 0:
            self._skipped += 1
            if self._skipped < _RETRY_EVERY:
                return
            self._skipped = 0
        self.request_seen = False
        self._until = self._clock() + self._seconds
        if not self._polling and self._seconds:
            self._polling = True
            loop.call_soon(self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run once per iteration of the loop, which does not sleep while this is scheduled."""
        if self.request_seen:
            self._trust = min(_TRUST_MAX, self._trust + 1)
        elif self._clock() < self._until:
            loop.call_soon(self._poll, loop)
            return
        else:
            self._trust = max(0, self._trust - _TRUST_LOSS)
        self._polling = False


_PREFIX_CHARS: Final = len(STREAM_PREFIX)
# Names that need no decoding; a segment that begins with an underscore may be a reserved path.
_PLAIN_PATH: Final = re.compile(
    re.escape(STREAM_PREFIX.encode()) + rb"(?!_)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|/(?!_))+"
)
_LENGTH: Final = b"content-length"
_HEAD_END: Final = b"\r\n\r\n"
_POST: Final = b"POST "
_VERSION: Final = b" HTTP/1.1\r\n"
# Module names are cheaper than members of an enumeration on this path.
_HEAD, _BODY, _BUSY, _IDLE = Phase.HEAD, Phase.BODY, Phase.BUSY, Phase.IDLE


class _PendingAppend:
    """A response that a connection has still to send; `outcome` is None until it is known."""

    __slots__ = ("connection", "outcome", "since", "trace", "wrote")

    def __init__(self, connection: FastAppendProtocol) -> None:
        self.connection = connection
        self.since = perf_counter()
        self.outcome: Outcome | Response | None = None
        self.wrote = False
        self.trace: RequestTrace | None = None

    def complete(self, outcome: Outcome | Response) -> None:
        """Set the outcome and send every response that is ready."""
        self.outcome = outcome
        self.connection.send_ready_responses()


class _NoEvent:
    """Stand-in for the event of a request's body: no task waits for that of an append."""

    __slots__ = ()

    def set(self) -> None:
        """Do nothing."""


class _AppendCycle:
    """Stand-in for uvicorn's request cycle while appends are in flight.

    It makes uvicorn queue later requests, and end the connection when the server stops.
    """

    __slots__ = ("disconnected", "keep_alive", "response_complete")
    message_event = _NoEvent()

    def __init__(self) -> None:
        self.response_complete = True
        self.keep_alive = True
        self.disconnected = False


class FastAppendProtocol(HttpProtocol):
    """One connection. `make_protocol_class` derives the class of a server from it."""

    protocol: ClassVar[StreamProtocol]
    streams: ClassVar[Streams]
    busy_poll: ClassVar[BusyPoll]
    names: ClassVar[dict[bytes, str]]
    """Stream names by path, so that a path is validated once."""
    heads: ClassVar[dict[bytes, tuple[AppendHead, int]]]
    """Parsed head and body length, by the bytes of the head after the path."""
    latency: ClassVar[Histogram]
    metrics: ClassVar[RequestMetrics]
    """Latency of appends, and the metrics of the server."""
    tracer: ClassVar[Tracer | None]
    append_route: ClassVar[Route]
    append_headers: ClassVar[bytes]
    """Headers of a response to a plain append, up to the value of the offset."""
    _defaults: ClassVar[tuple[Any, bytes, bytes]] = (None, b"", b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: deque[_PendingAppend] = deque()
        self._append_cycle: Any = _AppendCycle()
        self._turns: set[asyncio.Task[None]] = set()
        """Appends that wait for their turn, or are being written in it."""
        self._is_append = False
        """True while the body being received belongs to an append."""
        self._at_message_boundary = True
        """True if the parser is at the end of a request, so that new data begins the next one."""
        self._append_count = 0
        """Number of appends parsed."""
        self._head: AppendHead | None = None
        self._name = ""
        self._parts: list[bytes] = []
        self._lease: Lease | None = None
        """Memory reserved for the parts, once a body needs more than one read."""
        self._discarding = False
        """True while the body being received belongs to a refused append."""

    # Connections

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop pending appends and release their memory."""
        self._pending.clear()
        self._is_append = False
        self._release_budget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle a repeated append directly; parse anything else."""
        if self._ended:
            return
        end = data.find(_HEAD_END) if self._at_message_boundary else -1
        line = data.find(_VERSION, 0, end) if end >= 0 else -1
        if end >= 0 and self._append_repeated(data, line, end):
            return
        append_count = self._append_count
        super().data_received(data)
        if self._is_append:
            self._reserve_budget()
        elif end >= 0 and self._append_count == append_count + 1:
            self._remember(data, line, end)

    def _append_repeated(self, data: bytes, line: int, end: int) -> bool:
        """Append a complete request whose head equals an earlier one except for the stream.

        Returns False if the request has to be parsed.
        """
        known = self.heads.get(data[line:end])
        if known is None or len(data) != end + 4 + known[1] or data[:5] != _POST:
            return False
        name = self.names.get(data[5:line])
        cycle, turn = self.cycle, self._append_cycle
        if name is None or not (cycle is turn or cycle is None or cycle.response_complete):
            return False
        self._unset_keepalive_if_required()
        self.cycle = turn
        turn.response_complete = False
        self.busy_poll.request_seen = True
        self.phase = _BUSY
        self._name, self._head = name, known[0]
        self._append(data[end + 4 :])
        return True

    def _remember(self, data: bytes, line: int, end: int) -> None:
        """Remember the head of the append that was just parsed, if nothing else was received."""
        head, heads = self._head, self.heads
        if (
            head is not None
            and "transfer-encoding" not in head.headers
            and self._at_message_boundary
            and data[:5] == _POST
            and len(data) == end + 4 + self.received
            and end - line <= HTTP_HEAD_REMEMBERED_BYTES
        ):
            if len(heads) >= HTTP_HEADS_REMEMBERED:
                heads.clear()
            heads[data[line:end]] = (head, self.received)

    def eof_received(self) -> Any:
        """Keep the connection open until all pending responses are sent."""
        if self._pending and self.cycle is self._append_cycle:
            self._ended, self._is_append = True, False
            self._append_cycle.keep_alive = False
            return True
        return super().eof_received()

    def pause_writing(self) -> None:
        """Pause reading too while appends are in flight."""
        super().pause_writing()
        if self.cycle is self._append_cycle:
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading too while appends are in flight."""
        super().resume_writing()
        if self.cycle is self._append_cycle and not self._ended:
            self.flow.resume_reading()

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Start receiving a request head."""
        self._at_message_boundary = False
        self._bytes_fed = self._first_chunk_size = self._chunk_size
        # The ASGI scope is built only when it is needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True
        self.phase, self.since = _HEAD, self.timeouts.now
        self.busy_poll.request_seen = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers of a chunked body are ignored."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Choose the fast path or uvicorn's for the request."""
        if self._ended:
            return
        self._in_head = False
        self.check_head_size()
        self.phase, self.since, self.received = _BODY, self.timeouts.now, 0
        cycle, turn = self.cycle, self._append_cycle
        if (
            self.parser.get_method() == b"POST"
            and (cycle is turn or cycle is None or cycle.response_complete)
            and self._find_append()
        ):
            self._parts = []
            self._is_append = True
            self.cycle = turn
            turn.response_complete = False
        elif self.parser.should_upgrade():
            self.ignore_upgrade()
        else:
            self._delegate_to_uvicorn()

    def _find_append(self) -> bool:
        """Return True if the request is an append that needs nothing of uvicorn.

        Sets its stream and its head. A head that equals the last one is not parsed again.
        """
        parser, url = self.parser, self.url
        if not (
            parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        ):
            return False
        name = self.names.get(url) or self._parse_name(url)
        if name is None:
            return False
        raw = [header for header in self.headers if header[0] != _LENGTH]
        head = self._head
        if head is None or head.raw != raw:
            head = self._parse_head(raw)
            if head is None:
                return False
        self._name, self._head = name, head
        return True

    def _parse_name(self, url: bytes) -> str | None:
        """Return the stream of a path, or None if the path needs uvicorn."""
        if self.root_path or self.limit_concurrency is not None or not _PLAIN_PATH.fullmatch(url):
            return None
        names = self.names
        if len(names) >= HTTP_PATHS_REMEMBERED:
            names.clear()
        name = names[url] = url[_PREFIX_CHARS:].decode("ascii")
        return name

    def _parse_head(self, raw: RawHeaders) -> AppendHead | None:
        """Return the head of an append, or None if the request needs uvicorn."""
        headers = parse_headers(raw)
        if "expect" in headers or accepts_problem(headers):
            return None
        origins = self.protocol.origins
        if "origin" in headers and not origins.allows_all and origins.has_names:
            # The response names the origin.
            return None
        with suppress(InvalidInput):
            check_head(raw, "1.1")
            return AppendHead(raw, headers)
        return None

    def _delegate_to_uvicorn(self) -> None:
        """Handle the request by uvicorn and ASGI."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and self.cycle is not None:
            self.cycle.transport = CoalescedWrite(self.transport, self.loop)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Collect a part of an append's body, or pass it on to uvicorn."""
        if self._ended:
            return
        self._bytes_fed = self._first_chunk_size = self._chunk_size
        self.received += len(body)
        if self._is_append:
            if self.received > limits.HTTP_BODY_MAX:
                self._respond_last(BODY_TOO_LARGE)
            else:
                self._parts.append(body)
        elif not self._discarding:
            self.read_body(body)
        elif self.received > limits.HTTP_BODY_MAX:
            self._ended = True
            self.transport.close()

    def on_message_complete(self) -> None:
        """Append a complete body, or pass the event on to uvicorn."""
        if self._ended:
            return
        self._at_message_boundary = True
        self.phase = _BUSY
        if self._is_append:
            self._is_append = False
            self._append_count += 1
            parts, self._parts = self._parts, []
            if self._lease is not None:
                self._release_budget()
            self._append(parts[0] if len(parts) == 1 else b"".join(parts))
        elif self._discarding:
            self._discarding = False
            self.phase, self.since = _IDLE, self.timeouts.now
        else:
            super().on_message_complete()

    def end_with(self, response: Response) -> None:
        """Send the last response of the connection, to the request that is being received."""
        cycle, turn = self.cycle, self._append_cycle
        if cycle is turn or cycle is None or cycle.response_complete:
            self._respond_last(response)
        else:
            super().end_with(response)

    # Appends

    def _reserve_budget(self) -> None:
        """Reserve memory for a body that needs another read, after checking the request's key.

        A refused append is answered at once, without waiting for the rest of its body.
        """
        head = self._head
        assert head is not None
        try:
            if self._lease is None:
                key = self.protocol.admit_append(head, self._name)
                if not self.received:
                    # Many clients send head and body separately.
                    return
                self._lease = self.protocol.lease_append(key)
            self._lease.hold(self.received)
        except FourfoldError as error:
            self._is_append, self._discarding, self._parts = False, True, []
            self._release_budget()
            self._record_refusal(error, self._name, head)
            self._respond(self.protocol.append_response(error, wrote=False))

    def _record_refusal(self, error: FourfoldError, name: str, head: AppendHead) -> None:
        address = self.forwarded_addresses.find(self._address, head.raw)
        self.protocol.record_refused_append(error, name, address)

    def _release_budget(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _respond(self, response: Response) -> None:
        pending = _PendingAppend(self)
        self._pending.append(pending)
        pending.complete(response)

    def _append(self, body: bytes) -> None:
        """Submit the append that was just received, or let it wait for its turn."""
        pending = _PendingAppend(self)
        self._pending.append(pending)
        name, head = self._name, self._head
        assert head is not None
        try:
            self.protocol.admit_append(head, name)
            if head.use is not None:
                head.use.admit()
                head.use.spend(len(body))
            if self.tracer is not None:
                pending.trace = self.tracer.begin(head.headers)
        except FourfoldError as error:
            self._record_refusal(error, name, head)
            pending.complete(self.protocol.append_response(error, wrote=False))
            return
        except Exception:
            self.logger.exception("Exception in the fast append path")
            pending.complete(INTERNAL_ERROR)
            return
        if self.protocol.large_appends.must_wait(len(body)) or self._turns:
            turn = self.loop.create_task(self._append_in_turn(pending, name, head, body))
            # The event loop itself keeps no reference to its tasks.
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)
        else:
            self._submit(pending, name, head, body, pending.complete)
        if len(self._pending) >= HTTP_PIPELINE_MAX:
            self.flow.pause_reading()

    async def _append_in_turn(
        self, pending: _PendingAppend, name: str, head: AppendHead, body: bytes
    ) -> None:
        """Submit a large append, or one after it, when it is its turn."""

        async def submit() -> Outcome | Response:
            outcome: asyncio.Future[Outcome | Response] = self.loop.create_future()
            self._submit(pending, name, head, body, outcome.set_result)
            return await outcome

        try:
            pending.complete(await self.protocol.large_appends.run(len(body), submit))
        except FourfoldError as error:
            pending.complete(self.protocol.append_response(error, wrote=False))

    def _submit(
        self,
        pending: _PendingAppend,
        name: str,
        head: AppendHead,
        body: bytes,
        on_outcome: Callable[[Outcome | Response], None],
    ) -> None:
        protocol = self.protocol
        try:
            if head.content_type is not None and body:
                append = protocol.make_plain_append(name, head.content_type, body)
            else:
                request = Request("POST", STREAM_PREFIX + name, "", head.headers, body)
                append = protocol.parse_append(request, name)
            pending.wrote = bool(append.records)
            if pending.trace is None:
                self.streams.append_soon(name, append, on_outcome, self.loop)
            else:
                with commit_traces.collecting(pending.trace.commits):
                    self.streams.append_soon(name, append, on_outcome, self.loop)
        except FourfoldError as error:
            on_outcome(protocol.append_response(error, wrote=False))
        except Exception:
            self.logger.exception("Exception in the fast append path")
            on_outcome(INTERNAL_ERROR)

    def _respond_last(self, response: Response) -> None:
        """Send a response and close the connection."""
        self._ended, self._is_append = True, False
        self._append_cycle.keep_alive = False
        self.cycle = self._append_cycle
        self._append_cycle.response_complete = False
        self._parts = []
        self._release_budget()
        self._respond(response)

    def send_ready_responses(self) -> None:
        """Send the responses that are ready, in the order of their requests."""
        pending, transport = self._pending, self.transport
        if not pending or transport.is_closing():
            return
        append_cycle = self._append_cycle
        out: list[bytes] = []
        closing = False
        now, latency, metrics = perf_counter(), self.latency, self.metrics
        while pending and (outcome := pending[0].outcome) is not None and not closing:
            first = pending.popleft()
            latency.record(now - first.since)
            self.server_state.total_requests += 1
            # When the server or the client stops, the last response carries Connection: close.
            closing = (
                not (append_cycle.keep_alive or pending or self._is_append)
                and self.cycle is append_cycle
            )
            if (
                type(outcome) is AppendResult
                and outcome.producer is None
                and not (outcome.closed or closing)
            ):
                position = (outcome.incarnation_number, outcome.next_offset)
                out.append(b"%b%016d_%016d\r\n\r\n" % (self._default_headers()[1], *position))
                metrics.plain_appends += 1
                if first.trace is not None:
                    self._end_trace(first.trace, 204)
                continue
            response = (
                outcome
                if isinstance(outcome, Response)
                else self.protocol.append_response(outcome, wrote=first.wrote)
            )
            closing = closing or "connection" in response.headers
            metrics.responses["POST", STREAM, response.status] += 1
            if first.trace is not None:
                kind = outcome.kind if isinstance(outcome, FourfoldError) else ""
                self._end_trace(first.trace, response.status, kind)
            out.append(self.encode_response(response, closing=closing))
        if not out:
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        if closing:
            self._ended = True
            pending.clear()
            transport.close()
        if not pending and not self._is_append:
            self._become_idle()

    def _end_trace(self, trace: RequestTrace, status: int, error: str = "") -> None:
        """Record the span of an append."""
        assert self.tracer is not None
        self.tracer.end(trace, self.append_route, status=status, error=error)

    def _become_idle(self) -> None:
        """Continue after all pending responses were sent."""
        self._append_cycle.response_complete = True
        self.busy_poll.begin(self.loop)
        if self.cycle is not self._append_cycle:
            # Another kind of request follows them, and waits in uvicorn's queue.
            self.on_response_complete()
            return
        if self.phase is _BUSY:
            self.phase, self.since = _IDLE, self.timeouts.now
        flow = self.flow
        if flow.read_paused and not flow.write_paused and not self._ended:
            flow.resume_reading()

    def encode_default_headers(self) -> bytes:
        """Encode the headers that uvicorn adds to every response."""
        return self._default_headers()[0]

    def _default_headers(self) -> tuple[bytes, bytes]:
        """Return uvicorn's default headers, and the start of a response to an append.

        uvicorn makes a new list of them every second.
        """
        default_headers = self.server_state.default_headers
        cached_headers, encode_response, append_prefix = self._defaults
        if cached_headers is not default_headers:
            encode_response = super().encode_default_headers()
            append_prefix = STATUS_LINE[204] + encode_response + self.append_headers
            type(self)._defaults = (default_headers, encode_response, append_prefix)  # noqa: SLF001
        return encode_response, append_prefix


def make_protocol_class(
    protocol: StreamProtocol, settings: ServerSettings | None = None, *, fast: bool = True
) -> type[HttpProtocol]:
    """Return the protocol class of a server, with the limits of its settings."""
    settings = settings or ServerSettings()
    protocol.connections = Connections(
        settings.connections_max,
        settings.connections_per_address,
        frozenset(proxies(settings.trusted_proxies)),
    )
    shared: dict[str, Any] = {
        "timeouts": RequestTimeouts(write_stall_s=settings.write_stall_s),
        "connection_limit": protocol.connections,
        "disconnects": Disconnects(),
        "forwarded_addresses": ForwardedAddresses(proxies(settings.trusted_proxies)),
    }
    if not fast:
        return type("ServerHttpProtocol", (HttpProtocol,), shared)
    served = {
        "protocol": protocol,
        "streams": protocol.streams,
        "names": {},
        "heads": {},
        "busy_poll": BusyPoll(),
        "latency": protocol.observer.metrics.latency("POST", STREAM),
        "metrics": protocol.observer.metrics,
        "tracer": protocol.observer.tracer,
        "append_route": protocol.append_route,
        "append_headers": encode_headers(
            {**DEFAULT_HEADERS, **protocol.origins.response_headers(None)}
        )
        + b"stream-next-offset: ",
    }
    return type("ServerFastAppendProtocol", (FastAppendProtocol,), {**shared, **served})
