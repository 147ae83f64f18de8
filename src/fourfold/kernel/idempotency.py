"""Idempotent requests: a repeated request returns the first result instead of a second effect.

The result is stored in the same transaction as the write, so neither exists without the other. A
database has the table if its migrations include the statements of `idempotency.sql` (`SCHEMA`).

    request = IdempotentRequest(key_id, key, digest_of(body))
    result, replayed = run_once(database, request, lambda: encode(sessions.create(...)))

Rows expire after seven days. Every new request deletes a few expired ones.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from fourfold.errors import ReplayMismatch
from fourfold.kernel.database import Database
from fourfold.kernel.named_queries import read_sql
from fourfold.kernel.transaction import SQL, Transaction

KEPT_S: Final = 7 * 24 * 3_600
"""Seconds after which a result expires."""
EXPIRE_ROWS: Final = 8
"""Expired rows that a new request deletes."""
SCHEMA: Final = read_sql("fourfold.kernel", "idempotency.sql")
"""Statements that create the table, for a migration of a model."""


class IdempotentRequest(NamedTuple):
    """A request that its caller may repeat."""

    caller: str
    """Sender of the request; keys of different callers are independent."""
    key: str
    digest: str
    """Digest of the whole request: another request with the same key is refused."""


def digest_of(*parts: bytes) -> str:
    """Return the digest of the parts of a request: its operation, its path and its body."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()


def run_once(
    database: Database,
    request: IdempotentRequest,
    work: Callable[[], bytes],
    *,
    now_s: float | None = None,
) -> tuple[bytes, bool]:
    """Return the result of `work`, or that of its first run, and True if it is the latter.

    `work` runs in a transaction of this thread, which the calls of the model join. If it raises,
    nothing is stored, and the request may be repeated.

    Raises:
        ReplayMismatch: another request was sent with this key.
    """
    now = int(time.time() if now_s is None else now_s)
    caller, key, digest = request
    with database.write() as txn:
        row = txn.one(SQL.idempotency_find, (caller, key, now))
        if row is not None:
            if row[0] != digest:
                raise ReplayMismatch(
                    f"another request was sent with the idempotency key {key!r:.100}",
                    hint="Use a new key for each new request.",
                )
            return row[1], True
        result = work()
        expires_at = now + KEPT_S
        txn.execute(SQL.idempotency_insert, (caller, key, digest, result, expires_at))
        expire(txn, now, EXPIRE_ROWS)
        return result, False


def expire(txn: Transaction, now_s: int, limit: int) -> None:
    """Delete at most `limit` results whose keys have expired."""
    txn.execute(SQL.idempotency_expire, (now_s, limit))
