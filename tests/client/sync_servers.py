"""Nodes with servers on loopback, which know each other as peers."""

from __future__ import annotations

from both_fronts import Front

import fourfold
from fourfold.client.sync_runner import SyncTarget
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.server.auth import Access


class ServedNode:
    """A store with a key of its own, that a server offers."""

    def __init__(self, root, seed):
        self.root = root
        self.signer = Ed25519Signer(bytes([seed]) * 32)
        self.keys = {}
        self.peers = {}
        self.front = None
        with fourfold.open(root) as store:
            graphs = store.graphs
            app = graphs.create("talk")
            self.app = app.app_id
            self.type = app.register_type("parent", "note")
            self.text = app.register_type("attr", "text")
            graphs.define_domain("talk", 1)
            self.me = graphs.add_identity(self.signer.public_key).id
        self.start()

    @property
    def graphs(self):
        return self.front.store.graphs

    @property
    def url(self):
        return f"http://127.0.0.1:{self.front.port}"

    def start(self, port=0):
        self.front = Front(self.root, fast=False, access=True, port=port)

    def stop(self):
        self.front.protocol.stop()
        self.front.stop()
        self.front.access.close()

    def meet(self, other, *domains):
        """Know another node as a peer, and give it a key."""
        identity = self.graphs.add_identity(other.signer.public_key)
        peer = self.graphs.add_peer(identity.id, f"node:{other.root.name}")
        self.peers[other.root] = peer.id
        for domain in domains or ("talk",):
            self.graphs.allow_peer(peer.id, domain)
        with Access(self.root) as access:
            prefix = other.signer.public_key
            _, secret = access.add(("sync",), prefix, models=("graphs",))
        other.keys[self.root] = secret

    def target(self, other):
        """Another node as a target of rounds of this one."""
        return SyncTarget(self.peers[other.root], other.url, self.keys[other.root])

    def write(self, text):
        with self.graphs.transaction() as txn:
            common = {"owner_identity": self.me, "sync_flags": 1}
            note = self.graphs.insert_parent(self.app, {"type_id": self.type, **common}, txn=txn)
            value = {"type_id": self.text, "parent_id": note, "value_text": text, **common}
            self.graphs.insert_attr(self.app, value, txn=txn)

    def texts(self):
        return sorted(row.value_text for row in self.graphs.current_attrs(self.app))


def serve_nodes(folder, count):
    nodes = [ServedNode(folder / f"n{number}", number + 1) for number in range(count)]
    for node in nodes:
        for other in nodes:
            if node is not other:
                node.meet(other)
    return nodes
