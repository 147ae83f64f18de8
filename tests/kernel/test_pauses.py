"""Pauses: short steps while other threads write, long ones while nothing is written."""

from __future__ import annotations

import pytest

from fourfold import limits
from fourfold.kernel.pauses import BACKGROUND_STEP_MAX_S, Pauses


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


def test_time_outside_of_work_causes_no_pause(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    work(pauses, clock, 0.01)
    slept = clock.slept
    clock.now += BACKGROUND_STEP_MAX_S + 1
    pauses.pause()
    assert clock.slept == slept


def test_pause_is_bounded(clock):
    pauses = Pauses(lambda: clock.now, clock=clock, sleep=clock.sleep)
    assert pauses.pause_after(5.0)
    assert clock.slept == pytest.approx(limits.BACKGROUND_PAUSE_MAX_S)
