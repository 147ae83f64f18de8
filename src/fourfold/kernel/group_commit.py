"""Group commit: concurrent callers share one transaction and one fsync, without a timer.

There is no writer thread. A caller that finds the writer free becomes the *leader*: it runs its own
request and all queued ones in one transaction. Requests that arrive meanwhile are queued for the
next commit. A leader whose own request is completed wakes the first caller in the queue to lead.
So a single caller commits at once on its own thread, and many callers share one fsync.

    caller ──> queue ──> [ BEGIN  work  work  work ...  COMMIT ] ──> each caller's result or error

Work may run more than once, so it may have no effects except through its transaction.

The queue is bounded in requests and in bytes. When it is full, the caller gets Overloaded, and
nothing was written.

A failing request never fails the others of its group. A request that raises before it wrote
anything is left out. If it raises after a write, the whole transaction is rolled back and run
again, each request in its own savepoint. If SQLite itself rolled back the transaction, the request
at fault is removed and the others run again.

A group that comes entirely from the inbox of one loop is first run optimistically, without these
precautions; if anything fails, it is rolled back and run again as above.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from fourfold import limits
from fourfold.errors import (
    Closed,
    Conflict,
    DeadlineExceeded,
    DiskFull,
    FourfoldError,
    LockTimeout,
    Overloaded,
    TooLarge,
)
from fourfold.kernel import failpoints
from fourfold.kernel.commit_request import (
    Entry,
    Inbox,
    LoopRequest,
    PatientRequest,
    Request,
    ThreadRequest,
    WakeUps,
    Work,
    commit_threads,
    complete,
)
from fourfold.kernel.transaction import Transaction
from fourfold.kernel.writer import Writer

OVERLOAD_RETRY_AFTER_S: Final = 0.1
QUEUE_LOOK_S: Final = 0.1
"""Interval at which deadlines are checked while coroutines wait for the writer."""
INLINE_COMMIT_MS_MAX: Final = 4.0
"""Commits that take longer on average move from the event loop to a thread."""
CAUTIOUS_GROUPS: Final = 16
"""Groups with a savepoint per request after one request spoilt a shared transaction."""

Hooks = list[Callable[[], None]]


class _GroupFailed(Exception):
    """A request failed after a write: the group must run again without it, or with savepoints."""


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
        self._pessimistic = 0
        """Number of following groups that do not run optimistically."""

    def run(
        self,
        group: Sequence[Request],
        here: asyncio.AbstractEventLoop | None,
        *,
        separately: bool = False,
    ) -> None:
        """Run all requests of `group` and complete them; `separately`: a transaction for each."""
        runnable = self._runnable(group)
        try:
            if separately:
                self._commit_separately(runnable)
            elif runnable:
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
        writer.metrics.requests += 1
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

    def run_entries(self, entries: list[Entry], here: asyncio.AbstractEventLoop) -> None:
        """Run and commit the entries of the loop `here`, optimistically if possible."""
        writer = self._writer
        results: list[Any] | None = None
        separately = False
        hooked: list[tuple[Entry, Hooks]] = []
        try:
            if self._pessimistic:
                self._pessimistic -= 1
            else:
                results = self._run_optimistically(writer.begin(float("inf")), entries, hooked)
            if results is not None:
                commit_or_rollback(writer)
        except (DiskFull, Conflict):
            results, separately = None, True
        except BaseException as error:
            if writer.transaction is not None:
                writer.rollback()
            failed = [LoopRequest(entry, here) for entry in entries]
            self._fail_all(failed, error)
            complete(failed, here, self._wake_ups)
            if isinstance(error, FourfoldError):
                return
            raise
        if results is None:
            self.run([LoopRequest(entry, here) for entry in entries], here, separately=separately)
        else:
            writer.metrics.requests += len(results)
            self._acknowledge(entries, results, hooked, here)

    def _run_optimistically(
        self, txn: Transaction, entries: list[Entry], hooked: list[tuple[Entry, Hooks]]
    ) -> list[Any] | None:
        """Run all entries and return their results, to be committed by the caller.

        On any failure roll back and return None. This is the hot loop of a server: keep it short.
        """
        writer = self._writer
        results: list[Any] = []
        add_result = results.append
        now = time.monotonic()
        try:
            for entry in entries:
                work, _, deadline, future = entry
                if deadline < now or future.done():
                    break
                writer.deadline = deadline
                add_result(work(txn))
                if txn._after_commit is not None:  # noqa: SLF001
                    hooked.append((entry, txn._after_commit))  # noqa: SLF001
                    txn._after_commit = None  # noqa: SLF001
                if txn._rollback_error is not None:  # noqa: SLF001
                    break
            else:
                return results
        except Exception:  # noqa: BLE001  (the second run finds the request at fault)
            # More failures are likely, and the pessimistic way runs each request once.
            self._pessimistic = CAUTIOUS_GROUPS
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
            if failpoints.armed:
                failpoints.hit("kernel.acknowledge.before")
        finally:
            for (_, _, _, future), result in zip(entries, results, strict=True):
                # Cancelled, or failed because of a hook.
                if not future.done():
                    future.set_result(result)
            if self._writer.acknowledged:
                self._writer.run_acknowledged()

    def _fail_all(self, requests: Sequence[Request], error: BaseException) -> None:
        """Set one error for all requests, so that no caller waits for an interrupted leader."""
        for request in requests:
            request.reset()
            request.error = (
                error.copy()
                if isinstance(error, FourfoldError)
                else Closed(f"{self._writer.subject}: the writer was interrupted by {error!r}")
            )

    def _runnable(self, group: Sequence[Request]) -> list[Request]:
        """Return the requests that are neither late nor cancelled."""
        now = time.monotonic()
        runnable = []
        for request in group:
            if request.deadline < now:
                request.error = deadline_error(self._writer.subject)
            elif type(request) is not LoopRequest or not request.future.cancelled():
                runnable.append(request)
        return runnable

    def _commit(self, group: list[Request]) -> None:
        """Run and commit the group, in as few transactions as its errors allow."""
        guarded = self._cautious > 0
        self._cautious = max(0, self._cautious - 1)
        left = group
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
            except (DiskFull, Conflict) as error:
                if len(left) == 1:
                    left[0].reset()
                    left[0].error = error
                    return
                self._commit_separately(left)
            return

    def _commit_separately(self, group: list[Request]) -> None:
        """Commit each request alone, after a full disk or a conflict at COMMIT."""
        for request in group:
            request.reset()
            try:  # The error belongs to this request: earlier ones may be committed already.
                self._commit([request])
            except FourfoldError as error:
                request.reset()
                request.error = error

    def _attempt(self, group: list[Request], *, guarded: bool) -> None:
        writer = self._writer
        try:
            # Each request has its own deadline, set when it runs.
            txn = writer.begin(float("inf"))
            self._run_all(txn, group, guarded=guarded)
        except BaseException:
            writer.rollback()
            raise
        done = [request for request in group if request.error is None]
        if not done:
            writer.rollback()
            return
        commit_or_rollback(writer)
        writer.metrics.requests += len(done)
        for request in done:
            if request.hooks is not None:
                self._call_hooks(request)

    def _run_all(self, txn: Transaction, group: list[Request], *, guarded: bool) -> None:
        """Run every request of a group. This is the hot loop of every write: keep it short."""
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

    def _handle_failure(self, request: Request, error: Exception, *, contained: bool) -> None:
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

    def _call_hooks(self, request: Request) -> None:
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
        self._group_bytes_max = bounds.group_bytes_max
        self._queue_bytes_max = bounds.queue_bytes_max
        self._queue_requests_max = bounds.queue_requests_max
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._exclusive_waiters = 0
        self._wake_ups = WakeUps()
        self._runner = GroupRunner(writer, self._wake_ups)
        self._recent_group_size = 0
        """Approximate number of requests in the latest groups of threads."""
        self._inboxes: dict[asyncio.AbstractEventLoop, Inbox] = {}
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._closed = False
        self._counters = threading.Lock()

    @property
    def queued_requests(self) -> int:
        """Number of requests that wait to be committed."""
        inboxes = list(self._inboxes.values())
        return len(self._queue) + sum(len(inbox.entries) for inbox in inboxes)

    @property
    def queued_bytes(self) -> int:
        """Size of the requests that wait to be committed."""
        return self._queued_bytes + sum(inbox.size for inbox in list(self._inboxes.values()))

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

    def submit_patiently(self, work: Work, size: int, deadline: float, patience_s: float) -> Any:
        """Let the next commit of another caller include `work`; return its result.

        If there is none within `patience_s`, this thread commits it itself.
        """
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        request = PatientRequest(work, size, deadline)
        self._enqueue(request)
        try:
            request.wait(min(patience_s, max(deadline - time.monotonic(), 0.0)))
        finally:
            request.patient = False
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
        inbox = self._inboxes.get(loop)
        if inbox is None:
            inbox = self._open_inbox(loop, size)
        entries = inbox.entries
        held = inbox.size + size
        if (
            size > self._group_bytes_max
            or self._queued_bytes + held > self._queue_bytes_max
            or len(self._queue) + len(entries) >= self._queue_requests_max
        ):
            raise self._rejection(size)
        inbox.size = held
        future = loop.create_future()
        entries.append((work, size, deadline, future))
        return future

    @contextmanager
    def exclusive(self, deadline: float) -> Iterator[None]:
        """Hold the writer's lock for a long transaction, a checkpoint or a vacuum."""
        self._writer.check_not_in_transaction()
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
                yield txn
                txn._check_not_rolled_back()  # noqa: SLF001
            except BaseException:
                writer.rollback()
                raise
            hooks = txn._after_commit  # noqa: SLF001
            commit_or_rollback(writer)
            writer.metrics.requests += 1
            try:
                writer.run_hooks(hooks or ())
            finally:
                writer.run_acknowledged()

    def close(self) -> None:
        """Reject new requests, and complete the queued ones."""
        with self._counters:
            self._closed = True
            for inbox in list(self._inboxes.values()):
                self._enqueue_inbox(inbox)
        deadline = time.monotonic() + limits.TRANSACTION_DEADLINE_S
        while self._queue and time.monotonic() < deadline:
            if self._writer.lock.acquire(timeout=0.05):
                try:
                    self._run_group(None)
                finally:
                    self._writer.lock.release()
        with self._counters:
            remaining = list(self._queue)
            self._queue.clear()
        self._fail_closed(remaining)

    def _fail_closed(self, requests: Sequence[Request]) -> None:
        for request in requests:
            request.error = Closed(f"{self._writer.subject}: the database is closed")
        complete(requests, None, self._wake_ups)

    # The inboxes of event loops

    def _open_inbox(self, loop: asyncio.AbstractEventLoop, size: int) -> Inbox:
        """Create the inbox of `loop` for its current iteration."""
        inbox = Inbox(loop)
        with self._counters:
            if self._closed or self._writer.failure is not None:
                raise self._rejection(size)
            for closed in [other for other in self._inboxes if other.is_closed()]:
                # The callers of that loop are gone.
                del self._inboxes[closed]
            self._inboxes[loop] = inbox
        loop.call_soon(self._commit_inbox, inbox)
        return inbox

    def _commit_inbox(self, inbox: Inbox) -> None:
        """Commit an inbox on its loop's thread, at once if the writer is free."""
        if (
            not (self._queue or self._closed or self._exclusive_waiters)
            and inbox.size <= self._group_bytes_max
            and len(inbox.entries) <= self._bounds.group_requests_max
            and not self._too_slow_for_a_loop()
            and self._writer.lock.acquire(blocking=False)
        ):
            try:
                with self._counters:
                    self._inboxes.pop(inbox.loop, None)
                    entries = inbox.drain()
                if entries:
                    self._runner.run_entries(entries, inbox.loop)
            finally:
                self._release(inbox.loop)
            return
        with self._counters:
            late = self._closed
            waiting = self._enqueue_inbox(inbox)
        if late:
            # They arrived after `close` emptied the queue.
            self._fail_closed([request for request in waiting if self._withdraw(request)])
        else:
            self._flush(inbox.loop)

    def _enqueue_inbox(self, inbox: Inbox) -> list[LoopRequest]:
        """Move the entries of `inbox` to the queue. The caller holds `_counters`."""
        self._inboxes.pop(inbox.loop, None)
        waiting = [LoopRequest(entry, inbox.loop) for entry in inbox.drain()]
        self._queued_bytes += sum(request.size for request in waiting)
        self._queue.extend(waiting)
        return waiting

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

    def _enqueue(self, request: Request) -> None:
        size = request.size
        with self._counters:
            queued = self._queued_bytes + size
            if (
                self._closed
                or size > self._group_bytes_max
                or queued > self._queue_bytes_max
                or len(self._queue) >= self._queue_requests_max
                or self._writer.failure is not None
            ):
                raise self._rejection(size)
            self._queued_bytes = queued
            self._queue.append(request)

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

    def _withdraw(self, request: Request) -> bool:
        """Remove a request from the queue; return False if it has started."""
        with self._counters:
            try:
                self._queue.remove(request)
            except ValueError:
                return False
            self._queued_bytes -= request.size
            return True

    def _dequeue_group(self) -> list[Request]:
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

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit the queue on the thread of `loop`, or on another one if commits are slow."""
        self._scheduled.discard(loop)
        if not self._queue:
            return
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
                self._queue.remove(request)
                self._queued_bytes -= request.size
                request.error = self._deadline_error()
        complete(late, loop, self._wake_ups)
        if len(waiting) > len(late):
            self._schedule(loop)

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
        self._wake_leader(here)

    def _wake_leader(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        while True:
            # A patient thread leads by itself, later.
            head = next((request for request in tuple(self._queue) if not request.patient), None)
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
        if loop not in self._scheduled:
            self._scheduled.add(loop)
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
