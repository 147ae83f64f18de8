"""A store whose graph is exchanged with a peer, with a log of each and a forked one."""

from __future__ import annotations

import json

from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.keys import Ed25519Signer, to_bytes

TIME = "2026-01-31T12:00:00+00:00"


def fill_sync(graphs, text="bob", app="talk", domain="talk"):
    """Share rows of an app in a domain with a peer, and receive a log of it that is forked."""
    own, theirs = Ed25519Signer(bytes([1]) * 32), Ed25519Signer(bytes([2]) * 32)
    graph = graphs.create(app)
    note = graph.register_type("parent", "note")
    graphs.define_domain(domain, 1)
    graphs.define_domain("closed", 2)
    graphs.restrict_domain(domain, [graph.app_id])
    me = graphs.add_identity(own.public_key, "alice")
    peer = graphs.add_peer(graphs.add_identity(theirs.public_key, text).id, f"node:{text}")
    graphs.add_peer(me.id, "file:")
    graphs.allow_peer(peer.id, domain)
    row = {"type_id": note, "owner_identity": me.id, "sync_flags": 1}
    graph.insert("parent", [row, row])
    graphs.sign_shared(domain, own)
    incarnation = b"incarnation-of-b"
    first = forge_entry(theirs, incarnation, app, domain, 1, None, "root")
    for data, _ in (
        first,
        forge_entry(theirs, incarnation, app, domain, 2, first[1], "one"),
        forge_entry(theirs, incarnation, app, domain, 2, first[1], "two"),
    ):
        assert not graphs.ingest_package(peer.id, data).refused
    graphs.confirm_tips(peer.id, graphs.sync_tips(domain))
    assert len(json.loads(graphs.sync_tips(domain))["logs"]) == 2
    return theirs.public_key


def forge_entry(signer, incarnation, app, domain, seq, prev, name):
    """Return a package with one entry of a log, and the id of the entry."""
    author = to_bytes(signer.public_key)
    row = envelopes.RowBody(
        app, "parent", "note", author, name.encode().ljust(16, b"."), None, 1, (),
        TIME, TIME, None, None, None, None,
    )  # fmt: skip
    body = envelopes.encode_row(row)
    head = envelopes.EnvelopeHead(
        1, author, incarnation, domain, seq, prev, (envelopes.digest(body),), len(body)
    )
    signed = envelopes.sign(head, [body], signer)
    return envelopes.pack([signed]), envelopes.digest(signed.head)
