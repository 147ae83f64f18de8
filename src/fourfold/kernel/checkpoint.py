"""The checkpointer: folds the write-ahead log back into the database file, off the commit path.

One daemon thread serves every database of the process. When a log has grown past the threshold it
copies the pages back on a connection of its own while writers go on, and then takes the writer's
turn for the small rest, so that the next commit starts the log anew and the file stops growing. A
reader that holds an old snapshot can delay that; health reports it.
"""

from __future__ import annotations

import logging
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
        try:
            database.checkpoint_in_background()
        except FourfoldError as error:
            # Nothing is lost by a checkpoint that did not happen: the log is kept and the next
            # commit asks again.
            _log.warning("checkpoint put off: %s", error)
        del database
