"""One stream by its name: append, read, follow, fork."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams import messages, names
from fourfold.models.streams.appending import Append
from fourfold.models.streams.records import Appended, Chunk, Producer, StreamInfo
from fourfold.models.streams.writer import Fork

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Stream:
    """One stream by its name. It holds nothing open."""

    def __init__(self, streams: Streams, name: str) -> None:
        self._streams = streams
        self.name = name

    @property
    def info(self) -> StreamInfo:
        return self._streams.info(self.name)

    def append(
        self,
        records: Iterable[bytes] | bytes,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
    ) -> Appended:
        """Add records; it returns when they are on disk."""
        return self._streams.append(self.name, self._request(records, producer, seq, close=close))

    async def append_async(
        self,
        records: Iterable[bytes] | bytes,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
    ) -> Appended:
        request = self._request(records, producer, seq, close=close)
        return await self._streams.append_async(self.name, request)

    def close(self) -> Appended:
        """No more appends; readers learn that they have reached the end."""
        return self._streams.append(self.name, Append((), None, close=True))

    def read(self, offset: str = names.START, limit: int | None = None) -> Chunk:
        """The next records behind an offset."""
        most = limits.STREAM_READ_RECORDS if limit is None else limit
        return self._streams.read(self.name, offset, records_max=most)[1]

    def fork(self, name: str, at: str | None = None, *, sub_offset: int = 0) -> Stream:
        """A new stream that shares everything up to an offset, the end if not given, and then goes
        its own way. Nothing is copied.
        """
        offset = None if at is None else names.read_offset(at)
        return self._streams.create(name, fork=Fork(self.name, offset, sub_offset))

    def follow(self, offset: str = names.START, *, timeout: float | None = None) -> Iterator[Chunk]:
        """Chunk by chunk, waiting for more; it ends with the stream, or after `timeout` seconds
        without anything new.
        """
        at = offset
        while True:
            rings = self._streams.bell.rings
            chunk = self.read(at)
            at = names.show_offset(chunk.next_offset)
            if chunk.records or chunk.closed:
                yield chunk
                if chunk.closed:
                    return
                continue
            until = None if timeout is None else time.monotonic() + timeout
            if not self._wait(at, rings, until):
                return

    def _wait(self, at: str, rings: int, until: float | None) -> bool:
        """Until there is something behind `at`; False when the time is over."""
        while True:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            pause = (
                limits.WATCH_HEARTBEAT_S if left is None else min(left, limits.WATCH_HEARTBEAT_S)
            )
            self._streams.bell.wait(rings, pause)
            rings = self._streams.bell.rings
            info = self.info
            if names.show_offset(info.next_offset) > at or info.closed:
                return True

    async def follow_async(self, offset: str = names.START) -> AsyncIterator[Chunk]:
        """The same for coroutines, until the stream is closed."""
        at = offset
        with self._streams.bell.heard(self.name) as ear:
            while True:
                ear.forget()
                chunk = await asyncio.to_thread(self.read, at)
                at = names.show_offset(chunk.next_offset)
                if chunk.records or chunk.closed:
                    yield chunk
                    if chunk.closed:
                        return
                    continue
                await ear.wait(limits.WATCH_HEARTBEAT_S)

    def _request(
        self,
        records: Iterable[bytes] | bytes,
        producer: Producer | None,
        seq: str | None,
        *,
        close: bool,
    ) -> Append:
        given = [records] if isinstance(records, bytes) else list(records)
        if self.info.is_json:
            given = [message for each in given for message in messages.split(each, names.JSON)]
        for each in given:
            if not isinstance(each, bytes) or not each:
                raise InvalidInput("a record is bytes, and not empty")
        return Append(given, None, producer, seq, close)
