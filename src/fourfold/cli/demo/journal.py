"""The journal of the demo: a table and a sequence."""

from __future__ import annotations

import fourfold
from fourfold.kernel import Database, Sequence, Transaction, load_migrations, load_queries

_SQL = load_queries("fourfold.cli.demo")
_ENTRY = Sequence.named("entry", used=_SQL.newest)


def journal(store: fourfold.Store) -> Database:
    """Open the journal of `store`, and create it if needed."""
    return store.database(
        "journal", migrations=load_migrations("fourfold.cli.demo"), sequences=[_ENTRY]
    )


def add(txn: Transaction, text: str) -> int:
    """Append an entry and return its number."""
    number = txn.claim(_ENTRY)
    txn.execute(_SQL.add, (number, text))
    return number


def numbers(log: Database) -> list[int]:
    """Return the numbers of all entries, in order."""
    with log.read() as snapshot:
        return [number for (number,) in snapshot.rows(_SQL.numbers)]
