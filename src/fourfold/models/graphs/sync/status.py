"""The state of sync on one node, bounded: domains with their logs, peers with rights, and forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fourfold.kernel import ReadTransaction, load_queries
from fourfold.models.graphs.sync import keys
from fourfold.models.graphs.sync.entries import DomainEntries, sum_entries
from fourfold.models.graphs.sync.exchange import LogFork

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

_SQL = load_queries("fourfold.models.graphs.sync")
DOMAINS_MAX: Final = 100
PEERS_MAX: Final = 200
LOGS_MAX: Final = 50
"""Newest logs of a domain."""
FORKS_MAX: Final = 100
TIPS_MAX: Final = 5
"""Tips of one log; a log that is not forked has one."""


class SyncLog(NamedTuple):
    """A log of a domain, with its newest tips as seq and id of the entry."""

    author: str
    label: str | None
    incarnation: str
    is_own: bool
    """True if this node writes it."""
    tips: tuple[tuple[int, str], ...]


class SyncDomain(NamedTuple):
    """A domain: the rows it shares, and how much this node has of it."""

    domain: str
    mask: int
    apps: tuple[str, ...]
    """Apps that it is restricted to; empty if it accepts every app."""
    entries: int
    fingerprint: str
    log_count: int
    logs: tuple[SyncLog, ...]
    """The newest logs first."""


class SyncRight(NamedTuple):
    """The rights of a peer in a domain, and the progress of the exchange."""

    domain: str
    may_read: bool
    may_write: bool
    accepted: int
    """Entries of the peer that were accepted here."""
    confirmed: int
    """Entries that the peer has confirmed to have."""


class SyncPeer(NamedTuple):
    """A peer with its rights."""

    id: int
    public_key: str | None
    label: str | None
    endpoint: str
    created_at: str
    rights: tuple[SyncRight, ...]


class SyncStatus(NamedTuple):
    """The state of sync on one node."""

    domains: tuple[SyncDomain, ...]
    peers: tuple[SyncPeer, ...]
    forks: tuple[LogFork, ...]
    """The newest forks first."""
    fork_count: int
    parked_count: int
    complete: bool
    """False if there are more domains, peers or rights than those listed."""


def read_status(graphs: Graphs) -> SyncStatus:
    """Return the state of sync, in one read transaction."""
    sum_entries(graphs)
    with graphs.database.read_current() as snapshot:
        domains = snapshot.all(_SQL.first_domains, (DOMAINS_MAX + 1,))
        peers = snapshot.all(_SQL.first_peers, (PEERS_MAX + 1,))
        statuses = tuple(
            SyncPeer(
                int(number), key, label, str(endpoint), str(created), _rights(snapshot, int(number))
            )
            for number, key, label, endpoint, created in peers[:PEERS_MAX]
        )
        node = snapshot.one(_SQL.node)
        own = None if node is None else bytes(node[0])
        return SyncStatus(
            tuple(
                _domain(snapshot, str(name), int(mask), own) for name, mask in domains[:DOMAINS_MAX]
            ),
            tuple(peer._replace(rights=peer.rights[:DOMAINS_MAX]) for peer in statuses),
            tuple(
                LogFork(
                    str(domain),
                    keys.to_text(bytes(author)),
                    bytes(incarnation).hex(),
                    int(seq),
                    bytes(first).hex(),
                    bytes(second).hex(),
                    str(noticed),
                )
                for domain, author, incarnation, seq, first, second, noticed in snapshot.all(
                    _SQL.newest_forks, (FORKS_MAX,)
                )
            ),
            int(snapshot.value(_SQL.count_forks) or 0),
            int(snapshot.value(_SQL.count_all_parked) or 0),
            len(domains) <= DOMAINS_MAX
            and len(peers) <= PEERS_MAX
            and all(len(peer.rights) <= DOMAINS_MAX for peer in statuses),
        )


def _rights(snapshot: ReadTransaction, peer_id: int) -> tuple[SyncRight, ...]:
    return tuple(
        SyncRight(str(domain), bool(reads), bool(writes), int(accepted), int(confirmed))
        for domain, reads, writes, accepted, confirmed in snapshot.all(
            _SQL.peer_domains, (peer_id, DOMAINS_MAX + 1)
        )
    )


def _domain(snapshot: ReadTransaction, domain: str, mask: int, own: bytes | None) -> SyncDomain:
    heads = DomainEntries(snapshot, domain).heads()
    logs = []
    for log_id, author, incarnation in snapshot.all(_SQL.newest_logs, (domain, LOGS_MAX)):
        key = keys.to_text(bytes(author))
        label = snapshot.value(_SQL.label_of_key, (key,))
        tips = tuple(
            (int(seq), bytes(entry).hex())
            for seq, entry in snapshot.all(_SQL.newest_tips, (log_id, TIPS_MAX))
        )
        is_own = own is not None and bytes(incarnation) == own
        logs.append(SyncLog(key, label, bytes(incarnation).hex(), is_own, tips))
    return SyncDomain(
        domain,
        mask,
        tuple(str(row[0]) for row in snapshot.all(_SQL.domain_slugs, (domain, DOMAINS_MAX))),
        heads.entries,
        heads.fingerprint,
        int(snapshot.value(_SQL.count_logs, (domain,))),
        tuple(logs),
    )
