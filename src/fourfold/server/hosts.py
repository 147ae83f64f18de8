"""Host names that the server accepts in the Host header of a request.

A web page can point its own name at this machine and reach a server here as if it were of the same
origin (DNS rebinding). A server that requires no key therefore accepts only names that always
mean this machine, and those in `server.hosts`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

from fourfold.errors import HostRefused, InvalidConfig

_NAME: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.?)+|\[[0-9a-f:.]+\]")
_PORT: Final = re.compile(r":[0-9]*\Z")


class Hosts:
    """Accepted hosts of one server, from the setting: auto, any, or comma-separated names."""

    def __init__(self, setting: str = "any") -> None:
        self._setting = setting
        self._names = frozenset[str]()
        if setting not in {"auto", "any"}:
            self._names = frozenset(_name(part.strip()) for part in setting.split(","))
            for name in self._names:
                if not _NAME.fullmatch(name):
                    raise InvalidConfig(
                        f"server.hosts: must be auto, any or host names, got {name!r}",
                        hint="Separate names by commas, as in streams.example.org, localhost.",
                    )

    def allows(self, host: str | None, *, is_open: bool) -> bool:
        """Return True if a request with this Host is accepted; `is_open` means that no key is
        required.
        """
        if self._setting == "any" or (self._setting == "auto" and not is_open):
            return True
        return host is not None and (_is_local(host) or _name(host) in self._names)

    def check(self, host: str | None, *, is_open: bool) -> None:
        """Raise HostRefused if a request with this Host is not accepted."""
        if not self.allows(host, is_open=is_open):
            raise HostRefused(
                f"host {host!r:.200}: not accepted by this server",
                hint="Use localhost, or add the name to server.hosts.",
            )


def _name(host: str) -> str:
    return _PORT.sub("", host).lower().removesuffix(".")


@lru_cache(maxsize=256)
def _is_local(host: str) -> bool:
    """Return True for names and addresses that always mean this machine."""
    name = _name(host)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
