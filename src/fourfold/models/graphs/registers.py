"""Settings, identities, peers, sync progress and derived caches, stored beside the graph."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from fourfold.errors import AlreadyExists, NotFound, SequenceRegression
from fourfold.kernel import Database, ReadTransaction
from fourfold.models.graphs import validation
from fourfold.models.graphs.records import Identity, Peer, SyncProgress
from fourfold.models.graphs.statements import SQL
from fourfold.models.graphs.sync import identities
from fourfold.models.graphs.sync.identities import RebuildResult
from fourfold.models.graphs.writer import GraphTransaction

T = TypeVar("T")


class Registers:
    """The part of `Graphs` that stores what is not part of the graph."""

    database: Database

    @abstractmethod
    def _write(self, txn: GraphTransaction | None, work: Callable[[GraphTransaction], T]) -> T: ...

    # Settings

    def upsert_setting(self, key: str, value: str, *, txn: GraphTransaction | None = None) -> None:
        """Store a setting."""
        params = (validation.check_text(key, "key"), validation.check_stored_text(value, "value"))
        self._write(txn, lambda handle: handle.txn.execute(SQL.put_setting, params))

    def get_setting(self, key: str) -> str | None:
        """Return a setting, or None if it is not set."""
        with self.database.read() as snapshot:
            return cast(
                "str | None", snapshot.value(SQL.setting, (validation.check_text(key, "key"),))
            )

    def list_settings(self) -> Mapping[str, str]:
        """Return all settings."""
        with self.database.read() as snapshot:
            return MappingProxyType(dict(cast("Any", snapshot.all(SQL.settings))))

    # Identities and peers

    def add_identity(
        self, pubkey: str, label: str | None = None, *, txn: GraphTransaction | None = None
    ) -> Identity:
        """Return the identity of a public key, creating it on first use.

        An identity is an object of the system app, with a seq in the log.
        """
        validation.check_text(pubkey, "pubkey", most=4096)
        if label is not None:
            validation.check_text(label, "label")

        def work(handle: GraphTransaction) -> Identity:
            row = handle.txn.one(SQL.identity, (handle.identity(pubkey, label),))
            return Identity._make(cast("Any", row))

        return self._write(txn, work)

    def list_identities(self) -> tuple[Identity, ...]:
        """Return all identities."""
        with self.database.read() as snapshot:
            return tuple(Identity._make(row) for row in snapshot.all(SQL.identities))

    def rebuild_identities(
        self, *, drop_unknown: bool = False, txn: GraphTransaction | None = None
    ) -> RebuildResult:
        """Rebuild the cache of public keys from the graph of the system app.

        Keys that only the cache contains are an error, or dropped with `drop_unknown`.
        """
        return self._write(
            txn, lambda handle: identities.rebuild(handle.txn, drop_unknown=drop_unknown)
        )

    def add_peer(
        self,
        identity_id: int,
        endpoint: str,
        meta_json: str = "{}",
        *,
        txn: GraphTransaction | None = None,
    ) -> Peer:
        """Add a peer: an identity at an endpoint.

        Raises:
            AlreadyExists: The identity has that endpoint already.
        """
        validation.check_integer(identity_id, "identity_id", least=1)
        validation.check_text(endpoint, "endpoint", most=4096)
        validation.check_json_text(meta_json, "meta_json")

        def work(handle: GraphTransaction) -> Peer:
            if handle.txn.one(SQL.identity, (identity_id,)) is None:
                raise NotFound(f"unknown identity {identity_id}")
            for peer in handle.txn.all(SQL.peers):
                if (peer[1], peer[2]) == (identity_id, endpoint):
                    raise AlreadyExists(
                        f"identity {identity_id} at {endpoint} already exists as peer {peer[0]}"
                    )
            params = (identity_id, endpoint, meta_json, handle.now)
            handle.txn.execute(SQL.add_peer, params)
            number = handle.txn.value(SQL.last_peer)
            return Peer._make(cast("Any", handle.txn.one(SQL.peer, (number,))))

        return self._write(txn, work)

    def list_peers(self) -> tuple[Peer, ...]:
        """Return all peers."""
        with self.database.read() as snapshot:
            return tuple(Peer._make(row) for row in snapshot.all(SQL.peers))

    # Progress of synchronisation

    def record_sync_progress(
        self, peer_id: int, domain: str, last_seq: int, *, txn: GraphTransaction | None = None
    ) -> None:
        """Record the seq up to which rows of a peer were imported; it never decreases."""
        validation.check_integer(peer_id, "peer_id")
        validation.check_text(domain, "domain", most=64)
        validation.check_integer(last_seq, "last_seq")

        def work(handle: GraphTransaction) -> None:
            known = handle.txn.value(SQL.progress, (peer_id, domain)) or 0
            if last_seq < known:
                raise SequenceRegression(
                    f"peer {peer_id}, domain {domain!r}: progress must be at least {known}, "
                    f"got {last_seq}"
                )
            handle.txn.execute(SQL.put_progress, (peer_id, domain, last_seq))

        self._write(txn, work)

    def sync_progress(self) -> tuple[SyncProgress, ...]:
        """Return the progress of all peers in all domains."""
        with self.database.read() as snapshot:
            return tuple(SyncProgress._make(row) for row in snapshot.all(SQL.all_progress))

    def define_domain(self, domain: str, mask: int, *, txn: GraphTransaction | None = None) -> None:
        """Define a domain: the rows that have one of the sync flags in `mask`.

        A domain never changes, since other nodes rely on it.
        """
        key = validation.check_text(domain, "domain", most=64)
        bits = validation.check_integer(mask, "mask", least=1)

        def work(handle: GraphTransaction) -> None:
            handle.txn.execute(SQL.put_domain, (key, bits))
            if self.domains_in(handle.txn)[key] != bits:
                raise AlreadyExists(f"domain {key!r} already exists with another mask")

        self._write(txn, work)

    def domains(self) -> dict[str, int]:
        """Return the mask of each domain."""
        with self.database.read() as snapshot:
            return self.domains_in(snapshot)

    def domains_in(self, snapshot: ReadTransaction) -> dict[str, int]:
        """Return the mask of each domain in a read transaction."""
        return {str(row[0]): int(row[1]) for row in snapshot.all(SQL.domains)}

    def load_domain_seq(self, domain: str) -> int:
        """Return the counter of a domain; 0 if it has none."""
        with self.database.read() as snapshot:
            key = validation.check_text(domain, "domain", most=64)
            return int(snapshot.value(SQL.domain_seq, (key,)) or 0)

    def increment_domain_seq(self, domain: str, *, txn: GraphTransaction | None = None) -> int:
        """Increment the counter of a domain and return it."""
        key = validation.check_text(domain, "domain", most=64)

        def work(handle: GraphTransaction) -> int:
            handle.txn.execute(SQL.raise_domain_seq, (key,))
            return int(handle.txn.value(SQL.domain_seq, (key,)))

        return self._write(txn, work)

    # Derived caches

    def put_cached(
        self,
        owner: str,
        key: str,
        value: str,
        source_global_seq: int,
        *,
        txn: GraphTransaction | None = None,
    ) -> None:
        """Cache a result with the seq up to which it was computed."""
        params = (
            validation.check_text(owner, "owner"),
            validation.check_text(key, "key"),
            validation.check_json_text(value, "value"),
            validation.check_integer(source_global_seq, "source_global_seq"),
            time.time_ns() // 1_000_000,
        )
        self._write(txn, lambda handle: handle.txn.execute(SQL.put_cached, params))

    def get_cached(self, owner: str, key: str) -> tuple[str, int] | None:
        """Return a cached result and its seq, or None."""
        with self.database.read() as snapshot:
            row = snapshot.one(SQL.cached, (owner, key))
            return None if row is None else (str(row[0]), int(row[1]))

    def drop_cached(self, owner: str, *, txn: GraphTransaction | None = None) -> None:
        """Drop the cached results of an owner."""
        params = (validation.check_text(owner, "owner"),)
        self._write(txn, lambda handle: handle.txn.execute(SQL.drop_cached, params))
