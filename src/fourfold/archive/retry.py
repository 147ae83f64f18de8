"""Retries of object store calls, with exponential backoff.

Only errors that are marked retryable are retried. Object stores retry single requests themselves;
this handles what remains, and stays short: a caller with other work continues, and returns to the
failed call later.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from fourfold import limits
from fourfold.errors import FourfoldError

ARCHIVE_RETRY_PAUSE_S: Final = 0.05
ARCHIVE_RETRY_PAUSE_MAX_S: Final = 2.0
"""First and longest pause between two attempts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """Number of tries and first pause; each pause is about twice the previous one."""

    most: int = limits.ARCHIVE_RETRIES_MAX
    pause_s: float = ARCHIVE_RETRY_PAUSE_S

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, or raise its error after the last try."""
        for tried in range(self.most + 1):
            try:
                return call()
            except FourfoldError as error:
                if not error.retryable or tried == self.most:
                    raise
            time.sleep(self.pause(tried))
        raise AssertionError

    def pause(self, tried: int) -> float:
        """Return a pause with 50 % jitter, so that many callers do not retry together."""
        longest = min(self.pause_s * 2.0**tried, ARCHIVE_RETRY_PAUSE_MAX_S)
        return longest * (0.5 + random.random() / 2)  # noqa: S311 - nothing secret
