"""The store of a server: `fourfold.connect`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from fourfold import limits
from fourfold.client.threads.store import RemoteStore


def connect(
    url: str,
    key: str | None = None,
    *,
    timeout: float = limits.CLIENT_TIMEOUT_S,
    retry_for: float | None = limits.CLIENT_RETRY_S,
    verify: bool | str | Path | ssl.SSLContext = True,
    headers: Mapping[str, str] | None = None,
) -> RemoteStore:
    """Return the store of a server, with the methods of the store of `fourfold.open`.

        with fourfold.connect("http://127.0.0.1:4437") as store:
            store.streams.create("clicks", "application/json").append({"id": 1})

    Nothing is sent yet. Calls, results and errors are those of a local store, so the same program
    runs on a folder and on a server. It requires the extra `client`. For coroutines there is
    `fourfold.client.AsyncRemoteStore`.

    Args:
        url: Address of the server, such as `http://127.0.0.1:4437`.
        key: API key, if the server requires one.
        timeout: Seconds to wait for a response.
        retry_for: Seconds for which a request that is safe to repeat is retried while the server is
            unreachable or busy; None retries forever.
        verify: Trusted certificates: True for the usual ones, a file, a context, or False for any.
        headers: Headers to send with every request.
    """
    return RemoteStore(
        url, key, timeout=timeout, retry_for=retry_for, verify=verify, headers=headers
    )
