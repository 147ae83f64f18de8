"""The times of commits never step back, and the commit at a time is found in a few looks."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from space_costs import counted

from fourfold.errors import HistoryTruncated, InvalidInput
from fourfold.models.documents import GcPolicy, bundle, timestamps, writer
from fourfold.models.documents.facts import log as facts_log
from fourfold.models.documents.revisions import log as revisions_log
from support.properties import examples

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
US = timedelta(microseconds=1)


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch):
        self.us = 0
        monkeypatch.setattr(timestamps.time, "time_ns", self.time_ns)
        monkeypatch.setattr(timestamps.time, "time", self.time)

    def time_ns(self):
        return int(EPOCH.timestamp()) * 10**9 + self.us * 10**3

    def time(self):
        return self.now.timestamp()

    @property
    def ms(self):
        return self.us // 1000

    @ms.setter
    def ms(self, ms):
        self.us = ms * 1000

    @property
    def now(self):
        return EPOCH + self.us * US


@contextmanager
def milliseconds():
    """Commit as earlier versions did: with three fractional digits."""
    with pytest.MonkeyPatch.context() as patcher:

        def next_time(newest):
            now = datetime.fromtimestamp(timestamps.time.time(), UTC).replace(tzinfo=None)
            return now.isoformat(timespec="milliseconds") + "Z"

        for module in (writer, facts_log, revisions_log):
            patcher.setattr(module, "next_moment", next_time)
        yield


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def times(space):
    return [entry.created_at for entry in space.log()]


def test_commit_time_has_six_fractional_digits(space, clock):
    for clock.us in (0, 7, 999_999, 61_001_000):
        space.set("a", {"us": clock.us})
    assert times(space) == [
        "2030-01-01T00:00:00.000000Z",
        "2030-01-01T00:00:00.000007Z",
        "2030-01-01T00:00:00.999999Z",
        "2030-01-01T00:01:01.001000Z",
    ]


def test_read_at_time_before_commit_does_not_show_it(space, clock):
    clock.us = 100
    space.set("a", {"n": 0})
    for number in range(1, 6):
        clock.us += 1
        before = clock.now
        clock.us += 1
        space.set("a", {"n": number})
        assert space.read("a", at=before).document == {"n": number - 1}
        assert space.read("a", at=clock.now).document == {"n": number}
        assert space.ids(at=before) == ["a"]
        assert len(space.history("a", at=before)) == number
        assert space.diff("", before, None).operations
        assert space.branches.create(f"b{number}", at=before).fork_seq < space.seq() - 1


@pytest.fixture
def mixed(space, clock):
    """A log that an earlier version began and this one continues, within one millisecond.

    The pairs are the microsecond and the seq of each commit as it reads now.
    """
    commits = []
    with milliseconds():
        for clock.us in (122_900, 123_400):
            commits.append((clock.ms * 1000, space.set("a", {"us": clock.us}).seq))
    for clock.us in (123_500, 123_501, 124_000):
        commits.append((clock.us, space.set("a", {"us": clock.us}).seq))
    return commits


def seq_at(space, us):
    with space.view() as view:
        return timestamps.seq_at(view, EPOCH + us * US)


def test_both_widths_of_time_are_compared_as_times(space, mixed):
    assert [text[20:] for text in times(space)] == [
        "122Z",
        "123Z",
        "123500Z",
        "123501Z",
        "124000Z",
    ]
    for us in range(121_990, 124_010):
        expected = max((seq for made, seq in mixed if made <= us), default=0)
        assert seq_at(space, us) == expected, us
    assert space.verify() == []


def test_clock_that_lags_a_short_time_does_not_step_back(space, clock):
    with milliseconds():
        clock.us = 123_000
        space.set("a", {"n": 0})
    for clock.us in (122_999, 122_000):
        space.set("a", {"n": clock.us})
    space.branches.create("f")
    assert [text[20:] for text in times(space)] == ["123Z", "123000Z", "123000Z", "123000Z"]
    assert space.verify() == []


def test_gc_by_age_compares_both_widths_as_times(space, clock, mixed):
    # What is 300 microseconds old, counted from 123.7 ms: the commit of 123 ms is the state then.
    clock.us = 123_700
    assert space.gc(GcPolicy(keep_seconds=300e-6)).horizon == mixed[1][1]
    clock.us = 123_900
    assert space.gc(GcPolicy(keep_seconds=300e-6)).horizon == mixed[3][1]
    with pytest.raises(HistoryTruncated):
        space.read("a", at=EPOCH + 123_400 * US)
    assert space.read("a", at=EPOCH + 123_600 * US).seq == mixed[3][1]


def test_both_widths_survive_carry_over_and_exchange(store, space, history, mixed):
    other = store.space(
        "did:key:z6MkOther", history={"facts": "revisions", "revisions": "facts"}[history]
    )
    bundle.carry_over(space, other)
    imported = store.space("did:key:z6MkImported", history=history)
    bundle.replay(imported, bundle.export(space))
    for each in (other, imported):
        assert times(each) == times(space)
        assert [seq_at(each, us) for us in range(122_990, 123_510)] == [
            seq_at(space, us) for us in range(122_990, 123_510)
        ]


@given(st.lists(st.tuples(st.integers(0, 3_000), st.booleans())))
def test_comparable_orders_texts_as_times(drawn):
    def text(us, short):
        made = (EPOCH + us * US).replace(tzinfo=None)
        return made.isoformat(timespec="milliseconds" if short else "microseconds") + "Z"

    texts = [text(us, short) for us, short in drawn]
    assert sorted(texts, key=timestamps.comparable) == sorted(texts, key=datetime.fromisoformat)


def test_clock_that_is_set_back_does_not_set_back_log(space, clock):
    for clock.ms in (1_000, 400, 900, 1_000, 1_200):
        space.set("a", {"ms": clock.ms})
    clock.ms = 0
    space.branches.create("f")
    space.branches.delete("f")
    assert times(space) == sorted(times(space))
    assert [text[-7:] for text in times(space)] == [*(["000000Z"] * 4), *(["200000Z"] * 3)]
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
        assert timestamps.seq_at(view, EPOCH) == 0


def test_timestamp_without_zone_is_refused_and_the_earliest_accepted(space):
    space.set("a", {"n": 1})
    with pytest.raises(InvalidInput):
        space.read("a", at=EPOCH.replace(tzinfo=None))
    assert space.read("a", at=datetime.min.replace(tzinfo=UTC)) is None


def test_moment_is_found_in_few_looks_however_long_log(space, clock):
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
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(25),
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
                # As after a restore: seqs that no commit has, or will have.
                with space.database.write() as txn:
                    txn.execute(space.history_kind.seq.advance, (space.seq() + skipped,))
            space.set("a", {"ms": clock.ms})
        known = [(each.seq, datetime.fromisoformat(each.created_at)) for each in space.log()]
        for ms in range(-1, max((s for s, _ in steps), default=0) * len(steps) + 2):
            moment = EPOCH + ms * MS
            expected = max((seq for seq, made in known if made <= moment), default=0)
            with space.view() as view:
                assert timestamps.seq_at(view, moment) == expected
    finally:
        patcher.undo()
