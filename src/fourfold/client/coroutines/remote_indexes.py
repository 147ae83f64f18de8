"""Declared indexes of a space of a server, with the methods of a local space, for coroutines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from fourfold.client import documents
from fourfold.client.coroutines.connection import AsyncConnection
from fourfold.client.find import FindCalls, to_index
from fourfold.client.requests import Call
from fourfold.errors import DeadlineExceeded
from fourfold.models.documents.indexes.declaration import (
    HistoryScope,
    IndexInfo,
    IndexKindName,
)
from fourfold.models.documents.indexes.indexes import check_index
from fourfold.tabular import Rows
from fourfold.wire import find as wire

_WAIT_S = 0.1


class AsyncRemoteIndexes:
    """The declared indexes of one space of a server, with the methods of a local space."""

    def __init__(self, connection: AsyncConnection, calls: FindCalls) -> None:
        self._connection = connection
        self._calls = calls

    async def create(
        self,
        name: str,
        path: str | Sequence[str],
        *,
        unique: bool = False,
        history: HistoryScope = "all",
        kind: IndexKindName = "value",
    ) -> IndexInfo:
        """Declare an index over a path of the documents, or over several.

        Commits maintain it from now on. Documents that exist are indexed in the background, unless
        they are few; until then its `state` is "building".

        Args:
            name: The name of the index.
            path: A JSON Pointer, or several for a composite key. `*` stands for every item of an
                array. Documents without a scalar at the path have no entry.
            unique: Refuse commits that give an entity a value that another entity has.
            history: "all" to query every seq and branch, "now" for the newest state of the default
                branch only, which takes less space.
            kind: "value" for `find`, "text" for the words of the strings at the paths: `search` and
                `$text`; or "vector" for the array of numbers at the path: `search(vector=...)`.

        Raises:
            AlreadyExists: There is an index of that name.
        """
        paths, _ = check_index(name, path, unique=unique, history=history, kind=kind)
        call = self._calls.create_index(name, paths, unique=unique, history=history, kind=kind)
        return await self._send(call)

    async def list(self) -> Rows[IndexInfo]:
        """Return the declared indexes, sorted by name."""
        response = await self._connection.send(self._calls.indexes())
        page = documents.parse(response, wire.IndexPage)
        return Rows(map(to_index, page.items), IndexInfo)

    async def get(self, name: str) -> IndexInfo:
        """Return a declared index.

        Raises:
            NotFound: There is no index of that name.
        """
        return await self._send(self._calls.index(name))

    async def drop(self, name: str) -> None:
        """Drop an index. Its entries are deleted in the background.

        Raises:
            NotFound: There is no index of that name.
        """
        await self._connection.send(self._calls.index(name, "DELETE"))

    async def rebuild(self, name: str) -> IndexInfo:
        """Delete the entries of an index and build them again.

        Raises:
            NotFound: There is no index of that name.
        """
        return await self._send(self._calls.rebuild_index(name))

    async def wait(self, name: str, timeout_s: float = 60.0) -> IndexInfo:
        """Wait until an index is built; return it.

        Raises:
            NotFound: There is no index of that name.
            DeadlineExceeded: It is still being built after `timeout_s` seconds.
        """
        until = time.monotonic() + timeout_s
        while (info := await self.get(name)).state == "building":
            if time.monotonic() >= until:
                raise DeadlineExceeded(f"index {name!r} is still being built")
            await asyncio.sleep(_WAIT_S)
        return info

    async def _send(self, call: Call) -> IndexInfo:
        response = await self._connection.send(call)
        return to_index(documents.parse(response, wire.IndexRow))
