"""The spaces that a server has open: a bounded number of databases.

A space is opened by the first request for it, and stays open while requests use it. When there are
too many, the one that was idle the longest is closed, and its database can be written by another
process again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType
from typing import Final

from fourfold.errors import NotFound
from fourfold.models.documents import Space
from fourfold.server.workers import Workers
from fourfold.store import Store

OPEN_SPACES_MAX: Final = 256


class _OpenSpace:
    __slots__ = ("space", "users")

    def __init__(self, space: Space) -> None:
        self.space = space
        self.users = 0


class OpenSpaces:
    """Open spaces of one store: `async with spaces.use(did) as space`."""

    def __init__(self, store: Store, workers: Workers, *, limit: int = OPEN_SPACES_MAX) -> None:
        self._store = store
        self._workers = workers
        self._limit = limit
        self._entries: OrderedDict[str, _OpenSpace] = OrderedDict()
        self._changing = asyncio.Lock()

    def use(self, did: str) -> SpaceUse:
        """Return a context in which the space stays open; entering it raises NotFound."""
        return SpaceUse(self, did)

    async def create(self, did: str, history: str | None) -> bool:
        """Create a space; return False if it exists with that history.

        Raises:
            Refused: it exists with another kind of history.
        """
        async with self._changing:
            exists = self._store.has_space(did)
            await self._open(did, history)
        return not exists

    async def acquire(self, did: str) -> Space:
        """Return a space that stays open until `release`."""
        entry = self._entries.get(did)
        if entry is None:
            async with self._changing:
                entry = self._entries.get(did)
                if entry is None:
                    if not self._store.has_space(did):
                        raise NotFound(f"unknown space {did!r}", details={"did": did})
                    entry = await self._open(did)
                entry.users += 1
                return entry.space
        self._entries.move_to_end(did)
        entry.users += 1
        return entry.space

    def release(self, did: str) -> None:
        """End the use of a space."""
        self._entries[did].users -= 1

    async def _open(self, did: str, history: str | None = None) -> _OpenSpace:
        space = await self._workers.run(self._store.space, did, history)
        entry = self._entries.get(did)
        if entry is None:
            await self._close_idle()
            entry = self._entries[did] = _OpenSpace(space)
        return entry

    async def _close_idle(self) -> None:
        """Close spaces until there is room for one more; those in use stay."""
        while len(self._entries) >= self._limit:
            idle = (did for did, entry in self._entries.items() if not entry.users)
            did = next(idle, None)
            if did is None:
                return
            del self._entries[did]
            await self._workers.run(self._store.release, did)


class SpaceUse:
    """The use of a space by one request."""

    __slots__ = ("_did", "_spaces")

    def __init__(self, spaces: OpenSpaces, did: str) -> None:
        self._spaces = spaces
        self._did = did

    async def __aenter__(self) -> Space:
        return await self._spaces.acquire(self._did)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._spaces.release(self._did)
