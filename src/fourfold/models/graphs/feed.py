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
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from operator import add, attrgetter, itemgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fourfold import limits
from fourfold.errors import InvalidInput, Refused
from fourfold.models.graphs import validation
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import BITS, KINDS, ROWS, Change, Kind, Row
from fourfold.models.graphs.statements import SQL, statements_of

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs


class Page(NamedTuple):
    """What a look at the log gave, and how far it looked."""

    changes: tuple[Change, ...]
    position: int


class FeedFilter(NamedTuple):
    """What a feed shows: the rows of some apps, of some kinds, with some flags. None is all."""

    apps: frozenset[int] | None = None
    kinds: frozenset[Kind] | None = None
    flag_mask: int | None = None

    @staticmethod
    def of(
        apps: Iterable[int] | None, kinds: Iterable[Kind] | None, flag_mask: int | None
    ) -> FeedFilter:
        return FeedFilter(
            None
            if apps is None
            else frozenset(validation.check_integer(each, "app_id") for each in apps),
            None if kinds is None else frozenset(validation.check_kind(each) for each in kinds),
            None if flag_mask is None else validation.check_integer(flag_mask, "flag_mask"),
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


class _Window(NamedTuple):
    """A range of numbers, with the tables that have rows in it and about how many are wanted."""

    after: int
    end: int
    tables: list[_Table]
    rows: int


def page(reader: Reader, wanted: FeedFilter, after: int, until: int, limit: int) -> Page:
    """Read the next rows after a number: at most `limit` of them, unless the first number alone
    has more, and whole numbers only. The work is bounded, so the rows may be none although there
    are some further on; at the end of the log, and only there, the position does not move.
    """
    numbers = max(1, limit // 4)
    while True:
        window = _fitting(reader, wanted, (after, until), limit, numbers)
        found = _cut(reader, wanted, window, limit)
        if found.changes or found.position >= until or numbers >= limits.FEED_PAGE_ROWS:
            return found
        after, numbers = found.position, min(4 * numbers, limits.FEED_PAGE_ROWS)


def _fitting(
    reader: Reader, wanted: FeedFilter, between: tuple[int, int], limit: int, numbers: int
) -> _Window:
    """A window of about `limit` rows. A number holds one row or thousands: so many numbers are
    looked at, and then as many as fit by their average.
    """
    window = _window(reader, wanted, *between, numbers)
    rows = max(1, window.rows)
    if 2 * rows < limit and window.end < between[1]:
        return _window(reader, wanted, *between, min(limit, max(numbers, numbers * limit // rows)))
    if rows > 2 * limit:
        narrow = _window(reader, wanted, *between, max(1, numbers * limit // rows))
        # If the numbers are too uneven for that, the rows are cut when they are read.
        return narrow if 2 * narrow.rows >= limit else window
    return window


def _window(reader: Reader, wanted: FeedFilter, after: int, until: int, numbers: int) -> _Window:
    """The range that the next so many envelopes are in which a feed may want."""
    found = reader.value(SQL.feed_end, (after, until, *wanted.filters, numbers - 1))
    # Nothing is left up to the bound: numbers without rows are passed as well.
    end = max(after, until) if found is None else int(found)
    tables = _tables(reader, wanted, after, end)
    return _Window(after, end, tables, sum(_wanted_rows(table, wanted) for table in tables))


def _cut(reader: Reader, wanted: FeedFilter, window: _Window, limit: int) -> Page:
    """Read the rows of a window up to the last number that fits into a page."""
    changes = _in_order(reader, wanted, window, limit + 1)
    if len(changes) <= limit:
        return Page(changes, window.end)
    first, over = changes[0].global_seq, changes[limit].global_seq
    if first == over:
        whole = _Window(first - 1, first, _tables(reader, wanted, first - 1, first), 0)
        return Page(_in_order(reader, wanted, whole, _NO_LIMIT), first)
    fits = bisect_left(changes, over, key=attrgetter("global_seq"))
    return Page(changes[:fits], over - 1)


_NO_LIMIT = -1
_SPARSE = 16
"""Where there are more rows than so many for each envelope that is wanted, those of each envelope
are looked up on their own.
"""


def _tables(reader: Reader, wanted: FeedFilter, after: int, end: int) -> list[_Table]:
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


def _is_sparse(table: _Table, wanted: FeedFilter) -> bool:
    return wanted.flag_mask is not None and table.rows > _SPARSE * table.envelopes


def _wanted_rows(table: _Table, wanted: FeedFilter) -> int:
    return table.envelopes if _is_sparse(table, wanted) else table.rows


_NEW_ROW = {kind: partial(tuple.__new__, row) for kind, row in ROWS.items()}
_SEQ = {kind: itemgetter(row._fields.index("global_seq")) for kind, row in ROWS.items()}
_PLACE = {kind: itemgetter(row._fields.index("position")) for kind, row in ROWS.items()}


def _in_order(
    reader: Reader, wanted: FeedFilter, window: _Window, limit: int
) -> tuple[Change, ...]:
    """The first `limit` rows of each table as changes, in the order in which they were written. A
    feed lives by this loop, so its steps are calls into C for all rows of a table at once.
    """
    tables = window.tables
    changes: list[Change] = []
    seqs: list[int] = []
    places: list[int] = []
    for table in tables:
        kind = table.kind
        rows = _rows(reader, wanted, window, table, limit)
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


def _rows(
    reader: Reader, wanted: FeedFilter, window: _Window, table: _Table, limit: int
) -> list[Row]:
    sql, mask = statements_of(table.app_id, table.kind), wanted.flag_mask
    new_row: Callable[[tuple[Any, ...]], Row] = _NEW_ROW[table.kind]
    if mask is None:
        return reader.raw_rows_as(new_row, sql.range_of_ids, (table.above, table.last, limit))
    if _is_sparse(table, wanted):
        return reader.raw_rows_as(new_row, sql.scattered, (window.after, window.end, mask, limit))
    params = (table.above, table.last, mask, limit)
    return reader.raw_rows_as(new_row, sql.range_with_flags, params)


class Feed:
    """A place in the log from which one consumer reads on; an iterator of pages, also for
    coroutines.
    """

    def __init__(
        self,
        graphs: Graphs,
        wanted: FeedFilter,
        *,
        after: int,
        limit: int,
        durable: bool,
        timeout: float | None,
    ) -> None:
        newest = graphs.get_global_seq()
        if validation.check_integer(after, "after") > newest:
            raise InvalidInput(f"{after} is in the future: the newest number is {newest}")
        self._graphs = graphs
        self._wanted = wanted
        self._limit = validation.check_integer(limit, "limit", least=1)
        self._durable = durable
        self._timeout = timeout
        self._position = after
        self._at_end = False
        self._closed = False

    @property
    def position(self) -> int:
        """Every change up to this number was handed out: where the next feed goes on."""
        return self._position

    def next(self, timeout: float | None = None) -> tuple[Change, ...]:
        """Return the next page, or an empty one if no row came in time. With a timeout of 0 it
        reads to the end of the log, and does not wait there.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            count = self._graphs.notifier.count
            changes = self._look()
            left = self._pause(until)
            if changes or self._is_over(timeout, left):
                return changes
            if self._at_end:
                self._refuse_endless_wait(until)
                self._graphs.notifier.wait(count, left)
        return ()

    async def next_async(self, timeout: float | None = None) -> tuple[Change, ...]:  # noqa: ASYNC109
        """Return the next page, or an empty one if no row came in time. With a timeout of 0 it
        reads to the end of the log, and does not wait there. Cancelling it loses no row.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._graphs.notifier.listen() as listener:
            while not self._closed:
                listener.drain()
                changes = await asyncio.to_thread(self._look)
                left = self._pause(until)
                if changes or self._is_over(timeout, left):
                    return changes
                if self._at_end:
                    self._refuse_endless_wait(until)
                    await listener.wait(left)
        return ()

    def close(self) -> None:
        """End the feed: whoever waits for the next page gets none."""
        self._closed = True
        self._graphs.notifier.notify()

    def _look(self) -> tuple[Change, ...]:
        """Read a page. One without rows that got further is not the end of the log."""
        after = self._position
        page = self._graphs.page(self._wanted, after, self._limit, durable=self._durable)
        self._position, self._at_end = page.position, page.position == after
        return page.changes

    def _is_over(self, timeout: float | None, left: float) -> bool:
        """Return True if the time is up: at the end of the log, or while reading on for long."""
        return left <= 0 and (self._at_end or bool(timeout))

    def _refuse_endless_wait(self, until: float | None) -> None:
        if until is None and self._graphs.in_transaction():
            raise Refused(
                "a feed cannot wait inside a transaction: no commit would wake it",
                hint="Leave `graphs.transaction()` first, or pass a timeout.",
            )

    def _pause(self, until: float | None) -> float:
        # A writer hears of every commit, but must notice when its database is closed.
        most = limits.WATCH_HEARTBEAT_S if self._graphs.database.writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Change, ...]:
        while not (changes := self.next(self._timeout)):
            if self._at_end or self._closed:
                raise StopIteration
        return changes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Change, ...]:
        while not (changes := await self.next_async(self._timeout)):
            if self._at_end or self._closed:
                raise StopAsyncIteration
        return changes
