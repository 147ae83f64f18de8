"""Retries and backoff. Time is a clock of the test, which `sleep` moves."""

from __future__ import annotations

import pytest

from fourfold import retry
from fourfold.errors import Busy, InvalidInput, StorageError
from fourfold.retry import Attempts, Backoffs, Retries, pause_after


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    return clock


class Call:
    """A call that fails with these errors, one after the other, and then returns "done"."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_pauses_double_up_to_the_longest():
    assert [pause_after(failures, 1.0, 5.0) for failures in (1, 2, 3, 4, 10_000)] == [1, 2, 4, 5, 5]


def test_retryable_error_is_retried(clock):
    call = Call(Busy("1"), Busy("2"))
    assert Retries(most=2, pause_s=1.0, jitter=0.0).run(call) == "done"
    assert call.count == 3
    assert clock.pauses == [1.0, 2.0]


def test_last_error_is_raised_after_the_last_retry(clock):
    call = Call(*(Busy(str(number)) for number in range(9)))
    with pytest.raises(Busy, match="2"):
        Retries(most=2).run(call)
    assert call.count == 3


@pytest.mark.parametrize("error", [InvalidInput("bad"), ValueError("bad")])
def test_other_errors_are_raised_at_once(clock, error):
    call = Call(error)
    with pytest.raises(type(error)):
        Retries().run(call)
    assert (call.count, clock.pauses) == (1, [])


def test_chosen_error_is_retried_instead_of_retryable_ones(clock):
    assert Retries(on=BlockingIOError).run(Call(BlockingIOError())) == "done"
    with pytest.raises(Busy):
        Retries(on=BlockingIOError).run(Call(Busy("it is")))


def test_retries_end_after_their_time(clock):
    call = Call(*(Busy(str(number)) for number in range(99)))
    with pytest.raises(Busy):
        Retries.every(0.3, within_s=1.0).run(call)
    assert clock.pauses == pytest.approx([0.3, 0.3, 0.3, 0.1])
    assert call.count == 5


def test_no_time_means_one_attempt(clock):
    call = Call(Busy("it is"))
    with pytest.raises(Busy):
        Retries.every(0.3, within_s=0.0).run(call)
    assert call.count == 1


def test_jitter_shortens_pauses_by_at_most_its_share():
    pauses = [Attempts(Retries(pause_s=1.0)).next_pause() for _ in range(200)]
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
    assert len(set(pauses)) > 100


def test_pause_honours_retry_after_up_to_the_longest():
    attempts = Attempts(Retries(pause_s=0.1, pause_max_s=5.0))
    assert attempts.pause(Busy("later", retry_after=3.0)) == 3.0
    assert attempts.pause(Busy("later", retry_after=60.0)) == 5.0


def test_success_resets_the_pauses(clock):
    attempts = Attempts(Retries(most=None, pause_s=1.0, pause_max_s=60.0, jitter=0.0))
    assert [attempts.next_pause() for _ in range(3)] == [1.0, 2.0, 4.0]
    attempts.restart()
    assert attempts.next_pause() == 1.0


def test_failed_name_waits_longer_with_each_failure(clock):
    backoffs = Backoffs(1.0, 60.0)
    for seconds in (1.0, 2.0, 4.0):
        backoffs.fail("a", StorageError("down"))
        clock.now += seconds - 0.01
        assert backoffs.waiting() == {"a"}
        clock.now += 0.02
        assert backoffs.waiting() == set()
    assert list(backoffs.errors) == ["a"]
    backoffs.succeed("a")
    assert (len(backoffs), backoffs.errors) == (0, {})
    backoffs.fail("a", StorageError("down"))
    clock.now += 1.01
    assert backoffs.waiting() == set()


def test_blocked_name_waits_until_it_is_dropped(clock):
    backoffs = Backoffs(1.0, 60.0)
    backoffs.fail("a", StorageError("fenced"), block=True)
    backoffs.fail("b", StorageError("down"))
    clock.now += 10_000
    backoffs.expire()
    assert backoffs.waiting() == {"a"} == set(backoffs.blocked)
    assert "b" in backoffs
    backoffs.retain(backoffs.blocked)
    assert "b" not in backoffs
    backoffs.retain([])
    assert len(backoffs) == 0


def test_expire_ends_all_pauses(clock):
    backoffs = Backoffs(100.0, 100.0)
    backoffs.fail("a", StorageError("down"))
    backoffs.expire()
    assert backoffs.waiting() == set()
    assert list(backoffs.errors) == ["a"]
