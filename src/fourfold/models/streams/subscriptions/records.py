"""What subscriptions give back, and what callers hand in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["webhook", "pull-wake"]


class Owner(NamedTuple):
    """The key that creates a subscription, and the prefix of names that it is for."""

    key: str
    prefix: str


class Subscribe(NamedTuple):
    """What a subscription shall be like: streams by a pattern, by name, or both."""

    id: str
    kind: Kind
    pattern: str | None = None
    streams: Sequence[str] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None
    address: str = ""
    """Where the server is reached, so that a webhook can be answered there."""
    owner: Owner | None = None
    """Who creates it; None where no key is needed."""


class Subscription(NamedTuple):
    """A subscription as its row says."""

    sub: int
    id: str
    kind: Kind
    pattern: str | None
    webhook_url: str | None
    wake_stream: str | None
    lease_ttl_ms: int
    description: str | None
    config_hash: str
    address: str
    created_at_ms: int
    generation: int
    wake_id: str | None
    holder: str | None
    lease_until_ms: int | None
    next_attempt_ms: int | None
    failures: int
    owner_key: str | None = None
    owner_prefix: str | None = None
    """The prefix of the owner's key; None if it was created without one."""


class Link(NamedTuple):
    """The cursor of a subscription in one stream. `tail` is where the stream ends."""

    stream: str
    explicit: bool
    acked: int
    tail: int
    incarnation_number: int = 0
    """Of the stream; 0 while there is none of that name."""

    @property
    def pending(self) -> bool:
        return self.tail > self.acked


class Wake(NamedTuple):
    """Work for whoever takes it: a number that fences off all wakes before, and where it is."""

    subscription: Subscription
    wake_id: str
    generation: int
    streams: tuple[Link, ...]


class Ack(NamedTuple):
    """A stream, and up to where it was worked on."""

    stream: str
    offset: str


class Due(NamedTuple):
    """What is there to do, and when there is something again without anybody appending."""

    now: bool
    next_ms: int | None
