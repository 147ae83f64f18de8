"""Deadlines of connections: a client that is too slow must not hold one for ever.

One timer looks at all connections once a second. A head must come within a time, a body must keep
coming at some speed, a connection that says nothing is ended after the time of an idle one, and one
whose client takes nothing of what it is sent is cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from enum import Enum
from typing import Final
from typing import Protocol as Interface

from fourfold import limits

_COUNT: Final = struct.Struct("i")
_NO_COUNT: Final = _COUNT.pack(0)


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
    transport: asyncio.Transport
    unsent: int
    """Bytes that were waiting to be sent at the last look."""
    taken_at: float
    """When the client last took some of them, or none were waiting."""

    def give_up(self) -> None: ...


class Patience:
    """Looks at the connections of one server. `now` is the time of its last look."""

    def __init__(
        self,
        *,
        every_s: float = limits.HTTP_LOOK_S,
        write_stall_s: float = limits.HTTP_WRITE_STALL_S,
    ) -> None:
        self.now = 0.0
        self._every_s = every_s
        self._write_stall_s = write_stall_s
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
        for connection in list(self._watched):
            if self._is_stalled(connection):
                # What is waiting would keep it open, however it is closed.
                connection.transport.abort()
            elif self.now > _until(connection):
                connection.give_up()
        self._timer = loop.call_later(self._every_s, self._look, loop)

    def _is_stalled(self, connection: Watched) -> bool:
        """Return True if a client has taken nothing of what was waiting for it, for too long. While
        more than fits is waiting nothing is added to it, so it gets less, or writing was resumed.
        """
        unsent = connection.transport.get_write_buffer_size()
        if unsent:
            unsent += _in_the_kernel(connection.transport)
        if not unsent or unsent < connection.unsent:
            connection.taken_at = self.now
        connection.unsent = unsent
        return self.now - connection.taken_at > self._write_stall_s


def _in_the_kernel(transport: asyncio.Transport) -> int:
    """Count the bytes that the kernel has still to send: it takes in more only once a third of
    them, up to megabytes, has left.
    """
    sock = transport.get_extra_info("socket")
    try:
        return int(_COUNT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _NO_COUNT))[0])
    except (OSError, AttributeError):
        # Not on this system. Then a reader has to be so fast that the kernel takes more in time.
        return 0


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
