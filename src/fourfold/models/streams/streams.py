"""Streams: append-only logs under names, with idempotent producers, forks and live readers.

    stream = store.streams.create("orders", content_type="application/json")
    stream.append([b'{"id": 1}'])
    for chunk in stream.follow(): ...

An append that returned is on disk. A stream is read by offsets, which are text that sorts; `-1` is
the earliest kept record, `now` the end. Every call that has a name like `..._async` is for
coroutines; appends of coroutines share commits.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, FourfoldError, Refused
from fourfold.kernel import Database, Notifier, Transaction, failpoints
from fourfold.models.streams import (
    expiry,
    feed,
    fold,
    forks,
    json_messages,
    reader,
    rules,
    validation,
    writer,
)
from fourfold.models.streams.append import (
    Append,
    Appender,
    Asked,
    Batch,
    Batches,
    Outcome,
    Tell,
    check,
    settle,
    settle_first,
)
from fourfold.models.streams.archive.status import archived
from fourfold.models.streams.expiry import Uses
from fourfold.models.streams.profiles.profiles import Profiles
from fourfold.models.streams.records import (
    Appended,
    Chunk,
    ColdRecords,
    CreateResult,
    Details,
    RecordFilter,
    StreamInfo,
    Totals,
)
from fourfold.models.streams.schemas.schemas import Schemas
from fourfold.models.streams.settings import Settings
from fourfold.models.streams.settings import change as change_settings
from fourfold.models.streams.settings import check as check_settings
from fourfold.models.streams.stream import Stream
from fourfold.models.streams.subscriptions import Subscriptions
from fourfold.models.streams.touch import Touches
from fourfold.models.streams.verify import problems
from fourfold.models.streams.writer import SQL, Fork, ForkPoint, StreamClock, StreamOptions

Clock = Callable[[], int]
"""Milliseconds since 1970."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Streams:
    """All streams of one store."""

    def __init__(
        self, database: Database, *, clock: Clock = _now_ms, cold: ColdRecords | None = None
    ) -> None:
        self.database = database
        self.clock = clock
        self.cold = cold
        """Reads what is in segments, and no longer in the log."""
        self.settle: Callable[[str], None] | None = None
        """Publishes a stream before the caller who changed it hears of that, if it shall be so."""
        self.unpublished: Callable[[], Mapping[str, FourfoldError]] | None = None
        """Why streams cannot be published, by name, where they are published from here."""
        self.notifier = Notifier()
        self.sweep_failure: FourfoldError | None = None
        """Why the last sweep in the background failed, if it did."""
        self._uses = Uses()
        self.subscriptions = Subscriptions(database, self.moment, self.notifier)
        self.schemas = Schemas(self)
        self.profiles = Profiles(self)
        self.touches = Touches(self)
        self._appender = Appender()
        self._batches = Batches(self._append_all, self._submit)

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
        wanted = StreamOptions(
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

    def make(self, wanted: StreamOptions, body: bytes = b"") -> CreateResult:
        """The same with everything said, and whether the stream is new."""
        work = self._making(wanted, body)
        made = None
        while made is None:
            point = self._measure(wanted)
            made = self.database.transact(partial(work, point), size=len(body))
        if self.settle is not None:
            self.settle(wanted.name)
        return made

    async def make_async(self, wanted: StreamOptions, body: bytes = b"") -> CreateResult:
        work = self._making(wanted, body)
        made = point = None
        while made is None:
            if forks.is_measured(wanted):
                point = await asyncio.to_thread(self._measure, wanted)
            made = await self.database.transact_async(partial(work, point), size=len(body))
        if self.settle is not None:
            await asyncio.to_thread(self.settle, wanted.name)
        return made

    def _making(
        self, wanted: StreamOptions, body: bytes
    ) -> Callable[[ForkPoint | None, Transaction], CreateResult | None]:
        checked = writer.check_wanted(wanted)
        records = []
        if body:
            kind = checked.content_type or "application/octet-stream"
            records = json_messages.split(body, kind, empty_list=True)

        def work(point: ForkPoint | None, txn: Transaction) -> CreateResult | None:
            made = writer.create(txn, checked, records, self.moment(), point)
            self.notifier.notify_on_commit(txn, (checked.name,))
            return made

        return work

    def _measure(self, wanted: StreamOptions) -> ForkPoint | None:
        """Measure a fork before it is made, as an open transaction of this thread sees it."""
        read = self.database.write if self.database.in_transaction() else self.database.read
        try:
            return forks.measure(read, wanted, self.moment)
        except reader.NotInTheLog:
            pass
        return forks.measure(read, wanted, self.moment, self._segments())

    def open(self, name: str) -> Stream:
        """A stream that is there; NotFound when it is not."""
        self.info(name)
        return Stream(self, name)

    def info(self, name: str) -> StreamInfo:
        """What is known of a stream. Looking does not count as a use."""
        validation.check_name(name)
        with self.database.read() as snapshot:
            return writer.living(snapshot, name, self.moment())

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> tuple[StreamInfo, ...]:
        """Streams in the order of their names."""
        now, end = self.moment(), validation.behind(prefix)
        found: builtins.list[StreamInfo] = []
        with self.database.read() as snapshot:
            # Those whose time is over leave room on the page for those behind them.
            while len(found) < limit:
                wanted = limit - len(found)
                rows = snapshot.all(
                    SQL.streams_after, (validation.stored(after), prefix, end, wanted)
                )
                page = [writer.info_of(row) for row in rows]
                found += [each for each in page if not writer.is_expired(each, now)]
                if len(page) < wanted:
                    break
                after = page[-1].name
        return tuple(found)

    def details(self, name: str) -> Details:
        """What is known of a stream, and what is counted of it."""
        validation.check_name(name)
        with self.database.read() as snapshot:
            info = writer.living(snapshot, name, self.moment())
            counted = snapshot.one(SQL.details, (info.sid,)) or ()
            return Details._make((info, *counted, archived(snapshot, name)))

    def delete(self, name: str) -> None:
        """Delete a stream. One that has forks can no longer be used, but they go on reading it.

        The name is free at once, in this and every other thread. What a large stream leaves is
        trimmed in small transactions before this returns; `sweep` goes on if it is interrupted.
        """
        self.database.transact(self._deleting(name))
        if failpoints.armed:
            failpoints.hit("streams.delete.buried")
        self.database.drop_migration_backups()
        if self.settle is not None:
            self.settle(name)
        while self.trim_deleted():
            pass

    async def delete_async(self, name: str) -> None:
        """Delete a stream. What a large one leaves is trimmed by the next sweeps."""
        await self.database.transact_async(self._deleting(name))
        self.database.drop_migration_backups()
        if self.settle is not None:
            await asyncio.to_thread(self.settle, name)

    def _deleting(self, name: str) -> Callable[[Transaction], None]:
        validation.check_name(name)

        def work(txn: Transaction) -> None:
            writer.delete(txn, name, self.moment())
            self.notifier.notify_on_commit(txn, (name,))

        return work

    def configure(self, name: str, settings: Settings) -> StreamInfo:
        """Change the lifetime or the retention of a stream. Return it with its new settings."""
        info = self.database.transact(self._configuring(name, settings))
        if self.settle is not None:
            self.settle(name)
        return info

    async def configure_async(self, name: str, settings: Settings) -> StreamInfo:
        """Change the lifetime or the retention of a stream. Return it with its new settings."""
        info = await self.database.transact_async(self._configuring(name, settings))
        if self.settle is not None:
            await asyncio.to_thread(self.settle, name)
        return info

    def _configuring(self, name: str, settings: Settings) -> Callable[[Transaction], StreamInfo]:
        check_settings(name, settings)

        def work(txn: Transaction) -> StreamInfo:
            info = change_settings(txn, name, settings, self.moment())
            # Live readers look at the stream again, and not only at what is appended to it.
            self.notifier.notify_on_commit(txn, (name,))
            return info

        return work

    # Appending

    def append(self, name: str, request: Append) -> Appended:
        """Append to a stream; it returns when that is on disk."""
        size = self._check(name, request)
        asked = [(name, request)]
        done = self.database.transact(lambda txn: self._append_all(txn, asked), size=size)[0]
        if isinstance(done, FourfoldError):
            raise done
        if self.settle is not None:
            self.settle(name)
        return done

    async def append_async(self, name: str, request: Append) -> Appended:
        """The same for coroutines."""
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.append_soon(name, request, partial(settle, future))
        return await future

    def append_soon(
        self,
        name: str,
        request: Append,
        tell: Tell,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The same for callbacks of a running event loop, which may say which one that is: `tell`
        is called with what came of it, or with the error.
        """
        size = self._check(name, request)
        if self.settle is not None:
            tell = partial(settle_first, self.settle, name, tell)
        self._batches.add(name, request, size, tell, loop or asyncio.get_running_loop())

    def _check(self, name: str, request: Append) -> int:
        if not self._appender.knows(name):
            validation.check_name(name)
        return check(name, request)

    def _append_all(self, txn: Transaction, asked: Sequence[Asked]) -> builtins.list[Outcome]:
        now = self.moment()
        outcomes = self._appender.append(txn, asked, now)
        names = {name for name, _ in asked}
        said = {}
        if self.notifier.has_listeners():
            for name in filter(self.notifier.has_listeners, names):
                sid = self._appender.sid_said(name)
                said[name] = sid and feed.of(asked, outcomes, name, sid, now.ms)
        self.notifier.notify_on_commit(txn, names, said)
        return outcomes

    def _submit(self, batch: Batch) -> asyncio.Future[builtins.list[Outcome]]:
        return asyncio.ensure_future(self.database.transact_async(batch.work, size=batch.size))

    # Reading

    def read(
        self,
        name: str,
        offset: str | int = validation.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        bytes_max: int = limits.STREAM_READ_BYTES,
        sought: RecordFilter | None = None,
    ) -> tuple[StreamInfo, Chunk]:
        """Read the next part of a stream from an offset; with `sought`, of the records with a key.

        A read by key examines a bounded part of the stream: a chunk may have no records and end
        before the stream does. Go on from its `next_offset` until it is `up_to_date`.
        """
        try:
            return self._read(name, offset, records_max, bytes_max, None, sought)
        except reader.NotInTheLog:
            pass
        return self._read(name, offset, records_max, bytes_max, self._segments(), sought)

    async def read_async(
        self,
        name: str,
        offset: str | int = validation.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        sought: RecordFilter | None = None,
    ) -> tuple[StreamInfo, Chunk]:
        """Read the next part of a stream from an offset, as `read` does.

        A few records of the log are read at once; everything else, and every search by a field, in
        another thread, so that the event loop goes on.
        """
        if sought is None or sought.field is None:
            count = min(records_max, limits.STREAM_SHORT_READ_RECORDS)
            size = limits.STREAM_SHORT_READ_BYTES
            with suppress(reader.NotInTheLog):
                info, chunk = self._read(name, offset, count, size, None, sought)
                if chunk.up_to_date or len(chunk.records) == records_max:
                    return info, chunk
        return await asyncio.to_thread(
            self.read, name, offset, records_max=records_max, sought=sought
        )

    def read_log(
        self,
        name: str,
        offset: str | int = validation.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        bytes_max: int = limits.STREAM_READ_BYTES,
    ) -> tuple[StreamInfo, Chunk]:
        """The same if it is in the log; `reader.NotInTheLog` when some of it is in segments."""
        return self._read(name, offset, records_max, bytes_max, None)

    def _read(  # noqa: PLR0917 - a read, and what it may read from
        self,
        name: str,
        offset: str | int,
        records_max: int,
        bytes_max: int,
        cold: ColdRecords | None,
        sought: RecordFilter | None = None,
    ) -> tuple[StreamInfo, Chunk]:
        validation.check_name(name)
        # A search by a field examines many records in Python.
        searches = sought is not None and sought.field is not None
        read = self.database.read_in_background if searches else self.database.read
        with read() as snapshot:
            info = writer.living(snapshot, name, self.moment())
            most: dict[str, Any] = {"records_max": records_max, "bytes_max": bytes_max}
            if sought is None:
                found = reader.chunk(snapshot, info, offset, **most, cold=cold)
            else:
                found = reader.sought_chunk(snapshot, info, offset, sought, **most, cold=cold)
        self.touch(info)
        return info, found

    def _segments(self) -> ColdRecords:
        if self.cold is None:
            raise Refused(
                "some of the records are in segments, and there is no object store to read",
                hint="Open the store with `fourfold.open`: it knows where the objects are.",
            )
        return self.cold

    def page(
        self, name: str, offset: str | int = validation.START, *, records_max: int | None = None
    ) -> tuple[StreamInfo, Chunk]:
        """The same, without the records: `piece` reads them, as many as fit in memory at a time."""
        validation.check_name(name)
        with self.database.read() as snapshot:
            info = writer.living(snapshot, name, self.moment())
            found = reader.page(snapshot, info, offset, records_max)
        self.touch(info)
        return info, found

    def piece(self, info: StreamInfo, start: int, end: int) -> tuple[bytes, int]:
        """Some of the records from `start` up to `end`, joined as a body has them; and the offset
        to go on from.
        """
        try:
            return self.piece_of_log(info, start, end)
        except reader.NotInTheLog:
            pass
        with self.database.read() as snapshot:
            return reader.joined(snapshot, info, start, end, self._segments())

    def piece_of_log(self, info: StreamInfo, start: int, end: int) -> tuple[bytes, int]:
        """The same if it is in the log; `reader.NotInTheLog` when some of it is in segments."""
        with self.database.read() as snapshot:
            return reader.joined(snapshot, info, start, end)

    def state(self, name: str) -> dict[fold.Key, Any]:
        """The newest value of each key of a state stream."""
        validation.check_name(name)
        state: dict[fold.Key, Any] = {}
        with self.database.read(deadline_s=float("inf")) as snapshot:
            info = writer.living(snapshot, name, self.moment())
            ends = info.first_offset, info.next_offset
            found = reader.records(snapshot, info, *ends, self.cold)
            for record in rules.promoted(snapshot, info, found):
                try:
                    fold.apply(state, json_messages.decode(record.payload))
                except msgspec.DecodeError as error:
                    # JSON, but with something that no program reads as a value: 1e400.
                    raise CorruptData(
                        f"record {record.offset} of {name!r} cannot be read: {error}"
                    ) from None
        self.touch(info)
        return state

    # Time

    def touch(self, info: StreamInfo) -> None:
        """A use of a stream moves its end on, where it has a time to live. This is kept in memory,
        and written down by `sweep` and with the next append.
        """
        if info.ttl_seconds is not None:
            self._uses.note(info.sid, self.clock())

    def moment(self) -> StreamClock:
        """Now, as transactions see it."""
        return StreamClock(self.clock(), self._uses.times)

    def sweep(self, limit: int = limits.SWEEP_STREAMS) -> int:
        """Write down the uses of streams, delete those that expired, and trim what is not retained
        and, up to a bound, what deleted streams left; return how many expired.
        """
        self._uses.write_down(self.database)
        removed = expiry.expire(self, limit)
        expiry.retain(self, limit)
        self.trim_deleted()
        self.touches.write_down()
        self.touches.retire(self.clock())
        return removed

    def trim_deleted(self, slices: int = limits.SWEEP_SLICES) -> bool:
        """Trim what deleted streams left, in at most so many transactions; return True while
        there is more.
        """
        return expiry.trim_deleted(self, slices)

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
        with self.database.read_in_background() as snapshot:
            return problems(snapshot)
