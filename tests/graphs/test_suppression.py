"""Suppression: what is hidden, with what belongs to it, now and at any past number; and limits."""

from __future__ import annotations

import pytest
from graph_nodes import APP, open_graphs, with_notes
from hypothesis import given, settings
from hypothesis import strategies as st
from test_inserts import attr, parent

from fourfold.cli.main import main
from fourfold.models.graphs import Query
from fourfold.models.graphs.reader import Reader
from fourfold.store import open_store
from support.properties import examples

KINDS = ("parent", "attr", "edge", "rating")


def row(types, kind, owner=1, **pointers):
    return {"type_id": types[kind], "owner_identity": owner, **pointers}


def shown(graphs, **options):
    """The visible objects of each kind."""
    at = options.pop("at", None)
    return {
        kind: [each.object_id for each in graphs.current(Query(APP, kind, at=at), **options)]
        for kind in KINDS
    }


@pytest.fixture
def pair(graphs, types):
    """Two parents with an attribute each, edges between all of them, and ratings of them."""
    one, two = graphs.insert_many_parents(APP, [parent(types)] * 2)
    graphs.insert_many_attrs(APP, [attr(types, each) for each in (one, two)])
    ends = [{"dst_parent_id": two}, {"dst_attr_id": 2}, {"dst_attr_id": 1}]
    graphs.insert_many_edges(APP, [row(types, "edge", src_parent_id=one, **end) for end in ends])
    graphs.insert_edge(APP, row(types, "edge", src_parent_id=two, dst_parent_id=one))
    targets = [{"target_parent_id": 2}, {"target_attr_id": 2}, {"target_parent_id": 1}]
    graphs.insert_many_ratings(APP, [row(types, "rating", **target) for target in targets])
    return types


def test_rows_of_a_suppressed_parent_are_hidden_with_it(graphs, pair):
    before, everything = graphs.get_global_seq(), shown(graphs)
    rating = graphs.insert_rating(APP, row(pair, "suppress", target_parent_id=2, value_number=1))
    hidden = {"parent": [1], "attr": [1], "edge": [3], "rating": [3]}
    assert shown(graphs) == hidden
    assert shown(graphs, suppressed=True) == {**everything, "rating": [1, 2, 3, rating]}
    assert shown(graphs, at=before) == everything
    graphs.update(APP, "rating", rating, {"value_number": 0})
    assert shown(graphs) == {**everything, "rating": [1, 2, 3, rating]}
    assert shown(graphs, at=before + 1) == hidden


def test_rows_of_a_suppressed_attribute_are_hidden_with_it(graphs, pair):
    graphs.insert_rating(APP, row(pair, "suppress", target_attr_id=2))
    expected = {"parent": [1, 2], "attr": [1], "edge": [1, 3, 4], "rating": [1, 3]}
    assert shown(graphs) == expected


def test_only_the_owner_of_the_target_and_the_trusted_suppress(graphs, pair):
    everything = shown(graphs)
    # Its owner counts, and not the owner of what belongs to it.
    mine = graphs.insert_attr(APP, attr(pair, 2, owner_identity=5))
    graphs.insert_rating(APP, row(pair, "suppress", owner=5, target_parent_id=2))
    found = shown(graphs)
    assert (found["parent"], found["attr"]) == (everything["parent"], [1, 2, mine])
    assert shown(graphs, trusted=[5]) == {"parent": [1], "attr": [1], "edge": [3], "rating": [3]}


def test_edge_that_points_elsewhere_now_is_shown_again(graphs, pair):
    graphs.insert_rating(APP, row(pair, "suppress", target_parent_id=2))
    graphs.update(APP, "edge", 1, {"dst_parent_id": 1})
    assert sorted(shown(graphs)["edge"]) == [1, 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_pointer", [False, True])
def test_limit_counts_visible_rows(graphs, types, kind, by_pointer):
    parents = graphs.insert_many_parents(APP, [parent(types)] * 1300)
    graphs.insert_many_attrs(APP, [attr(types, each) for each in parents])
    edges = [row(types, "edge", src_parent_id=each, dst_parent_id=each) for each in parents]
    graphs.insert_many_edges(APP, edges)
    graphs.insert_many_ratings(
        APP, [row(types, "rating", target_parent_id=each) for each in parents]
    )
    ratings = [row(types, "suppress", target_parent_id=each) for each in parents[:1250]]
    graphs.insert_many_ratings(APP, ratings)
    pointer = {"attr": "parent_id", "edge": "src_parent_id", "rating": "target_parent_id"}.get(kind)
    asked = Query(APP, kind)
    if by_pointer:
        if pointer is None:
            return
        asked = Query(APP, kind, pointer=pointer, targets=parents)
    for limit, count in ((0, 0), (1, 1), (10, 10), (50, 50), (51, 50), (None, 50)):
        found = graphs.current(asked._replace(limit=limit))
        assert [each.object_id for each in found] == parents[1250:][:count]


def test_limit_reads_about_as_many_rows_as_it_shows(graphs, types, monkeypatch):
    graphs.insert_many_parents(APP, [parent(types)] * 5000)
    graphs.insert_rating(APP, row(types, "suppress", target_parent_id=1))
    read = []
    iterate = Reader.iterate

    def counted(self, question, **options):
        for each in iterate(self, question, **options):
            read.append(each)
            yield each

    monkeypatch.setattr(Reader, "iterate", counted)
    assert len(graphs.current_parents(APP, limit=10)) == 10
    assert len(read) < 100
    assert len(graphs.current_attrs(APP, limit=10)) == 0


def test_current_parents_and_attrs_take_a_limit(graphs, pair):
    assert [each.object_id for each in graphs.current_parents(APP, limit=1)] == [1]
    assert [each.object_id for each in graphs.current_attrs(APP, limit=1)] == [1]
    assert [each.object_id for each in graphs.current_attrs(APP, parent_ids=[2], limit=1)] == [2]
    assert graphs.current_attrs(APP, limit=1, suppressed=True)[0].object_id == 1


def test_query_of_the_command_line_counts_visible_rows(tmp_path, capsys):
    with open_store(tmp_path / "s") as store:
        graphs = store.graphs
        graphs.register_app("notes", "Notes")
        types = {kind: graphs.register_type(APP, kind, kind) for kind in KINDS}
        types["suppress"] = graphs.register_type(APP, "rating", "suppress")
        graphs.insert_many_parents(APP, [parent(types)] * 5)
        graphs.insert_rating(APP, row(types, "suppress", target_parent_id=1))
    for limit, more in (("3", True), ("4", False)):
        with pytest.raises(SystemExit):
            main(["app", "query", str(tmp_path / "s"), "notes", "--limit", limit])
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[1 : 1 + int(limit)]] == list("2345"[: int(limit)])
        assert ("There are more" in lines[-1]) is more


# The law: a naive look at everything says the same.

OWNER = st.sampled_from([1, 2])
PICK = st.integers(0, 10**6)
STEP = st.one_of(
    st.tuples(st.just("parent"), OWNER, PICK, PICK),
    st.tuples(st.just("attr"), OWNER, PICK, PICK),
    st.tuples(st.just("edge"), OWNER, PICK, PICK),
    st.tuples(st.just("rating"), OWNER, PICK, PICK),
    st.tuples(st.just("suppress"), OWNER, PICK, PICK),
    st.tuples(st.just("suppress"), OWNER, PICK, PICK),
    st.tuples(st.just("lift"), OWNER, PICK, PICK),
    st.tuples(st.just("move"), OWNER, PICK, PICK),
)


def play(graphs, types, steps):
    parents, attrs, edges, ratings = [], [], [], []

    def end(prefix, pick):
        if pick % 2 and attrs:
            return {f"{prefix}_attr_id": attrs[pick % len(attrs)]}
        return {f"{prefix}_parent_id": parents[pick % len(parents)]}

    for name, owner, one, two in steps:
        if name == "parent" or not parents:
            parents.append(graphs.insert_parent(APP, parent(types, owner_identity=owner)))
            continue
        source = parents[one % len(parents)]
        if name == "attr":
            attrs.append(graphs.insert_attr(APP, attr(types, source, owner_identity=owner)))
        elif name == "edge":
            edge = row(types, "edge", owner, src_parent_id=source, **end("dst", two))
            edges.append(graphs.insert_edge(APP, edge))
        elif name in {"rating", "suppress"}:
            made = graphs.insert_rating(APP, row(types, name, owner, **end("target", two)))
            ratings += [made] if name == "suppress" else []
        elif name == "lift" and ratings:
            change = {"value_number": float(two % 2)}
            graphs.update(APP, "rating", ratings[one % len(ratings)], change)
        elif name == "move" and edges:
            graphs.update(APP, "edge", edges[one % len(edges)], end("dst", two))


def naive(graphs, types, at, trusted):
    """What is visible, by looking at every row up to a number."""
    newest = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for each in graphs.select(Query(APP, kind, at=at)):
            newest[kind][each.object_id] = each
    owners = {
        (kind, number): each.owner_identity
        for kind in ("parent", "attr")
        for number, each in newest[kind].items()
    }
    hidden = set()
    for each in newest["rating"].values():
        if each.type_id == types["suppress"] and each.value_number != 0:
            by_attr = each.target_parent_id is None
            kind = "attr" if by_attr else "parent"
            target = (kind, each.target_attr_id if by_attr else each.target_parent_id)
            if each.owner_identity in {owners[target], *trusted}:
                hidden.add(target)
    for number, each in newest["attr"].items():
        if ("parent", each.parent_id) in hidden:
            hidden.add(("attr", number))

    def is_shown(kind, each):
        about = {(kind, each.object_id)}
        for name in ("parent_id", "src_parent_id", "dst_parent_id", "target_parent_id"):
            about.add(("parent", getattr(each, name, None)))
        for name in ("dst_attr_id", "target_attr_id"):
            about.add(("attr", getattr(each, name, None)))
        return not about & hidden

    return {
        kind: sorted(n for n, each in newest[kind].items() if is_shown(kind, each))
        for kind in KINDS
    }


@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(STEP, max_size=30), pick=PICK, limit=st.integers(0, 6))
def test_visible_rows_are_those_of_a_naive_look(tmp_path_factory, steps, pick, limit):
    graphs = open_graphs(tmp_path_factory.mktemp("s") / "backend.db")
    try:
        types = with_notes(graphs)
        play(graphs, types, steps)
        for at in {None, pick % (graphs.get_global_seq() + 1)}:
            for trusted in ((), (2,)):
                expected = naive(graphs, types, at, trusted)
                found = shown(graphs, at=at, trusted=trusted)
                assert {kind: sorted(ids) for kind, ids in found.items()} == expected
                for kind in KINDS:
                    asked = Query(APP, kind, at=at, limit=limit)
                    page = graphs.current(asked, trusted=trusted)
                    assert [each.object_id for each in page] == found[kind][:limit]
    finally:
        graphs.database.close()
