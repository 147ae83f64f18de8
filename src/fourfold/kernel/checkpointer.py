"""The checkpointer: folds the write-ahead log back into the database file, off the commit path.

One daemon thread serves every database of the process. When a log has grown past the threshold it
copies the pages back on a connection of its own while writers go on, and then takes the writer's
turn for the small rest, so that the next commit starts the log anew and the file stops growing. A
reader that holds an old snapshot can delay that; health reports it.
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
    def checkpoint_in_background(self) -> None: ...


_requests: queue.SimpleQueue[weakref.ref[Checkpointable]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_start = threading.Lock()
_at_work = threading.Lock()
_FORK_WAIT_S = 5.0
"""How long a fork waits for a checkpoint under way. One that cannot end, since the forking thread
itself holds the writer's turn, is not waited for any longer.
"""


def request(database: Checkpointable) -> None:
    """Ask for a checkpoint of `database` soon; returns at once."""
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
        with _at_work:
            try:
                database.checkpoint_in_background()
            except FourfoldError as error:
                # Nothing is lost by a checkpoint that did not happen: the log is kept and the next
                # commit asks again.
                _log.warning("checkpoint put off: %s", error)
        del database


_paused: list[bool] = []


def _before_fork() -> None:
    """A child that is forked while this thread is inside of SQLite would find SQLite's own locks
    taken, by a thread that it does not have, and wait for ever.
    """
    _paused.append(_at_work.acquire(timeout=_FORK_WAIT_S))


def _after_fork() -> None:
    if _paused.pop():
        _at_work.release()


def _after_fork_in_child() -> None:
    global _at_work, _thread
    _paused.clear()
    _at_work, _thread = threading.Lock(), None


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
