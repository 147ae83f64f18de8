"""HTTP/1.1 protocol of the server: uvicorn's, with limits and timeouts.

- The number of connections is limited, and every connection has timeouts (`RequestTimeouts`).
- The size of a request head is limited before the client is authenticated: a longer head gets 431.
  So are trailer lines after a chunked body; trailers are never treated as headers.
- Responses that the server itself sends (refusals, internal errors) carry the default headers too.
- Malformed input gets its 400 after all earlier pipelined responses.
- An upgrade request is ignored, as RFC 9110 allows: it is answered in HTTP/1.1, with all of its
  body. The parser would end such a request after its head, so the head is parsed again without the
  upgrade headers.

`fast_append` builds on this class; with `--no-fast-front` it is used alone.

Timeouts: one timer checks every connection once a second, a slice of them at a time. A head must
arrive within a time limit, a body must arrive at a minimum rate, an idle connection is closed after
the keep-alive time, and a connection whose client does not read its responses is aborted.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
import weakref
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fourfold import limits
from fourfold.errors import Busy, InvalidInput
from fourfold.server.connections import Connections, Disconnects, ForwardedAddresses
from fourfold.server.headers import DEFAULT_HEADERS
from fourfold.server.request import Response
from fourfold.server.streams import error_response

HTTP_HEAD_MAX: Final = 64 * limits.KIB
"""Bytes of a request line and its headers."""
HTTP_HEAD_S: Final = 20.0
"""Time for the head of a request, from its first byte."""
HTTP_BODY_S: Final = 30.0
HTTP_BODY_BYTES_PER_S_MIN: Final = 4 * limits.KIB
"""Time for a body, plus the time that it takes at this speed."""
HTTP_TIMEOUT_CHECK_S: Final = 1.0
"""Interval at which slow connections are looked for."""
HTTP_TIMEOUT_CHECK_CONNECTIONS: Final = 64
"""Connections that are checked in one iteration of the event loop."""

_COUNT: Final = struct.Struct("i")
_NO_COUNT: Final = _COUNT.pack(0)


class Phase(Enum):
    """State of a connection in the request cycle."""

    FRESH = "no data received"
    HEAD = "receiving a head"
    BODY = "receiving a body"
    BUSY = "processing a request"
    IDLE = "waiting for the next request"


class WatchedConnection(Interface):
    """A connection that `RequestTimeouts` can check: its phase, since when, and bytes of body
    received.
    """

    phase: Phase
    since: float
    received: int
    transport: asyncio.Transport
    unsent: int
    """Bytes waiting to be sent at the last check."""
    last_progress_at: float
    """Time at which the client last read some of them, or none were waiting."""

    def time_out(self) -> None:
        """End the connection because its client was too slow."""


class RequestTimeouts:
    """Enforce the timeouts of one server's connections; `now` is the time of the last check."""

    def __init__(
        self,
        *,
        interval_s: float = HTTP_TIMEOUT_CHECK_S,
        write_stall_s: float = limits.HTTP_WRITE_STALL_S,
    ) -> None:
        self.now = 0.0
        self._interval_s = interval_s
        self._write_stall_s = write_stall_s
        self._watched: set[WatchedConnection] = set()
        self._unchecked: list[WatchedConnection] = []
        """Connections still to be checked in this round."""
        self._slice_s = interval_s
        """Time from one slice of this round to the next."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: WatchedConnection) -> float:
        """Start checking a connection and return the current time."""
        self._watched.add(connection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self.now = loop.time()
            self._timer = loop.call_later(self._interval_s, self._check_slice, loop)
        return self.now

    def unwatch(self, connection: WatchedConnection) -> None:
        """Stop checking a connection."""
        self._watched.discard(connection)

    def _check_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check some connections; the slices of a round are spread over the interval.

        All at once would block the event loop for tens of milliseconds with 5,000 connections.
        """
        self._timer = None
        if not self._unchecked:
            if not self._watched:
                return
            self._unchecked = list(self._watched)
            slices = -(-len(self._unchecked) // HTTP_TIMEOUT_CHECK_CONNECTIONS)
            self._slice_s = self._interval_s / slices
        self.now = loop.time()
        for connection in self._unchecked[-HTTP_TIMEOUT_CHECK_CONNECTIONS:]:
            if connection not in self._watched:
                continue
            if self._is_stalled(connection):
                # A graceful close would wait for the unsent bytes.
                connection.transport.abort()
            elif self.now > _deadline(connection):
                connection.time_out()
        del self._unchecked[-HTTP_TIMEOUT_CHECK_CONNECTIONS:]
        self._timer = loop.call_later(self._slice_s, self._check_slice, loop)

    def _is_stalled(self, connection: WatchedConnection) -> bool:
        """Return True if the client has read none of its pending bytes for too long.

        While the write buffer is over its limit nothing is added to it, so it shrinks or writing
        resumes.
        """
        unsent = connection.transport.get_write_buffer_size()
        if unsent:
            unsent += _kernel_unsent_bytes(connection.transport)
        if not unsent or unsent < connection.unsent:
            connection.last_progress_at = self.now
        connection.unsent = unsent
        return self.now - connection.last_progress_at > self._write_stall_s


def _kernel_unsent_bytes(transport: asyncio.Transport) -> int:
    """Return the number of bytes in the socket's send queue.

    The kernel accepts more only once a third of them (up to megabytes) has been sent.
    """
    sock = transport.get_extra_info("socket")
    try:
        return int(_COUNT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _NO_COUNT))[0])
    except (OSError, AttributeError):
        # Not available here: only progress beyond the kernel's buffer is then noticed.
        return 0


def _deadline(connection: WatchedConnection) -> float:
    """Return the time until which a connection may stay in its phase."""
    phase, since = connection.phase, connection.since
    if phase is Phase.BUSY:
        return float("inf")
    if phase is Phase.HEAD:
        return since + HTTP_HEAD_S
    if phase is Phase.BODY:
        rate = HTTP_BODY_BYTES_PER_S_MIN
        return since + HTTP_BODY_S + connection.received / rate
    return since + limits.HTTP_KEEP_ALIVE_S


CRLF: Final = b"\r\n"
_CLOSE: Final = b"connection: close\r\n"
_CLOSING_HEADERS: Final = {**DEFAULT_HEADERS, "connection": "close"}
_CLOSING_TEXT_HEADERS: Final = {
    **DEFAULT_HEADERS,
    "content-type": "text/plain; charset=utf-8",
    "connection": "close",
}
HEAD_TOO_LARGE: Final = Response(431, _CLOSING_HEADERS)
BODY_TOO_LARGE: Final = Response(413, _CLOSING_HEADERS)
TOO_SLOW: Final = Response(408, _CLOSING_HEADERS)
INTERNAL_ERROR: Final = Response(500, _CLOSING_TEXT_HEADERS, b"Internal Server Error")
_HEADER_LINE_OVERHEAD: Final = 3
"""Minimum size of a header line beyond its name and value."""
_UPGRADE_NAMES: Final = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and options of Connection, that only concern a server that supports upgrades."""


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Encode headers as HTTP/1.1 header lines."""
    return b"".join(
        name.encode("latin-1") + b": " + value.encode("latin-1", "replace") + CRLF
        for name, value in headers.items()
    )


class HttpProtocol(HttpToolsProtocol):
    """One connection. `fast_append.make_protocol_class` derives the class of a server from it."""

    timeouts: ClassVar[RequestTimeouts]
    connection_limit: ClassVar[Connections]
    disconnects: ClassVar[Disconnects]
    forwarded_addresses: ClassVar[ForwardedAddresses]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.phase = Phase.FRESH
        self.since = 0.0
        self.received = 0
        self.unsent = 0
        self.last_progress_at = 0.0
        self._address: str | None = None
        self._is_counted = False
        self._ended = False
        """True once nothing more is read from this connection."""
        self._in_head = False
        self._chunk_size = 0
        """Size of the chunk being parsed."""
        self._first_chunk_size = 0
        """Size of the chunk in which a head began, or that held the latest part of a body."""
        self._bytes_fed = 0
        """Bytes since then, with all of that chunk, which may begin with an earlier request."""
        self._head_is_large = False
        self._is_upgrade = False
        """True while the parser has an upgrade request, whose body it skips."""
        self._final_response: Response | None = None
        """Response to send, before closing, after those to all earlier requests."""

    # Connections

    def connection_made(self, transport: Any) -> None:
        """Register the connection, or refuse it when there are too many."""
        super().connection_made(transport)
        self.since = self.last_progress_at = self.timeouts.watch(self)
        self._address = self.client[0] if self.client else None
        self._is_counted = self.connection_limit.enter(self._address)
        if not self._is_counted:
            self._ended = True
            refusal = error_response(_too_many_connections())
            refusal.headers |= DEFAULT_HEADERS
            self._send_final(transport, refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self.timeouts.unwatch(self)
        if self._is_counted:
            self._is_counted = False
            self.connection_limit.leave(self._address)
        # Otherwise its timer would keep a reset connection in memory.
        self._unset_keepalive_if_required()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            super().connection_lost(exc)
        else:
            # Nothing more is sent, but the request ends only when it is this connection's turn.
            cycle.disconnected = True
            self.disconnects.add(partial(super().connection_lost, exc))

    def resume_writing(self) -> None:
        """Note that the client has read data, and continue writing."""
        self.last_progress_at = self.timeouts.now
        super().resume_writing()

    def time_out(self) -> None:
        """End a connection whose client was too slow to send, or to begin, a request."""
        flow, cycle = self.flow, self.cycle
        is_answered = self.phase is Phase.BODY and cycle is not None and cycle.response_complete
        if flow.read_paused and not flow.write_paused:
            # The client is not slow: reading from it is paused.
            self.since = self.timeouts.now
        elif self.phase in {Phase.HEAD, Phase.BODY} and not (is_answered or self._ended):
            self.end_with(TOO_SLOW)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and refuse a head that is too large."""
        if self._ended:
            return
        self._chunk_size = size = len(data)
        self._bytes_fed += size
        self._unset_keepalive_if_required()
        self._feed(data)
        # The parser buffers a line until its end, which may never arrive.
        if self._bytes_fed - self._first_chunk_size > HTTP_HEAD_MAX and not self._ended:
            self.end_with(HEAD_TOO_LARGE)

    def _feed(self, data: bytes) -> None:
        """Parse received bytes; after an upgrade request a new parser continues from its head."""
        chunks: list[bytes | memoryview] = [data]
        while chunks and not self._ended:
            chunk = chunks.pop()
            try:
                self.parser.feed_data(chunk)
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
            except httptools.HttpParserUpgrade as upgrade:
                chunks += [memoryview(chunk)[upgrade.args[0] :], self._head_without_upgrade()]
                self._is_upgrade = False
                self.parser = _new_parser(self)

    def _head_without_upgrade(self) -> bytes:
        """Rebuild the head of the current request without its upgrade headers."""
        parser = self.parser
        version = parser.get_http_version().encode("ascii")
        out = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, version)]
        for name, value in self.headers:
            new_value = _without_upgrade(value) if name == b"connection" else value
            if name not in _UPGRADE_NAMES and (new_value or name != b"connection"):
                out += [name, b": ", new_value, CRLF]
        return b"".join((*out, CRLF))

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Start receiving a request head."""
        self._bytes_fed = self._first_chunk_size = self._chunk_size
        self._in_head = True
        self.phase, self.since = Phase.HEAD, self.timeouts.now
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers of a chunked body are ignored."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the head and start receiving the body."""
        self._in_head = False
        self.check_head_size()
        self.phase, self.since, self.received = Phase.BODY, self.timeouts.now, 0
        if self.parser.should_upgrade():
            self.ignore_upgrade()
            return
        before = self.cycle
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is not before:
            # With a reference to itself it would stay until the next garbage collection.
            send_error = partial(_send_internal_error, weakref.ref(cycle))
            cycle.send_500_response = send_error  # type: ignore[method-assign]

    def ignore_upgrade(self) -> None:
        """Defer an upgrade request until its head is parsed again without the upgrade headers.

        CONNECT is refused: what follows its head is not HTTP.
        """
        if self.parser.get_method() == b"CONNECT":
            raise InvalidInput("CONNECT is not supported")
        self._is_upgrade = True

    def check_head_size(self) -> None:
        """Raise InvalidInput, which stops the parser, if a complete head is too large."""
        if self._bytes_fed > HTTP_HEAD_MAX:
            size = len(self.url) + sum(
                len(name) + len(value) + _HEADER_LINE_OVERHEAD for name, value in self.headers
            )
            if size > HTTP_HEAD_MAX:
                self._head_is_large = True
                raise InvalidInput(f"request head: too large, got {size} bytes")

    def on_body(self, body: bytes) -> None:
        """Count and process a part of a body."""
        self._bytes_fed = self._first_chunk_size = self._chunk_size
        self.received += len(body)
        self.read_body(body)

    def read_body(self, body: bytes) -> None:
        """Pass on a part of a body; after the response, a bounded number of bytes is discarded."""
        super().on_body(body)
        if self.received > limits.HTTP_BODY_MAX and self.cycle.response_complete:
            self._ended = True
            self.transport.close()

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        self.phase = Phase.BUSY
        if not self._is_upgrade:
            super().on_message_complete()

    # Ending a connection

    def send_400_response(self, msg: str) -> None:
        """Refuse input that the parser rejected."""
        if not self._ended:
            invalid = Response(400, _CLOSING_TEXT_HEADERS, msg.encode("ascii"))
            self.end_with(HEAD_TOO_LARGE if self._head_is_large else invalid)

    def end_with(self, response: Response) -> None:
        """Send the last response of the connection, to the request that is being received."""
        self._ended = True
        cycle, pipeline = self.cycle, self.pipeline
        if cycle is None or cycle.response_complete:
            self._send_final(self.transport, response)
        elif not cycle.more_body:
            # That request is complete: its own response comes first.
            self._final_response = response
        elif pipeline and pipeline[0][0] is cycle:
            pipeline.popleft()
            self._final_response = response
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._send_final(cycle.transport, response)

    def on_response_complete(self) -> None:
        """Continue with the next request, or send the final response."""
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._final_response is not None:
            # Earlier output may be flushed only in the next iteration of the loop.
            self.loop.call_soon(self._send_final, self.transport, self._final_response)

    def _send_final(self, transport: Any, response: Response) -> None:
        """Send a response and close the connection."""
        if not transport.is_closing():
            transport.write(self.encode_response(response, closing=True))
            transport.close()

    def encode_response(self, response: Response, *, closing: bool) -> bytes:
        """Encode a response as HTTP/1.1 bytes."""
        status, headers = response.status, response.headers
        head = STATUS_LINE[status] + self.encode_default_headers() + encode_headers(headers)
        if status not in {204, 304}:
            head += b"content-length: %d\r\n" % len(response.body)
        if closing and "connection" not in headers:
            head += _CLOSE
        return head + CRLF + response.body

    def encode_default_headers(self) -> bytes:
        """Encode the headers that uvicorn adds to every response."""
        default_headers = self.server_state.default_headers
        return b"".join(name + b": " + value + CRLF for name, value in default_headers)


def _too_many_connections() -> Busy:
    return Busy(
        "too many connections",
        hint="Retry later, or use fewer connections.",
        retry_after=limits.RETRY_AFTER_S,
    )


def _without_upgrade(connection: bytes) -> bytes:
    """Return the options of a Connection header except those of an upgrade; `close` stays."""
    options = [option.strip() for option in connection.split(b",")]
    return b", ".join(option for option in options if option.lower() not in _UPGRADE_NAMES)


def _new_parser(protocol: HttpProtocol) -> Any:
    """Create a parser in the way uvicorn does."""
    parser = httptools.HttpRequestParser(protocol)
    with suppress(AttributeError):  # httptools before 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


async def _send_internal_error(running: weakref.ref[Any]) -> None:
    """Send uvicorn's response to an application error, with the default headers."""
    cycle = running()
    assert cycle is not None
    send = cycle.send
    headers = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in _CLOSING_TEXT_HEADERS.items()
    ]
    headers.append((b"content-length", b"%d" % len(INTERNAL_ERROR.body)))
    await send({"type": "http.response.start", "status": INTERNAL_ERROR.status, "headers": headers})
    await send({"type": "http.response.body", "body": INTERNAL_ERROR.body})
