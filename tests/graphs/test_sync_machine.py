"""Random lives of three to five nodes that sync, with a liar among them.

Nodes are restored and copied, domains are added late, and packages are lost, repeated and
reordered. In the end all nodes agree, and nothing that was forged is there. SYNC_EXAMPLES sets the
number of lives.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest
from graph_nodes import APP, Node, everything
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fourfold.errors import Refused
from fourfold.kernel import backup
from fourfold.models.graphs import GLOBAL_SEQ
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import EnvelopeHead, RowBody, SignedEnvelope
from fourfold.models.graphs.sync.incarnation import token_path
from fourfold.models.graphs.sync.keys import to_bytes
from support.properties import THOROUGH

NODES_MAX = 5
DOMAINS = {"notes": 1, "extra": 2}
EXAMPLES = int(os.environ.get("SYNC_EXAMPLES", "3000" if THOROUGH else "200"))
WAITING = {"gap", "peer_not_allowed", "object_not_in_domain", "limit_exceeded"}
"""Refusals that honest envelopes meet on their way; sending them again later heals each."""
PICK = st.integers(0, 59)
_MEMBERS = "SELECT row_id FROM sync_member WHERE domain = ?"
FLAGS = st.sampled_from([0, 1, 2, 3])
WAY = st.sampled_from(["restore", "copy over", "folder"])


@cache
def templates():
    """Closed databases of nodes that know each other, which every example starts from."""
    root = Path(tempfile.mkdtemp(prefix="fourfold-sync-"))
    nodes = [Node(root / f"{n}.db", n + 1) for n in range(NODES_MAX)]
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.meet(other)
    for node in nodes:
        node.graphs.backup(_backup_of(node))
        node.graphs.database.close()
    return nodes


def _backup_of(template):
    return template.path.with_suffix(".backup")


class SyncedNodes(RuleBasedStateMachine):
    """Honest nodes and a liar, who is a peer of them all."""

    @initialize(count=st.integers(3, NODES_MAX))
    def start(self, count):
        self.root = Path(tempfile.mkdtemp(prefix="fourfold-sync-"))
        self.folders = 0
        self.nodes = []
        for template in templates()[:count]:
            node = object.__new__(Node)
            node.__dict__.update(template.__dict__)
            node.path = self.new_folder() / "backend.db"
            shutil.copyfile(template.path, node.path)
            node.open()
            names = enumerate(templates())
            node.peers = {n: template.peers[o.path] for n, o in names if o is not template}
            self.nodes.append(node)
        self.liar = self.nodes[-1]
        self.packages = []
        starts = zip(self.nodes, templates(), strict=False)
        self.backups = {node.signer.public_key: _backup_of(template) for node, template in starts}
        self.written = {node.signer.public_key: set() for node in self.nodes}
        self.texts = 0

    def new_folder(self):
        self.folders += 1
        folder = self.root / str(self.folders)
        folder.mkdir()
        return folder

    def text(self, node):
        self.texts += 1
        text = f"{self.texts}"
        self.written[node.signer.public_key].add(text)
        return text

    def node(self, pick):
        return self.nodes[pick % len(self.nodes)]

    def other(self, n, pick):
        """Return another node than `n`."""
        return self.node(n + 1 + pick % (len(self.nodes) - 1))

    # What people write

    @rule(n=PICK, flags=FLAGS, inner=FLAGS)
    def write_note(self, n, flags, inner):
        node = self.node(n)
        with suppress(Refused), node.graphs.transaction() as txn:
            row = {"owner_identity": node.me, "type_id": node.types["parent"]}
            note = node.graphs.insert_parent(APP, {**row, "sync_flags": flags}, txn=txn)
            row = {"owner_identity": node.me, "type_id": node.types["attr"], "parent_id": note}
            value = {"value_text": self.text(node), "sync_flags": inner}
            node.graphs.insert_attr(APP, {**row, **value}, txn=txn)

    @rule(n=PICK, pick=PICK, flags=FLAGS)
    def reply(self, n, pick, flags):
        """An attribute of any note that is here, and a rating of it."""
        node = self.node(n)
        if notes := node.graphs.current_parents(APP):
            note = notes[pick % len(notes)].object_id
            row = {"owner_identity": node.me, "sync_flags": flags}
            attr = {"type_id": node.types["attr"], "parent_id": note, **row}
            rating = {"type_id": node.types["rating"], "target_parent_id": note, **row}
            with suppress(Refused):
                node.graphs.insert_attr(APP, {**attr, "value_text": self.text(node)})
                node.graphs.insert_rating(APP, {**rating, "value_number": 1})

    @rule(n=PICK, first=PICK, second=PICK, flags=FLAGS)
    def join_notes(self, n, first, second, flags):
        node = self.node(n)
        if notes := node.graphs.current_parents(APP):
            src, dst = notes[first % len(notes)], notes[second % len(notes)]
            row = {"owner_identity": node.me, "type_id": node.types["edge"], "sync_flags": flags}
            ends = {"src_parent_id": src.object_id, "dst_parent_id": dst.object_id}
            with suppress(Refused):
                node.graphs.insert_edge(APP, {**row, **ends})

    @rule(n=PICK, pick=PICK, flags=FLAGS, kind=st.sampled_from(["attr", "edge"]), end=PICK)
    def update(self, n, pick, flags, kind, end):
        node = self.node(n)
        rows = [row for row in everything(node.graphs)[kind] if row.owner_identity == node.me]
        if not rows:
            return
        if kind == "attr":
            change = {"value_text": self.text(node)}
        else:
            notes = node.graphs.select_parents(APP)
            change = {"dst_parent_id": notes[end % len(notes)].object_id}
        object_id = rows[pick % len(rows)].object_id
        with suppress(Refused):
            node.graphs.update(APP, kind, object_id, {**change, "sync_flags": flags})

    @rule(n=PICK, pick=PICK, flags=FLAGS, every=st.booleans())
    def share_late(self, n, pick, flags, every):
        """All rows, or some, whether or not what they refer to is shared."""
        node = self.node(n)
        for kind, rows in everything(node.graphs).items():
            for row in rows if every else rows[pick % max(1, len(rows)) :][:1]:
                node.graphs.update_sync_flags(APP, kind, [row.id], row.sync_flags | flags)

    # Exchange

    def define(self, node, domain):
        node.graphs.define_domain(domain, DOMAINS[domain])
        for peer in set(node.peers.values()):
            node.graphs.allow_peer(peer, domain)

    @rule(n=PICK)
    def add_domain(self, n):
        self.define(self.node(n), "extra")

    @rule(n=PICK, to=PICK, domain=st.sampled_from(list(DOMAINS)), size=st.sampled_from([1, 2000]))
    def send(self, n, to, domain, size):
        """Make a package for a peer, from what it has; it may arrive late, again, or never."""
        node, other = self.node(n), self.other(n, to)
        if any(domain not in each.graphs.domains() for each in (node, other)):
            return
        tips = other.graphs.sync_tips(domain)
        sent = node.graphs.export_package(domain, node.signer, tips=tips, max_bytes=size)
        self.packages.append((self.nodes.index(node), sent.data))

    @rule(n=PICK, to=PICK)
    def pull_notes(self, n, to):
        """Let a node have all that another one has."""
        node = self.node(n)
        self.pull(self.other(n, to), self.nodes.index(node), node, "notes")

    @rule(to=PICK, pick=PICK)
    def deliver(self, to, pick):
        """Any package that was ever made, to any node."""
        if self.packages:
            source, data = self.packages[pick % len(self.packages)]
            node = self.node(to)
            if self.nodes.index(node) != source:
                done = node.graphs.ingest_package(node.peers[source], data)
                assert {refusal.kind for refusal in done.refused} <= WAITING, done.refused

    @rule(n=PICK, to=PICK)
    def confirm(self, n, to):
        node, other = self.node(n), self.other(n, to)
        tips = other.graphs.sync_tips("notes")
        node.graphs.confirm_tips(node.peers[self.nodes.index(other)], tips)

    # Mishaps

    @rule(n=PICK)
    def back_up(self, n):
        node = self.node(n)
        path = self.new_folder() / "backup.db"
        node.graphs.backup(path)
        self.backups[node.signer.public_key] = path

    @rule(n=PICK, to=PICK, third=PICK, pick=PICK, way=WAY)
    def lose_what_a_peer_has(self, n, to, third, pick, way):
        """Share and write something, which one peer pulls; lose it, and write something else."""
        self.write_note(n, 0, 0)
        self.pull_notes(n, to)
        self.back_up(n)
        self.share_late(n, pick, 1, every=True)
        self.update(n, pick, 1, "attr", pick)
        self.pull_notes(n, to)
        self.restore(n, way)
        self.update(n, pick, 1, "attr", pick)
        self.write_note(n, 1, 1)
        self.pull_notes(n, third)

    @rule(n=PICK, way=WAY)
    def restore(self, n, way):
        """Go back to the backup, or continue in a copy of the folder."""
        node = self.node(n)
        copy = self.backups[node.signer.public_key]
        node.graphs.database.close()
        if way == "copy over":
            for side in ("-wal", "-shm"):
                node.path.with_name(node.path.name + side).unlink(missing_ok=True)
            with node.path.open("r+b") as file:
                file.truncate()
                file.write(copy.read_bytes())
        elif way == "restore":
            node.path = self.new_folder() / "backend.db"
            backup.restore(copy, node.path, (GLOBAL_SEQ,))
        else:
            folder = self.new_folder()
            for file in (node.path, token_path(node.path)):
                if file.exists():
                    shutil.copy2(file, folder / file.name)
            node.path = folder / node.path.name
        node.open()

    # The liar

    @rule(to=PICK, victim=PICK, how=st.sampled_from(["sign", "strip", "owner", "object", "system"]))
    def lie(self, to, victim, how):
        """A forgery, handed over by the liar, is refused and changes nothing."""
        node, other = self.node(to), self.node(victim)
        if self.liar in (node, other):
            return
        data = getattr(self, f"forge_{how}")(other)
        if data is None:
            return
        before = everything(node.graphs), node.graphs.sync_tips("notes")
        done = node.graphs.ingest_package(node.peers[self.nodes.index(self.liar)], data)
        assert done.accepted == 0
        assert (everything(node.graphs), node.graphs.sync_tips("notes")) == before

    def body(self, owner, **changes):
        now = "2026-01-31T12:00:00+00:00"
        nonce = secrets.token_bytes(16)
        row = RowBody(
            "notes", "parent", "note parent", to_bytes(owner), nonce, None, 1, (), now, now,
            None, None, None, None,
        )  # fmt: skip
        return msgspec.structs.replace(row, **changes)

    def envelope(self, author, signer, row):
        data = envelopes.encode_row(row)
        head = EnvelopeHead(1, to_bytes(author), bytes(16), "notes", 1, None,
                            (envelopes.digest(data),), len(data))  # fmt: skip
        return envelopes.pack([envelopes.sign(head, [data], signer)])

    def forge_sign(self, other):
        """In the name of another author, signed by the liar."""
        key = other.signer.public_key
        return self.envelope(key, self.liar.signer, self.body(key))

    def forge_owner(self, other):
        """In the liar's name, with a row that belongs to another author."""
        body = self.body(other.signer.public_key)
        return self.envelope(self.liar.signer.public_key, self.liar.signer, body)

    def forge_system(self, _other):
        body = self.body(self.liar.signer.public_key, app="system")
        return self.envelope(self.liar.signer.public_key, self.liar.signer, body)

    def forge_strip(self, _other):
        """Envelopes of other authors whose rows were changed on the way."""
        changed = []
        for _, data in self.packages:
            for raw in envelopes.unpack(data):
                envelope = msgspec.msgpack.decode(raw, type=SignedEnvelope)
                bodies = tuple(body.replace(b"note", b"nope") for body in envelope.bodies)
                changed.append(msgspec.structs.replace(envelope, bodies=bodies))
        return envelopes.pack(changed[:20]) if changed else None

    def forge_object(self, other):
        """A new version of another author's object, signed by the liar in the liar's name."""
        with other.graphs.database.read() as snapshot:
            sql = (
                "SELECT r.row_id FROM sync_row AS r JOIN sync_member AS m ON m.row_id = r.row_id "
                "JOIN app_1_parent AS p ON p.id = r.local_id AND p.origin = '' "
                "WHERE r.kind = 'parent' AND m.domain = 'notes'"
            )
            ids = [bytes(row[0]) for row in snapshot.all(sql)]
        if not ids:
            return None
        body = self.body(self.liar.signer.public_key, object=ids[0], version=99)
        data = self.envelope(self.liar.signer.public_key, self.liar.signer, body)
        known = [node for node in self.nodes if _has(node, ids[0])]
        # Where the object is not here yet, its version is parked, and refused when it arrives.
        return data if len(known) == len(self.nodes) else None

    # The end

    def teardown(self):
        if not hasattr(self, "nodes"):
            return
        try:
            self.settle()
            self.check_agreement()
            self.check_rows_are_those_that_were_written()
        finally:
            for node in self.nodes:
                node.graphs.database.close()
            shutil.rmtree(self.root)

    def settle(self):
        """Exchange everything until no envelope is new, in a few rounds."""
        for node in self.nodes:
            self.define(node, "extra")
        for _ in range(2 * len(self.nodes)):
            if not self.exchange_all():
                return
        pytest.fail("the nodes still exchange new envelopes")

    def exchange_all(self):
        """Let every node pull every domain from every other; return the number of new envelopes."""
        new = 0
        for to, node in enumerate(self.nodes):
            for source, other in enumerate(self.nodes):
                for domain in DOMAINS:
                    if to != source:
                        new += self.pull(node, source, other, domain)
        return new

    def pull(self, node, source, other, domain):
        tips = node.graphs.sync_tips(domain)
        sent = other.graphs.export_package(domain, other.signer, tips=tips)
        assert sent.complete
        done = node.graphs.ingest_package(node.peers[source], sent.data)
        assert done.refused == ()
        return done.accepted

    def check_agreement(self):
        states = [_state(node) for node in self.nodes]
        assert all(state == states[0] for state in states[1:])
        for node in self.nodes:
            assert node.graphs.verify() == []
            assert node.graphs.parked_rows() == ()

    def check_rows_are_those_that_were_written(self):
        for node in self.nodes:
            keys = {each.id: each.pubkey for each in node.graphs.list_identities()}
            rows = everything(node.graphs)["attr"]
            for row in rows:
                assert row.value_text in self.written[keys[row.owner_identity]]
            # Every text was written once, so no row is there twice.
            assert len({row.value_text for row in rows}) == len(rows)


def _has(node, row_id):
    with node.graphs.database.read() as snapshot:
        sql = "SELECT count(*) FROM sync_row WHERE row_id = ? AND local_id IS NOT NULL"
        return bool(snapshot.value(sql, (row_id,)))


def _state(node):
    """The rows of each domain, and the version of each object that a naive model shows.

    The fold of the node must show the same wherever all versions of an object are shared.
    """
    with node.graphs.database.read() as snapshot:
        members = {
            domain: frozenset(
                bytes(row[0])
                for row in snapshot.all(
                    "SELECT row_id FROM sync_member WHERE domain = ?", (domain,)
                )
            )
            for domain in DOMAINS
        }
        sql = "SELECT kind, local_id, row_id FROM sync_row WHERE local_id IS NOT NULL"
        ids = {(row[0], row[1]): bytes(row[2]) for row in snapshot.all(sql)}
    shared = frozenset().union(*members.values())
    newest, private = {}, set()
    for kind, rows in everything(node.graphs).items():
        for row in rows:
            row_id = ids.get((kind, row.id))
            if row_id in shared:
                key = ids[kind, row.object_id]
                newest[key] = max(newest.get(key, (0, b"")), (row.version, row_id))
            else:
                private.add((kind, row.object_id))
    for kind, rows in everything(node.graphs).items():
        for object_id in {row.object_id for row in rows} - {o for k, o in private if k == kind}:
            current = node.graphs.newest(APP, kind, object_id)
            assert newest[ids[kind, object_id]][1] == ids[kind, current.id]
    return members, newest


SyncedNodes.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=25, deadline=None
)
TestSyncedNodes = pytest.mark.timeout(7200)(SyncedNodes.TestCase)
