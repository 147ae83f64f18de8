"""Records of the subscriptions API: inputs, results and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["webhook", "pull-wake"]


class Owner(NamedTuple):
    """The key that creates a subscription, and the prefix of names that it is for."""

    key: str
    prefix: str


class Subscribe(NamedTuple):
    """The settings of a subscription to create: streams by a pattern, by name, or both."""

    id: str
    kind: Kind
    pattern: str | None = None
    streams: Sequence[str] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None
    address: str = ""
    """URL of the server, for the responses of a webhook."""
    owner: Owner | None = None
    """Owner of the subscription; None if no key is needed."""


class Subscription(NamedTuple):
    """A stored subscription and its state."""

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
    """The cursor of a subscription in one stream; `tail` is the end of the stream."""

    stream: str
    explicit: bool
    acked: int
    tail: int
    incarnation_number: int = 0
    """Incarnation number of the stream; 0 while it does not exist."""

    @property
    def pending(self) -> bool:
        """True if the stream has records after the cursor."""
        return self.tail > self.acked


class Wake(NamedTuple):
    """A notice of pending records; its generation fences all earlier wakes."""

    subscription: Subscription
    wake_id: str
    generation: int
    streams: tuple[Link, ...]


class Ack(NamedTuple):
    """A stream, and the offset up to which it was processed."""

    stream: str
    offset: str


class Due(NamedTuple):
    """True in `now` if there is work; `next_ms` is when a timer is due, without any append."""

    now: bool
    next_ms: int | None
