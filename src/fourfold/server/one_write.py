"""The head of an answer leaves together with the first piece of its body.

uvicorn writes them one after the other, and each write is a call of the system, a packet, and for
a reader who waits a time to be woken for nothing. So the head is held back until the body comes. It
never comes later than the next turn of the loop: an answer whose body is not there yet begins
nevertheless.
"""

from __future__ import annotations

import asyncio


class OneWrite:
    """What an answer is written to: the transport of its connection, but for the head."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = b""
        """What is held back; None from when that was written."""

    def write(self, data: bytes) -> None:
        head = self._head
        if head is None:
            self._transport.write(data)
        elif head:
            self._head = None
            self._transport.write(head + data)
        else:
            self._head = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, None
            self._transport.write(head)
