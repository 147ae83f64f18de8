"""Reader state machines without I/O: the next request, and the meaning of received bytes.

    call() -> begin(headers) -> feed(bytes) ... -> end()     or     broken()

Both clients drive these, one with threads and one with coroutines. A connection may break anywhere:
the reader then requests from its last offset again and drops what it has delivered already, so that
nothing is missing and nothing is repeated.

`EventParser` parses server-sent events, and `MessageSplitter` the messages of a JSON array, from
chunks of any size. Messages are returned as received. Only the incomplete message is buffered, so a
response of any size needs the memory of its largest message.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from fourfold import limits
from fourfold.client import requests
from fourfold.client.requests import Address, Call, Live
from fourfold.client.responses import Headers, Part, is_text, is_true, split_messages
from fourfold.errors import BadAnswer, InvalidInput, ServerUnreachable
from fourfold.models.streams.records import Where

CLIENT_WHOLE_BODY_BYTES: Final = 8 * limits.MIB
"""A larger body is parsed while it arrives."""

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class ServerSentEvent(NamedTuple):
    """A server-sent event."""

    name: str
    data: bytes
    id: str | None = None
    """None if the event has no id of its own."""


class EventParser:
    """Incremental parser of server-sent events. One with an id and no data is an event too."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._first = True

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        # Bytes without a line end are only buffered: a long line is joined once.
        """Add bytes and return the events that are complete."""
        if b"\n" not in piece and b"\r" not in piece and not self._ends_with_return():
            self._rest.append(piece)
            return []
        text = b"".join([*self._rest, piece])
        # A carriage return at the very end may be the first half of a line end.
        *lines, rest = _LINE_END.split(text)
        self._rest = [rest] if rest else []
        events = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def _ends_with_return(self) -> bool:
        return bool(self._rest) and self._rest[-1].endswith(b"\r")

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            event = None
            if self._data or self._id is not None:
                event = ServerSentEvent(self._name or "message", b"\n".join(self._data), self._id)
            self._name, self._data, self._id = "", [], None
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")
        return None


# Strings are skipped as a whole; the group matches a string that is not complete yet.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_TOKEN = re.compile(_TEXT + rb'"|(' + _TEXT + rb"\\?\Z)|[\[\]{},]", re.DOTALL)
_SPACE = b" \t\r\n"


class MessageSplitter:
    """Incremental splitter of a JSON array into its elements."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._depth = 0
        self.done = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Add bytes and return the elements that are complete."""
        text = self._buffer + piece
        messages: list[bytes] = []
        start = 0
        position = self._at
        while not self.done:
            token = _TOKEN.search(text, position)
            if token is None:
                position = len(text)
                break
            if token[1] is not None:
                position = token.start()
                break
            position = token.end()
            start = self._handle_token(text, token, start, messages)
        self._buffer, self._at = text[start:], position - start
        if self.done and self._buffer.strip(_SPACE):
            raise BadAnswer("JSON stream: unexpected data after the array")
        return messages

    def _handle_token(
        self, text: bytes, token: re.Match[bytes], start: int, messages: list[bytes]
    ) -> int:
        """Process one token; return the start of the message that is not complete yet."""
        symbol = token[0]
        if symbol in (b"[", b"{"):
            self._depth += 1
            if self._depth > 1:
                return start
            if symbol == b"{" or text[start : token.start()].strip(_SPACE):
                raise BadAnswer("JSON stream: expected an array")
            return token.end()
        if symbol in (b"]", b"}"):
            self._depth -= 1
            self.done = self._depth <= 0
        elif symbol != b"," or self._depth != 1:
            return start
        if (symbol == b"," and self._depth == 1) or self.done:
            message = text[start : token.start()].strip(_SPACE)
            if message or not self.done:
                messages.append(message)
            return token.end()
        return start

    def end(self) -> None:
        """Check that the array is complete."""
        if not self.done:
            raise BadAnswer("JSON stream: incomplete array")


Out = TypeVar("Out")


class ResponseReader(ABC, Generic[Out]):
    """Read a response, or several in a row, in chunks of any size."""

    progress = True
    """False if the last response was empty; a feed then waits before its next request."""

    @abstractmethod
    def ended(self) -> bool:
        """Return True if there is nothing more to request."""

    @abstractmethod
    def call(self) -> Call:
        """Return the next request."""

    @abstractmethod
    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""

    @abstractmethod
    def feed(self, piece: bytes) -> list[Out]:
        """Process received bytes and return what they complete."""

    @abstractmethod
    def end(self) -> list[Out]:
        """Process the end of a response."""

    def empty_response(self) -> ServerUnreachable:
        """Return the error for an empty response, which is treated like none."""
        return ServerUnreachable(f"{self.call().operation}: the response was empty")


class StreamReader(ResponseReader[Out]):
    """Read from an offset to the current end of the stream."""

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        key: str | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._key = key
        self._where = where
        self.offset = offset
        self.done = False
        self._next = offset
        self._last = False

    def ended(self) -> bool:
        """Return True if there is nothing more to request."""
        return self.done

    def call(self) -> Call:
        """Return the next request."""
        return requests.read(
            self._address, self._name, self.offset, key=self._key, where=self._where
        )

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        next_offset = headers.get("stream-next-offset")
        if not next_offset:
            raise BadAnswer(f"read {self._name!r}: the response has no Stream-Next-Offset")
        self._next = next_offset
        ended = is_true(headers, "stream-up-to-date") or is_true(headers, "stream-closed")
        self._last = ended or next_offset == self.offset

    def end(self) -> list[Out]:
        """Process the end of a response and return what it completes."""
        self.offset, self.done = self._next, self._last
        return []


class BytesReader(StreamReader[bytes]):
    """Read chunks of bytes as they arrive."""

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        key: str | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        super().__init__(address, name, offset, key, where=where)
        self._delivered = 0
        self._skip = 0

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        super().begin(headers)
        self._skip = self._delivered

    def feed(self, piece: bytes) -> list[bytes]:
        """Process received bytes and return what they complete."""
        new_bytes = piece[self._skip :]
        self._skip = max(0, self._skip - len(piece))
        self._delivered += len(new_bytes)
        return [new_bytes] if new_bytes else []

    def end(self) -> list[bytes]:
        """Process the end of a response and return what it completes."""
        self._delivered = 0
        return super().end()


class TextReader(StreamReader[str]):
    """Read text as it arrives; characters that are split between chunks stay whole."""

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        key: str | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        super().__init__(address, name, offset, key, where=where)
        self._bytes = BytesReader(address, name, offset, key, where=where)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        super().begin(headers)
        self._bytes.begin(headers)

    def feed(self, piece: bytes) -> list[str]:
        """Process received bytes and return what they complete."""
        return self._decode(b"".join(self._bytes.feed(piece)), final=False)

    def end(self) -> list[str]:
        """Process the end of a response and return what it completes."""
        super().end()
        self._bytes.end()
        return self._decode(b"", final=self.done)

    def _decode(self, piece: bytes, *, final: bool) -> list[str]:
        try:
            text = self._decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"stream {self._name!r}: must be UTF-8 text: {error}", hint="Read its bytes."
            ) from None
        return [text] if text else []


class MessageReader(StreamReader[bytes]):
    """Read the messages of a JSON stream, as received."""

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        key: str | None = None,
        *,
        where: Where | None = None,
    ) -> None:
        super().__init__(address, name, offset, key, where=where)
        self._delivered = 0
        self._skip = 0
        self._whole: list[bytes] | None = None
        self._splitter = MessageSplitter()

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        super().begin(headers)
        if not requests.is_json(headers.get("content-type", "")):
            raise InvalidInput(
                f"stream {self._name!r}: must be a JSON stream to read messages, "
                f"got {headers.get('content-type')}",
                hint="Read its bytes or its text.",
            )
        self._skip = self._delivered
        size = headers.get("content-length", "")
        small = size.isdecimal() and int(size) <= CLIENT_WHOLE_BODY_BYTES
        # Decoding a complete response is several times faster than searching for message ends.
        self._whole = [] if small and "content-encoding" not in headers else None
        self._splitter = MessageSplitter()

    def feed(self, piece: bytes) -> list[bytes]:
        """Process received bytes and return what they complete."""
        if self._whole is not None:
            self._whole.append(piece)
            return []
        return self._new_messages(self._splitter.feed(piece))

    def end(self) -> list[bytes]:
        """Process the end of a response and return what it completes."""
        messages = []
        if self._whole is not None:
            messages = self._new_messages(split_messages(b"".join(self._whole)))
        else:
            self._splitter.end()
        self._delivered, self._whole = 0, None
        super().end()
        return messages

    def _new_messages(self, messages: list[bytes]) -> list[bytes]:
        new_messages = messages[self._skip :]
        self._skip = max(0, self._skip - len(messages))
        self._delivered += len(new_messages)
        return new_messages


class LiveReader(StreamReader[Part]):
    """Read part by part, and then new parts, until the stream is closed.

    A part is returned once it is complete, with the offset after it. An incomplete part is dropped
    when a connection breaks, and requested again.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str,
        live: Live | None,
        *,
        key: str | None = None,
        where: Where | None = None,
    ) -> None:
        super().__init__(address, name, offset, key, where=where)
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

    def call(self) -> Call:
        """Return the next request."""
        return requests.read(
            self._address,
            self._name,
            self.offset,
            self._mode,
            self._cursor,
            key=self._key,
            where=self._where,
        )

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
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
        """Process received bytes and return what they complete."""
        if self._mode != "sse":
            self._body.append(piece)
            return []
        parts = []
        for event in self._events.feed(piece):
            if event.name == "data":
                self._body.append(event.data)
            elif event.name == "control":
                parts += self._control(event.data)
        return parts

    def end(self) -> list[Part]:
        """Process the end of a response and return what it completes."""
        if self._mode == "sse":
            # The server ends event connections periodically; only a closed stream is the end.
            return []
        self.progress = True
        body = b"".join(self._body)
        self.offset, self.done = self._next, self._closed
        if self._mode is None and (self._last or self._current):
            self._mode = self._live or ("long-poll" if is_text(self._type) else "sse")
        if requests.is_json(self._type) and body.strip() == b"[]":
            body = b""
        if not body and not self._closed:
            return []
        return [Part(body, self._type, self.offset, self._current, self._closed, self._first)]

    def _control(self, data: bytes) -> list[Part]:
        try:
            control = _CONTROL.decode(data)
        except msgspec.DecodeError as error:
            raise BadAnswer(f"follow {self._name!r}: invalid control event: {error}") from None
        body = (
            b"".join(map(self._decode_base64, self._body)) if self._base64 else b"".join(self._body)
        )
        self._body, self.progress = [], True
        self.offset, self.done = control.streamNextOffset, control.streamClosed
        self._cursor = control.streamCursor or self._cursor
        if not body and not self.done:
            return []
        current = control.upToDate or self.done
        return [Part(body, self._type, self.offset, current, self.done, self._first)]

    def _decode_base64(self, data: bytes) -> bytes:
        try:
            return base64.b64decode(data.replace(b"\n", b"").replace(b"\r", b""), validate=True)
        except binascii.Error as error:
            raise BadAnswer(f"follow {self._name!r}: event: expected base64: {error}") from None


class FeedItem(NamedTuple, Generic[Out]):
    """An item of a feed, and the place after it; None if only the place has moved."""

    position: str
    item: Out | None


class EventReader(ResponseReader[FeedItem[Out]]):
    """Read a feed of a Fourfold server: each event once, over as many connections as needed.

    Args:
        call: Request of the feed.
        decode: Returns the item of an event by its name and data; None for one to skip.
    """

    def __init__(self, call: Call, decode: Callable[[str, bytes], Out | None]) -> None:
        self._call = call
        self._decode = decode
        self._events = EventParser()
        self._position: str | None = None
        self._done = False
        self.progress = False

    @property
    def position(self) -> str | None:
        """The id of the last event, also while that is decoded."""
        return self._position

    def ended(self) -> bool:
        """Return True if there is nothing more to request."""
        return self._done

    def call(self) -> Call:
        """Return the next request."""
        if self._position is None:
            return self._call
        headers = {**self._call.headers, "last-event-id": self._position}
        return self._call._replace(headers=headers)

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        del headers
        self._events, self.progress = EventParser(), False

    def feed(self, piece: bytes) -> list[FeedItem[Out]]:
        """Process received bytes and return what they complete."""
        items: list[FeedItem[Out]] = []
        for event in self._events.feed(piece):
            self.progress = True
            self._position = event.id if event.id is not None else self._position
            self._done = self._done or event.name == "end"
            item = self._decode(event.name, event.data) if event.data else None
            items.append(FeedItem(self._position or "", item))
        return items

    def end(self) -> list[FeedItem[Out]]:
        """Process the end of a response and return what it completes."""
        return []


class _Control(msgspec.Struct):
    """A control event, with the field names of the protocol."""

    streamNextOffset: str  # noqa: N815
    streamCursor: str | None = None  # noqa: N815
    upToDate: bool = False  # noqa: N815
    streamClosed: bool = False  # noqa: N815


_CONTROL: Final = msgspec.json.Decoder(_Control)
