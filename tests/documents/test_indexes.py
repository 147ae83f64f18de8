"""Declared indexes: their life, their keys, unique values, and what carries them along."""

from __future__ import annotations

import itertools
import threading

import msgspec
import pytest
from space_machine import DID

import fourfold
from fourfold.errors import (
    AlreadyExists,
    InvalidInput,
    LimitExceeded,
    MergeConflicted,
    NotFound,
    UniqueViolation,
)
from fourfold.models.documents import bundle
from fourfold.models.documents.gc.policy import GcPolicy
from fourfold.models.documents.indexes import builder, declaration, keys

NUMBERS = [0, -0.0, 1, -3.5, 2**53, 2**53 + 1, float(2**53), 2**70, -(2**70), 10**400, -(10**400)]
VALUES = [
    None,
    False,
    True,
    *NUMBERS,
    "",
    "a",
    "a\0",
    "ab",
    "b" * 512,
    "b" * 600,
    "é",
    "\U0001f600",
]


def sort_key(value):
    """Return the key that orders values of all types; None for arrays, objects and nothing.

    null, then false, true, numbers by value, strings by code points.
    """
    kind = type(value)
    if value is None:
        return (0, 0)
    if kind is bool:
        return (1, value)
    if kind is int or kind is float:
        return (2, value)
    return (3, value) if kind is str else None


def entries(space):
    """Return the rows of all indexes, as (table, branch, values, id, from, to)."""
    with space.view() as view:
        live = view.all("SELECT branch, value, id, from_seq, NULL FROM index_live ORDER BY 1, 2, 3")
        past = view.all("SELECT branch, value, id, from_seq, to_seq FROM index_past ORDER BY 1, 4")
    return [(row[0], *keys.decode_key(row[1]), *row[2:]) for row in (*past, *live)]


@pytest.fixture
def orders(space):
    """Six orders: three are open, and one of them was."""
    for number in range(6):
        space.set(f"o{number}", {"status": "open" if number % 2 else "paid", "total": number * 10})
    space.set("o1", {"status": "paid", "total": 10})
    return space


def test_keys_sort_as_their_values():
    for one, other in itertools.permutations(VALUES, 2):
        first, second = keys.encode_part(one), keys.encode_part(other)
        assert (first < second) == (sort_key(one) < sort_key(other)), (one, other)
        assert (first == second) == (sort_key(one) == sort_key(other)), (one, other)


def test_key_gives_its_values_back():
    for value in VALUES:
        key = keys.encode_part(value)
        expected = value[:512] if isinstance(value, str) else value
        assert keys.decode_key(key + key) == [expected, expected]
        assert keys.is_cut(key) == (expected != value)


def test_long_strings_that_begin_alike_share_a_key():
    assert keys.encode_part("b" * 600) == keys.encode_part("b" * 601) != keys.encode_part("b" * 512)


def test_objects_and_arrays_have_no_key():
    assert [keys.encode_part(value) for value in ({}, [], {"a": 1}, [1])] == [None] * 4


def test_an_index_over_existing_documents_has_their_past(orders):
    assert orders.indexes.create("by_status", "/status").state == "ready"
    assert ("", "open", "o1", 2, 7) in entries(orders)
    assert orders.find({"status": "open"}, at=6).plan.index == "by_status"
    assert [match.id for match in orders.find({"status": "open"}, at=6)] == ["o1", "o3", "o5"]
    assert [match.id for match in orders.find({"status": "open"})] == ["o3", "o5"]
    assert orders.verify() == []


def test_rebuilt_entries_equal_the_maintained_ones(orders):
    orders.indexes.create("by_status", "/status")
    orders.indexes.create("by_both", ["/status", "/total"])
    orders.branches.create("work")
    orders.patch("o2", [{"op": "replace", "path": "/status", "value": "open"}], branch="work")
    orders.delete("o2", branch="work")
    orders.set("o3", {"total": 5})
    maintained = entries(orders)
    for name in ("by_status", "by_both"):
        orders.indexes.rebuild(name)
    assert sorted(map(str, entries(orders))) == sorted(map(str, maintained))


def test_an_index_of_now_has_no_past(orders):
    orders.indexes.create("now", "/status", history="now")
    orders.set("o3", {"status": "paid"})
    assert all(row[-1] is None for row in entries(orders))
    assert orders.explain({"status": "open"}).index == "now"
    assert orders.explain({"status": "open"}, at=3).access == "scan"
    orders.branches.create("work")
    assert orders.explain({"status": "open"}, branch="work").access == "scan"
    assert orders.verify() == []


def test_branches_share_the_entries_of_their_parent(orders):
    orders.indexes.create("by_status", "/status")
    before = len(entries(orders))
    orders.branches.create("work")
    orders.branches.create("deep", "work")
    assert len(entries(orders)) == before
    orders.set("o5", {"status": "lost"}, branch="work")
    for branch, ids in (("", ["o3", "o5"]), ("work", ["o3"]), ("deep", ["o3", "o5"])):
        assert [match.id for match in orders.find({"status": "open"}, branch=branch)] == ids
        assert orders.count({"status": "open"}, branch=branch) == len(ids)


def test_a_document_with_several_values_is_found_once(space):
    space.indexes.create("by_tag", "/tags/*")
    space.set("a", {"tags": ["x", "y", "y"]})
    space.set("b", {"tags": ["z", "y"]})
    space.set("c", {"tags": []})
    for condition in ({"$in": ["x", "y", "z"]}, {"$gte": "x"}):
        where = {"tags": {"$any": condition}}
        ids, after = [], None
        for _ in range(2):
            page = space.find(where, limit=1, after=after)
            assert page.plan.index == "by_tag"
            ids += [match.id for match in page]
            after = page.next
        assert (ids, after) == (["a", "b"], None)
        assert space.count(where) == 2
    assert [(facet.value, facet.count) for facet in space.facets("/tags/*")] == [
        *(("y", 2), ("x", 1), ("z", 1))
    ]


def test_a_composite_index_serves_its_first_path(space):
    space.indexes.create("by_both", ["/a", "/b"])
    space.set("x", {"a": 1})
    space.set("y", {"a": 1, "b": 2})
    space.set("z", {"a": 1, "b": []})
    page = space.find({"a": 1})
    assert page.plan.index == "by_both"
    assert sorted(match.id for match in page) == ["x", "y", "z"]
    assert space.count({"a": 1}) == 3
    assert [match.id for match in space.find({"a": 1}, order_by="b")] == ["y"]


def test_a_dropped_index_leaves_nothing(orders):
    orders.indexes.create("by_status", "/status")
    orders.indexes.drop("by_status")
    assert (len(orders.indexes), entries(orders)) == (0, [])
    with pytest.raises(NotFound):
        orders.indexes.get("by_status")
    assert orders.find({"status": "open"}).plan.access == "scan"


def test_names_are_used_once_until_dropped(orders):
    orders.indexes.create("one", "/status")
    with pytest.raises(AlreadyExists):
        orders.indexes.create("one", "/total")
    orders.indexes.drop("one")
    assert orders.indexes.create("one", "/total").paths == ("/total",)
    assert orders.find({"/total": 30}).items[0].id == "o3"


@pytest.mark.parametrize(
    ("name", "path", "options"),
    [
        ("", "/a", {}),
        ("1", "/a", {}),
        ("a", "a", {}),
        ("a", "", {}),
        ("a", [], {}),
        ("a", ["/a"] * 2, {}),
        ("a", ["/a", "/b", "/c", "/d", "/e"], {}),
        ("a", ["/a/*", "/b/*"], {}),
        ("a", "/a~2", {}),
        ("a", 5, {}),
        ("a", "/a", {"unique": 1}),
        ("a", "/a", {"history": "some"}),
        ("a", "/a", {"history": "now", "unique": True}),
    ],
)
def test_bad_declarations_are_refused(space, name, path, options):
    with pytest.raises(InvalidInput):
        space.indexes.create(name, path, **options)
    assert len(space.indexes) == 0


def test_the_number_of_indexes_is_limited(space, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.indexes.indexes.INDEXES_MAX", 2)
    space.indexes.create("a", "/a")
    space.indexes.create("b", "/b")
    with pytest.raises(LimitExceeded):
        space.indexes.create("c", "/c")


# Builds


@pytest.fixture
def slow(monkeypatch):
    """Nothing is built at once, and every step is one entity."""
    monkeypatch.setattr("fourfold.models.documents.indexes.indexes.BUILD_AT_ONCE_S", -1.0)
    monkeypatch.setattr(builder, "BUILD_STEP_ENTITIES", 1)
    monkeypatch.setattr(builder.IndexBuilder, "start", lambda _self: None)
    monkeypatch.setattr(builder.IndexBuilder, "run", run_nothing)


def run_nothing(_self, _timeout_s=None):
    return False


def test_commits_during_a_build_are_in_the_index(orders, slow):
    assert orders.indexes.create("by_status", "/status").state == "building"
    plan = orders.explain({"status": "open"})
    assert (plan.access, plan.building) == ("scan", ("by_status",))
    with pytest.raises(fourfold.errors.Refused, match="being built"):
        orders.find({"status": "open"}, scan=False)
    step = orders.indexes.builder._step
    for number in range(7):
        assert step()
        # Written before and after the builder has reached it, forth and back.
        orders.set("o0", {"status": f"new{number}"})
        orders.set(f"o{5 - number % 6}", {"status": "lost"})
        orders.set(f"o{5 - number % 6}", {"status": "open" if number % 2 else "paid"})
        orders.set(f"new{number}", {"status": "open"})
    while step():
        pass
    assert orders.indexes.get("by_status").state == "ready"
    assert orders.verify() == []
    for at in range(orders.seq() + 1):
        states = orders.read_many(orders.ids(at=at), at=at)
        expected = {id_ for id_, state in states.items() if state.document["status"] == "open"}
        page = orders.find({"status": "open"}, at=at, limit=100)
        assert page.plan.index == "by_status"
        assert {match.id for match in page} == expected


def test_commit_between_reading_and_storing_step_is_in_index(orders, slow, monkeypatch):
    orders.indexes.create("by_status", "/status")
    transact = orders.database.transact

    def commit_first(work, **options):
        monkeypatch.setattr(orders.database, "transact", transact)
        orders.set("o0", {"status": "between"})
        return transact(work, **options)

    monkeypatch.setattr(orders.database, "transact", commit_first)
    while orders.indexes.builder._step():
        pass
    assert [match.id for match in orders.find({"status": "between"}, scan=False)] == ["o0"]
    assert orders.verify() == []


def test_a_build_continues_after_a_reopen(root, orders, slow, history):
    orders.indexes.create("by_status", "/status")
    for _ in range(3):
        orders.indexes.builder._step()
    with orders.view() as view:
        assert view.all("SELECT state, id FROM index_build") == [("building", "o2")]
    store = orders.database
    store.close()
    with fourfold.open(root) as again:
        space = again.space(DID, history=history)
        while space.indexes.builder._step():
            pass
        assert space.indexes.get("by_status").state == "ready"
        assert space.verify() == []


def test_an_index_that_is_dropped_during_its_build_is_gone(orders, slow):
    orders.indexes.create("by_status", "/status")
    orders.indexes.builder._step()
    orders.indexes.drop("by_status")
    while orders.indexes.builder._step():
        pass
    assert entries(orders) == []
    with orders.view() as view:
        assert view.all("SELECT * FROM index_build") == []


def test_a_build_in_a_thread_ends(orders, monkeypatch):
    monkeypatch.setattr("fourfold.models.documents.indexes.indexes.BUILD_AT_ONCE_S", -1.0)
    orders.indexes.create("by_status", "/status")
    assert orders.indexes.wait("by_status").state == "ready"
    assert orders.verify() == []


def test_index_that_was_declared_in_transaction_is_built_after_it(orders):
    with orders.database.write():
        assert orders.indexes.create("by_status", "/status").state == "building"
        orders.set("o0", {"status": "open"})
        assert orders.find({"status": "open"}).plan.access == "scan"
    assert orders.indexes.wait("by_status").state == "ready"
    assert orders.count({"status": "open"}) == 3
    assert orders.verify() == []


def test_a_declaration_that_was_rolled_back_is_forgotten(orders):
    def declare_and_fail():
        with orders.database.write():
            orders.indexes.create("by_status", "/status")
            orders.set("o0", {"status": "open"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        declare_and_fail()
    orders.set("o0", {"status": "lost"})
    assert (len(orders.indexes), entries(orders)) == (0, [])


@pytest.mark.parametrize("end", ["close", "release"])
def test_closing_a_space_ends_the_thread_of_a_build(store, orders, monkeypatch, end):
    builder, begun = orders.indexes.builder, threading.Event()

    def step():
        begun.set()
        return not orders.database.pauses.pause()

    monkeypatch.setattr(builder, "_step", step)
    builder.start()
    assert begun.wait(30)
    store.close() if end == "close" else store.release(DID)
    assert not builder.is_running
    builder.start()
    assert not builder.is_running


# Unique values


def test_a_unique_index_refuses_a_value_that_another_entity_has(space):
    space.indexes.create("by_email", "/email", unique=True)
    space.set("a", {"email": "x"})
    before = space.seq()
    with pytest.raises(UniqueViolation) as caught:
        space.set("b", {"email": "x"})
    assert caught.value.details == {
        "index": "by_email",
        "entity": "b",
        "other": "a",
        "branch": "",
    }
    assert (space.seq(), space.read("b")) == (before, None)
    space.set("a", {"email": "x", "more": 1})
    space.set("b", {"email": None})
    space.set("c", {})
    space.set("d", {})
    space.set("a", {"email": "y"})
    assert space.set("b", {"email": "x"}).seq == space.seq()


def test_entities_may_exchange_unique_values_in_one_commit(space):
    space.indexes.create("by_n", "/n", unique=True)
    space.set("a", {"n": 1})
    space.set("b", {"n": 2})
    space.transact([{"op": "set", "id": "a", "value": {"n": 2}}, patch("b", 1.0)])
    with pytest.raises(UniqueViolation):
        space.transact([patch("c", 3), patch("d", 3.0)])
    assert space.ids() == ["a", "b"]


def patch(entity, value):
    patches = [{"op": "add", "path": "/n", "value": value}]
    return {"op": "patch", "id": entity, "patches": patches}


def test_unique_values_hold_along_branches(space):
    space.indexes.create("by_n", "/n", unique=True)
    space.set("a", {"n": 1})
    space.branches.create("work")
    with pytest.raises(UniqueViolation):
        space.set("b", {"n": 1}, branch="work")
    space.set("a", {"n": 2}, branch="work")
    # What the branch overwrote is free there, and what it uses is free elsewhere.
    space.set("b", {"n": 1}, branch="work")
    space.set("c", {"n": 2})
    with pytest.raises(UniqueViolation):
        space.branches.merge("work", "")
    space.set("c", {"n": 3})
    space.branches.merge("work", "")
    assert space["a"] == {"n": 2}
    assert space.verify() == []


def test_long_strings_are_unique_as_a_whole(space):
    space.indexes.create("by_text", "/text", unique=True)
    space.set("a", {"text": "x" * 600})
    space.set("b", {"text": "x" * 601})
    with pytest.raises(UniqueViolation):
        space.set("c", {"text": "x" * 601})
    assert [match.id for match in space.find({"text": "x" * 601})] == ["b"]
    assert space.count({"text": "x" * 600}) == 1


def test_composite_values_with_a_missing_part_are_not_unique(space):
    space.indexes.create("by_both", ["/a", "/b"], unique=True)
    space.set("a", {"a": 1})
    space.set("b", {"a": 1})
    space.set("c", {"a": 1, "b": 2})
    with pytest.raises(UniqueViolation):
        space.set("d", {"a": 1, "b": 2})


def test_repeated_values_that_exist_make_a_unique_index_fail(orders):
    info = orders.indexes.create("by_status", "/status", unique=True)
    assert info.state == "failed"
    assert "already has the value" in info.error
    orders.set("o7", {"status": "open"})
    assert orders.find({"status": "open"}).plan.index == "by_status"
    for number in range(8):
        orders.set(f"o{number}", {"status": number})
    assert orders.indexes.rebuild("by_status").state == "ready"
    with pytest.raises(UniqueViolation):
        orders.set("o8", {"status": 7})


# What carries indexes along


def test_exports_carry_declarations(store, orders, history):
    orders.indexes.create("by_status", "/status")
    orders.indexes.create("by_total", ["/total", "/status"], unique=True)
    lines = list(bundle.export(orders))
    copy = store.space("did:key:z6MkCopy", history=history)
    bundle.replay(copy, lines)
    bundle.replay(copy, lines)
    assert copy.indexes.list() == orders.indexes.list()
    assert entries(copy) == entries(orders)
    other = store.space("did:key:z6MkOther", history=history)
    other.indexes.create("by_status", "/total")
    with pytest.raises(AlreadyExists):
        bundle.replay(other, lines)


def test_an_import_does_not_enforce_what_was_accepted_before(store, orders, history):
    orders.set("dup", {"total": 10})
    lines = list(bundle.export(orders))
    copy = store.space("did:key:z6MkCopy", history=history)
    copy.indexes.create("by_total", "/total", unique=True)
    bundle.replay(copy, lines)
    assert copy.count({"total": 10}) == 2


def test_carry_over_brings_indexes(store, orders, history):
    orders.indexes.create("by_status", "/status")
    other = store.space(
        "did:key:z6MkOther", history="facts" if history == "revisions" else "revisions"
    )
    bundle.carry_over(orders, other)
    assert other.indexes.list() == orders.indexes.list()
    assert entries(other) == entries(orders)


def test_gc_trims_what_no_reader_can_see(orders):
    orders.indexes.create("by_status", "/status")
    orders.branches.create("work", at=6)
    for number in range(5):
        orders.set("o3", {"status": f"s{number}"})
    orders.gc(GcPolicy(keep_seqs=2))
    past = [row for row in entries(orders) if row[-1] is not None]
    # The fork at seq 6 still shows o1 and o3 as open; all else that ended is below the horizon.
    assert ("", "open", "o1", 2, 7) in past
    assert len(past) == 3
    assert [match.id for match in orders.find({"status": "open"}, branch="work")] == [
        *("o1", "o3", "o5")
    ]
    assert orders.verify() == []
    maintained = entries(orders)
    orders.indexes.rebuild("by_status")
    assert orders.verify() == []
    assert {row[:3] for row in entries(orders)} == {row[:3] for row in maintained}


def test_merges_write_the_index_of_their_target(orders):
    orders.indexes.create("by_status", "/status")
    orders.branches.create("work")
    orders.set("o3", {"status": "lost"}, branch="work")
    orders.branches.merge("work", "")
    assert [match.id for match in orders.find({"status": "lost"})] == ["o3"]
    orders.set("o3", {"status": "here"})
    orders.set("o3", {"status": "there"}, branch="work")
    with pytest.raises(MergeConflicted):
        orders.branches.merge("work", "")
    assert orders.verify() == []


def test_typed_find_returns_instances_of_one_type(space):
    class Order(msgspec.Struct):
        status: str

    orders = space.typed(Order, prefix="order/")
    for number in range(3):
        orders.set(f"order/{number}", Order("open"))
    space.set("note", {"status": "open", "other": 1})
    space.indexes.create("by_status", "/status")
    page = orders.find({"status": "open"})
    assert [(match.id, match.document) for match in page] == [
        (f"order/{number}", Order("open")) for number in range(3)
    ]
    assert (page.plan.index, page.next, len(page)) == ("by_status", None, 3)
    first = orders.find({"status": "open"}, limit=2)
    assert len(first) == 1
    assert len(orders.find({"status": "open"}, limit=2, after=first.next)) == 2


# Verification


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM index_live WHERE id = 'o3'",
        "DELETE FROM index_past",
        "UPDATE index_live SET from_seq = from_seq + 1 WHERE id = 'o3'",
        "UPDATE index_past SET to_seq = to_seq + 1",
        "UPDATE index_live SET value = x'0500' WHERE id = 'o3'",
        "INSERT INTO index_live VALUES (1, '', x'05610001', 'o3', 4)",
        "INSERT INTO index_past VALUES (1, '', x'05610001', 'never', 4, 2)",
    ],
)
def test_verify_reports_damaged_entries(orders, damage):
    orders.indexes.create("by_status", "/status")
    assert orders.verify() == []
    with orders.database.write() as txn:
        txn.execute(damage)
    problems = orders.verify()
    assert problems
    assert all("by_status" in str(problem) for problem in problems)
    orders.indexes.rebuild("by_status")
    assert orders.verify() == []


def test_a_space_without_indexes_asks_nothing_about_them(space, monkeypatch):
    space.set("a", {"n": 1})
    monkeypatch.setattr(declaration, "load", None)
    for number in range(3):
        space.set("a", {"n": number})
