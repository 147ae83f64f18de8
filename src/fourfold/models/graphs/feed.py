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
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Self

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.graphs import checks
from fourfold.models.graphs.reader import Reader
from fourfold.models.graphs.records import BITS, KINDS, Change, Kind

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


def page(reader: Reader, wanted: Wanted, after: int, until: int, limit: int) -> Page:
    """The next rows behind `after`: about `limit` of them, and whole numbers only."""
    numbers: dict[tuple[int, Kind], list[int]] = defaultdict(list)
    position, envelopes = after, 0
    for each in reader.envelopes(after, until):
        if envelopes >= limit and each.global_seq != position:
            break
        position = each.global_seq
        if wanted.apps is not None and each.app_id not in wanted.apps:
            continue
        if wanted.flag_mask is not None and not each.sync_flags & wanted.flag_mask:
            continue
        for kind in KINDS:
            if each.kinds & BITS[kind] and (wanted.kinds is None or kind in wanted.kinds):
                numbers[each.app_id, kind].append(each.global_seq)
                envelopes += 1
    else:
        # Nothing is left up to the bound: numbers without rows are passed as well.
        position = max(after, until)
    changes = [
        Change(row.global_seq, app_id, kind, row)
        for (app_id, kind), seqs in numbers.items()
        for row in reader.rows_of(app_id, kind, seqs, wanted.flag_mask)
    ]
    changes.sort(key=lambda change: (change.global_seq, change.row.position, change.app_id))
    return Page(tuple(changes), position)


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
