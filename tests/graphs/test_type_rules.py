"""Rules of types: at inserts and updates, for rows that arrive by sync, and with upgrades."""

from __future__ import annotations

import pytest
from graph_nodes import APP, SHARED, Node, open_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold.errors import InvalidInput, NotFound, RuleBroken
from fourfold.kernel import Transaction
from fourfold.models.graphs import Query, rules
from fourfold.models.graphs import graphs as graphs_module
from support.properties import examples


class People:
    """An app of persons, companies, names and edges between them."""

    def __init__(self, app):
        self.app = app
        self.person = app.register_type("parent", "person")
        self.company = app.register_type("parent", "company")
        self.name = app.register_type("attr", "name")
        self.works = app.register_type("edge", "works at")
        self.stars = app.register_type("rating", "stars")

    def parent(self, kind, **options):
        row = {"type_id": getattr(self, kind), "owner_identity": 1}
        return self.app.insert("parent", [row], **options)[0]

    def attr(self, parent, value="a", **options):
        key = "value_text" if isinstance(value, str) else "value_number"
        row = {"type_id": self.name, "owner_identity": 1, "parent_id": parent, key: value}
        return self.app.insert("attr", [row], **options)[0]

    def edge(self, src, dst):
        ends = {"src_parent_id": src, "dst_parent_id": dst}
        return self.app.insert("edge", [{"type_id": self.works, "owner_identity": 1, **ends}])[0]


@pytest.fixture
def people(graphs):
    return People(graphs.create("people"))


def test_an_edge_joins_the_types_of_its_rule(people):
    app = people.app
    ann, bob, shop = (people.parent(kind) for kind in ("person", "person", "company"))
    app.set_rule("edge", "works at", {"on": ["person"], "to": ["company"]})
    edge = people.edge(ann, shop)
    before = app.position()
    for src, dst in ((ann, bob), (shop, shop), (shop, ann)):
        with pytest.raises(RuleBroken, match="must"):
            people.edge(src, dst)
    name = people.attr(bob)
    with pytest.raises(RuleBroken, match="must end at 'company'"):
        app.insert(
            "edge",
            [
                {
                    "type_id": people.works,
                    "owner_identity": 1,
                    "src_parent_id": ann,
                    "dst_attr_id": name,
                }
            ],
        )
    with pytest.raises(RuleBroken, match="must end at 'company'"):
        app.update("edge", edge, {"dst_parent_id": bob})
    assert (app.position(), len(app.objects("edge"))) == (before + 1, 1)


def test_cardinality_bounds_edges_from_and_to_a_parent(people):
    app = people.app
    persons = [people.parent("person") for _ in range(3)]
    shops = [people.parent("company") for _ in range(2)]
    app.set_rule("edge", "works at", {"most": 1, "most_in": 2})
    first = people.edge(persons[0], shops[0])
    with pytest.raises(RuleBroken, match="1 times"):
        people.edge(persons[0], shops[1])
    people.edge(persons[1], shops[0])
    with pytest.raises(RuleBroken, match="2 times"):
        people.edge(persons[2], shops[0])
    app.update("edge", first, {"dst_parent_id": shops[1]})
    people.edge(persons[2], shops[0])


def test_values_are_of_their_kind_and_unique(people):
    app = people.app
    ann, bob = people.parent("person"), people.parent("person")
    app.set_rule("attr", "name", {"value": "text", "unique": True})
    long = "x" * 130
    first = people.attr(ann, long)
    for value, match in ((7.0, "value of text"), (long, "unique")):
        with pytest.raises(RuleBroken, match=match):
            people.attr(bob, value)
    other = people.attr(bob, long[:-1] + "y")
    with pytest.raises(RuleBroken, match="unique"):
        app.update("attr", other, {"value_text": long})
    app.update("attr", first, {"value_text": "Ann"})
    app.update("attr", other, {"value_text": long})
    with pytest.raises(RuleBroken, match="unique"):
        app.insert(
            "attr",
            [
                {"type_id": people.name, "owner_identity": 1, "parent_id": ann, "value_text": "c"}
                for _ in range(20)
            ],
        )


def test_required_attributes_are_checked_before_the_commit(people):
    app = people.app
    people.parent("company")
    app.set_rule("attr", "name", {"on": ["person"], "required": True, "most": 1})
    people.parent("company")
    with pytest.raises(RuleBroken, match="must have 'name'"):
        people.parent("person")
    with app.graphs.transaction() as txn:
        ann = people.parent("person", txn=txn)
        people.attr(ann, txn=txn)
    with pytest.raises(RuleBroken, match="1 times"):
        people.attr(ann, "b")
    with pytest.raises(RuleBroken, match="must belong to 'person'"):
        people.attr(people.parent("company"))
    operations = [
        {"op": "parent_create", "type_key": "person"},
        {
            "op": "attr_create",
            "type_key": "name",
            "payload": {"parent_id": {"$op": 0}, "value": "Bob"},
        },
    ]
    app.apply(operations, owner=1, trace_id="t")
    with pytest.raises(RuleBroken):
        app.apply(operations[:1], owner=1, trace_id="t")
    assert len(app.objects("parent", types=[people.person])) == 2


def test_an_operation_that_breaks_a_rule_is_not_tried_again(people):
    app = people.app
    ann = people.parent("person")
    app.set_rule("attr", "name", {"value": "text", "unique": True})
    before = app.position()
    operation = {"op": "attr_create", "type_key": "name"}
    operations = [{**operation, "payload": {"parent_id": ann, "value": value}} for value in "abb"]
    with pytest.raises(RuleBroken, match=r"attr [23] in app"):
        app.apply(operations, owner=1, trace_id="t")
    assert app.position() == before
    assert not app.objects("attr")


def test_a_rule_that_objects_break_is_refused(people):
    app = people.app
    people.attr(people.parent("person"))
    people.attr(people.parent("company"))
    for rule in (
        {"on": ["person"]},
        {"value": "number"},
        {"value": "text", "unique": True},
    ):
        with pytest.raises(RuleBroken):
            app.set_rule("attr", "name", rule)
    assert all(row.rule is None for row in app.describe().types)
    people.parent("person")
    with pytest.raises(RuleBroken):
        app.set_rule("attr", "name", {"required": True})


def test_a_new_rule_is_checked_before_the_transaction(people, monkeypatch):
    app = people.app
    monkeypatch.setattr(rules, "CHECK_ROWS", 2)
    for number in range(5):
        people.attr(people.parent("person"), f"{number}")
    bounds = []
    check = rules.TypeRules.check

    def spy(self, txn, kind, first, last):
        bounds.append((isinstance(txn, Transaction), first, last))
        check(self, txn, kind, first, last)

    monkeypatch.setattr(rules.TypeRules, "check", spy)
    app.set_rule("attr", "name", {"value": "text"})
    assert bounds == [(False, 1, 2), (False, 3, 4), (False, 5, 5), (True, 6, rules._LAST_ID)]
    people.attr(people.parent("person"), "2")
    with pytest.raises(RuleBroken):
        app.set_rule("attr", "name", {"value": "text", "unique": True})
    assert not bounds[-1][0]


def test_rows_written_during_the_check_of_a_rule_count(people, monkeypatch):
    app = people.app
    ann = people.parent("person")
    people.attr(ann, "a")

    def late(*arguments):
        checked = rules.check_existing(*arguments)
        people.attr(ann, "a")
        return checked

    monkeypatch.setattr(graphs_module, "check_existing", late)
    with pytest.raises(RuleBroken):
        app.set_rule("attr", "name", {"value": "text", "unique": True})
    assert app.describe().types[2].rule is None


def test_rules_are_described_replaced_and_removed(people, path):
    app = people.app
    rule = {"on": ["person"], "to": ["company"], "most": 2}
    app.set_rule("edge", "works at", rule)
    rules = {row.type_key: row.rule for row in app.describe().types}
    others = dict.fromkeys(("person", "company", "name", "stars"))
    assert rules == {**others, "works at": rule}
    app.graphs.database.close()
    graphs = open_graphs(path)
    try:
        again = People(graphs.open("people"))
        ann = again.parent("person")
        with pytest.raises(RuleBroken):
            again.edge(ann, ann)
        again.app.set_rule("edge", "works at", None)
        again.edge(ann, ann)
        assert again.app.describe().types[3].rule is None
        assert graphs.verify() == []
    finally:
        graphs.database.close()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("parent", {"on": ["person"]}),
        ("edge", {"value": "text"}),
        ("edge", {"on": []}),
        ("edge", {"most": 0}),
        ("edge", {"most": True}),
        ("edge", {"more": 1}),
        ("edge", "x"),
        ("attr", {"to": ["person"]}),
        ("attr", {"unique": True}),
        ("attr", {"value": "json", "unique": True}),
        ("rating", {"value": "blob"}),
        ("rating", {"required": True}),
    ],
)
def test_bad_rules_are_refused(people, kind, rule):
    keys = {"parent": "person", "edge": "works at", "attr": "name", "rating": "stars"}
    with pytest.raises(InvalidInput):
        people.app.set_rule(kind, keys[kind], rule)


def test_rules_name_known_types(people):
    people.edge(people.parent("person"), people.parent("company"))
    with pytest.raises(NotFound):
        people.app.set_rule("edge", "works at", {"on": ["nothing"]})
    with pytest.raises(NotFound):
        people.app.set_rule("edge", "nothing", {"most": 1})


def test_rules_are_set_with_an_upgrade(people):
    graphs, app_id = people.app.graphs, people.app.app_id
    people.attr(people.parent("company"))
    with pytest.raises(RuleBroken):
        graphs.upgrade_app(app_id, [], rules=[("attr", "name", {"on": ["person"]})])
    graphs.upgrade_app(app_id, [], rules=[("attr", "name", {"on": ["company"]})])
    with pytest.raises(RuleBroken):
        people.attr(people.parent("person"))


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=12),
    most=st.integers(1, 2),
)
def test_cardinality_and_uniqueness_equal_a_naive_model(tmp_path_factory, rows, most):
    graphs = open_graphs(tmp_path_factory.mktemp("rules") / "backend.db")
    try:
        people = People(graphs.create("people"))
        parents = [people.parent("person") for _ in range(3)]
        people.app.set_rule("attr", "name", {"value": "text", "unique": True, "most": most})
        model = []
        for place, value in rows:
            fits = value not in {v for _, v in model} and sum(p == place for p, _ in model) < most
            if fits:
                people.attr(parents[place], value)
                model.append((place, value))
            else:
                with pytest.raises(RuleBroken):
                    people.attr(parents[place], value)
    finally:
        graphs.database.close()


# Sync


@pytest.fixture
def pair(tmp_path):
    two = [Node(tmp_path / f"{name}.db", seed + 1) for seed, name in enumerate("ab")]
    two[0].meet(two[1])
    two[1].meet(two[0])
    yield two
    for node in two:
        node.graphs.database.close()


def test_rows_of_peers_that_break_rules_wait(pair):
    ann, bob = pair
    bob.graphs.set_rule(APP, "attr", "note attr", {"value": "text"})
    of = {"owner_identity": ann.me, "sync_flags": SHARED}
    note = ann.graphs.insert_parent(APP, {"type_id": ann.types["parent"], **of})
    body = {"type_id": ann.types["attr"], "parent_id": note, **of}
    bad = ann.graphs.insert_attr(APP, {**body, "value_number": 7.0})
    rating = {"type_id": ann.types["rating"], "target_attr_id": bad, **of, "value_number": 1.0}
    ann.graphs.insert_rating(APP, rating)
    ann.graphs.insert_attr(APP, {**body, "value_text": "good"})
    assert bob.pull_all(ann)
    assert [row.value_text for row in bob.graphs.current_attrs(APP)] == ["good"]
    with bob.graphs.database.read() as snapshot:
        reasons = {row[0] for row in snapshot.all("SELECT reason FROM sync_parked")}
    assert reasons == {"rule: 'note attr' must have a value of text", "missing"}
    # The log of the author goes on, and the rows are applied once the rule allows them.
    bob.graphs.set_rule(APP, "attr", "note attr", {"on": ["note parent"]})
    assert {row.value_number for row in bob.graphs.current_attrs(APP)} == {7.0, None}
    assert len(bob.graphs.current(query_of("rating"))) == 1
    assert bob.graphs.verify() == []


def query_of(kind):
    return Query(APP, kind)


def test_ends_of_rows_of_peers_are_checked(pair):
    ann, bob = pair
    for node in pair:
        node.other = node.graphs.register_type(APP, "parent", "other")
    rule = {"on": ["note parent"], "to": ["other"]}
    bob.graphs.set_rule(APP, "edge", "note edge", rule)
    of = {"owner_identity": ann.me, "sync_flags": SHARED}
    with ann.graphs.transaction() as txn:
        first = ann.graphs.insert_parent(APP, {"type_id": ann.types["parent"], **of}, txn=txn)
        second = ann.graphs.insert_parent(APP, {"type_id": ann.other, **of}, txn=txn)
        edge = {"type_id": ann.types["edge"], **of}
        for src, dst in ((first, second), (second, first)):
            ends = {"src_parent_id": src, "dst_parent_id": dst}
            ann.graphs.insert_edge(APP, {**edge, **ends}, txn=txn)
    bob.pull_all(ann)
    assert len(bob.graphs.current(query_of("edge"))) == 1
    ends = {"src_parent_id": second, "dst_parent_id": second}
    ann.graphs.insert_edge(APP, {**edge, **ends})
    bob.pull_all(ann)
    assert len(bob.graphs.current(query_of("edge"))) == 1
    bob.graphs.set_rule(APP, "edge", "note edge", None)
    assert len(bob.graphs.current(query_of("edge"))) == 3
