"""Claims about carrying a space over into the other history, and back."""

from __future__ import annotations

import pytest
from drawn_documents import same
from drawn_spaces import SCRIPTS, everything, play, played
from hypothesis import given, settings

import fourfold
from fourfold.errors import CorruptData, InvalidInput, Refused
from fourfold.models.documents import bundle
from support.properties import examples

OTHER = {"facts": "revisions", "revisions": "facts"}


def plain(states):
    return [
        (place, None if state is None else [state.document, state.op, state.seq])
        for place, state in states.items()
    ]


def commits(space):
    return [
        (each.seq, each.branch, each.session, each.local_seq, each.created_at, each.original)
        for each in space.log()
    ]


def filled(space):
    space.set("urn:a", {"n": 1, "m": 1.0})
    space.branches.create("f")
    space.transact(
        [
            {"op": "patch", "id": "urn:a", "patches": [{"op": "add", "path": "/n", "value": 1.0}]},
            {"op": "delete", "id": "urn:b"},
        ],
        branch="f",
        session="phone",
        local_seq=3,
    )
    for number in range(15):
        space.patch("urn:c", [{"op": "add", "path": "/n", "value": number}])
    space.branches.delete("f")
    return space


@pytest.fixture
def source(store, history):
    return filled(store.space("did:key:zSource", history=history))


@pytest.fixture
def target(store, history):
    return store.space("did:key:zTarget", history=OTHER[history])


def test_everything_keeps_its_place_there_and_back(store, source, target, history):
    before = plain(everything(source))
    carried = bundle.carry_over(source, target)
    assert (carried.seq, carried.commits) == (source.seq(), source.seq())
    assert same(plain(everything(target)), before)
    assert commits(target) == commits(source)
    assert target.branches.list(deleted=True)[1:] == source.branches.list(deleted=True)[1:]
    back = store.space("did:key:zBack", history=history)
    bundle.carry_over(target, back)
    assert back.log() == source.log()
    assert same(plain(everything(back)), before)


def test_a_request_sent_again_after_the_carry_over_is_known(source, target):
    bundle.carry_over(source, target)
    again = [
        {"op": "patch", "id": "urn:a", "patches": [{"op": "add", "path": "/n", "value": 1.0}]},
        {"op": "delete", "id": "urn:b"},
    ]
    assert target.transact(again, branch="f", session="phone", local_seq=3).replayed


def test_second_run_carries_over_later_writes(source, target):
    bundle.carry_over(source, target)
    source.set("urn:d", {"n": 4})
    assert bundle.carry_over(source, target).commits == 1
    assert target.read("urn:d").document == {"n": 4}


def test_a_space_with_a_life_of_its_own_is_refused(source, target):
    target.set("urn:mine", {"n": 1})
    with pytest.raises(Refused, match="another commit"):
        bundle.carry_over(source, target)
    assert target.seq() == 1


def test_a_space_is_not_carried_into_itself(source):
    with pytest.raises(InvalidInput, match="into itself"):
        bundle.carry_over(source, source)


def test_space_that_came_out_different_is_not_taken_for_same(source, target):
    bundle.carry_over(source, target)
    with target.database.write() as txn:
        txn.execute('UPDATE "commit" SET original = replace(original, \'"n"\', \'"k"\')')
    assert "its log has" in bundle.difference(source, target, source.seq())
    with pytest.raises((CorruptData, Refused)):
        bundle.carry_over(source, target)


@pytest.mark.parametrize("kind", sorted(OTHER))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS)
def test_whatever_happened_every_state_at_every_seq_is_kept(kind, script):
    with played(script, kind) as source, fourfold.open(":memory:") as store:
        target = store.space("did:key:zTarget", history=OTHER[kind])
        bundle.carry_over(source, target)
        assert same(plain(everything(target)), plain(everything(source)))
        # Both go on in the same way.
        for space in (source, target):
            play(space, script[:3])
        assert [each.seq for each in source.log()] == [each.seq for each in target.log()]
        assert target.verify() == []
