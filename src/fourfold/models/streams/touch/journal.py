"""When which keys of a stream changed last, as far back as somebody asked.

A journal is made from the records of a stream, from an offset on, and reads on as the stream grows:
each change is looked at once, however many wait. It forgets what is oldest when it has too many
keys, and then answers for fewer cursors. It can always be made again.

Looking at a stream for those who wait: its journal reads on, or is made from where they are.

Everything that was committed when a look began is seen by it, or by the next one, which it then
asks for. What cannot be told, because the cursor is of another stream or from too far back, is
`stale`: everything counts as changed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound
from fourfold.kernel import ReadTransaction
from fourfold.models.streams import reader, rules, writer
from fourfold.models.streams.records import ColdRecords, Record, StreamInfo
from fourfold.models.streams.touch import keys, templates
from fourfold.models.streams.touch.keys import ComparedRow, Cursor, Mark
from fourfold.models.streams.touch.records import ActiveTemplate
from fourfold.models.streams.touch.waiters import Wait, WaitCheck, WaiterRegistry

if TYPE_CHECKING:
    from fourfold.models.streams.streams import Streams


class Reach(NamedTuple):
    """How much is read in one go."""

    records: int
    bytes: int


class Journal:
    """The last changes of one stream, from the offset `floor` up to `reached`."""

    def __init__(self, sid: int, start: int) -> None:
        self.sid = sid
        self.floor = start
        self.reached = start
        self._everything = 0
        """Behind the last record that touched everything."""
        self._marks: dict[Mark, int] = {}
        """Behind the last record that touched a mark."""
        self._since: dict[str, int] = {}
        """From which offset on changes were held against a template."""
        self._by_entity: dict[str, list[ComparedRow]] = {}
        self._fresh: set[Mark] | None = set()
        """What was touched since somebody was told; None is everything."""
        self._told = start

    def hold_against(self, templates: Mapping[str, ActiveTemplate]) -> None:
        """From here on, hold changes against these templates and no others."""
        if templates.keys() == self._since.keys():
            return
        self._since = {each: self._since.get(each, self.reached) for each in templates}
        self._by_entity = {}
        for each in templates.values():
            compared = ComparedRow(each.id, tuple(each.fields))
            self._by_entity.setdefault(each.entity, []).append(compared)

    def covers(self, offset: int, template_ids: Collection[str]) -> bool:
        """Whether it knows, or will when it has read on, what of these changed since an offset."""
        since = self._since
        return self.floor <= offset and all(
            each in since and since[each] <= offset for each in template_ids
        )

    def read_on(self, records: Iterable[Record], reach: Reach) -> None:
        """Look at the next records, as many as are within reach; at least one."""
        held, last = 0, self.reached + reach.records
        for record in records:
            held += len(record.payload)
            if held > reach.bytes and held > len(record.payload):
                return
            self._take(record)
            if self.reached >= last:
                return

    def _take(self, record: Record) -> None:
        marks = keys.touched_by(record.payload, self._by_entity)
        self.reached = record.offset + 1
        if marks is None:
            # Whoever asks from before this is touched by it, however far back, and nobody else by
            # what was before.
            self._everything = self.reached
            self._marks.clear()
            self.floor, self._since = 0, dict.fromkeys(self._since, 0)
            self._fresh = None
            return
        if self._fresh is not None:
            self._fresh |= marks
        self._marks.update(dict.fromkeys(marks, self.reached))
        if len(self._marks) > limits.TOUCH_MARKS_MAX:
            self._forget_older_half()

    def _forget_older_half(self) -> None:
        middle = sorted(self._marks.values())[len(self._marks) // 2]
        self._marks = {mark: behind for mark, behind in self._marks.items() if behind > middle}
        self.floor = max(self.floor, middle)

    def news(self) -> tuple[set[Mark] | None, int] | None:
        """What was touched since this was last asked, None for everything, and up to where; None
        when nothing was read.
        """
        if self.reached == self._told:
            return None
        found, self._fresh, self._told = self._fresh, set(), self.reached
        return found, self.reached

    def touched(self, waited: Sequence[Sequence[Mark]], offset: int) -> tuple[int, ...]:
        """Which of the keys, each given by its marks, changed from an offset on."""
        if self._everything > offset:
            return tuple(range(len(waited)))
        behind = self._marks.get
        return tuple(
            number
            for number, marks in enumerate(waited)
            if any(behind(mark, 0) > offset for mark in marks)
        )


class JournalReader:
    """The place of one stream's journal, at which one reads at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.journal: Journal | None = None
        self.looked_at_s = float("-inf")
        """When the stream itself was last looked at, on the monotonic clock."""
        self.stamp: object | None = None
        """The mark of its rings that was taken before that, if the journal has reached the end."""
        self.version: int | None = None
        """The version of the schema that the stream was at then."""
        self._last: Journal | None = None
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._gates = WeakKeyDictionary()

    def has_all_of(self, sid: int, end: int) -> bool:
        """Whether the journal is of that stream, and has reached its end."""
        return self.journal is not None and (self.journal.sid, self.journal.reached) == (sid, end)

    def news(self) -> tuple[set[Mark] | None, int] | None:
        """What those who sleep have to be told: of another journal, that it may be anything."""
        journal = self.journal
        if journal is None:
            return None
        found = journal.news()
        if journal is self._last:
            return found
        self._last = journal
        return None, journal.reached

    def gate(self) -> asyncio.Lock:
        """For coroutines that would have to go to a thread: one after the other, so that those at
        one stream do not take all threads while they wait for one of them to read.
        """
        return self._gates.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class JournalReaders:
    """The desks of the streams that are waited at; those that were asked for last are kept."""

    def __init__(self) -> None:
        self._desks: OrderedDict[str, JournalReader] = OrderedDict()
        self._change = threading.Lock()

    def find(self, name: str) -> JournalReader:
        """That of a stream. A new one is not kept yet: there may be no such stream."""
        with self._change:
            return self._desks.get(name) or JournalReader()

    def keep(self, name: str, desk: JournalReader) -> None:
        with self._change:
            self._desks.setdefault(name, desk)
            self._desks.move_to_end(name)
            while len(self._desks) > limits.TOUCH_JOURNALS_MAX:
                self._desks.popitem(last=False)


_Read = Callable[[int, int], Iterator[Record]]


class NotOnTheLoop(Exception):
    """It would take too long for an event loop: a thread has to do it."""


class _TooFarBack(Exception):
    """What changed since the cursor cannot be told."""


class _Way(NamedTuple):
    """How a look is done: how much it reads in one go, from where, and whether it may take long."""

    reach: Reach
    cold: ColdRecords | None
    may_take_long: bool


class JournalScan:
    """Looks at the streams of one store."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.desks: Final = JournalReaders()
        self.waiters: Final = WaiterRegistry(streams.notifier, self._scout)

    def enabled(self, snapshot: ReadTransaction, name: str) -> StreamInfo:
        """A stream whose changes can be waited for; NotFound when it is none."""
        info = writer.living(snapshot, name, self._streams.moment())
        if not rules.profile_of(snapshot, info).touch_enabled:
            raise NotFound(
                f"the changes of the stream {name!r} cannot be waited for",
                hint='Set its profile to {"kind": "state-protocol", "touch": {"enabled": true}}.',
            )
        return info

    def look(self, wait: Wait) -> WaitCheck:
        """A look of a thread."""
        reach = Reach(limits.TOUCH_BACK_RECORDS, limits.TOUCH_BACK_BYTES)
        return self._look(wait, _Way(reach, self._streams.cold, may_take_long=True))

    def glance(self, wait: Wait) -> WaitCheck:
        """A look of an event loop; NotOnTheLoop when it needs a thread."""
        reach = Reach(limits.TOUCH_LOOP_RECORDS, limits.TOUCH_LOOP_BYTES)
        return self._look(wait, _Way(reach, None, may_take_long=False))

    def recall(self, wait: Wait) -> WaitCheck | None:
        """What a look would show, when another one has just looked and nothing came since. None
        when only a look can tell.
        """
        last, desk = wait.last, self.desks.find(wait.name)
        if last is None or not desk.lock.acquire(blocking=False):
            return None
        try:
            journal, at = desk.journal, last.cursor
            if (
                journal is None
                or journal.sid != last.sid
                or not journal.covers(at.offset, wait.template_ids)
                or not self._is_current(wait.name, desk)
            ):
                return None
            found = journal.touched(last.marks, at.offset)
            reached = journal.reached
            return last._replace(keys=found, cursor=at._replace(offset=reached), end=reached)
        finally:
            desk.lock.release()

    def _is_current(self, name: str, desk: JournalReader) -> bool:
        """Whether the journal has all that came. Not everything rings, so it counts for a while."""
        if desk.stamp is None or desk.stamp is not self.waiters.stamp(name):
            return False
        return time.monotonic() - desk.looked_at_s < limits.WATCH_HEARTBEAT_S

    def _look(self, wait: Wait, way: _Way) -> WaitCheck:
        desk = self.desks.find(wait.name)
        if not desk.lock.acquire(blocking=way.may_take_long):
            raise NotOnTheLoop
        try:
            now_s, stamp = time.monotonic(), self.waiters.stamp(wait.name)
            # A snapshot from before the lock might be behind what the journal has seen.
            with self._streams.database.read() as snapshot:
                info = self.enabled(snapshot, wait.name)
                found = templates.active(snapshot, wait.name)
                marks = keys.marks_of(wait.keys, found, wait.name)
                self.desks.keep(wait.name, desk)
                looked = self._changed(snapshot, info, desk, wait, found, marks, way)
            desk.looked_at_s, desk.version = now_s, info.schema_version
            desk.stamp = stamp if desk.has_all_of(info.sid, info.next_offset) else None
        finally:
            self._leave(wait.name, desk)
        self._streams.touch(info)
        return looked

    def _leave(self, name: str, desk: JournalReader) -> None:
        """Tell those who sleep what was read, while nobody else reads on."""
        news = desk.news()
        if news is not None:
            self.waiters.tell(name, *news)
        desk.lock.release()

    def _scout(self, name: str) -> bool:
        """Read on for those who sleep; False when they have to look by themselves."""
        desk = self.desks.find(name)
        if not desk.lock.acquire(blocking=False):
            return False
        try:
            now_s, stamp = time.monotonic(), self.waiters.stamp(name)
            with self._streams.database.read() as snapshot:
                info = self.enabled(snapshot, name)
                if not _is_near(desk, info):
                    return False
                journal = desk.journal
                assert journal is not None
                journal.hold_against(templates.active(snapshot, name))
                new = reader.records(snapshot, info, journal.reached, info.next_offset)
                journal.read_on(new, Reach(limits.TOUCH_LOOP_RECORDS, limits.TOUCH_LOOP_BYTES))
            if not desk.has_all_of(info.sid, info.next_offset):
                return False
            desk.looked_at_s, desk.stamp = now_s, stamp
        except (FourfoldError, reader.NotInTheLog):
            return False
        else:
            return True
        finally:
            self._leave(name, desk)

    def _changed(  # noqa: PLR0917 - a stream as it is, and who asks what of it
        self,
        snapshot: ReadTransaction,
        info: StreamInfo,
        desk: JournalReader,
        wait: Wait,
        found: Mapping[str, ActiveTemplate],
        marks: tuple[tuple[int, ...], ...],
        way: _Way,
    ) -> WaitCheck:
        end = info.next_offset
        at = wait.at or Cursor(info.incarnation, end)
        read: _Read = partial(reader.records, snapshot, info, cold=way.cold)
        try:
            _check_place(snapshot, info, at)
            journal = _brought_on(desk, info, at.offset, wait, found, read, way)
        except _TooFarBack:
            everything = tuple(range(len(marks)))
            return WaitCheck(
                everything,
                stale=True,
                cursor=Cursor(info.incarnation, end),
                end=end,
                sid=info.sid,
                marks=marks,
            )
        touched = journal.touched(marks, at.offset)
        reached = at._replace(offset=max(at.offset, journal.reached))
        return WaitCheck(touched, stale=False, cursor=reached, end=end, sid=info.sid, marks=marks)


def _is_near(desk: JournalReader, info: StreamInfo) -> bool:
    """Whether the journal of a desk is of this stream as it is now, and only a little behind."""
    journal = desk.journal
    return (
        journal is not None
        and journal.sid == info.sid
        and desk.version == info.schema_version
        and info.first_offset <= journal.reached
        and info.next_offset - journal.reached <= limits.TOUCH_LOOP_RECORDS
    )


def _check_place(snapshot: ReadTransaction, info: StreamInfo, at: Cursor) -> None:
    if at.incarnation != info.incarnation or at.offset < info.first_offset:
        raise _TooFarBack
    if info.schema_version and at.offset < rules.begin_of_version(snapshot, info):
        # What is stored before that has other fields than those who wait now know.
        raise _TooFarBack
    if at.offset > info.next_offset:
        raise InvalidInput(
            f"the stream {info.name!r} ends at {info.next_offset}, before the cursor {at}",
            hint="Use a cursor that a wait at this stream gave you.",
        )


def _brought_on(  # noqa: PLR0917 - as above
    desk: JournalReader,
    info: StreamInfo,
    offset: int,
    wait: Wait,
    found: Mapping[str, ActiveTemplate],
    read: _Read,
    way: _Way,
) -> Journal:
    """A journal that covers an offset, and has read on as far as is within reach."""
    end, journal = info.next_offset, desk.journal
    if journal is not None and journal.sid == info.sid:
        journal.hold_against(found)
        if _reads_on(journal, info, offset, wait, read, way):
            return journal
    if end - offset > limits.TOUCH_BACK_RECORDS:
        raise _TooFarBack
    journal = Journal(info.sid, offset)
    journal.hold_against(found)
    try:
        journal.read_on(read(offset, end), way.reach)
    except reader.NotInTheLog:
        raise _given_up(way) from None
    if journal.reached < end:
        raise _given_up(way)
    desk.journal = journal
    if journal.floor > offset:
        # There are more keys than it may have, so it had to forget some of what it read.
        raise _TooFarBack
    return journal


def _reads_on(  # noqa: PLR0917 - as above
    journal: Journal, info: StreamInfo, offset: int, wait: Wait, read: _Read, way: _Way
) -> bool:
    """Whether a journal covers an offset when it has read on as far as is within reach."""
    end = info.next_offset
    if not journal.covers(offset, wait.template_ids):
        return False
    if journal.reached < info.first_offset or end - journal.reached > limits.TOUCH_BACK_RECORDS:
        # It would never come on over what retention gave up; nor may it take so long.
        return False
    try:
        journal.read_on(read(journal.reached, end), way.reach)
    except reader.NotInTheLog:
        # What is behind the offset may be there all the same.
        return False
    return journal.floor <= offset


def _given_up(way: _Way) -> Exception:
    """Within the reach of this look there is no answer."""
    return _TooFarBack() if way.may_take_long else NotOnTheLoop()
