"""Pauses: short steps while other threads write, long ones while nothing is written."""

from __future__ import annotations

import asyncio
import colorsys
import threading

import ledger
import pytest

from fourfold import limits
from fourfold.kernel.pauses import (
    BACKGROUND_STEP_MAX_S,
    PACED_STEP_SHARE,
    PacedBlock,
    Pauses,
    pausing_in_calls,
)
from fourfold.kernel.process_writes import PROCESS_WRITES


class Clock:
    """A clock that only advances through `sleep` or by assignment."""

    def __init__(self):
        self.now = 1_000.0
        self.slept = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock():
    return Clock()


def work(pauses, clock, seconds, step=0.0005):
    for _ in range(round(seconds / step)):
        clock.now += step
        pauses.pause()


def test_work_takes_a_fifth_of_the_time_while_others_write(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 1.0)
    assert clock.slept == pytest.approx(4.0, rel=0.1)


def test_work_hardly_pauses_while_nothing_is_written(clock):
    pauses = Pauses(lambda: 0, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 1.0)
    assert 0 < clock.slept < 0.1


def test_open_transaction_counts_as_writing(clock):
    pauses = Pauses(lambda: 0, lambda: True, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 1.0)
    assert clock.slept == pytest.approx(4.0, rel=0.1)


def test_steps_are_short_again_as_soon_as_others_write(clock):
    began = clock.now + 0.5
    written = lambda: 0 if clock.now < began else clock.now  # noqa: E731
    pauses = Pauses(written, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 0.4)
    idle = clock.slept
    work(pauses, clock, 1.0)
    assert clock.slept - idle == pytest.approx(4.0, rel=0.2)


def test_work_pauses_for_writers_that_it_keeps_from_committing(clock):
    """They commit after 5 ms without the work, so none of its short checks sees a commit."""
    pauses = Pauses(lambda: int(clock.slept / 0.005), clock=clock, sleep=clock.sleep)
    work(pauses, clock, 1.0)
    assert clock.slept == pytest.approx(4.0, rel=0.2)


def test_single_commit_causes_a_single_pause(clock):
    commits = [0]
    pauses = Pauses(lambda: commits[0], clock=clock, sleep=clock.sleep)
    work(pauses, clock, 0.1)
    slept, commits[0] = clock.slept, 1
    work(pauses, clock, 0.1)
    assert clock.slept - slept < 0.1 + 0.01


def test_commit_long_before_a_step_causes_no_pause(clock):
    commits = [0]
    pauses = Pauses(lambda: commits[0], clock=clock, sleep=clock.sleep)
    assert not pauses.pause_after(0.01)
    commits[0] = 1
    clock.now += 1.0
    slept = clock.slept
    assert not pauses.pause_after(0.01)
    assert clock.slept - slept == pytest.approx(limits.BACKGROUND_LOOK_S)


def test_time_outside_of_work_causes_no_pause(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 0.01)
    slept = clock.slept
    clock.now += BACKGROUND_STEP_MAX_S + 1
    pauses.pause()
    assert clock.slept == slept


def test_work_between_items_pauses_while_others_write(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    seen = []
    for item in pauses.between(range(200)):
        clock.now += 0.0005
        seen.append(item)
    assert seen == list(range(200))
    assert clock.slept == pytest.approx(0.4, rel=0.1)


def test_pause_is_bounded(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    assert pauses.pause_after(5.0)
    assert clock.slept == pytest.approx(limits.BACKGROUND_PAUSE_MAX_S)


@pytest.mark.parametrize(("share", "pauses_expected"), [(1.0, 4), (0.95, 4), (0.5, 1), (0.0, 1)])
def test_pause_is_repeated_while_writing_thread_has_no_idle_time(clock, share, pauses_expected):
    pauses = Pauses(
        lambda: clock.now, lambda: True, lambda: share * clock.now, clock=clock, sleep=clock.sleep
    )
    pauses.pause_after(0.002)
    length = 0.002 * limits.BACKGROUND_PAUSES
    assert clock.slept == pytest.approx(length * pauses_expected)


def test_repeated_pause_ends_when_the_writing_thread_was_idle(clock):
    busy_until = clock.now + 0.012
    cpu = lambda: min(clock.now, busy_until)  # noqa: E731
    pauses = Pauses(lambda: clock.now, lambda: True, cpu, clock=clock, sleep=clock.sleep)
    pauses.pause_after(0.002)
    assert clock.slept == pytest.approx(2 * 0.002 * limits.BACKGROUND_PAUSES)


def test_repeated_pause_is_bounded(clock):
    cpu = lambda: clock.now  # noqa: E731
    pauses = Pauses(lambda: clock.now, lambda: True, cpu, clock=clock, sleep=clock.sleep)
    pauses.pause_after(0.02)
    assert clock.slept == pytest.approx(limits.BACKGROUND_PAUSE_MAX_S)


def test_async_pause_is_as_long_as_that_of_a_thread(clock, monkeypatch):
    async def sleep(seconds):
        clock.sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    asyncio.run(pauses.pause_after_async(0.01))
    assert clock.slept == pytest.approx(0.01 * limits.BACKGROUND_PAUSES)


def test_async_pause_counts_commits_since_a_call_began(clock, monkeypatch):
    async def sleep(seconds):
        clock.sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    pauses = Pauses(lambda: 7, clock=clock, sleep=clock.sleep)
    asyncio.run(pauses.pause_after_async(0.01, since=7))
    assert clock.slept == pytest.approx(limits.BACKGROUND_LOOK_S)
    asyncio.run(pauses.pause_after_async(0.01, since=6))
    length = 0.01 * limits.BACKGROUND_PAUSES
    assert clock.slept == pytest.approx(limits.BACKGROUND_LOOK_S + length)


def block_of(clock, written, writing=lambda: False, pauses_max_s=100.0):
    """Return a block, and the list of its pauses."""
    pauses, lengths = Pauses(written, writing, clock=clock, sleep=clock.sleep), []
    pause_after = pauses.pause_after

    def note(took):
        lengths.append(took)
        return pause_after(took)

    pauses.pause_after = note
    return PacedBlock(pauses, written, writing, pauses_max_s, clock=clock), lengths


STEP_S = 0.0025
"""A step that is long enough to be followed by a pause."""


def run_steps(block, clock, count, step=STEP_S):
    for _ in range(count):
        clock.now += step
        block.end_step()


def test_block_pauses_after_each_step_while_others_write(clock):
    block, lengths = block_of(clock, lambda: clock.now)
    run_steps(block, clock, 25)
    assert lengths == pytest.approx([STEP_S * PACED_STEP_SHARE] * 25)
    between = clock.slept
    block.end()
    assert clock.slept - between == pytest.approx(limits.BACKGROUND_PAUSE_MAX_S)


def test_block_pauses_in_proportion_to_all_of_its_steps(clock):
    block, _ = block_of(clock, lambda: clock.now)
    run_steps(block, clock, 8)
    block.end()
    assert clock.slept == pytest.approx(8 * STEP_S * limits.BACKGROUND_PAUSES)


def test_block_pauses_while_a_transaction_is_open(clock):
    block, lengths = block_of(clock, lambda: 0, lambda: True)
    run_steps(block, clock, 5)
    assert len(lengths) == 5


def test_block_does_not_pause_while_nothing_is_written(clock):
    block, lengths = block_of(clock, lambda: 0)
    run_steps(block, clock, 25)
    block.end()
    assert (lengths, clock.slept) == ([], 0.0)


def test_block_counts_short_steps_together(clock):
    block, lengths = block_of(clock, lambda: clock.now)
    run_steps(block, clock, 24, step=STEP_S / 4)
    assert lengths == pytest.approx([STEP_S * PACED_STEP_SHARE] * 6)


def test_block_stops_checking_when_others_stop_writing(clock):
    block, lengths = block_of(clock, lambda: 0 if clock.now <= 1_000 else 1)
    run_steps(block, clock, 25)
    assert len(lengths) == 1


def test_pauses_between_steps_of_a_block_are_bounded(clock):
    block, lengths = block_of(clock, lambda: clock.now, pauses_max_s=0.1)
    run_steps(block, clock, 1_000)
    assert len(lengths) == 0.1 / (STEP_S * PACED_STEP_SHARE * limits.BACKGROUND_PAUSES)
    block.end()
    assert clock.slept == pytest.approx(0.1 + limits.BACKGROUND_PAUSE_MAX_S)


@pytest.fixture
def paused(db, monkeypatch):
    """The pauses after paced reads of `db`, however short these are."""
    pauses = []
    monkeypatch.setattr("fourfold.kernel.pauses.PACED_BLOCK_S", 0.0)
    monkeypatch.setattr(db.pauses, "pause_after", pauses.append)
    return pauses


def read_while_another_thread_writes(db):
    with db.paced(), db.read() as snapshot:
        ledger.Caller(lambda: db.transact(ledger.put("other"))).outcome()
        return snapshot.value("SELECT count(*) FROM entry")


def test_paced_read_is_followed_by_pause_if_others_wrote_meanwhile(db, paused):
    assert read_while_another_thread_writes(db) == 0
    assert len(paused) == 1


def test_paced_read_does_not_pause_if_nothing_was_written(db, paused):
    with db.paced(), db.read() as snapshot:
        assert snapshot.value("SELECT count(*) FROM entry") == 0
    assert paused == []


def test_short_paced_read_does_not_pause(db, paused, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.pauses.PACED_BLOCK_S", 60.0)
    read_while_another_thread_writes(db)
    assert paused == []


def test_paced_read_does_not_pause_in_a_transaction(db, paused, monkeypatch):
    with db.write(), db.paced():
        monkeypatch.setattr(PROCESS_WRITES, "_committed", PROCESS_WRITES._committed + 1)
    assert paused == []


def test_paced_read_does_not_pause_on_an_event_loop(db, paused):
    async def read():
        read_while_another_thread_writes(db)

    asyncio.run(read())
    assert paused == []


def test_paced_read_pauses_between_its_steps(db, paused, monkeypatch):
    monkeypatch.setattr("fourfold.kernel.pauses.BACKGROUND_STEP_S", 0.0)
    with db.paced() as end_step, db.read():
        end_step()
        assert paused == []
        ledger.Caller(lambda: db.transact(ledger.put("other"))).outcome()
        end_step()
        assert len(paused) == 1


@pytest.mark.parametrize(("deadline_s", "pauses_expected"), [(0.0, 0), (30.0, 1)])
def test_paced_read_does_not_pause_until_its_deadline(
    db, paused, monkeypatch, deadline_s, pauses_expected
):
    monkeypatch.setattr("fourfold.kernel.pauses.BACKGROUND_STEP_S", 0.0)
    monkeypatch.setattr(db, "_deadline_s", deadline_s)
    with db.paced() as end_step:
        monkeypatch.setattr(PROCESS_WRITES, "_committed", PROCESS_WRITES._committed + 1)
        end_step()
        assert len(paused) == pauses_expected


class OneWriter:
    """A writer that has committed on another thread."""

    def cpu_seconds(self):
        return None


@pytest.fixture
def calls(monkeypatch):
    """Calls of functions in which a pause was possible."""
    counted = []
    monkeypatch.setattr(Pauses, "pause", lambda _: counted.append(True))
    return counted


def commit_elsewhere():
    def work():
        writer = OneWriter()
        PROCESS_WRITES.begin(writer, threading.get_ident())
        PROCESS_WRITES.commit(writer)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_code_without_pauses_of_its_own_pauses_in_its_calls(calls):
    commit_elsewhere()
    with pausing_in_calls():
        colorsys.rgb_to_hls(0.1, 0.2, 0.3)
    during = len(calls)
    colorsys.rgb_to_hls(0.1, 0.2, 0.3)
    assert 0 < during == len(calls)


def test_event_loop_does_not_pause_in_its_calls(calls):
    commit_elsewhere()

    async def run():
        with pausing_in_calls():
            colorsys.rgb_to_hls(0.1, 0.2, 0.3)

    asyncio.run(run())
    assert not calls
