"""The fast front: takes appends off the wire before an ASGI request is made of them.

It is uvicorn's own protocol with one difference: a plain POST to a stream is read, handed to the
streams and answered by callbacks, without a scope, a task or a future. Everything else goes the way
it always went. What is said is decided by the same `Protocol`, so both ways give the same answers.

    bytes ──> parser ──┬─ plain POST under /v1/stream/ ──> Protocol ──> Streams ──┬──> bytes
                       └─ anything else ──> uvicorn ──> ASGI ──> Protocol ────────┘

Answers leave a connection in the order in which its requests came, also when both ways are mixed.
Reading stops while too many are under way, or while the client does not take its answers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.streams import Appended, Streams
from fourfold.models.streams.appending import Outcome
from fourfold.server.exchange import Request, Response
from fourfold.server.headers import ALWAYS, STREAM_PREFIX
from fourfold.server.patience import Patience, Phase
from fourfold.server.protocol import Protocol, outcome, refusal

_PREFIX_CHARS: Final = len(STREAM_PREFIX)
# Names that need no decoding; a part that begins with an underscore may be more than a stream.
_PLAIN_PATH: Final = re.compile(
    re.escape(STREAM_PREFIX.encode()) + rb"(?!_)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|/(?!_))+"
)
_END: Final = b"\r\n"
_CLOSE: Final = b"connection: close\r\n"


def _lines(headers: Mapping[str, str]) -> bytes:
    return b"".join(
        name.encode("latin-1") + b": " + value.encode("latin-1", "replace") + _END
        for name, value in headers.items()
    )


_ALWAYS: Final = _lines(ALWAYS) + b"stream-next-offset: 0000000000000000_"
_TOO_LARGE: Final = Response(413, {**ALWAYS, "connection": "close"})
_TOO_SLOW: Final = Response(408, {**ALWAYS, "connection": "close"})
_BROKEN: Final = Response(
    500,
    {"content-type": "text/plain; charset=utf-8", "connection": "close"},
    b"Internal Server Error",
)


class _Awaited:
    """An answer that a connection owes; `done` is what is known of it."""

    __slots__ = ("done", "front", "wrote")

    def __init__(self, front: FastFront) -> None:
        self.front = front
        self.done: Outcome | Response | None = None
        self.wrote = False

    def tell(self, done: Outcome | Response) -> None:
        self.done = done
        self.front.answer_those_done()


class _Turn:
    """Stands where uvicorn keeps the request that is under way on a connection, so that it queues
    what comes behind, and lets it end when the server stops.
    """

    __slots__ = ("disconnected", "keep_alive", "message_event", "response_complete")

    def __init__(self) -> None:
        self.response_complete = True
        self.keep_alive = True
        self.disconnected = False
        self.message_event = self

    def set(self) -> None:
        """Nobody waits for the body of an append."""


class FastFront(HttpToolsProtocol):
    """One connection. `serving` makes the class of a server from it, with what it serves."""

    core: ClassVar[Protocol]
    streams: ClassVar[Streams]
    patience: ClassVar[Patience]
    _defaults: ClassVar[tuple[Any, bytes]] = (None, b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: deque[_Awaited] = deque()
        self._turn: Any = _Turn()
        self._taking = False
        """Whether the body that is being read is that of an append."""
        self._ended = False
        """Whether nothing more is read from this connection."""
        self._in_head = True
        self._told: dict[str, str] = {}
        self._path = ""
        self._parts: list[bytes] = []
        self.phase = Phase.FRESH
        self.since = 0.0
        self.received = 0

    # Connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.patience.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._awaited.clear()
        self._taking = False
        self.patience.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._ended:
            super().data_received(data)

    def eof_received(self) -> Any:
        """A client that has said everything still gets the answers that it is owed."""
        if self._awaited and self.cycle is self._turn:
            self._ended, self._taking = True, False
            self._turn.keep_alive = False
            return True
        return super().eof_received()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.cycle is self._turn:
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is self._turn and not self._ended:
            self.flow.resume_reading()

    def give_up(self) -> None:
        """The client took too long to send its request."""
        flow, cycle = self.flow, self.cycle
        if flow.read_paused and not flow.write_paused:
            # It is not the client that is slow: nothing is read from it now.
            self.since = self.patience.now
        elif self.phase in {Phase.HEAD, Phase.BODY} and (
            cycle is None or cycle.response_complete or cycle is self._turn
        ):
            self._last(_TOO_SLOW)
        else:
            self.transport.close()

    # What the parser finds

    def on_message_begin(self) -> None:
        # The scope is made when it is known that one is needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True
        self.phase, self.since = Phase.HEAD, self.patience.now

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes behind the body is no part of the head, whatever it is called.
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._ended:
            return
        self._in_head = False
        self.phase, self.since, self.received = Phase.BODY, self.patience.now, 0
        parser, cycle, turn = self.parser, self.cycle, self._turn
        if (
            parser.get_method() == b"POST"
            and _PLAIN_PATH.fullmatch(self.url)
            and (cycle is turn or cycle is None or cycle.response_complete)
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.root_path
            and self.limit_concurrency is None
        ):
            told = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
            if "expect" not in told:
                self._told, self._path, self._parts = told, self.url.decode("ascii"), []
                self._taking = True
                self.cycle = turn
                turn.response_complete = False
                return
        self._leave_to_uvicorn()

    def _leave_to_uvicorn(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._ended:
            return
        self.received += len(body)
        if not self._taking:
            super().on_body(body)
        elif self.received > limits.HTTP_BODY_MAX:
            self._last(_TOO_LARGE)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._ended:
            return
        self.phase = Phase.BUSY
        if self._taking:
            self._taking = False
            parts = self._parts
            self._append(parts[0] if len(parts) == 1 else b"".join(parts))
        else:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP; the answer comes behind those that are owed already."""
        if self.cycle is not self._turn or self._turn.response_complete:
            super().send_400_response(msg)
            return
        text = {"content-type": "text/plain; charset=utf-8", "connection": "close"}
        self._last(Response(400, text, msg.encode("ascii")))

    # Appends

    def _append(self, body: bytes) -> None:
        awaited = _Awaited(self)
        self._awaited.append(awaited)
        core, path = self.core, self._path
        name = path[_PREFIX_CHARS:]
        request = Request("POST", path, "", self._told, body)
        try:
            core.admit(request)
            asked = core.append_asked(request, name)
            awaited.wrote = bool(asked.records)
            self.streams.append_soon(name, asked, awaited.tell)
        except FourfoldError as error:
            awaited.tell(refusal(error))
        except Exception:
            self.logger.exception("Exception in the fast front")
            awaited.tell(_BROKEN)
        if len(self._awaited) >= limits.HTTP_PIPELINE_MAX:
            self.flow.pause_reading()

    def _last(self, response: Response) -> None:
        """An answer behind which the connection ends."""
        self._ended, self._taking = True, False
        self._turn.keep_alive = False
        self.cycle = self._turn
        self._turn.response_complete = False
        awaited = _Awaited(self)
        self._awaited.append(awaited)
        awaited.tell(response)

    def answer_those_done(self) -> None:
        """Send what is known, in the order in which it was asked."""
        awaited, transport = self._awaited, self.transport
        if not awaited or transport.is_closing():
            return
        turn = self._turn
        out: list[bytes] = []
        closing = False
        while awaited and (done := awaited[0].done) is not None and not closing:
            first = awaited.popleft()
            self.server_state.total_requests += 1
            # When the server stops, or the client does, the last answer says that it is the last.
            closing = not (turn.keep_alive or awaited or self._taking) and self.cycle is turn
            if type(done) is Appended and done.producer is None and not (done.closed or closing):
                out += (STATUS_LINE[204], self._default_headers(), _ALWAYS)
                out.append(b"%016d\r\n\r\n" % done.next_offset)
                continue
            response = done if isinstance(done, Response) else outcome(done, wrote=first.wrote)
            closing = closing or "connection" in response.headers
            out.append(self._encoded(response, closing=closing))
        if not out:
            return
        transport.write(b"".join(out))
        if closing:
            self._ended = True
            awaited.clear()
            transport.close()
        if not awaited and not self._taking:
            self._rest()

    def _rest(self) -> None:
        """Nothing is owed any more."""
        self._turn.response_complete = True
        if self.cycle is not self._turn:
            # A request that is not an append came behind them, and waits in uvicorn's queue.
            self.on_response_complete()
            return
        if self.phase is Phase.BUSY:
            self.phase, self.since = Phase.IDLE, self.patience.now
        if not self.flow.write_paused and not self._ended:
            self.flow.resume_reading()

    def _encoded(self, response: Response, *, closing: bool) -> bytes:
        status, headers = response.status, response.headers
        told = STATUS_LINE[status] + self._default_headers() + _lines(headers)
        if status not in {204, 304}:
            told += b"content-length: %d\r\n" % len(response.body)
        if closing and "connection" not in headers:
            told += _CLOSE
        return told + _END + response.body

    def _default_headers(self) -> bytes:
        """What uvicorn puts on every answer; it makes a new list of it every second."""
        given = self.server_state.default_headers
        kept, encoded = self._defaults
        if kept is not given:
            encoded = b"".join(name + b": " + value + _END for name, value in given)
            type(self)._defaults = (given, encoded)  # noqa: SLF001 - its own class
        return encoded


def front_of(core: Protocol) -> type[FastFront]:
    """The protocol class of a server that answers by `core`."""
    return type(
        "ServedFront",
        (FastFront,),
        {"core": core, "streams": core.streams, "patience": Patience()},
    )
