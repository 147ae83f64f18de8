"""How long a client may take to send a request: slow ones must not hold connections for ever.

One timer looks at all connections once a second. A head must come within a time, a body must keep
coming at some speed, and a connection that says nothing is ended after the time of an idle one.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol as Interface

from fourfold import limits


class Phase(Enum):
    """What a connection is in the middle of."""

    FRESH = "nothing came yet"
    HEAD = "a request has begun"
    BODY = "its body is on the way"
    BUSY = "it is being answered"
    IDLE = "it was answered"


class Watched(Interface):
    """A connection: its phase, since when, and how much of a body came."""

    phase: Phase
    since: float
    received: int

    def give_up(self) -> None: ...


class Patience:
    """Looks at the connections of one server. `now` is the time of its last look."""

    def __init__(self, *, every_s: float = limits.HTTP_LOOK_S) -> None:
        self.now = 0.0
        self._every_s = every_s
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: Watched) -> float:
        """From now on look at a connection; the time."""
        self._watched.add(connection)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self.now = loop.time()
            self._timer = loop.call_later(self._every_s, self._look, loop)
        return self.now

    def forget(self, connection: Watched) -> None:
        self._watched.discard(connection)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._watched:
            return
        self.now = loop.time()
        for connection in [each for each in self._watched if self.now > _until(each)]:
            connection.give_up()
        self._timer = loop.call_later(self._every_s, self._look, loop)


def _until(connection: Watched) -> float:
    phase, since = connection.phase, connection.since
    if phase is Phase.BUSY:
        return float("inf")
    if phase is Phase.HEAD:
        return since + limits.HTTP_HEAD_S
    if phase is Phase.BODY:
        rate = limits.HTTP_BODY_BYTES_PER_S_MIN
        return since + limits.HTTP_BODY_S + connection.received / rate
    return since + limits.HTTP_KEEP_ALIVE_S
