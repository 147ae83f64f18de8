"""Calls on an object store that may fail for a moment: tried again, after longer and longer
pauses.

Only what the error tree calls retryable is tried again. The stores repeat single requests
themselves; this is for what a store gave up on, and keeps short: a caller that has more to do goes
on, and comes back to what failed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fourfold import limits
from fourfold.errors import FourfoldError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and after what first pause; each pause is twice the one before, about."""

    most: int = limits.ARCHIVE_RETRIES_MAX
    pause_s: float = limits.ARCHIVE_RETRY_PAUSE_S

    def run(self, call: Callable[[], T]) -> T:
        """What `call` returns; its error, once it failed often enough."""
        for tried in range(self.most + 1):
            try:
                return call()
            except FourfoldError as error:
                if not error.retryable or tried == self.most:
                    raise
            time.sleep(self.pause(tried))
        raise AssertionError

    def pause(self, tried: int) -> float:
        """A pause of which half is up to chance, so that many callers do not come back as one."""
        longest = min(self.pause_s * 2.0**tried, limits.ARCHIVE_RETRY_PAUSE_MAX_S)
        return longest * (0.5 + random.random() / 2)  # noqa: S311 - nothing secret
