"""Use of keys since the server started: plain counts for the last use, and quotas.

A request only increments an integer, so that it costs nothing to know when a key was last used:
`Access.record_uses` compares the counts now and then, and writes a day at most once per key and
day. Quotas are token buckets in memory, so they are full when the server starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from fourfold.errors import QuotaExceeded
from fourfold.server.key_store import Key

QUOTA_BURST_S: Final = 2.0
"""A key that was idle may send the requests of this time at once."""
DAY_S: Final = 86_400.0

Clock = Callable[[], float]


class TokenBucket:
    """Tokens that are refilled at a constant rate. It may be overdrawn, which delays the next."""

    __slots__ = ("_at", "_capacity", "_clock", "_rate", "_tokens")

    def __init__(self, rate: float, capacity: float, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._capacity = self._tokens = capacity
        self._clock = clock
        self._at = clock()

    def wait_s(self) -> float:
        """Return the seconds until there is one token; 0 if there is one now."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate

    def take(self, count: float) -> None:
        """Take tokens, more than there are if need be."""
        self._tokens -= count


class KeyUse:
    """Use of one key: its requests since the server started, and what is left of its quotas."""

    __slots__ = ("_bytes", "_key_id", "_requests", "count", "recorded")

    def __init__(self, key: Key, clock: Clock = time.monotonic) -> None:
        self.count = 0
        """Admitted requests."""
        self.recorded = 0
        """Value of `count` when the last use was recorded."""
        self._key_id = key.id
        self._requests = self._bytes = None
        rate, size = key.requests_per_s, key.bytes_per_day
        if rate is not None:
            self._requests = TokenBucket(rate, max(1.0, rate * QUOTA_BURST_S), clock)
        if size is not None:
            self._bytes = TokenBucket(size / DAY_S, float(size), clock)

    @property
    def counts_bytes(self) -> bool:
        """True if the key has a quota of bytes."""
        return self._bytes is not None

    def admit(self) -> None:
        """Count a request.

        Raises:
            QuotaExceeded: a quota is exhausted; `retry_after` is the time until it is not.
        """
        if self._requests is not None or self._bytes is not None:
            self._check()
        self.count += 1

    def spend(self, size: int) -> None:
        """Count bytes of a body that was received or sent."""
        if self._bytes is not None:
            self._bytes.take(size)

    def _check(self) -> None:
        for bucket, quota in ((self._requests, "requests per second"), (self._bytes, "bytes")):
            wait = 0.0 if bucket is None else bucket.wait_s()
            if wait:
                raise QuotaExceeded(
                    f"key {self._key_id}: its quota of {quota} is exhausted",
                    retry_after=math.ceil(wait),
                    details={"quota": quota, "key": self._key_id},
                )
        if self._requests is not None:
            self._requests.take(1)


class KeyUses:
    """Usage counters and quotas of a server's keys."""

    def __init__(self) -> None:
        self._by_id: dict[str, KeyUse] = {}

    def get(self, key: Key) -> KeyUse:
        """Return the use of a key."""
        use = self._by_id.get(key.id)
        if use is None:
            use = self._by_id[key.id] = KeyUse(key)
        return use

    def used_since(self, keys: tuple[Key, ...], day: str) -> list[str]:
        """Return the keys that were used since the last call and have not been used on `day`.

        Keys that no longer exist are removed.
        """
        days = {key.id: key.last_used_on for key in keys}
        used = []
        for key_id, use in list(self._by_id.items()):
            if key_id not in days:
                del self._by_id[key_id]
            elif use.count != use.recorded:
                use.recorded = use.count
                if (days[key_id] or "") < day:
                    used.append(key_id)
        return used
