"""Memory budget for request bodies that are being received, over all connections.

A body counts from its first part until the request is handled, and no key may use more than a share
of the budget. So neither many clients nor one key can fill the memory of a server.
"""

from __future__ import annotations

from typing import Final

from fourfold import limits
from fourfold.errors import Busy

WORKERS: Final = ""
"""Owner of requests with the token of a wake, which have no key."""
VISITORS: Final = " "
"""Owner of requests to the public routes that have a body: the login of the explorer."""


class BodyBudget:
    """Bytes of request bodies that one server holds."""

    def __init__(self, total: int = limits.HTTP_BODY_BYTES_IN_FLIGHT) -> None:
        self.total = total
        self.share = int(total * limits.HTTP_BODY_SHARE)
        self.held = 0
        self._by_owner: dict[str, int] = {}

    def lease(self, owner: str | None) -> Lease:
        """Return a lease for one body; without an owner (no key is required) no share limits it."""
        return Lease(self, owner)

    def change(self, owner: str | None, size: int) -> None:
        """Change what an owner holds by `size` bytes; raise Busy if that exceeds the budget."""
        if owner is None:
            held = self.held
            limit = self.total
        else:
            held = self._by_owner.get(owner, 0)
            limit = self.share
        if size > 0 and (held + size > limit or self.held + size > self.total):
            raise Busy(
                f"request bodies: cannot hold {size} more bytes, got {held} of {limit}",
                hint="Retry later, or send fewer requests at once.",
                retry_after=limits.RETRY_AFTER_S,
            )
        self.held += size
        if owner is not None:
            self._by_owner[owner] = held + size
            if not held + size:
                del self._by_owner[owner]


class Lease:
    """Bytes of a budget that one body holds."""

    __slots__ = ("_budget", "_held", "_owner")

    def __init__(self, budget: BodyBudget, owner: str | None) -> None:
        self._budget = budget
        self._owner = owner
        self._held = 0

    def hold(self, size: int) -> None:
        """Hold exactly `size` bytes; raise Busy, without a change, if the budget is exceeded."""
        self._budget.change(self._owner, size - self._held)
        self._held = size

    def release(self) -> None:
        """Release all bytes."""
        self.hold(0)
