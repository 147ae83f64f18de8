"""Producers: append a message, get a receipt; each message is on the stream once, in order.

    with stream.producer("till-1") as producer:
        receipt = producer.append_json({"id": 1})
        receipt.result()

The one for threads runs the one for coroutines in a thread of its own.

A producer's messages on their way: batches, numbers, repetitions, and taking over.

    add ──> open batch ──> ready ──> under way ──> acknowledged
                             ^            │
                             └── claimed ─┘  (a newer epoch, numbered anew)

A batch keeps its number until it is acknowledged, so a repeated request is known to the server. The
first request of an epoch goes alone. Where another producer took over, batches are numbered anew
only once nothing is under way, and only if each of them is known not to be written; otherwise the
producer fails with OutcomeUnknown rather than write something twice.

Everything here runs in one event loop, and needs no lock.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.requests import Address, Call, as_bytes, as_json
from fourfold.client.responses import Appended, Response
from fourfold.client.transport import AsyncTransport, RetryPolicy, Settings
from fourfold.errors import (
    Closed,
    FourfoldError,
    InvalidInput,
    OutcomeUnknown,
    ProducerFenced,
    ProducerGap,
    ServerUnreachable,
)
from fourfold.models.streams.admission import check_producer
from fourfold.models.streams.json_messages import split
from fourfold.models.streams.records import Producer
from fourfold.models.streams.validation import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """When a batch is sent, and how many at once."""

    linger: float = limits.PRODUCER_LINGER_S
    """Seconds that the first message of a batch waits for others."""
    count: int = limits.PRODUCER_BATCH_COUNT
    bytes: int = limits.PRODUCER_BATCH_BYTES
    in_flight: int = limits.PRODUCER_IN_FLIGHT
    buffer: int = limits.PRODUCER_BUFFER_BYTES
    """Bytes that are held at most; appending waits while there are more."""

    def __post_init__(self) -> None:
        if self.linger < 0 or min(self.count, self.bytes, self.in_flight, self.buffer) < 1:
            raise InvalidInput("count, bytes, in_flight and buffer are 1 or more, linger 0 or more")


class Receipt(Protocol):
    """What whoever appended a message holds: a future, of threads or of coroutines."""

    def done(self) -> bool: ...
    def set_result(self, result: Appended, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


@dataclass(slots=True)
class Batch:
    messages: list[bytes] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    size: int = 0
    seq: int = -1
    doubtful: bool = False
    """Whether a request of it went without an answer: it may be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who produces, and what happens when another one does under the same id."""

    id: str
    epoch: int
    auto_claim: bool


class Target(NamedTuple):
    """Where the messages go."""

    address: Address
    name: str
    content_type: str


def new_epoch() -> int:
    """An epoch that no earlier producer has had: they go up with the time."""
    return time.time_ns() // 1_000_000


def checked_message(message: bytes, content_type: str) -> bytes:
    """A message that a server will take, or InvalidInput: one bad one would fail its batch."""
    if not message:
        raise InvalidInput("a message is not empty")
    if requests.is_json(content_type) and len(split(b"[" + message + b"]", JSON)) != 1:
        raise InvalidInput("a message is one JSON value")
    return message


class Delivery:
    """The messages of one producer to one stream."""

    def __init__(
        self,
        send: Callable[[Call], Awaitable[Response]],
        target: Target,
        who: Identity,
        *,
        batching: BatchOptions,
        retry_for: float | None,
        on_change: Callable[[], None],
    ) -> None:
        self._send = send
        self._address, self._name, self._type = target
        self._who, self._batching, self._retry_for = who, batching, retry_for
        self._on_change = on_change
        self.epoch = who.epoch
        self.held = 0
        """Bytes that are not acknowledged."""
        self.failure: FourfoldError | None = None
        self._next = 0
        self._begun = False
        self._open = Batch()
        self._timer: asyncio.TimerHandle | None = None
        self._ready: deque[Batch] = deque()
        self._flying: dict[int, Batch] = {}
        self._fenced: dict[int, Batch] = {}
        self._fence: ProducerFenced | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()

    def add(self, message: bytes, receipt: Receipt) -> None:
        """Take a message over; its receipt is done when it is on disk, or has failed."""
        if self.failure is not None:
            receipt.set_exception(self.failure.copy())
            return
        batch = self._open
        if batch.messages and batch.size + len(message) > self._batching.bytes:
            self._seal()
            batch = self._open
        batch.messages.append(message)
        batch.receipts.append(receipt)
        batch.size += len(message)
        self.held += len(message)
        if len(batch.messages) >= self._batching.count or batch.size >= self._batching.bytes:
            self._seal()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._batching.linger, self._seal)

    async def flush(self) -> None:
        """Until everything that was added is acknowledged; the failure when it is not."""
        self._seal()
        while self.failure is None and (self._ready or self._flying or self._fenced):
            await self._moved.wait()
        if self.failure is not None:
            raise self.failure.copy()

    async def stop(self) -> None:
        """Let go of what is under way; what is not acknowledged fails."""
        if self.failure is None:
            self._fail(Closed("the producer is closed", hint="Make another one."))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _seal(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open.messages:
            self._ready.append(self._open)
            self._open = Batch()
        self._start()

    def _start(self) -> None:
        """Send as many as may be under way."""
        while (
            self._ready
            and self.failure is None
            and self._fence is None
            and len(self._flying) < (self._batching.in_flight if self._begun else 1)
        ):
            batch = self._ready.popleft()
            batch.seq, self._next = self._next, self._next + 1
            self._flying[batch.seq] = batch
            task = asyncio.get_running_loop().create_task(self._deliver(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, batch: Batch) -> None:
        try:
            done = await self._accepted(batch)
        except ProducerFenced as error:
            self._fenced[batch.seq] = batch
            if self._fence is None or _epoch(error) > _epoch(self._fence):
                self._fence = error
        except FourfoldError as error:
            self._fail(error, batch.seq)
        else:
            self._begun = True
            self.held -= batch.size
            for receipt in batch.receipts:
                if not receipt.done():
                    receipt.set_result(done)
        self._flying.pop(batch.seq, None)
        if self._fence is not None and not self._flying and self.failure is None:
            self._take_over(self._fence)
        self._start()
        self._changed()

    async def _accepted(self, batch: Batch) -> Appended:
        """The server's word that a batch is written, however often it is asked."""
        patience = RetryPolicy(self._retry_for)
        while True:
            first = min(self._flying) == batch.seq
            try:
                return await self._attempt(batch)
            except ProducerGap:
                # Unless it was the first in line, it has overtaken one that is under way, too.
                if first:
                    raise
                await self._turn(batch)
            except FourfoldError as error:
                if isinstance(error, ServerUnreachable):
                    batch.doubtful |= error.details.get("sent") is not False
                await asyncio.sleep(patience.pause(error))

    async def _attempt(self, batch: Batch) -> Appended:
        body = b"".join(batch.messages)
        if requests.is_json(self._type):
            body = b"[" + b",".join(batch.messages) + b"]"
        number = Producer(self._who.id, self.epoch, batch.seq)
        call = requests.append(self._address, self._name, self._type, body, producer=number)
        done = responses.appended(call, await self._send(call))
        if done.duplicate and not batch.doubtful:
            # We never sent it before, so somebody else has used our number.
            raise ProducerFenced(
                f"append to {self._name!r}: another producer {self._who.id!r} uses epoch "
                f"{self.epoch}, too",
                details={"epoch": self.epoch},
            )
        return done

    async def _turn(self, batch: Batch) -> None:
        """Until nothing before a batch is under way."""
        while self._fence is None and min(self._flying) != batch.seq:
            await self._moved.wait()
        if self._fence is not None:
            raise self._fence.copy()

    def _take_over(self, fence: ProducerFenced) -> None:
        """Begin a newer epoch with what was refused, or fail."""
        refused = [self._fenced[seq] for seq in sorted(self._fenced)]
        if not self._who.auto_claim:
            self._fail(fence)
            return
        if any(batch.doubtful for batch in refused):
            self._fail(
                OutcomeUnknown(
                    f"append to {self._name!r}: another producer {self._who.id!r} took over while "
                    "an answer was missing; what was sent may be written, or not",
                )
            )
            return
        self._fence, self._fenced = None, {}
        self.epoch, self._next, self._begun = _epoch(fence) + 1, 0, False
        self._ready.extendleft(reversed(refused))

    def _fail(self, error: FourfoldError, seq: int = 0) -> None:
        """Everything from a number on fails: what comes later must not overtake it."""
        if self.failure is not None:
            return
        self.failure = error
        flying = [batch for batch in self._flying.values() if batch.seq >= seq]
        left = [*flying, *self._fenced.values(), *self._ready, self._open]
        self._ready.clear()
        self._open, self.held = Batch(), 0
        for batch in left:
            for receipt in batch.receipts:
                if not receipt.done():
                    receipt.set_exception(error.copy())
        self._changed()

    def _changed(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
        self._on_change()


def _epoch(error: ProducerFenced) -> int:
    told = error.details.get("epoch")
    return told if isinstance(told, int) else 0


class AsyncProducer:
    """A producer for coroutines. Leaving its block waits for everything to be acknowledged."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        content_type: str,
        producer_id: str,
        *,
        epoch: int | None,
        auto_claim: bool,
        batching: BatchOptions,
        retry_for: float | None,
    ) -> None:
        self._type = content_type
        self._buffer = batching.buffer
        self._transport = AsyncTransport(settings)
        self._delivery = Delivery(
            self._transport.send,
            Target(settings.address, name, content_type),
            _identity(producer_id, epoch, auto_claim=auto_claim),
            batching=batching,
            retry_for=retry_for,
            on_change=self._changed,
        )
        self._room = asyncio.Event()
        self._closed = False

    @property
    def epoch(self) -> int:
        return self._delivery.epoch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close(flush=kind is None)

    async def append(self, message: bytes | str) -> asyncio.Future[Appended]:
        """Hand over one message; waits only while too much is not acknowledged. The receipt is
        done when the message is on disk.
        """
        data = checked_message(as_bytes(message), self._type)
        while self._delivery.held > self._buffer and self._delivery.failure is None:
            self._room.clear()
            await self._room.wait()
        self._refuse()
        receipt: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        # Nobody has to look at a receipt: a failure is raised by the next call as well.
        receipt.add_done_callback(lambda each: each.cancelled() or each.exception())
        self._delivery.add(data, receipt)
        return receipt

    async def append_json(self, value: Any) -> asyncio.Future[Appended]:
        return await self.append(as_json(value))

    async def flush(self) -> None:
        """Until everything is on disk; raises what kept it from that."""
        await self._delivery.flush()

    async def close(self, *, flush: bool = True) -> None:
        """End it, by default when everything is on disk."""
        if self._closed:
            return
        self._closed = True
        try:
            if flush:
                await self._delivery.flush()
        finally:
            await self._delivery.stop()
            await self._transport.close()

    def _refuse(self) -> None:
        if self._delivery.failure is not None:
            raise self._delivery.failure.copy()

    def _changed(self) -> None:
        self._room.set()


class StreamProducer:
    """A producer for threads; any number of them may append. Leaving its block waits for everything
    to be acknowledged.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        content_type: str,
        producer_id: str,
        *,
        epoch: int | None,
        auto_claim: bool,
        batching: BatchOptions,
        retry_for: float | None,
    ) -> None:
        self._type = content_type
        self._buffer = batching.buffer
        self._transport = AsyncTransport(settings)
        self._delivery = Delivery(
            self._transport.send,
            Target(settings.address, name, content_type),
            _identity(producer_id, epoch, auto_claim=auto_claim),
            batching=batching,
            retry_for=retry_for,
            on_change=self._changed,
        )
        self._change = threading.Condition()
        self._waiting: deque[tuple[bytes, concurrent.futures.Future[Appended]]] = deque()
        self._waiting_bytes = 0
        self._woken = False
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fourfold-producer", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        return self._delivery.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)

    def append(self, message: bytes | str) -> concurrent.futures.Future[Appended]:
        """Hand over one message; waits only while too much is not acknowledged. The receipt is
        done when the message is on disk.
        """
        data = checked_message(as_bytes(message), self._type)
        receipt: concurrent.futures.Future[Appended] = concurrent.futures.Future()
        with self._change:
            self._change.wait_for(lambda: self._held() <= self._buffer or self._failure())
            self._refuse()
            self._waiting.append((data, receipt))
            self._waiting_bytes += len(data)
            wake, self._woken = not self._woken, True
            if wake:
                self._loop.call_soon_threadsafe(self._wake.set)
        return receipt

    def append_json(self, value: Any) -> concurrent.futures.Future[Appended]:
        return self.append(as_json(value))

    def flush(self, timeout: float | None = None) -> None:
        """Until everything is on disk; raises what kept it from that, TimeoutError when it takes
        longer.
        """
        with self._change:
            self._refuse()
            flushing = asyncio.run_coroutine_threadsafe(self._flush(), self._loop)
        flushing.result(timeout)

    def close(self, *, flush: bool = True) -> None:
        """End it, by default when everything is on disk."""
        if self._closed:
            return
        try:
            if flush:
                self.flush()
        finally:
            with self._change:
                self._closed = True
            self._loop.call_soon_threadsafe(self._wake.set)
            self._thread.join()

    def _held(self) -> int:
        return self._waiting_bytes + self._delivery.held

    def _failure(self) -> FourfoldError | None:
        if self._closed:
            return Closed("the producer is closed", hint="Make another one.")
        return self._delivery.failure

    def _refuse(self) -> None:
        if (failure := self._failure()) is not None:
            raise failure.copy()

    # In the thread of the loop

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        try:
            while not self._closed:
                await self._wake.wait()
                self._take()
        finally:
            self._take()
            await self._delivery.stop()
            await self._transport.close()

    def _take(self) -> None:
        """Give the delivery what threads have handed over."""
        with self._change:
            self._wake.clear()
            self._woken = False
            taken, self._waiting = self._waiting, deque()
            self._waiting_bytes = 0
            for data, receipt in taken:
                self._delivery.add(data, receipt)

    async def _flush(self) -> None:
        self._take()
        await self._delivery.flush()

    def _changed(self) -> None:
        with self._change:
            self._change.notify_all()


def _identity(producer_id: str, epoch: int | None, *, auto_claim: bool) -> Identity:
    first = new_epoch() if epoch is None else epoch
    check_producer(Producer(producer_id, first, 0))
    return Identity(id=producer_id, epoch=first, auto_claim=auto_claim)
