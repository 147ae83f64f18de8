"""The page of sync: peers with their rights, domains with their logs, forks, and how to begin.

What a peer may do, and how much it has, is stored only as it is now. In the past the page leaves
out the peers that were added later, and the forks that were noticed later.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fourfold.explorer import values
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, Visit
from fourfold.wire.sync_status import SyncDomainInfo, SyncPeerInfo, SyncStatusInfo


async def sync_page(visit: Visit, _query: ExplorerQuery) -> dict[str, Any]:
    """Show with whom the graphs are exchanged, what each peer may do, and how far it is."""
    status = await visit.api.get("/v1/sync/status", SyncStatusInfo)
    until_ms = visit.time_ms
    entries = {row.domain: row.entries for row in status.domains}
    return {
        "domains": [_domain_row(row) for row in status.domains],
        "peers": [
            _peer_row(peer, entries)
            for peer in status.peers
            if until_ms is None or values.to_ms(peer.created_at) <= until_ms
        ],
        "forks": [
            fork
            for fork in status.forks
            if until_ms is None or values.to_ms(fork.noticed_at) <= until_ms
        ],
        "fork_count": status.fork_count,
        "parked_count": status.parked_count,
        "complete": status.complete,
        "is_empty": not (status.domains or status.peers),
    }


def _peer_row(peer: SyncPeerInfo, entries: dict[str, int]) -> dict[str, Any]:
    """Return a peer for the page; its rights have the entries that this node has of the domain."""
    rights = [
        {**msgspec.to_builtins(right), "entries": entries.get(right.domain)}
        for right in peer.rights
    ]
    return {**msgspec.to_builtins(peer), "rights": rights}


def _domain_row(domain: SyncDomainInfo) -> dict[str, Any]:
    """Return a domain for the page; a log with several tips is forked."""
    logs = [{**msgspec.to_builtins(log), "is_forked": len(log.tips) > 1} for log in domain.logs]
    return {**msgspec.to_builtins(domain), "logs": logs}


PAGES: Final = (
    ExplorerPage(
        "/sync", "sync.html", sync_page, ExplorerQuery, "Show peers, domains, logs and forks."
    ),
)
