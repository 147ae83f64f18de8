"""Walks along edges, compared with a naive model, and the tables that they read."""

from __future__ import annotations

from collections import deque

import pytest
from graph_nodes import APP, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.graphs import intervals as derived_intervals
from fourfold.models.graphs.traversal import adjacency_statements
from support.properties import examples

NODES = 6
EDGE_TYPES = 2
numbers = st.integers(0, NODES - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("edge"), numbers, numbers, st.integers(0, EDGE_TYPES - 1)),
        st.tuples(st.just("move"), st.integers(0, 30), numbers),
        st.tuples(st.just("suppress"), numbers, st.integers(0, 1)),
        st.tuples(st.just("same seq"), st.integers(0, 30), numbers, numbers),
    ),
    max_size=14,
)


class Model:
    """Edges and suppressed parents of every seq, as plain lists."""

    def __init__(self):
        self.edges = []
        self.hidden = set()
        self.past = {}

    def remember(self, seq):
        self.past[seq] = ([tuple(edge) for edge in self.edges], set(self.hidden))

    def next_to(self, node, direction, types, seq):
        edges, hidden = self.past[seq]
        for src, dst, kind in edges:
            if types is None or kind in types:
                if direction in {"out", "both"} and src == node and dst not in hidden:
                    yield dst
                if direction in {"in", "both"} and dst == node and src not in hidden:
                    yield src

    def distances(self, start, direction, types, seq):
        if start in self.past[seq][1]:
            return {}
        distances, queue = {start: 0}, deque([start])
        while queue:
            node = queue.popleft()
            for other in self.next_to(node, direction, types, seq):
                if other not in distances:
                    distances[other] = distances[node] + 1
                    queue.append(other)
        return distances


class World:
    """A database and its model, changed together."""

    def __init__(self, path):
        self.graphs = open_graphs(path)
        self.types = with_notes(self.graphs)
        self.kinds = [self.graphs.register_type(APP, "edge", f"e{i}") for i in range(EDGE_TYPES)]
        self.app = self.graphs.open("notes")
        row = {"type_id": self.types["parent"], "owner_identity": 1}
        self.nodes = self.app.insert("parent", [row] * NODES)
        self.ids, self.ratings, self.model = [], {}, Model()
        self.model.remember(self.app.position())

    def run(self, steps):
        for name, *values in steps:
            getattr(self, name.replace(" ", "_"))(*values)
            self.model.remember(self.app.position())

    def edge(self, src, dst, kind):
        row = {
            "src_parent_id": self.nodes[src],
            "dst_parent_id": self.nodes[dst],
            "type_id": self.kinds[kind],
            "owner_identity": 1,
        }
        self.ids += self.app.insert("edge", [row])
        self.model.edges.append([self.nodes[src], self.nodes[dst], self.kinds[kind]])

    def move(self, edge, dst):
        if self.ids:
            at = edge % len(self.ids)
            self.app.update("edge", self.ids[at], {"dst_parent_id": self.nodes[dst]})
            self.model.edges[at][1] = self.nodes[dst]

    def same_seq(self, edge, first, second):
        if self.ids:
            at = edge % len(self.ids)
            with self.graphs.transaction() as txn:
                for dst in (first, second):
                    changes = {"dst_parent_id": self.nodes[dst]}
                    self.app.update("edge", self.ids[at], changes, txn=txn)
            self.model.edges[at][1] = self.nodes[second]

    def suppress(self, node, value):
        node = self.nodes[node]
        if node in self.ratings:
            self.app.update("rating", self.ratings[node], {"value_number": value})
        else:
            row = {"target_parent_id": node, "type_id": self.types["suppress"]}
            row |= {"owner_identity": 1, "value_number": value}
            [self.ratings[node]] = self.app.insert("rating", [row])
        (self.model.hidden.add if value else self.model.hidden.discard)(node)


def assert_equal_to_model(world, direction, types, seq):
    app, model = world.app, world.model
    options = {"types": types, "direction": direction, "at": seq}
    for start in world.nodes:
        distances = model.distances(start, direction, types, seq)
        result = app.traverse(start, depth=NODES, **options)
        reached = {row.object_id: row.distance for row in result.objects}
        assert result.complete
        assert {start: 0, **reached} == (distances or {start: 0})
        assert [row.distance for row in result.objects] == sorted(reached.values())
        near = [] if not distances else list(model.next_to(start, direction, types, seq))
        assert app.count(start, **options) == len(near)
        if len(reached) > 1:
            first = app.traverse(start, depth=NODES, limit=1, **options)
            assert (first.objects, first.complete) == (result.objects[:1], False)
        for end in world.nodes:
            path = app.path(start, end, **options)
            assert (path is None) == (end not in distances)
            if path is not None:
                assert len(path.edges) == distances[end]
                assert (path.objects[0], path.objects[-1]) == (start, end)
                for here, there in zip(path.objects, path.objects[1:], strict=False):
                    assert there in model.next_to(here, direction, types, seq)
            if direction == "out":
                exists = app.exists(start, end, types=types, at=seq)
                hidden = model.past[seq][1]
                assert exists == (start not in hidden and end in near)


@settings(max_examples=examples(60), deadline=None)
@given(steps=steps, data=st.data())
def test_walks_equal_a_naive_model_at_every_seq(tmp_path_factory, steps, data):
    world = World(tmp_path_factory.mktemp("walks") / "backend.db")
    try:
        world.run(steps)
        seq = data.draw(st.sampled_from(sorted(world.model.past)))
        types = data.draw(st.sampled_from([None, world.kinds[:1], world.kinds]))
        direction = data.draw(st.sampled_from(["out", "in", "both"]))
        assert_equal_to_model(world, direction, types, seq)
        assert world.graphs.verify() == []
        before = intervals(world.graphs)
        with world.graphs.transaction() as handle:
            derived_intervals.rebuild(handle.txn)
        assert intervals(world.graphs) == before
    finally:
        world.graphs.database.close()


def intervals(graphs):
    with graphs.database.read() as snapshot:
        return [snapshot.all(f"SELECT * FROM {name}") for name in ("edge_now", "edge_past")]


@pytest.fixture
def world(path):
    world = World(path)
    yield world
    world.graphs.database.close()


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_walks_equal_a_naive_model_around_suppressed_parents(world, direction):
    edges = [("edge", 0, 1, 0), ("edge", 1, 2, 0), ("edge", 2, 3, 0), ("edge", 0, 4, 1)]
    world.run([*edges, ("suppress", 1, 1), ("move", 3, 2), ("suppress", 1, 0)])
    for seq in world.model.past:
        assert_equal_to_model(world, direction, None, seq)


def test_an_edge_that_returns_within_a_seq_never_left(world):
    world.run([("edge", 0, 1, 0)])
    before = intervals(world.graphs)
    world.run([("same seq", 0, 2, 1)])
    assert intervals(world.graphs) == before
    assert world.graphs.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM edge_now",
        "UPDATE edge_past SET from_seq = from_seq + 1",
        "UPDATE edge_now SET app_id = 77",
    ],
)
def test_verify_reports_wrong_intervals(world, damage):
    world.run([("edge", 0, 1, 0), ("edge", 1, 2, 0), ("move", 0, 3)])
    with world.graphs.transaction() as handle:
        handle.txn.execute(damage)
    assert any("edge_now" in problem.message for problem in world.graphs.verify())


def test_versions_with_one_destination_add_no_interval(world):
    world.run([("edge", 0, 1, 0)])
    before = intervals(world.graphs)
    for flags in (0, 0, 0):
        world.app.update("edge", world.ids[0], {"sync_flags": flags})
    assert intervals(world.graphs) == before


def test_a_rolled_back_edge_leaves_no_interval(world):
    def work(_handle):
        world.edge(0, 1, 0)
        raise KeyError

    with pytest.raises(KeyError):
        world.graphs.with_transaction(work)
    assert intervals(world.graphs) == [[], []]


def test_walks_refuse_bad_input(world):
    start = world.nodes[0]
    for call in (
        lambda: world.app.traverse(start, depth=0),
        lambda: world.app.traverse(start, limit=10_001),
        lambda: world.app.traverse(start, direction="up"),
        lambda: world.app.path(start, start, direction="up"),
        lambda: world.app.count(start, at=10**6),
        lambda: world.app.traverse(start, types="12"),
    ):
        with pytest.raises(InvalidInput):
            call()
    with pytest.raises(NotFound):
        world.app.path(start, 10**6)


@pytest.mark.parametrize(
    "name", ["out_now", "in_now", "out_past", "in_past", "exists_now", "exists_past"]
)
def test_walks_seek_the_edges_of_an_object(world, name):
    sql = "EXPLAIN QUERY PLAN " + getattr(adjacency_statements(APP), name)
    with world.graphs.database.read() as snapshot:
        plan = [row[3] for row in snapshot.all(sql, (None,) * (4 if "exists" in name else 3))]
    [step] = [step for step in plan if " e " in step]
    end = "src=?" if name in {"out_now", "out_past", "exists_now"} else "dst=?"
    assert step.startswith("SEARCH"), plan
    assert end in step, plan
    assert "to_seq>?" in step or name.endswith("now"), plan
