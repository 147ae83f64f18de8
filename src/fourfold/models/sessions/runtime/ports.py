"""One runtime for functions and for coroutines.

Everything in the runtime is written once, as coroutines over a Port. `Direct` calls the store and
the user's functions and never waits for an event loop, so `drive` can run such a coroutine to its
end like a function. `PendingCall` awaits both.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from fourfold.content import PayloadRef
from fourfold.errors import InvalidInput
from fourfold.models.sessions.listing import SessionOrder
from fourfold.models.sessions.reader import SessionView
from fourfold.models.sessions.records import (
    UNSET,
    Claim,
    Epoch,
    Event,
    Head,
    SessionInfo,
    Unset,
)
from fourfold.models.sessions.runtime.records import TIMEOUT, TurnEnded

SESSION_FANOUT_THREADS: Final = 16
"""Children that run at the same time."""

T = TypeVar("T")
Lane = Callable[[], Coroutine[Any, Any, T]]


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise InvalidInput(
        "a function that is not a coroutine waited for one",
        hint="Write the step function with `async def`, and call run_turn_async().",
    )


class SessionStore(Protocol):
    """The calls of `fourfold.Sessions` that the runtime uses; a store of a server has them too."""

    def create_session(self, session: Mapping[str, Any] | None = None, /) -> Any:
        """Create a session, or return the existing one with this id."""
        ...

    async def create_session_async(self, session: Mapping[str, Any] | None = None, /) -> Any:
        """Create a session, or return the existing one with this id."""
        ...

    def append_events(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events with consecutive ids, or none of them."""
        ...

    async def append_events_async(
        self,
        sid: str,
        events: Iterable[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
        epoch: Epoch | None = None,
    ) -> Sequence[Event]:
        """Append several events with consecutive ids, or none of them."""
        ...

    def publish_head(
        self,
        sid: str,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Head:
        """Publish a head over the events since the current one."""
        ...

    async def publish_head_async(
        self,
        sid: str,
        head: Mapping[str, Any] | None = None,
        *,
        expected_basis: str | Unset | None = UNSET,
        to_event_id: int | None = None,
        key: str | None = None,
        events: Iterable[Mapping[str, Any]] = (),
        epoch: Epoch | None = None,
    ) -> Head:
        """Publish a head over the events since the current one."""
        ...

    def append_lineage_edge(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Add an edge to the log of a session."""
        ...

    async def append_lineage_edge_async(
        self, sid: str, edge: Mapping[str, Any], *, epoch: Epoch | None = None
    ) -> Event:
        """Add an edge to the log of a session."""
        ...

    def claim(self, sid: str, holder: str, ttl_s: float = ...) -> Claim:
        """Claim a session for a holder; return the claim with its epoch."""
        ...

    async def claim_async(self, sid: str, holder: str, ttl_s: float = ...) -> Claim:
        """Claim a session for a holder; return the claim with its epoch."""
        ...

    def renew(self, sid: str, epoch: int, ttl_s: float = ...) -> Claim:
        """Extend a claim by `ttl_s` seconds from now."""
        ...

    def release(self, sid: str, epoch: int) -> None:
        """End a claim before its time."""
        ...

    async def release_async(self, sid: str, epoch: int) -> None:
        """End a claim before its time."""
        ...

    def intern_payload(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value by its hash and return the reference to it."""
        ...

    async def intern_payload_async(self, value: Any, kind: str = "message") -> PayloadRef:
        """Store a value by its hash and return the reference to it."""
        ...

    def read_payload(self, ref: Any) -> Any:
        """Return the value that a reference names."""
        ...

    def current_view(self, sid: str) -> SessionView:
        """Return the newest state of a session."""
        ...

    def events_since(self, sid: str, event_id: int = 0, *, limit: int | None = None) -> list[Event]:
        """Return the events of a session after an event id."""
        ...

    def events_of_key(self, sid: str, key: str) -> list[Event]:
        """Return the events that a session stored for an idempotency key."""
        ...

    def head(self, head_id: str) -> Head:
        """Return a published head by its id."""
        ...

    def list(
        self,
        *,
        after: str | SessionInfo | None = None,
        limit: int = ...,
        prefix: str = ...,
        newest_first: bool = ...,
        where: Mapping[str, Any] | None = None,
        order: SessionOrder = ...,
        since: datetime | None = None,
    ) -> Sequence[SessionInfo]:
        """Return sessions with their newest states, filtered and in an order."""
        ...

    def notify_transient(self, sid: str, item: Any) -> None:
        """Deliver an item to the followers of a session without storing it, best effort."""
        ...


class Port(ABC):
    """Interface of the runtime to its environment."""

    awaits: bool

    def __init__(self, sessions: SessionStore, epochs: Mapping[str, int]) -> None:
        self.sessions = sessions
        self.epochs = epochs
        """Epochs of leases by session id; each write to such a session has it."""

    @abstractmethod
    async def claim(self, sid: str, holder: str, ttl_s: float) -> Claim:
        """Claim a session for a holder; return the claim with its epoch."""
        ...

    @abstractmethod
    async def release(self, sid: str, epoch: int) -> None:
        """End a claim before its time."""
        ...

    @abstractmethod
    async def create(self, session: Mapping[str, Any]) -> None:
        """Create a session, or do nothing if it exists."""
        ...

    @abstractmethod
    async def append(
        self,
        sid: str,
        events: Sequence[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Sequence[Event]:
        """Append events to a session, all or none."""
        ...

    @abstractmethod
    async def publish(
        self,
        sid: str,
        head: Mapping[str, Any],
        *,
        to_event_id: int | None = None,
        expected_basis: str | Unset | None = UNSET,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> Head:
        """Publish a head of a session, after more events if some are given."""
        ...

    @abstractmethod
    async def join(self, sid: str, edge: Mapping[str, Any]) -> Event:
        """Add an edge to the log of a session."""
        ...

    @abstractmethod
    async def intern(self, value: Any, kind: str) -> PayloadRef:
        """Store a value by its hash and return the reference to it."""
        ...

    @abstractmethod
    async def invoke(
        self, function: Callable[..., Any], *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a function of the user's, for so long at most where that can be enforced."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def gather(self, lanes: Sequence[Lane[T]]) -> list[T]:
        """Run several at once, and return their results in the same order."""


class Direct(Port):
    """The port of synchronous agents: calls the store, and functions of the user, directly."""

    awaits = False

    async def claim(self, sid: str, holder: str, ttl_s: float) -> Claim:
        """Claim a session for a holder; return the claim with its epoch."""
        return self.sessions.claim(sid, holder, ttl_s)

    async def release(self, sid: str, epoch: int) -> None:
        """End a claim before its time."""
        self.sessions.release(sid, epoch)

    async def create(self, session: Mapping[str, Any]) -> None:
        """Create a session, or do nothing if it exists."""
        self.sessions.create_session(session)

    async def append(
        self,
        sid: str,
        events: Sequence[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Sequence[Event]:
        """Append events to a session, all or none."""
        return self.sessions.append_events(
            sid, events, expected_last_id=expected_last_id, key=key, epoch=self.epochs.get(sid)
        )

    async def publish(
        self,
        sid: str,
        head: Mapping[str, Any],
        *,
        to_event_id: int | None = None,
        expected_basis: str | Unset | None = UNSET,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> Head:
        """Publish a head of a session, after more events if some are given."""
        return self.sessions.publish_head(
            sid,
            head,
            expected_basis=expected_basis,
            to_event_id=to_event_id,
            events=events,
            epoch=self.epochs.get(sid),
        )

    async def join(self, sid: str, edge: Mapping[str, Any]) -> Event:
        """Add an edge to the log of a session."""
        return self.sessions.append_lineage_edge(sid, edge, epoch=self.epochs.get(sid))

    async def intern(self, value: Any, kind: str) -> PayloadRef:
        """Store a value by its hash and return the reference to it."""
        return self.sessions.intern_payload(value, kind)

    async def invoke(
        self, function: Callable[..., Any], *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a function of the user, with a time limit where it can be enforced."""
        del within_s  # A function cannot be interrupted; it is asked again when it returns.
        result = function(*args)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise InvalidInput(
                f"{_named(function)} is a coroutine function, and its step function is not",
                hint="Write the step function with `async def` too.",
            )
        return result

    async def pause(self, seconds: float) -> None:
        """Wait in this thread."""
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs it

    async def gather(self, lanes: Sequence[Lane[T]]) -> list[T]:
        """Run the lanes and return their results in their order."""
        with ThreadPoolExecutor(SESSION_FANOUT_THREADS) as pool:
            return list(pool.map(lambda lane: drive(lane()), lanes))


class PendingCall(Port):
    """The port of asynchronous agents: awaits the store, and functions of the user."""

    awaits = True

    async def claim(self, sid: str, holder: str, ttl_s: float) -> Claim:
        """Claim a session for a holder; return the claim with its epoch."""
        return await _whole(self.sessions.claim_async(sid, holder, ttl_s))

    async def release(self, sid: str, epoch: int) -> None:
        """End a claim before its time."""
        await _whole(self.sessions.release_async(sid, epoch))

    async def create(self, session: Mapping[str, Any]) -> None:
        """Create a session, or do nothing if it exists."""
        await _whole(self.sessions.create_session_async(session))

    async def append(
        self,
        sid: str,
        events: Sequence[Mapping[str, Any]],
        *,
        expected_last_id: int | Unset = UNSET,
        key: str | None = None,
    ) -> Sequence[Event]:
        """Append events to a session, all or none."""
        return await _whole(
            self.sessions.append_events_async(
                sid, events, expected_last_id=expected_last_id, key=key, epoch=self.epochs.get(sid)
            )
        )

    async def publish(
        self,
        sid: str,
        head: Mapping[str, Any],
        *,
        to_event_id: int | None = None,
        expected_basis: str | Unset | None = UNSET,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> Head:
        """Publish a head of a session, after more events if some are given."""
        return await _whole(
            self.sessions.publish_head_async(
                sid,
                head,
                expected_basis=expected_basis,
                to_event_id=to_event_id,
                events=events,
                epoch=self.epochs.get(sid),
            )
        )

    async def join(self, sid: str, edge: Mapping[str, Any]) -> Event:
        """Add an edge to the log of a session."""
        return await _whole(
            self.sessions.append_lineage_edge_async(sid, edge, epoch=self.epochs.get(sid))
        )

    async def intern(self, value: Any, kind: str) -> PayloadRef:
        """Store a value by its hash and return the reference to it."""
        return await _whole(self.sessions.intern_payload_async(value, kind))

    async def invoke(
        self, function: Callable[..., Any], *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a function of the user, with a time limit where it can be enforced."""

        async def call() -> Any:
            result = function(*args)
            return await result if inspect.isawaitable(result) else result

        if within_s is None:
            return await call()
        limit = asyncio.timeout(within_s)
        try:
            async with limit:
                return await call()
        except TimeoutError:
            # A function may raise TimeoutError for reasons of its own.
            if not limit.expired():
                raise
            raise timed_out() from None

    async def pause(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)

    async def gather(self, lanes: Sequence[Lane[T]]) -> list[T]:
        """Run the lanes and return their results in their order."""
        gate = asyncio.Semaphore(SESSION_FANOUT_THREADS)

        async def run(lane: Lane[T]) -> T:
            async with gate:
                return await lane()

        return list(await asyncio.gather(*(run(lane) for lane in lanes)))


async def _whole(writing: Coroutine[Any, Any, T]) -> T:
    """Complete a write even if the caller is cancelled, so that the log has what was done."""
    task = asyncio.ensure_future(writing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def timed_out() -> TurnEnded:
    """Return the end of a turn whose time is over."""
    return TurnEnded(TIMEOUT, TIMEOUT, "the time for this turn ran out")


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function)[:100])
