"""The change feed: every row in the order of the log, after a seq.

    for changes in graphs.feed(after=seq):
        ...                              # a page; blocks until there is one

A feed is a position: a new feed with `after=feed.position` neither skips nor repeats a row. A page
never splits a transaction. A commit in this process wakes it at once; commits of other processes
are polled for.

With `durable=True`, which sync uses, a feed returns only rows that survive a power cut; otherwise a
seq that another node has received could be assigned again.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from operator import add, attrgetter, itemgetter, mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold import limits
from fourfold.arguments import check_timeout
from fourfold.errors import InvalidInput, Refused
from fourfold.kernel import Follower
from fourfold.kernel.collector import gc_paused
from fourfold.models.graphs import validation
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import BITS, KINDS, ROWS, GraphChange, Kind, Row
from fourfold.models.graphs.statements import SQL, statements_of

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs


FEED_STEP_ROWS: Final = 128
"""Rows of a page that are read before other threads may write: about a millisecond of work."""


class ChangePage(NamedTuple):
    """Changes, and the position up to which the log was read."""

    changes: tuple[GraphChange, ...]
    position: int


class FeedFilter(NamedTuple):
    """The apps, kinds and sync flags of the rows that a feed returns; None means all."""

    apps: frozenset[int] | None = None
    kinds: frozenset[Kind] | None = None
    flag_mask: int | None = None
    types: frozenset[tuple[Kind, int]] | None = None
    """Kinds with ids of types, of rows that concern a pattern; 0 is any type of the kind."""

    @staticmethod
    def of(
        apps: Iterable[int] | None, kinds: Iterable[Kind] | None, flag_mask: int | None
    ) -> FeedFilter:
        """Return the filter of a feed; raise InvalidInput if it is not valid."""
        return FeedFilter(
            None
            if apps is None
            else frozenset(validation.check_integer(app, "app_id") for app in apps),
            None if kinds is None else frozenset(validation.check_kind(kind) for kind in kinds),
            None if flag_mask is None else validation.check_integer(flag_mask, "flag_mask"),
        )

    def concerns(self, change: GraphChange) -> bool:
        """Return True if a row is of one of the types."""
        return self.types is None or not self.types.isdisjoint(
            ((change.kind, 0), (change.kind, change.row.type_id))
        )

    @property
    def filters(self) -> tuple[int, int | None, str | None]:
        """Parameters of a statement: bits of the kinds, flags, and app ids as JSON."""
        bits = sum(BITS[kind] for kind in (KINDS if self.kinds is None else self.kinds))
        return bits, self.flag_mask, None if self.apps is None else json.dumps(sorted(self.apps))


class _WindowTable(NamedTuple):
    """A table with rows in a window of seqs: their range of ids, and the matching envelopes."""

    app_id: int
    kind: Kind
    above: int
    last: int
    envelopes: int

    @property
    def rows(self) -> int:
        return self.last - self.above


class _Window(NamedTuple):
    """A range of seqs, the tables with rows in it, and about how many rows match."""

    after: int
    end: int
    tables: list[_WindowTable]
    rows: int


def page(
    reader: Reader,
    query: FeedFilter,
    after: int,
    until: int,
    limit: int,
    *,
    end_step: Callable[[], None] = lambda: None,
) -> ChangePage:
    """Read the next rows after a seq: whole transactions, at most `limit` rows if several.

    The work is bounded, so a page may be empty although later rows match. The position does not
    move at the end of the log, and only there.

    Args:
        end_step: Called after every few rows; it may pause, so that other threads can write.
    """
    numbers = max(1, limit // 4)
    # The rows of a transaction are enough objects to start full collections.
    with gc_paused:
        while True:
            window = _fitting(reader, query, (after, until), limit, numbers)
            rows = _cut(reader, query, window, limit, end_step)
            if query.types is not None:
                rows = rows._replace(changes=tuple(filter(query.concerns, rows.changes)))
            if rows.changes or rows.position >= until or numbers >= limits.FEED_PAGE_ROWS:
                return rows
            after, numbers = rows.position, min(4 * numbers, limits.FEED_PAGE_ROWS)


def _fitting(
    reader: Reader, query: FeedFilter, between: tuple[int, int], limit: int, numbers: int
) -> _Window:
    """Return a window of about `limit` rows, scaled by the average rows of the first seqs."""
    window = _window(reader, query, *between, numbers)
    rows = max(1, window.rows)
    if 2 * rows < limit and window.end < between[1]:
        return _window(reader, query, *between, min(limit, max(numbers, numbers * limit // rows)))
    if rows > 2 * limit:
        narrow = _window(reader, query, *between, max(1, numbers * limit // rows))
        # If the seqs are too uneven for that, the rows are cut when they are read.
        return narrow if 2 * narrow.rows >= limit else window
    return window


def _window(reader: Reader, query: FeedFilter, after: int, until: int, numbers: int) -> _Window:
    """Return the range of seqs of the next envelopes that may match."""
    last = reader.value(SQL.feed_end, (after, until, *query.filters, numbers - 1))
    # Nothing is left up to the bound: numbers without rows are passed as well.
    end = max(after, until) if last is None else int(last)
    tables = _tables(reader, query, after, end)
    return _Window(after, end, tables, sum(_matching_rows(table, query) for table in tables))


def _cut(
    reader: Reader, query: FeedFilter, window: _Window, limit: int, end_step: Callable[[], None]
) -> ChangePage:
    """Read the rows of a window up to the last seq that fits into a page."""
    changes = _in_order(reader, query, window, limit + 1, end_step)
    if len(changes) <= limit:
        return ChangePage(changes, window.end)
    first, over = changes[0].global_seq, changes[limit].global_seq
    if first == over:
        whole = _Window(first - 1, first, _tables(reader, query, first - 1, first), 0)
        return ChangePage(_in_order(reader, query, whole, _NO_LIMIT, end_step), first)
    fits = bisect_left(changes, over, key=attrgetter("global_seq"))
    return ChangePage(changes[:fits], over - 1)


_NO_LIMIT = -1
_SPARSE = 16
"""If there are more rows than this for each envelope in question, the rows of each envelope
are looked up separately.
"""


def _tables(reader: Reader, query: FeedFilter, after: int, end: int) -> list[_WindowTable]:
    """Return the tables of a window with the ids of their rows. Ids and seqs grow together."""
    bits = query.filters[0]
    envelopes: Counter[tuple[int, Kind]] = Counter()
    wrote = Counter(reader.raw_rows(SQL.feed_tables, (after, end, *query.filters)))
    for (app_id, kinds), count in wrote.items():
        for kind in KINDS:
            if kinds & bits & BITS[kind]:
                envelopes[app_id, kind] += count
    return [
        _WindowTable(app_id, kind, *reader.ids_between(app_id, kind, after, end), count)
        for (app_id, kind), count in sorted(envelopes.items())
    ]


def _is_sparse(table: _WindowTable, query: FeedFilter) -> bool:
    return query.flag_mask is not None and table.rows > _SPARSE * table.envelopes


def _matching_rows(table: _WindowTable, query: FeedFilter) -> int:
    return table.envelopes if _is_sparse(table, query) else table.rows


_NEW_ROW = {kind: partial(tuple.__new__, row) for kind, row in ROWS.items()}
_SEQ = {kind: itemgetter(row._fields.index("global_seq")) for kind, row in ROWS.items()}
_PLACE = {kind: itemgetter(row._fields.index("position")) for kind, row in ROWS.items()}


def _in_order(
    reader: Reader, query: FeedFilter, window: _Window, limit: int, end_step: Callable[[], None]
) -> tuple[GraphChange, ...]:
    """Return the first `limit` rows of each table as changes, in the order of the log.

    The speed of feeds depends on this loop: its steps are C calls for many rows of a table. A
    transaction may have any number of rows, and a C call does not let other threads run.
    """
    tables = window.tables
    changes: list[GraphChange] = []
    seqs: list[int] = []
    places: list[int] = []
    for table in tables:
        kind = table.kind
        for rows in _parts(reader, query, window, table, limit):
            numbers = list(map(_SEQ[kind], rows))
            changes += map(GraphChange, numbers, repeat(table.app_id), repeat(kind), rows)
            seqs += numbers
            places += map(_PLACE[kind], rows)
            end_step()
    if len(tables) == 1:
        return tuple(changes)
    # One whole number is compared faster than a pair of them.
    keys = map(add, map(mul, seqs, repeat(max(places, default=0) + 1)), places)
    # A list is sorted by one key after another, in its order: `next` hands them out.
    changes.sort(key=partial(next, keys))
    return tuple(changes)


def _parts(
    reader: Reader, query: FeedFilter, window: _Window, table: _WindowTable, limit: int
) -> Iterator[list[Row]]:
    """Yield the first `limit` rows of a table, `FEED_STEP_ROWS` at a time."""
    sql, mask = statements_of(table.app_id, table.kind), query.flag_mask
    new_row: Callable[[tuple[Any, ...]], Row] = _NEW_ROW[table.kind]
    params: tuple[int, ...]
    if mask is None:
        statement, params = sql.range_of_ids, (table.above, table.last, limit)
    elif _is_sparse(table, query):
        statement, params = sql.scattered, (window.after, window.end, mask, limit)
    else:
        statement, params = sql.range_with_flags, (table.above, table.last, mask, limit)
    return reader.raw_parts_as(new_row, FEED_STEP_ROWS, statement, params)


class GraphFeed(Follower[tuple[GraphChange, ...]]):
    """An iterator over pages of changes, for `for` and `async for`. Made by `Graphs.feed`."""

    def __init__(
        self,
        graphs: Graphs,
        query: FeedFilter,
        *,
        after: int,
        limit: int,
        durable: bool,
        timeout: float | None,
    ) -> None:
        check_timeout(timeout)
        newest = graphs.get_global_seq()
        if validation.check_integer(after, "after") > newest:
            raise InvalidInput(f"after must be at most {newest}, the newest seq, got {after}")
        self._graphs = graphs
        self._query = query
        self._limit = validation.check_integer(limit, "limit", least=1)
        self._durable = durable
        self._timeout = timeout
        self._position = after
        self._at_end = False
        self._closed = False

    @property
    def position(self) -> int:
        """The seq up to which every change was returned; pass it as `after` to resume."""
        return self._position

    def next(self, timeout: float | None = None) -> tuple[GraphChange, ...]:
        """Return the next page, or an empty one on timeout.

        With a timeout of 0 it reads up to the end of the log and does not wait.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            count = self._graphs.notifier.count
            changes = self._poll()
            left = self._pause(until)
            if changes or self._is_over(timeout, left):
                return changes
            if self._at_end:
                self._refuse_endless_wait(until)
                self._graphs.notifier.wait(count, left)
        return ()

    async def next_async(self, timeout: float | None = None) -> tuple[GraphChange, ...]:  # noqa: ASYNC109
        """Return the next page like `next`; a cancelled call skips no row."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._graphs.notifier.listen() as listener:
            while not self._closed:
                listener.drain()
                changes = await asyncio.to_thread(self._poll)
                left = self._pause(until)
                if changes or self._is_over(timeout, left):
                    return changes
                if self._at_end:
                    self._refuse_endless_wait(until)
                    await listener.wait(left)
        return ()

    def close(self) -> None:
        """End the feed; a waiting call returns an empty page."""
        self._closed = True
        self._graphs.notifier.notify()

    def _poll(self) -> tuple[GraphChange, ...]:
        """Read a page. An empty page whose position moved is not the end of the log."""
        after = self._position
        page = self._graphs.page(self._query, after, self._limit, durable=self._durable)
        self._position, self._at_end = page.position, page.position == after
        return page.changes

    def _is_over(self, timeout: float | None, left: float) -> bool:
        """Return True on timeout: at the end of the log, or while skipping many rows."""
        return left <= 0 and (self._at_end or bool(timeout))

    def _refuse_endless_wait(self, until: float | None) -> None:
        if until is None and self._graphs.in_transaction():
            raise Refused(
                "cannot wait for changes inside a transaction: no commit would wake it",
                hint="Leave `graphs.transaction()` first, or pass a timeout.",
            )

    def _pause(self, until: float | None) -> float:
        # A writer is notified of every commit, but must notice when its database is closed.
        most = limits.WATCH_HEARTBEAT_S if self._graphs.database.writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def __next__(self) -> tuple[GraphChange, ...]:
        while not (changes := self.next(self._timeout)):
            if self._at_end or self._closed:
                raise StopIteration
        return changes

    async def __anext__(self) -> tuple[GraphChange, ...]:
        while not (changes := await self.next_async(self._timeout)):
            if self._at_end or self._closed:
                raise StopAsyncIteration
        return changes
