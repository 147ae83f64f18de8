"""The times of commits never step back, and any moment is found in a few looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from space_costs import counted

from fourfold.errors import InvalidInput
from fourfold.models.documents import moments

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


class Clock:
    """A clock that shows what it is told to."""

    def __init__(self, monkeypatch):
        self.ms = 0
        monkeypatch.setattr(moments.time, "time_ns", self.time_ns)

    def time_ns(self):
        return int(EPOCH.timestamp()) * 10**9 + self.ms * 10**6

    @property
    def now(self):
        return EPOCH + self.ms * MS


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def times(space):
    return [entry.created_at for entry in space.log()]


def test_a_time_is_spelled_to_the_millisecond(space, clock):
    for clock.ms in (0, 7, 999, 61_001):
        space.set("a", {"ms": clock.ms})
    assert times(space) == [
        "2030-01-01T00:00:00.000Z",
        "2030-01-01T00:00:00.007Z",
        "2030-01-01T00:00:00.999Z",
        "2030-01-01T00:01:01.001Z",
    ]


def test_a_clock_that_is_set_back_does_not_set_back_the_log(space, clock):
    for clock.ms in (1_000, 400, 900, 1_000, 1_200):
        space.set("a", {"ms": clock.ms})
    clock.ms = 0
    space.branches.create("f")
    space.branches.delete("f")
    assert times(space) == sorted(times(space))
    assert [text[-7:] for text in times(space)] == [*(["01.000Z"] * 4), *(["01.200Z"] * 3)]
    # What was written after the clock went back is found where it is in the log.
    assert space.read("a", at=EPOCH + 1_000 * MS).document == {"ms": 1_000}
    assert space.read("a", at=EPOCH + 999 * MS) is None
    assert space.read("a", at=EPOCH + 1_200 * MS).seq == 5
    assert space.verify() == []


def test_of_commits_of_the_same_moment_the_newest_counts(space, clock):
    for number in range(9):
        clock.ms = number // 3
        space.set("a", {"n": number})
    for ms in range(3):
        assert space.read("a", at=EPOCH + ms * MS).document == {"n": 3 * ms + 2}
    assert space.read("a", at=EPOCH - MS) is None
    assert space.read("a", at=EPOCH + 3 * MS).document == {"n": 8}


def test_an_empty_space_has_no_commit_at_any_moment(space):
    with space.view() as view:
        assert moments.seq_at(view, EPOCH) == 0


def test_a_moment_without_a_time_zone_is_refused_and_the_first_of_all_is_not(space):
    space.set("a", {"n": 1})
    with pytest.raises(InvalidInput):
        space.read("a", at=EPOCH.replace(tzinfo=None))
    assert space.read("a", at=datetime.min.replace(tzinfo=UTC)) is None


def test_a_moment_is_found_in_a_few_looks_however_long_the_log(space, clock):
    def looks():
        with counted() as cost:
            space.read("a", at=EPOCH + 5 * MS)
        return len(cost.statements)

    for number in range(16):
        clock.ms = number
        space.set("a", {"n": number})
    few = looks()
    with space.database.write():
        for number in range(16, 1_024):
            clock.ms = number
            space.set("a", {"n": number})
    # 64 times as many commits are six more halves.
    assert looks() <= few + 6


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(data=st.data())
def test_any_moment_means_the_last_commit_that_is_not_later(store, history, data):
    steps = data.draw(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 3)), max_size=30))
    patcher = pytest.MonkeyPatch()
    try:
        clock = Clock(patcher)
        name = data.draw(st.uuids())
        space = store.space(f"did:key:z{name.hex}", history=history)
        for forward, skipped in steps:
            clock.ms = max(0, clock.ms + forward)
            if skipped:
                # As after a restore: seqs that nobody has, or will have.
                with space.database.write() as txn:
                    txn.execute(space.history_kind.seq.advance, (space.seq() + skipped,))
            space.set("a", {"ms": clock.ms})
        known = [(each.seq, datetime.fromisoformat(each.created_at)) for each in space.log()]
        for ms in range(-1, max((s for s, _ in steps), default=0) * len(steps) + 2):
            moment = EPOCH + ms * MS
            expected = max((seq for seq, made in known if made <= moment), default=0)
            with space.view() as view:
                assert moments.seq_at(view, moment) == expected
    finally:
        patcher.undo()
