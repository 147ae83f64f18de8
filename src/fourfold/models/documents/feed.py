"""Live changes of a branch: every commit once, in the order of the log.

    for commit in space.watch(["urn:note:1"], after=seq):
        ...                                   # blocks until there is more
    async for commit in space.watch(): ...    # the same for coroutines

A watch is a position in the log and nothing more. Commits are not queued for it: it reads them from
the log when its consumer asks for the next, so a slow consumer costs no memory, and one that comes
back later with `after=watch.position` has neither a hole nor a commit twice. A commit in this
process wakes the watches that it concerns, at once; those of another process are found by polling.

What it shows is what a reader of the branch sees: the commits on the branch and, before its fork,
those that it inherited. The births and ends of branches are not shown, nor commits that changed
none of the watched entities. On a branch that has ended a watch ends too, after the last commit.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.kernel import Follower, Listener
from fourfold.models.documents import reader
from fourfold.models.documents.ancestry import branch_named, chain, last_seq
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.horizon import check_after
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import Commit
from fourfold.models.documents.validation import check_entity, check_several
from fourfold.models.documents.waiters import Key, Waiter

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space


class _Found(NamedTuple):
    """What a look at the log gave: a commit or none, the seqs behind it, how far it looked."""

    commit: Commit | None
    seqs: tuple[int, ...]
    position: int
    ended: bool


class Watch(Follower[Commit]):
    """A place in the log from which one consumer reads on; an iterator, also for coroutines.

    `timeout` ends the iteration after so many seconds without a change; without it, it goes on
    until `close`, which another thread may call.
    """

    def __init__(
        self,
        space: Space,
        ids: Iterable[str] | None = None,
        after: int | None = None,
        branch: str = "",
        timeout: float | None = None,
    ) -> None:
        self._space = space
        self._branch = branch
        _until(timeout)
        self._timeout = timeout
        self._ids = None if ids is None else frozenset(map(check_entity, _several(ids)))
        self._wanted = None if self._ids is None else trusted(sorted(self._ids))
        self._keys: list[Key] = [(branch, each) for each in self._ids or (None,)]
        self._closed = False
        self._waiting: set[Waiter] = set()
        self._seqs: tuple[int, ...] = ()
        with space.view() as view:
            branch_named(view, branch)
            newest = last_seq(view)
            if type(after) is int and 0 <= after <= newest:
                check_after(view, after, "a watch")
        if after is not None and (type(after) is not int or not 0 <= after <= newest):
            raise InvalidInput(
                f"cannot watch from {after!r:.99} on: this space's history goes from 0 to {newest}",
                hint="Read the current state again, and watch from the seq that it has.",
            )
        self._position = newest if after is None else after

    @property
    def position(self) -> int:
        """Every change up to this seq was handed out: where the next watch goes on."""
        return self._position

    def next(self, timeout: float | None = None) -> Commit | None:
        """The next commit; None when none came in time, or none will come any more."""
        until = _until(timeout)
        woken = threading.Event()
        with self._registered(woken.set) as waiter:
            while not self._closed:
                woken.clear()
                self._begin_look(waiter)
                found = self._take(self._look(self._position, self._seqs))
                if found.commit is not None or found.ended or self._pause(until) <= 0:
                    return found.commit
                while not woken.wait(self._pause(until)) and self._is_idle(until):
                    pass
        return None

    async def next_async(self, timeout: float | None = None) -> Commit | None:  # noqa: ASYNC109
        """The same for coroutines. One that is cancelled while it waits misses nothing."""
        until = _until(timeout)
        listener = Listener(asyncio.get_running_loop())
        with self._registered(listener.notify) as waiter:
            while not self._closed:
                listener.drain()
                self._begin_look(waiter)
                # Only what has arrived here counts as handed out, so a cancelled look is repeated.
                found = self._take(await asyncio.to_thread(self._look, self._position, self._seqs))
                if found.commit is not None or found.ended or self._pause(until) <= 0:
                    return found.commit
                while not await listener.wait(self._pause(until)) and self._is_idle(until):
                    pass
        return None

    def close(self) -> None:
        """End the watch: a call that waits for the next commit returns None."""
        self._closed = True
        for waiter in tuple(self._waiting):
            waiter.wake()

    @contextmanager
    def _registered(self, wake: Callable[[], None]) -> Iterator[Waiter]:
        with self._space.waiters.waiting(self._keys, wake) as waiter:
            self._waiting.add(waiter)
            try:
                yield waiter
            finally:
                self._waiting.discard(waiter)

    def _begin_look(self, waiter: Waiter) -> None:
        clear = self._space.waiters.begin_look(waiter)
        if not self._seqs:
            self._position = max(self._position, clear)

    def _take(self, found: _Found) -> _Found:
        self._position, self._seqs = found.position, found.seqs
        return found

    def _pause(self, until: float | None) -> float:
        """Return how many seconds to wait before checking that the watch can go on."""
        # A writer is notified of every commit, but must notice when its database is closed.
        writable = self._space.database.writable
        most = limits.WATCH_HEARTBEAT_S if writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def _is_idle(self, until: float | None) -> bool:
        """Return True while there is no reason to look at the log."""
        database = self._space.database
        return database.writable and not database.is_closed() and self._pause(until) > 0

    def _look(self, position: int, seqs: tuple[int, ...]) -> _Found:
        """The next commit behind `position`. Nothing of the watch itself is changed."""
        with self._space.view() as view:
            newest = last_seq(view)
            check_after(view, position, "a watch")
            seqs = seqs or self._page(view, position, newest)
            if not seqs:
                ended = not branch_named(view, self._branch).active
                return _Found(None, (), newest, ended)
            return _Found(self._commit(view, seqs[0]), seqs[1:], seqs[0], ended=False)

    def _page(self, view: HistoryReader, position: int, newest: int) -> tuple[int, ...]:
        """The next few seqs at which something of interest was committed."""
        found: list[int] = []
        below = position
        for branch, cap in reversed(chain(view, self._branch, newest)):
            left = limits.WATCH_PAGE_COMMITS - len(found)
            if left and below < cap:
                params = (branch, below, cap, self._wanted, left)
                found += [row[0] for row in view.rows(view.sql.seqs_touching, params)]
            below = max(below, cap)
        return tuple(found)

    def _commit(self, view: HistoryReader, seq: int) -> Commit:
        row = view.one(view.sql.commit_by_seq, (seq,))
        assert row is not None
        _, branch, session, local_seq, *_ = row
        revisions = tuple(
            reader.revision(each)
            for each in view.rows(view.sql.revisions_of_commit, (seq,))
            if self._ids is None or each[1] in self._ids
        )
        return Commit(seq, branch, session, local_seq, revisions)

    def __repr__(self) -> str:
        return f"<Watch of {self._space.did} from {self._position}>"


def _until(timeout: float | None) -> float | None:
    """When a wait ends that begins now."""
    if timeout is None:
        return None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or math.isnan(timeout):
        raise InvalidInput(f"a timeout is a number of seconds, not {timeout!r:.100}")
    return time.monotonic() + timeout


def _several(ids: Iterable[str]) -> list[str]:
    found = check_several(ids, "the ids to watch")
    if not found:
        raise InvalidInput("there is nothing to watch", hint="Leave out `ids` to watch them all.")
    return found
