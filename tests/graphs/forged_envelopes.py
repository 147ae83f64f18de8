"""Envelopes that a node signs with content of a test's own choice."""

from __future__ import annotations

import msgspec
from graph_nodes import everything, take

from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import EnvelopeHead, RowBody, SignedEnvelope
from fourfold.models.graphs.sync.keys import to_bytes

NOW = "2026-01-31T12:00:00+00:00"


def opened(data):
    """The envelopes of a package, decoded."""
    return [msgspec.msgpack.decode(raw, type=SignedEnvelope) for raw in envelopes.unpack(data)]


def row(node, **changes):
    """A row body of a node, with fields of a test's own choice."""
    body = RowBody(
        "notes", "parent", "note parent", to_bytes(node.signer.public_key), bytes(16), None, 1, (),
        NOW, NOW, None, None, None, None,
    )  # fmt: skip
    return msgspec.structs.replace(body, **changes)


def signed(node, *rows, **changes):
    """A package with one envelope that a node signed, whatever it says."""
    bodies = [envelopes.encode_row(each) for each in rows]
    ids = tuple(map(envelopes.digest, bodies))
    author = to_bytes(node.signer.public_key)
    head = EnvelopeHead(1, author, b"i" * 16, "notes", 1, None, ids, sum(map(len, bodies)))
    head = msgspec.structs.replace(head, **changes)
    return envelopes.pack([envelopes.sign(head, bodies, node.signer)])


def refusal(node, source, data):
    """The kind of refusal of a package, which changed nothing."""
    before = everything(node.graphs), node.graphs.get_global_seq(), node.graphs.sync_tips("notes")
    done = take(node, source, data)
    after = everything(node.graphs), node.graphs.get_global_seq(), node.graphs.sync_tips("notes")
    assert after == before
    (only,) = done.refused
    return only.kind


def id_of(body):
    """The content id of a row body."""
    return envelopes.digest(envelopes.encode_row(body))


def attr(node, parent, nonce, **changes):
    """An attribute of a row, whatever that is; `parent` is its id."""
    fields = {"kind": "attr", "type": "note attr", "pointers": (parent,), "updated_at": None}
    return row(node, nonce=bytes([nonce]) * 16, **{**fields, **changes})


class ForgedLog:
    """A log of a node, to which a test appends what it likes."""

    def __init__(self, node, incarnation=b"i" * 16):
        self.node = node
        self.seq, self.prev = 0, None
        self.incarnation = incarnation

    def package(self, *rows, **changes):
        """The next envelope of the log, in a package of its own."""
        place = {"seq": self.seq + 1, "prev": self.prev, "incarnation": self.incarnation}
        data = signed(self.node, *rows, **{**place, **changes})
        self.seq += 1
        self.prev = envelopes.digest(opened(data)[0].head)
        return data
