"""Live commits of a branch: every commit once, in the order of the log.

    for commit in space.follow(["urn:note:1"], after=seq):
        ...                                   # blocks until there is a commit
    async for commit in space.follow(): ...   # in a coroutine
    for commit in space.follow(where={"status": "open"}):
        ...                                   # commit.changes: what entered, changed and left

A watch is a position in the log. It reads commits from the log on demand, so a slow consumer costs
no memory, and a new watch with `after=watch.position` neither skips nor repeats a commit. A commit
in this process wakes only the watches that it concerns; commits of other processes are polled for.

A watch yields the commits on the branch and, before its fork point, those that it inherits. It
leaves out the creation and deletion of branches, and commits that change none of the watched
entities. On a deleted branch it ends after the last commit.

With a filter it compares the documents of each commit before and after it, on the branch that it
follows, and leaves out commits without a document that matched before or matches after.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from fourfold import limits
from fourfold.arguments import check_timeout
from fourfold.content.filters import Filter
from fourfold.errors import InvalidInput
from fourfold.kernel import Follower, Listener
from fourfold.models.documents import fold, reader
from fourfold.models.documents.ancestry import branch_named, chain, last_seq
from fourfold.models.documents.encoding import trusted
from fourfold.models.documents.gc.horizon import check_after
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.records import (
    Commit,
    Document,
    MatchChange,
    MatchedCommit,
    MatchKind,
    Revision,
)
from fourfold.models.documents.validation import check_entity, check_several
from fourfold.models.documents.waiters import Key, WatchWaiter

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

C = TypeVar("C")
WATCH_PAGE_COMMITS: Final = 256
"""Seqs that a watch reads ahead; commits are read one at a time."""
_COMPARED_ENTITIES: Final = 256
"""Entities of a commit whose documents a filter compares at once."""


class CommitPage(NamedTuple):
    """The commits of all branches after a seq."""

    commits: list[Commit]
    """Those that change something."""
    position: int
    """Seq up to which the log was read."""
    more: bool


def read_commits(space: Space, after: int, limit: int, revisions_max: int) -> CommitPage:
    """Return up to `limit` commits after a seq, and about `revisions_max` of their revisions.

    Raises:
        HistoryTruncated: Garbage collection removed some of them.
    """
    with space.view() as view:
        newest = last_seq(view)
        check_after(view, after, "a page of commits")
        page: list[Commit] = []
        count = revisions = 0
        position = after
        for seq, branch, session, local_seq, *_ in view.rows(
            view.sql.commits, (after, newest, limit)
        ):
            commit = Commit(seq, branch, session, local_seq, read_revisions(view, seq))
            count, position = count + 1, seq
            revisions += len(commit.revisions)
            if commit.revisions:
                page.append(commit)
            if revisions >= revisions_max:
                break
        more = count == limit or revisions >= revisions_max
        return CommitPage(page, position if more else newest, more)


def read_revisions(
    view: HistoryReader, seq: int, ids: frozenset[str] | None = None
) -> tuple[Revision, ...]:
    """Return the revisions of a commit, or those of some entities."""
    return tuple(
        reader.revision(row)
        for row in view.rows(view.sql.revisions_of_commit, (seq,))
        if ids is None or row[1] in ids
    )


class _Poll(NamedTuple, Generic[C]):
    """Result of reading the log: a commit or None, the next seqs, and the position reached."""

    commit: C | None
    seqs: tuple[int, ...]
    position: int
    ended: bool = False
    more: bool = False
    """True if the log has further commits to read at once."""


class LogWatch(Follower[C]):
    """An iterator over the commits of a branch, in one of the forms that `Space.follow` has."""

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
        deadline_of(timeout)
        self._timeout = timeout
        self._ids = None if ids is None else frozenset(check_ids(ids))
        self._ids_json = None if self._ids is None else trusted(sorted(self._ids))
        self._keys: list[Key] = [(branch, entity) for entity in self._ids or (None,)]
        self._closed = False
        self._ended = False
        self._waiting: set[WatchWaiter] = set()
        self._seqs: tuple[int, ...] = ()
        with space.view() as view:
            branch_named(view, branch)
            newest = last_seq(view)
            if type(after) is int and 0 <= after <= newest:
                check_after(view, after, "a watch")
        if after is not None and (type(after) is not int or not 0 <= after <= newest):
            raise InvalidInput(
                f"after must be a seq from 0 to {newest}, got {after!r:.99}",
                hint="Read the current state, and follow from its seq.",
            )
        self._position = newest if after is None else after

    @property
    def position(self) -> int:
        """The seq up to which every commit was returned; pass it as `after` to resume."""
        return self._position

    @property
    def ended(self) -> bool:
        """True after the last commit of a deleted branch."""
        return self._ended

    @abstractmethod
    def _commit(self, view: HistoryReader, seq: int) -> C | None:
        """Return a commit, or None if it is left out."""

    def next(self, timeout: float | None = None) -> C | None:
        """Return the next commit, or None on timeout, after `close`, or on a deleted branch."""
        until = deadline_of(timeout)
        woken = threading.Event()
        with self._registered(woken.set) as waiter:
            while not self._closed:
                woken.clear()
                self._start_poll(waiter)
                poll = self._advance(self._poll(self._position, self._seqs))
                while poll.more and not self._closed:
                    poll = self._advance(self._poll(self._position, self._seqs))
                if poll.commit is not None or poll.ended or self._pause(until) <= 0:
                    return poll.commit
                while not woken.wait(self._pause(until)) and self._is_idle(until):
                    pass
        return None

    async def next_async(self, timeout: float | None = None) -> C | None:  # noqa: ASYNC109
        """Return the next commit like `next`; a cancelled call skips nothing."""
        until = deadline_of(timeout)
        listener = Listener(asyncio.get_running_loop())
        with self._registered(listener.notify) as waiter:
            while not self._closed:
                listener.drain()
                self._start_poll(waiter)
                # The position moves only here, so a cancelled poll is repeated.
                poll = await asyncio.to_thread(self._poll, self._position, self._seqs)
                self._advance(poll)
                while poll.more and not self._closed:
                    poll = await asyncio.to_thread(self._poll, self._position, self._seqs)
                    self._advance(poll)
                if poll.commit is not None or poll.ended or self._pause(until) <= 0:
                    return poll.commit
                while not await listener.wait(self._pause(until)) and self._is_idle(until):
                    pass
        return None

    def close(self) -> None:
        """End the watch; a waiting call returns None."""
        self._closed = True
        for waiter in tuple(self._waiting):
            waiter.wake()

    @contextmanager
    def _registered(self, wake: Callable[[], None]) -> Iterator[WatchWaiter]:
        with self._space.waiters.waiting(self._keys, wake) as waiter:
            self._waiting.add(waiter)
            try:
                yield waiter
            finally:
                self._waiting.discard(waiter)

    def _start_poll(self, waiter: WatchWaiter) -> None:
        clear = self._space.waiters.start_poll(waiter)
        if not self._seqs:
            self._position = max(self._position, clear)

    def _advance(self, poll: _Poll[C]) -> _Poll[C]:
        self._position, self._seqs, self._ended = poll.position, poll.seqs, poll.ended
        return poll

    def _pause(self, until: float | None) -> float:
        """Return the seconds to wait before checking that the database is still open."""
        # A writer is notified of every commit, but must notice when its database is closed.
        writable = self._space.database.writable
        most = limits.WATCH_HEARTBEAT_S if writable else limits.WATCH_POLL_S
        return most if until is None else min(most, until - time.monotonic())

    def _is_idle(self, until: float | None) -> bool:
        """Return True while there is no reason to read the log."""
        database = self._space.database
        return database.writable and not database.is_closed() and self._pause(until) > 0

    def _poll(self, position: int, seqs: tuple[int, ...]) -> _Poll[C]:
        """Read the next commit after `position`, without changing the watch."""
        with self._space.view() as view:
            newest = last_seq(view)
            check_after(view, position, "a watch")
            seqs = seqs or self._page(view, position, newest)
            if not seqs:
                ended = not branch_named(view, self._branch).active
                return _Poll(None, (), newest, ended)
            for index, seq in enumerate(seqs):
                commit = self._commit(view, seq)
                if commit is not None:
                    return _Poll(commit, seqs[index + 1 :], seq)
            return _Poll(None, (), seqs[-1], more=True)

    def _page(self, view: HistoryReader, position: int, newest: int) -> tuple[int, ...]:
        """Return the next seqs whose commits the watch yields."""
        page: list[int] = []
        after = position
        for branch, cap in reversed(chain(view, self._branch, newest)):
            left = WATCH_PAGE_COMMITS - len(page)
            if left and after < cap:
                params = (branch, after, cap, self._ids_json, left)
                page += [row[0] for row in view.rows(view.sql.seqs_touching, params)]
            after = max(after, cap)
        return tuple(page)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._space.did} from {self._position}>"


class Watch(LogWatch[Commit]):
    """An iterator over the commits of a branch, for `for` and `async for`. Made by `Space.follow`.

    It ends after `timeout` seconds without a commit, or when another thread calls `close`.
    """

    def _commit(self, view: HistoryReader, seq: int) -> Commit:
        _, branch, session, local_seq, *_ = _commit_row(view, seq)
        return Commit(seq, branch, session, local_seq, read_revisions(view, seq, self._ids))


class FilterWatch(LogWatch[MatchedCommit]):
    """An iterator over what enters, changes in, and leaves the documents that match a filter.

    Made by `Space.follow` with `where`. It ends like a `Watch`.
    """

    def __init__(
        self,
        space: Space,
        where: Filter,
        ids: Iterable[str] | None,
        after: int | None,
        *,
        branch: str,
        timeout: float | None,
    ) -> None:
        super().__init__(space, ids, after, branch, timeout)
        self._filter = where

    def _commit(self, view: HistoryReader, seq: int) -> MatchedCommit | None:
        changes = tuple(self._changes(view, seq))
        if not changes:
            return None
        _, branch, session, local_seq, *_ = _commit_row(view, seq)
        return MatchedCommit(seq, branch, session, local_seq, changes)

    def _changes(self, view: HistoryReader, seq: int) -> Iterator[MatchChange]:
        """Yield the documents of a commit that match before it or after it."""
        matches = self._filter.matches
        links = chain(view, self._branch, seq - 1)
        rows: dict[str, list[fold.Row]] = {}
        for row in view.rows(view.sql.revisions_of_commit, (seq,)):
            revision = reader.revision(row)
            if self._ids is None or revision.id in self._ids:
                rows.setdefault(revision.id, []).append((seq, revision.op, revision.data))
        for ids in _batches(list(rows), _COMPARED_ENTITIES):
            for entity, before in reader.states(view, links, ids).items():
                after = fold.fold(before, rows[entity])
                assert after is not None
                matched = before is not None and _is_match(matches, before.document)
                kind = _KINDS[matched, _is_match(matches, after.document)]
                if kind is not None:
                    yield MatchChange(kind, entity, after.op, after.document)


_KINDS: Final[dict[tuple[bool, bool], MatchKind | None]] = {
    (False, False): None,
    (False, True): "enter",
    (True, True): "change",
    (True, False): "leave",
}


def _is_match(matches: Callable[[Any], bool], document: Document | None) -> bool:
    return document is not None and matches(document)


def _batches(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _commit_row(view: HistoryReader, seq: int) -> tuple[Any, ...]:
    row = view.one(view.sql.commit_by_seq, (seq,))
    assert row is not None
    return row


def deadline_of(timeout: float | None) -> float | None:
    """Return the monotonic time at which a wait with this timeout ends."""
    check_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout


def check_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids of the entities to follow; raise InvalidInput if there is none."""
    listed = check_several(ids, "the ids to watch")
    if not listed:
        raise InvalidInput("ids must not be empty", hint="Omit `ids` to follow all entities.")
    return [check_entity(entity) for entity in listed]
