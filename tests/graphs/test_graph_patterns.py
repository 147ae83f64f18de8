"""Matches of patterns, compared with a naive model at every seq."""

from __future__ import annotations

import json
from collections import deque
from itertools import pairwise, product

import pytest
from graph_nodes import APP, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold import limits
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput, LimitExceeded, NotFound
from fourfold.models.graphs import Pattern, match
from support.properties import examples

NODES = 4
numbers = st.integers(0, NODES - 1)
VALUES = ["a", "b", "x" * 130, "x" * 129 + "y", 1.0, 2.0, [1]]
CONDITIONS = [None, "a", 1, {"$gt": 1}, {"$gte": "a"}, {"$in": ["b", 2]}, "x" * 130, [1]]
changes = st.lists(
    st.one_of(
        st.tuples(st.just("edge"), numbers, numbers, st.integers(0, 1)),
        st.tuples(st.just("move"), st.integers(0, 30), numbers),
        st.tuples(st.just("attr"), numbers, st.sampled_from(VALUES)),
        st.tuples(st.just("set"), st.integers(0, 9), st.sampled_from(VALUES)),
        st.tuples(st.just("suppress"), numbers, st.integers(0, 1)),
        st.tuples(st.just("suppress_attr"), st.integers(0, 9), st.integers(0, 1)),
    ),
    max_size=14,
)


def payload(value):
    if isinstance(value, str):
        return {"value_text": value}
    return {"value_json": json.dumps(value)} if isinstance(value, list) else {"value_number": value}


class World:
    """A database and its states at every seq as plain lists."""

    def __init__(self, path):
        self.graphs = open_graphs(path)
        types = with_notes(self.graphs)
        self.app = self.graphs.open("notes")
        self.kinds = [self.app.register_type("edge", f"e{i}") for i in range(2)]
        self.value = self.app.register_type("attr", "value")
        self.suppress_type = types["suppress"]
        parents = [types["parent"], self.app.register_type("parent", "other")]
        rows = [{"type_id": parents[n % 2], "owner_identity": 1} for n in range(NODES)]
        self.nodes = self.app.insert("parent", rows)
        self.type_of = {node: n % 2 for n, node in enumerate(self.nodes)}
        self.edges, self.attrs, self.hidden, self.ratings = {}, {}, set(), {}
        self.past = {}
        self.remember()

    def remember(self):
        edges, attrs = dict(self.edges), dict(self.attrs)
        self.past[self.app.position()] = (edges, attrs, set(self.hidden))

    def run(self, changes):
        for name, *values in changes:
            getattr(self, name)(*values)
            self.remember()

    def edge(self, src, dst, kind):
        ends = {"src_parent_id": self.nodes[src], "dst_parent_id": self.nodes[dst]}
        row = {"type_id": self.kinds[kind], "owner_identity": 1, **ends}
        [number] = self.app.insert("edge", [row])
        self.edges[number] = (self.nodes[src], self.nodes[dst], kind)

    def move(self, edge, dst):
        if self.edges:
            number = sorted(self.edges)[edge % len(self.edges)]
            self.app.update("edge", number, {"dst_parent_id": self.nodes[dst]})
            src, _, kind = self.edges[number]
            self.edges[number] = (src, self.nodes[dst], kind)

    def attr(self, node, value):
        row = {"type_id": self.value, "owner_identity": 1, "parent_id": self.nodes[node]}
        [number] = self.app.insert("attr", [{**row, **payload(value)}])
        self.attrs[number] = (self.nodes[node], value)

    def set(self, attr, value):
        if self.attrs:
            number = sorted(self.attrs)[attr % len(self.attrs)]
            self.app.update("attr", number, payload(value))
            self.attrs[number] = (self.attrs[number][0], value)

    def suppress(self, node, value):
        self._suppress("parent", self.nodes[node], value)

    def suppress_attr(self, attr, value):
        if self.attrs:
            self._suppress("attr", sorted(self.attrs)[attr % len(self.attrs)], value)

    def _suppress(self, kind, target, value):
        place = (kind, target)
        if place in self.ratings:
            self.app.update("rating", self.ratings[place], {"value_number": value})
        else:
            row = {"type_id": self.suppress_type, "owner_identity": 1, "value_number": value}
            [self.ratings[place]] = self.app.insert(
                "rating", [{**row, f"target_{kind}_id": target}]
            )
        (self.hidden.add if value else self.hidden.discard)(place)

    # The naive model

    def matches(self, pattern, seq, *, suppressed):
        edges, attrs, hidden = self.past[seq]
        hidden = set() if suppressed else hidden
        nodes = [node for node in self.nodes if ("parent", node) not in hidden]
        names = pattern.names
        found = []
        for chosen in product(nodes, repeat=len(names)):
            objects = dict(zip(names, chosen, strict=True))
            if all(self.fits(pattern, name, objects[name], attrs, hidden) for name in names):
                ways = [self.ways(step, objects, edges, nodes) for step in pattern.steps]
                for way in product(*ways):
                    single = [edge for edge in way if isinstance(edge, int)]
                    if len(set(single)) == len(single):
                        found.append((objects, way))
        return found

    def fits(self, pattern, name, node, attrs, hidden):
        wanted = pattern.nodes.get(name)
        if wanted is None:
            return True
        if wanted.id not in {None, node}:
            return False
        if wanted.type is not None and (wanted.type == "other") != bool(self.type_of[node]):
            return False
        for where in wanted.where.values():
            condition = parse_filter({} if where is None else {"value": where})
            if not any(
                target == node and condition.matches({"value": value})
                for number, (target, value) in attrs.items()
                if ("attr", number) not in hidden
            ):
                return False
        return True

    def ways(self, step, objects, edges, nodes):
        """Return the edges of a step, or the length of its shortest path as a text."""
        kinds = None if step.types is None else {int(key[1:]) for key in step.types}
        source, target = objects[step.source], objects[step.target]
        usable = [
            (number, *ends)
            for number, (src, dst, kind) in edges.items()
            if kinds is None or kind in kinds
            for ends in self.turned(step.direction, src, dst)
        ]
        if step.hops == 1:
            return sorted({number for number, *ends in usable if ends == [source, target]})
        distances, queue = {source: 0}, deque([source])
        while queue:
            here = queue.popleft()
            for _, src, dst in usable:
                if src == here and dst in nodes and dst not in distances:
                    distances[dst] = distances[here] + 1
                    queue.append(dst)
        distance = distances.get(target, 99)
        return [f"{distance}"] if 1 <= distance <= step.hops else []

    @staticmethod
    def turned(direction, src, dst):
        return [
            *([(src, dst)] if direction in {"out", "both"} else []),
            *([(dst, src)] if direction in {"in", "both"} else []),
        ]


@st.composite
def patterns(draw):
    names = ["a", "b", "c"]
    pattern = Pattern()
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=2)):
        where = {"value": draw(st.sampled_from(CONDITIONS))} if draw(st.booleans()) else {}
        kind = draw(st.sampled_from([None, None, "note parent", "other"]))
        pattern = pattern.node(name, type_key=kind, where=where)
    for _ in range(draw(st.integers(0, 3))):
        known = pattern.names or ("a",)
        source, target = draw(st.sampled_from(known)), draw(st.sampled_from(names))
        if draw(st.booleans()):
            source, target = target, source
        kinds = draw(st.sampled_from([None, "e0", ["e0", "e1"]]))
        direction = draw(st.sampled_from(["out", "in", "both"]))
        hops = 1 if source == target else draw(st.sampled_from([1, 1, 2, 3]))
        pattern = pattern.path(source, target, kinds, direction=direction, hops=hops)
    return pattern if pattern.names else pattern.node("a")


def connected(pattern):
    reached, steps = set(pattern.names[:1]), [{step.source, step.target} for step in pattern.steps]
    for _ in steps:
        reached = reached.union(*(ends for ends in steps if ends & reached))
    return reached == set(pattern.names)


def everything(app, pattern, limit, **options):
    after, rows = None, []
    while True:
        page = app.match(pattern, limit=limit, after=after, **options)
        rows += page.rows
        after = page.cursor
        if after is None:
            return rows
        assert len(page.rows) == limit


def shape(row, pattern):
    way = [
        path.edges[0] if step.hops == 1 else f"{len(path.edges)}"
        for step, path in zip(pattern.steps, row.paths, strict=True)
    ]
    return tuple(sorted(row.objects.items())), tuple(way)


@settings(max_examples=examples(300), deadline=None)
@given(changes=changes, queries=st.lists(patterns(), min_size=1, max_size=4), data=st.data())
def test_matches_equal_a_naive_model_at_every_seq(tmp_path_factory, changes, queries, data):
    world = World(tmp_path_factory.mktemp("patterns") / "backend.db")
    try:
        world.run(changes)
        for query in filter(connected, queries):
            pattern = query
            seq = data.draw(st.sampled_from(sorted(world.past)))
            suppressed = data.draw(st.booleans())
            if data.draw(st.booleans()):
                node = data.draw(st.sampled_from(world.nodes))
                name = data.draw(st.sampled_from(pattern.names))
                pattern = pattern.node(name, object_id=node)
            expected = sorted(
                (tuple(sorted(objects.items())), way)
                for objects, way in world.matches(pattern, seq, suppressed=suppressed)
            )
            options = {"at": seq, "suppressed": suppressed}
            rows = everything(world.app, pattern.to_json(), 3, **options)
            assert sorted(shape(row, pattern) for row in rows) == expected
            assert everything(world.app, pattern, 1000, **options) == rows
            for row in rows:
                for step, path in zip(pattern.steps, row.paths, strict=True):
                    ends = row.objects[step.source], row.objects[step.target]
                    assert (path.objects[0], path.objects[-1]) == ends
    finally:
        world.graphs.database.close()


@settings(max_examples=examples(100), deadline=None)
@given(changes=changes, pattern=patterns())
def test_a_pattern_changes_only_with_what_concerns_it(tmp_path_factory, changes, pattern):
    if not connected(pattern):
        return
    world = World(tmp_path_factory.mktemp("patterns") / "backend.db")
    try:
        world.run(changes)
        seqs = sorted(world.past)
        concerned = {
            change.global_seq
            for page in world.app.follow(after=seqs[0], timeout=0, pattern=pattern)
            for change in page
        }
        for before, after in pairwise(seqs):
            matched = [
                [
                    (sorted(objects.items()), way)
                    for objects, way in world.matches(pattern, seq, suppressed=False)
                ]
                for seq in (before, after)
            ]
            assert after in concerned or matched[0] == matched[1]
    finally:
        world.graphs.database.close()


@pytest.fixture
def world(path):
    world = World(path)
    yield world
    world.graphs.database.close()


def test_a_cursor_keeps_the_seq_and_continues_after_its_match(world, monkeypatch):
    monkeypatch.setattr(match, "_ROWS_MIN", 2)
    monkeypatch.setattr(match, "_FIRST_MIN", 1)
    world.run([("edge", a, b, 0) for a in range(NODES) for b in range(NODES)])
    pattern = Pattern().edge("a", "b").edge("b", "c")
    seq = world.app.position()
    expected = everything(world.app, pattern, 1000)
    first = world.app.match(pattern, limit=5)
    world.run([("move", 3, 0), ("edge", 0, 0, 1), ("suppress", 1, 1)])
    rows, after = list(first.rows), first.cursor
    while after is not None:
        page = world.app.match(pattern, limit=5, after=after)
        assert page.seq == seq
        rows += page.rows
        after = page.cursor
    assert rows == expected
    assert len(rows) == len(world.matches(pattern, seq, suppressed=False))
    for wrong in ("", "x", first.cursor[:-2]):
        with pytest.raises(InvalidInput):
            world.app.match(pattern, after=wrong)
    with pytest.raises(InvalidInput):
        world.app.match(pattern.edge("c", "d"), after=first.cursor)


BAD = [
    {},
    {"nodes": {"a": {}}, "more": 1},
    {"nodes": {"a": {}, "b": {}}},
    {"nodes": {"a b": {}}},
    {"nodes": {"a": {"id": 0}}},
    {"nodes": {"a": {"id": True}}},
    {"nodes": {"a": {"type": ""}}},
    {"nodes": {"a": {"where": {"value": {"$like": 1}}}}},
    {"nodes": {"a": {"where": {"value": "\ud800"}}}},
    {"steps": [{"from": "a", "to": "b", "hops": 0}]},
    {"steps": [{"from": "a", "to": "b", "hops": limits.MATCH_HOPS_MAX + 1}]},
    {"steps": [{"from": "a", "to": "a", "hops": 2}]},
    {"steps": [{"from": "a", "to": "b", "type": []}]},
    {"steps": [{"from": "a", "to": "b", "direction": "up"}]},
    {"steps": [{"from": "a", "to": "b"}] * (limits.MATCH_STEPS_MAX + 1)},
    [],
    None,
    {"nodes": {"a": {"where": float("nan")}}},
]


@pytest.mark.parametrize("pattern", BAD)
def test_bad_patterns_are_refused(world, pattern):
    with pytest.raises(InvalidInput):
        world.app.match(pattern)


def test_unknown_types_and_objects_are_refused(world):
    for pattern in (
        Pattern().node("a", type_key="nothing"),
        Pattern().node("a", where={"nothing": 1}),
        Pattern().edge("a", "b", "nothing"),
        Pattern().node("a", object_id=10**6),
    ):
        with pytest.raises(NotFound):
            world.app.match(pattern)
    for options in ({"limit": 0}, {"limit": 10**6}, {"at": 10**6}):
        with pytest.raises(InvalidInput):
            world.app.match(Pattern().node("a"), **options)


def test_paths_that_reach_too_much_are_refused(world, monkeypatch):
    world.run([("edge", 0, n, 0) for n in range(NODES)])
    pattern = Pattern().node("a", object_id=world.nodes[0]).path("a", "b", hops=2)
    assert len(world.app.match(pattern).rows) == NODES - 1
    monkeypatch.setattr(limits, "MATCH_REACH_MAX", 3)
    with pytest.raises(LimitExceeded):
        world.app.match(pattern)


def test_matches_seek_edges_and_values(world):
    pattern = Pattern().node("a", where={"value": "a"}).edge("a", "b", "e0")
    pattern = (
        pattern.node("b", type_key="other", where={"value": "b"}).edge("c", "b").edge("a", "c")
    )
    with world.graphs.snapshot() as reader:
        plan = match._Plan(reader, APP, Pattern.parse(pattern), reader.newest_seq())
        steps = explain(world.graphs, *plan.statement([1], plan.start, 10))
        holders = explain(world.graphs, *plan.holders(plan.nodes["a"].conditions[0], 1))
    assert not any(step.startswith("SCAN") and "VIRTUAL" not in step for step in steps)
    for seek in (
        "s0 USING PRIMARY KEY (app_id=? AND src=? AND type_id=?",
        "s1 USING COVERING INDEX edge_now_dst (app_id=? AND dst_kind=? AND dst=?",
        "s2 USING COVERING INDEX edge_now_dst (app_id=? AND dst_kind=? AND dst=? AND type_id=? AND",
        "v EXISTS USING PRIMARY KEY (app_id=? AND kind=? AND target_kind=? AND target=? AND",
    ):
        assert any(seek in step for step in steps), (seek, steps)
    seek = "value_now_value (app_id=? AND kind=? AND type_id=? AND value>"
    assert any(seek in step for step in holders)


def explain(graphs, sql, params):
    with graphs.database.read() as snapshot:
        return [row[3] for row in snapshot.all(f"EXPLAIN QUERY PLAN {sql}", params)]
