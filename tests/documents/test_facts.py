"""Claims about the log of facts: identity, causality, and exact texts."""

from __future__ import annotations

import json

import pytest
from drawn_documents import DOCUMENTS, LEAVES, same
from hypothesis import given, settings
from hypothesis import strategies as st
from lived_in_space import add, lived_in

import fourfold
from fourfold import limits
from fourfold.content import Reference, refer
from fourfold.errors import ContentError, FourfoldError, InvalidInput
from fourfold.models.documents import HISTORIES
from fourfold.models.documents.encoding import trusted
from support.properties import examples

DID = "did:key:z6MkTests"
FACTS = HISTORIES["facts"]
ENTITY = "urn:entity:abc123"
EMPTY = "ba4jcaelsnoi3ncleo4w7wcuke42kbu7xvrk3jazrd76j2ufdwklk3m44"
SET = "ba4jcbqntvjiqluhdwq5om3sbxh62cifdp5s66s7uupecl3w4qabnqwlx"
DELETE = "ba4jca3yi2aft53ppgugs4hmh7vzwt6j7tamixszp73b4lmyx674vz2am"


@pytest.fixture
def facts(store):
    return store.space(DID, history="facts")


def rows(space, sql, params=()):
    with space.view() as view:
        return view.all(sql, params)


def said(space, entity, branch=""):
    """The facts about an entity in the order in which a branch itself said them."""
    return rows(
        space,
        "SELECT f.hash, f.parent, f.fact_type, f.value_ref FROM occurrence AS o"
        " JOIN fact AS f ON f.hash = o.fact_hash"
        " WHERE o.branch = ? AND o.id = ? ORDER BY o.seq, o.op_index",
        (branch, entity),
    )


# Identity and causality


def test_stored_facts_have_the_hashes_of_the_original_implementation(facts):
    facts.set(ENTITY, {"value": {"n": 1}})
    facts.delete(ENTITY)
    assert said(facts, ENTITY) == [
        (SET, None, "set", str(refer({"value": {"n": 1}}))),
        (DELETE, SET, "delete", "__empty__"),
    ]
    # The parent that is stored as NULL is hashed as the reference to the bare entity.
    content = {"type": "set", "id": ENTITY, "value": {"value": {"n": 1}}}
    assert str(refer(content | {"parent": Reference.parse(EMPTY)})) == SET
    assert str(refer(content | {"parent": EMPTY})) != SET


def test_first_fact_of_entity_may_be_patch_or_delete(facts):
    patches = add("/value", 1)
    facts.patch("p", patches)
    facts.delete("d")
    [(patched, patched_parent, _, value)] = said(facts, "p")
    [(deleted, deleted_parent, _, _)] = said(facts, "d")
    assert patched_parent is deleted_parent is None
    assert value == str(refer(patches))
    whole = {"type": "patch", "id": "p", "ops": patches, "parent": refer({"id": "p"})}
    assert patched == str(refer(whole))
    assert deleted == str(refer({"type": "delete", "id": "d", "parent": refer({"id": "d"})}))
    assert facts.read("p").document == {"value": 1}
    assert facts.read("d").deleted


def test_operations_on_one_entity_in_one_commit_follow_each_other(facts):
    facts.transact(
        [
            {"op": "set", "id": "a", "value": {"n": 1}},
            {"op": "set", "id": "b", "value": {"n": 1}},
            {"op": "patch", "id": "a", "patches": add("/m", 2)},
            {"op": "delete", "id": "a"},
            {"op": "patch", "id": "a", "patches": add("/k", 3)},
        ]
    )
    chain = said(facts, "a")
    assert [fact_type for _, _, fact_type, _ in chain] == ["set", "patch", "delete", "patch"]
    assert [parent for _, parent, _, _ in chain] == [None, *(hash_ for hash_, *_ in chain[:-1])]
    assert facts.read("a").document == {"k": 3}
    assert rows(facts, "SELECT fact_hash FROM head WHERE id = 'a'") == [(chain[-1][0],)]
    assert [revision.op_index for revision in facts.history("a")] == [0, 2, 3, 4]
    assert facts.verify() == []


def test_child_follows_fact_that_it_inherits_and_not_later_one(facts):
    facts.set("a", {"n": 1})
    facts.branches.create("f")
    facts.set("a", {"n": 2})
    facts.branches.create("g", "f")
    facts.patch("a", add("/g", 1), branch="g")
    facts.patch("a", add("/f", 1), branch="f")
    first = said(facts, "a")[0][0]
    assert [parent for _, parent, *_ in said(facts, "a", "g")] == [first]
    assert [parent for _, parent, *_ in said(facts, "a", "f")] == [first]
    assert facts.read("a", "g").document == {"n": 1, "g": 1}
    assert facts.verify() == []


def test_entity_created_after_fork_has_first_fact_on_child(facts):
    facts.branches.create("f")
    facts.set("a", {"n": 1})
    facts.set("a", {"n": 2}, branch="f")
    assert [parent for _, parent, *_ in said(facts, "a", "f")] == [None]


def test_equal_facts_on_two_branches_are_one_fact_said_twice(facts):
    facts.set("a", {"n": 1})
    facts.branches.create("f")
    facts.set("a", {"n": 2})
    facts.set("a", {"n": 2}, branch="f")
    facts.set("a", {"n": 3}, branch="f")
    assert said(facts, "a")[1] == said(facts, "a", "f")[0]
    shared = said(facts, "a")[1][0]
    assert rows(facts, "SELECT branch, seq FROM fact WHERE hash = ?", (shared,)) == [("", 3)]
    where = "SELECT branch, seq FROM occurrence WHERE fact_hash = ? ORDER BY seq"
    assert rows(facts, where, (shared,)) == [("", 3), ("f", 4)]
    assert facts.read("a", "f", at=4).seq == 4
    assert facts.read("a").document == {"n": 2}
    assert facts.verify() == []


def test_equal_blind_commits_are_two_commits_in_a_chain(facts):
    for _ in range(2):
        facts.patch("a", [{"op": "increment", "path": "/n", "by": 1}])
    facts.branches.create("f")
    facts.branches.delete("f")
    chain = rows(facts, 'SELECT hash, previous FROM "commit" ORDER BY seq')
    assert len({hash_ for hash_, _ in chain}) == 4
    assert [previous for _, previous in chain] == [None, *(hash_ for hash_, _ in chain[:-1])]
    assert [entry.resolution["hash"] for entry in facts.log()] == [hash_ for hash_, _ in chain]
    assert facts.read("a").document == {"n": 2}
    # Two patches with the same text are two facts and one value.
    assert len(rows(facts, "SELECT hash FROM value")) == 2
    assert len(rows(facts, "SELECT hash FROM fact")) == 2


def test_every_reference_in_the_database_is_spelled_in_one_way(facts):
    lived_in(facts)
    spelled = rows(
        facts,
        "SELECT hash FROM value UNION ALL SELECT hash FROM fact UNION ALL SELECT value_ref FROM"
        " fact UNION ALL SELECT parent FROM fact UNION ALL SELECT commit_ref FROM fact UNION ALL"
        " SELECT fact_hash FROM occurrence UNION ALL SELECT fact_hash FROM head UNION ALL SELECT"
        ' value_ref FROM snapshot UNION ALL SELECT hash FROM "commit" UNION ALL SELECT previous'
        ' FROM "commit"',
    )
    texts = {text for (text,) in spelled} - {None, "__empty__"}
    assert len(texts) > 20
    assert all(str(Reference.parse(text)) == text for text in texts)


def test_nothing_refers_to_what_is_not_there(facts):
    lived_in(facts)
    assert rows(facts, "PRAGMA foreign_keys") == [(1,)]
    assert rows(facts, "PRAGMA foreign_key_check") == []


def test_reads_of_commit_are_kept_as_they_were_sent(facts):
    facts.set("a", {"n": 1})
    sent = {"confirmed": [{"id": "a", "seq": 1, "path": ["n"]}]}
    facts.transact([{"op": "delete", "id": "a"}], reads=sent)
    facts.branches.create("f")
    [(first,), (second,), (third,)] = rows(facts, 'SELECT reads FROM "commit" ORDER BY seq')
    assert first == '{"confirmed":[],"pending":[]}'
    assert json.loads(second)["confirmed"][0]["path"] == ["n"]
    assert third is None


def test_request_that_comes_again_gives_same_commit_and_writes_nothing(facts):
    operations = [{"op": "set", "id": "a", "value": {"n": 1.0}}, {"op": "delete", "id": "a"}]
    first = facts.transact(operations, session="phone", local_seq=1)
    again = facts.transact(operations, session="phone", local_seq=1)
    assert again.replayed
    assert (again.seq, again.revisions) == (first.seq, first.revisions)
    assert facts.seq() == 1


# Exact texts: a merkle reference does not tell 1 from 1.0


def test_a_value_keeps_its_types_though_it_shares_its_reference(facts):
    spellings = [{"n": 1}, {"n": 1.0}, {"n": -0.0}, {"n": 0}, {"n": 10**22}, {"n": 1e22}]
    for document in spellings:
        facts.set("a", document)
    for seq, document in enumerate(spellings, start=1):
        assert same(facts.read("a", at=seq).document, document)
        assert same(facts.history("a", after=seq - 1, at=seq)[0].data, document)
    # Three values, and each second spelling beside its reference.
    assert len(rows(facts, "SELECT hash FROM value")) == 1 + 3
    assert rows(facts, "SELECT text FROM occurrence ORDER BY seq") == [
        (None,),
        ('{"n":1.0}',),
        (None,),
        ('{"n":0}',),
        (None,),
        ('{"n":1e22}',),
    ]
    assert facts.verify() == []


def test_two_branches_share_a_fact_and_keep_their_own_spelling(facts):
    facts.set("a", {"n": 7})
    facts.branches.create("f")
    facts.patch("a", add("/n", 1))
    facts.patch("a", add("/n", 1.0), branch="f")
    assert said(facts, "a")[1] == said(facts, "a", "f")[0]
    assert same(facts.read("a").document, {"n": 1})
    assert same(facts.read("a", "f").document, {"n": 1.0})
    facts._cache.clear()
    assert same(facts.read("a", "f").document, {"n": 1.0})
    state = rows(facts, "SELECT value FROM state WHERE branch = 'f'")
    assert state == [('[{"op":"add","path":"/n","value":1.0}]',)]
    assert facts.verify() == []


def test_a_snapshot_keeps_its_types_too(facts):
    facts.set("b", {"n": 1, "list": ["x"] * 12})
    facts.set("a", {"n": 1.0, "list": []})
    for _ in range(12):
        facts.patch("a", [{"op": "append", "path": "/list", "values": ["x"]}])
    facts.maintain("all")
    with facts.database.write() as txn:
        FACTS.keep_snapshot(txn, "", "a", 14, trusted({"n": 1.0, "list": ["x"] * 12}))
    facts._cache.clear()
    assert rows(facts, "SELECT text IS NOT NULL FROM snapshot WHERE seq = 14") == [(1,)]
    assert same(facts.read("a").document, {"n": 1.0, "list": ["x"] * 12})
    assert facts.verify() == []


def test_too_deep_document_is_refused_before_any_write(facts):
    deep = []
    for _ in range(600):
        deep = [deep]
    facts.set("a", {"n": 1})
    with pytest.raises(ContentError, match="nested deeper"):
        facts.set("a", {"deep": deep})
    assert facts.seq() == 1
    assert facts.read("a").document == {"n": 1}


def test_the_deepest_document_that_patches_can_make_gets_its_snapshot(facts):
    steps = limits.CONTENT_DEPTH_MAX - 1
    facts.set("a", {"n": 0})
    facts.patch("a", add("/k" * steps, {"end": True}))
    for number in range(12):
        facts.patch("a", add("/n", [number, "x" * 2000]))
    facts._cache.clear()
    found = facts.read("a").document
    assert found["n"][0] == 11
    assert rows(facts, "SELECT count(*) FROM snapshot") == [(1,)]
    assert facts.verify() == []
    with pytest.raises(InvalidInput, match="deeper"):
        facts.patch("a", add("/k" * (steps + 1), {"end": True}))


# Replay


def test_a_branch_never_replays_the_patches_of_another(facts):
    facts.set("a", {"n": 1})
    facts.branches.create("f")
    facts.branches.create("s")
    facts.patch("a", add("/f", 1), branch="f")
    facts.patch("a", add("/s", 1), branch="s")
    facts.patch("a", add("/m", 1))
    facts._cache.clear()
    assert facts.read("a").document == {"n": 1, "m": 1}
    assert facts.read("a", "f").document == {"n": 1, "f": 1}
    assert facts.read("a", "s").document == {"n": 1, "s": 1}


def test_a_later_set_or_delete_beats_a_snapshot(facts):
    for number in range(15):
        facts.patch("a", add("/n", number))
    assert rows(facts, "SELECT count(*) > 0 FROM snapshot") == [(1,)]
    facts.set("a", {"z": 9})
    facts.patch("a", add("/w", 1))
    facts._cache.clear()
    assert facts.read("a").document == {"z": 9, "w": 1}
    facts.delete("a")
    facts.patch("a", add("/after", 1))
    facts._cache.clear()
    assert facts.read("a").document == {"after": 1}


# Two histories, one state

WRITES = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(["x", "y"]), DOCUMENTS),
    st.tuples(st.just("add"), st.sampled_from(["x", "y"]), LEAVES),
    st.tuples(st.just("append"), st.sampled_from(["x", "y"]), LEAVES),
    st.tuples(st.just("delete"), st.sampled_from(["x", "y"]), st.none()),
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 3), st.lists(WRITES, min_size=1, max_size=4)),
    st.tuples(st.just("commit"), st.integers(0, 3), st.lists(WRITES, min_size=1, max_size=4)),
    st.tuples(st.just("fork"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3), st.none()),
)


def operation(kind, entity, value):
    if kind == "set":
        return {"op": "set", "id": entity, "value": value}
    if kind == "delete":
        return {"op": "delete", "id": entity}
    patch = {"op": "add", "path": "/k", "value": value}
    if kind == "append":
        patch = {"op": "append", "path": "/l", "values": [value]}
    return {"op": "patch", "id": entity, "patches": [patch]}


def play(space, steps):
    """What became of each step: a seq, or the kind of the refusal."""
    outcomes = []
    names = [""]
    for kind, number, more in steps:
        name = names[number % len(names)]
        try:
            if kind == "commit":
                operations = [operation(*write) for write in more]
                outcomes.append(space.transact(operations, branch=name).seq)
            elif kind == "fork":
                at = max(space.branches.get(name).created_seq, space.seq() - more)
                made = space.branches.create(f"b{len(names)}", name, at)
                outcomes.append(made.created_seq)
                names.append(made.name)
            else:
                outcomes.append(space.branches.delete(name).head_seq)
        except FourfoldError as error:
            outcomes.append(error.kind)
    return outcomes


def everything(space):
    space._cache.clear()
    newest = space.seq()
    return [
        (branch.name, seq, entity, space.read(entity, branch.name, seq))
        for branch in space.branches.list(deleted=True)
        for seq in range(branch.created_seq, newest + 1)
        for entity in ("x", "y")
    ]


def plain(state):
    return None if state is None else [state.document, state.op, state.seq]


@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(STEPS, max_size=16))
def test_both_histories_have_equal_states_at_every_seq(steps):
    with fourfold.open(":memory:") as store:
        revisions = store.space("did:key:zR", history="revisions")
        facts = store.space("did:key:zF", history="facts")
        assert play(revisions, steps) == play(facts, steps)
        one, other = everything(revisions), everything(facts)
        assert [each[:3] for each in one] == [each[:3] for each in other]
        assert same([plain(each[3]) for each in one], [plain(each[3]) for each in other])
        assert revisions.ids() == facts.ids()
        assert facts.verify() == []


def test_many_facts_of_one_commit_follow_what_their_branch_shows(facts):
    """Inherited ones, own ones, and those of entities that had none."""
    names = [f"e{number}" for number in range(12)]
    put = [{"op": "set", "id": name, "value": {"n": 1}} for name in names]
    facts.transact(put[:8])
    facts.branches.create("f")
    facts.set("e0", {"n": 2}, branch="f")
    facts.set("e1", {"n": 3})
    add = [{"op": "add", "path": "/m", "value": 1}]
    for branch in ("f", ""):
        facts.transact(
            [{"op": "patch", "id": name, "patches": add} for name in [*names, "e5"]], branch=branch
        )
    with facts.view() as view:
        parents = view.all(
            "SELECT o.branch, o.id FROM occurrence AS o JOIN fact AS f ON f.hash = o.fact_hash"
            " WHERE f.parent IS NULL ORDER BY 1, 2"
        )
    new = [("", name) for name in names]
    assert parents == sorted([*new, *(("f", name) for name in names[8:])])
    assert facts.verify() == []
