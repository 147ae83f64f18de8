"""When which keys of a stream changed last, as far back as somebody asked.

A journal is made from the records of a stream, from an offset on, and reads on as the stream grows:
each change is looked at once, however many wait. It forgets what is oldest when it has too many
keys, and then answers for fewer cursors. It can always be made again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fourfold import limits
from fourfold.models.streams.records import Record
from fourfold.models.streams.touch import changes
from fourfold.models.streams.touch.changes import Compared, Mark
from fourfold.models.streams.touch.records import ActiveTemplate


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
        self._by_entity: dict[str, list[Compared]] = {}
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
            compared = Compared(each.id, tuple(each.fields))
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
        marks = changes.touched_by(record.payload, self._by_entity)
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


class Desk:
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


class Desks:
    """The desks of the streams that are waited at; those that were asked for last are kept."""

    def __init__(self) -> None:
        self._desks: OrderedDict[str, Desk] = OrderedDict()
        self._change = threading.Lock()

    def find(self, name: str) -> Desk:
        """That of a stream. A new one is not kept yet: there may be no such stream."""
        with self._change:
            return self._desks.get(name) or Desk()

    def keep(self, name: str, desk: Desk) -> None:
        with self._change:
            self._desks.setdefault(name, desk)
            self._desks.move_to_end(name)
            while len(self._desks) > limits.TOUCH_JOURNALS_MAX:
                self._desks.popitem(last=False)
