"""Appends of coroutines, gathered: those of one turn of an event loop are one piece of work for the
writer, and each is told its own outcome.

A batch goes to the writer as soon as the loop comes round without anybody new. So those whom one
commit answered ride the next one together, and an append that comes alone waits for nobody.

    append ──> batch ──> [ the loop comes round ] ──> writer ──> each its outcome
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from fourfold import limits
from fourfold.errors import FourfoldError, Refused
from fourfold.kernel import Transaction
from fourfold.models.streams.appending import Append, Asked, Outcome
from fourfold.models.streams.records import Appended

Tell = Callable[[Outcome], None]
"""Is told what became of an append, on the thread of its loop. It must not raise."""
Submit = Callable[["Batch"], "asyncio.Future[list[Outcome]]"]
Run = Callable[[Transaction, list[Asked]], list[Outcome]]
_CROWD = 2
"""From so many on it is worth a turn of the loop to see who else comes."""


class Batch:
    """Appends that go to the writer together. Only the thread of its loop adds to it."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self._asked: list[Asked] = []
        self._tell: list[Tell] = []
        self.size = 0
        self.handed_over = False
        """Whether the writer has it; from then on it is what it is."""
        self.told = False
        self._thread = threading.get_ident()

    def __len__(self) -> int:
        return len(self._asked)

    def take_in(self, name: str, request: Append, size: int, tell: Tell) -> bool:
        """Whether there was still room, and time."""
        asked = self._asked
        if (
            self.handed_over
            or len(asked) >= limits.APPEND_BATCH_REQUESTS
            or (asked and self.size + size > limits.APPEND_BATCH_BYTES)
        ):
            return False
        asked.append((name, request))
        self._tell.append(tell)
        self.size += size
        return True

    def work(self, txn: Transaction) -> list[Outcome]:
        """What the writer runs, once or more."""
        outcomes = self._run(txn, self._asked)
        txn.after_commit(partial(self._committed, outcomes))
        return outcomes

    def _committed(self, outcomes: list[Outcome]) -> None:
        """Tell the outcomes at once where the commit ran on the loop's own thread. From another one
        it is the first thing that the loop does: before it wakes readers.
        """
        if threading.get_ident() == self._thread:
            self._tell_all(outcomes)
        else:
            # A closed loop has no callers left.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_all, outcomes)

    def deliver(self, done: asyncio.Future[list[Outcome]]) -> None:
        """Tell everybody who was not told yet, on the loop's own thread."""
        if done.cancelled():
            self.refuse(Refused("the append was called off"))
        elif (error := done.exception()) is None:
            self._tell_all(done.result())
        elif isinstance(error, FourfoldError):
            self.refuse(error)
        else:
            self.refuse(Refused(f"the append failed: {error!r}"))
            raise error

    def refuse(self, error: FourfoldError) -> None:
        """One error for everybody."""
        self._tell_all([error.copy() for _ in self._tell])

    def _tell_all(self, outcomes: Sequence[Outcome]) -> None:
        if not self.told:
            self.told = True
            for tell, outcome in zip(self._tell, outcomes, strict=True):
                tell(outcome)


class Batches:
    """The open batch of each event loop, and when it goes to the writer."""

    def __init__(self, run: Run, submit: Submit) -> None:
        self._run = run
        self._submit = submit
        self._open: dict[asyncio.AbstractEventLoop, Batch] = {}
        self._crowd = 0
        """About how many appends the latest batches had."""

    def add(
        self,
        name: str,
        request: Append,
        size: int,
        tell: Tell,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """From a coroutine or a callback of `loop`, while it runs: append soon, and tell."""
        current = self._open.get(loop)
        if current is not None:
            if current.take_in(name, request, size, tell):
                return
            # It goes before the next one begins, so that nothing overtakes anything.
            self._hand_over(current)
            if not current.told and self._crowd < _CROWD:
                self._crowd = _CROWD
        elif self._open:
            self._forget_closed()
        batch = self._open[loop] = Batch(self._run, loop)
        batch.take_in(name, request, size, tell)
        if self._crowd < _CROWD:
            # Whoever comes alone need not wait to see whether others do.
            self._hand_over(batch)
        else:
            loop.call_soon(self._gather, loop, batch, 0)

    def _gather(self, loop: asyncio.AbstractEventLoop, batch: Batch, seen: int) -> None:
        """Hand a batch over once the loop came round without bringing anybody new, or when as many
        are there as came lately. So those whom the last commit answered ride together again, and
        nobody waits for somebody who does not come.
        """
        count = len(batch)
        if seen < count < self._crowd and not batch.handed_over:
            loop.call_soon(self._gather, loop, batch, count)
            return
        self._crowd = max(count, self._crowd - 1)
        self._hand_over(batch)

    def _hand_over(self, batch: Batch) -> None:
        if batch.handed_over:
            return
        batch.handed_over = True
        try:
            future = self._submit(batch)
        except FourfoldError as error:
            batch.refuse(error)
        else:
            future.add_done_callback(batch.deliver)

    def _forget_closed(self) -> None:
        for loop in [each for each in self._open if each.is_closed()]:
            del self._open[loop]


def settle(future: asyncio.Future[Appended], outcome: Outcome) -> None:
    """Tell a coroutine what became of its append."""
    if future.done():
        # Its caller was cancelled while the commit was under way.
        return
    if isinstance(outcome, FourfoldError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def settle_first(publish: Callable[[str], None], name: str, tell: Tell, outcome: Outcome) -> None:
    """Publish the stream in a thread, then tell."""
    if isinstance(outcome, FourfoldError):
        tell(outcome)
        return

    def done(settled: asyncio.Future[None]) -> None:
        error = None if settled.cancelled() else settled.exception()
        if error is not None and not isinstance(error, FourfoldError):
            error = Refused(f"the stream {name!r} could not be published: {error!r}")
        tell(outcome if error is None else error)

    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, publish, name).add_done_callback(done)
