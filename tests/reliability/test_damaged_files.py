"""Files from elsewhere are accepted, or refused with an error of Fourfold, whatever is in them."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import is_zipfile

import msgspec
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import fourfold
from fourfold.errors import FourfoldError
from fourfold.kernel import Database
from fourfold.models.documents import bundle
from fourfold.models.graphs import GLOBAL_SEQ, MIGRATIONS, PROFILE, Graphs
from fourfold.models.graphs.sync import envelope as envelopes
from fourfold.models.graphs.sync.envelope import SignedEnvelope
from fourfold.models.graphs.sync.keys import Ed25519Signer
from fourfold.models.sessions import Sessions
from fourfold.models.streams.search.companions.bundle import read_directory
from fourfold.store.backup import restore
from fourfold.store.restoration import rebuild
from support.damage import changed, damaged, damaged_json
from support.fuzz_cases import fuzz_examples, record_case

SIGNER = Ed25519Signer(bytes(range(32)))
DID = "did:web:notes"
SEARCH = {"text": ["text"], "columns": ["n"]}


def fuzzed(*strategies, count):
    """Run a test with drawn files; the examples that failed are kept for the next run."""

    def decorate(test):
        many = settings(
            max_examples=fuzz_examples(count),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        return many(given(*strategies)(test))

    return decorate


def accepted(name, call):
    """Return whether the call accepted its file; any other error than ours fails the test."""
    try:
        call()
    except FourfoldError:
        record_case(name, "refused")
        return False
    record_case(name, "accepted")
    return True


def new_folder():
    return TemporaryDirectory(prefix="damaged-")


# Bundles of sessions


def session_bundle():
    with closing(Sessions()) as sessions:
        for sid in ("a", "a/1"):
            session = sessions.create_session({"id": sid, "model": "any"})
            session.append({"type": "message/appended", "message": {"content": "hello"}})
            sessions.publish_head(sid)
        sessions.intern_payload("x" * 600)
        sessions.open_session("a").fork({"id": "b", "model": "any"})
        return b"".join(sessions.export_bundle("a"))


BUNDLE = session_bundle()


def seal_bundle(lines):
    """Write the digest of a bundle again: changed lines then get as far as their contents."""
    end = lines[-1]
    if isinstance(end, dict) and end.get("kind") == "end":
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
        end["sha256"] = hashlib.sha256(text).hexdigest()


@fuzzed(st.one_of(damaged(BUNDLE), damaged_json(BUNDLE, seal_bundle)), count=150)
def test_damaged_bundle_of_sessions_is_refused(content):
    with new_folder() as folder, closing(Sessions()) as sessions:
        path = Path(folder) / "bundle"
        path.write_bytes(content)
        sessions.create_session({"id": "other", "model": "any"})
        accepted("session bundles", lambda: sessions.import_bundle(path))
        assert list(sessions.verify()) == []
        assert len(sessions.events_since("other")) == 1


# Exports of spaces


def space_export():
    with fourfold.open(":memory:") as store:
        space = store.space(DID)
        for number in range(3):
            space.set("a/b", {"n": number, "list": [1, {"x": None}]})
        space.patch("a/b", [{"op": "add", "path": "/z", "value": "ü"}])
        space.branches.create("draft")
        space.delete("a/b")
        space.blobs.put(b"bytes")
        space.indexes.create("by_n", "/n")
        return b"".join(bundle.export(space))


EXPORT = space_export()


@fuzzed(st.one_of(damaged(EXPORT), damaged_json(EXPORT)), count=100)
def test_damaged_export_of_a_space_is_refused(content):
    with fourfold.open(":memory:") as store:
        space = store.space(DID)
        accepted("space exports", lambda: bundle.replay(space, content.splitlines(keepends=True)))
        assert not store.verify().problems


# Packages and tips of graphs


def open_graphs(folder):
    database = Database.open(
        Path(folder) / "graphs.db",
        profile=PROFILE,
        migrations=MIGRATIONS,
        sequences=(GLOBAL_SEQ,),
    )
    graphs = Graphs(database)
    graphs.register_app("notes", "Notes")
    graphs.register_type(1, "parent", "note")
    graphs.register_type(1, "attr", "text")
    graphs.define_domain("notes", 1)
    peer = graphs.add_peer(graphs.add_identity(SIGNER.public_key).id, "file:")
    graphs.allow_peer(peer.id, "notes")
    return graphs, peer.id


def graph_files():
    with new_folder() as folder:
        graphs, _ = open_graphs(folder)
        shared = {"owner_identity": 1, "sync_flags": 1}
        for number in range(3):
            with graphs.transaction() as txn:
                note = graphs.insert_parent(1, {"type_id": 1, **shared}, txn=txn)
                row = {"type_id": 2, "parent_id": note, "value_text": f"n {number}", **shared}
                graphs.insert_attr(1, row, txn=txn)
        package = graphs.export_package("notes", SIGNER).data
        tips = graphs.sync_tips("notes")
        graphs.database.close()
    return package, tips


PACKAGE, TIPS = graph_files()


def encoded(value):
    """Encode a value, unless it cannot be one of MessagePack."""
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        reject()


@st.composite
def signed_rows(draw):
    """Draw a package whose author signed damaged rows, or a damaged head."""
    packed = []
    for raw in envelopes.unpack(PACKAGE):
        parsed = msgspec.msgpack.decode(raw, type=SignedEnvelope)
        rows = [msgspec.msgpack.decode(body) for body in parsed.bodies]
        head = msgspec.msgpack.decode(parsed.head)
        if draw(st.booleans()):
            rows = draw(changed(rows))
        bodies = [encoded(row) for row in rows]
        head[-2:] = [[envelopes.digest(body) for body in bodies], sum(map(len, bodies))]
        if draw(st.integers(0, 4)) == 0:
            head = draw(changed(head))
        encoded(head)
        packed.append(envelopes.sign(head, bodies, SIGNER))
    return envelopes.pack(packed)


@fuzzed(st.one_of(damaged(PACKAGE), signed_rows()), count=150)
def test_damaged_package_of_a_graph_is_refused(content):
    with new_folder() as folder:
        graphs, peer = open_graphs(folder)
        try:
            accepted("graph packages", lambda: graphs.ingest_package(peer, content))
            assert not graphs.verify()
        finally:
            graphs.database.close()


@fuzzed(damaged(TIPS) if isinstance(TIPS, bytes) else damaged(TIPS.encode()), count=60)
def test_damaged_tips_of_a_graph_are_refused(content):
    with new_folder() as folder:
        graphs, peer = open_graphs(folder)
        try:
            accepted("tips of graphs", lambda: graphs.confirm_tips(peer, content))
            assert not graphs.verify()
        finally:
            graphs.database.close()


# Published stores and backups


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return a folder with a store, its published objects and its backup."""
    folder = tmp_path_factory.mktemp("published")
    changes = {"objects.url": str(folder / "objects")}
    with fourfold.open(folder / "store", settings=changes) as store:
        store.space(DID).set("a", {"text": "hello"})
        stream = store.streams.create("logs", "application/json")
        stream.set_schema(search=SEARCH)
        stream.append([{"text": f"record {number}", "n": number} for number in range(50)])
        store.sessions.create_session({"id": "s"})
        store.publish()
        store.archive.build_companions()
        store.backup(folder / "backup")
    return folder


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damage_one(data, folder):
    """Damage one file of a folder: its bytes, or a value if it has lines of JSON."""
    path = data.draw(st.sampled_from(files_of(folder)))
    content = path.read_bytes()
    strategy = damaged(content)
    if path.suffix == ".json" and path.name != "_last_checkpoint":
        strategy = st.one_of(strategy, damaged_json(content))
    path.write_bytes(data.draw(strategy))
    return path


@fuzzed(st.data(), count=60)
def test_damaged_object_of_an_archive_is_refused_or_restored_around(published, data):
    with new_folder() as place:
        folder = Path(place)
        shutil.copytree(published / "objects", folder / "objects")
        damage_one(data, folder / "objects")

        def read():
            changes = {"objects.url": str(folder / "objects")}
            with fourfold.open(folder / "copy", settings=changes) as store:
                for error in rebuild(store).failures.values():
                    raise error
                if "logs" in [stream.name for stream in store.streams.list()]:
                    list(store.streams.open("logs").search("record").items)
                store.space(DID).read("a")

        accepted("published objects", read)


def seal_backup(folder):
    """Write sizes and digests of the files into the manifest again."""
    manifest = json.loads((folder / "backup.json").read_bytes())
    for name, entry in manifest["databases"].items():
        content = (folder / name).read_bytes()
        entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / f"{name}.json").write_text(json.dumps(entry))
    for entry in manifest["files"]:
        content = (folder / entry["path"]).read_bytes()
        entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "backup.json").write_text(json.dumps(manifest))


@fuzzed(st.data(), st.booleans(), count=60)
def test_damaged_backup_is_refused(published, data, sealed):
    with new_folder() as place:
        backup, root = Path(place) / "backup", Path(place) / "store"
        shutil.copytree(published / "backup", backup)
        path = damage_one(data, backup)
        if sealed and path.name != "backup.json":
            seal_backup(backup)
        if accepted("backups", lambda: restore(backup, root)):
            accepted("stores from backups", lambda: open_and_read(root, published / "objects"))
        else:
            assert not list(root.rglob("*.sqlite"))


def open_and_read(root, objects):
    with fourfold.open(root, settings={"objects.url": str(objects)}) as store:
        store.verify()
        store.space(DID).read("a")
        list(store.streams.open("logs").read().records)


@fuzzed(st.data(), count=100)
def test_damaged_companion_is_refused(published, data):
    [companion] = [path for path in files_of(published / "objects") if is_zipfile(path)]
    content = data.draw(damaged(companion.read_bytes()))
    accepted("companions", lambda: read_directory(io.BytesIO(content), "companion"))


def test_undamaged_files_are_accepted(published, tmp_path):
    with closing(Sessions()) as sessions:
        (tmp_path / "bundle").write_bytes(BUNDLE)
        assert sessions.import_bundle(tmp_path / "bundle").sessions > 1
    with fourfold.open(":memory:") as store:
        assert bundle.replay(store.space(DID), EXPORT.splitlines(keepends=True)).blobs == 1
    graphs, peer = open_graphs(tmp_path)
    assert graphs.ingest_package(peer, PACKAGE).accepted == 3
    graphs.database.close()
    restore(published / "backup", tmp_path / "restored")
    open_and_read(tmp_path / "restored", published / "objects")
