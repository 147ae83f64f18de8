"""Producers: append a message, get a receipt; each message is on the stream once, in order.

    with stream.producer("till-1") as producer:
        receipt = producer.append_json({"id": 1})
        receipt.result()

The one for threads runs the one for coroutines in a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from types import TracebackType
from typing import Any, Self

from fourfold.client.answers import Appended
from fourfold.client.calls import as_bytes, as_json
from fourfold.client.delivery import (
    Batching,
    Delivery,
    Identity,
    Target,
    checked_message,
    new_epoch,
)
from fourfold.client.transport import AsyncTransport, Settings
from fourfold.errors import Closed, FourfoldError
from fourfold.models.streams.admission import check_producer
from fourfold.models.streams.records import Producer


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
        batching: Batching,
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
        batching: Batching,
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
