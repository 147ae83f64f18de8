"""Staying awake for a moment after an answer, where that pays.

A client that waits for each answer has its next request ready some tens of microseconds later. To
put the thread to sleep until then, and to wake it up with its caches cold, can take longer than
that. So the event loop looks again and again for a short while before it sleeps. That is good only
while requests do come in that time: where they do not, the attempt is given up, and made again only
now and then. On a machine with one processor it is never made, since the client needs that one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from fourfold import limits

_TRUST_MAX = 16
_TRUST_LOST = 4
"""How far it is believed that the next request comes soon: one more for each that did, and so many
less for each that did not.
"""
_TRIED_ANEW = 64
"""Where it is not believed, one in so many answers is waited behind all the same."""


class Vigil:
    """Keeps the loop of one server awake."""

    def __init__(
        self,
        seconds: float = limits.HTTP_VIGIL_S,
        *,
        processors: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        found = os.cpu_count() if processors is None else processors
        self._seconds = seconds if (found or 1) > 1 else 0.0
        self._clock = clock
        self._until = 0.0
        self._watching = False
        self._trust = _TRUST_LOST
        self._passed = 0
        self.asked = False
        """Whether a request came since the last answer; whoever hears of one says so."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """An answer was given on `loop`, and nothing is left to do for its client."""
        if self._trust == 0:
            self._passed += 1
            if self._passed < _TRIED_ANEW:
                return
            self._passed = 0
        self.asked = False
        self._until = self._clock() + self._seconds
        if not self._watching and self._seconds:
            self._watching = True
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once in every turn of the loop, which does not sleep while this is to be called again."""
        if self.asked:
            self._trust = min(_TRUST_MAX, self._trust + 1)
        elif self._clock() < self._until:
            loop.call_soon(self._look, loop)
            return
        else:
            self._trust = max(0, self._trust - _TRUST_LOST)
        self._watching = False
