"""Random lives of three to five nodes that sync, with a liar among them.

Nodes are restored and copied, domains are added late, packages are lost, repeated and reordered,
and apps reach their limits. The liar, who writes true rows as well, signs forgeries, and a log of
rows that other nodes accept and never apply. In the end all nodes agree, and nothing that was
forged is there. SYNC_EXAMPLES sets the number of lives.
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
from forged_envelopes import ForgedLog, id_of
from graph_nodes import APP, Node, everything
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fourfold.errors import LimitExceeded, Refused
from fourfold.kernel import backup
from fourfold.models.graphs import GLOBAL_SEQ
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import EnvelopeHead, RowBody, SignedEnvelope
from fourfold.models.graphs.sync.incarnation import token_path
from fourfold.models.graphs.sync.keys import to_bytes
from support.properties import THOROUGH

NODES_MAX = 5
DOMAINS = {"notes": 1, "extra": 2}
EXAMPLES = int(os.environ.get("SYNC_EXAMPLES", "3000" if THOROUGH else "60"))
WAITING = {
    *("gap", "peer_not_allowed", "missing_dependency", "object_not_in_domain", "limit_exceeded")
}
"""Refusals that honest envelopes meet on their way; sending them again later heals each."""
PICK = st.integers(0, 59)
_MEMBERS = "SELECT row_id FROM sync_member WHERE domain = ?"
FLAGS = st.sampled_from([0, 1, 2, 3])
WAY = st.sampled_from(["restore", "copy over", "folder"])
FORGERIES = st.sampled_from(
    ["sign", "strip", "owner", "object", "kind", "version", "system", "app", "domain"]
)
HALF_TRUTHS = st.sampled_from(["true", "version", "squat", "wrong", "nowhere", "never"])


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
        # An app that is here, but that no peer may write.
        node.graphs.register_app("diary", "Diary")
        node.graphs.restrict_domain("notes", [APP])
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
        self.truths = ForgedLog(self.liar, b"l" * 16)
        """A log that the liar signs elsewhere, of rows that are true, or are never applied."""
        self.own = []
        """Objects of that log."""
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
        with suppress(Refused, LimitExceeded), node.graphs.transaction() as txn:
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
            with suppress(Refused, LimitExceeded):
                node.graphs.insert_attr(APP, {**attr, "value_text": self.text(node)})
                node.graphs.insert_rating(APP, {**rating, "value_number": 1})

    @rule(n=PICK, first=PICK, second=PICK, flags=FLAGS)
    def join_notes(self, n, first, second, flags):
        node = self.node(n)
        if notes := node.graphs.current_parents(APP):
            src, dst = notes[first % len(notes)], notes[second % len(notes)]
            row = {"owner_identity": node.me, "type_id": node.types["edge"], "sync_flags": flags}
            ends = {"src_parent_id": src.object_id, "dst_parent_id": dst.object_id}
            with suppress(Refused, LimitExceeded):
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
        with suppress(Refused, LimitExceeded):
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

    @rule(n=PICK, room=st.integers(0, 4))
    def limit(self, n, room):
        """Let the app of a node take only a few rows more."""
        graphs = self.node(n).graphs
        graphs.set_limits(APP, rows_max=graphs.usage(APP).rows + room)

    @rule(n=PICK)
    def lift_limit(self, n):
        self.node(n).graphs.set_limits(APP)

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

    @rule(to=PICK, victim=PICK, how=FORGERIES)
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

    @rule(to=PICK, victim=PICK, pick=PICK, how=HALF_TRUTHS, forks=st.booleans())
    def tell_half_truths(self, to, victim, pick, how, forks):
        """The liar continues a log with rows that every node accepts, and may show none of."""
        node, other = self.node(to), self.node(victim)
        if self.liar in (node, other):
            return
        row = self.half_truth(how, other, pick)
        if row is None:
            return
        before = self.truths.seq, self.truths.prev
        data = self.truths.package(row)
        done = node.graphs.ingest_package(node.peers[self.nodes.index(self.liar)], data)
        assert {refusal.kind for refusal in done.refused} <= WAITING, done.refused
        if done.refused or forks:
            self.truths.seq, self.truths.prev = before
        if done.accepted and row.kind == "parent" and row.object is None:
            self.own.append(row)

    def half_truth(self, how, other, pick):
        """A row that its author may sign."""
        row = self.body(self.liar.signer.public_key)
        theirs = _shared_rows(other)
        if how == "version" and self.own:
            first = self.own[pick % len(self.own)]
            return msgspec.structs.replace(first, object=id_of(first), version=2 + pick)
        if how == "squat":
            bodies = [body for body in theirs.values() if body.kind == "parent"]
            bodies = [body for body in bodies if body.object is None]
            if not bodies:
                return None
            return msgspec.structs.replace(bodies[pick % len(bodies)], owner=row.owner)
        if how in {"wrong", "nowhere", "never"}:
            kinds = {"wrong": {"attr", "edge", "rating"}, "never": {"parent"}}.get(how, set())
            targets = [i for i, body in theirs.items() if body.kind in kinds]
            if how == "never":
                # A version is not an object.
                targets = [i for i in targets if theirs[i].object is not None]
            targets = targets or [bytes(31) + bytes([pick])]
            pointers = (targets[pick % len(targets)],)
            return msgspec.structs.replace(
                row, kind="attr", type="note attr", pointers=pointers, updated_at=None,
                value_text="forged",
            )  # fmt: skip
        return row

    def body(self, owner, **changes):
        now = "2026-01-31T12:00:00+00:00"
        nonce = secrets.token_bytes(16)
        row = RowBody(
            "notes", "parent", "note parent", to_bytes(owner), nonce, None, 1, (), now, now,
            None, None, None, None,
        )  # fmt: skip
        return msgspec.structs.replace(row, **changes)

    def envelope(self, author, signer, *rows, domain="notes"):
        bodies = [envelopes.encode_row(row) for row in rows]
        ids = tuple(map(envelopes.digest, bodies))
        size = sum(map(len, bodies))
        head = EnvelopeHead(1, to_bytes(author), bytes(16), domain, 1, None, ids, size)
        return envelopes.pack([envelopes.sign(head, bodies, signer)])

    def lied(self, *rows, **options):
        """An envelope that the liar signs in the liar's own name."""
        return self.envelope(self.liar.signer.public_key, self.liar.signer, *rows, **options)

    def forge_sign(self, other):
        """In the name of another author, signed by the liar."""
        key = other.signer.public_key
        return self.envelope(key, self.liar.signer, self.body(key))

    def forge_owner(self, other):
        """In the liar's name, with a row that belongs to another author."""
        body = self.body(other.signer.public_key)
        return self.envelope(self.liar.signer.public_key, self.liar.signer, body)

    def forge_system(self, _other):
        return self.lied(self.body(self.liar.signer.public_key, app="system"))

    def forge_app(self, _other):
        """In an app that is here, but not in the domain."""
        return self.lied(self.body(self.liar.signer.public_key, app="diary"))

    def forge_domain(self, _other):
        """In a domain that is not open to the liar."""
        return self.lied(self.body(self.liar.signer.public_key), domain="closed")

    def forge_kind(self, other):
        """A version of an object of another kind, whose id in its table may be that of others."""
        key = self.liar.signer.public_key
        parent = self.body(key)
        rating = self.body(
            key, kind="rating", type="note rating", pointers=(id_of(parent), None),
            updated_at=None, value_number=1.0,
        )  # fmt: skip
        edge = self.body(
            key, kind="edge", type="note rating", pointers=(id_of(parent), id_of(parent), None),
            updated_at=None, object=id_of(rating), version=9,
        )  # fmt: skip
        return self.lied(parent, rating, edge)

    def forge_version(self, _other):
        """A version of a version, and one that was created at another time."""
        first = self.body(self.liar.signer.public_key)
        second = msgspec.structs.replace(first, object=id_of(first), version=2)
        third = msgspec.structs.replace(first, object=id_of(second), version=3)
        return self.lied(first, second, third)

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
        owner = to_bytes(other.signer.public_key)
        rows = _shared_rows(other)
        ids = [i for i, body in rows.items() if body.owner == owner and body.kind == "parent"]
        if not ids:
            return None
        return self.lied(self.body(self.liar.signer.public_key, object=ids[0], version=99))

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
            node.graphs.set_limits(APP)
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
        if node.graphs.usage(APP).rows_max is None:
            assert done.refused == ()
        assert {refusal.kind for refusal in done.refused} <= WAITING
        return done.accepted

    def check_agreement(self):
        states = [_state(node) for node in self.nodes]
        assert all(state == states[0] for state in states[1:])
        parked = [{(row.row_id, row.domain) for row in n.graphs.parked_rows()} for n in self.nodes]
        assert all(rows == parked[0] for rows in parked[1:])
        for node in self.nodes:
            assert node.graphs.verify() == []
            rows = _shared_rows(node)
            # Only rows of the liar are never applied.
            texts = {rows[bytes.fromhex(row_id)].value_text for row_id, _ in parked[0]}
            assert texts <= {"forged"}

    def check_rows_are_those_that_were_written(self):
        for node in self.nodes:
            keys = {each.id: each.pubkey for each in node.graphs.list_identities()}
            rows = everything(node.graphs)["attr"]
            for row in rows:
                assert row.value_text in self.written[keys[row.owner_identity]]
            # Every text was written once, so no row is there twice.
            assert len({row.value_text for row in rows}) == len(rows)


def _shared_rows(node):
    """The bodies of the rows of the domain `notes`, by their ids."""
    sql = (
        "SELECT r.row_id, r.body FROM sync_row AS r JOIN sync_member AS m ON m.row_id = r.row_id "
        "WHERE m.domain = 'notes' ORDER BY r.row_id"
    )
    with node.graphs.database.read() as snapshot:
        rows = [(bytes(i), bytes(body)) for i, body in snapshot.all(sql) if body is not None]
    return {row_id: envelopes.decode_row(body) for row_id, body in rows}


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


class ManyNodes(SyncedNodes):
    """The lives that are too many for every run; a thorough run has more of them anyway."""


ManyNodes.TestCase.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
TestManyNodes = pytest.mark.slow(pytest.mark.timeout(7200)(ManyNodes.TestCase))
