"""The states of a reader, without any transport: what to ask next, and what the bytes mean. Pure.

    call() -> begin(headers) -> feed(bytes) ... -> end()     or     broken()

Both clients drive these, one with threads and one with coroutines. A connection may break anywhere:
the reader then asks from its last offset again, and drops what it has handed out already, so that
nothing is missing and nothing comes twice.

Server-sent events out of bytes, in whatever pieces they come. Pure.

The messages of a JSON array out of bytes, in whatever pieces they come. Pure.

A message is given as the bytes that came. Only what belongs to the message that is not complete yet
is held, so an answer of any size needs the memory of its largest message.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from abc import ABC, abstractmethod
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from fourfold import limits
from fourfold.client import requests
from fourfold.client.requests import Address, Call, Live
from fourfold.client.responses import Headers, Part, is_true, of_text, whole_messages
from fourfold.errors import BadAnswer, InvalidInput, ServerUnreachable

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class Event(NamedTuple):
    name: str
    data: bytes


class EventParser:
    """Give it bytes, get the events that are complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[bytes] = []
        self._first = True

    def feed(self, piece: bytes) -> list[Event]:
        # Bytes without the end of a line are only kept: a long line is put together once.
        if b"\n" not in piece and b"\r" not in piece and not self._ends_with_return():
            self._rest.append(piece)
            return []
        text = b"".join([*self._rest, piece])
        # A return at the very end may be the first half of a line's end.
        *lines, rest = _END.split(text)
        self._rest = [rest] if rest else []
        found = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                found.append(event)
        return found

    def _ends_with_return(self) -> bool:
        return bool(self._rest) and self._rest[-1].endswith(b"\r")

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event = Event(self._name or "message", b"\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        return None


# Text is skipped whole; the second kind is text that is not complete yet.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_TOKEN = re.compile(_TEXT + rb'"|(' + _TEXT + rb"\\?\Z)|[\[\]{},]", re.DOTALL)
_SPACE = b" \t\r\n"


class MessageSplitter:
    """Give it the bytes of one array, get its elements as they become complete."""

    def __init__(self) -> None:
        self._held = b""
        self._at = 0
        self._depth = 0
        self.done = False

    def feed(self, piece: bytes) -> list[bytes]:
        text = self._held + piece
        found: list[bytes] = []
        start = 0
        at = self._at
        while not self.done:
            token = _TOKEN.search(text, at)
            if token is None:
                at = len(text)
                break
            if token[1] is not None:
                at = token.start()
                break
            at = token.end()
            start = self._take(text, token, start, found)
        self._held, self._at = text[start:], at - start
        if self.done and self._held.strip(_SPACE):
            raise BadAnswer("something follows the array of a JSON stream")
        return found

    def _take(self, text: bytes, token: re.Match[bytes], start: int, found: list[bytes]) -> int:
        """Note one token; where the message that is not complete yet begins."""
        mark = token[0]
        if mark in (b"[", b"{"):
            self._depth += 1
            if self._depth > 1:
                return start
            if mark == b"{" or text[start : token.start()].strip(_SPACE):
                raise BadAnswer("a part of a JSON stream is not an array")
            return token.end()
        if mark in (b"]", b"}"):
            self._depth -= 1
            self.done = self._depth <= 0
        elif mark != b"," or self._depth != 1:
            return start
        if (mark == b"," and self._depth == 1) or self.done:
            message = text[start : token.start()].strip(_SPACE)
            if message or not self.done:
                found.append(message)
            return token.end()
        return start

    def end(self) -> None:
        """No more bytes come."""
        if not self.done:
            raise BadAnswer("the array of a JSON stream is not complete")


Out = TypeVar("Out")


class StreamReader(ABC, Generic[Out]):
    """Reads what there is, from an offset to the end that the stream has when it is reached."""

    def __init__(self, address: Address, name: str, offset: str, key: str | None = None) -> None:
        self._address = address
        self._name = name
        self._key = key
        self.offset = offset
        self.done = False
        self._next = offset
        self._last = False

    def ended(self) -> bool:
        """Whether there is nothing more to ask for."""
        return self.done

    def call(self) -> Call:
        return requests.read(self._address, self._name, self.offset, key=self._key)

    def begin(self, headers: Headers) -> None:
        told = headers.get("stream-next-offset")
        if not told:
            raise BadAnswer(f"read {self._name!r}: the answer does not say where to go on")
        self._next = told
        ended = is_true(headers, "stream-up-to-date") or is_true(headers, "stream-closed")
        self._last = ended or told == self.offset

    @abstractmethod
    def feed(self, piece: bytes) -> list[Out]:
        """What a piece of the answer completes."""

    def end(self) -> list[Out]:
        """The answer is complete."""
        self.offset, self.done = self._next, self._last
        return []


class BytesReader(StreamReader[bytes]):
    """Pieces of bytes as they come."""

    def __init__(self, address: Address, name: str, offset: str, key: str | None = None) -> None:
        super().__init__(address, name, offset, key)
        self._given = 0
        self._skip = 0

    def begin(self, headers: Headers) -> None:
        super().begin(headers)
        self._skip = self._given

    def feed(self, piece: bytes) -> list[bytes]:
        fresh = piece[self._skip :]
        self._skip = max(0, self._skip - len(piece))
        self._given += len(fresh)
        return [fresh] if fresh else []

    def end(self) -> list[bytes]:
        self._given = 0
        return super().end()


class TextReader(StreamReader[str]):
    """The same as text; a character that lies in two pieces comes whole."""

    def __init__(self, address: Address, name: str, offset: str, key: str | None = None) -> None:
        super().__init__(address, name, offset, key)
        self._bytes = BytesReader(address, name, offset, key)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def begin(self, headers: Headers) -> None:
        super().begin(headers)
        self._bytes.begin(headers)

    def feed(self, piece: bytes) -> list[str]:
        return self._decoded(b"".join(self._bytes.feed(piece)), final=False)

    def end(self) -> list[str]:
        super().end()
        self._bytes.end()
        return self._decoded(b"", final=self.done)

    def _decoded(self, piece: bytes, *, final: bool) -> list[str]:
        try:
            text = self._decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"the stream {self._name!r} is not text: {error}", hint="Read its bytes."
            ) from None
        return [text] if text else []


class MessageReader(StreamReader[bytes]):
    """Messages of a JSON stream, as the bytes that came."""

    def __init__(self, address: Address, name: str, offset: str, key: str | None = None) -> None:
        super().__init__(address, name, offset, key)
        self._given = 0
        self._skip = 0
        self._whole: list[bytes] | None = None
        self._splitter = MessageSplitter()

    def begin(self, headers: Headers) -> None:
        super().begin(headers)
        if not requests.is_json(headers.get("content-type", "")):
            raise InvalidInput(
                f"the stream {self._name!r} holds {headers.get('content-type')}, which has no "
                "messages",
                hint="Read its bytes, or its text.",
            )
        self._skip = self._given
        size = headers.get("content-length", "")
        small = size.isdecimal() and int(size) <= limits.CLIENT_WHOLE_BODY_BYTES
        # Decoding a whole answer is several times quicker than looking for the ends of messages.
        self._whole = [] if small and "content-encoding" not in headers else None
        self._splitter = MessageSplitter()

    def feed(self, piece: bytes) -> list[bytes]:
        if self._whole is not None:
            self._whole.append(piece)
            return []
        return self._fresh(self._splitter.feed(piece))

    def end(self) -> list[bytes]:
        found = []
        if self._whole is not None:
            found = self._fresh(whole_messages(b"".join(self._whole)))
        else:
            self._splitter.end()
        self._given, self._whole = 0, None
        super().end()
        return found

    def _fresh(self, found: list[bytes]) -> list[bytes]:
        fresh = found[self._skip :]
        self._skip = max(0, self._skip - len(found))
        self._given += len(fresh)
        return fresh


class LiveReader(StreamReader[Part]):
    """Part by part, and then whatever comes, until the stream is closed.

    A part is given once all of it is there, with the offset behind it. What was received of a part
    when a connection broke is forgotten, and asked for again.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        live: Live | None,
        *,
        key: str | None = None,
    ) -> None:
        super().__init__(address, name, offset, key)
        self._live = live
        self._mode: Live | None = None
        self._cursor: str | None = None
        self._type = ""
        self._closed = self._current = False
        self._first: str | None = None
        self._body: list[bytes] = []
        self._events = EventParser()
        self._base64 = False
        self.progress = False
        """Whether the last answer said anything: one that did not is not asked for at once."""

    def call(self) -> Call:
        return requests.read(
            self._address, self._name, self.offset, self._mode, self._cursor, key=self._key
        )

    def begin(self, headers: Headers) -> None:
        self._body, self._events, self.progress = [], EventParser(), False
        self._first = headers.get("stream-first-offset", self._first)
        if self._mode == "sse":
            self._base64 = headers.get("stream-sse-data-encoding", "").lower() == "base64"
            return
        super().begin(headers)
        self._type = headers.get("content-type", self._type)
        self._cursor = headers.get("stream-cursor", self._cursor)
        self._closed = is_true(headers, "stream-closed")
        self._current = is_true(headers, "stream-up-to-date") or self._closed

    def feed(self, piece: bytes) -> list[Part]:
        if self._mode != "sse":
            self._body.append(piece)
            return []
        found = []
        for event in self._events.feed(piece):
            if event.name == "data":
                self._body.append(event.data)
            elif event.name == "control":
                found += self._control(event.data)
        return found

    def end(self) -> list[Part]:
        if self._mode == "sse":
            # A connection of events ends now and then; only the stream's end is one.
            return []
        self.progress = True
        body = b"".join(self._body)
        self.offset, self.done = self._next, self._closed
        if self._mode is None and (self._last or self._current):
            self._mode = self._live or ("long-poll" if of_text(self._type) else "sse")
        if requests.is_json(self._type) and body.strip() == b"[]":
            body = b""
        if not body and not self._closed:
            return []
        return [Part(body, self._type, self.offset, self._current, self._closed, self._first)]

    def silence(self) -> ServerUnreachable:
        """An answer without anything in it is as good as none."""
        return ServerUnreachable(f"follow {self._name!r}: the answer was empty")

    def _control(self, data: bytes) -> list[Part]:
        try:
            told = _CONTROL.decode(data)
        except msgspec.DecodeError as error:
            raise BadAnswer(f"follow {self._name!r}: a control event is broken: {error}") from None
        body = b"".join(map(self._plain, self._body)) if self._base64 else b"".join(self._body)
        self._body, self.progress = [], True
        self.offset, self.done = told.streamNextOffset, told.streamClosed
        self._cursor = told.streamCursor or self._cursor
        if not body and not self.done:
            return []
        current = told.upToDate or self.done
        return [Part(body, self._type, self.offset, current, self.done, self._first)]

    def _plain(self, data: bytes) -> bytes:
        try:
            return base64.b64decode(data.replace(b"\n", b"").replace(b"\r", b""), validate=True)
        except binascii.Error as error:
            raise BadAnswer(f"follow {self._name!r}: an event is not base64: {error}") from None


class _Control(msgspec.Struct):
    """A control event, by the names of the protocol."""

    streamNextOffset: str  # noqa: N815
    streamCursor: str | None = None  # noqa: N815
    upToDate: bool = False  # noqa: N815
    streamClosed: bool = False  # noqa: N815


_CONTROL: Final = msgspec.json.Decoder(_Control)
