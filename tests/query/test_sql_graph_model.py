"""SQL over graphs equals a plain model of the calls that were made, now and at every past seq."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fourfold
from fourfold.errors import FourfoldError
from support.properties import examples

APPS = ("notes", "mail")
KINDS = ("parent", "attr", "edge", "rating")
REFERENCES = {
    "parent": (),
    "attr": ("parent_id",),
    "edge": ("src_parent_id", "dst_parent_id", "dst_attr_id"),
    "rating": ("target_parent_id", "target_attr_id"),
}
VALUES = ("value_text", "value_number", "value_json")
TIME = "2024-01-0{}T00:00:00Z"
COMMON = (
    *("app", "app_id", "type", "id", "object_id", "version", "type_id", "owner_identity"),
    *("global_seq", "sync_flags", "created_at", "origin", "origin_seq", "position", "leads"),
)
PICK = st.integers(0, 30)
OWNER = st.integers(1, 2)
VALUE = st.sampled_from(
    [{"value_text": "é"}, {"value_number": 0}, {"value_number": 2.5}, {"value_json": "[1]"}, {}]
)
STEP = st.one_of(
    st.tuples(st.just("parents"), PICK, OWNER, st.integers(1, 3)),
    st.tuples(st.just("attr"), PICK, OWNER, VALUE),
    st.tuples(st.just("edge"), PICK, OWNER, PICK),
    st.tuples(st.sampled_from(["rating", "suppress"]), PICK, OWNER, VALUE),
    st.tuples(st.just("update"), PICK, PICK, VALUE),
    st.tuples(st.just("both"), PICK, OWNER, VALUE),
    st.tuples(st.just("log"), PICK, OWNER, VALUE),
    st.tuples(st.just("refused"), PICK, OWNER, VALUE),
)


class Model:
    """Every row of a graph, in the order of the calls."""

    def __init__(self):
        self.types = {}
        self.rows = []
        self.logs = []
        self.seq = 0

    def begin(self):
        self.seq += 1

    def add(self, app, kind, type_key, fields, old=None):
        """Add a row to the transaction that was begun last."""
        number = 1 + sum(row["app_id"] == app and row["kind"] == kind for row in self.rows)
        created = {"updated_at": fields["created_at"]} if kind == "parent" else {}
        row = {
            **dict.fromkeys((*VALUES, *REFERENCES[kind])),
            **created,
            **fields,
            "app": APPS[app - 1],
            "app_id": app,
            "kind": kind,
            "type": type_key,
            "type_id": self.types[app, kind, type_key],
            "id": number,
            "object_id": number if old is None else old["object_id"],
            "version": 1 if old is None else old["version"] + 1,
            "global_seq": self.seq,
            "origin": "",
            "origin_seq": self.seq,
            "position": sum(row["global_seq"] == self.seq for row in self.rows),
            "leads": 1,
        }
        if row["value_number"] is not None:
            row["value_number"] = float(row["value_number"])
        self.rows.append(row)
        return number

    def until(self, at):
        return [row for row in self.rows if row["global_seq"] <= at]

    def newest(self, at):
        """Return the newest version of each object."""
        return {(row["kind"], row["app_id"], row["object_id"]): row for row in self.until(at)}

    def visible(self, at):
        """Return the newest versions without what owners suppress, and what belongs to it."""
        newest = self.newest(at)
        hidden = set()
        for (kind, app, _), row in newest.items():
            if kind == "rating" and row["type"] == "suppress" and row["value_number"] != 0:
                for target in ("parent", "attr"):
                    key = (target, app, row[f"target_{target}_id"])
                    if key in newest and newest[key]["owner_identity"] == row["owner_identity"]:
                        hidden.add(key)
        for target in ("parent", "attr"):
            for (kind, app, number), row in newest.items():
                names = [name for name in REFERENCES[kind] if name.endswith(f"{target}_id")]
                if any((target, app, row[name]) in hidden for name in names):
                    hidden.add((kind, app, number))
        return [row for key, row in newest.items() if key not in hidden]

    def envelopes(self, at):
        """Return app, seq, kinds and flags of each transaction."""
        result = {}
        for row in self.until(at):
            app, kinds, flags = result.get(row["global_seq"], (row["app_id"], 0, 0))
            bit = 1 << KINDS.index(row["kind"])
            result[row["global_seq"]] = (app, kinds | bit, flags | row["sync_flags"])
        return sorted((app, seq, kinds, flags) for seq, (app, kinds, flags) in result.items())


class Life:
    """Calls to a store, and the same to the model."""

    def __init__(self, store):
        self.graphs = store.graphs
        self.model = Model()
        for slug in APPS:
            app = self.graphs.register_app(slug, slug.title()).app_id
            for kind, key in (*((kind, f"my {kind}") for kind in KINDS), ("rating", "suppress")):
                number = self.graphs.register_type(app, kind, key)
                self.model.types[app, kind, key] = number

    def live(self, steps):
        for day, (what, pick, owner, about) in enumerate(steps):
            self.time = TIME.format(1 + day % 9)
            getattr(self, what)(1 + pick % 2, pick, owner, about)

    def pick(self, app, kind, number):
        ids = [key[2] for key in self.model.newest(self.model.seq) if key[:2] == (kind, app)]
        return ids[number % len(ids)] if ids else None

    def row(self, app, kind, owner, key=None, **fields):
        number = self.model.types[app, kind, key or f"my {kind}"]
        times = {"owner_identity": owner, "sync_flags": owner % 2, "created_at": self.time}
        return {"type_id": number, **times, **fields}

    def write(self, app, kind, row, key=None, *, begin=True):
        if begin:
            self.model.begin()
        fields = {name: value for name, value in row.items() if name != "type_id"}
        return self.model.add(app, kind, key or f"my {kind}", fields)

    def parents(self, app, _pick, owner, count):
        rows = [self.row(app, "parent", owner)] * count
        ids = self.graphs.insert_many_parents(app, rows)
        self.model.begin()
        assert ids == [self.write(app, "parent", row, begin=False) for row in rows]

    def attr(self, app, pick, owner, value):
        parent = self.pick(app, "parent", pick)
        if parent is not None:
            row = self.row(app, "attr", owner, parent_id=parent, **value) | {"sync_flags": 0}
            assert self.graphs.insert_attr(app, row) == self.write(app, "attr", row)

    def edge(self, app, pick, owner, other):
        kind = "attr" if other % 2 else "parent"
        source, target = self.pick(app, "parent", pick), self.pick(app, kind, other)
        if source is not None and target is not None:
            ends = {"src_parent_id": source, f"dst_{kind}_id": target}
            row = self.row(app, "edge", owner, **ends) | {"sync_flags": 0}
            assert self.graphs.insert_edge(app, row) == self.write(app, "edge", row)

    def rating(self, app, pick, owner, value, key="my rating"):
        kind = "attr" if pick % 3 == 0 else "parent"
        target = self.pick(app, kind, pick // 3)
        if target is not None:
            row = self.row(app, "rating", owner, key, **{f"target_{kind}_id": target}, **value)
            row |= {"sync_flags": 0}
            assert self.graphs.insert_rating(app, row) == self.write(app, "rating", row, key)

    def suppress(self, app, pick, owner, value):
        self.rating(app, pick, owner, value, "suppress")

    def update(self, app, pick, other, value):
        kind = KINDS[other % 4]
        object_id = self.pick(app, kind, pick)
        if object_id is None:
            return
        old = self.model.newest(self.model.seq)[kind, app, object_id]
        changes = {"updated_at": self.time} if kind == "parent" else {"created_at": self.time}
        names = [*VALUES, *REFERENCES[kind], "owner_identity", "sync_flags", "created_at"]
        fields = {name: old[name] for name in names}
        if kind in {"attr", "rating"} and value:
            changes |= value
            fields |= dict.fromkeys(VALUES)
        elif kind == "edge":
            changes["dst_parent_id"] = self.pick(app, "parent", other)
            fields |= {"dst_parent_id": None, "dst_attr_id": None}
        number = self.graphs.update(app, kind, object_id, changes)
        self.model.begin()
        assert number == self.model.add(app, kind, old["type"], {**fields, **changes}, old)

    def both(self, app, _pick, owner, value):
        """Write an object and its attribute in one transaction."""
        parent = self.row(app, "parent", owner)

        def work(handle):
            [number] = self.graphs.insert_many_parents(app, [parent], txn=handle)
            attr = self.row(app, "attr", owner, parent_id=number, **value)
            return attr, self.graphs.insert_attr(app, attr, txn=handle)

        attr, number = self.graphs.with_transaction(work)
        assert self.write(app, "parent", parent) == attr["parent_id"]
        assert self.write(app, "attr", attr, begin=False) == number

    def log(self, app, pick, _owner, value):
        """Add an entry to the log of an app, which takes no seq."""
        number = 1 + sum(entry[0] == app for entry in self.model.logs)
        text = json.dumps(value)
        self.graphs.insert_log(app, "info", f"event {pick}", text)
        self.model.logs.append((app, number, "info", f"event {pick}", text))

    def refused(self, app, _pick, owner, value):
        """Send a row that refers to nothing: it leaves nothing, and takes no seq."""
        row = self.row(app, "attr", owner, parent_id=10**6, **value)
        with pytest.raises(FourfoldError):
            self.graphs.insert_attr(app, row)


def compare(store, model, at):
    def rows(table, names):
        """Return rows as tuples, sorted."""
        query = f"select {', '.join(names)} from graphs_{table}"
        return sorted(store.sql(query, at=at).rows, key=repr)

    def expected(picked, names):
        return sorted((tuple(row.get(name) for name in names) for row in picked), key=repr)

    for kind in KINDS:
        names = [*COMMON, *REFERENCES[kind]]
        names += [*VALUES] if kind in {"attr", "rating"} else []
        names += ["updated_at"] if kind == "parent" else []
        own = [row for row in model.until(at) if row["kind"] == kind]
        assert rows(f"{kind}s", names) == expected(own, names)
    pointers = dict.fromkeys(name for kind in KINDS for name in REFERENCES[kind])
    names = [*COMMON, "kind", *pointers, *VALUES, "updated_at"]
    assert rows("changes", names) == expected(model.until(at), names)
    assert rows("current", names) == expected(model.visible(at), names)
    names = ("app_id", "global_seq", "kinds", "sync_flags")
    assert rows("envelopes", names) == sorted(model.envelopes(at), key=repr)
    types = sorted(((*key, number) for key, number in model.types.items()), key=repr)
    assert rows("types", ("app_id", "kind", "type", "type_id")) == types


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=4, max_size=16))
def test_tables_of_random_graphs_equal_the_model_of_their_calls(steps):
    with fourfold.open(":memory:") as store:
        life = Life(store)
        life.live(steps)
        model = life.model
        assert store.graphs.get_global_seq() == model.seq
        for at in sorted({0, model.seq // 3, model.seq // 2, max(0, model.seq - 1), model.seq}):
            compare(store, model, at)
        counts = store.sql("select app_id, rows from graphs_apps where app_id > 0").rows
        names = "app_id, id, level, event_type, context_json"
        assert sorted(store.sql(f"select {names} from graphs_logs").rows) == sorted(model.logs)
        for app, count in counts:
            assert count == sum(row["app_id"] == app for row in model.rows)
