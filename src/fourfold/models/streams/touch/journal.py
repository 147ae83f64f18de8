"""Journals of touch streams: the last change of each key, back to the oldest waiting cursor.

A journal is built from the records of a stream, from an offset on, and advances as the stream
grows: each change is processed once, however many waiters there are. When it has too many keys it
evicts the oldest, and then covers fewer cursors. It can always be rebuilt.

`JournalScan` checks a stream for a wait: it advances the journal, or builds one from the cursor of
the wait.

A check covers everything that was committed when it began, or requests another check. If the cursor
belongs to another stream or is too old, the result is `stale`: everything counts as changed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from fourfold import limits
from fourfold.cache import LruCache
from fourfold.errors import FourfoldError, InvalidInput, NotFound
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import reader, rules, writer
from fourfold.models.streams.records import ColdRecords, Record, StreamInfo
from fourfold.models.streams.touch import keys, templates
from fourfold.models.streams.touch.keys import ComparedRow, Mark, TouchCursor
from fourfold.models.streams.touch.records import ActiveTemplate
from fourfold.models.streams.touch.waiters import Wait, WaitCheck, WaiterRegistry

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams

TOUCH_BACK_RECORDS: Final = 10_000
TOUCH_BACK_BYTES: Final = 16 * limits.MIB
"""Maximum lag of a cursor for which changes are scanned; beyond it everything counts as
changed. Also the limit of one scan.
"""
TOUCH_LOOP_RECORDS: Final = 256
TOUCH_LOOP_BYTES: Final = 256 * limits.KIB
"""Records, and their bytes, that one scan reads on an event loop."""
TOUCH_MARKS_MAX: Final = 32_768
"""Keys in the journal of a stream; then the older half is evicted."""
TOUCH_JOURNALS_MAX: Final = 128
"""Streams with a journal. One without waiters is rebuilt on demand."""


class Reach(NamedTuple):
    """Maximum records and bytes of one read."""

    records: int
    bytes: int


class Journal:
    """The last changes of one stream, from the offset `floor` up to `reached`."""

    def __init__(self, sid: int, start: int) -> None:
        self.sid = sid
        self.floor = start
        self.reached = start
        self._everything = 0
        """Offset after the last record that touched everything."""
        self._marks: dict[Mark, int] = {}
        """Offset after the last record that touched each mark."""
        self._since: dict[str, int] = {}
        """Offset from which each template was matched."""
        self._by_entity: dict[str, list[ComparedRow]] = {}
        self._fresh: set[Mark] | None = set()
        """Marks touched since the last report; None is everything."""
        self._reported = start

    def set_templates(self, templates: Mapping[str, ActiveTemplate]) -> None:
        """Match changes against these templates from here on."""
        if templates.keys() == self._since.keys():
            return
        self._since = {key: self._since.get(key, self.reached) for key in templates}
        self._by_entity = {}
        for template in templates.values():
            compared = ComparedRow(template.id, tuple(template.fields))
            self._by_entity.setdefault(template.entity, []).append(compared)

    def covers(self, offset: int, template_ids: Collection[str]) -> bool:
        """Return True if it covers changes of these templates since an offset, once advanced."""
        since = self._since
        return self.floor <= offset and all(
            key in since and since[key] <= offset for key in template_ids
        )

    def advance(self, records: Iterable[Record], reach: Reach) -> None:
        """Process the next records within `reach`; at least one."""
        size, last = 0, self.reached + reach.records
        for record in records:
            size += len(record.payload)
            if size > reach.bytes and size > len(record.payload):
                return
            self._process(record)
            if self.reached >= last:
                return

    def _process(self, record: Record) -> None:
        marks = keys.touched_by(record.payload, self._by_entity)
        self.reached = record.offset + 1
        if marks is None:
            # It touches every wait with an earlier cursor, so earlier changes do not matter.
            self._everything = self.reached
            self._marks.clear()
            self.floor, self._since = 0, dict.fromkeys(self._since, 0)
            self._fresh = None
            return
        if self._fresh is not None:
            self._fresh |= marks
        self._marks.update(dict.fromkeys(marks, self.reached))
        if len(self._marks) > TOUCH_MARKS_MAX:
            self._evict_older_half()

    def _evict_older_half(self) -> None:
        middle = sorted(self._marks.values())[len(self._marks) // 2]
        self._marks = {mark: end for mark, end in self._marks.items() if end > middle}
        self.floor = max(self.floor, middle)

    def take_report(self) -> tuple[set[Mark] | None, int] | None:
        """Return the marks touched since the last report, and the offset reached.

        The marks are None if everything was touched; the result is None if nothing was read.
        """
        if self.reached == self._reported:
            return None
        marks, self._fresh, self._reported = self._fresh, set(), self.reached
        return marks, self.reached

    def touched(self, waited: Sequence[Sequence[Mark]], offset: int) -> tuple[int, ...]:
        """Return the indexes of the keys, each given by its marks, that changed since an offset."""
        if self._everything > offset:
            return tuple(range(len(waited)))
        ends = self._marks
        return tuple(
            number
            for number, marks in enumerate(waited)
            if any(ends.get(mark, 0) > offset for mark in marks)
        )


class JournalReader:
    """The journal of one stream, and the lock of the thread that advances it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.journal: Journal | None = None
        self.checked_at_s = float("-inf")
        """Time of the last check of the stream itself, on the monotonic clock."""
        self.stamp: object | None = None
        """Stamp of the waiters taken before that check, if the journal reached the end."""
        self.version: int | None = None
        """Schema version of the stream at that check."""
        self._last: Journal | None = None
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._gates = WeakKeyDictionary()

    def has_all_of(self, sid: int, end: int) -> bool:
        """Return True if the journal belongs to that stream and has reached its end."""
        return self.journal is not None and (self.journal.sid, self.journal.reached) == (sid, end)

    def take_report(self) -> tuple[set[Mark] | None, int] | None:
        """Return what to report to sleeping waiters; of a new journal, that all may be touched."""
        journal = self.journal
        if journal is None:
            return None
        report = journal.take_report()
        if journal is self._last:
            return report
        self._last = journal
        return None, journal.reached

    def gate(self) -> asyncio.Lock:
        """Return the lock of coroutines that need a thread to read.

        One at a time per stream, so that its waiters do not occupy all threads.
        """
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class JournalReaders:
    """The journal readers of streams with waiters, in an LRU cache."""

    def __init__(self) -> None:
        self._readers: LruCache[str, JournalReader] = LruCache(TOUCH_JOURNALS_MAX)
        self._change = threading.Lock()

    def find(self, name: str) -> JournalReader:
        """Return the reader of a stream; a new one is not cached, as the stream may not exist."""
        with self._change:
            return self._readers.get(name) or JournalReader()

    def add(self, name: str, journal_reader: JournalReader) -> None:
        """Cache the reader of a stream."""
        with self._change:
            if self._readers.get(name) is None:
                self._readers.put(name, journal_reader)


_Read = Callable[[int, int], Iterator[Record]]


class NotOnTheLoop(Exception):
    """The check takes too long for an event loop and needs a thread."""


class _TooFarBack(Exception):
    """The changes since the cursor are unknown."""


class _ScanMode(NamedTuple):
    """Mode of a check: batch size, start, and whether it may block."""

    reach: Reach
    cold: ColdRecords | None
    may_block: bool


class JournalScan:
    """Checks the streams of one store for waits."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.readers: Final = JournalReaders()
        self.waiters: Final = WaiterRegistry(streams.notifier, self._advance_journal)

    def get_enabled(self, snapshot: ReadTransaction, name: str) -> StreamInfo:
        """Return a stream with touch enabled, or raise NotFound."""
        info = writer.get_stream(snapshot, name, self._streams.read_clock())
        if not rules.profile_of(snapshot, info).touch_enabled:
            raise NotFound(
                f"stream {name!r}: touch is not enabled",
                hint='Set its profile to {"kind": "state-protocol", "touch": {"enabled": true}}.',
            )
        return info

    def check(self, wait: Wait) -> WaitCheck:
        """Check a wait in a thread."""
        reach = Reach(TOUCH_BACK_RECORDS, TOUCH_BACK_BYTES)
        return self._check(wait, _ScanMode(reach, self._streams.cold, may_block=True))

    def check_on_loop(self, wait: Wait) -> WaitCheck:
        """Check a wait on an event loop, or raise NotOnTheLoop if it needs a thread."""
        reach = Reach(TOUCH_LOOP_RECORDS, TOUCH_LOOP_BYTES)
        return self._check(wait, _ScanMode(reach, None, may_block=False))

    def check_cached(self, wait: Wait) -> WaitCheck | None:
        """Check a wait by the journal alone, or return None if it may not be current."""
        last, journal_reader = wait.last, self.readers.find(wait.name)
        if last is None or not journal_reader.lock.acquire(blocking=False):
            return None
        try:
            journal, at = journal_reader.journal, last.cursor
            if (
                journal is None
                or journal.sid != last.sid
                or not journal.covers(at.offset, wait.template_ids)
                or not self._is_current(wait.name, journal_reader)
            ):
                return None
            touched = journal.touched(last.marks, at.offset)
            reached = journal.reached
            return last._replace(keys=touched, cursor=at._replace(offset=reached), end=reached)
        finally:
            journal_reader.lock.release()

    def _is_current(self, name: str, journal_reader: JournalReader) -> bool:
        """Return True if the journal is current; for a limited time, as not all changes notify."""
        if journal_reader.stamp is None or journal_reader.stamp is not self.waiters.stamp(name):
            return False
        return time.monotonic() - journal_reader.checked_at_s < limits.WATCH_HEARTBEAT_S

    def _check(self, wait: Wait, mode: _ScanMode) -> WaitCheck:
        journal_reader = self.readers.find(wait.name)
        if not journal_reader.lock.acquire(blocking=mode.may_block):
            raise NotOnTheLoop
        try:
            now_s, stamp = time.monotonic(), self.waiters.stamp(wait.name)
            # Begin the read after taking the lock: an earlier one may be older than the journal.
            with self._streams.database.read() as snapshot:
                info = self.get_enabled(snapshot, wait.name)
                active = templates.active(snapshot, wait.name)
                marks = keys.marks_of(wait.keys, active, wait.name)
                self.readers.add(wait.name, journal_reader)
                result = self._changed(snapshot, info, journal_reader, wait, active, marks, mode)
            journal_reader.checked_at_s, journal_reader.version = now_s, info.schema_version
            journal_reader.stamp = (
                stamp if journal_reader.has_all_of(info.sid, info.next_offset) else None
            )
        finally:
            self._report_and_unlock(wait.name, journal_reader)
        self._streams.touch(info)
        return result

    def _report_and_unlock(self, name: str, journal_reader: JournalReader) -> None:
        """Report what was read to the sleeping waiters, then release the journal."""
        report = journal_reader.take_report()
        if report is not None:
            self.waiters.notify(name, *report)
        journal_reader.lock.release()

    def _advance_journal(self, name: str) -> bool:
        """Advance the journal for sleeping waiters; False if they have to check themselves."""
        journal_reader = self.readers.find(name)
        if not journal_reader.lock.acquire(blocking=False):
            return False
        try:
            now_s, stamp = time.monotonic(), self.waiters.stamp(name)
            with self._streams.database.read() as snapshot:
                info = self.get_enabled(snapshot, name)
                if not _is_near(journal_reader, info):
                    return False
                journal = journal_reader.journal
                assert journal is not None
                journal.set_templates(templates.active(snapshot, name))
                new = reader.records(snapshot, info, journal.reached, info.next_offset)
                journal.advance(new, Reach(TOUCH_LOOP_RECORDS, TOUCH_LOOP_BYTES))
            if not journal_reader.has_all_of(info.sid, info.next_offset):
                return False
            journal_reader.checked_at_s, journal_reader.stamp = now_s, stamp
        except (FourfoldError, reader.NotInTheLog):
            return False
        else:
            return True
        finally:
            self._report_and_unlock(name, journal_reader)

    def _changed(  # noqa: PLR0917 - a stream and a wait
        self,
        snapshot: ReadTransaction,
        info: StreamInfo,
        journal_reader: JournalReader,
        wait: Wait,
        active: Mapping[str, ActiveTemplate],
        marks: tuple[tuple[int, ...], ...],
        mode: _ScanMode,
    ) -> WaitCheck:
        end = info.next_offset
        at = wait.at or TouchCursor(info.incarnation, end)
        read: _Read = partial(reader.records, snapshot, info, cold=mode.cold)
        try:
            _check_cursor(snapshot, info, at)
            journal = _covering_journal(journal_reader, info, at.offset, wait, active, read, mode)
        except _TooFarBack:
            everything = tuple(range(len(marks)))
            return WaitCheck(
                everything,
                stale=True,
                cursor=TouchCursor(info.incarnation, end),
                end=end,
                sid=info.sid,
                marks=marks,
            )
        touched = journal.touched(marks, at.offset)
        reached = at._replace(offset=max(at.offset, journal.reached))
        return WaitCheck(touched, stale=False, cursor=reached, end=end, sid=info.sid, marks=marks)


def _is_near(journal_reader: JournalReader, info: StreamInfo) -> bool:
    """Return True if the journal belongs to the current stream and lags only a little."""
    journal = journal_reader.journal
    return (
        journal is not None
        and journal.sid == info.sid
        and journal_reader.version == info.schema_version
        and info.first_offset <= journal.reached
        and info.next_offset - journal.reached <= TOUCH_LOOP_RECORDS
    )


def _check_cursor(snapshot: ReadTransaction, info: StreamInfo, at: TouchCursor) -> None:
    if at.incarnation != info.incarnation or at.offset < info.first_offset:
        raise _TooFarBack
    if info.schema_version and at.offset < rules.begin_of_version(snapshot, info):
        # Messages of earlier schema versions have other fields than the waits.
        raise _TooFarBack
    if at.offset > info.next_offset:
        raise InvalidInput(
            f"stream {info.name!r}: cursor {at} is after the end {info.next_offset}",
            hint="Use a cursor that a wait on this stream returned.",
        )


def _covering_journal(  # noqa: PLR0917 - a stream and a wait
    journal_reader: JournalReader,
    info: StreamInfo,
    offset: int,
    wait: Wait,
    active: Mapping[str, ActiveTemplate],
    read: _Read,
    mode: _ScanMode,
) -> Journal:
    """Return a journal that covers an offset, advanced as far as the mode allows."""
    end, journal = info.next_offset, journal_reader.journal
    if journal is not None and journal.sid == info.sid:
        journal.set_templates(active)
        if _advances_to(journal, info, offset, wait, read, mode):
            return journal
    if end - offset > TOUCH_BACK_RECORDS:
        raise _TooFarBack
    journal = Journal(info.sid, offset)
    journal.set_templates(active)
    try:
        journal.advance(read(offset, end), mode.reach)
    except reader.NotInTheLog:
        raise _unreachable(mode) from None
    if journal.reached < end:
        raise _unreachable(mode)
    journal_reader.journal = journal
    if journal.floor > offset:
        # It had more keys than the limit and evicted some of them.
        raise _TooFarBack
    return journal


def _advances_to(  # noqa: PLR0917 - a stream and a wait
    journal: Journal, info: StreamInfo, offset: int, wait: Wait, read: _Read, mode: _ScanMode
) -> bool:
    """Advance a journal as far as the mode allows; return True if it covers an offset."""
    end = info.next_offset
    if not journal.covers(offset, wait.template_ids):
        return False
    if journal.reached < info.first_offset or end - journal.reached > TOUCH_BACK_RECORDS:
        # Trimmed records cannot be read, and a long read would take too long.
        return False
    try:
        journal.advance(read(journal.reached, end), mode.reach)
    except reader.NotInTheLog:
        # The records after the offset may still be in the log.
        return False
    return journal.floor <= offset


def _unreachable(mode: _ScanMode) -> Exception:
    """Return the error of a check that cannot be answered in this mode."""
    return _TooFarBack() if mode.may_block else NotOnTheLoop()
