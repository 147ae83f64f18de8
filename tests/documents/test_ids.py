"""Listing ids page by page: any prefix, any page, any branch, any point in the past."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from space_costs import counted

from fourfold.errors import InvalidInput
from fourfold.kernel.pauses import PacedBlock
from fourfold.models.documents import reader
from support.properties import examples

NUMBERS = itertools.count()
NAMES = st.text(st.sampled_from(["a", "b", "é", "😀", "\U0010ffff", "%"]), min_size=1, max_size=3)


def test_pages_are_in_order_and_complete(space):
    space.transact([{"op": "set", "id": f"n{number:02}", "value": {}} for number in range(25)])
    space.delete("n07")
    expected = [f"n{number:02}" for number in range(25) if number != 7]
    pages, after = [], ""
    while page := space.ids(after=after, limit=6):
        pages.append(page)
        after = page[-1]
    assert [len(page) for page in pages] == [6, 6, 6, 6]
    assert list(itertools.chain(*pages)) == expected == space.ids()
    assert space.ids(prefix="n1", after="n15", limit=2) == ["n16", "n17"]
    assert space.ids(prefix="n1", after="n0") == expected[9:19]
    assert space.ids(prefix="n1", after="n2") == space.ids(limit=0) == space.ids(prefix="o") == []


@pytest.mark.parametrize(
    "how",
    [{"limit": -1}, {"limit": True}, {"limit": "5"}, {"prefix": 5}, {"after": None}, {"after": 3}],
)
def test_bad_page_is_refused(space, how):
    with pytest.raises(InvalidInput):
        space.ids(**how)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(60),
)
@given(data=st.data())
def test_page_is_a_slice_of_what_exists(store, history, data):
    space = store.space(f"did:key:z{next(NUMBERS)}", history=history)
    shown = {"": {0: frozenset()}}
    alive = {"": frozenset()}
    steps = data.draw(st.lists(st.tuples(NAMES, st.booleans(), st.integers(0, 3)), max_size=20))
    for number, (name, lives, where) in enumerate(steps):
        branch = list(alive)[where % len(alive)]
        if number % 5 == 3 and len(alive) < 3:
            child = f"b{number}"
            space.branches.create(child, branch)
            alive[child], shown[child] = alive[branch], {}
        elif lives:
            space.patch(name, [{"op": "add", "path": "/n", "value": number}], branch=branch)
            alive[branch] |= {name}
        else:
            space.delete(name, branch=branch)
            alive[branch] -= {name}
        for each, names in alive.items():
            shown[each][space.seq()] = names
    branch = data.draw(st.sampled_from(sorted(alive)))
    at = data.draw(st.sampled_from(sorted(shown[branch])))
    prefix = data.draw(st.just("") | NAMES)
    after = data.draw(st.just("") | NAMES)
    limit = data.draw(st.none() | st.integers(0, 5))
    # Both ways to find what was there at a point must agree.
    with pytest.MonkeyPatch.context() as patcher:
        patcher.setattr(reader, "_FEW_ROWS", data.draw(st.sampled_from([1, 4, 20_000])))
        found = space.ids(branch, at, prefix=prefix, after=after, limit=limit)
    every = sorted(n for n in shown[branch][at] if n.startswith(prefix) and n > after)
    assert found == every[:limit]


def test_page_costs_its_length_and_not_the_number_of_entities(space):
    space.transact([{"op": "set", "id": f"e{number:05}", "value": {}} for number in range(300)])

    def steps():
        with counted() as cost:
            assert len(space.ids(prefix="e", after="e00100", limit=10)) == 10
        return cost.steps

    few = steps()
    space.transact([{"op": "set", "id": f"e{number:05}x", "value": {}} for number in range(3_000)])
    assert steps() < 2 * few


def test_page_of_early_point_costs_what_was_written_by_then(space):
    space.transact([{"op": "set", "id": f"z{number:05}", "value": {}} for number in range(20)])

    def steps(branch):
        with counted() as cost:
            assert space.ids(branch, 1 if not branch else None, limit=5) == [
                f"z{number:05}" for number in range(5)
            ]
        return cost.steps

    def add(numbers):
        # All of these sort before those of the first commit.
        space.transact([{"op": "set", "id": f"a{number:05}", "value": {}} for number in numbers])

    add(range(200))
    space.branches.create("f", at=1)
    few = steps(""), steps("f")
    add(range(200, 3_000))
    assert (steps(""), steps("f")) == few


def test_long_list_pauses_between_its_ids(space, monkeypatch):
    space.transact([{"op": "set", "id": f"e{n:03}", "value": {}} for n in range(200)])
    steps = []
    monkeypatch.setattr(PacedBlock, "end_step", lambda _: steps.append(True))
    assert len(space.ids()) == 200
    assert len(steps) == 200 // reader.IDS_STEP
