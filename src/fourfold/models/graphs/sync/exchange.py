"""The part of `Graphs` that exchanges rows with other nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from fourfold.errors import NotFound
from fourfold.kernel import Database, load_queries
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import Kind
from fourfold.models.graphs.sync import entries, export, ingest, keys, log, ranges, refusals
from fourfold.models.graphs.sync.entries import SyncHeads
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_TARGET
from fourfold.models.graphs.sync.export import Export
from fourfold.models.graphs.sync.ingest import IngestReport
from fourfold.models.graphs.sync.keys import Signer
from fourfold.models.graphs.sync.log import SignReport
from fourfold.models.graphs.sync.refusals import REFUSALS_STORED, StoredRefusal
from fourfold.models.graphs.writer import GraphTransaction

if TYPE_CHECKING:
    from fourfold.models.graphs.graphs import Graphs

T = TypeVar("T")
_SQL = load_queries("fourfold.models.graphs.sync")
_PARKED_LISTED = 1_000


class PeerRight(NamedTuple):
    """Rights of a peer in a domain."""

    peer_id: int
    domain: str
    may_read: bool
    may_write: bool


class LogFork(NamedTuple):
    """Two entries that follow the same one: the author's log was written twice."""

    domain: str
    author: str
    incarnation: str
    seq: int
    first: str
    second: str
    noticed_at: str


class ParkedRow(NamedTuple):
    """A row that waits for `missing`; without it, the row can never be applied, for `reason`."""

    row_id: str
    domain: str
    app_id: int
    kind: Kind
    missing: str | None
    reason: str


class Exchange:
    """The part of `Graphs` that exchanges rows with other nodes."""

    database: Database

    @abstractmethod
    def _write(self, txn: GraphTransaction | None, work: Callable[[GraphTransaction], T]) -> T: ...

    def allow_peer(
        self,
        peer_id: int,
        domain: str,
        *,
        may_read: bool = True,
        may_write: bool = True,
        txn: GraphTransaction | None = None,
    ) -> None:
        """Set what a peer may do in a domain. Without this call it may do nothing.

        Args:
            may_read: Packages of the domain may be exported for the peer.
            may_write: Envelopes of the domain that the peer hands over are accepted.
        """

        def work(handle: GraphTransaction) -> None:
            ingest.check_peer(handle.txn, peer_id)
            if domain not in cast("Graphs", self).domains_in(handle.txn):
                raise NotFound(f"unknown domain {domain!r}", hint="Define it with `define_domain`.")
            rights = (int(may_read), int(may_write))
            handle.txn.execute(_SQL.put_right, (peer_id, domain, *rights))

        self._write(txn, work)

    def list_peer_rights(self) -> tuple[PeerRight, ...]:
        """Return what each peer may do in each domain."""
        with self.database.read() as snapshot:
            rows = snapshot.all(_SQL.rights)
        return tuple(PeerRight(int(p), str(d), bool(r), bool(w)) for p, d, r, w in rows)

    def peer_right(self, peer_id: int, domain: str) -> PeerRight:
        """Return what a peer may do in a domain; nothing if the domain is closed to it."""
        with self.database.read() as snapshot:
            row = snapshot.one(_SQL.right, (peer_id, domain))
        return PeerRight(peer_id, domain, *((False, False) if row is None else map(bool, row)))

    def find_peer(self, public_key: str) -> int | None:
        """Return the first peer with a public key, or None."""
        with self.database.read() as snapshot:
            peer = snapshot.value(_SQL.peer_of_key, (public_key,))
        return None if peer is None else int(peer)

    def restrict_domain(
        self, domain: str, app_ids: Iterable[int], *, txn: GraphTransaction | None = None
    ) -> None:
        """Accept only rows of some apps in a domain; with none, of every app but the system app."""
        apps = sorted({validation.check_integer(app, "app_id", least=1) for app in app_ids})

        def work(handle: GraphTransaction) -> None:
            graphs = cast("Graphs", self)
            if domain not in graphs.domains_in(handle.txn):
                raise NotFound(f"unknown domain {domain!r}", hint="Define it with `define_domain`.")
            handle.txn.execute(_SQL.drop_domain_apps, (domain,))
            for app_id in apps:
                handle.check_app(app_id)
                handle.txn.execute(_SQL.add_domain_app, (domain, app_id))

        self._write(txn, work)

    def domain_apps(self, domain: str) -> tuple[int, ...]:
        """Return the apps that a domain is restricted to; empty if it accepts every app."""
        with self.database.read() as snapshot:
            return tuple(int(row[0]) for row in snapshot.all(_SQL.domain_apps, (domain,)))

    def export_package(
        self,
        domain: str,
        signer: Signer | None = None,
        *,
        peer_id: int | None = None,
        tips: bytes | str | None = None,
        after: int = 0,
        max_bytes: int = PACKAGE_BYTES_TARGET,
        trust_seqs: bool = False,
    ) -> Export:
        """Sign the new shared rows of the signer, and pack the entries that a peer lacks.

        Args:
            signer: Key of the identity whose rows are signed; None only forwards entries.
            peer_id: Receiver; it needs the right to read. What it has confirmed is left out.
            tips: What the receiver has, as returned by `sync_tips` there; by default what the peer
                has confirmed.
            after: Continue after the `position` of a package that was not complete.
            max_bytes: Size of the package, unless one envelope is larger.
            trust_seqs: Leave out a log of which the receiver has a later seq, also if its tip is
                not known here. If it is a fork, only `reconcile` finds that.
        """
        return export.export(
            cast("Graphs", self),
            domain,
            signer,
            peer_id=peer_id,
            tips=tips,
            after=after,
            max_bytes=max_bytes,
            trust_seqs=trust_seqs,
        )

    def ingest_package(self, peer_id: int, data: bytes) -> IngestReport:
        """Import the envelopes of a package; each is accepted or refused alone.

        Envelopes that are refused are listed in the result and by `sync_refusals`; the others are
        imported, several in one transaction.
        """
        return ingest.ingest(cast("Graphs", self), peer_id, data)

    def sign_shared(self, domain: str, signer: Signer) -> SignReport:
        """Sign the new shared rows of the signer, and append them to its log."""
        return log.sign_rows(cast("Graphs", self), domain, signer)

    def sync_heads(self, domain: str) -> SyncHeads:
        """Return the number of entries of a domain here, and their fingerprint.

        Two nodes with equal fingerprints have the same entries.
        """
        return entries.read_heads(cast("Graphs", self), domain)

    def newest_arrival(self) -> int:
        """Return the place of the newest entry in the order of arrival; 0 without any."""
        with self.database.read() as snapshot:
            return int(snapshot.value(_SQL.newest_arrival) or 0)

    def count_logs(self, domain: str) -> int:
        """Return the number of logs of a domain."""
        with self.database.read() as snapshot:
            return int(snapshot.value(_SQL.count_logs, (domain,)))

    def reconcile(self, domain: str, message: bytes | None = None) -> bytes:
        """Return the answer to a message of a reconciliation; without one, the first message.

        `fourfold.models.graphs.sync.ranges` describes the messages.
        """
        parsed = None if message is None else ranges.decode_message(message)
        return ranges.encode_message(entries.reconcile(cast("Graphs", self), domain, parsed))

    def export_entries(
        self,
        domain: str,
        ids: Iterable[bytes],
        *,
        after: int = 0,
        max_bytes: int = PACKAGE_BYTES_TARGET,
    ) -> Export:
        """Pack entries by their ids, or by prefixes of 12 bytes, in the order of their arrival.

        Entries that are not here are left out. If the package is not complete, export again with
        `after=position`.
        """
        limit = validation.check_integer(max_bytes, "max_bytes", least=1)
        position = validation.check_integer(after, "after")
        return entries.export_ids(cast("Graphs", self), domain, ids, position, limit)

    def sync_tips(self, domain: str) -> bytes:
        """Return what this node has of a domain, as JSON: the last entries of each log."""
        return export.read_tips(cast("Graphs", self), domain)

    def confirm_tips(self, peer_id: int, tips: bytes | str) -> int:
        """Record what a peer has, and return the number of entries; exports for it begin there."""
        return export.confirm(cast("Graphs", self), peer_id, tips)

    def sync_forks(self) -> tuple[LogFork, ...]:
        """Return the forks of logs, oldest first. Both branches are applied on every node."""
        with self.database.read() as snapshot:
            rows = snapshot.all(_SQL.forks)
        return tuple(
            LogFork(d, keys.to_text(bytes(a)), i.hex(), int(seq), f.hex(), s.hex(), str(at))
            for d, a, i, seq, f, s, at in rows
        )

    def parked_rows(self, limit: int = _PARKED_LISTED) -> tuple[ParkedRow, ...]:
        """Return rows that wait for a row that they refer to."""
        with self.database.read() as snapshot:
            rows = snapshot.all(_SQL.parked, (validation.check_integer(limit, "limit", least=1),))
        return tuple(
            ParkedRow(r.hex(), d, int(a), k, None if m is None else m.hex(), reason)
            for r, d, a, k, m, reason in rows
        )

    def sync_refusals(
        self, peer_id: int | None = None, *, limit: int = REFUSALS_STORED
    ) -> tuple[StoredRefusal, ...]:
        """Return the refusals of envelopes of a peer, or of all peers, newest first.

        The newest 200 of each peer are stored. One is dropped once its envelope was accepted.
        """
        checked = validation.check_integer(limit, "limit", least=1)
        with self.database.read() as snapshot:
            if peer_id is not None:
                ingest.check_peer(snapshot, peer_id)
            return refusals.read(snapshot, peer_id, checked)

    def migrate_sync(self, backup: str | Path) -> int:
        """Give content ids to rows of the earlier format, after a backup to a new file.

        Return the number of rows of other nodes. They stay readable, and are not forwarded until
        an envelope of their author arrives. Peers must be allowed again.
        """
        graphs = cast("Graphs", self)
        graphs.backup(backup)
        rows = log.identify(graphs)

        def work(handle: GraphTransaction) -> None:
            handle.txn.execute(_SQL.leave_earlier_format)
            handle.txn.execute(_SQL.drop_progress)
            handle.txn.execute(_SQL.drop_sent)

        graphs.with_transaction(work)
        return rows
