"""Lookups by value and aggregates, compared with a naive model at every seq."""

from __future__ import annotations

import json

import pytest
from graph_nodes import APP, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import intervals
from fourfold.models.graphs.statements import SQL, statements_of
from fourfold.models.graphs.values import value_statements
from support.properties import examples

LONG = "x" * 119
TEXTS = ["", "a", "ab", "b", "é", "a\0b", "a\0c", f"{LONG}yy", f"{LONG}yz", LONG, "\U0010ffff"]
VALUES = [*TEXTS, -1.5, 0.0, 1.0, 2.0, 1e300, True, None, [1], {"a": 1}, b"x"]
CONDITIONS = [
    None,
    *TEXTS,
    *(0, 1, 2, True, [1], 2**4000, -(2**4000)),
    {"$in": ["a", 1, "b", True]},
    {"$gt": "a"},
    {"$gte": "a", "$lt": "b"},
    {"$lte": f"{LONG}yy"},
    {"$gte": 0, "$lte": 1},
    {"$gt": 0, "$lt": "b"},
    {"$prefix": "a"},
    {"$prefix": f"{LONG}y"},
    {"$prefix": ""},
    {"$ne": "a"},
    {"$type": "number"},
    {"$contains": "b"},
    {"$not": {"$gt": 0}},
    {"$exists": False},
]
numbers = st.integers(0, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("attr"), numbers, st.sampled_from(VALUES)),
        st.tuples(st.just("set"), st.integers(0, 9), st.sampled_from(VALUES)),
        st.tuples(st.just("twice"), st.integers(0, 9), st.sampled_from(VALUES), st.just("a")),
        st.tuples(st.just("rate"), numbers, st.sampled_from([1.0, 2.0, 4.0])),
        st.tuples(st.just("rate_again"), st.integers(0, 9), st.sampled_from([1.0, 3.0])),
        st.tuples(st.just("suppress"), numbers, st.integers(0, 1)),
        st.tuples(st.just("suppress_attr"), st.integers(0, 9), st.integers(0, 1)),
    ),
    max_size=16,
)


def payload(value):
    if isinstance(value, str):
        return {"value_text": value}
    if isinstance(value, bytes):
        return {"value_blob": value}
    if isinstance(value, float):
        return {"value_number": value}
    return {"value_json": json.dumps(value)}


class World:
    """A database, and every state of its attributes and ratings as plain lists."""

    def __init__(self, path):
        self.graphs = open_graphs(path)
        self.types = with_notes(self.graphs)
        self.app = self.graphs.open("notes")
        for kind, key in (("attr", "value"), ("rating", "stars"), ("parent", "other")):
            self.types[key] = self.app.register_type(kind, key)
        kinds = [self.types["parent"], self.types["other"]]
        rows = [{"type_id": kinds[n % 2], "owner_identity": 1} for n in range(4)]
        self.nodes = self.app.insert("parent", rows)
        self.attrs, self.stars, self.hidden = [], [], {}
        self.values, self.scores, self.suppressions = {}, {}, {}
        self.past = {}
        self.remember()

    def remember(self):
        hidden = {place for place, value in self.hidden.items() if value}
        state = ([dict(row) for row in self.attrs], [dict(row) for row in self.stars], hidden)
        self.past[self.app.position()] = state

    def run(self, steps):
        for name, *values in steps:
            getattr(self, name)(*values)
            self.remember()

    def attr(self, node, value):
        row = {"type_id": self.types["value"], "owner_identity": 1, "parent_id": self.nodes[node]}
        [number] = self.app.insert("attr", [{**row, **payload(value)}])
        self.attrs.append({"id": number, "target": self.nodes[node], "value": value})

    def set(self, attr, value):
        if self.attrs:
            row = self.attrs[attr % len(self.attrs)]
            self.app.update("attr", row["id"], payload(value))
            row["value"] = value

    def twice(self, attr, first, second):
        if self.attrs:
            row = self.attrs[attr % len(self.attrs)]
            with self.graphs.transaction() as txn:
                for value in (first, second):
                    self.app.update("attr", row["id"], payload(value), txn=txn)
            row["value"] = second

    def rate(self, node, value):
        row = {"type_id": self.types["stars"], "owner_identity": 1, "value_number": value}
        [number] = self.app.insert("rating", [{**row, "target_parent_id": self.nodes[node]}])
        self.stars.append({"id": number, "target": self.nodes[node], "value": value})

    def rate_again(self, rating, value):
        if self.stars:
            row = self.stars[rating % len(self.stars)]
            self.app.update("rating", row["id"], {"value_number": value})
            row["value"] = value

    def suppress(self, node, value):
        self._suppress("parent", self.nodes[node], value)

    def suppress_attr(self, attr, value):
        if self.attrs:
            self._suppress("attr", self.attrs[attr % len(self.attrs)]["id"], value)

    def _suppress(self, kind, target, value):
        row = {"type_id": self.types["suppress"], "owner_identity": 1, "value_number": value}
        place = (kind, target)
        if place in self.suppressions:
            self.app.update("rating", self.suppressions[place], {"value_number": value})
        else:
            [number] = self.app.insert("rating", [{**row, f"target_{kind}_id": target}])
            self.suppressions[place] = number
        self.hidden[place] = value

    def shown(self, seq, kind, *, suppressed):
        attrs, stars, hidden = self.past[seq]
        rows = attrs if kind == "attr" else stars
        if suppressed:
            return rows
        return [
            row
            for row in rows
            if ("parent", row["target"]) not in hidden
            and (kind == "rating" or ("attr", row["id"]) not in hidden)
        ]


def order(row):
    """Return the order of a lookup: numbers, texts as far as they are compared, JSON, others."""
    value = row["value"]
    if isinstance(value, str):
        return (1, value.split("\0")[0][:120], row["id"])
    if isinstance(value, float):
        return (0, value, row["id"])
    return (3 if isinstance(value, bytes) else 2, 0, row["id"])


def expected_ids(world, where, seq, *, suppressed):
    condition = parse_filter({} if where is None else {"value": where})
    rows = world.shown(seq, "attr", suppressed=suppressed)
    return [
        row["id"]
        for row in sorted(rows, key=order)
        if condition.matches({} if isinstance(row["value"], bytes) else {"value": row["value"]})
    ]


def pages(app, where, limit, **options):
    after, ids = None, []
    while True:
        page = app.find("value", where, limit=limit, after=after, **options)
        ids += [row.object_id for row in page.rows]
        after = page.cursor
        if after is None:
            return ids
        assert len(page.rows) == limit


@settings(max_examples=examples(60), deadline=None)
@given(steps=steps, data=st.data())
def test_values_equal_a_naive_model_at_every_seq(tmp_path_factory, steps, data):
    world = World(tmp_path_factory.mktemp("values") / "backend.db")
    try:
        world.run(steps)
        seq = data.draw(st.sampled_from(sorted(world.past)))
        suppressed = data.draw(st.booleans())
        options = {"at": seq, "suppressed": suppressed}
        for where in CONDITIONS:
            expected = expected_ids(world, where, seq, suppressed=suppressed)
            assert pages(world.app, where, 2, **options) == expected, where
            assert pages(world.app, where, 50, **options) == expected
        assert_aggregates(world, seq, options)
        assert world.graphs.verify() == []
        before = derived(world.graphs)
        with world.graphs.transaction() as handle:
            intervals.rebuild(handle.txn)
        assert derived(world.graphs) == before
    finally:
        world.graphs.database.close()


def assert_aggregates(world, seq, options):
    rows = world.shown(seq, "rating", suppressed=options["suppressed"])
    numbers = [row["value"] for row in rows]
    whole = world.app.aggregate("stars", **options)
    assert (whole.seq, whole.values, whole.numbers) == (seq, len(numbers), len(numbers))
    assert whole.sum == (sum(numbers) if numbers else None)
    assert whole.greatest == max(numbers, default=None)
    groups = {}
    for row in rows:
        groups.setdefault(row["target"], []).append(row["value"])
    for node in world.nodes:
        own = world.app.aggregate("stars", target=node, **options)
        values = groups.get(node, [])
        assert (own.numbers, own.average) == (
            len(values),
            sum(values) / len(values) if values else None,
        )
    for name, of in (("sum", sum), ("count", len), ("average", lambda v: sum(v) / len(v))):
        ranked = sorted(groups, key=lambda target: (-of(groups[target]), target))
        top = world.app.top("stars", order=name, limit=2, **options)
        assert [row.object_id for row in top.objects] == ranked[:2]
    one = world.app.top("stars", types=[world.types["other"]], **options)
    assert {row.object_id for row in one.objects} == set(groups) & set(world.nodes[1::2])
    attrs = world.shown(seq, "attr", suppressed=options["suppressed"])
    assert world.app.aggregate("value", kind="attr", **options).values == len(attrs)


def derived(graphs):
    with graphs.database.read() as snapshot:
        return [sorted(snapshot.all(f"SELECT * FROM {name}"), key=repr) for name in TABLES]


TABLES = ("value_now", "value_past")


@pytest.fixture
def world(path):
    world = World(path)
    yield world
    world.graphs.database.close()


def test_a_cursor_keeps_the_seq_of_its_first_page(world):
    world.run([("attr", 0, "a"), ("attr", 1, "b"), ("attr", 2, "c")])
    ids = [row["id"] for row in world.attrs]
    first = world.app.find("value", limit=1)
    world.run([("set", 1, "0"), ("attr", 0, "bb")])
    rest = world.app.find("value", limit=5, after=first.cursor)
    assert (rest.seq, [row.object_id for row in rest.rows]) == (first.seq, ids[1:])
    assert [row.value_text for row in rest.rows] == ["b", "c"]
    for wrong in ("", "x", first.cursor[:-2]):
        with pytest.raises(InvalidInput):
            world.app.find("value", after=wrong)
    with pytest.raises(InvalidInput):
        world.app.find("value", "a", after=first.cursor)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM value_now WHERE kind = 2",
        "UPDATE value_now SET value = 7.5 WHERE kind = 8",
        "UPDATE value_past SET from_seq = from_seq + 1",
        "UPDATE value_now SET app_id = 77",
    ],
)
def test_verify_reports_wrong_values(world, damage):
    world.run([("attr", 0, "a"), ("rate", 0, 1.0), ("set", 0, "b"), ("suppress", 1, 1)])
    with world.graphs.transaction() as handle:
        handle.txn.execute(damage)
    assert any("value_now" in problem.message for problem in world.graphs.verify())


def test_lookups_refuse_bad_input(world):
    app = world.app
    for call in (
        lambda: app.find("value", limit=0),
        lambda: app.find("value", limit=10**6),
        lambda: app.find("value", {"$like": "a"}),
        lambda: app.find("value", "\ud800"),
        lambda: app.find("value", kind="edge"),
        lambda: app.find("value", at=10**6),
        lambda: app.aggregate("stars", target=0),
        lambda: app.aggregate("stars", target=1, target_kind="edge"),
        lambda: app.top("stars", order="best"),
        lambda: app.top("stars", limit=0),
    ):
        with pytest.raises(InvalidInput):
            call()
    for call in (lambda: app.find("none"), lambda: app.top("none"), lambda: app.aggregate("none")):
        with pytest.raises(NotFound):
            call()


def plan(graphs, sql, count):
    with graphs.database.read() as snapshot:
        return [row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", (None,) * count)]


def test_lookups_seek_the_index_of_values(world):
    sql = value_statements(APP, "attr")
    [step] = plan(world.graphs, sql.between_now, 5)
    assert "COVERING INDEX value_now_value (app_id=? AND kind=? AND type_id=? AND value>?" in step
    [step] = plan(world.graphs, sql.between_past, 5)
    assert "PRIMARY KEY (app_id=? AND kind=? AND type_id=? AND value>?" in step


def test_trace_ids_seek_their_index(world):
    [step] = plan(world.graphs, SQL.envelopes_of_trace, 4)
    assert "INDEX envelopes_trace (app_id=? AND trace_id=? AND global_seq>?)" in step


@pytest.mark.parametrize("name", ["held_parent_id", "held_by_one_parent_id"])
def test_attributes_of_an_object_are_found_by_their_ids(world, name):
    steps = plan(
        world.graphs,
        getattr(statements_of(APP, "attr"), name),
        4 if name == "held_parent_id" else 2,
    )
    assert any("value_now" in step or "SEARCH v USING PRIMARY KEY" in step for step in steps)
    assert any(step.startswith("SEARCH r USING INTEGER PRIMARY KEY (rowid=?") for step in steps)
    later = "SEARCH q USING PRIMARY KEY (app_id=? AND kind=? AND object_id=? AND leads=? AND id<?)"
    assert later in steps


def test_attributes_with_many_versions_are_read_at_every_seq(world):
    world.run([("attr", 0, "a")])
    [attr] = world.attrs
    for number in range(300):
        world.app.update("attr", attr["id"], {"value_text": f"{number}"})
    for at, text in ((None, "299"), (world.app.position() - 100, "199")):
        [row] = world.graphs.current_attrs(APP, parent_ids=[attr["target"]], at=at)
        assert row.value_text == text
        assert [found.object_id for found in world.app.find("value", text, at=at).rows] == [
            row.object_id
        ]
