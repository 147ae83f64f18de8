# Generated from ../coroutines/remote_sync.py by `make generate`: change that file.
"""Sync with the node of a server, for threads."""

from __future__ import annotations

from collections.abc import Iterable

from fourfold.client import sync
from fourfold.client.follower import RemoteFollower
from fourfold.client.reader import EventReader
from fourfold.client.sync import PeerHeads, PeerRefusal, PulledPackage, SyncCalls
from fourfold.client.threads.connection import Connection
from fourfold.models.graphs.sync.entries import SyncHeads
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_TARGET
from fourfold.models.graphs.sync.ingest import IngestReport
from fourfold.wire.sync_status import SyncStatusInfo


class RemoteSync:
    """The node of a server, as a peer: what it has of a domain, and packages from and to it.

    The key of the connection must have the scope `sync`, and be for the public key of this node.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls = SyncCalls(connection.settings.address)

    def heads(self, domain: str, known: str | None = None) -> PeerHeads | None:
        """Return how much the peer has of a domain; None if its fingerprint is `known`."""
        return sync.parse_heads(self._connection.send(self._calls.heads(domain, known)))

    def pull(
        self,
        domain: str,
        tips: bytes | None = None,
        *,
        ids: Iterable[bytes] = (),
        after: int = 0,
        max_bytes: int = PACKAGE_BYTES_TARGET,
    ) -> PulledPackage:
        """Return a package of entries that this node lacks.

        Args:
            domain: The domain.
            tips: What this node has, from `sync_tips`; by default what it confirmed last.
            ids: Only these entries, by their ids or prefixes of 12 bytes; at most 1,000.
            after: Continue after the `position` of a package that was not complete.
            max_bytes: Size of the package, unless one envelope is larger.
        """
        call = self._calls.pull(domain, tips, ids, after, max_bytes)
        return sync.parse_package(self._connection.send(call))

    def push(self, domain: str, data: bytes) -> IngestReport:
        """Hand over a package; each envelope is accepted or refused alone."""
        return sync.parse_report(self._connection.send(self._calls.push(domain, data)))

    def reconcile(self, domain: str, message: bytes) -> bytes:
        """Return the answer of the peer to a message of `Graphs.reconcile`."""
        return (self._connection.send(self._calls.reconcile(domain, message))).body

    def refusals(self) -> tuple[PeerRefusal, ...]:
        """Return the envelopes of this node that the peer refused, newest first."""
        return sync.parse_refusals(self._connection.send(self._calls.refusals()))

    def status(self) -> SyncStatusInfo:
        """Return the domains with their logs, the peers with their rights, and forks.

        Needs a key for graphs with the scope `read` and no prefix.
        """
        return sync.parse_status(self._connection.send(self._calls.status()))

    def events(
        self, *, after: int | None = None, timeout: float | None = None
    ) -> RemoteFollower[SyncHeads]:
        """Follow the heads of the domains that this node may read: hints that pulling pays.

        It continues after broken connections, and starts with the heads of all domains.

        Args:
            after: Start after this event.
            timeout: End after this many seconds without a change.
        """
        reader = EventReader(self._calls.events(after), sync.decode_event)
        return RemoteFollower(self._connection.settings, reader, timeout, wait=False)
