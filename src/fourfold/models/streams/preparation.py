"""Preparation of appends: messages are validated before the transaction that stores them.

A schema can make a small append expensive. In the transaction, validation would hold the writer,
and with it the event loop of a server. So an append whose validation may take long is prepared
first: in the thread of its caller, or for a coroutine in a thread of its own. The transaction uses
the result if the rules of the stream are still the same.

    append ──┬── cheap ──────────────────────────────> transaction
             └── expensive ──> thread, one by one ───> transaction

Appends to a stream stay in order: those after an expensive one wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, NamedTuple, TypeVar

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, Refused
from fourfold.models.streams.rules import AdmittedRecords, Rules

SCHEMA_THREADS: Final = 2
"""Threads that validate the appends of coroutines before their transactions."""

UNKNOWN: Final = limits.SCHEMA_INLINE_CHECKS + 1
"""Cost of a schema that may not be compiled yet, which can take long too: appends are prepared."""


class PreparedAppend(NamedTuple):
    """The records that rules made of an append, or the reason why they reject it."""

    rules: Rules
    admitted: AdmittedRecords | None
    error: InvalidInput | None = None

    def result(self) -> AdmittedRecords:
        """Return the admitted records, or raise InvalidInput."""
        if self.admitted is None:
            assert self.error is not None
            raise self.error.copy()
        return self.admitted


def prepare(
    rules: Rules, records: Sequence[bytes], now_ms: int, routing_key: bytes | None
) -> PreparedAppend:
    """Apply rules to the records of an append."""
    try:
        return PreparedAppend(rules, rules.admit(records, now_ms, routing_key))
    except InvalidInput as error:
        return PreparedAppend(rules, None, error)


def admitted(
    rules: Rules, records: Sequence[bytes], now_ms: int, routing_key: bytes | None
) -> AdmittedRecords:
    """Return what rules make of records, in the transaction of an append that is not prepared.

    Raises:
        InvalidInput: the rules reject a record.
        NotPrepared: the append is expensive.
    """
    if rules.cost * sum(map(len, records)) > limits.SCHEMA_INLINE_CHECKS:
        raise NotPrepared
    return rules.admit(records, now_ms, routing_key)


class NotPrepared(Exception):
    """An expensive append was not prepared, or the rules changed since then."""


class Costs:
    """Costs of the schemas of streams, which decide whether an append is prepared.

    The cost is the number of checks per byte of a message, at most. Streams without a schema are
    not listed.
    """

    def __init__(self, load: Callable[[], Iterable[str]]) -> None:
        self._load = load
        self._by_name: dict[str, int] | None = None

    def get(self, name: str) -> int:
        """Return the cost of a stream; 0 if it has no schema."""
        costs = self._by_name
        if costs is None:
            costs = self._by_name = dict.fromkeys(self._load(), UNKNOWN)
        return costs.get(name, 0)

    def set(self, name: str, cost: int) -> None:
        """Store the cost of a stream: UNKNOWN after a change of its schema."""
        if self._by_name is not None:
            self._by_name[name] = cost


_A = TypeVar("_A")


class Queues(Generic[_A]):
    """Expensive appends of coroutines: those of one stream are prepared one after the other."""

    def __init__(self, run: Callable[[str, _A], _A]) -> None:
        self._run = run
        self._queues: dict[tuple[asyncio.AbstractEventLoop, str], deque[_WaitingAppend[_A]]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def has(self, loop: asyncio.AbstractEventLoop, name: str) -> bool:
        """Return True while an append to a stream is being prepared for a loop."""
        return bool(self._queues) and (loop, name) in self._queues

    def add(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        append: _A,
        done: Callable[[_A | FourfoldError], None],
    ) -> None:
        """Prepare an append in a thread and pass it to `done`, on the thread of the loop."""
        queue = self._queues.setdefault((loop, name), deque())
        queue.append(_WaitingAppend(append, done))
        if len(queue) == 1:
            self._start(loop, name)

    def _start(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                SCHEMA_THREADS, thread_name_prefix="fourfold-prepare"
            )
        append = self._queues[loop, name][0].append
        future = loop.run_in_executor(self._threads, self._run, name, append)
        future.add_done_callback(lambda future: self._finish(loop, name, future))

    def _finish(
        self, loop: asyncio.AbstractEventLoop, name: str, future: asyncio.Future[_A]
    ) -> None:
        queue = self._queues[loop, name]
        outcome: _A | FourfoldError
        if future.cancelled():
            outcome = Refused(f"stream {name!r}: the append was cancelled")
        elif (error := future.exception()) is None:
            outcome = future.result()
        elif isinstance(error, FourfoldError):
            outcome = error
        else:
            outcome = Refused(f"stream {name!r}: cannot validate the append: {error!r}")
        # Those that arrive while `done` runs wait for this one.
        queue[0].done(outcome)
        queue.popleft()
        if queue:
            self._start(loop, name)
        else:
            del self._queues[loop, name]


class _WaitingAppend(NamedTuple, Generic[_A]):
    """An append, and the function to call once it is prepared."""

    append: _A
    done: Callable[[_A | FourfoldError], None]
