"""Group commit: concurrent callers share one transaction and one fsync, and nobody waits for a
timer.

There is no writer thread. The caller who finds the writer free *leads*: it runs its own request and
all that are queued in one transaction. Those who arrive meanwhile queue up and ride the next
commit. A leader whose own request is done hands the turn to the first in the queue.
So an idle caller commits at once on its own thread, and a crowd pays one fsync for many.

    caller ──> queue ──> [ BEGIN  work  work  work ...  COMMIT ] ──> each caller its own result or
    error

Work may run more than once, and may have no effect but through its transaction.

The queue is bounded in requests and in bytes; when it is full the caller gets Overloaded, and
nothing was written.

One bad request never fails its neighbours. A request that raises before it wrote anything is simply
left out. One that raises after it wrote spoils the transaction: all of it is rolled back and run
again, each request in a savepoint of its own. If SQLite itself undid the transaction, the one to
blame is taken out and the others run again.

A group that comes whole from the inbox of one loop is first run in the hope that nothing goes
wrong; when something does, it is undone and run again as above.
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
from typing import Any, Literal

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
    settle,
)
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

    def __init__(self, writer: Writer, waking: WakeUps) -> None:
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
                if failpoints.armed:
                    failpoints.hit("kernel.acknowledge.before")
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
            if failpoints.armed:
                failpoints.hit("kernel.acknowledge.before")
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
            if failpoints.armed:
                failpoints.hit("kernel.acknowledge.before")
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


Placement = Literal["auto", "inline", "thread"]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How much one transaction and the queue may hold, and where commits of coroutines run."""

    group_requests_max: int = limits.GROUP_REQUESTS_MAX
    group_bytes_max: int = limits.GROUP_BYTES_MAX
    queue_requests_max: int = limits.QUEUE_REQUESTS_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    placement: Placement = "auto"


class GroupCommit:
    """The queue in front of a Writer."""

    def __init__(self, writer: Writer, bounds: GroupLimits) -> None:
        self._writer = writer
        self._bounds = bounds
        self._group_bytes_max = bounds.group_bytes_max
        self._queue_bytes_max = bounds.queue_bytes_max
        self._queue_requests_max = bounds.queue_requests_max
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._exclusive_waiters = 0
        self._waking = WakeUps()
        self._runner = GroupRunner(writer, self._waking)
        self._crowd = 0
        """About how many requests the latest groups of threads had."""
        self._inboxes: dict[asyncio.AbstractEventLoop, Inbox] = {}
        self._scheduled: set[asyncio.AbstractEventLoop] = set()
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._closed = False
        self._counters = threading.Lock()

    @property
    def queued_requests(self) -> int:
        return len(self._queue) + sum(len(each.entries) for each in list(self._inboxes.values()))

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes + sum(each.size for each in list(self._inboxes.values()))

    # Callers

    def submit(self, work: Work, size: int, deadline: float) -> Any:
        """From a thread: run `work` in a shared transaction; its result once that is committed."""
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        if self._is_quiet(size) and self._writer.turn.acquire(blocking=False):
            try:
                self._crowd = 0
                return self._runner.run_alone(work, deadline)
            finally:
                self._release_turn()
        request = ThreadRequest(work, size, deadline)
        self._enqueue(request)
        return self._outcome(request)

    def submit_patiently(self, work: Work, size: int, deadline: float, patience_s: float) -> Any:
        """From a thread that can wait: whoever commits next takes `work` along. Only when nobody
        did for so long, the thread commits it itself.
        """
        if self._writer.owner == threading.get_ident():
            return self._nested(work)
        request = PatientRequest(work, size, deadline)
        self._enqueue(request)
        try:
            request.wait(min(patience_s, max(deadline - time.monotonic(), 0.0)))
        finally:
            request.patient = False
        return self._outcome(request)

    def _outcome(self, request: ThreadRequest) -> Any:
        """What came of a queued request, once it is settled; this thread leads if it has to."""
        try:
            self._lead(request)
            while not request.settled:
                self._wait(request)
        finally:
            if self._waking.pass_on(request):
                self._poke()
        if request.error is not None:
            raise request.error
        return request.result

    def _wait(self, request: ThreadRequest) -> None:
        """Sleep until `request` is settled or it is this thread's turn to lead, and then do so."""
        left = request.deadline - time.monotonic()
        if left <= 0 and self._withdraw(request):
            # This thread may have been poked to lead; somebody else must be.
            self._poke()
            raise self._too_late()
        # Looking up once a second heals a wake-up lost to an event loop that stopped running, or
        # to a thread that was interrupted.
        if not request.wait(min(max(left, 0.01), 1.0)):
            self._waking.give_up()
        self._lead(request)

    def submit_async(self, work: Work, size: int, deadline: float) -> asyncio.Future[Any]:
        """From a coroutine: the same, without blocking the event loop for longer than a commit
        takes.
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
            raise self._refusal(size)
        inbox.size = held
        future = loop.create_future()
        entries.append((work, size, deadline, future))
        return future

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
            commit_or_undo(writer)
            writer.metrics.requests += 1
            try:
                writer.run_hooks(hooks or ())
            finally:
                writer.run_acknowledged()

    def close(self) -> None:
        """Refuse new requests, and finish those that are queued."""
        with self._counters:
            self._closed = True
            for inbox in list(self._inboxes.values()):
                self._queue_up(inbox)
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
        self._settle_closed(left)

    def _settle_closed(self, requests: Sequence[Request]) -> None:
        for request in requests:
            request.error = Closed(f"{self._writer.subject}: the database is closed")
        settle(requests, None, self._waking)

    # The inboxes of event loops

    def _open_inbox(self, loop: asyncio.AbstractEventLoop, size: int) -> Inbox:
        """A place for what the coroutines of `loop` ask for until it comes round."""
        inbox = Inbox(loop)
        with self._counters:
            if self._closed or self._writer.failure is not None:
                raise self._refusal(size)
            for other in [each for each in self._inboxes if each.is_closed()]:
                # Nobody is left to hear of what that loop never came round to.
                del self._inboxes[other]
            self._inboxes[loop] = inbox
        loop.call_soon(self._collect, inbox)
        return inbox

    def _collect(self, inbox: Inbox) -> None:
        """On the loop's thread: commit what its coroutines asked for, at once if nobody is in the
        way.
        """
        if (
            not (self._queue or self._closed or self._exclusive_waiters)
            and inbox.size <= self._group_bytes_max
            and len(inbox.entries) <= self._bounds.group_requests_max
            and not self._too_slow_for_a_loop()
            and self._writer.turn.acquire(blocking=False)
        ):
            try:
                with self._counters:
                    self._inboxes.pop(inbox.loop, None)
                    entries = inbox.take()
                if entries:
                    self._runner.run_entries(entries, inbox.loop)
            finally:
                self._release_turn(inbox.loop)
            return
        with self._counters:
            late = self._closed
            waiting = self._queue_up(inbox)
        if late:
            # They came after the last look of whoever closes.
            self._settle_closed([each for each in waiting if self._withdraw(each)])
        else:
            self._flush(inbox.loop)

    def _queue_up(self, inbox: Inbox) -> list[LoopRequest]:
        """Let what is in `inbox` wait with everybody else's. The caller holds the lock."""
        self._inboxes.pop(inbox.loop, None)
        waiting = [LoopRequest(entry, inbox.loop) for entry in inbox.take()]
        self._queued_bytes += sum(each.size for each in waiting)
        self._queue.extend(waiting)
        return waiting

    # The queue

    def _is_quiet(self, size: int) -> bool:
        """Whether a caller has the writer to itself, so that it need not queue up at all."""
        return (
            self._crowd <= 1
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
                raise self._refusal(size)
            self._queued_bytes = queued
            self._queue.append(request)

    def _refusal(self, size: int) -> FourfoldError:
        """Why a request of `size` bytes cannot be queued now."""
        subject, bounds = self._writer.subject, self._bounds
        if self._writer.failure is not None:
            return self._writer.failure.copy()
        if self._closed:
            return Closed(f"{subject}: the database is closed")
        if size > bounds.group_bytes_max:
            return TooLarge(
                f"{subject}: one request of {size} bytes is more than a transaction takes "
                f"({bounds.group_bytes_max})",
                hint="Split the write, or raise `kernel.group_bytes_max`.",
            )
        self._writer.metrics.rejected += 1
        return Overloaded(
            f"{subject}: {self.queued_requests} requests and {self.queued_bytes} "
            "bytes are waiting to be committed",
            retry_after=limits.OVERLOAD_RETRY_AFTER_S,
        )

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
        while not own.settled and self._may_lead() and turn.acquire(blocking=False):
            try:
                while not own.settled and self._queue and not self._exclusive_waiters:
                    self._crowd = max(len(self._queue), self._crowd - 1)
                    self._run_group(None)
            finally:
                turn.release()
                if not self._waking.under_way:
                    self._poke()

    def _may_lead(self) -> bool:
        """Not while the last commit is still waking those who rode it: most of them have another
        request, and the last one sees that somebody leads.
        """
        return not (self._exclusive_waiters or self._waking.under_way)

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
        settle(late, loop, self._waking)
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
            # A patient thread looks for itself, later.
            head = next((each for each in tuple(self._queue) if not each.patient), None)
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
                # Its loop is closed; what nobody waits for any more is withdrawn.
                self._withdraw(head)
                continue
            return

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._scheduled:
            self._scheduled.add(loop)
            loop.call_soon(self._flush, loop)

    def _run_group(self, here: asyncio.AbstractEventLoop | None) -> None:
        """One transaction for as many queued requests as fit. The caller holds the turn."""
        self._runner.run(self._take_group(), here)

    def _too_late(self) -> DeadlineExceeded:
        return too_late(self._writer.subject)

    def _nested(self, work: Work) -> Any:
        """Work submitted from inside a transaction of the same thread becomes a step of it."""
        with self._writer.running().savepoint() as step:
            return work(step)
