"""The fast front: takes appends off the wire before an ASGI request is made of them.

It is the plain front with one difference: a plain POST to a stream is read, handed to the streams
and answered by callbacks, without a scope, a task or a future. Everything else goes the way it
always went. What is said is decided by the same `Protocol`, so both ways give the same answers.
A head that was read before, byte by byte the same, is not even parsed again.

    bytes ──> parser ──┬─ plain POST under /v1/stream/ ──> Protocol ──> Streams ──┬──> bytes
                       └─ anything else ──> uvicorn ──> ASGI ──> Protocol ────────┘

Answers leave a connection in the order in which its requests came, also when both ways are mixed.
Reading stops while too many are under way, or while the client does not take its answers.

The head of an answer leaves together with the first piece of its body.

uvicorn writes them one after the other, and each write is a call of the system, a packet, and for
a reader who waits a time to be woken for nothing. So the head is held back until the body comes. It
never comes later than the next turn of the loop: an answer whose body is not there yet begins
nevertheless.

Staying awake for a moment after an answer, where that pays.

A client that waits for each answer has its next request ready some tens of microseconds later. To
put the thread to sleep until then, and to wake it up with its caches cold, can take longer than
that. So the event loop looks again and again for a short while before it sleeps. That is good only
while requests do come in that time: where they do not, the attempt is given up, and made again only
now and then. On a machine with one processor it is never made, since the client needs that one.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fourfold import limits
from fourfold.errors import FourfoldError
from fourfold.models.streams import Appended, Streams
from fourfold.models.streams.append import Outcome
from fourfold.server.budget import Lease
from fourfold.server.connections import Connections, proxies
from fourfold.server.headers import ALWAYS, STREAM_PREFIX, plain_kind
from fourfold.server.http_protocol import (
    BODY_TOO_LARGE,
    BROKEN,
    HttpProtocol,
    Phase,
    RequestTimeouts,
    lines,
)
from fourfold.server.request import Request, Response
from fourfold.server.streams import Protocol, outcome, refusal
from fourfold.settings import Server


class CoalescedWrite:
    """What an answer is written to: the transport of its connection, but for the head."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = b""
        """What is held back; None from when that was written."""

    def write(self, data: bytes) -> None:
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
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, None
            self._transport.write(head)


_TRUST_MAX = 16
_TRUST_LOST = 4
"""How far it is believed that the next request comes soon: one more for each that did, and so many
less for each that did not.
"""
_TRIED_ANEW = 64
"""Where it is not believed, one in so many answers is waited behind all the same."""


class BusyPoll:
    """Keeps the loop of one server awake."""

    def __init__(
        self,
        seconds: float = limits.HTTP_VIGIL_S,
        *,
        processors: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        found = os.cpu_count() if processors is None else processors
        self._seconds = seconds if (found or 1) > 1 else 0.0
        self._clock = clock
        self._until = 0.0
        self._watching = False
        self._trust = _TRUST_LOST
        self._passed = 0
        self.asked = False
        """Whether a request came since the last answer; whoever hears of one says so."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """An answer was given on `loop`, and nothing is left to do for its client."""
        if self._trust == 0:
            self._passed += 1
            if self._passed < _TRIED_ANEW:
                return
            self._passed = 0
        self.asked = False
        self._until = self._clock() + self._seconds
        if not self._watching and self._seconds:
            self._watching = True
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once in every turn of the loop, which does not sleep while this is to be called again."""
        if self.asked:
            self._trust = min(_TRUST_MAX, self._trust + 1)
        elif self._clock() < self._until:
            loop.call_soon(self._look, loop)
            return
        else:
            self._trust = max(0, self._trust - _TRUST_LOST)
        self._watching = False


_PREFIX_CHARS: Final = len(STREAM_PREFIX)
# Names that need no decoding; a part that begins with an underscore may be more than a stream.
_PLAIN_PATH: Final = re.compile(
    re.escape(STREAM_PREFIX.encode()) + rb"(?!_)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|/(?!_))+"
)
_LENGTH: Final = b"content-length"
_HEAD_END: Final = b"\r\n\r\n"
_POST: Final = b"POST "
_VERSION: Final = b" HTTP/1.1\r\n"
_DONE: Final = lines(ALWAYS) + b"stream-next-offset: "
# Members of an enumeration are looked up each time that they are named.
_HEAD, _BODY, _BUSY, _IDLE = Phase.HEAD, Phase.BODY, Phase.BUSY, Phase.IDLE


class _PendingAppend:
    """An answer that a connection owes; `done` is what is known of it."""

    __slots__ = ("done", "front", "wrote")

    def __init__(self, front: FastAppendProtocol) -> None:
        self.front = front
        self.done: Outcome | Response | None = None
        self.wrote = False

    def tell(self, done: Outcome | Response) -> None:
        self.done = done
        self.front.answer_those_done()


class _Head(NamedTuple):
    """The headers of an append, remembered: most clients send the same ones again and again, but
    for the length of the body.
    """

    headers: list[tuple[bytes, bytes]]
    """Without the length."""
    length_at: int
    """Where that stood among them; -1 when there was none."""
    told: dict[str, str]
    plain: str | None
    """The content type, where nothing else is said of the append."""
    of_any_version: bool
    """Whether something is said of the connection, which older versions of HTTP may say too."""


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


class FastAppendProtocol(HttpProtocol):
    """One connection. `serving` makes the class of a server from it, with what it serves."""

    core: ClassVar[Protocol]
    streams: ClassVar[Streams]
    vigil: ClassVar[BusyPoll]
    names: ClassVar[dict[bytes, str]]
    """Streams by their paths, so that a path is looked at once."""
    heads: ClassVar[dict[bytes, tuple[_Head, int]]]
    """What the bytes of a head said, behind its path; and the length of the body."""
    _defaults: ClassVar[tuple[Any, bytes, bytes]] = (None, b"", b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: deque[_PendingAppend] = deque()
        self._turn: Any = _Turn()
        self._taking = False
        """Whether the body that is being read is that of an append."""
        self._between = True
        """Whether the parser is at the end of a request, so that what comes begins the next."""
        self._taken = 0
        """Appends that the parser found."""
        self._head: _Head | None = None
        self._name = ""
        self._parts: list[bytes] = []
        self._lease: Lease | None = None
        """What the parts hold of the budget, once more than one piece of the wire was needed."""
        self._dropping = False
        """Whether the body that is being read is that of an append that was refused."""

    # Connections

    def connection_lost(self, exc: Exception | None) -> None:
        self._awaited.clear()
        self._taking = False
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        end = data.find(_HEAD_END) if self._between else -1
        line = data.find(_VERSION, 0, end) if end >= 0 else -1
        if end >= 0 and self._is_repeated(data, line, end):
            return
        taken = self._taken
        super().data_received(data)
        if self._taking:
            self._hold()
        elif end >= 0 and self._taken == taken + 1:
            self._remember(data, line, end)

    def _is_repeated(self, data: bytes, line: int, end: int) -> bool:
        """Take an append that came whole and whose head was read before, byte by byte, but for the
        stream: there is nothing in it for the parser to find.
        """
        known = self.heads.get(data[line:end])
        if known is None or len(data) != end + 4 + known[1] or data[:5] != _POST:
            return False
        name = self.names.get(data[5:line])
        cycle, turn = self.cycle, self._turn
        if name is None or not (cycle is turn or cycle is None or cycle.response_complete):
            return False
        self._unset_keepalive_if_required()
        self.cycle = turn
        turn.response_complete = False
        self.vigil.asked = True
        self.phase = _BUSY
        self._name, self._head = name, known[0]
        self._append(data[end + 4 :])
        return True

    def _remember(self, data: bytes, line: int, end: int) -> None:
        """Keep the head of an append that was just read, if nothing came but that."""
        head, heads = self._head, self.heads
        if (
            head is not None
            and head.length_at >= 0
            and "transfer-encoding" not in head.told
            and self._between
            and data[:5] == _POST
            and len(data) == end + 4 + self.received
            and end - line <= limits.HTTP_HEAD_REMEMBERED_BYTES
        ):
            if len(heads) >= limits.HTTP_HEADS_REMEMBERED:
                heads.clear()
            heads[data[line:end]] = (head, self.received)

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

    # What the parser finds

    def on_message_begin(self) -> None:
        self._between = False
        self._fed = self._first = self._piece
        # The scope is made when it is known that one is needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True
        self.phase, self.since = _HEAD, self.patience.now
        self.vigil.asked = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._ended:
            return
        self._in_head = False
        self.refuse_large_head()
        self.phase, self.since, self.received = _BODY, self.patience.now, 0
        cycle, turn = self.cycle, self._turn
        if (
            self.parser.get_method() == b"POST"
            and (cycle is turn or cycle is None or cycle.response_complete)
            and (self._is_known() or self._is_plain())
        ):
            self._parts = []
            self._taking = True
            self.cycle = turn
            turn.response_complete = False
        elif self.parser.should_upgrade():
            self.ignore_upgrade()
        else:
            self._leave_to_uvicorn()

    def _is_known(self) -> bool:
        """Whether this is the head of the append before, but for the stream and the length."""
        head, headers, parser = self._head, self.headers, self.parser
        name = self.names.get(self.url)
        if name is None or head is None or not parser.should_keep_alive():
            return False
        if head.of_any_version and parser.get_http_version() != "1.1":
            return False
        at = head.length_at
        if at < 0:
            if headers != head.headers:
                return False
        else:
            if at >= len(headers) or headers[at][0] != _LENGTH:
                return False
            length = headers.pop(at)
            if headers != head.headers:
                headers.insert(at, length)
                return False
        self._name = name
        return True

    def _is_plain(self) -> bool:
        """Whether this is an append that needs nothing of what uvicorn does; its head is kept."""
        parser, url = self.parser, self.url
        if not (
            _PLAIN_PATH.fullmatch(url)
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.root_path
            and self.limit_concurrency is None
        ):
            return False
        headers = self.headers
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        if "expect" in told or [name for name, _ in headers].count(b"host") != 1:
            return False
        at = next((at for at, (name, _) in enumerate(headers) if name == _LENGTH), -1)
        rest = [each for each in headers if each[0] != _LENGTH]
        odd = "connection" in told or "upgrade" in told
        # Under another name an append is looked at each time: whether a key is needed may change.
        named = self.core.hosts.allows(told["host"], is_open=True)
        self._head = _Head(rest, at, told, plain_kind(told) if named else None, odd)
        self._name = url[_PREFIX_CHARS:].decode("ascii")
        names = self.names
        if len(names) >= limits.HTTP_PATHS_REMEMBERED:
            names.clear()
        names[url] = self._name
        return True

    def _leave_to_uvicorn(self) -> None:
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
        if self._ended:
            return
        self._fed = self._first = self._piece
        self.received += len(body)
        if self._taking:
            if self.received > limits.HTTP_BODY_MAX:
                self._last(BODY_TOO_LARGE)
            else:
                self._parts.append(body)
        elif not self._dropping:
            self.read_body(body)
        elif self.received > limits.HTTP_BODY_MAX:
            self._ended = True
            self.transport.close()

    def on_message_complete(self) -> None:
        if self._ended:
            return
        self._between = True
        self.phase = _BUSY
        if self._taking:
            self._taking = False
            self._taken += 1
            parts, self._parts = self._parts, []
            if self._lease is not None:
                self._release()
            self._append(parts[0] if len(parts) == 1 else b"".join(parts))
        elif self._dropping:
            self._dropping = False
            self.phase, self.since = _IDLE, self.patience.now
        else:
            super().on_message_complete()

    def end_with(self, response: Response) -> None:
        cycle, turn = self.cycle, self._turn
        if cycle is turn or cycle is None or cycle.response_complete:
            self._last(response)
        else:
            super().end_with(response)

    # Appends

    def _hold(self) -> None:
        """A body needs more than what came: its key is looked at before more of it is read, and
        what came of it counts. Where it is refused, its answer does not wait for the rest.
        """
        head = self._head
        assert head is not None
        if not self.received and head.plain is not None and self.core.is_open:
            # Many clients send head and body apart: there is no key to look at, nothing to count.
            return
        try:
            if self._lease is None:
                request = Request("POST", STREAM_PREFIX + self._name, "", head.told)
                self._lease = self.core.lease(request)
            self._lease.hold(self.received)
        except FourfoldError as error:
            self._taking, self._dropping, self._parts = False, True, []
            self._release()
            self._owe(refusal(error))

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _owe(self, response: Response) -> None:
        awaited = _PendingAppend(self)
        self._awaited.append(awaited)
        awaited.tell(response)

    def _append(self, body: bytes) -> None:
        awaited = _PendingAppend(self)
        self._awaited.append(awaited)
        core, name, head = self.core, self._name, self._head
        assert head is not None
        try:
            if head.plain is not None and body and core.is_open:
                asked = core.plain_append(name, head.plain, body)
            else:
                request = Request("POST", STREAM_PREFIX + name, "", head.told, body)
                core.admit(request)
                asked = core.append_asked(request, name)
            awaited.wrote = bool(asked.records)
            self.streams.append_soon(name, asked, awaited.tell, self.loop)
        except FourfoldError as error:
            awaited.tell(refusal(error))
        except Exception:
            self.logger.exception("Exception in the fast front")
            awaited.tell(BROKEN)
        if len(self._awaited) >= limits.HTTP_PIPELINE_MAX:
            self.flow.pause_reading()

    def _last(self, response: Response) -> None:
        """An answer behind which the connection ends."""
        self._ended, self._taking = True, False
        self._turn.keep_alive = False
        self.cycle = self._turn
        self._turn.response_complete = False
        self._parts = []
        self._release()
        self._owe(response)

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
                at = (done.incarnation_number, done.next_offset)
                out.append(b"%b%016d_%016d\r\n\r\n" % (self._default_headers()[1], *at))
                continue
            response = done if isinstance(done, Response) else outcome(done, wrote=first.wrote)
            closing = closing or "connection" in response.headers
            out.append(self.encoded(response, closing=closing))
        if not out:
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        if closing:
            self._ended = True
            awaited.clear()
            transport.close()
        if not awaited and not self._taking:
            self._rest()

    def _rest(self) -> None:
        """Nothing is owed any more."""
        self._turn.response_complete = True
        self.vigil.begin(self.loop)
        if self.cycle is not self._turn:
            # A request that is not an append came behind them, and waits in uvicorn's queue.
            self.on_response_complete()
            return
        if self.phase is _BUSY:
            self.phase, self.since = _IDLE, self.patience.now
        flow = self.flow
        if flow.read_paused and not flow.write_paused and not self._ended:
            flow.resume_reading()

    def default_lines(self) -> bytes:
        return self._default_headers()[0]

    def _default_headers(self) -> tuple[bytes, bytes]:
        """What uvicorn puts on every answer, and the beginning of one to an append; it makes a new
        list of the former every second.
        """
        given = self.server_state.default_headers
        kept, encoded, done = self._defaults
        if kept is not given:
            encoded = super().default_lines()
            done = STATUS_LINE[204] + encoded + _DONE
            type(self)._defaults = (given, encoded, done)  # noqa: SLF001 - its own class
        return encoded, done


def front_of(
    core: Protocol, settings: Server | None = None, *, fast: bool = True
) -> type[HttpProtocol]:
    """The protocol class of a server that answers by `core`, within the limits of its settings."""
    settings = settings or Server()
    shared: dict[str, Any] = {
        "patience": RequestTimeouts(write_stall_s=settings.write_stall_s),
        "gate": Connections(
            settings.connections_max,
            settings.connections_per_address,
            frozenset(proxies(settings.trusted_proxies)),
        ),
    }
    if not fast:
        return type("ServedPlainFront", (HttpProtocol,), shared)
    served = {"core": core, "streams": core.streams, "names": {}, "heads": {}, "vigil": BusyPoll()}
    return type("ServedFront", (FastAppendProtocol,), {**shared, **served})
