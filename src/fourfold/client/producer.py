"""Producers: batched appends with receipts; each message is appended once, in order.

    with stream.producer("till-1") as producer:
        receipt = producer.append_json({"id": 1})
        receipt.result()

The producer for threads runs the one for coroutines in its own thread.

    add ──> open batch ──> ready ──> in flight ──> acknowledged
                             ^            │
                             └── claimed ─┘  (a newer epoch, renumbered)

A batch keeps its number until it is acknowledged, so the server recognizes a repeated request. The
first request of an epoch is sent alone. If another producer took over, batches are renumbered only
once nothing is in flight, and only if each of them is known not to be written; otherwise the
producer fails with OutcomeUnknown rather than write a message twice.

`Delivery` runs in one event loop and needs no lock.
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
from typing import Any, Final, NamedTuple, Protocol, Self

from fourfold import limits
from fourfold.client import requests, responses
from fourfold.client.coroutines.connection import AsyncTransport
from fourfold.client.requests import Address, Call, to_bytes, to_json
from fourfold.client.responses import AppendResult, Response
from fourfold.client.transport import ConnectionSettings, start_retries
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

PRODUCER_LINGER_S: Final = 0.005
PRODUCER_BATCH_COUNT: Final = 1_000
PRODUCER_BATCH_BYTES: Final = 1 * limits.MIB
PRODUCER_IN_FLIGHT: Final = 4
PRODUCER_BUFFER_BYTES: Final = 16 * limits.MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Size and timing of batches, and the number of batches in flight."""

    linger: float = PRODUCER_LINGER_S
    """Seconds that the first message of a batch waits for others."""
    count: int = PRODUCER_BATCH_COUNT
    bytes: int = PRODUCER_BATCH_BYTES
    in_flight: int = PRODUCER_IN_FLIGHT
    buffer: int = PRODUCER_BUFFER_BYTES
    """Maximum number of unacknowledged bytes; `append` waits while there are more."""

    def __post_init__(self) -> None:
        if self.linger < 0 or min(self.count, self.bytes, self.in_flight, self.buffer) < 1:
            raise InvalidInput(
                "count, bytes, in_flight and buffer must be 1 or more, linger 0 or more"
            )


class Receipt(Protocol):
    """The future of an appended message, of threads or of coroutines."""

    def done(self) -> bool:
        """Return True if the outcome is known."""
        ...

    def set_result(self, result: AppendResult, /) -> None:
        """Set the result of the append."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Set the error of the append."""
        ...


@dataclass(slots=True)
class MessageBatch:
    """Messages that are sent in one request."""

    messages: list[bytes] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    size: int = 0
    seq: int = -1
    may_be_written: bool = False
    """True if a request of it got no response, so that it may be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """Id and epoch of a producer; `auto_claim` takes over again after another producer has."""

    id: str
    epoch: int
    auto_claim: bool


class AppendTarget(NamedTuple):
    """The stream that messages are appended to."""

    address: Address
    name: str
    content_type: str


def new_epoch() -> int:
    """Return an epoch higher than those of earlier producers, from the current time."""
    return time.time_ns() // 1_000_000


def check_message(message: bytes, content_type: str) -> bytes:
    """Return a message that a server accepts; raise InvalidInput, since it would fail its batch."""
    if not message:
        raise InvalidInput("message: must not be empty")
    if requests.is_json(content_type) and len(split(b"[" + message + b"]", JSON)) != 1:
        raise InvalidInput("message: must be one JSON value")
    return message


class Delivery:
    """Unacknowledged messages of one producer to one stream."""

    def __init__(
        self,
        send: Callable[[Call], Awaitable[Response]],
        target: AppendTarget,
        who: ProducerIdentity,
        *,
        batching: BatchOptions,
        retry_for: float | None,
        on_change: Callable[[], None],
    ) -> None:
        self._send = send
        self._address, self._name, self._type = target
        self._producer, self._batching, self._retry_for = who, batching, retry_for
        self._on_change = on_change
        self.epoch = who.epoch
        self.pending_bytes = 0
        """Bytes that are not acknowledged yet."""
        self.failure: FourfoldError | None = None
        self._next = 0
        self._epoch_begun = False
        self._open = MessageBatch()
        self._timer: asyncio.TimerHandle | None = None
        self._ready: deque[MessageBatch] = deque()
        self._in_flight: dict[int, MessageBatch] = {}
        self._fenced: dict[int, MessageBatch] = {}
        self._fence: ProducerFenced | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()

    def add(self, message: bytes, receipt: Receipt) -> None:
        """Add a message; its receipt completes when the message is on disk, or has failed."""
        if self.failure is not None:
            receipt.set_exception(self.failure.copy())
            return
        batch = self._open
        if batch.messages and batch.size + len(message) > self._batching.bytes:
            self._close_batch()
            batch = self._open
        batch.messages.append(message)
        batch.receipts.append(receipt)
        batch.size += len(message)
        self.pending_bytes += len(message)
        if len(batch.messages) >= self._batching.count or batch.size >= self._batching.bytes:
            self._close_batch()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._batching.linger, self._close_batch)

    async def flush(self) -> None:
        """Wait until everything added is acknowledged; raise the failure otherwise."""
        self._close_batch()
        while self.failure is None and (self._ready or self._in_flight or self._fenced):
            await self._progress.wait()
        if self.failure is not None:
            raise self.failure.copy()

    async def stop(self) -> None:
        """Cancel requests in flight; what is not acknowledged fails."""
        if self.failure is None:
            self._fail(Closed("the producer is closed", hint="Create another producer."))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open.messages:
            self._ready.append(self._open)
            self._open = MessageBatch()
        self._start()

    def _start(self) -> None:
        """Send as many batches as may be in flight."""
        while (
            self._ready
            and self.failure is None
            and self._fence is None
            and len(self._in_flight) < (self._batching.in_flight if self._epoch_begun else 1)
        ):
            batch = self._ready.popleft()
            batch.seq, self._next = self._next, self._next + 1
            self._in_flight[batch.seq] = batch
            task = asyncio.get_running_loop().create_task(self._deliver(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, batch: MessageBatch) -> None:
        try:
            result = await self._deliver_until_accepted(batch)
        except ProducerFenced as error:
            self._fenced[batch.seq] = batch
            if self._fence is None or _epoch(error) > _epoch(self._fence):
                self._fence = error
        except FourfoldError as error:
            self._fail(error, batch.seq)
        else:
            self._epoch_begun = True
            self.pending_bytes -= batch.size
            for receipt in batch.receipts:
                if not receipt.done():
                    receipt.set_result(result)
        self._in_flight.pop(batch.seq, None)
        if self._fence is not None and not self._in_flight and self.failure is None:
            self._take_over(self._fence)
        self._start()
        self._notify_change()

    async def _deliver_until_accepted(self, batch: MessageBatch) -> AppendResult:
        """Send a batch until the server acknowledges it."""
        retries = start_retries(self._retry_for)
        while True:
            first = min(self._in_flight) == batch.seq
            try:
                return await self._attempt(batch)
            except ProducerGap:
                # Unless it was the first, it has overtaken another one in flight.
                if first:
                    raise
                await self._wait_for_turn(batch)
            except FourfoldError as error:
                if isinstance(error, ServerUnreachable):
                    batch.may_be_written |= error.details.get("sent") is not False
                await asyncio.sleep(retries.pause(error))

    async def _attempt(self, batch: MessageBatch) -> AppendResult:
        body = b"".join(batch.messages)
        if requests.is_json(self._type):
            body = b"[" + b",".join(batch.messages) + b"]"
        producer = Producer(self._producer.id, self.epoch, batch.seq)
        call = requests.append(self._address, self._name, self._type, body, producer=producer)
        result = responses.parse_appended(call, await self._send(call))
        if result.duplicate and not batch.may_be_written:
            # It was never sent before, so another producer has used its number.
            raise ProducerFenced(
                f"append to {self._name!r}: another producer {self._producer.id!r} "
                f"uses epoch {self.epoch}",
                details={"epoch": self.epoch},
            )
        return result

    async def _wait_for_turn(self, batch: MessageBatch) -> None:
        """Wait until no earlier batch is in flight."""
        while self._fence is None and min(self._in_flight) != batch.seq:
            await self._progress.wait()
        if self._fence is not None:
            raise self._fence.copy()

    def _take_over(self, fence: ProducerFenced) -> None:
        """Begin a newer epoch with the refused batches, or fail."""
        refused = [self._fenced[seq] for seq in sorted(self._fenced)]
        if not self._producer.auto_claim:
            self._fail(fence)
            return
        if any(batch.may_be_written for batch in refused):
            self._fail(
                OutcomeUnknown(
                    f"append to {self._name!r}: another producer {self._producer.id!r} took over "
                    "while a response was missing; the messages may or may not be written",
                )
            )
            return
        self._fence, self._fenced = None, {}
        self.epoch, self._next, self._epoch_begun = _epoch(fence) + 1, 0, False
        self._ready.extendleft(reversed(refused))

    def _fail(self, error: FourfoldError, seq: int = 0) -> None:
        """Fail all batches from a number on, so that no later one overtakes them."""
        if self.failure is not None:
            return
        self.failure = error
        flying = [batch for batch in self._in_flight.values() if batch.seq >= seq]
        failed = [*flying, *self._fenced.values(), *self._ready, self._open]
        self._ready.clear()
        self._open, self.pending_bytes = MessageBatch(), 0
        for batch in failed:
            for receipt in batch.receipts:
                if not receipt.done():
                    receipt.set_exception(error.copy())
        self._notify_change()

    def _notify_change(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()
        self._on_change()


def _epoch(error: ProducerFenced) -> int:
    epoch = error.details.get("epoch")
    return epoch if isinstance(epoch, int) else 0


class AsyncProducer:
    """A producer for coroutines. Leaving its block waits until everything is acknowledged."""

    def __init__(
        self,
        settings: ConnectionSettings,
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
            AppendTarget(settings.address, name, content_type),
            _identity(producer_id, epoch, auto_claim=auto_claim),
            batching=batching,
            retry_for=retry_for,
            on_change=self._notify_change,
        )
        self._has_room = asyncio.Event()
        self._closed = False

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._delivery.epoch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close(flush=kind is None)

    async def append(self, message: bytes | str) -> asyncio.Future[AppendResult]:
        """Append one message; its receipt completes when it is on disk.

        Waits only while too many bytes are not acknowledged.
        """
        data = check_message(to_bytes(message), self._type)
        while self._delivery.pending_bytes > self._buffer and self._delivery.failure is None:
            self._has_room.clear()
            await self._has_room.wait()
        self._raise_failure()
        receipt: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        # A receipt may be ignored: the next call raises a failure too.
        receipt.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._delivery.add(data, receipt)
        return receipt

    async def append_json(self, value: Any) -> asyncio.Future[AppendResult]:
        """Append one value; its receipt completes when it is on disk."""
        return await self.append(to_json(value))

    async def flush(self) -> None:
        """Wait until everything is on disk; raise the failure otherwise."""
        await self._delivery.flush()

    async def close(self, *, flush: bool = True) -> None:
        """Close the producer, by default after everything is on disk."""
        if self._closed:
            return
        self._closed = True
        try:
            if flush:
                await self._delivery.flush()
        finally:
            await self._delivery.stop()
            await self._transport.close()

    def _raise_failure(self) -> None:
        if self._delivery.failure is not None:
            raise self._delivery.failure.copy()

    def _notify_change(self) -> None:
        self._has_room.set()


class StreamProducer:
    """A producer for threads; any number of them may append.

    Leaving its block waits until everything is acknowledged.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
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
            AppendTarget(settings.address, name, content_type),
            _identity(producer_id, epoch, auto_claim=auto_claim),
            batching=batching,
            retry_for=retry_for,
            on_change=self._notify_change,
        )
        self._change = threading.Condition()
        self._waiting: deque[tuple[bytes, concurrent.futures.Future[AppendResult]]] = deque()
        self._waiting_bytes = 0
        self._woken = False
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fourfold-producer", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._delivery.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)

    def append(self, message: bytes | str) -> concurrent.futures.Future[AppendResult]:
        """Append one message; its receipt completes when it is on disk.

        Waits only while too many bytes are not acknowledged.
        """
        data = check_message(to_bytes(message), self._type)
        receipt: concurrent.futures.Future[AppendResult] = concurrent.futures.Future()
        with self._change:
            self._change.wait_for(lambda: self._pending_bytes() <= self._buffer or self._failure())
            self._raise_failure()
            self._waiting.append((data, receipt))
            self._waiting_bytes += len(data)
            wake, self._woken = not self._woken, True
            if wake:
                self._loop.call_soon_threadsafe(self._wake.set)
        return receipt

    def append_json(self, value: Any) -> concurrent.futures.Future[AppendResult]:
        """Append one value; its receipt completes when it is on disk."""
        return self.append(to_json(value))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is on disk; raise the failure, or TimeoutError after `timeout`."""
        with self._change:
            self._raise_failure()
            flushing = asyncio.run_coroutine_threadsafe(self._flush(), self._loop)
        flushing.result(timeout)

    def close(self, *, flush: bool = True) -> None:
        """Close the producer, by default after everything is on disk."""
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

    def _pending_bytes(self) -> int:
        return self._waiting_bytes + self._delivery.pending_bytes

    def _failure(self) -> FourfoldError | None:
        if self._closed:
            return Closed("the producer is closed", hint="Create another producer.")
        return self._delivery.failure

    def _raise_failure(self) -> None:
        if (failure := self._failure()) is not None:
            raise failure.copy()

    # On the thread of the loop

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        try:
            while not self._closed:
                await self._wake.wait()
                self._move_waiting()
        finally:
            self._move_waiting()
            await self._delivery.stop()
            await self._transport.close()

    def _move_waiting(self) -> None:
        """Pass the messages of threads on to the delivery."""
        with self._change:
            self._wake.clear()
            self._woken = False
            messages, self._waiting = self._waiting, deque()
            self._waiting_bytes = 0
            for data, receipt in messages:
                self._delivery.add(data, receipt)

    async def _flush(self) -> None:
        self._move_waiting()
        await self._delivery.flush()

    def _notify_change(self) -> None:
        with self._change:
            self._change.notify_all()


def _identity(producer_id: str, epoch: int | None, *, auto_claim: bool) -> ProducerIdentity:
    first = new_epoch() if epoch is None else epoch
    check_producer(Producer(producer_id, first, 0))
    return ProducerIdentity(id=producer_id, epoch=first, auto_claim=auto_claim)
