"""Running a group: several requests in one transaction, each brought to its own outcome.

One bad request never fails its neighbours. A request that raises before it wrote anything is simply
left out. One that raises after it wrote spoils the transaction: all of it is rolled back and run
again, each request in a savepoint of its own. If SQLite itself undid the transaction, the one to
blame is taken out and the others run again.

A group that comes whole from the inbox of one loop is first run in the hope that nothing goes
wrong; when something does, it is undone and run again as above.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from fourfold import limits
from fourfold.errors import Closed, Conflict, DeadlineExceeded, DiskFull, FourfoldError
from fourfold.kernel import faults
from fourfold.kernel.requests import Entry, LoopRequest, Request, Waking, Work, settle
from fourfold.kernel.transaction import Transaction
from fourfold.kernel.writer import Writer

Hooks = list[Callable[[], None]]


class _Spoilt(Exception):
    """A request wrote and then failed: the shared transaction must be done again without it, or
    with savepoints.
    """


def too_late(subject: str) -> DeadlineExceeded:
    return DeadlineExceeded(f"{subject}: the deadline passed while the write was queued")


class GroupRunner:
    """Runs groups on a Writer whose turn the caller holds."""

    def __init__(self, writer: Writer, waking: Waking) -> None:
        self._writer = writer
        self._waking = waking
        self._cautious = 0
        """Groups that will still run in savepoints, since one before them was spoilt."""
        self._careful = 0
        """Groups that will still not be run in the hope that nothing goes wrong."""

    def run(
        self,
        group: Sequence[Request],
        here: asyncio.AbstractEventLoop | None,
        *,
        apart: bool = False,
    ) -> None:
        """Bring every request of `group` to its outcome, and tell those who wait. `apart` gives
        each a transaction of its own.
        """
        runnable = self._wanted(group)
        try:
            if apart:
                self._commit_apart(runnable)
            elif runnable:
                self._commit(runnable)
        except FourfoldError as error:
            self._fail_all(runnable, error)
        except BaseException as error:
            self._fail_all(runnable, error)
            raise
        finally:
            try:
                if faults.armed:
                    faults.hit("kernel.acknowledge.before")
            finally:
                settle(group, here, self._waking)
                if self._writer.acknowledged:
                    self._writer.run_acknowledged()

    def run_alone(self, work: Work, deadline: float) -> Any:
        """Run what nobody shares a transaction with; its result once that is committed."""
        writer = self._writer
        try:
            txn = writer.begin(deadline)
            result = work(txn)
            txn._refuse_if_undone()  # noqa: SLF001
        except BaseException:
            writer.rollback()
            raise
        hooks = txn._after_commit  # noqa: SLF001
        commit_or_undo(writer)
        writer.metrics.requests += 1
        try:
            if hooks:
                writer.run_hooks(hooks)
        finally:
            if faults.armed:
                faults.hit("kernel.acknowledge.before")
            if writer.acknowledged:
                # The caller is this thread, and goes on when they are done.
                writer.run_acknowledged()
        return result

    def run_entries(self, entries: list[Entry], here: asyncio.AbstractEventLoop) -> None:
        """The same for what coroutines of `here` asked for: at once, if all goes well."""
        writer = self._writer
        results: list[Any] | None = None
        apart = False
        hooked: list[tuple[Entry, Hooks]] = []
        try:
            if self._careful:
                self._careful -= 1
            else:
                results = self._run_hopefully(writer.begin(float("inf")), entries, hooked)
            if results is not None:
                commit_or_undo(writer)
        except (DiskFull, Conflict):
            results, apart = None, True
        except BaseException as error:
            if writer.transaction is not None:
                writer.rollback()
            failed = [LoopRequest(entry, here) for entry in entries]
            self._fail_all(failed, error)
            settle(failed, here, self._waking)
            if isinstance(error, FourfoldError):
                return
            raise
        if results is None:
            self.run([LoopRequest(entry, here) for entry in entries], here, apart=apart)
        else:
            writer.metrics.requests += len(results)
            self._acknowledge(entries, results, hooked, here)

    def _run_hopefully(
        self, txn: Transaction, entries: list[Entry], hooked: list[tuple[Entry, Hooks]]
    ) -> list[Any] | None:
        """Run a group in which nothing goes wrong, and leave it to be committed; None when
        something did, and nothing is left of it.

        This is the hot loop of a server: what can be kept out of it is.
        """
        writer = self._writer
        results: list[Any] = []
        keep = results.append
        now = time.monotonic()
        try:
            for entry in entries:
                work, _, deadline, future = entry
                if deadline < now or future.done():
                    break
                writer.deadline = deadline
                keep(work(txn))
                if txn._after_commit is not None:  # noqa: SLF001
                    hooked.append((entry, txn._after_commit))  # noqa: SLF001
                    txn._after_commit = None  # noqa: SLF001
                if txn._undone is not None:  # noqa: SLF001
                    break
            else:
                return results
        except Exception:  # noqa: BLE001  (whose it is shows when the group runs again)
            # Where one was refused others will be, and the careful way runs each of them once.
            self._careful = limits.CAUTIOUS_GROUPS
        writer.rollback()
        return None

    def _acknowledge(
        self,
        entries: list[Entry],
        results: list[Any],
        hooked: list[tuple[Entry, Hooks]],
        here: asyncio.AbstractEventLoop,
    ) -> None:
        try:
            for entry, hooks in hooked:
                request = LoopRequest(entry, here)
                request.hooks = hooks
                self._call_hooks(request)
                if request.error is not None:
                    request.resolve()
            if faults.armed:
                faults.hit("kernel.acknowledge.before")
        finally:
            for (_, _, _, future), result in zip(entries, results, strict=True):
                # Some have gone away meanwhile, and some have heard of a hook that failed.
                if not future.done():
                    future.set_result(result)
            if self._writer.acknowledged:
                self._writer.run_acknowledged()

    def _fail_all(self, requests: Sequence[Request], error: BaseException) -> None:
        """One error for everybody. When the leading thread is being stopped, nobody in the group
        may be left waiting.
        """
        for request in requests:
            request.reset()
            request.error = (
                error.copy()
                if isinstance(error, FourfoldError)
                else Closed(f"{self._writer.subject}: the writer was interrupted: {error!r}")
            )

    def _wanted(self, group: Sequence[Request]) -> list[Request]:
        """Those whose callers still wait, and in time."""
        now = time.monotonic()
        wanted = []
        for request in group:
            if request.deadline < now:
                request.error = too_late(self._writer.subject)
            elif type(request) is not LoopRequest or not request.future.cancelled():
                wanted.append(request)
        return wanted

    def _commit(self, group: list[Request]) -> None:
        """Bring the whole group to an outcome, in as few transactions as its errors allow."""
        guarded = self._cautious > 0
        self._cautious = max(0, self._cautious - 1)
        left = group
        while left:
            try:
                self._attempt(left, guarded=guarded and len(left) > 1)
            except _Spoilt:
                guarded = True
                self._cautious = limits.CAUTIOUS_GROUPS
                left = [request for request in left if not request.blamed]
                for request in left:
                    request.reset()
                continue
            except (DiskFull, Conflict) as error:
                if len(left) == 1:
                    left[0].reset()
                    left[0].error = error
                    return
                self._commit_apart(left)
            return

    def _commit_apart(self, group: list[Request]) -> None:
        """They do not fit together, or one breaks what only COMMIT checks: one by one, then."""
        for request in group:
            request.reset()
            try:  # An error is for this one only: those before it may be committed already.
                self._commit([request])
            except FourfoldError as error:
                request.reset()
                request.error = error

    def _attempt(self, group: list[Request], *, guarded: bool) -> None:
        writer = self._writer
        try:
            # Each request has its own deadline, which starts to count when its turn comes.
            txn = writer.begin(float("inf"))
            self._run_all(txn, group, guarded=guarded)
        except BaseException:
            writer.rollback()
            raise
        done = [request for request in group if request.error is None]
        if not done:
            writer.rollback()
            return
        commit_or_undo(writer)
        writer.metrics.requests += len(done)
        for request in done:
            if request.hooks is not None:
                self._call_hooks(request)

    def _run_all(self, txn: Transaction, group: list[Request], *, guarded: bool) -> None:
        """The hot loop of every write: what can be kept out of it is."""
        writer = self._writer
        total_changes = writer.connection.total_changes
        for request in group:
            writer.deadline = request.deadline
            txn._touched = False  # noqa: SLF001
            before = total_changes()
            try:
                if guarded:
                    with txn.savepoint():
                        request.result = request.work(txn)
                else:
                    request.result = request.work(txn)
            except Exception as error:  # noqa: BLE001  (any error belongs to its own caller)
                if txn._after_commit is not None:  # noqa: SLF001
                    # It may have left word in the scratch that nobody will act on.
                    txn._after_commit = None  # noqa: SLF001
                    txn.scratch.clear()
                harmless = not txn._touched and total_changes() == before  # noqa: SLF001
                self._failed(request, error, contained=guarded or harmless or len(group) == 1)
            else:
                if txn._after_commit is not None:  # noqa: SLF001
                    request.hooks, txn._after_commit = txn._after_commit, None  # noqa: SLF001
                if txn._undone is not None:  # noqa: SLF001
                    # It took an error for its own affair that undid everybody's work.
                    request.error = txn._undone  # noqa: SLF001
                    request.blamed = True
                    raise _Spoilt from txn._undone  # noqa: SLF001

    def _failed(self, request: Request, error: Exception, *, contained: bool) -> None:
        """Decide whether a failure concerns its request alone."""
        intact = self._writer.connection.in_transaction
        if intact and contained:
            request.error = error
        elif intact:
            # It may succeed in a savepoint's fresh view, or fail on its own there.
            raise _Spoilt from error
        else:
            # SQLite undid the whole transaction: this one is to blame, the others run again.
            request.error = error
            request.blamed = True
            raise _Spoilt from error

    def _call_hooks(self, request: Request) -> None:
        try:
            self._writer.run_hooks(request.hooks or ())
        except Exception as error:  # noqa: BLE001  (loud, and only for its own caller)
            request.error = error


def commit_or_undo(writer: Writer) -> None:
    try:
        writer.commit()
    except BaseException:
        if writer.transaction is not None:
            writer.rollback()
        raise
