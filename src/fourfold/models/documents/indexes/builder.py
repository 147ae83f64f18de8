"""Builds of indexes over existing documents, beside readers and writers.

Commits maintain an index from its declaration on. The builder goes through the entities in the
order of their keys: it computes the entries of some of them from a snapshot, and stores these in a
short transaction, together with its progress. If an entity was written meanwhile, its new states
are added first. A build that was stopped or killed continues there.

A unique index is then compared with itself. Commits refuse repeated values from that time on, so
what the comparison does not find is not there.

The entries of a dropped index are deleted here too, in short transactions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.errors import Closed, FourfoldError
from fourfold.kernel import Transaction, failpoints
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.models.documents.ancestry import BranchLink, chain, last_seq
from fourfold.models.documents.history import HistoryReader
from fourfold.models.documents.indexes import declaration
from fourfold.models.documents.indexes.declaration import SQL, Index
from fourfold.models.documents.indexes.entries import EntityLog
from fourfold.models.documents.indexes.maintenance import (
    KINDS,
    EntityBuild,
    other_with_key,
    unique_violation,
)

if TYPE_CHECKING:
    from fourfold.models.documents.space import Space

BUILD_STEP_S: Final = 0.02
"""Time for which one step of a build reads before it writes."""
BUILD_STOP_S: Final = 10.0
"""Maximum wait of a closing store for the step of a build."""
BUILD_STEP_ENTITIES: Final = 500
"""Entities of one step."""
BUILD_DELETED_ROWS: Final = 1_000
"""Rows of a dropped index that one transaction deletes."""
BUILD_COMPARED_ROWS: Final = 500
"""Entries of a unique index that one read transaction compares."""

_log = logging.getLogger("fourfold.documents")


class IndexBuilder:
    """Builds the indexes of one space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._lock = threading.Lock()
        self._running = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def is_running(self) -> bool:
        """True while a thread builds."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Continue unfinished builds in a thread, unless one runs or the space is read-only."""
        if not self._space.database.writable:
            return
        with self._lock:
            if not self.is_running and not self._stopping:
                self._thread = threading.Thread(
                    target=self._run, name="fourfold-index", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that it is in. The next process continues the build."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(BUILD_STOP_S)

    def run(self, timeout_s: float | None = None) -> bool:
        """Build in this thread until all is done, or time is up; return True if all is done.

        Inside a transaction nothing is built: a step would not see what the transaction wrote.
        """
        if self._space.database.in_transaction():
            return False
        until = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._running.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return False
        try:
            while self._step():
                if self._stopping or (until is not None and time.monotonic() >= until):
                    return False
                self._space.database.pauses.pause()
        finally:
            self._running.release()
        return True

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            lower_thread_priority()
        try:
            self.run()
        except Closed:
            pass
        except FourfoldError as error:
            # The next commit or declaration starts it again.
            _log.warning("index build of %s stopped: %s", self._space.did, error)

    def _step(self) -> bool:
        """Do a bounded piece of work; return False if there is none."""
        with self._space.background_view() as view:
            indexes = declaration.load(view.snapshot)
            dropped = [ix for (ix,) in view.all(SQL.dropped)]
        for index in indexes:
            if index.state == "building":
                self._build(index)
                return True
            if index.state == "checking":
                self._compare(index)
                return True
        if dropped:
            self._space.database.transact(lambda txn: _delete_rows(txn, dropped[0]))
            return True
        return False

    def _build(self, index: Index) -> None:
        """Build the entries of the next entities."""
        history = self._space.history_kind
        builds: list[tuple[EntityLog, EntityBuild]] = []
        until = time.monotonic() + BUILD_STEP_S
        with self._space.background_view() as view:
            row = view.one(SQL.build_of, (index.ix,))
            place = ("", "") if row is None else (row[1], row[2])
            parents: dict[str, list[BranchLink]] = {}
            page = view.all(SQL.heads_page, (*place, BUILD_STEP_ENTITIES))
            for branch, entity, _ in page:
                if branch not in parents:
                    parents[branch] = chain(view, branch, limits.INTEGER_MAX)[1:]
                log = EntityLog(parents[branch], branch, entity)
                build = KINDS[index.kind].build(index)
                build.add(log.read(view))
                builds.append((log, build))
                if time.monotonic() >= until:
                    break

        def work(txn: Transaction) -> None:
            _check_same(txn, index)
            view = history.view(txn)
            for log, build in builds:
                if txn.value(SQL.head_seq, (log.branch, log.entity)) != log.seq:
                    build.add(log.read(view))
                build.store(txn, log.branch, log.entity)
            if builds:
                last = builds[-1][0]
                txn.execute(SQL.set_build, (index.ix, "building", last.branch, last.entity, None))
            else:
                # Without entities nothing else has created it, as after a restore.
                KINDS[index.kind].create(txn, index.ix)
                state = "checking" if index.options.unique else "ready"
                txn.execute(SQL.set_build, (index.ix, state, "", "", None))
            if failpoints.armed:
                failpoints.hit("documents.index.build")

        with contextlib.suppress(_IndexChanged):
            self._space.database.transact(work)

    def _compare(self, index: Index) -> None:
        """Look for repeated values in a unique index, and enforce it if there are none."""
        place: tuple[str, bytes, str] = ("", b"", "")
        error: str | None = None
        while error is None:
            with self._space.background_view() as view:
                page = view.all(SQL.live_page, (index.ix, *place, BUILD_COMPARED_ROWS))
                error = _first_violation(view, index, page)
            if len(page) < BUILD_COMPARED_ROWS:
                break
            place = page[-1]

        def work(txn: Transaction) -> None:
            _check_same(txn, index)
            state = "ready" if error is None else "failed"
            txn.execute(SQL.set_build, (index.ix, state, "", "", error))

        with contextlib.suppress(_IndexChanged):
            self._space.database.transact(work)


class _IndexChanged(Exception):
    """An index was dropped or rebuilt while a step was prepared."""


def _check_same(txn: Transaction, index: Index) -> None:
    if not any(
        known.ix == index.ix and known.state == index.state for known in declaration.load(txn)
    ):
        raise _IndexChanged


def _first_violation(
    view: HistoryReader, index: Index, page: list[tuple[str, bytes, str]]
) -> str | None:
    links: dict[str, list[BranchLink]] = {}
    newest = last_seq(view)
    for branch, key, entity in page:
        if branch not in links:
            links[branch] = chain(view, branch, newest)
        other = other_with_key(view, index, links[branch], key, entity)
        if other is not None:
            return unique_violation(index, branch, key, entity, other).message
    return None


def _delete_rows(txn: Transaction, ix: int) -> None:
    if not sum(kind.delete_rows(txn, ix, BUILD_DELETED_ROWS) for kind in KINDS.values()):
        txn.execute(SQL.delete_build, (ix,))
