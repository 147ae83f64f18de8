"""Random histories of graphs: several apps, versions, suppressions, rows of another node."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from fourfold.errors import FourfoldError
from fourfold.models.graphs import Query
from fourfold.models.graphs.records import KINDS
from fourfold.models.graphs.sync.keys import Ed25519Signer

SHARED = 1
APPS = ("notes", "mail")
PICK = st.integers(0, 1000)
VALUE = st.sampled_from(
    [
        {"value_text": "é\u20ac"},
        {"value_number": 2.5},
        {"value_number": 0},
        {"value_blob": b"\x00\xff"},
        {"value_json": '{"a":[1]}'},
        {},
    ]
)
OWNER = st.integers(1, 3)
STEP = st.one_of(
    st.tuples(st.just("parents"), PICK, OWNER, st.integers(1, 4)),
    st.tuples(st.just("attr"), PICK, OWNER, VALUE),
    st.tuples(st.just("edge"), PICK, OWNER, PICK),
    st.tuples(st.just("rating"), PICK, OWNER, VALUE),
    st.tuples(st.just("suppress"), PICK, OWNER, st.sampled_from([None, 0, 1])),
    st.tuples(st.just("suppress"), PICK, OWNER, st.sampled_from([None, 0, 1])),
    st.tuples(st.just("update"), PICK, OWNER, VALUE),
    st.tuples(st.just("sync"), PICK, OWNER, st.booleans()),
)
LIVES = st.lists(STEP, min_size=6, max_size=30)


class Life:
    """Two stores that write random rows and send them to each other; the first is examined."""

    def __init__(self, store, other):
        self.nodes = [_Node(store, 1), _Node(other, 2)]
        self.nodes[0].meet(self.nodes[1])
        self.nodes[1].meet(self.nodes[0])

    def live(self, steps):
        for what, pick, owner, about in steps:
            node = self.nodes[pick % 3 == 0]
            try:
                if what == "sync":
                    one, other = self.nodes if about else reversed(self.nodes)
                    one.pull(other)
                else:
                    getattr(node, what)(pick, owner, about)
            except FourfoldError:
                # Refused writes are skipped.
                continue


class _Node:
    def __init__(self, store, seed):
        self.graphs = store.graphs
        self.signer = Ed25519Signer(bytes([seed]) * 32)
        self.types = {}
        for slug in APPS:
            app = self.graphs.register_app(slug, slug).app_id
            for kind in KINDS:
                self.types[app, kind] = self.graphs.register_type(app, kind, f"{slug} {kind}")
            self.types[app, "suppress"] = self.graphs.register_type(app, "rating", "suppress")
        self.graphs.define_domain("all", SHARED)
        assert self.graphs.add_identity(self.signer.public_key).id == 1
        self.peer = 0

    def meet(self, other):
        identity = self.graphs.add_identity(other.signer.public_key)
        self.peer = self.graphs.add_peer(identity.id, "there").id
        self.graphs.allow_peer(self.peer, "all")

    def pull(self, other):
        sent = other.graphs.export_package(
            "all", other.signer, tips=self.graphs.sync_tips("all"), max_bytes=2000
        )
        self.graphs.ingest_package(self.peer, sent.data)

    def _app(self, pick):
        return 1 + pick % len(APPS)

    def _row(self, app, kind, owner):
        return {"type_id": self.types[app, kind], "owner_identity": owner, "sync_flags": SHARED}

    def _one(self, app, kind, pick):
        result = self.graphs.select(Query(app, kind))
        return result[pick % len(result)].object_id if result else 1

    def parents(self, pick, owner, count):
        app = self._app(pick)
        self.graphs.insert_many_parents(app, [self._row(app, "parent", owner)] * count)

    def attr(self, pick, owner, value):
        app = self._app(pick)
        parent = self._one(app, "parent", pick)
        row = {**self._row(app, "attr", owner), "parent_id": parent, **value}
        self.graphs.insert_attr(app, row)

    def edge(self, pick, owner, other):
        app = self._app(pick)
        row = {**self._row(app, "edge", owner), "src_parent_id": self._one(app, "parent", pick)}
        kind = "attr" if other % 4 == 0 else "parent"
        self.graphs.insert_edge(app, {**row, f"dst_{kind}_id": self._one(app, kind, other)})

    def rating(self, pick, owner, value):
        app = self._app(pick)
        kind = "attr" if pick % 4 == 1 else "parent"
        target = self._one(app, kind, pick)
        row = {**self._row(app, "rating", owner), f"target_{kind}_id": target}
        self.graphs.insert_rating(
            app, {**row, **{k: v for k, v in value.items() if k != "value_blob"}}
        )

    def suppress(self, pick, owner, number):
        app = self._app(pick)
        kind = "attr" if pick % 3 == 1 else "parent"
        target = self._one(app, kind, pick // 3)
        row = {**self._row(app, "suppress", owner), f"target_{kind}_id": target}
        self.graphs.insert_rating(app, {**row, "value_number": number})

    def hide_one(self):
        [one] = self.graphs.insert_many_parents(1, [self._row(1, "parent", 1)])
        attr = self.graphs.insert_attr(1, {**self._row(1, "attr", 2), "parent_id": one})
        for ends in ({"dst_parent_id": one}, {"dst_attr_id": attr}):
            edge = {**self._row(1, "edge", 3), "src_parent_id": self._one(1, "parent", 0), **ends}
            self.graphs.insert_edge(1, edge)
        self.graphs.insert_rating(1, {**self._row(1, "suppress", 1), "target_parent_id": one})

    def update(self, pick, owner, value):
        app = self._app(pick)
        kind = ("attr", "rating", "parent", "edge")[pick % 4]
        changes = {} if kind == "parent" else {k: v for k, v in value.items() if k != "value_blob"}
        if kind == "edge":
            target = "attr" if owner == 1 else "parent"
            changes = {f"dst_{target}_id": self._one(app, target, pick // 7)}
        self.graphs.update(app, kind, self._one(app, kind, pick // 5), changes)


def lives_of(life, count, seed=None):
    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(LIVES)
    def begin(steps):
        life.live(steps)

    (begin if seed is None else seeded(seed)(begin))()
