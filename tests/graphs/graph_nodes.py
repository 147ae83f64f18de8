"""Nodes for the tests of graphs: a database with one app, and the keys to talk to others."""

from __future__ import annotations

from fourfold.kernel import Database
from fourfold.models.graphs import GLOBAL_SEQ, MIGRATIONS, PROFILE, Graphs, Query
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.sync.envelope import PACKAGE_BYTES_TARGET
from fourfold.models.graphs.sync.keys import Ed25519Signer

SHARED = 1
APP = 1


def open_graphs(path, *, strict=False, **changes):
    database = Database.open(
        path, profile=PROFILE, migrations=MIGRATIONS, sequences=(GLOBAL_SEQ,), **changes
    )
    try:
        return Graphs(database, strict=strict)
    except BaseException:
        database.close()
        raise


def with_notes(graphs):
    """An app with a type of every kind; their ids by kind."""
    graphs.register_app("notes", "Notes")
    types = {kind: graphs.register_type(APP, kind, f"note {kind}") for kind in KINDS}
    types["suppress"] = graphs.register_type(APP, "rating", "suppress")
    return types


class Node:
    """One of several stores that exchange packages."""

    def __init__(self, path, seed):
        self.path = path
        self.signer = Ed25519Signer(bytes([seed]) * 32)
        self.open()
        self.types = with_notes(self.graphs)
        self.graphs.define_domain("notes", SHARED)
        self.me = self.graphs.add_identity(self.signer.public_key).id
        self.peers = {}

    def open(self):
        self.graphs = open_graphs(self.path)

    def reopen(self):
        self.graphs.database.close()
        self.open()

    def meet(self, other, *domains):
        """Accept another node as a peer that may read and write these domains."""
        identity = self.graphs.add_identity(other.signer.public_key)
        self.peers[other.path] = self.graphs.add_peer(identity.id, str(other.path)).id
        for domain in domains or ("notes",):
            self.graphs.allow_peer(self.peers[other.path], domain)

    def pull(self, other, domain="notes", max_bytes=PACKAGE_BYTES_TARGET, after=0):
        """Import the next package of another node; return it with the report."""
        sent = other.graphs.export_package(
            domain,
            other.signer,
            tips=self.graphs.sync_tips(domain),
            max_bytes=max_bytes,
            after=after,
        )
        return sent, self.graphs.ingest_package(self.peers[other.path], sent.data)

    def pull_all(self, other, domain="notes", max_bytes=PACKAGE_BYTES_TARGET):
        """Import everything that another node has; return the number of new envelopes."""
        accepted, after, complete = 0, 0, False
        while not complete:
            sent, done = self.pull(other, domain, max_bytes, after)
            assert not done.refused, done.refused
            accepted, after, complete = accepted + done.accepted, sent.position, sent.complete
        return accepted


def everything(graphs, app_id=APP):
    """All rows of an app by kind, as they stand in the tables."""
    return {kind: graphs.select(Query(app_id, kind)) for kind in KINDS}


def write(node, text, flags=SHARED, **value):
    """A note with one attribute, in one transaction; return the ids of both."""
    with node.graphs.transaction() as txn:
        of = {"owner_identity": node.me, "sync_flags": flags}
        note = node.graphs.insert_parent(APP, {"type_id": node.types["parent"], **of}, txn=txn)
        values = value or {"value_text": text}
        body = {"type_id": node.types["attr"], "parent_id": note, **values, **of}
        return note, node.graphs.insert_attr(APP, body, txn=txn)


def texts(node):
    return sorted(row.value_text for row in node.graphs.current_attrs(APP))


def exported(node, domain="notes", **options):
    return node.graphs.export_package(domain, node.signer, **options)


def take(node, source, data):
    return node.graphs.ingest_package(node.peers[source.path], data)


def shape(node):
    """The rows of a node without what is its own: ids, seqs, owners and origins."""
    own = {"id", "global_seq", "owner_identity", "origin", "origin_seq", "position", "leads"}
    rows = everything(node.graphs)
    return {
        kind: [{k: v for k, v in each._asdict().items() if k not in own} for each in rows[kind]]
        for kind in rows
    }
