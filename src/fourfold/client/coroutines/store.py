"""A store of a server, with the methods of `fourfold.Store`, for coroutines.

async with AsyncRemoteStore("http://127.0.0.1:4437") as store:
    orders = await store.streams.create("orders", "application/json")
    await orders.append({"id": 1})
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from fourfold import limits
from fourfold.client.coroutines.remote_streams import AsyncRemoteStreams
from fourfold.client.coroutines.streams import AsyncStreamClient


class AsyncRemoteStore:
    """A store of a server. It belongs to one event loop.

    Args:
        url: Address of the server, such as `http://127.0.0.1:4437`.
        key: API key, if the server requires one.
        timeout: Seconds to wait for a response.
        retry_for: Seconds for which a request that is safe to repeat is retried while the server is
            unreachable or busy; None retries forever.
        verify: Trusted certificates: True for the usual ones, a file, a context, or False for any.
        headers: Headers to send with every request.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = limits.CLIENT_TIMEOUT_S,
        retry_for: float | None = limits.CLIENT_RETRY_S,
        verify: bool | str | Path | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._client = AsyncStreamClient(
            url, key=key, timeout=timeout, retry_for=retry_for, verify=verify, headers=headers
        )
        self.streams = AsyncRemoteStreams(self._client)
        """Streams of the store."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; followers close their own."""
        await self._client.close()

    def __repr__(self) -> str:
        return f"<Store at {self._client.settings.address.root}>"
