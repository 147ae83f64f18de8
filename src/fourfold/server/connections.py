"""The number of connections of a server, in all and from one address.

Proxies carry the connections of many clients: one on this machine, or one that is named in
`server.trusted_proxies`, has no limit but that of all. It has to limit its own clients. Addresses
of one IPv6 network (/64) count as one, since a single client has all of them.
"""

from __future__ import annotations

import ipaddress
from collections import Counter

from fourfold import limits

_NETWORK_BITS = 64


class Connections:
    """Counts connections. Each one that was let in has to leave."""

    def __init__(
        self,
        most: int = limits.HTTP_CONNECTIONS,
        per_address: int = limits.HTTP_CONNECTIONS_PER_ADDRESS,
        proxies: frozenset[str] = frozenset(),
    ) -> None:
        self._most = most
        self._per_address = per_address
        self._proxies = proxies
        self._by_source: Counter[str] = Counter()
        self.count = 0

    def enter(self, address: str | None) -> bool:
        """Count a connection from an address; False, and not counted, if it is one too many."""
        source = self._source(address)
        if self.count >= self._most or self._by_source[source or ""] >= self._per_address:
            return False
        self.count += 1
        if source is not None:
            self._by_source[source] += 1
        return True

    def leave(self, address: str | None) -> None:
        self.count -= 1
        source = self._source(address)
        if source is not None:
            self._by_source[source] -= 1
            if not self._by_source[source]:
                del self._by_source[source]

    def _source(self, address: str | None) -> str | None:
        """What a connection is counted under; None where there is no limit for one source."""
        if address is None or address in self._proxies:
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
        return None if parsed.is_loopback or str(parsed) in self._proxies else str(parsed)


def proxies(setting: str) -> list[str]:
    """The addresses in `server.trusted_proxies`."""
    return [] if setting == "none" else [each.strip() for each in setting.split(",")]
