"""Nodes for the tests of graphs: a database with one app, and the keys to talk to others."""

from __future__ import annotations

from fourfold.kernel import Database
from fourfold.models.graphs import GLOBAL_SEQ, MIGRATIONS, PROFILE, Graphs, Query
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.sync.package import Ed25519Signer

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

    def meet(self, other):
        identity = self.graphs.add_identity(other.signer.public_key)
        self.peers[other.path] = self.graphs.add_peer(identity.id, str(other.path)).id

    def cursor(self, other):
        wanted = (self.peers[other.path], "notes")
        known = {(each.peer_id, each.domain): each for each in self.graphs.sync_progress()}
        return known[wanted].last_seq if wanted in known else 0

    def pull(self, other, limit=1000):
        """Take in the next package of another node; whether there was one."""
        sent = other.graphs.export_package(
            "notes", other.signer, after=self.cursor(other), limit=limit
        )
        if sent is not None:
            self.graphs.ingest_package(self.peers[other.path], sent.data)
        return sent is not None

    def pull_all(self, other):
        while self.pull(other):
            pass


def everything(graphs, app_id=APP):
    """All rows of an app by kind, as they stand in the tables."""
    return {kind: graphs.select(Query(app_id, kind)) for kind in KINDS}
