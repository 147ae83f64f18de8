"""The sessions of a store, opened by the first request that needs them.

Opening may create the database or migrate it, so it is done by a worker.
"""

from __future__ import annotations

from fourfold.models.sessions import Sessions
from fourfold.server.workers import Workers
from fourfold.store import Store


class OpenSessions:
    """Opens the sessions of a store once."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self.store = store
        self._workers = workers
        self._sessions: Sessions | None = None

    async def get(self) -> Sessions:
        """Return the sessions."""
        if self._sessions is None:
            # Two requests may do this at the same time: the store opens them once.
            self._sessions = await self._workers.write(lambda: self.store.sessions)
        return self._sessions
