"""Pauses of the cyclic garbage collector."""

from __future__ import annotations

import gc
import threading


class _CollectorPause:
    """Pause the cyclic garbage collector while many long-lived objects are created.

    It would scan everything repeatedly and find nothing; a full collection visits every object of
    the process, and no other thread runs meanwhile. Pauses may overlap, in several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._pauses:
                self._was_on = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses and self._was_on:
                gc.enable()


gc_paused = _CollectorPause()
