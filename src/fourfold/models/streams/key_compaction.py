"""Compaction by key: truncate the history of a state stream, and keep its state.

    scan ──> copy ──> publish ──> trim

The newest change of each key that is below the horizon is appended once more, at the end of the
stream; then everything below the horizon is trimmed, as retention does it. So offsets stay dense,
segments stay immutable, and a reader below the horizon gets OffsetGone.

Every step is a transaction of its own that leaves the state as it is. A key is copied only if it
did not change meanwhile, and nothing is trimmed before all copies are there; of a published stream,
not before they are published, too. So a compaction may end after any step, and be repeated: keys
that were copied have their newest change above the horizon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.errors import CorruptData, InvalidInput, Refused, StreamClosed, StreamRecreated
from fourfold.kernel import ReadTransaction, Transaction, failpoints
from fourfold.models.streams import fold, json_messages, reader, rules, slices, writer
from fourfold.models.streams.compaction_result import CompactionResult
from fourfold.models.streams.expiry import make_throttle
from fourfold.models.streams.profiles.state import StateProtocol
from fourfold.models.streams.records import ColdRecords, Record, StreamInfo
from fourfold.models.streams.validation import Offset, check_name, parse_offset
from fourfold.models.streams.writer import SQL

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams

SCAN_RECORDS: Final = 2_000
"""Records that one read transaction of a scan examines."""
COPY_RECORDS: Final = 256
"""Keys that one transaction copies."""
COPY_BYTES: Final = limits.MIB
"""Bytes after which a transaction copies no further key."""
COMPACTIONS_HELD: Final = 4
"""Compactions in memory that are not complete; others begin again with a scan."""


class _Copy(NamedTuple):
    key: fold.Key
    record: Record
    routing_key: bytes | None


class KeyCompaction:
    """The compaction of one stream up to a horizon. It can be continued after each `run`."""

    def __init__(self, streams: Streams, info: StreamInfo, horizon: int) -> None:
        self._streams = streams
        self._database = streams.database
        self._name = info.name
        self.sid = info.sid
        self._number = info.incarnation_number
        self.horizon = horizon
        self._schema_version = info.schema_version
        self._scanned = info.first_offset
        """All records before it are accounted for in `_newest`."""
        self._newest: dict[fold.Key, int] = {}
        """Offset of the newest change of each key whose newest one is below the horizon."""
        self._copied = self._removed = 0

    def run(self, timeout_s: float | None) -> CompactionResult:
        """Work until everything is done, or for about `timeout_s` seconds."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        complete = all(end is None or time.monotonic() < end for _ in self._steps())
        with self._database.read() as snapshot:
            first = self._current(snapshot).first_offset
        return CompactionResult(
            complete and not self._is_open(),
            Offset(self.horizon, self._number),
            Offset(first, self._number),
            self._copied,
            self._removed,
        )

    def _is_open(self) -> bool:
        with self._database.read() as snapshot:
            info = self._current(snapshot)
            return _next_trim(snapshot, info, self.horizon) > info.first_offset

    def _steps(self) -> Iterator[None]:
        """Yield after each transaction."""
        if not self._is_open():
            return
        pace = make_throttle(self._database)
        while True:
            while self._scan():
                yield
            if not self._newest:
                break
            copies = self._read()
            with pace.piece():
                self._copied += pace.transact(self._database, partial(self._copy, copies))
            if failpoints.armed:
                failpoints.hit("streams.compact.copied")
            yield
        self._publish()
        while True:
            with pace.piece():
                removed = pace.transact(self._database, self._trim)
            if not removed:
                return
            self._removed += removed
            if failpoints.armed:
                failpoints.hit("streams.compact.trimmed")
            yield

    # Scan

    def _scan(self) -> bool:
        """Examine the next records; return False at the end of the stream."""
        with self._database.read_in_background() as snapshot:
            info = self._current(snapshot)
            if info.schema_version != self._schema_version:
                # Messages are promoted to another version: keys may be different ones.
                self._schema_version = info.schema_version
                self._scanned, self._newest = info.first_offset, {}
            start = max(self._scanned, info.first_offset)
            end = min(info.next_offset, start + SCAN_RECORDS)
            for offset, key, writes in self._changes(
                snapshot, info, start, end, self._streams.cold
            ):
                self._newest.pop(key, None)
                if writes and offset < self.horizon:
                    self._newest[key] = offset
            self._scanned = end
            return start < end

    def _changes(
        self,
        snapshot: ReadTransaction,
        info: StreamInfo,
        start: int,
        end: int,
        cold: ColdRecords | None,
    ) -> Iterator[tuple[int, fold.Key, bool]]:
        """Yield the changes of a range: offset, key, and True if a value is written."""
        stored = reader.records(snapshot, info, start, end, cold)
        for record in rules.promote_records(snapshot, info, stored):
            try:
                change = fold.find_change(json_messages.decode(record.payload))
            except msgspec.DecodeError as error:
                # Its state cannot be read, either.
                raise CorruptData(
                    f"stream {self._name!r}: cannot decode record {record.offset}: {error}"
                ) from None
            if change is not None:
                yield record.offset, *change

    # Copy

    def _read(self) -> list[_Copy]:
        """Return the first keys with their records, as many as one transaction copies."""
        copies: list[_Copy] = []
        size = 0
        with self._database.read_in_background() as snapshot:
            info = self._current(snapshot)
            for key, offset in list(islice(self._newest.items(), COPY_RECORDS)):
                if offset < info.first_offset:
                    # Retention has removed it meanwhile, and its key with it.
                    del self._newest[key]
                    continue
                [(sid, _, _)] = reader.source_ranges(snapshot, info, offset, offset + 1)
                row = snapshot.one(SQL.record_with_key, (sid, offset))
                if row is not None:
                    copy = _Copy(key, Record._make(row[:4]), row[4])
                elif self._streams.cold is None:
                    raise reader.NotInTheLog
                else:
                    [found] = self._streams.cold.keyed_records(snapshot, sid, [offset])
                    copy = _Copy(key, *found)
                copies.append(copy)
                size += len(copy.record.payload)
                if size >= COPY_BYTES:
                    break
        return copies

    def _copy(self, copies: list[_Copy], txn: Transaction) -> int:
        """Append keys once more that did not change meanwhile; return how many.

        It may run again in another transaction, so it changes nothing here.
        """
        info = self._current(txn)
        check_compactable(info)
        same = info.schema_version == self._schema_version
        if not same or info.next_offset - self._scanned > SCAN_RECORDS:
            # Scan first: nothing long happens while others wait.
            return 0
        try:
            changes = self._changes(txn, info, self._scanned, info.next_offset, None)
            changed = {key for _, key, _ in changes}
        except reader.NotInTheLog:
            return 0
        promote = rules.make_promote(txn, info)
        rows = [
            (promote(copy.record).payload, copy.routing_key, copy.record.encoded_headers)
            for copy in copies
            if copy.key not in changed and copy.record.offset >= info.first_offset
        ]
        if rows:
            writer.append_copies(txn, info, rows, self._streams.clock())
            self._streams.notifier.notify_on_commit(txn, (self._name,))
        return len(rows)

    # Publish and trim

    def _publish(self) -> None:
        """Publish the copies before published segments are trimmed.

        Otherwise a node that restores the archive could have neither of them.
        """
        with self._database.read() as snapshot:
            info = self._current(snapshot)
            is_published = snapshot.value(SQL.log_begin, (info.sid,)) > info.first_offset
        if is_published:
            self._streams.archive.settle(self._name, until=self._scanned)
        if failpoints.armed:
            failpoints.hit("streams.compact.published")

    def _trim(self, txn: Transaction) -> int:
        info = self._current(txn)
        check_compactable(info)
        return writer.trim(txn, info, _next_trim(txn, info, self.horizon))

    def _current(self, snapshot: ReadTransaction) -> StreamInfo:
        """Return the stream, if it is still the same one."""
        info = writer.get_stream(snapshot, self._name, self._streams.read_clock())
        if info.sid != self.sid:
            raise StreamRecreated(
                f"stream {self._name!r}: it was deleted and created again during the compaction"
            )
        return info


class Compactions:
    """Compactions that were begun and are not complete, to continue them."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self._begun: LruCache[tuple[int, int], KeyCompaction] = LruCache(COMPACTIONS_HELD)

    def open(self, name: str, horizon: str | int | None) -> KeyCompaction:
        """Begin a compaction of a stream, or continue one with the same horizon.

        Raises:
            InvalidInput: The stream ends before the horizon.
            StreamRecreated: The horizon is an offset of an earlier stream of this name.
        """
        check_name(name)
        with self._streams.database.read_current() as snapshot:
            info = writer.get_stream(snapshot, name, self._streams.read_clock())
            check_compactable(info)
            offset = horizon if type(horizon) is int else parse_offset(str(horizon))
            end = info.next_offset if offset is None else writer.resolve(snapshot, info, offset)
            if not 0 <= end <= info.next_offset:
                raise InvalidInput(
                    f"stream {name!r}: no record {end}, the stream ends at "
                    f"{Offset(info.next_offset, info.incarnation_number)}",
                    hint="Pass an offset that a read of this stream returned.",
                )
            end = max(end, info.first_offset)
        with self._lock:
            # Taken out, so that no other thread continues it, too.
            known = self._begun.pop((info.sid, end))
        return known or KeyCompaction(self._streams, info, end)

    def keep(self, work: KeyCompaction) -> None:
        """Keep a compaction that is not complete, so that `open` continues it."""
        with self._lock:
            self._begun.put((work.sid, work.horizon), work)


def check_compactable(info: StreamInfo) -> None:
    """Raise an error if a stream cannot be compacted by key."""
    if info.profile != StateProtocol.kind:
        raise Refused(
            f"stream {info.name!r}: compaction by key requires the profile "
            f"{StateProtocol.kind!r}, got {info.profile!r}",
            hint="Only a state stream has keys; trim others by retention.",
        )
    if info.closed:
        raise StreamClosed(
            f"stream {info.name!r} is closed: compaction by key appends to it",
            hint="Create a new stream with the state of this one.",
        )
    if info.forks:
        raise Refused(
            f"stream {info.name!r}: cannot remove history that forks read",
            hint="Delete its forks first.",
            details={"forks": info.forks},
        )


def _next_trim(snapshot: ReadTransaction, info: StreamInfo, horizon: int) -> int:
    """Return the offset below which the next transaction trims; the first offset at the end."""
    if horizon <= max(info.first_offset, info.fork_offset or 0):
        return info.first_offset
    through = slices.next_slice(snapshot, info.sid, horizon - 1, limits.ARCHIVE_TRIM_ROWS).through
    return horizon if through is None else through + 1
