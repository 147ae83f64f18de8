"""Streams: append-only logs under names, with idempotent producers, forks and live readers.

    stream = store.streams.create("orders", content_type="application/json")
    stream.append([b'{"id": 1}'])
    for chunk in stream.follow(): ...

An append that returned is on disk. A stream is read by offsets, which are text that sorts; `-1` is
the earliest retained record, `now` the end. Methods named `..._async` are for coroutines; appends
of coroutines share commits.

Inside a transaction of the database (`with streams.database.write()`) writes join it, and reads see
what it wrote; live readers are notified, and rows of deleted streams trimmed, after its commit.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from fourfold import limits
from fourfold.arguments import check_arguments
from fourfold.errors import CorruptData, FourfoldError, InvalidInput, Refused
from fourfold.kernel import Database, Notifier, Transaction, commit_traces, failpoints
from fourfold.models.handle_mapping import HandleMapping
from fourfold.models.streams import (
    expiry,
    feed,
    fold,
    forks,
    json_messages,
    preparation,
    reader,
    rules,
    times,
    validation,
    writer,
)
from fourfold.models.streams import search as searches
from fourfold.models.streams.append import (
    Append,
    Appender,
    OnOutcome,
    Outcome,
    StreamAppend,
    complete,
    publish_first,
)
from fourfold.models.streams.archive.status import archived
from fourfold.models.streams.compaction_result import CompactionResult, check_horizon
from fourfold.models.streams.expiry import Uses
from fourfold.models.streams.feed_records import FeedPage, check_after
from fourfold.models.streams.key_compaction import Compactions
from fourfold.models.streams.listing import parse_filter, scan_streams
from fourfold.models.streams.maintenance import StreamMaintenance
from fourfold.models.streams.profiles.profiles import Profiles
from fourfold.models.streams.record_feed import FEED_READ_RECORDS, FeedReader
from fourfold.models.streams.record_follower import RecordFollower
from fourfold.models.streams.records import (
    AppendResult,
    Chunk,
    ColdRecords,
    CreateResult,
    Details,
    RecordFilter,
    StreamInfo,
)
from fourfold.models.streams.schemas.schemas import Schemas
from fourfold.models.streams.search.request import AggregateRequest, SearchRequest
from fourfold.models.streams.search.results import Aggregates, SearchPage
from fourfold.models.streams.settings import SettingsChange
from fourfold.models.streams.settings import change as change_settings
from fourfold.models.streams.settings import check as check_settings
from fourfold.models.streams.stream import Stream
from fourfold.models.streams.subscriptions import Subscriptions
from fourfold.models.streams.touch import Touches
from fourfold.models.streams.validation import Offset
from fourfold.models.streams.writer import SQL, Fork, ForkPoint, StreamOptions

if TYPE_CHECKING:
    from fourfold.models.streams.archive import Archive
    from fourfold.models.streams.search.tail import TailCache

STREAM_READ_BYTES: Final = 4 * limits.MIB
"""Bytes of one read, unless a single record is larger."""
STREAM_SHORT_READ_BYTES: Final = 256 * limits.KIB
"""Bytes that are read on the thread of an event loop; larger reads use another thread."""

T = TypeVar("T")
Clock = Callable[[], int]
"""Milliseconds since 1970."""


def now_ms() -> int:
    """Return the time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@check_arguments(unchecked={"append_soon", "read_clock", "read_log", "read_joined", "touch"})
class Streams(StreamMaintenance, HandleMapping[str, Stream]):
    """All streams of one store. Iteration yields their names; `name in streams`."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock = now_ms,
        cold: ColdRecords | None = None,
        publish_on_write: Callable[[str], None] | None = None,
        unpublished: Callable[[], Mapping[str, FourfoldError]] | None = None,
        open_archive: Callable[[], Archive] | None = None,
    ) -> None:
        self.database = database
        self.clock = clock
        self.cold = cold
        """Reader of records that are in segments only."""
        self.publish_on_write = publish_on_write
        """Publishes a changed stream before the call returns; None when writes do not wait."""
        self.unpublished = unpublished
        """Returns why streams could not be published, by name; None without an archive."""
        self._open_archive = open_archive
        self.notifier = Notifier()
        self.sweep_failure: FourfoldError | None = None
        """Error of the last background sweep, or None if it succeeded."""
        self._uses = Uses()
        self.subscriptions = Subscriptions(database, self.read_clock, self.notifier)
        self.schemas = Schemas(self)
        self.profiles = Profiles(self)
        self.touches = Touches(self)
        self._costs = preparation.Costs(self._list_schemas)
        self._queues = preparation.Queues(self._prepare)
        self._appender = Appender(self.note_schema)
        self._append_batch = self._append_all
        self._compactions = Compactions(self)

    @property
    def archive(self) -> Archive:
        """Archive that seals the streams into segments and publishes them."""
        if self._open_archive is None:
            raise Refused(
                f"{self.database.path}: these streams have no archive",
                hint="Open the store with `fourfold.open`.",
            )
        return self._open_archive()

    # Streams

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
        """Create a stream, or return the existing one if its settings match.

        Raises:
            AlreadyExists: a stream of that name has other settings.
        """
        options = StreamOptions(
            name,
            content_type,
            ttl,
            expires_at_ms,
            closed,
            fork,
            retention_seconds,
            retention_bytes,
        )
        self.create_with_options(options, body)
        return Stream(self, name)

    def create_with_options(self, options: StreamOptions, body: bytes = b"") -> CreateResult:
        """Create a stream from `options`; `result.created` is False if it existed."""
        work = self._creating(options, body)
        result = None
        while result is None:
            point = self._measure(options)
            result = self.database.transact(partial(work, point), size=len(body))
        if self.publish_on_write is not None:
            self.publish_on_write(options.name)
        return result

    async def create_with_options_async(
        self, options: StreamOptions, body: bytes = b""
    ) -> CreateResult:
        """Create a stream from `options`; `result.created` is False if it existed."""
        work = self._creating(options, body)
        result = point = None
        while result is None:
            if forks.is_measured(options):
                point = await asyncio.to_thread(self._measure, options)
            result = await self.database.transact_async(partial(work, point), size=len(body))
        if self.publish_on_write is not None:
            await asyncio.to_thread(self.publish_on_write, options.name)
        return result

    def _creating(
        self, options: StreamOptions, body: bytes
    ) -> Callable[[ForkPoint | None, Transaction], CreateResult | None]:
        checked = writer.check_options(options)
        self.check_publishable()
        records = []
        if body:
            kind = checked.content_type or "application/octet-stream"
            records = json_messages.split(body, kind, empty_list=True)

        def work(point: ForkPoint | None, txn: Transaction) -> CreateResult | None:
            result = writer.create(txn, checked, records, self.read_clock(), point)
            self.notifier.notify_on_commit(txn, (checked.name,))
            if result is not None and result.created and result.info.schema_version:
                # A fork has the schema of its source.
                self.note_schema(checked.name)
            return result

        return work

    def _measure(self, options: StreamOptions) -> ForkPoint | None:
        """Find the fork point before the write, within an open transaction of this thread."""
        read = self.database.read_current
        try:
            return forks.measure(read, options, self.read_clock)
        except reader.NotInTheLog:
            pass
        return forks.measure(read, options, self.read_clock, self._segments())

    def open(self, name: str) -> Stream:
        """Return a handle of an existing stream.

        Raises:
            NotFound: there is no stream of that name.
        """
        self.info(name)
        return Stream(self, name)

    def info(self, name: str) -> StreamInfo:
        """Return the metadata of a stream, without extending its TTL."""
        validation.check_name(name)
        with self.database.read_current() as snapshot:
            return writer.get_stream(snapshot, name, self.read_clock())

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000, content_type: str = ""
    ) -> tuple[StreamInfo, ...]:
        """Return streams with a name prefix in name order, at most `limit` after `after`.

        With a `content_type`, only streams of it, whatever its parameters.
        """
        wanted = parse_filter(prefix, content_type)
        infos: builtins.list[StreamInfo] = []
        start: str | None = after
        while start is not None and len(infos) < limit:
            left, now = limit - len(infos), self.read_clock()
            with self.database.read_current() as snapshot:
                page = scan_streams(snapshot, wanted, after=start, limit=left, now=now)
            infos += page.infos
            start = page.next_after
        return tuple(infos)

    def details(self, name: str) -> Details:
        """Return the metadata of a stream with its counters and archive status."""
        validation.check_name(name)
        with self.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, name, self.read_clock())
            counts = snapshot.one(SQL.details, (info.sid,)) or ()
            return Details._make((info, *counts, archived(snapshot, name)))

    def delete(self, name: str) -> None:
        """Delete a stream; its forks stay readable.

        The name is free at once, in every thread. The rows of a large stream are trimmed in small
        transactions before this returns; if interrupted, or called inside a transaction, `sweep`
        continues.
        """
        work = self._deleting(name)
        if self.database.in_transaction():
            with self.database.write() as txn:
                work(txn)
                txn.after_acknowledge(self._drop_migration_backups)
            return
        self.database.transact(work)
        if failpoints.armed:
            failpoints.hit("streams.delete.buried")
        self.database.drop_migration_backups()
        if self.publish_on_write is not None:
            self.publish_on_write(name)
        while self.trim_deleted():
            pass

    async def delete_async(self, name: str) -> None:
        """Delete a stream; the next sweeps trim the rows of a large one."""
        await self.database.transact_async(self._deleting(name))
        self.database.drop_migration_backups()
        if self.publish_on_write is not None:
            await asyncio.to_thread(self.publish_on_write, name)

    def _deleting(self, name: str) -> Callable[[Transaction], None]:
        validation.check_name(name)
        self.check_publishable()

        def work(txn: Transaction) -> None:
            writer.delete(txn, name, self.read_clock())
            self.notifier.notify_on_commit(txn, (name,))

        return work

    def _drop_migration_backups(self) -> None:
        self.database.drop_migration_backups()

    def configure(self, name: str, settings: SettingsChange) -> StreamInfo:
        """Change the lifetime or the retention of a stream, and return its new metadata."""
        info = self.database.transact(self._configuring(name, settings))
        if self.publish_on_write is not None:
            self.publish_on_write(name)
        return info

    async def configure_async(self, name: str, settings: SettingsChange) -> StreamInfo:
        """Change the lifetime or the retention of a stream, and return its new metadata."""
        info = await self.database.transact_async(self._configuring(name, settings))
        if self.publish_on_write is not None:
            await asyncio.to_thread(self.publish_on_write, name)
        return info

    def _configuring(
        self, name: str, settings: SettingsChange
    ) -> Callable[[Transaction], StreamInfo]:
        check_settings(name, settings)
        self.check_publishable()

        def work(txn: Transaction) -> StreamInfo:
            info = change_settings(txn, name, settings, self.read_clock())
            # Wake live readers so that they read the new settings, not only new records.
            self.notifier.notify_on_commit(txn, (name,))
            return info

        return work

    def check_publishable(self) -> None:
        """Raise Refused if a change could not be published before its call returns."""
        if self.publish_on_write is not None and self.database.in_transaction():
            raise Refused(
                "streams: cannot publish a change inside a transaction",
                hint="Leave the transaction first, or set archive.acknowledge to committed.",
            )

    # Appending

    def append(self, name: str, request: Append) -> AppendResult:
        """Append to a stream; return once the records are on disk."""
        size = self._appender.check(name, request)
        self.check_publishable()
        if self._costs.get(name) * size > limits.SCHEMA_INLINE_CHECKS:
            request = self._prepare(name, request)
        appends = [(name, request)]
        outcome = self.database.transact(lambda txn: self._append_all(txn, appends), size=size)[0]
        if isinstance(outcome, FourfoldError):
            raise outcome
        if self.publish_on_write is not None:
            self.publish_on_write(name)
        return outcome

    async def append_async(self, name: str, request: Append) -> AppendResult:
        """Append to a stream; return once the records are on disk."""
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.append_soon(name, request, partial(complete, future))
        return await future

    def append_soon(
        self,
        name: str,
        request: Append,
        on_outcome: OnOutcome,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Append to a stream and call `on_outcome` with the result or the error.

        The callback variant of `append_async`. `loop` defaults to the running event loop. An append
        that cannot be queued raises its error instead.
        """
        size = self._appender.check(name, request)
        if self.publish_on_write is not None:
            self.check_publishable()
            on_outcome = partial(publish_first, self.publish_on_write, name, on_outcome)
        loop = loop or asyncio.get_running_loop()
        cost = self._costs.get(name)
        if cost and (cost * size > limits.SCHEMA_INLINE_CHECKS or self._queues.has(loop, name)):
            add = partial(self._add_prepared, name, size, on_outcome, loop)
            self._queues.add(loop, name, request, commit_traces.in_context(add))
        else:
            transact = self.database.transact_batched
            transact(self._append_batch, (name, request), on_outcome, loop, size)

    def _add_prepared(
        self,
        name: str,
        size: int,
        on_outcome: OnOutcome,
        loop: asyncio.AbstractEventLoop,
        request: Append | FourfoldError,
    ) -> None:
        try:
            if isinstance(request, FourfoldError):
                raise request
            transact = self.database.transact_batched
            transact(self._append_batch, (name, request), on_outcome, loop, size)
        except FourfoldError as error:
            on_outcome(error)

    def _prepare(self, name: str, request: Append) -> Append:
        """Validate the records of an append before its transaction."""
        with self.database.read_current() as snapshot:
            info = writer.find(snapshot, name, self.read_clock())
            stream_rules = None if info is None else rules.find(snapshot, info)
        if stream_rules is not None and request.records:
            result = preparation.prepare(
                stream_rules, request.records, self.clock(), request.routing_key
            )
            request = request._replace(prepared=result)
            self._costs.set(name, stream_rules.cost)
        return request

    def note_schema(self, name: str) -> None:
        """Note that the schema of a stream may have changed: its next append is prepared."""
        self._costs.set(name, preparation.UNKNOWN)

    def _list_schemas(self) -> builtins.list[str]:
        with self.database.read_current() as snapshot:
            return [row[0] for row in snapshot.rows(rules.SQL.streams_with_schemas)]

    def _append_all(
        self, txn: Transaction, appends: Sequence[StreamAppend]
    ) -> builtins.list[Outcome]:
        now = self.read_clock()
        outcomes = self._appender.append(txn, appends, now)
        names = {name for name, _ in appends}
        notices = {}
        if self.notifier.has_listeners():
            for name in filter(self.notifier.has_listeners, names):
                place = self._appender.notice_place(name)
                notices[name] = place and feed.make_notice(appends, outcomes, name, *place)
        self.notifier.notify_on_commit(txn, names, notices)
        return outcomes

    # Reading

    def read(
        self,
        name: str,
        offset: str | int = validation.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        bytes_max: int = STREAM_READ_BYTES,
        sought: RecordFilter | None = None,
    ) -> tuple[StreamInfo, Chunk]:
        """Return the next chunk of a stream from an offset; `sought` selects records by key.

        A read by key examines a bounded part of the stream: a chunk may have no records and end
        before the stream does. Continue from its `offset` until it is `up_to_date`.
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
        """Return the next chunk of a stream from an offset, without blocking the event loop.

        A few records of the log are read directly; longer reads and searches in messages run in
        another thread.
        """
        if sought is None or not sought.decodes_messages:
            count = min(records_max, limits.STREAM_SHORT_READ_RECORDS)
            size = STREAM_SHORT_READ_BYTES
            with suppress(reader.NotInTheLog):
                info, chunk = self._read(name, offset, count, size, None, sought)
                if chunk.up_to_date or len(chunk.records) == records_max:
                    return info, chunk
        return await asyncio.to_thread(self._read_paced, name, offset, records_max, sought)

    def _read_paced(
        self, name: str, offset: str | int, records_max: int, sought: RecordFilter | None
    ) -> tuple[StreamInfo, Chunk]:
        """Return a long chunk, read in short steps while other threads write."""
        bounds = (records_max, STREAM_READ_BYTES)
        try:
            return self._read(name, offset, *bounds, None, sought, paced=True)
        except reader.NotInTheLog:
            pass
        return self._read(name, offset, *bounds, self._segments(), sought, paced=True)

    def offset_since(self, name: str, since: times.Time) -> Offset:
        """Return the offset of the first record at or after a time; the end if there is none.

        `since` is a datetime, ISO 8601 text, or milliseconds since 1970.
        """
        with suppress(reader.NotInTheLog):
            return self._offset_since(name, since, None)
        return self._offset_since(name, since, self._segments())

    async def offset_since_async(self, name: str, since: times.Time) -> Offset:
        """Return the offset of the first record at or after a time; the end if there is none.

        `since` is a datetime, ISO 8601 text, or milliseconds since 1970.
        """
        with suppress(reader.NotInTheLog):
            return self._offset_since(name, since, None)
        return await asyncio.to_thread(self.offset_since, name, since)

    def _offset_since(self, name: str, since: times.Time, cold: ColdRecords | None) -> Offset:
        since_ms = times.parse_time_ms(since)
        with self.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, validation.check_name(name), self.read_clock())
            record = times.find_offset(snapshot, info, since_ms, cold)
        return Offset(record, info.incarnation_number)

    async def routing_keys_async(self, name: str, chunk: Chunk) -> dict[int, bytes]:
        """Return the routing keys of the records of a chunk by offset, where they have one."""
        read = partial(reader.find_routing_keys, self.database, self.read_clock(), name, chunk)
        with suppress(reader.NotInTheLog):
            return read(None)
        return await asyncio.to_thread(read, self._segments())

    def read_log(
        self,
        name: str,
        offset: str | int = validation.START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        bytes_max: int = STREAM_READ_BYTES,
    ) -> tuple[StreamInfo, Chunk]:
        """Return the next chunk of a stream from an offset, from the log only.

        Raises:
            reader.NotInTheLog: some of the records are in segments.
        """
        return self._read(name, offset, records_max, bytes_max, None)

    def _read(  # noqa: PLR0917 - a read, and what it may read from
        self,
        name: str,
        offset: str | int,
        records_max: int,
        bytes_max: int,
        cold: ColdRecords | None,
        sought: RecordFilter | None = None,
        *,
        paced: bool = False,
    ) -> tuple[StreamInfo, Chunk]:
        validation.check_name(name)
        is_long = paced or (sought is not None and sought.decodes_messages)
        in_background = is_long and not self.database.in_transaction()
        read = self.database.read_in_background if in_background else self.database.read_current
        with read() as snapshot:
            info = writer.get_stream(snapshot, name, self.read_clock())
            bounds: dict[str, Any] = {"records_max": records_max, "bytes_max": bytes_max}
            if sought is None:
                chunk = reader.read_chunk(snapshot, info, offset, **bounds, cold=cold)
            else:
                chunk = reader.read_matching(snapshot, info, offset, sought, **bounds, cold=cold)
        self.touch(info)
        return info, chunk

    def _segments(self) -> ColdRecords:
        if self.cold is None:
            raise Refused(
                "cannot read records in segments without an object store",
                hint="Open the store with `fourfold.open`, which connects the object store.",
            )
        return self.cold

    def page(
        self, name: str, offset: str | int = validation.START, *, records_max: int | None = None
    ) -> tuple[StreamInfo, Chunk]:
        """Return the bounds of the next chunk without its records; `read_joined` reads them."""
        validation.check_name(name)
        with self.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, name, self.read_clock())
            chunk = reader.plan_chunk(snapshot, info, offset, records_max)
        self.touch(info)
        return info, chunk

    def read_joined(self, info: StreamInfo, start: int, end: int) -> tuple[bytes, int]:
        """Return records from `start` on, joined as a response body, and the next offset.

        As many records as fit in memory are read, and none from `end` on.
        """
        try:
            return self.read_joined_from_log(info, start, end)
        except reader.NotInTheLog:
            pass
        with self.database.read_current() as snapshot:
            return reader.read_joined(snapshot, info, start, end, self._segments())

    def read_joined_from_log(self, info: StreamInfo, start: int, end: int) -> tuple[bytes, int]:
        """Return records from `start` on as `read_joined` does, from the log only.

        Raises:
            reader.NotInTheLog: some of the records are in segments.
        """
        with self.database.read_current() as snapshot:
            return reader.read_joined(snapshot, info, start, end)

    def read_feed(
        self, after: str | None = None, *, prefix: str = "", limit: int = FEED_READ_RECORDS
    ) -> FeedPage:
        """Return the next records of all streams after a cursor, in the order of their commits.

        A page may be empty and end before the feed does: continue from its `cursor` until it is
        `up_to_date`. Reading the feed does not extend the TTL of a stream.

        Args:
            after: A cursor of the feed; `-1` is before the earliest record, None after the newest.
            prefix: Only streams whose names have this prefix.
            limit: Maximum number of records.
        """
        checked = check_after(after)
        with self.database.read_current() as snapshot:
            feed_reader = FeedReader(snapshot, self.read_clock(), prefix, self.cold)
            return feed_reader.read(checked, limit)

    def follow(
        self, *, prefix: str = "", after: str | None = None, timeout: float | None = None
    ) -> RecordFollower:
        """Iterate over the records of all streams and wait for more, with `for` or `async for`.

            for item in store.streams.follow(prefix="orders/", after=cursor):
                print(item.stream, item.record.value)
                cursor = item.cursor

        Records come in the order of their commits, each once, also across restarts: store the
        cursor with what you made of the records.

        Args:
            prefix: Only streams whose names have this prefix.
            after: A cursor; `-1` is before the earliest record, None after the newest one.
            timeout: End after this many seconds without a record.

        Raises:
            HistoryTruncated: records after the cursor were removed; `details["cursor"]` is where
                to continue.
        """
        return RecordFollower(self, prefix, after, timeout)

    def state(self, name: str) -> dict[fold.Key, Any]:
        """Return the newest value of each key of a state stream."""
        validation.check_name(name)
        state: dict[fold.Key, Any] = {}
        with self.database.read_current(deadline_s=float("inf")) as snapshot:
            info = writer.get_stream(snapshot, name, self.read_clock())
            ends = info.first_offset, info.next_offset
            stored = reader.records(snapshot, info, *ends, self.cold)
            for record in rules.promote_records(snapshot, info, stored):
                try:
                    fold.apply(state, json_messages.decode(record.payload))
                except msgspec.DecodeError as error:
                    # Valid JSON with a number that no decoder can represent, such as 1e400.
                    raise CorruptData(
                        f"stream {name!r}: cannot decode record {record.offset}: {error}"
                    ) from None
        self.touch(info)
        return state

    def compact(
        self,
        name: str,
        horizon: str | int | None = None,
        *,
        since: times.Time | None = None,
        timeout_s: float | None = None,
    ) -> CompactionResult:
        """Remove the history of a state stream before a horizon; see `Stream.compact`."""
        expiry.check_not_in_transaction(self.database)
        check_horizon(horizon, since)
        at = horizon if since is None else self.offset_since(name, since)
        work = self._compactions.open(name, at)
        try:
            result = work.run(timeout_s)
        except reader.NotInTheLog:
            self._segments()
            raise
        if not result.complete:
            self._compactions.keep(work)
        if self.publish_on_write is not None:
            self.publish_on_write(name)
        return result

    # Searching

    def search(self, name: str, request: SearchRequest) -> SearchPage:
        """Return a page of the messages of a JSON stream that match a request."""
        return self._ask(name, searches.search, request)

    def aggregate(self, name: str, request: AggregateRequest) -> Aggregates:
        """Return groups of the messages of a JSON stream that match a request."""
        return self._ask(name, searches.aggregate, request)

    @cached_property
    def _tails(self) -> TailCache:
        return searches.TailCache()

    def _ask(self, name: str, work: Callable[..., T], request: Any) -> T:
        validation.check_name(name)
        in_transaction = self.database.in_transaction()
        read = self.database.read_current if in_transaction else self.database.read_in_background
        # What a transaction has appended may still be rolled back.
        tails = None if in_transaction else self._tails
        try:
            with read() as snapshot:
                info = writer.get_stream(snapshot, name, self.read_clock())
                if not info.is_json:
                    raise InvalidInput(
                        f"stream {name!r}: a search requires JSON, got {info.content_type}",
                        hint="Create the stream with the content type application/json.",
                    )
                result = work(snapshot, info, self.cold, request, tails)
        except reader.NotInTheLog:
            self._segments()
            raise
        self.touch(info)
        return result

    # Time

    def touch(self, info: StreamInfo) -> None:
        """Extend the TTL of a stream, if it has one.

        Buffered in memory; written by `sweep` and by the next append.
        """
        if info.ttl_seconds is not None:
            self._uses.record(info.sid, self.clock())

    _describe = info

    def _names(self, after: str | None) -> Sequence[str]:
        return [info.name for info in self.list(after=after or "")]

    def __repr__(self) -> str:
        return f"<Streams in {self.database.path}>"
