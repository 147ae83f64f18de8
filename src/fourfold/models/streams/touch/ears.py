"""Who listens for which stream, and whether it rang since somebody looked.

The coroutines that wait at one stream are woken together. One of them looks at the stream; that it
has not rung since tells the others that they need not. So an append costs one look, however many
wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from fourfold.kernel import Bell, Ear


class _Listening:
    """Those who listen for one stream."""

    def __init__(self) -> None:
        self.ears: set[Ear] = set()
        self.stamp = object()
        """Another one after each ring."""
        self.calling: AbstractContextManager[None] | None = None


class Ears:
    """Those who listen for streams."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._listening: dict[str, _Listening] = {}
        self._change = threading.Lock()

    def stamp(self, name: str) -> object | None:
        """A mark to take before a look: while it is the same, the stream has not rung. None when
        nobody listens.
        """
        found = self._listening.get(name)
        return None if found is None else found.stamp

    @contextmanager
    def heard(self, name: str) -> Iterator[Ear]:
        """For a coroutine: what hears the stream while the block lasts."""
        ear = Ear(asyncio.get_running_loop())
        with self._change:
            listening = self._listening.setdefault(name, _Listening())
            listening.ears.add(ear)
            if listening.calling is None:

                def ring(_said: object) -> None:
                    self._ring(listening)

                listening.calling = self._bell.calling(ring, name)
                listening.calling.__enter__()
        try:
            yield ear
        finally:
            with self._change:
                listening.ears.discard(ear)
                if not listening.ears:
                    del self._listening[name]
                    listening.calling.__exit__(None, None, None)

    def _ring(self, listening: _Listening) -> None:
        with self._change:
            # First: whoever is woken must find that it has rung.
            listening.stamp = object()
            ears = tuple(listening.ears)
        for ear in ears:
            ear.ring()
