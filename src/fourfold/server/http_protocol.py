"""The plain front: uvicorn's protocol, and what every connection is owed beside it.

- There is room for so many connections, and each has deadlines, see `patience`.
- The head of a request is bounded, before anything is known of who sends it: what is longer gets
  431. So are the lines behind a chunked body, and those are no headers, whatever they are called.
- What the server itself has to refuse, or what breaks in it, is answered with the headers that are
  on every answer.
- What is no HTTP is answered behind the requests that came before it, never in place of theirs.
- A request to go on in another protocol is ignored, as RFC 9110 allows: it is answered in HTTP/1.1,
  with all of its body. The parser would end such a request after its head, so its head is parsed
  again without the request to upgrade.

The fast front is built on it; with `--no-fast-front` it is all there is.

Deadlines of connections: a client that is too slow must not hold one for ever.

One timer looks at all connections once a second. A head must come within a time, a body must keep
coming at some speed, a connection that says nothing is ended after the time of an idle one, and one
whose client takes nothing of what it is sent is cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fourfold import limits
from fourfold.errors import Busy, InvalidInput
from fourfold.server.connections import Connections
from fourfold.server.headers import ALWAYS
from fourfold.server.request import Response
from fourfold.server.streams import refusal

_COUNT: Final = struct.Struct("i")
_NO_COUNT: Final = _COUNT.pack(0)


class Phase(Enum):
    """What a connection is in the middle of."""

    FRESH = "nothing came yet"
    HEAD = "a request has begun"
    BODY = "its body is on the way"
    BUSY = "it is being answered"
    IDLE = "it was answered"


class WatchedConnection(Interface):
    """A connection: its phase, since when, and how much of a body came."""

    phase: Phase
    since: float
    received: int
    transport: asyncio.Transport
    unsent: int
    """Bytes that were waiting to be sent at the last look."""
    taken_at: float
    """When the client last took some of them, or none were waiting."""

    def give_up(self) -> None: ...


class RequestTimeouts:
    """Looks at the connections of one server. `now` is the time of its last look."""

    def __init__(
        self,
        *,
        every_s: float = limits.HTTP_LOOK_S,
        write_stall_s: float = limits.HTTP_WRITE_STALL_S,
    ) -> None:
        self.now = 0.0
        self._every_s = every_s
        self._write_stall_s = write_stall_s
        self._watched: set[WatchedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: WatchedConnection) -> float:
        """From now on look at a connection; the time."""
        self._watched.add(connection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self.now = loop.time()
            self._timer = loop.call_later(self._every_s, self._look, loop)
        return self.now

    def forget(self, connection: WatchedConnection) -> None:
        self._watched.discard(connection)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._watched:
            return
        self.now = loop.time()
        for connection in list(self._watched):
            if self._is_stalled(connection):
                # What is waiting would keep it open, however it is closed.
                connection.transport.abort()
            elif self.now > _until(connection):
                connection.give_up()
        self._timer = loop.call_later(self._every_s, self._look, loop)

    def _is_stalled(self, connection: WatchedConnection) -> bool:
        """Return True if a client has taken nothing of what was waiting for it, for too long. While
        more than fits is waiting nothing is added to it, so it gets less, or writing was resumed.
        """
        unsent = connection.transport.get_write_buffer_size()
        if unsent:
            unsent += _in_the_kernel(connection.transport)
        if not unsent or unsent < connection.unsent:
            connection.taken_at = self.now
        connection.unsent = unsent
        return self.now - connection.taken_at > self._write_stall_s


def _in_the_kernel(transport: asyncio.Transport) -> int:
    """Count the bytes that the kernel has still to send: it takes in more only once a third of
    them, up to megabytes, has left.
    """
    sock = transport.get_extra_info("socket")
    try:
        return int(_COUNT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _NO_COUNT))[0])
    except (OSError, AttributeError):
        # Not on this system. Then a reader has to be so fast that the kernel takes more in time.
        return 0


def _until(connection: WatchedConnection) -> float:
    phase, since = connection.phase, connection.since
    if phase is Phase.BUSY:
        return float("inf")
    if phase is Phase.HEAD:
        return since + limits.HTTP_HEAD_S
    if phase is Phase.BODY:
        rate = limits.HTTP_BODY_BYTES_PER_S_MIN
        return since + limits.HTTP_BODY_S + connection.received / rate
    return since + limits.HTTP_KEEP_ALIVE_S


END: Final = b"\r\n"
_CLOSE: Final = b"connection: close\r\n"
_LAST: Final = {**ALWAYS, "connection": "close"}
_LAST_TEXT: Final = {**ALWAYS, "content-type": "text/plain; charset=utf-8", "connection": "close"}
HEAD_TOO_LARGE: Final = Response(431, _LAST)
BODY_TOO_LARGE: Final = Response(413, _LAST)
TOO_SLOW: Final = Response(408, _LAST)
BROKEN: Final = Response(500, _LAST_TEXT, b"Internal Server Error")
_LINE_MIN: Final = 3
"""What a header has on the wire at least beside its name and its value."""
_OF_UPGRADES: Final = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and options of Connection, that only mean something to a server that upgrades."""


def lines(headers: Mapping[str, str]) -> bytes:
    return b"".join(
        name.encode("latin-1") + b": " + value.encode("latin-1", "replace") + END
        for name, value in headers.items()
    )


class HttpProtocol(HttpToolsProtocol):
    """One connection. `fast_front.front_of` makes the class of a server from it."""

    patience: ClassVar[RequestTimeouts]
    gate: ClassVar[Connections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.phase = Phase.FRESH
        self.since = 0.0
        self.received = 0
        self.unsent = 0
        self.taken_at = 0.0
        self._address: str | None = None
        self._is_counted = False
        self._ended = False
        """Whether nothing more is read from this connection."""
        self._in_head = False
        self._piece = 0
        """Bytes of the piece that the parser has."""
        self._first = 0
        """Bytes of the piece in which a head began, or in which the latest part of a body was."""
        self._fed = 0
        """Bytes since then, with all of that piece: its beginning may belong to what was before."""
        self._head_is_large = False
        self._is_upgrade = False
        """Whether the parser has a head that asks for another protocol, and skips its body."""
        self._farewell: Response | None = None
        """What is still to be said when the requests before it are answered."""

    # Connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.taken_at = self.patience.watch(self)
        self._address = self.client[0] if self.client else None
        self._is_counted = self.gate.enter(self._address)
        if not self._is_counted:
            self._ended = True
            self._say_last(transport, refusal(_too_many()))

    def connection_lost(self, exc: Exception | None) -> None:
        self.patience.forget(self)
        if self._is_counted:
            self._is_counted = False
            self.gate.leave(self._address)
        # Or its timer would keep a connection that was reset in memory.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self.taken_at = self.patience.now
        super().resume_writing()

    def give_up(self) -> None:
        """The client took too long to send its request, or to begin one."""
        flow, cycle = self.flow, self.cycle
        is_answered = self.phase is Phase.BODY and cycle is not None and cycle.response_complete
        if flow.read_paused and not flow.write_paused:
            # It is not the client that is slow: nothing is read from it now.
            self.since = self.patience.now
        elif self.phase in {Phase.HEAD, Phase.BODY} and not (is_answered or self._ended):
            self.end_with(TOO_SLOW)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._piece = size = len(data)
        self._fed += size
        self._unset_keepalive_if_required()
        self._feed(data)
        # The parser keeps a line until it is at its end, which may never come.
        if self._fed - self._first > limits.HTTP_HEAD_MAX and not self._ended:
            self.end_with(HEAD_TOO_LARGE)

    def _feed(self, data: bytes) -> None:
        """Parse what came. After a request to upgrade a new parser reads on, from its head."""
        pieces: list[bytes | memoryview] = [data]
        while pieces and not self._ended:
            piece = pieces.pop()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
            except httptools.HttpParserUpgrade as upgrade:
                pieces += [memoryview(piece)[upgrade.args[0] :], self._head_without_upgrade()]
                self._is_upgrade = False
                self.parser = _new_parser(self)

    def _head_without_upgrade(self) -> bytes:
        parser = self.parser
        version = parser.get_http_version().encode("ascii")
        out = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, version)]
        for name, value in self.headers:
            kept = _without_upgrade(value) if name == b"connection" else value
            if name not in _OF_UPGRADES and (kept or name != b"connection"):
                out += [name, b": ", kept, END]
        return b"".join((*out, END))

    # What the parser finds

    def on_message_begin(self) -> None:
        self._fed = self._first = self._piece
        self._in_head = True
        self.phase, self.since = Phase.HEAD, self.patience.now
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.refuse_large_head()
        self.phase, self.since, self.received = Phase.BODY, self.patience.now, 0
        if self.parser.should_upgrade():
            self.ignore_upgrade()
            return
        before = self.cycle
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is not before:
            cycle.send_500_response = partial(_send_broken, cycle.send)  # type: ignore[method-assign]

    def ignore_upgrade(self) -> None:
        """Leave a request alone until its head is parsed again, as one that asks for no upgrade.
        A tunnel is refused: what follows the head of that is in no protocol that is known here.
        """
        if self.parser.get_method() == b"CONNECT":
            raise InvalidInput("CONNECT is not supported")
        self._is_upgrade = True

    def refuse_large_head(self) -> None:
        """An error, which ends the parser's work, when a head is too large that came whole."""
        if self._fed > limits.HTTP_HEAD_MAX:
            size = len(self.url) + sum(
                len(name) + len(value) + _LINE_MIN for name, value in self.headers
            )
            if size > limits.HTTP_HEAD_MAX:
                self._head_is_large = True
                raise InvalidInput(f"a head of {size} bytes is too large")

    def on_body(self, body: bytes) -> None:
        self._fed = self._first = self._piece
        self.received += len(body)
        self.read_body(body)

    def read_body(self, body: bytes) -> None:
        """Hand a part of a body on. What comes after the answer is dropped, up to a bound."""
        super().on_body(body)
        if self.received > limits.HTTP_BODY_MAX and self.cycle.response_complete:
            self._ended = True
            self.transport.close()

    def on_message_complete(self) -> None:
        self.phase = Phase.BUSY
        if not self._is_upgrade:
            super().on_message_complete()

    # What ends a connection

    def send_400_response(self, msg: str) -> None:
        """The parser could not go on."""
        if not self._ended:
            invalid = Response(400, _LAST_TEXT, msg.encode("ascii"))
            self.end_with(HEAD_TOO_LARGE if self._head_is_large else invalid)

    def end_with(self, response: Response) -> None:
        """The last answer of this connection, for the request that is being read."""
        self._ended = True
        cycle, pipeline = self.cycle, self.pipeline
        if cycle is None or cycle.response_complete:
            self._say_last(self.transport, response)
        elif not cycle.more_body:
            # That one came whole, and is being answered, or waits for that.
            self._farewell = response
        elif pipeline and pipeline[0][0] is cycle:
            pipeline.popleft()
            self._farewell = response
        elif cycle.response_started:
            self.transport.close()
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._say_last(cycle.transport, response)

    def on_response_complete(self) -> None:
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._farewell is not None:
            # What was said by now may leave with the next turn of the loop.
            self.loop.call_soon(self._say_last, self.transport, self._farewell)

    def _say_last(self, transport: Any, response: Response) -> None:
        if not transport.is_closing():
            transport.write(self.encoded(response, closing=True))
            transport.close()

    def encoded(self, response: Response, *, closing: bool) -> bytes:
        status, headers = response.status, response.headers
        told = STATUS_LINE[status] + self.default_lines() + lines(headers)
        if status not in {204, 304}:
            told += b"content-length: %d\r\n" % len(response.body)
        if closing and "connection" not in headers:
            told += _CLOSE
        return told + END + response.body

    def default_lines(self) -> bytes:
        """What uvicorn puts on every answer."""
        given = self.server_state.default_headers
        return b"".join(name + b": " + value + END for name, value in given)


def _too_many() -> Busy:
    return Busy(
        "the server has as many connections as it may have",
        hint="Come again later, or use fewer connections.",
        retry_after=limits.RETRY_AFTER_S,
    )


def _without_upgrade(connection: bytes) -> bytes:
    """The options of a Connection header but for those of an upgrade; `close` stays."""
    options = [option.strip() for option in connection.split(b",")]
    return b", ".join(option for option in options if option.lower() not in _OF_UPGRADES)


def _new_parser(front: HttpProtocol) -> Any:
    """A parser as uvicorn makes them."""
    parser = httptools.HttpRequestParser(front)
    with suppress(AttributeError):  # httptools before 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


async def _send_broken(send: Callable[[Any], Awaitable[None]]) -> None:
    """What uvicorn says when the application raised, with the headers of every answer."""
    told = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in _LAST_TEXT.items()]
    told.append((b"content-length", b"%d" % len(BROKEN.body)))
    await send({"type": "http.response.start", "status": BROKEN.status, "headers": told})
    await send({"type": "http.response.body", "body": BROKEN.body})
