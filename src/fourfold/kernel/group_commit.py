"""Group commit: concurrent callers share one transaction and one fsync, without a timer.

There is no writer thread. A caller that finds the writer free becomes the *leader*: it runs its own
request and all queued ones in one transaction. Requests that arrive meanwhile are queued for the
next commit. A leader whose own request is completed wakes the first caller in the queue to lead.
So a single caller commits at once on its own thread, and many callers share one fsync.

    caller ──> queue ──> [ BEGIN  work  work  work ...  COMMIT ] ──> each caller's result or error

Work may run more than once, so it may have no effects except through its transaction.

The queue is bounded in requests and in bytes. When it is full, the caller gets Overloaded, and
nothing was written.

Callers on an event loop queue like threads do, and the loop commits the queue in its next
iteration. Where several callers appended together recently, it waits for as many, but no longer
than until an iteration adds none. So callers that one commit completed share the next one, and a
single caller never waits for others.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from asyncio import get_running_loop
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal

from fourfold import limits
from fourfold.errors import (
    Closed,
    DeadlineExceeded,
    FourfoldError,
    LockTimeout,
    Overloaded,
    Refused,
    TooLarge,
)
from fourfold.kernel import commit_traces
from fourfold.kernel.commit_request import (
    BatchRequest,
    BatchWork,
    CommitRequest,
    FutureBatch,
    FutureRequest,
    LoopRequest,
    LowPriorityRequest,
    OnOutcome,
    ThreadRequest,
    WakeUps,
    Work,
    commit_threads,
    complete,
)
from fourfold.kernel.group_runner import GroupRunner, commit_or_rollback, deadline_error
from fourfold.kernel.transaction import Transaction
from fourfold.kernel.writer import Writer

OVERLOAD_RETRY_AFTER_S: Final = 0.1
QUEUE_LOOK_S: Final = 0.1
"""Interval at which deadlines are checked while coroutines wait for the writer."""
INLINE_COMMIT_MS_MAX: Final = 4.0
"""Commits that take longer on average move from the event loop to a thread."""


_open: ContextVar[tuple[Transaction, ...]] = ContextVar("open_transactions", default=())
"""Transactions that the current task, or the one that started it, has opened with `write`."""


Placement = Literal["auto", "inline", "thread"]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Bounds of one transaction and of the queue, and the thread that commits for coroutines."""

    group_requests_max: int = limits.GROUP_REQUESTS_MAX
    group_bytes_max: int = limits.GROUP_BYTES_MAX
    queue_requests_max: int = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    placement: Placement = "auto"


class GroupCommit:
    """The queue of requests to a Writer."""

    def __init__(self, writer: Writer, bounds: GroupLimits) -> None:
        self._writer = writer
        self._bounds = bounds
        self._group_requests_max = bounds.group_requests_max
        self._group_bytes_max = bounds.group_bytes_max
        self._queue_bytes_max = bounds.queue_bytes_max
        self._queue_requests_max = bounds.queue_requests_max
        self._small_bytes = min(bounds.group_bytes_max, bounds.queue_bytes_max)
        self._small_requests = min(bounds.group_requests_max, bounds.queue_requests_max)
        """Up to these, all that is queued fits into one transaction, and more may be queued."""
        self._queue: deque[CommitRequest] = deque()
        self._batches: dict[asyncio.AbstractEventLoop, BatchRequest | FutureBatch] = {}
        """The request in the queue that a loop may still add items to."""
        self.queued_requests = 0
        """Number of callers that wait for a commit."""
        self.queued_bytes = 0
        """Size of what they write."""
        self._exclusive_waiters = 0
        self._wake_ups = WakeUps()
        self._runner = GroupRunner(writer, self._wake_ups)
        self._recent_group_size = 0
        """Approximate number of requests in the latest groups of threads."""
        self._recent_loop_size = 0
        """Approximate number of callers in the latest groups of event loops."""
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._closed = False
        self._counters = threading.Lock()

    # Callers

    def submit(self, work: Work, size: int, deadline: float) -> Any:
        """Run `work` in a shared transaction; return its result after the commit. For threads."""
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        if self._is_quiet(size) and self._writer.lock.acquire(blocking=False):
            try:
                self._recent_group_size = 0
                return self._runner.run_alone(work, deadline)
            finally:
                self._release()
        request = ThreadRequest(work, size, deadline)
        self._enqueue(request)
        return self._wait_for_result(request)

    def submit_low_priority(
        self, work: Work, size: int, deadline: float, join_wait_s: float
    ) -> Any:
        """Let the next commit of another caller include `work`; return its result.

        If there is none within `join_wait_s`, this thread commits it itself.
        """
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        request = LowPriorityRequest(work, size, deadline)
        self._enqueue(request)
        try:
            request.wait(min(join_wait_s, max(deadline - time.monotonic(), 0.0)))
        finally:
            request.low_priority = False
        return self._wait_for_result(request)

    def _wait_for_result(self, request: ThreadRequest) -> Any:
        """Return the result of a queued request; lead a group if necessary."""
        try:
            self._lead(request)
            while not request.completed:
                self._wait(request)
        finally:
            if self._wake_ups.wake_next(request):
                self._wake_leader()
        if request.error is not None:
            raise request.error
        return request.result

    def _wait(self, request: ThreadRequest) -> None:
        """Wait until `request` is completed or this thread has to lead, and then lead."""
        left = request.deadline - time.monotonic()
        if left <= 0 and self._withdraw(request):
            # This thread may have been woken to lead; another one must be.
            self._wake_leader()
            raise self._deadline_error()
        # Checking once a second recovers a wake-up lost to a stopped event loop or an
        # interrupted thread.
        if not request.wait(min(max(left, 0.01), 1.0)):
            self._wake_ups.reset()
        self._lead(request)

    def submit_async(self, work: Work, size: int, deadline: float) -> asyncio.Future[Any]:
        """Run `work` in a shared transaction; the future has its result. For coroutines.

        Blocks the event loop for the time of a commit at most.
        """
        loop = get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._writer.transaction is not None:
            self._check_not_in_own_transaction()
        entry = (work, size, deadline, future)
        with self._counters:
            # This is a hot path: an open batch implies an open and sound database, and while all
            # that is queued fits into one transaction, so does a batch of it.
            batch, queued_bytes = self._batches.get(loop), self.queued_bytes + size
            if (
                type(batch) is FutureBatch
                and queued_bytes <= self._small_bytes
                and self.queued_requests < self._small_requests
            ):
                batch.entries.append(entry)
                self.queued_bytes = queued_bytes
                self.queued_requests += 1
                return future
        if commit_traces.armed:
            # The trace of a commit is for the callers of a request, so this one is not shared.
            self._enqueue(FutureRequest(work, size, deadline, loop=loop, future=future))
        else:
            self._enqueue(FutureBatch.begin(entry, loop))
        if loop not in self._scheduled:
            self._schedule(loop)
        return future

    def submit_item(  # noqa: PLR0917 - an item, and how it is written
        self,
        run: BatchWork,
        item: object,
        on_outcome: OnOutcome,
        size: int,
        deadline_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Add `item` to those that one call of `run` writes. Call it on the thread of `loop`.

        The deadline of the first item is that of all.
        """
        if self._writer.transaction is not None:
            self._check_not_in_own_transaction()
        with self._counters:
            batch = self._batches.get(loop)
            # This is the hot path of a server: an open batch implies an open and sound database.
            if (
                type(batch) is BatchRequest
                and batch.run == run
                and batch.count < self._group_requests_max
                and batch.size + size <= self._group_bytes_max
                and self.queued_bytes + size <= self._queue_bytes_max
                and self.queued_requests < self._queue_requests_max
            ):
                batch.add(item, on_outcome, size)
                if commit_traces.armed:
                    commit_traces.attach(batch)
                self.queued_bytes += size
                self.queued_requests += 1
                return
        batch = BatchRequest.begin(run, time.monotonic() + deadline_s, loop)
        batch.add(item, on_outcome, size)
        self._enqueue(batch)
        self._schedule(loop)

    @contextmanager
    def exclusive(self, deadline: float) -> Iterator[None]:
        """Hold the writer's lock for a long transaction, a checkpoint or a vacuum."""
        self._writer.check_not_in_transaction()
        self._check_not_in_own_transaction()
        with self._counters:
            self._exclusive_waiters += 1
        try:
            timeout = min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
            acquired = self._writer.lock.acquire(timeout=timeout)
        finally:
            with self._counters:
                self._exclusive_waiters -= 1
        if not acquired:
            self._wake_leader()
            raise LockTimeout(f"{self._writer.subject}: timed out while another thread was writing")
        try:
            if self._closed:
                raise Closed(f"{self._writer.subject}: the database is closed")
            yield
        finally:
            try:
                if self._exclusive_waiters and self._queue:
                    # Run a group between two exclusive writers, so that the queue is not starved.
                    self._run_group(None)
            finally:
                self._release()

    @contextmanager
    def transaction(self, deadline: float) -> Iterator[Transaction]:
        """Open a transaction, or a savepoint inside this thread's open transaction."""
        writer = self._writer
        if writer.owner == threading.get_ident() and writer.transaction is not None:
            with writer.transaction.savepoint() as step:
                yield step
            return
        with self.exclusive(deadline):
            try:
                txn = writer.begin(deadline)
                _open.set((*_open.get(), txn))
                try:
                    yield txn
                finally:
                    _open.set(tuple(other for other in _open.get() if other is not txn))
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
                writer.run_hooks(hooks or ())
            finally:
                writer.run_acknowledged()

    def _check_not_in_own_transaction(self) -> None:
        """Raise Refused if the caller would wait for the end of a transaction of its own task."""
        if self._writer.transaction is not None and self._writer.transaction in _open.get():
            raise Refused(
                f"{self._writer.subject}: cannot await a write inside a transaction of the task",
                hint="Call the variant without `_async`, which joins the transaction.",
            )

    def close(self) -> None:
        """Reject new requests, and complete the queued ones."""
        with self._counters:
            self._closed = True
            self._seal_batches()
        deadline = time.monotonic() + limits.TRANSACTION_DEADLINE_S
        while self._queue and time.monotonic() < deadline:
            if self._writer.lock.acquire(timeout=0.05):
                try:
                    self._run_group(None)
                finally:
                    self._writer.lock.release()
        with self._counters:
            remaining = list(self._queue)
            for request in remaining:
                self._remove(request)
                request.error = Closed(f"{self._writer.subject}: the database is closed")
        complete(remaining, None, self._wake_ups)

    # The queue

    def _is_quiet(self, size: int) -> bool:
        """Return True if a caller is alone and need not use the queue."""
        return (
            self._recent_group_size <= 1
            and not self._queue
            and not self._exclusive_waiters
            and not self._closed
            and size <= self._group_bytes_max
        )

    def _enqueue(self, request: CommitRequest) -> None:
        """Queue a request. This is the hot path of every write that waits: keep it short."""
        if self._writer.transaction is not None:
            self._check_not_in_own_transaction()
        size = request.size
        if commit_traces.armed:
            commit_traces.attach(request)
        with self._counters:
            if (
                self._closed
                or size > self._group_bytes_max
                or self.queued_bytes + size > self._queue_bytes_max
                or self.queued_requests >= self._queue_requests_max
                or self._writer.failure is not None
            ):
                raise self._rejection(size)
            if type(request) is BatchRequest or type(request) is FutureBatch:
                batch = self._batches.get(request.loop)
                if type(batch) is FutureBatch:
                    batch.seal()
                self._batches[request.loop] = request
            elif self._batches:
                # What a batch would still collect comes after this request.
                self._seal_batches()
            self._queue.append(request)
            self.queued_requests += 1
            self.queued_bytes += size

    def _seal_batches(self) -> None:
        """Let no batch get more items. The caller holds `_counters`."""
        for batch in self._batches.values():
            if type(batch) is FutureBatch:
                batch.seal()
        self._batches.clear()

    def _rejection(self, size: int) -> FourfoldError:
        """Return the error for a request of `size` bytes that cannot be queued."""
        subject, bounds = self._writer.subject, self._bounds
        if self._writer.failure is not None:
            return self._writer.failure.copy()
        if self._closed:
            return Closed(f"{subject}: the database is closed")
        if size > bounds.group_bytes_max:
            return TooLarge(
                f"{subject}: request must have at most {bounds.group_bytes_max} bytes, got {size}",
                hint="Split the write, or raise `kernel.group_bytes_max`.",
            )
        self._writer.metrics.rejected += 1
        return Overloaded(
            f"{subject}: {self.queued_requests} requests and {self.queued_bytes} "
            "bytes are waiting to be committed",
            retry_after=OVERLOAD_RETRY_AFTER_S,
        )

    def _withdraw(self, request: CommitRequest) -> bool:
        """Remove a request from the queue; return False if it has started."""
        with self._counters:
            if request not in self._queue:
                return False
            self._remove(request)
            return True

    def _remove(self, request: CommitRequest) -> None:
        """Remove a request from the queue, which ends all batches. The caller holds `_counters`."""
        self._seal_batches()
        self._queue.remove(request)
        self.queued_requests -= request.count
        self.queued_bytes -= request.size

    def _dequeue_group(self) -> list[CommitRequest]:
        """Remove and return as many requests as fit into a transaction."""
        queue, count_max, size_max = self._queue, self._group_requests_max, self._group_bytes_max
        group: list[CommitRequest] = []
        count = size = 0
        with self._counters:
            self._seal_batches()
            if self.queued_requests <= count_max and self.queued_bytes <= size_max:
                group.extend(queue)
                queue.clear()
                self.queued_requests = self.queued_bytes = 0
                return group
            while queue:
                request = queue[0]
                if group and (count + request.count > count_max or size + request.size > size_max):
                    break
                count += request.count
                size += request.size
                group.append(queue.popleft())
            self.queued_requests -= count
            self.queued_bytes -= size
        return group

    # Leading

    def _lead(self, own: ThreadRequest) -> None:
        """Run groups until `own` is completed, if the writer is free; then wake another leader."""
        lock = self._writer.lock
        while not own.completed and self._may_lead() and lock.acquire(blocking=False):
            try:
                while not own.completed and self._queue and not self._exclusive_waiters:
                    self._recent_group_size = max(len(self._queue), self._recent_group_size - 1)
                    self._run_group(None)
            finally:
                lock.release()
                if not self._wake_ups.in_progress:
                    self._wake_leader()

    def _may_lead(self) -> bool:
        """Return False while the last group is being woken, or an exclusive writer waits.

        Most woken threads have another request; the last of them wakes a leader.
        """
        return not (self._exclusive_waiters or self._wake_ups.in_progress)

    def _flush(self, loop: asyncio.AbstractEventLoop, seen: int = 0) -> None:
        """Commit the queue on the thread of `loop`, or on another one if commits are slow.

        Waits for another iteration of the loop while the queue, which had `seen` callers, grows
        towards its recent size.
        """
        count = self.queued_requests
        if seen < count < self._recent_loop_size:
            loop.call_soon(self._flush, loop, count)
            return
        self._scheduled.discard(loop)
        if not count:
            return
        self._recent_loop_size = max(count, self._recent_loop_size - 1)
        if not self._exclusive_waiters:
            if self._too_slow_for_a_loop():
                commit_threads().submit(self._flush_in_thread)
            elif self._writer.lock.acquire(blocking=False):
                try:
                    self._run_group(loop)
                finally:
                    self._release(loop)
        if self._queue and loop not in self._watching:
            self._watching.add(loop)
            loop.call_later(QUEUE_LOOK_S, self._check_queue, loop)

    def _check_queue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail late requests of `loop`, and recover a wake-up lost to a stopped loop.

        Runs periodically while coroutines of `loop` wait.
        """
        self._watching.discard(loop)
        now = time.monotonic()
        with self._counters:
            waiting = [request for request in self._queue if getattr(request, "loop", None) is loop]
            late = [request for request in waiting if now > request.deadline]
            for request in late:
                self._remove(request)
            self._seal_batches()
            for batch in waiting:
                if type(batch) is FutureBatch:
                    late += self._remove_late(batch, now)
            for request in late:
                request.error = self._deadline_error()
        complete(late, loop, self._wake_ups)
        if len(waiting) > len(late):
            self._schedule(loop)

    def _remove_late(self, batch: FutureBatch, now: float) -> list[FutureRequest]:
        """Remove the late coroutines of a queued batch. The caller holds `_counters`."""
        late = batch.remove_late(now)
        self.queued_requests -= len(late)
        self.queued_bytes -= sum(request.size for request in late)
        if not batch.entries:
            self._remove(batch)
        return late

    def _flush_in_thread(self) -> None:
        lock = self._writer.lock
        while self._queue and not self._exclusive_waiters and lock.acquire(blocking=False):
            try:
                while self._queue and not self._exclusive_waiters:
                    self._run_group(None)
            finally:
                self._release()

    def _too_slow_for_a_loop(self) -> bool:
        if self._bounds.placement == "auto":
            return self._writer.commit_seconds * 1000 > INLINE_COMMIT_MS_MAX
        return self._bounds.placement == "thread"

    def _release(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Release the writer's lock, and wake a leader if requests are queued."""
        self._writer.lock.release()
        if self._queue:
            self._wake_leader(here)

    def _wake_leader(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        while True:
            # A low-priority thread leads by itself, later.
            head = next(
                (request for request in tuple(self._queue) if not request.low_priority), None
            )
            if head is None:
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
                # Its loop is closed, so its caller is gone.
                self._withdraw(head)
                continue
            return

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        scheduled = self._scheduled
        if loop not in scheduled:
            scheduled.difference_update([other for other in list(scheduled) if other.is_closed()])
            scheduled.add(loop)
            loop.call_soon(self._flush, loop)

    def _run_group(self, here: asyncio.AbstractEventLoop | None) -> None:
        """Commit as many queued requests as fit. The caller holds the writer's lock."""
        self._runner.run(self._dequeue_group(), here)

    def _deadline_error(self) -> DeadlineExceeded:
        return deadline_error(self._writer.subject)

    def _nested(self, work: Work) -> Any:
        """Run work that was submitted inside a transaction of this thread as a savepoint."""
        with self._writer.running().savepoint() as step:
            return work(step)
