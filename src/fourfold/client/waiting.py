"""One who waits for changes at a server, request after request.

A server lets a request wait for so long only, and connections break. With the cursor of the last
answer the next request goes on where it ended, so no change is missed. One who comes without a
cursor asks for it first, and then waits: if it waited at once and the connection broke, it would
begin anew at a later end of the stream, and never be told of what came in between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from fourfold import limits
from fourfold.client import rules
from fourfold.client.answers import Answer
from fourfold.client.calls import Address, Call
from fourfold.errors import InvalidInput
from fourfold.models.streams.touch.records import Key, Touched

# The client gives up on a silent connection after CLIENT_LIVE_TIMEOUT_S; the answer comes before.
_ONE_REQUEST_S = limits.CLIENT_LIVE_TIMEOUT_S / 2


class TouchWaiting:
    """Ask for the next `call` until `take` finds that the wait is over."""

    def __init__(
        self,
        address: Address,
        name: str,
        keys: Sequence[Key],
        cursor: str | None,
        timeout: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if timeout is not None and not 0 <= timeout < math.inf:
            raise InvalidInput(f"a wait takes a number of seconds from 0 on, not {timeout!r:.80}")
        if isinstance(keys, tuple) and hasattr(keys, "_fields"):
            raise InvalidInput("the keys of a wait are a list", hint=f"Wait for [{keys!r:.80}].")
        self._address = address
        self._name = name
        self._keys = list(keys)
        self._cursor = cursor
        self._clock = clock
        self._until = math.inf if timeout is None else clock() + timeout

    def call(self) -> Call:
        """The next request."""
        pause = 0.0 if self._cursor is None else min(max(self._left_s(), 0.0), _ONE_REQUEST_S)
        # Rounded up, or the last moment would be spent on requests that do not wait.
        return rules.touch_wait(
            self._address, self._name, self._keys, self._cursor, math.ceil(1000 * pause)
        )

    def take(self, answer: Answer) -> Touched | None:
        """What became of the wait; None when it goes on."""
        told = rules.touched_of(answer)
        self._cursor = told.cursor
        return told if told.touched or told.stale or self._left_s() <= 0 else None

    def _left_s(self) -> float:
        return self._until - self._clock()
