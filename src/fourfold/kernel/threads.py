"""Threads for commits that are too slow for an event loop; shared by all databases of the process.

A forked child does not inherit running threads, only the belief in them, so it starts its own.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from fourfold.limits import COMMIT_THREADS

_threads: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def commit_threads() -> ThreadPoolExecutor:
    global _threads  # noqa: PLW0603
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="fourfold-commit")
        return _threads


def _after_fork_in_child() -> None:
    global _threads, _lock  # noqa: PLW0603
    _threads = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
