"""Streams: append-only logs under names, with idempotent producers, forks and live readers.

    stream = store.streams.create("orders", content_type="application/json")
    stream.append([b'{"id": 1}'])
    for chunk in stream.follow(): ...

An append that returned is on disk. A stream is read by offsets, which are text that sorts; `-1` is
the beginning, `now` the end. Every call that has a name like `..._async` is for coroutines; appends
of coroutines share commits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.kernel import Bell, Database, Transaction
from fourfold.models.streams import fold, messages, names, reader, verification, writer
from fourfold.models.streams.admission import check_producer
from fourfold.models.streams.records import Appended, Chunk, Made, Producer, StreamInfo, Totals
from fourfold.models.streams.writer import SQL, Append, Fork, Moment, Wanted

Clock = Callable[[], int]
"""Milliseconds since 1970."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Streams:
    """All streams of one store."""

    def __init__(self, database: Database, *, clock: Clock = _now_ms) -> None:
        self.database = database
        self.clock = clock
        self.bell = Bell()
        self.sweep_failure: FourfoldError | None = None
        """Why the last sweep in the background failed, if it did."""
        self._touched: dict[int, int] = {}
        self._touching = threading.Lock()

    # Whole streams

    def create(
        self,
        name: str,
        content_type: str | None = None,
        *,
        ttl: int | None = None,
        expires_at_ms: int | None = None,
        closed: bool = False,
        body: bytes = b"",
        fork: Fork | None = None,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Stream:
        """A new stream; the same one again when it is there and is like that."""
        wanted = Wanted(
            name,
            content_type,
            ttl,
            expires_at_ms,
            closed,
            fork,
            retention_seconds,
            retention_bytes,
        )
        self.make(wanted, body)
        return Stream(self, name)

    def make(self, wanted: Wanted, body: bytes = b"") -> Made:
        """The same with everything said, and whether the stream is new."""
        return self.database.transact(self._making(wanted, body), size=len(body))

    async def make_async(self, wanted: Wanted, body: bytes = b"") -> Made:
        return await self.database.transact_async(self._making(wanted, body), size=len(body))

    def _making(self, wanted: Wanted, body: bytes) -> Callable[[Transaction], Made]:
        checked = _check_wanted(wanted)
        records = []
        if body:
            kind = checked.content_type or "application/octet-stream"
            records = messages.split(body, kind, empty_list=True)

        def work(txn: Transaction) -> Made:
            made = writer.create(txn, checked, records, self._now())
            txn.after_commit(self.bell.ring)
            return made

        return work

    def open(self, name: str) -> Stream:
        """A stream that is there; NotFound when it is not."""
        self.info(name)
        return Stream(self, name)

    def info(self, name: str) -> StreamInfo:
        """What is known of a stream. Looking does not count as a use."""
        names.check_name(name)
        with self.database.read() as snapshot:
            return writer.living(snapshot, name, self._now())

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> tuple[StreamInfo, ...]:
        """Streams in the order of their names."""
        now = self._now()
        with self.database.read() as snapshot:
            rows = snapshot.all(SQL.streams_after, (after, prefix, names.behind(prefix), limit))
        found = (writer.info_of(row) for row in rows)
        return tuple(each for each in found if not writer.is_expired(each, now))

    def delete(self, name: str) -> None:
        """Remove a stream. One that has forks can no longer be used, but they go on reading it."""
        self.database.transact(self._deleting(name))

    async def delete_async(self, name: str) -> None:
        await self.database.transact_async(self._deleting(name))

    def _deleting(self, name: str) -> Callable[[Transaction], None]:
        names.check_name(name)

        def work(txn: Transaction) -> None:
            writer.delete(txn, name, self._now())
            txn.after_commit(self.bell.ring)

        return work

    # Appending

    def append(self, name: str, request: Append) -> Appended:
        return self.database.transact(self._appending(name, request), size=_size(request))

    async def append_async(self, name: str, request: Append) -> Appended:
        return await self.database.transact_async(
            self._appending(name, request), size=_size(request)
        )

    def _appending(self, name: str, request: Append) -> Callable[[Transaction], Appended]:
        names.check_name(name)
        if request.producer is not None:
            check_producer(request.producer)
        if not request.records and not request.close:
            raise InvalidInput("there is nothing to append")

        def work(txn: Transaction) -> Appended:
            done = writer.append(txn, name, request, self._now())
            txn.after_commit(self.bell.ring)
            return done

        return work

    # Reading

    def read(
        self,
        name: str,
        offset: str = names.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        bytes_max: int = limits.STREAM_READ_BYTES,
    ) -> tuple[StreamInfo, Chunk]:
        """The next part of a stream behind an offset."""
        names.check_name(name)
        start = names.read_offset(offset)
        with self.database.read() as snapshot:
            info = writer.living(snapshot, name, self._now())
            found = reader.chunk(
                snapshot, info, start, records_max=records_max, bytes_max=bytes_max
            )
        self.touch(info)
        return info, found

    def state(self, name: str) -> dict[fold.Key, Any]:
        """The newest value of each key of a state stream."""
        names.check_name(name)
        state: dict[fold.Key, Any] = {}
        with self.database.read(deadline_s=float("inf")) as snapshot:
            info = writer.living(snapshot, name, self._now())
            for record in reader.records(snapshot, info, info.first_offset, info.next_offset):
                fold.apply(state, msgspec.json.decode(record.payload))
        self.touch(info)
        return state

    # Time

    def touch(self, info: StreamInfo) -> None:
        """A use of a stream moves its end on, where it has a time to live. This is kept in memory,
        and written down by `sweep` and with the next append.
        """
        if info.ttl_seconds is not None:
            with self._touching:
                self._touched[info.sid] = self.clock() + 1000 * info.ttl_seconds

    def _now(self) -> Moment:
        return Moment(self.clock(), self._touched)

    def sweep(self, limit: int = limits.SWEEP_STREAMS) -> int:
        """Write down the uses of streams, remove those whose time is over, and give up what is not
        retained; how many streams were removed.
        """
        with self._touching:
            touched, self._touched = self._touched, {}
        if touched:
            self.database.transact(lambda txn: txn.execute_many(SQL.touch, list(touched.items())))
        with self.database.read() as snapshot:
            due = [row[0] for row in snapshot.all(SQL.expired, (self.clock(), limit))]
        removed = sum(self.database.transact(self._expiring(name)) for name in due)
        self._retain(limit)
        return removed

    def _expiring(self, name: str) -> Callable[[Transaction], int]:
        def work(txn: Transaction) -> int:
            row = txn.one(SQL.stream_by_name, (name,))
            info = None if row is None else writer.info_of(row)
            if info is None or not writer.is_expired(info, self._now()):
                return 0
            writer.remove(txn, info)
            txn.after_commit(self.bell.ring)
            return 1

        return work

    def _retain(self, limit: int) -> None:
        after = ""
        while True:
            with self.database.read() as snapshot:
                page = [row[0] for row in snapshot.all(SQL.with_retention, (after, limit))]
            for name in page:
                self.database.transact(self._retaining(name))
            if len(page) < limit:
                return
            after = page[-1]

    def _retaining(self, name: str) -> Callable[[Transaction], int]:
        def work(txn: Transaction) -> int:
            info = writer.living(txn, name, self._now())
            horizon = info.first_offset
            if info.retention_seconds is not None:
                oldest = self.clock() - 1000 * info.retention_seconds
                found = txn.value(SQL.older_than, (info.sid, info.first_offset, oldest))
                horizon = info.next_offset if found is None else int(found)
            if info.retention_bytes is not None and info.wal_bytes > info.retention_bytes:
                found = txn.value(SQL.newest_that_fit, (info.sid, info.retention_bytes))
                horizon = max(horizon, 0 if found is None else int(found) + 1)
            return writer.trim(txn, info, horizon)

        return work

    def candidates(self, pending_bytes: int, limit: int = 32) -> tuple[tuple[str, int, int], ...]:
        """Streams with at least so many bytes that are in no segment yet: (name, rows, bytes)."""
        with self.database.read() as snapshot:
            rows = snapshot.all(SQL.candidates, (pending_bytes, limit))
            return tuple((str(row[0]), int(row[1]), int(row[2])) for row in rows)

    def totals(self) -> Totals:
        """How much there is in all."""
        with self.database.read() as snapshot:
            return Totals._make(snapshot.one(SQL.totals) or (0, 0, 0))

    def verify(self) -> Sequence[str]:
        """What contradicts the invariants of the streams; empty when all is well."""
        with self.database.read(deadline_s=float("inf")) as snapshot:
            return verification.problems(snapshot)


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
        with self._streams.bell.heard() as ear:
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


def _check_wanted(wanted: Wanted) -> Wanted:
    names.check_name(wanted.name)
    if wanted.ttl_seconds is not None and wanted.expires_at_ms is not None:
        raise InvalidInput("a stream has a time to live or an end, not both")
    for what, value in (
        ("ttl", wanted.ttl_seconds),
        ("expires_at_ms", wanted.expires_at_ms),
        ("retention_seconds", wanted.retention_seconds),
        ("retention_bytes", wanted.retention_bytes),
    ):
        if value is not None and (
            type(value) is not int or not 0 <= value <= limits.INTEGER_MAX // 1000
        ):
            raise InvalidInput(f"{what} is a number from 0 on, not {value!r:.80}")
    if wanted.fork is not None:
        names.check_name(wanted.fork.source)
    kind = wanted.content_type
    return wanted._replace(content_type=None if kind is None else names.check_content_type(kind))


def _size(request: Append) -> int:
    return sum(map(len, request.records))
