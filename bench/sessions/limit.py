"""The limit of appends: the same rows through the kernel, ready before the clock starts. It checks
nothing, encodes nothing, hashes nothing, and reads nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.sessions import child
from bench.sessions.lines import BATCH
from bench.sessions.task import Run
from fourfold.content import encode
from fourfold.kernel import Database, Transaction
from fourfold.models.sessions import MIGRATIONS, POSITION, PROFILE
from fourfold.models.sessions.sqlite_log import SQL

COLUMNS = (
    "position",
    "session_key",
    "event_id",
    "type",
    "at",
    "entity",
    "entity_id",
    "request_key",
    "body",
    "digest",
    "position_check",
)
Row = tuple[Any, ...]


def rows_of(run: Run) -> list[Row]:
    rows = []
    for number in range(1, run.count + 1):
        body = encode({"message": child.event(number, run.size)["message"]}).decode()
        at = "2026-01-02T03:04:05.678Z"
        digest = os.urandom(32)
        row = (number, 1, number, "message/appended", at, 1, number, None, body, digest, 2**31)
        rows.append(row)
    return rows


def alike(rows: list[Row]) -> dict[str, Any]:
    """Rows in the shape that the kernel inserts fastest: what they share, what counts up, and the
    rest by columns.
    """
    named = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    counted = ("position", "event_id", "entity_id")
    varying = ("body", "digest", "position_check")
    return {
        "count": len(rows),
        "fixed": {n: each[0] for n, each in named.items() if n not in (*counted, *varying)},
        "counted": {(name,): named[name][0] for name in counted},
        "varying": {name: named[name] for name in varying},
    }


def kernel(run: Run, folder: Path) -> dict[str, float]:
    database = Database.open(
        folder / "limit.sqlite",
        profile=PROFILE.with_(synchronous="FULL"),
        migrations=MIGRATIONS,
        sequences=(POSITION,),
    )
    database.transact(lambda txn: txn.execute(SQL.insert_session, (1, "s", "now", b"")))
    rows = rows_of(run)

    def one(row: Row) -> Callable[[Transaction], None]:
        return lambda txn: txn.execute(SQL.insert_event, row)

    def several(batch: dict[str, Any]) -> Callable[[Transaction], None]:
        return lambda txn: txn.insert_alike("events", **batch)

    def single() -> None:
        for row in rows:
            database.transact(one(row), size=run.size)

    batches = [alike(rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]

    def batched() -> None:
        for batch in batches:
            database.transact(several(batch), size=run.size * BATCH)

    async def crowd() -> None:
        waiting = iter(rows)

        async def caller() -> None:
            for row in waiting:
                await database.transact_async(one(row), size=run.size)

        await asyncio.gather(*(caller() for _ in range(child.CALLERS)))

    forms = {"single": single, "batch": batched, "coroutines": lambda: asyncio.run(crowd())}
    found = child.timed(forms[run.form.split()[1]], run.count)
    with database.read() as snapshot:
        if snapshot.value(SQL.last_event, (1,)) != run.count:
            raise AssertionError("rows are missing")
    database.close()
    return found
