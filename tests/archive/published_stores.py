"""Whole stores for the tests of publishing: how they live, and everything that is in them."""

from __future__ import annotations

import contextlib

import fourfold
from fourfold.errors import HistoryTruncated, InvalidInput, MergeConflicted
from fourfold.models.documents import GcPolicy
from fourfold.objects import FolderStore
from fourfold.store.restoration import rebuild

DIDS = {"did:key:revisions": "revisions", "did:key:facts": "facts"}
DID = "did:key:one"
"""A space that a test fills itself."""
LARGE = 70_000
"""A value of so many bytes is an object of its own."""
REFUSED = (InvalidInput, MergeConflicted, HistoryTruncated)
DERIVED = {"snapshots", "derived_cache"}
"""Tables that are made again in another way, or forgotten."""


def open_store(path, url):
    return fourfold.open(path, settings={"objects.url": str(url)})


def published(store, **options):
    report = store.publish(**options)
    report.raise_if_failed()
    return report


def rebuilt(path, url, **options):
    """The store that the objects make, closed."""
    with open_store(path, url) as store:
        report = rebuild(store, **options)
        for error in report.failures.values():
            raise error
    return path


def contents(root):
    """Every row of every database of a store, byte for byte, without what is derived in more than
    one way.
    """
    found = {}
    with fourfold.open(root, mode="r") as store:
        for did in store.spaces():
            found[did] = rows_of(store.space(did).database)
        if (root / "sessions" / "events.db").exists():
            found["sessions"] = rows_of(store.sessions.log.database)
        if (root / "graphs" / "backend.db").exists():
            found["graphs"] = rows_of(store.graphs.database)
    return found


def rows_of(database):
    # The segments of FTS5 depend on which commits wrote the words; `verify` compares the words.
    with database.read() as snapshot:
        names = snapshot.all(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'published*'"
            " AND name NOT GLOB 'sqlite_stat*' AND name NOT GLOB 'index_text_*'"
            " AND name NOT GLOB 'event_text*'"
        )
        tables = {name: rows_in(snapshot, name) for (name,) in names if name not in DERIVED}
    # When migrations ran is no part of what a database holds.
    tables["schema_migrations"] = [row[:3] for row in tables["schema_migrations"]]
    return tables


def rows_in(snapshot, table):
    if table == "snapshot":
        text = (
            "SELECT s.* FROM snapshot AS s JOIN gc_base AS b USING (branch, id, seq)"
            " ORDER BY s.branch, s.id, s.seq"
        )
    elif table == "value":
        text = (
            "SELECT * FROM value WHERE hash IN (SELECT value_ref FROM fact) OR hash IN (SELECT"
            " s.value_ref FROM snapshot AS s JOIN gc_base AS b USING (branch, id, seq))"
            " OR hash = '__empty__' ORDER BY hash"
        )
    else:
        text = f'SELECT * FROM "{table}"'
    return sorted(map(repr, snapshot.all(text)))


def streams_of(root, **options):
    """The records of every stream."""
    with fourfold.open(root, mode="r", **options) as store:
        if not (root / "streams" / "wal.sqlite").exists():
            return {}
        names = [info.name for info in store.streams.list()]
        return {
            name: [record.payload for record in store.streams.read(name)[1].records]
            for name in names
        }


def verified(root):
    with fourfold.open(root, mode="r") as store:
        assert store.verify().problems == []


def at(url):
    return {"objects.url": str(url)}


def objects_of(url):
    with FolderStore(url) as objects:
        return {info.key: objects.get(info.key).data for info in objects.list()}


class Life:
    """Random things that happen to a store; some are refused, and then nothing happens."""

    purges = True
    """False if deleted sessions are not purged, which erases them from older points too."""

    def __init__(self, store, random):
        self.store = store
        self.random = random
        self.number = 0
        for did, history in DIDS.items():
            store.space(did, history)
        graphs = store.graphs
        self.app = graphs.register_app("notes", "Notes").app_id
        self.me = graphs.add_identity("ed25519:me", "me").id
        self.types = {
            kind: graphs.register_type(self.app, kind, f"note {kind}")
            for kind in ("parent", "attr", "edge", "rating")
        }
        self.sids = []

    def step(self):
        self.number += 1
        whats = (self.documents, self.documents, self.sessions, self.graphs, self.streams)
        self.random.choice(whats)()

    def everything(self):
        for entry in (self.documents, self.sessions, self.graphs, self.streams):
            for _ in range(6):
                self.number += 1
                entry()

    def documents(self):
        space = self.store.space(self.random.choice(list(DIDS)))
        what = self.random.randrange(12)
        branches = [info.name for info in space.branches.list()]
        branch = self.random.choice(branches)
        entity = f"e{self.random.randrange(4)}"
        with contextlib.suppress(*REFUSED):
            if what < 4:
                space.set(entity, {"n": self.random.choice((1, 1.0, self.number))}, branch=branch)
            elif what < 7:
                patch = [{"op": "add", "path": "/p", "value": self.number}]
                space.patch(entity, patch, branch=branch)
            elif what == 7:
                space.delete(entity, branch=branch)
            elif what == 8:
                name = f"b{self.number}"
                space.branches.create(name, branch)
                if len(branches) > 2:
                    space.branches.delete(branches[-1])
            elif what == 9:
                size = self.random.choice((3, LARGE))
                space.blobs.put(bytes([self.number % 256]) * size, metadata={"n": self.number})
            elif what == 10:
                policy = GcPolicy(keep_seqs=self.random.randint(1, 4), blobs=True, blob_age_s=0)
                space.gc(policy)
            else:
                space.branches.merge("", branch)

    def sessions(self):
        sessions = self.store.sessions
        what = self.random.randrange(9)
        if not self.sids or what == 0:
            self.sids.append(f"s{self.number}")
            sessions.create_session({"id": self.sids[-1]})
            return
        sid = self.random.choice(self.sids)
        with contextlib.suppress(*REFUSED):
            if what < 4:
                size = self.random.choice((3, 9_000, LARGE * 20))
                value = sessions.maybe_intern(f"{self.number}" * size)
                sessions.append_event(sid, {"type": "message/appended", "message": {"c": value}})
            elif what < 6:
                sessions.append_event(sid, {"type": "turn/started", "turn": {"n": self.number}})
                sessions.append_event(sid, {"type": "turn/put", "turn": {"id": 1, "n": 2}})
            elif what == 6:
                sessions.publish_head(sid, {})
                sessions.claim(sid, f"worker {self.number}", steal=True)
            elif what == 7 and len(self.sids) > 1:
                self.sids.remove(sid)
                sessions.delete_session(sid)
            elif self.purges:
                sessions.gc(0)

    def graphs(self):
        graphs, app = self.store.graphs, self.app
        what = self.random.randrange(8)
        parents = [parent.id for parent in graphs.current_parents(app)]
        if not parents or what < 2:
            row = {"type_id": self.types["parent"], "owner_identity": self.me}
            graphs.insert_parent(app, row)
        elif what < 4:
            row = {"parent_id": parents[0], "type_id": self.types["attr"]}
            values = ({"value_text": f"{self.number}"}, {"value_number": 0.5}, {"value_blob": b"x"})
            value = self.random.choice(values)
            graphs.insert_attr(app, {**row, **value, "owner_identity": self.me})
        elif what == 4:
            row = {"src_parent_id": parents[0], "dst_parent_id": parents[-1]}
            kind = self.types["edge"]
            graphs.insert_edge(app, {**row, "type_id": kind, "owner_identity": self.me})
        elif what == 5:
            wanted = [self.random.choice(parents)]
            graphs.update_sync_flags(app, "parent", wanted, self.random.randrange(4))
        elif what == 6:
            graphs.upsert_setting(f"k{self.number % 3}", f"{self.number}")
        else:
            other = graphs.register_app(f"app{self.number}", "Another").app_id
            graphs.register_type(other, "parent", "thing")
            graphs.insert_log(other, "info", "made", "{}")

    def streams(self):
        name = f"stream{self.random.randrange(3)}"
        stream = self.store.streams.create(name, "text/plain")
        stream.append([f"{self.number}-{at}".encode() for at in range(self.random.randint(1, 4))])
