"""Retiring templates that nobody asks for, and forgetting those that were retired long ago."""

from __future__ import annotations

from collections.abc import Callable

from fourfold import limits
from fourfold.kernel import Database, Transaction
from fourfold.models.streams.touch.templates import SQL


def retire(database: Database, last_use: Callable[[str, str], int], now_ms: int) -> None:
    """So many of both as one sweep may take; one transaction, and none when there is nothing to do.

    `last_use` says when a template was asked for as far as that is not written down: such a one
    stays, and that is written down.
    """
    most = limits.TOUCH_TEMPLATES_SWEPT
    with database.read() as snapshot:
        unseen = snapshot.all(SQL.unseen, (now_ms, limits.TOUCH_TTL_MS_MIN, most))
        before = now_ms - limits.TOUCH_RETIRED_KEPT_MS
        forgettable = snapshot.all(SQL.forgettable, (before, most))
    if not unseen and not forgettable:
        return

    def work(txn: Transaction) -> None:
        for name, template_id, ttl_ms in unseen:
            last = last_use(name, template_id)
            if last + ttl_ms > now_ms:
                txn.execute(SQL.seen, (name, template_id, last))
            else:
                txn.execute(SQL.retire, (name, template_id, now_ms))
        txn.execute_many(SQL.forget, forgettable)

    database.transact(work)
