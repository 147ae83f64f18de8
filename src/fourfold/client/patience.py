"""How long a request is repeated, and with which pauses between.

Pauses grow, and are partly up to chance, so that clients which lost one server do not all come
back at the same moment. A server that says when to come back is believed, within reason.
"""

from __future__ import annotations

import random
import time

from fourfold import limits
from fourfold.errors import FourfoldError


class Patience:
    """The repetitions of one request."""

    def __init__(self, for_s: float | None) -> None:
        self._for_s = for_s
        self.restart()

    def restart(self) -> None:
        """It went well: the next failure is a first one again."""
        self._until: float | None = None
        self._pause = limits.CLIENT_BACKOFF_S

    def pause(self, error: FourfoldError) -> float:
        """How long to wait before the next try; the error itself when there is none."""
        if not error.retryable:
            raise error
        now = time.monotonic()
        if self._until is None:
            self._until = float("inf") if self._for_s is None else now + self._for_s
        left = self._until - now
        if left <= 0:
            raise error
        wanted = random.uniform(0.5, 1.0) * self._pause  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, limits.CLIENT_BACKOFF_S_MAX)
        if error.retry_after is not None:
            wanted = max(wanted, min(error.retry_after, limits.CLIENT_BACKOFF_S_MAX))
        return min(wanted, left)
