# Generated from ../coroutines/store.py by `make generate`: change that file.
"""A store of a server, with the methods of `fourfold.Store`, for threads.

with RemoteStore("http://127.0.0.1:4437") as store:
    space = store.space("did:web:shop.example")
    space.set("order-1", {"total": 70})
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from fourfold import limits
from fourfold.client.threads.remote_graphs import RemoteGraphs
from fourfold.client.threads.remote_sessions import RemoteSessions
from fourfold.client.threads.remote_spaces import RemoteDocuments, RemoteSpace
from fourfold.client.threads.remote_streams import RemoteStreams
from fourfold.client.threads.streams import StreamClient


class RemoteStore:
    """A store of a server. Any number of threads may use it.

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
        self._client = StreamClient(
            url, key=key, timeout=timeout, retry_for=retry_for, verify=verify, headers=headers
        )
        self.documents = RemoteDocuments(self._client)
        """Spaces of the store."""
        self.streams = RemoteStreams(self._client)
        """Streams of the store."""
        self.graphs = RemoteGraphs(self._client)
        """Graphs of the store: apps with their types and objects."""
        self.sessions = RemoteSessions(self._client)
        """Sessions of the store: event logs, views, heads and payloads."""

    def space(self, did: str, history: str | None = None) -> RemoteSpace:
        """Open the space of documents with this DID, and create it if needed.

        `history` is the kind of history of a new space: "revisions" (the default) or "facts". An
        existing space keeps its own; a different value is refused.
        """
        return self.documents.create(did, history)

    def spaces(self) -> list[str]:
        """Return the DIDs of all spaces in this store, sorted."""
        return [did for did in self.documents]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; followers close their own."""
        self._client.close()

    def __repr__(self) -> str:
        return f"<Store at {self._client.settings.address.root}>"
