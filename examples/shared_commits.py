"""Many coroutines write to one log and share its commits.

Run it: `python examples/shared_commits.py`. It prints how many commits the writes needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import fourfold
from fourfold.kernel import Database, Migration, Sequence, Transaction

ENTRY = Sequence.named("entry", used="SELECT max(number) FROM entry")
SCHEMA = Migration(
    1, "log", "CREATE TABLE entry (number INTEGER PRIMARY KEY, author TEXT NOT NULL, text TEXT)"
)


def append(author: str, text: str) -> Callable[[Transaction], int]:
    """Work for one transaction: it may run more than once, and acts only through `txn`."""

    def work(txn: Transaction) -> int:
        number = txn.claim(ENTRY)
        txn.execute("INSERT INTO entry VALUES (?, ?, ?)", (number, author, text))
        return number

    return work


async def author(log: Database, name: str, entries: int) -> list[int]:
    return [await log.transact_async(append(name, f"entry {n}")) for n in range(entries)]


async def main() -> None:
    with fourfold.open(":memory:") as store:
        log = store.database("log", migrations=[SCHEMA], sequences=[ENTRY])
        written = await asyncio.gather(*(author(log, f"author {n}", 100) for n in range(64)))
        numbers = sorted(number for theirs in written for number in theirs)
        assert numbers == list(range(1, 6401))
        counters = log.metrics().counters
        print(f"{counters['requests']} entries in {counters['transactions']} commits")


asyncio.run(main())
