"""Work on sessions that a server does in the background, on one thread with low priority."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Self

from fourfold.errors import FourfoldError
from fourfold.kernel.pauses import lower_thread_priority
from fourfold.models.sessions.model import MODEL
from fourfold.store import Store

SESSION_UPKEEP_EVERY_S: Final = 1.0
"""Interval at which new events are looked for."""
RETENTION_EVERY_S: Final = 600.0
"""Interval at which stored retention policies are applied."""
_INDEXED: Final = 5_000
"""Events that are indexed without a check whether the server stops."""

_log = logging.getLogger("fourfold.server")


class SessionUpkeep:
    """Index the words of new events, and apply stored retention policies, periodically."""

    def __init__(self, store: Store, every_s: float = SESSION_UPKEEP_EVERY_S) -> None:
        self._store = store
        self._every_s = every_s
        self._retention_due = 0.0
        self._stop, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="fourfold-session-upkeep", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def wait_round(self, timeout_s: float) -> bool:
        """Wait until all work that was due has been done once; return False after the timeout."""
        return self._done.wait(timeout_s)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        lower_thread_priority()
        while not self._stop.wait(self._every_s):
            try:
                self._round()
                self._done.set()
            except FourfoldError as error:
                # The next round tries again, and so does a search.
                _log.warning("The upkeep of sessions failed: %s", error.message)
            except Exception:  # noqa: BLE001  (reported; the thread continues)
                _log.exception("The upkeep of sessions failed")

    def _round(self) -> None:
        # A store without sessions is not given a database.
        if not MODEL.location.names(self._store.root):
            return
        sessions = self._store.sessions
        if time.monotonic() >= self._retention_due:
            self._retention_due = time.monotonic() + RETENTION_EVERY_S
            for prefix, report in sessions.apply_stored_retentions().items():
                if report.deleted:
                    _log.info("Deleted %d sessions of the prefix %r", report.deleted, prefix)
        while sessions.index_texts(_INDEXED).left and not self._stop.is_set():
            pass
