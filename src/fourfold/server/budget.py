"""Memory for the bodies of requests: bytes that are being received, over all connections.

A body counts from its first part until the request is handed over, and no key may have more than a
part of the budget. So neither many clients nor one key can fill the memory of a server.
"""

from __future__ import annotations

from typing import Final

from fourfold import limits
from fourfold.errors import Busy

ANONYMOUS: Final = ""
"""Requests that need no key, on a server that asks for keys, share one part."""


class BodyBudget:
    """Bytes of bodies that one server holds."""

    def __init__(self, total: int = limits.HTTP_BODY_BYTES_IN_FLIGHT) -> None:
        self.total = total
        self.share = int(total * limits.HTTP_BODY_SHARE)
        self.held = 0
        self._by_owner: dict[str, int] = {}

    def lease(self, owner: str | None) -> Lease:
        """Return a lease for one body; without an owner (no key is needed) no share limits it."""
        return Lease(self, owner)

    def change(self, owner: str | None, size: int) -> None:
        """Add to what an owner holds, or take away from it; Busy if that is too much."""
        if owner is None:
            held = self.held
            most = self.total
        else:
            held = self._by_owner.get(owner, 0)
            most = self.share
        if size > 0 and (held + size > most or self.held + size > self.total):
            raise Busy(
                f"bodies under way: cannot hold {size} more bytes, got {held} of {most}",
                hint="Send the request again later, or send fewer at once.",
                retry_after=limits.RETRY_AFTER_S,
            )
        self.held += size
        if owner is not None:
            self._by_owner[owner] = held + size
            if not held + size:
                del self._by_owner[owner]


class Lease:
    """What one body holds of a budget."""

    __slots__ = ("_budget", "_held", "_owner")

    def __init__(self, budget: BodyBudget, owner: str | None) -> None:
        self._budget = budget
        self._owner = owner
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold so many bytes from now on; Busy, and no change, if there is no room for them."""
        self._budget.change(self._owner, size - self._held)
        self._held = size

    def release(self) -> None:
        self.hold(0)
