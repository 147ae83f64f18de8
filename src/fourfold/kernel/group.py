"""Group commit: concurrent callers share one transaction and one fsync, and nobody waits for a
timer.

There is no writer thread. The caller who finds the writer free *leads*: it runs its own request and
all that are queued in one transaction. Those who arrive meanwhile queue up and ride the next
commit. A leader whose own request is done hands the turn to the first in the queue.
So an idle caller commits at once on its own thread, and a crowd pays one fsync for many.

    caller ──> queue ──> [ BEGIN  work  work  work ...  COMMIT ] ──> each caller its own result or
    error

One bad request never fails its neighbours. A request that raises before it wrote anything is simply
left out. One that raises after it wrote spoils the transaction: all of it is rolled back and run
again, each request in a savepoint of its own. Work must therefore be repeatable: it may run more
than once, and may have no effect but through its transaction.

The queue is bounded in requests and in bytes; when it is full the caller gets Overloaded, and
nothing was written.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from fourfold import limits
from fourfold.errors import (
    Closed,
    Conflict,
    DeadlineExceeded,
    DiskFull,
    FourfoldError,
    InvalidInput,
    LockTimeout,
    Overloaded,
)
from fourfold.kernel import faults
from fourfold.kernel.requests import LoopRequest, Request, ThreadRequest, Work, settle
from fourfold.kernel.threads import commit_threads
from fourfold.kernel.transaction import Transaction
from fourfold.kernel.writer import Writer

Placement = Literal["auto", "inline", "thread"]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How much one transaction and the queue may hold, and where commits of coroutines run."""

    group_requests_max: int = limits.GROUP_REQUESTS_MAX
    group_bytes_max: int = limits.GROUP_BYTES_MAX
    queue_requests_max: int = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    placement: Placement = "auto"


class _Spoilt(Exception):
    """A request wrote and then failed: the shared transaction must be done again without it, or
    with savepoints.
    """


class GroupCommit:
    """The queue in front of a Writer."""

    def __init__(self, writer: Writer, bounds: GroupLimits) -> None:
        self._writer = writer
        self._bounds = bounds
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._exclusive_waiters = 0
        self._cautious = 0
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._closed = False
        self._counters = threading.Lock()

    @property
    def queued_requests(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    # Callers

    def submit(self, work: Work, size: int, deadline: float) -> Any:
        """From a thread: run `work` in a shared transaction; its result once that is committed."""
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        request = ThreadRequest(work, size, deadline)
        self._enqueue(request)
        self._lead(request)
        while not request.settled:
            left = deadline - time.monotonic()
            if left <= 0 and self._withdraw(request):
                # This thread may have been poked to lead; somebody else must be.
                self._poke()
                raise self._too_late()
            # Looking up once a second heals a wake-up lost to an event loop that stopped running.
            request.wait(min(max(left, 0.01), 1.0))
            self._lead(request)
        if request.error is not None:
            raise request.error
        return request.result

    def submit_async(self, work: Work, size: int, deadline: float) -> asyncio.Future[Any]:
        """From a coroutine: the same, without blocking the event loop for longer than a commit
        takes.
        """
        loop = asyncio.get_running_loop()
        request = LoopRequest(work, size, deadline, loop)
        self._enqueue(request)
        if loop not in self._scheduled:
            self._scheduled.add(loop)
            loop.call_soon(self._flush, loop)
        return request.future

    @contextmanager
    def exclusive(self, deadline: float) -> Iterator[None]:
        """Hold the turn for something other than a group: a long transaction, a checkpoint, a
        vacuum.
        """
        self._writer.refuse_inside_a_transaction()
        with self._counters:
            self._exclusive_waiters += 1
        try:
            timeout = min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
            got = self._writer.turn.acquire(timeout=timeout)
        finally:
            with self._counters:
                self._exclusive_waiters -= 1
        if not got:
            self._poke()
            raise LockTimeout(f"{self._writer.subject}: another thread kept writing for too long")
        try:
            if self._closed:
                raise Closed(f"{self._writer.subject}: the database is closed")
            yield
        finally:
            try:
                if self._exclusive_waiters and self._queue:
                    # Between two that write alone come those who share, or they never would.
                    self._run_group(None)
            finally:
                self._release_turn()

    @contextmanager
    def transaction(self, deadline: float) -> Iterator[Transaction]:
        """A transaction of its own, or, inside one of this thread's, a savepoint of that."""
        writer = self._writer
        if writer.owner == threading.get_ident() and writer.transaction is not None:
            with writer.transaction.savepoint() as step:
                yield step
            return
        with self.exclusive(deadline):
            try:
                txn = writer.begin(deadline)
                yield txn
                txn._refuse_if_undone()  # noqa: SLF001
            except BaseException:
                writer.rollback()
                raise
            hooks = txn._after_commit  # noqa: SLF001
            self._commit_or_undo()
            writer.metrics.requests += 1
            writer.run_hooks(hooks or ())

    def close(self) -> None:
        """Refuse new requests, and finish those that are queued."""
        with self._counters:
            self._closed = True
        deadline = time.monotonic() + limits.TRANSACTION_DEADLINE_S
        while self._queue and time.monotonic() < deadline:
            if self._writer.turn.acquire(timeout=0.05):
                try:
                    self._run_group(None)
                finally:
                    self._writer.turn.release()
        with self._counters:
            left = list(self._queue)
            self._queue.clear()
        for request in left:
            request.error = Closed(f"{self._writer.subject}: the database is closed")
        settle(left, None)

    # The queue

    def _enqueue(self, request: Request) -> None:
        if self._writer.failure is not None:
            raise self._writer.failure.copy()
        bounds = self._bounds
        if request.size > bounds.group_bytes_max:
            raise InvalidInput(
                f"{self._writer.subject}: one request of {request.size} bytes is more than a "
                f"transaction takes ({bounds.group_bytes_max})",
                hint="Split the write, or raise `kernel.group_bytes_max`.",
            )
        with self._counters:
            if self._closed:
                raise Closed(f"{self._writer.subject}: the database is closed")
            if (
                len(self._queue) >= bounds.queue_requests_max
                or self._queued_bytes + request.size > bounds.queue_bytes_max
            ):
                self._writer.metrics.rejected += 1
                raise Overloaded(
                    f"{self._writer.subject}: {len(self._queue)} requests and {self._queued_bytes} "
                    "bytes are waiting to be committed",
                    retry_after=limits.OVERLOAD_RETRY_AFTER_S,
                )
            self._queued_bytes += request.size
            self._queue.append(request)

    def _withdraw(self, request: Request) -> bool:
        """Take a request back that has not been started; False when it is too late for that."""
        with self._counters:
            try:
                self._queue.remove(request)
            except ValueError:
                return False
            self._queued_bytes -= request.size
            return True

    def _take_group(self) -> list[Request]:
        bounds = self._bounds
        queue = self._queue
        with self._counters:
            if (
                len(queue) <= bounds.group_requests_max
                and self._queued_bytes <= bounds.group_bytes_max
            ):
                group = list(queue)
                queue.clear()
                self._queued_bytes = 0
                return group
            group = []
            size = 0
            while queue and len(group) < bounds.group_requests_max:
                size += queue[0].size
                if group and size > bounds.group_bytes_max:
                    break
                request = queue.popleft()
                self._queued_bytes -= request.size
                group.append(request)
        return group

    # Leading

    def _lead(self, own: ThreadRequest) -> None:
        """Run groups until the own request is settled, if the turn is free; then see that somebody
        goes on.
        """
        turn = self._writer.turn
        while not own.settled and not self._exclusive_waiters and turn.acquire(blocking=False):
            try:
                while not own.settled and self._queue and not self._exclusive_waiters:
                    self._run_group(None)
            finally:
                self._release_turn()

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop's thread: commit what its coroutines queued since the last look."""
        self._scheduled.discard(loop)
        if not self._queue:
            return
        if not self._exclusive_waiters:
            if self._too_slow_for_a_loop():
                commit_threads().submit(self._flush_in_thread)
            elif self._writer.turn.acquire(blocking=False):
                try:
                    self._run_group(loop)
                finally:
                    self._release_turn(loop)
        if self._queue and loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(limits.QUEUE_LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """While coroutines of `loop` wait for the turn: tell those whose deadline passed, and heal
        a wake-up lost to another loop that stopped running.
        """
        self._watching.discard(loop)
        now = time.monotonic()
        with self._counters:
            waiting = [each for each in self._queue if getattr(each, "loop", None) is loop]
            late = [each for each in waiting if now > each.deadline]
            for request in late:
                self._queue.remove(request)
                self._queued_bytes -= request.size
                request.error = self._too_late()
        settle(late, loop)
        if len(waiting) > len(late):
            self._schedule(loop)

    def _flush_in_thread(self) -> None:
        turn = self._writer.turn
        while self._queue and not self._exclusive_waiters and turn.acquire(blocking=False):
            try:
                while self._queue and not self._exclusive_waiters:
                    self._run_group(None)
            finally:
                self._release_turn()

    def _too_slow_for_a_loop(self) -> bool:
        if self._bounds.placement == "auto":
            return self._writer.commit_seconds * 1000 > limits.INLINE_COMMIT_MS_MAX
        return self._bounds.placement == "thread"

    def _release_turn(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Whoever releases the turn over a queue that is not empty makes sure that somebody takes
        it up.
        """
        self._writer.turn.release()
        self._poke(here)

    def _poke(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        while True:
            try:
                head = self._queue[0]
            except IndexError:
                return
            if isinstance(head, ThreadRequest):
                head.wake()
                return
            assert isinstance(head, LoopRequest)
            try:
                if head.loop is here:
                    self._schedule(here)
                else:
                    head.loop.call_soon_threadsafe(self._schedule, head.loop)
            except RuntimeError:
                # Its loop is closed; what nobody waits for any more is withdrawn.
                self._withdraw(head)
                continue
            return

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._scheduled:
            self._scheduled.add(loop)
            loop.call_soon(self._flush, loop)

    # Running

    def _run_group(self, here: asyncio.AbstractEventLoop | None) -> None:
        """One transaction for as many queued requests as fit. The caller holds the turn."""
        group = self._take_group()
        now = time.monotonic()
        runnable = [request for request in group if self._is_wanted(request, now)]
        try:
            if runnable:
                self._commit_group(runnable)
        except FourfoldError as error:
            for request in runnable:
                request.reset()
                request.error = error.copy()
        except BaseException as error:
            # The leading thread is being stopped; nobody in the group may be left waiting.
            for request in runnable:
                request.reset()
                request.error = Closed(
                    f"{self._writer.subject}: the writer was interrupted: {error!r}"
                )
            raise
        finally:
            try:
                if faults.armed:
                    faults.hit("kernel.acknowledge.before")
            finally:
                settle(group, here)

    def _is_wanted(self, request: Request, now: float) -> bool:
        if isinstance(request, LoopRequest) and request.future.cancelled():
            return False
        if now > request.deadline:
            request.error = self._too_late()
            return False
        return True

    def _too_late(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"{self._writer.subject}: the deadline passed while the write was queued"
        )

    def _commit_group(self, group: list[Request]) -> None:
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
                # They do not fit together, or one breaks what only COMMIT checks: one by one, then.
                for request in left:
                    request.reset()
                    self._commit_alone(request)
            return

    def _commit_alone(self, request: Request) -> None:
        try:  # An error is for this one only: those before it may be committed already.
            self._commit_group([request])
        except FourfoldError as error:
            request.reset()
            request.error = error

    def _attempt(self, group: list[Request], *, guarded: bool) -> None:
        writer = self._writer
        try:
            txn = writer.begin(max(request.deadline for request in group))
            for request in group:
                writer.deadline = request.deadline
                self._run_one(txn, request, guarded=guarded, alone=len(group) == 1)
        except BaseException:
            writer.rollback()
            raise
        done = [request for request in group if request.error is None]
        if not done:
            writer.rollback()
            return
        self._commit_or_undo()
        writer.metrics.requests += len(done)
        for request in done:
            if request.hooks is not None:
                self._call_hooks(request)

    def _run_one(self, txn: Transaction, request: Request, *, guarded: bool, alone: bool) -> None:
        txn._touched = False  # noqa: SLF001
        txn._after_commit = None  # noqa: SLF001
        connection = self._writer.connection
        before = connection.total_changes()
        try:
            if guarded:
                with txn.savepoint():
                    request.result = request.work(txn)
            else:
                request.result = request.work(txn)
        except Exception as error:
            harmless = not txn._touched and connection.total_changes() == before  # noqa: SLF001
            intact = connection.in_transaction
            if intact and (guarded or harmless or alone):
                request.error = error
            elif intact:
                # It may succeed in a savepoint's fresh view, or fail on its own there.
                raise _Spoilt from error
            else:
                # SQLite undid the whole transaction: this one is to blame, the others run again.
                request.error = error
                request.blamed = True
                raise _Spoilt from error
        else:
            request.hooks = txn._after_commit  # noqa: SLF001
            if txn._undone is not None:  # noqa: SLF001
                # It took an error for its own affair that undid everybody's work.
                request.error = txn._undone  # noqa: SLF001
                request.blamed = True
                raise _Spoilt from txn._undone  # noqa: SLF001

    def _commit_or_undo(self) -> None:
        try:
            self._writer.commit()
        except BaseException:
            if self._writer.transaction is not None:
                self._writer.rollback()
            raise

    def _call_hooks(self, request: Request) -> None:
        try:
            self._writer.run_hooks(request.hooks or ())
        except Exception as error:  # noqa: BLE001  (loud, and only for its own caller)
            request.error = error

    def _nested(self, work: Work) -> Any:
        """Work submitted from inside a transaction of the same thread becomes a step of it."""
        with self._writer.running().savepoint() as step:
            return work(step)
