"""The checkpointer: moves the write-ahead log into the database file, off the commit path.

One daemon thread serves every database of the process. When a log has grown past the threshold, it
copies the pages on its own connection while writers continue. It then holds the writer's lock for
the small rest, so that the next commit restarts the log and the file stops growing. A reader with
an old read transaction can delay that; health reports it.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import weakref
from typing import Protocol

from fourfold.errors import FourfoldError

_log = logging.getLogger("fourfold.kernel")


class Checkpointable(Protocol):
    """A database that the checkpointer can serve."""

    def checkpoint_in_background(self) -> None:
        """Checkpoint the log. Called by the checkpointer's thread."""


_requests: queue.SimpleQueue[weakref.ref[Checkpointable]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_start = threading.Lock()
_busy = threading.Lock()
_FORK_WAIT_S = 5.0
"""Maximum time that a fork waits for a running checkpoint, which cannot end if the forking thread
itself holds the writer's lock.
"""


def request(database: Checkpointable) -> None:
    """Request a checkpoint of `database`; return at once."""
    global _thread  # noqa: PLW0603
    if _thread is None or not _thread.is_alive():
        with _start:
            if _thread is None or not _thread.is_alive():
                _thread = threading.Thread(target=_serve, name="fourfold-checkpoint", daemon=True)
                _thread.start()
    _requests.put(weakref.ref(database))


def _serve() -> None:
    while True:
        database = _requests.get()()
        if database is None:
            continue
        with _busy:
            try:
                database.checkpoint_in_background()
            except FourfoldError as error:
                # Nothing is lost: the log remains, and the next commit requests it again.
                _log.warning("checkpoint postponed: %s", error)
        del database


_paused: list[bool] = []


def _before_fork() -> None:
    """Wait for a running checkpoint: a child forked during it would inherit SQLite's locks, held by
    a thread that it does not have, and wait forever.
    """
    _paused.append(_busy.acquire(timeout=_FORK_WAIT_S))


def _after_fork() -> None:
    if _paused.pop():
        _busy.release()


def _after_fork_in_child() -> None:
    global _busy, _thread
    _paused.clear()
    _busy, _thread = threading.Lock(), None


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
