"""The change feed: everything that was written, in the order of the log, from a number on.

    for changes in graphs.feed(after=seq):
        ...                              # a page; blocks until there is more

A feed is a number and nothing more: whoever comes back with `after=feed.position` has neither a
hole nor a row twice. A page never cuts what was written under one number. A commit in this process
wakes it at once; those of another process are found by looking again.

With `durable=True`, which is how rows leave the machine, a feed stops at what a power cut cannot
take back; otherwise a number that was shipped could be given to something else.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from operator import add, itemgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.graphs import checks
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import BITS, KINDS, ROWS, Change, Kind, Row
from fourfold.models.graphs.statements import SQL, statements_of

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs


class Page(NamedTuple):
    """What a look at the log gave, and how far it looked."""

    changes: tuple[Change, ...]
    position: int


class Wanted(NamedTuple):
    """What a feed shows: the rows of some apps, of some kinds, with some flags. None is all."""

    apps: frozenset[int] | None = None
    kinds: frozenset[Kind] | None = None
    flag_mask: int | None = None

    @staticmethod
    def of(
        apps: Iterable[int] | None, kinds: Iterable[Kind] | None, flag_mask: int | None
    ) -> Wanted:
        return Wanted(
            None if apps is None else frozenset(checks.integer(each, "app_id") for each in apps),
            None if kinds is None else frozenset(checks.kind(each) for each in kinds),
            None if flag_mask is None else checks.integer(flag_mask, "flag_mask"),
        )

    @property
    def filters(self) -> tuple[int, int | None, str | None]:
        """The same as a statement takes it: bits of the kinds, flags, apps."""
        bits = sum(BITS[kind] for kind in (KINDS if self.kinds is None else self.kinds))
        return bits, self.flag_mask, None if self.apps is None else json.dumps(sorted(self.apps))


class _Table(NamedTuple):
    """A table that has rows in a window of numbers: above which id and up to which they lie, and
    how many envelopes of those that are wanted wrote to it.
    """

    app_id: int
    kind: Kind
    above: int
    last: int
    envelopes: int

    @property
    def rows(self) -> int:
        return self.last - self.above


def page(reader: Reader, wanted: Wanted, after: int, until: int, limit: int) -> Page:
    """The next rows behind `after`: about `limit` of them, and whole numbers only."""
    # A number holds one row or thousands: a few are looked at, to see how many make a page.
    numbers, shrunk = max(1, limit // 4), False
    while True:
        found = reader.value(SQL.feed_end, (after, until, *wanted.filters, numbers - 1))
        # Nothing is left up to the bound: numbers without rows are passed as well.
        end = max(after, until) if found is None else int(found)
        tables = _tables(reader, wanted, after, end)
        rows = sum(_wanted_rows(table, wanted) for table in tables)
        if rows > _OVERFULL * limit and numbers > 1:
            numbers, shrunk = max(1, min(numbers - 1, numbers * limit // rows)), True
        elif 2 * rows < limit and numbers < limit and found is not None and not shrunk:
            numbers = min(limit, numbers * max(2, limit // max(1, rows)))
        else:
            return Page(_in_order(reader, wanted, after, end, tables), end)


_OVERFULL = 2
"""A page may hold so many times what was asked for before it is made smaller."""
_SPARSE = 16
"""Where there are more rows than so many for each envelope that is wanted, those of each envelope
are looked up on their own.
"""


def _tables(reader: Reader, wanted: Wanted, after: int, end: int) -> list[_Table]:
    """Where the rows of a window are. Ids and numbers grow together, so those of one table lie
    between two ids.
    """
    bits = wanted.filters[0]
    envelopes: Counter[tuple[int, Kind]] = Counter()
    wrote = Counter(reader.raw_rows(SQL.feed_tables, (after, end, *wanted.filters)))
    for (app_id, kinds), count in wrote.items():
        for kind in KINDS:
            if kinds & bits & BITS[kind]:
                envelopes[app_id, kind] += count
    return [
        _Table(app_id, kind, *reader.ids_between(app_id, kind, after, end), count)
        for (app_id, kind), count in sorted(envelopes.items())
    ]


def _is_sparse(table: _Table, wanted: Wanted) -> bool:
    return wanted.flag_mask is not None and table.rows > _SPARSE * table.envelopes


def _wanted_rows(table: _Table, wanted: Wanted) -> int:
    return table.envelopes if _is_sparse(table, wanted) else table.rows


_NEW_ROW = {kind: partial(tuple.__new__, row) for kind, row in ROWS.items()}
_SEQ = {kind: itemgetter(row._fields.index("global_seq")) for kind, row in ROWS.items()}
_PLACE = {kind: itemgetter(row._fields.index("position")) for kind, row in ROWS.items()}


def _in_order(
    reader: Reader, wanted: Wanted, after: int, end: int, tables: list[_Table]
) -> tuple[Change, ...]:
    """The rows of several tables as changes, in the order in which they were written. A feed lives
    by this loop, so its steps are calls into C for all rows of a table at once.
    """
    changes: list[Change] = []
    seqs: list[int] = []
    places: list[int] = []
    for table in tables:
        kind = table.kind
        rows = _rows(reader, wanted, after, end, table)
        numbers = list(map(_SEQ[kind], rows))
        changes += map(Change, numbers, repeat(table.app_id), repeat(kind), rows)
        seqs += numbers
        places += map(_PLACE[kind], rows)
    if len(tables) == 1:
        return tuple(changes)
    # One whole number is compared faster than a pair of them.
    keys = map(add, map(mul, seqs, repeat(max(places, default=0) + 1)), places)
    # A list is sorted by one key after another, in its order: `next` hands them out.
    changes.sort(key=partial(next, keys))
    return tuple(changes)


def _rows(reader: Reader, wanted: Wanted, after: int, end: int, table: _Table) -> list[Row]:
    sql, mask = statements_of(table.app_id, table.kind), wanted.flag_mask
    new_row: Callable[[tuple[Any, ...]], Row] = _NEW_ROW[table.kind]
    if mask is None:
        return reader.raw_rows_as(new_row, sql.range_of_ids, (table.above, table.last, -1))
    if _is_sparse(table, wanted):
        return reader.raw_rows_as(new_row, sql.scattered, (after, end, mask))
    return reader.raw_rows_as(new_row, sql.range_with_flags, (table.above, table.last, mask))


class Feed:
    """A place in the log from which one consumer reads on; an iterator of pages, also for
    coroutines.
    """

    def __init__(
        self,
        graphs: Graphs,
        wanted: Wanted,
        *,
        after: int,
        limit: int,
        durable: bool,
        timeout: float | None,
    ) -> None:
        newest = graphs.get_global_seq()
        if checks.integer(after, "after") > newest:
            raise InvalidInput(f"{after} is in the future: the newest number is {newest}")
        self._graphs = graphs
        self._wanted = wanted
        self._limit = checks.integer(limit, "limit", least=1)
        self._durable = durable
        self._timeout = timeout
        self._position = after
        self._closed = False

    @property
    def position(self) -> int:
        """Every change up to this number was handed out: where the next feed goes on."""
        return self._position

    def next(self, timeout: float | None = None) -> tuple[Change, ...]:
        """The next page; empty when nothing came in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            rings = self._graphs.bell.rings
            found = self._look()
            self._position = found.position
            left = self._pause(until)
            if found.changes or left <= 0:
                return found.changes
            self._graphs.bell.wait(rings, left)
        return ()

    async def next_async(self, timeout: float | None = None) -> tuple[Change, ...]:  # noqa: ASYNC109
        """The same for coroutines. One that is cancelled while it waits misses nothing."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._graphs.bell.heard() as ear:
            while not self._closed:
                ear.forget()
                found = await asyncio.to_thread(self._look)
                self._position = found.position
                left = self._pause(until)
                if found.changes or left <= 0:
                    return found.changes
                await ear.wait(left)
        return ()

    def close(self) -> None:
        """End the feed: whoever waits for the next page gets none."""
        self._closed = True
        self._graphs.bell.ring()

    def _look(self) -> Page:
        return self._graphs.page(self._wanted, self._position, self._limit, durable=self._durable)

    def _pause(self, until: float | None) -> float:
        # A writer hears of every commit, but must notice when its database is closed.
        most = limits.WATCH_HEARTBEAT_S if self._graphs.database.writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Change, ...]:
        if found := self.next(self._timeout):
            return found
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Change, ...]:
        if found := await self.next_async(self._timeout):
            return found
        raise StopAsyncIteration
