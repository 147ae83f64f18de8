"""The feed over all streams: every record of every stream, in the order of the commits.

    log ──┐
          ├──> by id ──> records of existing streams ──> page, and the cursor after it
    trail ┘

The log has the newest records. Those that have left it are found by their trail: in segments, or
nowhere if retention removed them, which is a gap. Records of deleted streams are left out.

A cursor is a text, `HISTORY-ID`: the id of the last record, and the history it belongs to, since a
restored store uses ids again that later records had. `HISTORY-ID-HORIZON` is a cursor whose reader
knows that records up to the horizon may be missing, such as one that began with the earliest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import reader, rules
from fourfold.models.streams.feed_records import CURSOR, FeedGap, FeedPage, StreamRecord
from fourfold.models.streams.records import ColdRecords, Record, StreamInfo
from fourfold.models.streams.validation import NOW, START, check_storable
from fourfold.models.streams.writer import SQL, StreamClock, info_of, is_expired, with_last_use

FEED_READ_ENTRIES: Final = 5_000
"""Entries of the feed that one read examines; the reader continues from its cursor."""
FEED_READ_RECORDS: Final = 1_000
FEED_READ_BYTES: Final = 4 * limits.MIB
"""Records, and their bytes, that one read returns."""


class _FeedCursor(NamedTuple):
    history: int
    id: int
    horizon: int = 0

    def __str__(self) -> str:
        known = f"-{self.horizon}" if self.horizon > self.id else ""
        return f"{self.history}-{self.id}{known}"


class _RecordRun(NamedTuple):
    """Records of one stream with adjacent ids and offsets."""

    first_id: int
    sid: int
    first_offset: int
    records: int


class _View(NamedTuple):
    """A stream whose records are in the feed."""

    info: StreamInfo
    promote: Callable[[Record], Record]


class FeedReader:
    """One read of the feed, in a read transaction."""

    def __init__(
        self,
        snapshot: ReadTransaction,
        now: StreamClock,
        prefix: str = "",
        cold: ColdRecords | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._prefix = check_storable(prefix)
        self._cold = cold
        self._views: dict[int, _View | None] = {}

    def read(self, after: str | None, records_max: int) -> FeedPage:
        """Return the entries after a cursor; None and `now` are after the newest one."""
        newest, horizon, history = self._snapshot.one(SQL.feed_bounds) or (0, 0, 0)
        cursor = self._resolve(after, newest, history)
        if cursor.id < horizon and cursor.horizon < horizon:
            cursor = cursor._replace(horizon=horizon)
            return FeedPage((FeedGap(str(cursor)),), str(cursor), False)
        items: list[StreamRecord | FeedGap] = []
        size = 0
        for examined, entry in enumerate(self._entries(cursor.id), 1):
            for item in self._items(entry, cursor):
                items.append(item[1])
                cursor = item[0]
                if isinstance(item[1], StreamRecord):
                    size += item[1].record.size
                if len(items) >= records_max or size >= FEED_READ_BYTES:
                    return FeedPage(tuple(items), str(cursor), cursor.id == newest)
            cursor = cursor._replace(id=entry.first_id + entry.records - 1)
            if examined >= FEED_READ_ENTRIES:
                return FeedPage(tuple(items), str(cursor), cursor.id == newest)
        return FeedPage(tuple(items), str(cursor._replace(id=newest)), True)

    def _resolve(self, after: str | None, newest: int, history: int) -> _FeedCursor:
        if after is None or after == NOW:
            return _FeedCursor(history, newest)
        if after == START:
            return _FeedCursor(history, 0, newest)
        match = CURSOR.fullmatch(after)
        assert match is not None
        cursor = _FeedCursor(int(match[1]), int(match[2]), int(match[3] or 0))
        base = self._snapshot.value(SQL.history_base, (cursor.history,))
        reached = cursor.id if base is None else min(cursor.id, base)
        if cursor.history > history or reached > newest:
            raise InvalidInput(
                f"cursor {after!r} is not of this store",
                hint="Use a cursor that the feed of this store returned.",
            )
        return _FeedCursor(history, reached, cursor.horizon)

    def _entries(self, after: int) -> Iterator[_RecordRun]:
        """Yield the entries after an id, in order, of the log and of the trail."""
        trail = (
            entry
            for entry in map(_RecordRun._make, self._snapshot.rows(SQL.feed_trail, (after,)))
            if entry.first_id + entry.records - 1 > after
        )
        log = map(_RecordRun._make, self._snapshot.rows(SQL.feed_log, (after,)))
        return merge(trail, log)

    def _items(
        self, entry: _RecordRun, cursor: _FeedCursor
    ) -> Iterator[tuple[_FeedCursor, StreamRecord | FeedGap]]:
        """Yield the records of an entry, each with the cursor after it, and a gap before them."""
        view = self._view(entry.sid)
        if view is None:
            return
        info = view.info
        skipped = max(0, cursor.id + 1 - entry.first_id)
        first, end = entry.first_offset + skipped, entry.first_offset + entry.records
        kept = min(max(first, info.first_offset), end)
        shift = entry.first_id - entry.first_offset
        if kept > first and kept - 1 + shift > cursor.horizon:
            cursor = cursor._replace(id=kept - 1 + shift)
            yield cursor, FeedGap(str(cursor), info.name, kept - first)
        for record in map(view.promote, self._records(entry, info, kept, end)):
            cursor = cursor._replace(id=record.offset + shift)
            yield (
                cursor,
                StreamRecord(info.name, record, str(cursor), info.incarnation_number),
            )

    def _records(
        self, entry: _RecordRun, info: StreamInfo, start: int, end: int
    ) -> Iterator[Record]:
        if entry.records == 1 and start < end:
            row = self._snapshot.one(SQL.record_by_id, (entry.first_id,))
            if row is not None:
                yield Record._make(row)
                return
        yield from reader.records(self._snapshot, info, start, end, self._cold)

    def _view(self, sid: int) -> _View | None:
        """Return a stream, or None if its records are not in this feed."""
        if sid not in self._views:
            self._views[sid] = self._find_view(sid)
        return self._views[sid]

    def _find_view(self, sid: int) -> _View | None:
        row = self._snapshot.one(SQL.stream_by_sid, (sid,))
        if row is None:
            return None
        info = with_last_use(info_of(row), self._now)
        if info.deleted or not info.name.startswith(self._prefix) or is_expired(info, self._now):
            return None
        return _View(info, rules.make_promote(self._snapshot, info))
