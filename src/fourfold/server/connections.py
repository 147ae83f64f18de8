"""Limits on the number of connections, in total, per address, and of those that end at a time.

Proxies carry the connections of many clients: one on this machine, or one listed in
`server.trusted_proxies`, has only the total limit, and must limit its own clients. Addresses of one
IPv6 network (/64) count as one, since a single client has all of them.

When thousands of readers disconnect at once, the requests of a few end in each iteration of the
event loop, so that others are served in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from fourfold import limits

DISCONNECTS_PER_ITERATION: Final = 16
"""Requests that end in one iteration of the event loop because their clients disconnected."""
_NETWORK_BITS = 64
_SOURCES_CACHED = 4_096


class Connections:
    """Count connections. Each one that entered must leave."""

    def __init__(
        self,
        total: int = limits.HTTP_CONNECTIONS,
        per_address: int = limits.HTTP_CONNECTIONS_PER_ADDRESS,
        proxies: frozenset[str] = frozenset(),
    ) -> None:
        self._total = total
        self._per_address = per_address
        self._proxies = proxies
        self._by_source: Counter[str] = Counter()
        self.count = 0
        self.refused = 0
        """Connections that were refused."""

    def enter(self, address: str | None) -> bool:
        """Count a connection from an address; return False, without counting, if there are too
        many.
        """
        source = self._source(address)
        if self.count >= self._total or self._by_source[source or ""] >= self._per_address:
            self.refused += 1
            return False
        self.count += 1
        if source is not None:
            self._by_source[source] += 1
        return True

    def leave(self, address: str | None) -> None:
        """Stop counting a connection."""
        self.count -= 1
        source = self._source(address)
        if source is not None:
            self._by_source[source] -= 1
            if not self._by_source[source]:
                del self._by_source[source]

    def _source(self, address: str | None) -> str | None:
        """Return the key to count a connection under, or None if only the total limit applies."""
        return None if address is None else _find_source(address, self._proxies)


class Disconnects:
    """Ends the requests of lost connections, a few in each iteration of an event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = DISCONNECTS_PER_ITERATION
        """How many may still end in this iteration."""
        self._is_scheduled = False

    def add(self, end: Callable[[], None]) -> None:
        """Call `end` now, or in one of the next iterations if there were too many in this one."""
        if self._left > 0 and not self._waiting:
            self._left -= 1
            end()
        else:
            self._waiting.append(end)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._left = DISCONNECTS_PER_ITERATION
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._begin_iteration)
        while self._left > 0 and self._waiting:
            self._left -= 1
            self._waiting.popleft()()


@lru_cache(maxsize=_SOURCES_CACHED)
def _find_source(address: str, proxies: frozenset[str]) -> str | None:
    """Return the key of an address, or None for a proxy.

    Cached: thousands of connections may end in one iteration of the event loop.
    """
    if address in proxies:
        return None
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            network = ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False)
            return None if parsed.is_loopback else str(network)
        parsed = parsed.ipv4_mapped
    return None if parsed.is_loopback or str(parsed) in proxies else str(parsed)


class ForwardedAddresses:
    """Addresses of clients as trusted proxies state them, for requests that are not ASGI's.

    uvicorn's middleware decides here too, so that all requests of a client have one address.
    """

    def __init__(self, trusted: list[str]) -> None:
        self._middleware: Any = None
        if trusted:
            from uvicorn.middleware.proxy_headers import (  # noqa: PLC0415 - an extra
                ProxyHeadersMiddleware,
            )

            self._middleware = ProxyHeadersMiddleware(_end, trusted)

    def find(self, peer: str | None, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Return the address of the client of a request that came from `peer`."""
        if self._middleware is None or peer is None:
            return peer
        scope = {"type": "http", "scheme": "http", "client": (peer, 0), "headers": headers}
        # The middleware changes the scope and calls `_end`: nothing in it waits.
        with suppress(StopIteration):
            self._middleware(scope, None, None).send(None)
        return str(scope["client"][0])


async def _end(_scope: Any, _receive: Any, _send: Any) -> None:
    """Do nothing; an ASGI application for the middleware."""


def proxies(setting: str) -> list[str]:
    """Parse `server.trusted_proxies` into addresses."""
    return [] if setting == "none" else [address.strip() for address in setting.split(",")]
