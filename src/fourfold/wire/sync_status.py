"""Structs of the state of sync, as an operator sees it."""

from __future__ import annotations

from msgspec import Struct

from fourfold.wire.fields import Count


class SyncLogInfo(Struct, kw_only=True, frozen=True):
    """A log of a domain, with its newest tips: seq and id of the entry."""

    author: str
    label: str | None
    """Display name of the author."""
    incarnation: str
    is_own: bool
    """True if this node writes it."""
    tips: list[tuple[int, str]]


class SyncDomainInfo(Struct, kw_only=True, frozen=True):
    """A domain: the rows it shares, and how much the node has of it."""

    domain: str
    mask: int
    apps: list[str]
    """Apps that it is restricted to; empty if it accepts every app."""
    entries: Count
    fingerprint: str
    """Equal on two nodes if they have the same entries."""
    log_count: Count
    logs: list[SyncLogInfo]
    """The newest logs, newest first."""


class SyncRightInfo(Struct, kw_only=True, frozen=True):
    """The rights of a peer in a domain, and the progress of the exchange."""

    domain: str
    may_read: bool
    may_write: bool
    accepted: Count
    """Entries of the peer that were accepted."""
    confirmed: Count
    """Entries that the peer has confirmed to have."""


class SyncPeerInfo(Struct, kw_only=True, frozen=True):
    """A peer with its rights. A domain that is not listed is closed to it."""

    id: int
    public_key: str | None
    label: str | None
    endpoint: str
    created_at: str
    rights: list[SyncRightInfo]


class SyncForkInfo(Struct, kw_only=True, frozen=True):
    """Two entries that follow the same one: the author's log was written twice."""

    domain: str
    author: str
    incarnation: str
    seq: int
    first: str
    second: str
    noticed_at: str


class SyncStatusInfo(Struct, kw_only=True, frozen=True):
    """The state of sync on a node."""

    domains: list[SyncDomainInfo]
    peers: list[SyncPeerInfo]
    forks: list[SyncForkInfo]
    """The newest forks, newest first."""
    fork_count: Count
    parked_count: Count
    """Rows that wait for what they refer to."""
    complete: bool
    """False if there are more domains, peers or rights than those listed."""
