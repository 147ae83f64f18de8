"""Retries of failed calls, with exponential backoff.

`Retries` is the policy: how often, for how long, and with which pauses. `Retries.run` applies it to
a blocking call. A loop of its own, such as one of coroutines, asks `Attempts` for each pause.
`Backoffs` is for work in rounds, which continues with other names while one of them waits.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fourfold.errors import FourfoldError

T = TypeVar("T")


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Return the pause after a number of failures: it doubles with each, up to the longest."""
    return min(first_s * 2.0 ** min(failures - 1, 64), longest_s)


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy of a failed call: attempts, time limit and pauses.

    Args:
        most: Maximum number of retries; None for no maximum.
        pause_s: First pause in seconds; each further one is twice as long.
        pause_max_s: Longest pause.
        within_s: Seconds after the first failure during which retries start; None for no limit.
        jitter: Random share of each pause, so that many callers do not retry together.
        on: Errors to retry; by default those that are marked retryable.
    """

    most: int | None = 2
    pause_s: float = 0.05
    pause_max_s: float = 2.0
    within_s: float | None = None
    jitter: float = 0.5
    on: type[Exception] | None = None

    @classmethod
    def every(
        cls,
        pause_s: float,
        *,
        on: type[Exception] | None = None,
        most: int | None = None,
        within_s: float | None = None,
    ) -> Retries:
        """Return a policy with equal pauses, for a resource that is free soon."""
        return cls(most, pause_s, pause_s, within_s, 0.0, on)

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, or raise its error after the last retry."""
        attempts = Attempts(self)
        while True:
            try:
                return call()
            except Exception as error:  # noqa: BLE001 - `pause` raises what is not retried
                pause = attempts.pause(error)
            time.sleep(pause)

    def is_retryable(self, error: Exception) -> bool:
        """Return True if the policy retries this error."""
        if self.on is not None:
            return isinstance(error, self.on)
        return isinstance(error, FourfoldError) and error.retryable


class Attempts:
    """The attempts at one call."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self.restart()

    def restart(self) -> None:
        """Reset the pauses and the deadline after a success."""
        self.failures = 0
        self._first_failure = 0.0

    def pause(self, error: Exception) -> float:
        """Return the seconds until the next attempt, or raise the error if there is none."""
        seconds = self.next_pause() if self._retries.is_retryable(error) else None
        if seconds is None:
            raise error
        retry_after = error.retry_after if isinstance(error, FourfoldError) else None
        if retry_after is None:
            return seconds
        longest = min(self._retries.pause_max_s, self._left_s())
        return min(max(seconds, retry_after), longest)

    def next_pause(self) -> float | None:
        """Count a failure, and return the seconds until the next attempt; None if there is none."""
        retries = self._retries
        if self.failures == 0:
            self._first_failure = time.monotonic()
        self.failures += 1
        left = self._left_s()
        if left <= 0 or (retries.most is not None and self.failures > retries.most):
            return None
        seconds = pause_after(self.failures, retries.pause_s, retries.pause_max_s)
        return min(seconds * (1 - retries.jitter * random.random()), left)  # noqa: S311 - no secret

    def _left_s(self) -> float:
        within = self._retries.within_s
        return float("inf") if within is None else self._first_failure + within - time.monotonic()


class Backoff(NamedTuple):
    """Last failure of a name, its consecutive failures, and the time of the next attempt."""

    until: float
    failures: int
    error: FourfoldError

    @property
    def is_blocked(self) -> bool:
        """True if it is not retried automatically."""
        return self.until == float("inf")


class Backoffs:
    """Names that failed in a round of work, each with its own pause."""

    def __init__(self, pause_s: float, pause_max_s: float) -> None:
        self._pause_s = pause_s
        self._pause_max_s = pause_max_s
        self._backoffs: dict[str, Backoff] = {}

    def __len__(self) -> int:
        return len(self._backoffs)

    def __contains__(self, name: str) -> bool:
        return name in self._backoffs

    @property
    def errors(self) -> dict[str, FourfoldError]:
        """The last error of each name that has not succeeded since."""
        return {name: backoff.error for name, backoff in list(self._backoffs.items())}

    @property
    def blocked(self) -> dict[str, FourfoldError]:
        """The errors of names that are not tried again by themselves."""
        return {
            name: backoff.error
            for name, backoff in list(self._backoffs.items())
            if backoff.is_blocked
        }

    def waiting(self) -> set[str]:
        """Return the names that are not to be tried now."""
        now = time.monotonic()
        return {name for name, backoff in self._backoffs.items() if backoff.until > now}

    def fail(
        self,
        name: str,
        error: FourfoldError,
        *,
        pause_s: float | None = None,
        block: bool = False,
    ) -> None:
        """Record a failure. With `block`, the name waits until `clear`."""
        before = self._backoffs.get(name)
        failures = 1 if before is None else before.failures + 1
        first_s = self._pause_s if pause_s is None else pause_s
        pause = float("inf") if block else pause_after(failures, first_s, self._pause_max_s)
        self._backoffs[name] = Backoff(time.monotonic() + pause, failures, error)

    def succeed(self, name: str) -> None:
        """Record a success."""
        self._backoffs.pop(name, None)

    def retain(self, names: Iterable[str]) -> None:
        """Drop all names but these."""
        kept = set(names)
        self._backoffs = {name: backoff for name, backoff in self._backoffs.items() if name in kept}

    def expire(self) -> None:
        """End all pauses now, except those of blocked names."""
        for name, backoff in list(self._backoffs.items()):
            if not backoff.is_blocked:
                self._backoffs[name] = backoff._replace(until=0.0)
