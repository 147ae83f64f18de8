"""Maintenance changes how long a read takes and never what it says."""

from __future__ import annotations

import threading

import pytest
from drawn_spaces import SCRIPTS, everything, played
from hypothesis import given, settings
from hypothesis import strategies as st

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.documents import HISTORIES
from fourfold.models.documents.snapshots import surplus
from support.properties import examples


def snapshots(space, branch=""):
    with space.view() as view:
        keys = view.all(view.sql.snapshot_keys, ("", "", 0, 1_000_000))
    return [seq for name, _, seq in keys if name == branch]


def count_up(space, times, branch="", entity="urn:a"):
    for _ in range(times):
        patches = [{"op": "increment", "path": "/value/count", "by": 1}]
        space.patch(entity, patches, branch=branch)


def states(space, entity="urn:a", branch="", first=1):
    return [space.read(entity, branch, seq) for seq in range(first, space.seq() + 1)]


@pytest.mark.parametrize("kind", sorted(HISTORIES))
@settings(max_examples=examples(15), deadline=None)
@given(script=SCRIPTS, retention=st.sampled_from(["all", "log", 1, 2]), data=st.data())
def test_no_state_changes(kind, script, retention, data):
    with played(script, kind) as space:
        before = everything(space)
        pins = data.draw(st.lists(st.integers(0, space.seq()), max_size=2))
        space.maintain(retention, pins=pins)
        assert everything(space) == before
        assert space.verify() == []


def test_all_keeps_all(space):
    count_up(space, 60)
    kept = snapshots(space)
    assert len(kept) >= 3
    assert space.maintain().dropped == 0
    assert snapshots(space) == kept


def test_the_newest_few_are_kept(space):
    count_up(space, 60)
    every = snapshots(space)
    assert space.maintain(2).dropped == len(every) - 2
    assert snapshots(space) == every[-2:]
    assert space.maintain(2).dropped == 0


def test_what_forks_and_pins_start_from_is_kept(space):
    count_up(space, 60)
    every = snapshots(space)
    fork, pin = every[0] + 1, every[2]
    space.branches.create("dead", at=fork)
    space.branches.delete("dead")
    space.maintain(1, pins=[pin])
    assert snapshots(space) == sorted({every[0], every[2], every[-1]})


def test_each_branch_keeps_its_own(space):
    count_up(space, 12)
    space.branches.create("work")
    count_up(space, 60, "work")
    count_up(space, 60)
    space.branches.create("nested", "work", at=space.branches.get("work").created_seq + 30)
    count_up(space, 30, "nested")
    before = [states(space, branch=name, first=140) for name in ("", "work", "nested")]
    newest = [snapshots(space, name)[-1] for name in ("", "work", "nested")]
    space.maintain(1)
    assert [snapshots(space, name)[-1] for name in ("", "work", "nested")] == newest
    assert len(snapshots(space, "work")) == 2
    assert [states(space, branch=name, first=140) for name in ("", "work", "nested")] == before
    assert space.verify() == []


def test_log_spaced_ones_get_fewer_with_age(space):
    count_up(space, 300)
    every = snapshots(space)
    space.maintain("log")
    kept = snapshots(space)
    assert (kept[-1], kept[0]) == (every[-1], every[0])
    assert len(kept) <= (300).bit_length() + 1
    distances = [space.seq() - seq + 1 for seq in kept]
    spans = [distance.bit_length() for distance in distances[:-1]]
    assert len(spans) == len(set(spans))
    assert space.maintain("log").dropped == 0


@settings(deadline=None)
@given(
    st.sets(st.integers(1, 400), max_size=60),
    st.sampled_from(["all", "log", 1, 3]),
    st.lists(st.integers(0, 400), max_size=4),
)
def test_a_policy_always_keeps_what_the_anchors_need(seqs, retention, anchors):
    ordered = sorted(seqs)
    dropped = surplus(ordered, retention, anchors, 400)
    kept = seqs - set(dropped)
    for anchor in [*anchors, 400]:
        below = [seq for seq in ordered if seq <= anchor]
        assert not below or below[-1] in kept
    assert surplus(sorted(kept), retention, anchors, 400) == []


def test_pages_are_no_border(space, monkeypatch):
    monkeypatch.setattr(limits, "MAINTENANCE_PAGE_ROWS", 2)
    for entity in ("urn:a", "urn:b", "urn:c"):
        count_up(space, 60, entity=entity)
    every = len(snapshots(space))
    assert space.maintain(1).dropped == every - 3
    assert len(snapshots(space)) == 3


def test_a_deep_replay_gets_a_snapshot(space, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_REPLAY_MAX", 25)
    space.set("urn:a", {"value": {"text": "long " * 2_000, "count": 0}})
    space.set("urn:shallow", {"value": {"count": 0}})
    count_up(space, 40)
    count_up(space, 3, entity="urn:shallow")
    space.branches.create("work")
    count_up(space, 30, "work")
    before = states(space), space.read("urn:a", "work")
    assert (snapshots(space), snapshots(space, "work")) == ([], [])
    assert space.maintain().made == 2
    assert (len(snapshots(space)), len(snapshots(space, "work"))) == (1, 1)
    assert (states(space), space.read("urn:a", "work")) == before
    assert space.maintain().made == 0
    assert space.verify() == []


def test_it_runs_beside_readers_and_writers(space, monkeypatch):
    monkeypatch.setattr(limits, "MAINTENANCE_PAGE_ROWS", 3)
    monkeypatch.setattr(limits, "SNAPSHOT_REPLAY_MAX", 11)
    done = threading.Event()

    def tidy():
        while not done.is_set():
            space.maintain(1)

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        for number in range(1, 121):
            count_up(space, 1)
            assert space.read("urn:a", at=number).document == {"value": {"count": number}}
    finally:
        done.set()
        thread.join()
    assert [state.document["value"]["count"] for state in states(space)] == list(range(1, 121))
    assert space.verify() == []


def test_bad_policies_are_refused(space):
    for retention in (0, -1, True, "some", None, 1.5):
        with pytest.raises(InvalidInput):
            space.maintain(retention)
    for pin in (-1, 1, "now", True):
        with pytest.raises(InvalidInput):
            space.maintain("log", pins=[pin])
