"""One story of two nodes, from empty folders to a restored backup, each step on what the one before
it left. Bob's part is played by a process of its own, which is killed while it takes in a package.
"""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from graph_nodes import SHARED, everything, open_graphs

from fourfold.errors import (
    CorruptData,
    FormatError,
    MigrationFailed,
    SequenceRegression,
    StorageError,
)
from fourfold.kernel import Database, Migration, failpoints, inspection
from fourfold.models.graphs import GLOBAL_SEQ, MIGRATIONS, PROFILE
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.models.graphs.verify import problems
from support.crash import Moment, run

SCRIPT = Path(__file__).with_name("graph_child.py")
CONTACTS, MESSAGES, MARKET = 1, 2, 3
DOMAIN = "notes"
ENVELOPES = 500


class Alice:
    def __init__(self, path):
        self.path = path
        self.signer = Ed25519Signer(bytes([1]) * 32)
        self.types = {}

    def start(self):
        self.graphs = open_graphs(self.path)

    def stop(self):
        self.graphs.database.close()

    def setup(self):
        for slug in ("contacts", "messages", "market"):
            app = self.graphs.register_app(slug, slug.title()).app_id
            for kind in ("parent", "attr", "edge", "rating"):
                self.types[app, kind] = self.graphs.register_type(app, kind, kind)
            self.types[app, "suppress"] = self.graphs.register_type(app, "rating", "suppress")
        self.graphs.define_domain(DOMAIN, SHARED)
        self.me = self.graphs.add_identity(self.signer.public_key, "Alice").id

    def envelope(self, number, app=MESSAGES, flags=SHARED):
        """A conversation with three texts and an edge from itself to the first of them."""

        def op(kind, payload):
            return {
                "op": f"{kind}_create",
                "app_id": app,
                "type_id": self.types[app, kind],
                "owner_identity": self.me,
                "payload": {**payload, "sync_flags": flags},
            }

        texts = [op("attr", {"parent_id": {"$op": 0}, "value": f"{number}-{n}"}) for n in range(3)]
        edge = op("edge", {"src_parent_id": {"$op": 0}, "dst_attr_id": {"$op": 1}})
        rating = op("rating", {"target_parent_id": {"$op": 0}, "value": number % 5})
        return {"trace_id": f"t-{number}", "ops": [op("parent", {}), *texts, edge, rating]}


def texts_of(graphs, app=MESSAGES):
    return sorted(row.value_text for row in graphs.current_attrs(app))


def sound(graphs):
    with graphs.database.read() as snapshot:
        return problems(snapshot, str(graphs.database.path), graphs.node) == []


@pytest.fixture
def alice(tmp_path):
    alice = Alice(tmp_path / "a" / "backend.db")
    alice.start()
    yield alice
    alice.stop()


def test_the_story_of_alice_and_bob(alice, tmp_path):
    open_the_file(alice)
    write_from_four_threads(alice)
    fail_and_try_again(alice)
    read_while_others_write(alice)
    packages = pack(alice, tmp_path / "packages")
    bob = meet(alice, tmp_path / "b" / "backend.db")
    refuse_what_is_out_of_order(alice, bob, packages)
    kill_while_taking_in(alice, bob, packages)
    upgrade(alice)
    backup_while_writing(alice, tmp_path)
    hide(alice)
    damage_and_recover(alice, tmp_path)


def open_the_file(alice):
    assert alice.graphs.get_global_seq() == 0
    assert stat.S_IMODE(alice.path.stat().st_mode) == 0o600
    with alice.graphs.database.read() as snapshot:
        assert snapshot.value("PRAGMA journal_mode") == "wal"
    alice.stop()
    before = alice.path.read_bytes()
    alice.start()
    alice.stop()
    assert alice.path.read_bytes() == before
    alice.start()
    alice.setup()
    with alice.graphs.database.read() as snapshot:
        sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name GLOB 'app_[123]_*'"
        assert snapshot.value(sql) == 18


def write_from_four_threads(alice):
    first = alice.graphs.get_global_seq()
    work = [
        alice.envelope(number, CONTACTS if number % 5 == 0 else MESSAGES)
        for number in range(ENVELOPES)
    ]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(alice.graphs.apply, work))
    numbers = sorted(each.global_seq for each in done)
    assert numbers == list(range(first + 1, first + ENVELOPES + 1))
    for app in (CONTACTS, MESSAGES):
        by_number = {}
        for rows in everything(alice.graphs, app).values():
            for row in rows:
                by_number.setdefault(row.global_seq, []).append(row)
        assert {len(rows) for rows in by_number.values()} == {6}
    assert sound(alice.graphs)


def fail_and_try_again(alice):
    before = everything(alice.graphs, MESSAGES), alice.graphs.get_global_seq()
    failpoints.arm("kernel.statement.before", "raise", at=3)
    try:
        with pytest.raises(StorageError):
            alice.graphs.apply(alice.envelope(ENVELOPES))
    finally:
        failpoints.disarm()
    assert (everything(alice.graphs, MESSAGES), alice.graphs.get_global_seq()) == before
    assert alice.graphs.apply(alice.envelope(ENVELOPES)).global_seq == before[1] + 1


def read_while_others_write(alice):
    with alice.graphs.snapshot() as reader:
        seen = reader.newest_seq()
        for number in range(100):
            alice.graphs.apply(alice.envelope(10_000 + number, MARKET, flags=0))
        assert reader.newest_seq() == seen
        assert alice.graphs.checkpoint("PASSIVE").busy
    assert alice.graphs.get_global_seq() == seen + 100
    assert not alice.graphs.checkpoint("TRUNCATE").busy
    assert alice.path.with_name("backend.db-wal").stat().st_size == 0


def pack(alice, folder):
    """Everything of the domain, in small packages."""
    folder.mkdir()
    after, complete = 0, False
    while not complete:
        sent = alice.graphs.export_package(DOMAIN, alice.signer, after=after, max_bytes=2000)
        (folder / f"{sent.position:06d}").write_bytes(sent.data)
        assert b"market" not in sent.data
        after, complete = sent.position, sent.complete
    packages = sorted(folder.iterdir())
    assert len(packages) > 50
    return packages


class Bob:
    def __init__(self, path):
        self.path = path
        self.peer = 1

    def start(self):
        self.graphs = open_graphs(self.path)

    def stop(self):
        self.graphs.database.close()

    def cursor(self):
        found = self.graphs.sync_progress()
        return found[0].last_seq if found else 0


def meet(alice, path):
    bob = Bob(path)
    bob.start()
    # His apps have other numbers than hers, and he has no market.
    bob.graphs.register_app("messages", "Messages")
    bob.graphs.register_app("contacts", "Contacts")
    bob.graphs.define_domain(DOMAIN, SHARED)
    identity = bob.graphs.add_identity(alice.signer.public_key)
    assert bob.graphs.add_peer(identity.id, "file:").id == bob.peer
    bob.graphs.allow_peer(bob.peer, DOMAIN)
    return bob


def refuse_what_is_out_of_order(alice, bob, packages):
    data = [path.read_bytes() for path in packages[:5]]
    for each in data[:3]:
        assert not bob.graphs.ingest_package(bob.peer, each).refused
    before = everything(bob.graphs, 1), bob.cursor(), bob.graphs.get_global_seq()
    assert bob.graphs.ingest_package(bob.peer, data[2]).accepted == 0
    early = bob.graphs.ingest_package(bob.peer, data[4])
    assert {refusal.kind for refusal in early.refused} == {"gap"}
    tampered = data[3][:-1] + bytes([data[3][-1] ^ 1])
    assert bob.graphs.ingest_package(bob.peer, tampered).refused[-1].kind in {
        "content_mismatch",
        "malformed",
    }
    with pytest.raises(SequenceRegression):
        bob.graphs.record_sync_progress(bob.peer, DOMAIN, 1)
    assert (everything(bob.graphs, 1), bob.cursor(), bob.graphs.get_global_seq()) >= before
    bob.graphs.ingest_package(bob.peer, data[3])
    bob.stop()


def kill_while_taking_in(alice, bob, packages):
    """A process takes the packages in and is killed, in the middle of a statement and at moments
    that the test does not choose; each time it resumes where the last whole package ended.
    """
    folder = str(packages[0].parent)
    kills = [
        {"fault": "kernel.statement.after=kill@40"},
        {"kill": Moment(5, 0.001)},
        {"fault": "kernel.commit.before=kill@9"},
        {"kill": Moment(20, 0.003)},
    ]
    last = 0
    for given in kills:
        crash = run(SCRIPT, "ingest", str(bob.path), folder, **given)
        assert crash.killed, crash
        last = max([last, *(int(line) for line in crash.lines if line != "done")])
        bob.start()
        assert bob.cursor() >= last
        assert sound(bob.graphs)
        bob.stop()
    crash = run(SCRIPT, "ingest", str(bob.path), folder, kill=Moment(10_000, 60))
    assert "done" in crash.lines, crash
    bob.start()
    messages = bob.graphs.app("messages").app_id
    assert texts_of(bob.graphs, messages) == texts_of(alice.graphs)
    contacts = bob.graphs.app("contacts").app_id
    assert texts_of(bob.graphs, contacts) == texts_of(alice.graphs, CONTACTS)
    assert sound(bob.graphs)
    bob.stop()


def upgrade(alice):
    rows = everything(alice.graphs, MESSAGES)
    table = "CREATE TABLE {app}_colour (parent_id INTEGER, colour TEXT)"
    index = "CREATE INDEX {app}_colour_parent ON {app}_colour (parent_id)"
    two = Migration(2, "colour", f"{table}; {index}")
    assert alice.graphs.upgrade_app(MESSAGES, [two]).version == 2
    with pytest.raises(MigrationFailed):
        alice.graphs.upgrade_app(MESSAGES, [two, Migration(3, "broken", "SELECT * FROM nowhere")])
    assert alice.graphs.app(MESSAGES).version == 2
    assert everything(alice.graphs, MESSAGES) == rows
    # A step of the whole file, and the same file without it.
    alice.stop()
    number = len(MIGRATIONS) + 1
    more = (*MIGRATIONS, Migration(number, "more", "CREATE TABLE more (id INTEGER PRIMARY KEY)"))
    Database.open(alice.path, profile=PROFILE, migrations=more, sequences=(GLOBAL_SEQ,)).close()
    with pytest.raises(FormatError):
        open_graphs(alice.path)
    with Database.open(alice.path, profile=PROFILE, migrations=more) as file, file.write() as txn:
        txn.execute("DROP TABLE more")
        txn.execute("DELETE FROM schema_migrations WHERE version = ?", (number,))
    alice.start()


def backup_while_writing(alice, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        work = [alice.envelope(20_000 + number) for number in range(50)]
        writing = [pool.submit(alice.graphs.apply, each) for each in work]
        sidecar = alice.graphs.backup(tmp_path / "copy.db")
        for each in writing:
            each.result()
    restored = tmp_path / "c" / "backend.db"
    restored.parent.mkdir()
    inspection.restore(tmp_path / "copy.db", restored, (GLOBAL_SEQ,))
    carol = open_graphs(restored)
    seq = carol.get_global_seq()
    assert seq == sidecar.sequences["global_seq"]
    for kind, rows in everything(carol, MESSAGES).items():
        mine = [row for row in everything(alice.graphs, MESSAGES)[kind] if row.global_seq <= seq]
        assert list(rows) == mine
    assert sound(carol)
    carol.database.close()
    alice.graphs.apply(alice.envelope(30_000))
    alice.stop()
    with pytest.raises(SequenceRegression):
        inspection.restore(tmp_path / "copy.db", alice.path, (GLOBAL_SEQ,))
    alice.start()
    alice.graphs.apply(alice.envelope(30_001))


def hide(alice):
    graphs, app = alice.graphs, MESSAGES
    shown = graphs.current_parents(app)
    gone = shown[7].object_id
    count = sum(len(rows) for rows in everything(graphs, app).values())
    rating = {"type_id": alice.types[app, "suppress"], "target_parent_id": gone, "value_number": 1}
    graphs.insert_rating(app, {**rating, "owner_identity": alice.me, "sync_flags": SHARED})
    assert {row.object_id for row in shown} - {
        row.object_id for row in graphs.current_parents(app)
    } == {gone}
    assert gone in {row.object_id for row in graphs.select_parents(app)}
    assert sum(len(rows) for rows in everything(graphs, app).values()) == count + 1
    feed = graphs.feed(after=graphs.get_global_seq() - 1, flag_mask=SHARED, timeout=0)
    assert [change.kind for change in next(feed)] == ["rating"]


def damage_and_recover(alice, tmp_path):
    rows = everything(alice.graphs, MESSAGES)
    alice.graphs.backup(tmp_path / "good.db")
    alice.stop()
    at = alice.path.stat().st_size * 7 // 8 // 4096 * 4096
    with alice.path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)
    alice.start()
    assert alice.graphs.integrity_check(alice.graphs.grant(["diagnostics"]))
    assert not alice.graphs.health().ready
    with pytest.raises(CorruptData, match="damage"):
        alice.graphs.apply(alice.envelope(40_000))
    assert alice.graphs.metrics().db_size_bytes > 0
    alice.stop()
    inspection.restore(tmp_path / "good.db", alice.path, (GLOBAL_SEQ,), replace_unreadable=True)
    alice.start()
    assert everything(alice.graphs, MESSAGES) == rows
    alice.graphs.apply(alice.envelope(40_000))
    assert sound(alice.graphs)
