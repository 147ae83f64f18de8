"""Many entities at once are what single reads give, in a number of statements that stays the
same.
"""

from __future__ import annotations

import threading

import pytest
from drawn_spaces import IDS, SCRIPTS, Traced, played, points
from hypothesis import given, settings
from space_costs import counted

from fourfold.errors import InvalidInput, NotFound
from fourfold.models.documents import HISTORIES, reader
from fourfold.models.documents.ancestry import chain, last_seq
from support.properties import examples


def patch(entity, field, value):
    patches = [{"op": "add", "path": f"/value/{field}", "value": value}]
    return {"op": "patch", "id": entity, "patches": patches}


@pytest.mark.parametrize("kind", sorted(HISTORIES))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS)
def test_read_many_equals_single_reads_at_every_seq(kind, script):
    asked = [*IDS, "urn:never"]
    with played(script, kind) as space:
        for name, seq in points(space):
            many = space.read_many(asked, name, seq)
            assert many == {entity: space.read(entity, name, seq) for entity in asked}
            assert list(many) == asked


def test_now_is_the_newest_state(space):
    space.set("urn:a", {"value": 1})
    space.delete("urn:a")
    space.set("urn:b", {"value": 2})
    states = space.read_many(["urn:a", "urn:b", "urn:c"])
    assert (states["urn:a"].deleted, states["urn:b"].document) == (True, {"value": 2})
    assert states["urn:c"] is None


def test_number_of_statements_does_not_grow_with_number_of_entities(space):
    def statements(count):
        ids = [f"urn:{number}" for number in range(count)]
        with space.view() as view:
            traced = Traced(view)
            links = chain(view, "c2", last_seq(view))
            states = reader.states(traced, links, ids)
            assert all(states[entity].document["value"] for entity in ids)
            return len(traced.asked)

    ids = [f"urn:{number}" for number in range(300)]
    space.transact([{"op": "set", "id": entity, "value": {"value": {"n": 1}}} for entity in ids])
    space.branches.create("c1")
    space.transact([patch(entity, "m", 2) for entity in ids[::2]], branch="c1")
    space.branches.create("c2", "c1")
    space.transact([patch(entity, "k", 3) for entity in ids[::3]], branch="c2")
    few = statements(12)
    assert few <= 9
    assert statements(300) == few


def test_patches_of_a_grandchild_start_from_what_it_inherited(space):
    space.set("urn:a", {"value": {"root": 1}})
    space.branches.create("child")
    space.transact([patch("urn:a", "child", 2)], branch="child")
    space.branches.create("grandchild", "child")
    space.transact([patch("urn:a", "grandchild", 3)], branch="grandchild")
    space.set("urn:a", {"value": "later"})
    space.branches.delete("child")
    [state] = space.read_many(["urn:a"], "grandchild").values()
    assert state.document == {"value": {"root": 1, "child": 2, "grandchild": 3}}
    assert space.read_many(["urn:a"], "child")["urn:a"].document == {
        "value": {"root": 1, "child": 2}
    }


def test_patch_before_set_in_same_commit_does_not_spoil_replay(space):
    space.set("urn:a", {"value": {"old": 1}})
    space.transact(
        [
            {
                "op": "patch",
                "id": "urn:a",
                "patches": [{"op": "remove", "path": "/value/old"}],
            },
            {"op": "set", "id": "urn:a", "value": {"value": {"new": 1}}},
            patch("urn:a", "more", 2),
        ]
    )
    assert space.read_many(["urn:a"]) == {"urn:a": space.read("urn:a")}


def test_asking_twice_or_for_nothing_is_fine(space):
    space.set("urn:a", {"value": 1})
    assert list(space.read_many(["urn:a", "urn:a"])) == ["urn:a"]
    assert space.read_many([]) == {}


def test_awkward_ids_are_found(space):
    ids = ['a"b', "a\\b", "é\n", "[1,2]", "1", "null", "\U0001f600"]
    space.transact([{"op": "set", "id": entity, "value": {"id": entity}} for entity in ids])
    assert {name: state.document["id"] for name, state in space.read_many(ids).items()} == {
        entity: entity for entity in ids
    }


def test_bad_questions_are_refused(space):
    with pytest.raises(InvalidInput):
        space.read_many([""])
    with pytest.raises(InvalidInput):
        space.read_many(["urn:a"], at=99)
    with pytest.raises(NotFound):
        space.read_many(["urn:a"], "nowhere")


# From memory


def test_what_is_in_memory_is_what_the_file_has(space):
    names = [f"e{number}" for number in range(20)]
    for number, name in enumerate(names):
        space.set(name, {"n": number})
        if number % 2:
            space.patch(name, [{"op": "add", "path": "/m", "value": [number]}])
    space.delete("e3")
    with counted() as cost:
        known = space.read_many([*names, "e0"])
    assert cost.statements == []
    assert known == space.read_many(names, at=space.seq())
    assert list(known) == names
    assert known["e3"].deleted


def test_one_that_is_not_in_memory_sends_all_to_file(space):
    space.set("a", {"n": 1})
    with counted() as cost:
        found = space.read_many(["a", "unknown"])
    assert cost.statements
    assert found["a"].document == {"n": 1}
    assert found["unknown"] is None


def test_what_was_read_from_memory_belongs_to_its_reader(space):
    space.set("a", {"list": [1]})
    space.read_many(["a"])["a"].document["list"].append(2)
    assert space.read_many(["a"])["a"].document == {"list": [1]}
    assert space.read("a").document == {"list": [1]}


def test_memory_knows_branches_apart(space):
    space.set("a", {"n": 1})
    space.branches.create("f")
    assert space.read_many(["a"], "f")["a"].document == {"n": 1}
    space.set("a", {"n": 2}, branch="f")
    assert space.read_many(["a"], "f")["a"].document == {"n": 2}
    assert space.read_many(["a"])["a"].document == {"n": 1}
    for ids in ([], ["a"]):
        with pytest.raises(NotFound):
            space.read_many(ids, "nowhere")


def test_read_many_is_consistent_while_others_write(space):
    """Both entities always change together, so no reader may see them apart."""
    names = ["a", "b"]

    def commit(number):
        space.transact([{"op": "set", "id": name, "value": {"n": number}} for name in names])

    def write():
        for number in range(1, 300):
            commit(number)

    commit(0)
    apart = []
    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        found = space.read_many(names)
        if found["a"].document != found["b"].document:
            apart.append(found)
    writer.join()
    assert apart == []
