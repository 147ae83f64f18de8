"""Runs a group of requests in one transaction, and gives each its outcome.

A failing request never fails the others of its group. A request that raises before it wrote
anything is left out. If it raises after a write, the whole transaction is rolled back and run
again, each request in its own savepoint. If SQLite itself rolled back the transaction, the request
at fault is removed and the others run again. Coroutines of a loop share a request, which is split
into one for each of them before any of this is done to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from fourfold.errors import Closed, Conflict, DeadlineExceeded, DiskFull, FourfoldError
from fourfold.kernel import commit_traces, failpoints
from fourfold.kernel.commit_request import (
    CommitRequest,
    FutureBatch,
    FutureRequest,
    WakeUps,
    Work,
    complete,
)
from fourfold.kernel.transaction import Transaction
from fourfold.kernel.writer import Writer

CAUTIOUS_GROUPS: Final = 16
"""Groups with a savepoint per request after one request spoilt a shared transaction."""


class _GroupFailed(Exception):
    """A request failed after a write: the group must run again without it, or with savepoints."""


class _BatchFailed(Exception):
    """The work of a coroutine failed after a write: its batch must be split and run again."""


def deadline_error(subject: str) -> DeadlineExceeded:
    """Return the error of a request whose deadline passed in the queue."""
    return DeadlineExceeded(f"{subject}: the deadline passed while the write was queued")


class GroupRunner:
    """Runs groups of requests. The caller holds the lock of the writer."""

    def __init__(self, writer: Writer, wake_ups: WakeUps) -> None:
        self._writer = writer
        self._wake_ups = wake_ups
        self._cautious = 0
        """Number of following groups that run in savepoints, because an earlier one failed."""
        self._splitting = 0
        """Number of following groups without batches of coroutines, because one was split."""

    def run(self, group: Sequence[CommitRequest], here: asyncio.AbstractEventLoop | None) -> None:
        """Run all requests of `group` and complete them. `here` is the loop of this thread."""
        runnable = self._runnable(group)
        try:
            if runnable:
                self._commit(runnable)
        except FourfoldError as error:
            self._fail_all(runnable, error)
        except BaseException as error:
            self._fail_all(runnable, error)
            raise
        finally:
            try:
                if failpoints.armed:
                    failpoints.hit("kernel.acknowledge.before")
            finally:
                complete(group, here, self._wake_ups)
                if self._writer.acknowledged:
                    self._writer.run_acknowledged()

    def run_alone(self, work: Work, deadline: float) -> Any:
        """Run and commit `work` in its own transaction; return its result."""
        writer = self._writer
        try:
            txn = writer.begin(deadline)
            result = work(txn)
            txn._check_not_rolled_back()  # noqa: SLF001
        except BaseException:
            writer.rollback()
            raise
        hooks = txn._after_commit  # noqa: SLF001
        commit_or_rollback(writer)
        writer.metrics.record_group(1, 1)
        if commit_traces.armed:
            commit_traces.add_own(writer)
        try:
            if hooks:
                writer.run_hooks(hooks)
        finally:
            if failpoints.armed:
                failpoints.hit("kernel.acknowledge.before")
            if writer.acknowledged:
                # The caller is this thread; it returns after these hooks.
                writer.run_acknowledged()
        return result

    def _fail_all(self, requests: Sequence[CommitRequest], error: BaseException) -> None:
        """Set one error for all requests, so that no caller waits for an interrupted leader."""
        for request in requests:
            request.reset()
            request.error = (
                error.copy()
                if isinstance(error, FourfoldError)
                else Closed(f"{self._writer.subject}: the writer was interrupted by {error!r}")
            )

    def _runnable(self, group: Sequence[CommitRequest]) -> list[CommitRequest]:
        """Return the requests that are neither late nor cancelled."""
        now = time.monotonic()
        for request in group:
            if request.deadline < now:
                request.error = deadline_error(self._writer.subject)
        return [
            request
            for request in group
            if request.error is None
            and (type(request) is not FutureRequest or not request.future.cancelled())
        ]

    def _commit(self, group: list[CommitRequest]) -> None:
        """Run and commit the group, in as few transactions as its errors allow."""
        guarded = self._cautious > 0
        self._cautious = max(0, self._cautious - 1)
        left = group
        if guarded or self._splitting:
            self._splitting = max(0, self._splitting - 1)
            left = self._split(group)
        while left:
            try:
                self._attempt(left, guarded=guarded and len(left) > 1)
            except _GroupFailed:
                guarded = True
                self._cautious = CAUTIOUS_GROUPS
                left = [request for request in left if not request.blamed]
                for request in left:
                    request.reset()
                continue
            except _BatchFailed:
                self._splitting = CAUTIOUS_GROUPS
                left = self._split(left)
                for request in left:
                    request.reset()
                continue
            except (DiskFull, Conflict) as error:
                left = self._split(left)
                if len(left) == 1:
                    left[0].reset()
                    left[0].error = error
                    return
                self._commit_separately(left)
            return

    def _split(self, group: list[CommitRequest]) -> list[CommitRequest]:
        """Return a group without batches of coroutines: the requests that they consist of."""
        split: list[CommitRequest] = []
        for request in group:
            if type(request) is FutureBatch:
                split += self._runnable(request.split())
            else:
                split.append(request)
        return split

    def _commit_separately(self, group: list[CommitRequest]) -> None:
        """Commit each request alone, after a full disk or a conflict at COMMIT."""
        for request in group:
            request.reset()
            try:  # The error belongs to this request: earlier ones may be committed already.
                self._commit([request])
            except FourfoldError as error:
                request.reset()
                request.error = error

    def _attempt(self, group: list[CommitRequest], *, guarded: bool) -> None:
        writer = self._writer
        try:
            # Each request has its own deadline, set when it runs.
            txn = writer.begin(float("inf"))
            self._run_all(txn, group, guarded=guarded)
        except BaseException:
            writer.rollback()
            raise
        if not any(request.error is None and request.count for request in group):
            writer.rollback()
            return
        commit_or_rollback(writer)
        requests = items = 0
        for request in group:
            if request.error is None:
                items += request.count
                if type(request) is FutureBatch:
                    requests += request.count
                    self._call_batch_hooks(request)
                    continue
                requests += 1
                if request.hooks is not None:
                    self._call_hooks(request)
        writer.metrics.record_group(requests, items)
        if commit_traces.armed:
            commit_traces.add(writer, group, items)

    def _run_all(self, txn: Transaction, group: list[CommitRequest], *, guarded: bool) -> None:
        """Run every request of a group. This is the hot loop of every write: keep it short."""
        writer = self._writer
        total_changes = writer.connection.total_changes
        for request in group:
            if type(request) is FutureBatch:
                self._run_batch(txn, request)
                continue
            writer.deadline = request.deadline
            txn._touched = False  # noqa: SLF001
            before = total_changes()
            try:
                if guarded:
                    with txn.savepoint():
                        request.result = request.work(txn)
                else:
                    request.result = request.work(txn)
            except Exception as error:  # noqa: BLE001  (any error belongs to its caller)
                if txn._after_commit is not None:  # noqa: SLF001
                    # The scratch may hold notes for hooks that will not run.
                    txn._after_commit = None  # noqa: SLF001
                    txn.scratch.clear()
                harmless = not txn._touched and total_changes() == before  # noqa: SLF001
                self._handle_failure(
                    request, error, contained=guarded or harmless or len(group) == 1
                )
            else:
                if txn._after_commit is not None:  # noqa: SLF001
                    request.hooks, txn._after_commit = txn._after_commit, None  # noqa: SLF001
                if txn._rollback_error is not None:  # noqa: SLF001
                    # It swallowed an error that rolled back the whole transaction.
                    request.error = txn._rollback_error  # noqa: SLF001
                    request.blamed = True
                    raise _GroupFailed from txn._rollback_error  # noqa: SLF001

    def _run_batch(self, txn: Transaction, batch: FutureBatch) -> None:
        """Run the work of several coroutines. Like `_run_all`, keep this short."""
        writer = self._writer
        total_changes = writer.connection.total_changes
        results: list[Any] = []
        keep = results.append
        now = time.monotonic()
        for work, _, deadline, future in batch.entries:
            if deadline < now or future.done():
                # It is late, or was cancelled.
                batch.failed.append((future, deadline_error(writer.subject)))
                keep(None)
                continue
            writer.deadline = deadline
            txn._touched = False  # noqa: SLF001
            before = total_changes()
            try:
                keep(work(txn))
            except Exception as error:
                if txn._touched or total_changes() != before:  # noqa: SLF001
                    raise _BatchFailed from error
                if txn._after_commit is not None:  # noqa: SLF001
                    txn._after_commit = None  # noqa: SLF001
                    txn.scratch.clear()
                keep(None)
                batch.failed.append((future, error))
            if txn._after_commit is not None:  # noqa: SLF001
                batch.hooked.append((future, txn._after_commit))  # noqa: SLF001
                txn._after_commit = None  # noqa: SLF001
            if txn._rollback_error is not None:  # noqa: SLF001
                raise _BatchFailed
        batch.result = results
        batch.count = len(results) - len(batch.failed)

    def _call_batch_hooks(self, batch: FutureBatch) -> None:
        for future, hooks in batch.hooked:
            try:
                self._writer.run_hooks(hooks)
            except Exception as error:  # noqa: BLE001  (raised to its own caller only)
                batch.failed.append((future, error))

    def _handle_failure(self, request: CommitRequest, error: Exception, *, contained: bool) -> None:
        """Store the error of a request; raise _GroupFailed if the group must run again."""
        intact = self._writer.connection.in_transaction
        if intact and contained:
            request.error = error
        elif intact:
            # In a savepoint it may succeed, or fail alone.
            raise _GroupFailed from error
        else:
            # SQLite rolled back the transaction: exclude this request, run the others again.
            request.error = error
            request.blamed = True
            raise _GroupFailed from error

    def _call_hooks(self, request: CommitRequest) -> None:
        try:
            self._writer.run_hooks(request.hooks or ())
        except Exception as error:  # noqa: BLE001  (raised to its own caller only)
            request.error = error


def commit_or_rollback(writer: Writer) -> None:
    """Commit the writer's transaction; roll back what a failed commit leaves."""
    try:
        writer.commit()
    except BaseException:
        if writer.transaction is not None:
            writer.rollback()
        raise
