"""The client for threads.

with StreamClient("http://127.0.0.1:4437", key=None) as client:
    orders = client.create("orders")
    orders.append_json([{"id": 1}])
    with orders.follow("now") as parts:
        for part in parts: ...
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import UnsetType

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.producer import BatchOptions, StreamProducer
from fourfold.client.reader import BytesReader, LiveReader, MessageReader, StreamReader, TextReader
from fourfold.client.requests import Address, Call, Live
from fourfold.client.responses import Appended, Part, Response, StreamFacts, StreamListing
from fourfold.client.rules import RuleCalls
from fourfold.client.transport import RetryPolicy, Settings, Transport
from fourfold.errors import FourfoldError, NotFound, ServerUnreachable
from fourfold.models.streams.records import Producer
from fourfold.models.streams.rules import UNCHANGED
from fourfold.models.streams.validation import JSON, START

Out = TypeVar("Out")


class StreamClient(RuleCalls):
    """A server. Any number of threads may use it.

    `retry_for` says for how many seconds a request that may be repeated is repeated while the
    server cannot be reached or is busy; None is for ever. `verify` is whose certificates are
    believed: the usual ones, a file, a context, or with False any.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = limits.CLIENT_TIMEOUT_S,
        retry_for: float | None = limits.CLIENT_RETRY_S,
        verify: bool | str | Path | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = Settings(
            address=Address(url),
            key=key,
            timeout=timeout,
            retry_for=retry_for,
            verify=verify,
            headers=tuple((headers or {}).items()),
        )
        self._transport = Transport(self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. Producers and followers have their own, and are closed by
        themselves.
        """
        self._transport.close()

    def create(
        self,
        name: str,
        content_type: str = JSON,
        *,
        ttl: int | None = None,
        expires_at: datetime | str | None = None,
        closed: bool = False,
        body: bytes = b"",
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Stream:
        """A new stream; the same one again when it is there and is like that. Retention is an
        option of Fourfold's server.
        """
        call = requests.create(
            self.settings.address,
            name,
            content_type,
            ttl=ttl,
            expires_at=expires_at,
            closed=closed,
            body=body,
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        return Stream(self, responses.facts(name, self.send(call)))

    def open(self, name: str) -> Stream:
        """A stream that is there; NotFound when it is not."""
        found = self.send(requests.head(self.settings.address, name))
        return Stream(self, responses.facts(name, found))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[StreamListing]:
        """The streams of a Fourfold server in the order of their names, page by page."""
        start: str | None = after
        while start is not None:
            call = requests.page(self.settings.address, prefix, start, limits.LIST_STREAMS_MAX)
            found, start = responses.listed(self.send(call))
            yield from found

    def delete(self, name: str) -> None:
        """Remove a stream; those that were forked from it go on."""
        call = requests.delete(self.settings.address, name)
        patience = RetryPolicy(self.settings.retry_for)
        asked = False
        while True:
            try:
                self._transport.send(call)
            except NotFound:
                # Asked again since no answer came: it was the first request that did it.
                if not asked:
                    raise
            except FourfoldError as error:
                asked = asked or (isinstance(error, ServerUnreachable) and was_sent(error))
                time.sleep(patience.pause(error))
                continue
            return

    def send(self, call: Call) -> Response:
        """One request, repeated while that is safe."""
        patience = RetryPolicy(self.settings.retry_for)
        while True:
            try:
                return self._transport.send(call)
            except FourfoldError as error:
                time.sleep(patience.pause(error))

    def run(self, reading: StreamReader[Out]) -> Iterator[Out]:
        """What a reader finds, connection after connection."""
        patience = RetryPolicy(self.settings.retry_for)
        while not reading.ended():
            try:
                with self._transport.open(reading.call()) as (answer, pieces):
                    reading.begin(answer.headers)
                    for piece in pieces:
                        yield from reading.feed(piece)
                        patience.restart()
                yield from reading.end()
            except FourfoldError as error:
                time.sleep(patience.pause(error))


class Stream:
    """One stream of a server. It holds nothing open."""

    def __init__(self, client: StreamClient, facts: StreamFacts) -> None:
        self._client = client
        self._address = client.settings.address
        self.facts = facts
        """As the server told when this handle was made; `head()` asks again."""
        self.name = facts.name
        self.content_type = facts.content_type

    def head(self) -> StreamFacts:
        """What the server says of the stream now. Looking does not count as a use."""
        answer = self._client.send(requests.head(self._address, self.name))
        self.facts = responses.facts(self.name, answer)
        return self.facts

    def append(
        self,
        data: bytes | str,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | None = None,
    ) -> Appended:
        """Add bytes, or text; to a JSON stream a message or an array of messages. It returns when
        they are on disk. `key` is the routing key that they can be read by. Without a producer it
        is not repeated when no answer comes, and raises OutcomeUnknown.
        """
        call = requests.append(
            self._address,
            self.name,
            self.content_type,
            requests.as_bytes(data),
            producer=producer,
            seq=seq,
            close=close,
            key=key,
        )
        return responses.appended(call, self._client.send(call))

    def append_json(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | None = None,
    ) -> Appended:
        """Add values, each as a message of its own."""
        return self.append(
            requests.json_body(values), producer=producer, seq=seq, close=close, key=key
        )

    def close(self) -> Appended:
        """No more appends; readers learn that they have reached the end."""
        return self.append(b"", close=True)

    def delete(self) -> None:
        self._client.delete(self.name)

    def configure(
        self,
        *,
        ttl: int | UnsetType | None = UNCHANGED,
        expires_at: datetime | str | UnsetType | None = UNCHANGED,
        retention_seconds: int | UnsetType | None = UNCHANGED,
        retention_bytes: int | UnsetType | None = UNCHANGED,
    ) -> StreamFacts:
        """Change the lifetime or the retention of a stream of a Fourfold server.

        None removes a setting; what is not given stays as it is. A time to live and a fixed end
        replace each other. What retention has trimmed stays trimmed.
        """
        call = requests.configure(
            self._address,
            self.name,
            ttl=ttl,
            expires_at=expires_at,
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        self.facts = responses.facts(self.name, self._client.send(call))
        return self.facts

    def fork(self, name: str, at: str | None = None, *, sub_offset: int | None = None) -> Stream:
        """A new stream that shares everything up to an offset, the end if not given, and then goes
        its own way.
        """
        call = requests.create(
            self._address,
            name,
            None,
            fork_from=self.name,
            fork_offset=at,
            fork_sub_offset=sub_offset,
        )
        return Stream(self._client, responses.facts(name, self._client.send(call)))

    def read(self, offset: str = START, *, key: str | None = None) -> Part:
        """The next part behind an offset: as much as the server gives at once. With `key`, of the
        records with that routing key; there may be none in it.
        """
        call = requests.read(self._address, self.name, offset, key=key)
        answer = self._client.send(call)
        headers = answer.headers
        closed = responses.is_true(headers, "stream-closed")
        return Part(
            answer.body,
            headers.get("content-type", self.content_type),
            headers.get("stream-next-offset", offset),
            closed or responses.is_true(headers, "stream-up-to-date"),
            closed,
            headers.get("stream-first-offset"),
        )

    def read_bytes(self, offset: str = START, *, key: str | None = None) -> Iterator[bytes]:
        """The bytes from an offset to the end, in pieces: memory does not grow with the stream."""
        return self._client.run(BytesReader(self._address, self.name, offset, key))

    def read_text(self, offset: str = START, *, key: str | None = None) -> Iterator[str]:
        """The same as text."""
        return self._client.run(TextReader(self._address, self.name, offset, key))

    def messages(self, offset: str = START, *, key: str | None = None) -> Iterator[bytes]:
        """The messages of a JSON stream from an offset to the end, as the bytes that came."""
        return self._client.run(MessageReader(self._address, self.name, offset, key))

    def items(
        self, offset: str = START, *, loads: Callable[[bytes], Any] = json.loads
    ) -> Iterator[Any]:
        """The messages as values."""
        return map(loads, self.messages(offset))

    def follow(
        self,
        offset: str = START,
        *,
        live: Live | None = None,
        key: str | None = None,
        retry_for: float | None = limits.CLIENT_FOLLOW_RETRY_S,
    ) -> Follower:
        """Part by part, waiting for more, until the stream is closed or `stop()` is called. When a
        connection breaks it goes on from the last offset.

        `live` is how to wait: "sse" or "long-poll". If it is not given, text is polled for, since
        events change the ends of its lines, and everything else comes as events.
        """
        reading = LiveReader(self._address, self.name, offset, live, key=key)
        return Follower(self._client.settings, reading, retry_for)

    def producer(
        self,
        producer_id: str,
        *,
        epoch: int | None = None,
        auto_claim: bool = False,
        batching: BatchOptions | None = None,
        retry_for: float | None = limits.CLIENT_FOLLOW_RETRY_S,
    ) -> StreamProducer:
        """A producer: messages in batches, several under way at once, each on the stream once.

        Without an `epoch` it begins a new one, and so takes over from an earlier producer of the
        same id. `auto_claim` lets it take over again when another one has.
        """
        return StreamProducer(
            self._client.settings,
            self.name,
            self.content_type,
            producer_id,
            epoch=epoch,
            auto_claim=auto_claim,
            batching=batching or BatchOptions(),
            retry_for=retry_for,
        )


class Follower:
    """A follower of a stream: iterate over it, and leave its block, or call `stop()` from another
    thread, to end it.
    """

    def __init__(self, settings: Settings, reading: LiveReader, retry_for: float | None) -> None:
        self._reading = reading
        self._patience = RetryPolicy(retry_for)
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        # A connection of its own, so that it can be cut while a thread waits on it.
        self._transport = Transport(settings, self._connected)
        self._parts = self._run()

    @property
    def offset(self) -> str:
        """Behind the last part that was received."""
        return self._reading.offset

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Part:
        return next(self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(ValueError):
            # Another thread may be in it; it ends there, since its connection was cut.
            self._parts.close()
        self._transport.close()

    def stop(self) -> None:
        """End it, from any thread: the loop over it ends."""
        self._stopped.set()
        self._cut()

    def _connected(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._stopped.is_set():
            self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> Generator[Part, None, None]:
        try:
            yield from self._found()
        finally:
            self._transport.close()

    def _found(self) -> Iterator[Part]:
        reading = self._reading
        while not reading.ended() and not self._stopped.is_set():
            try:
                with self._transport.open(reading.call()) as (answer, pieces):
                    reading.begin(answer.headers)
                    for piece in pieces:
                        for part in reading.feed(piece):
                            self._patience.restart()
                            yield part
                        if reading.ended():
                            break
                yield from reading.end()
                if not reading.progress:
                    raise reading.silence()
                self._patience.restart()
            except FourfoldError as error:
                if self._stopped.is_set():
                    return
                self._stopped.wait(self._patience.pause(error))


def was_sent(error: FourfoldError) -> bool:
    return error.details.get("sent") is not False
