"""Incarnation numbers: the first half of every offset, which no two streams of a name share.

A new stream gets the number after the last one of its name. What a history gave out that this file
does not have cannot be known: so after a restore new numbers begin above the milliseconds since
1970, which no history has reached before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fourfold.archive.manifest import Manifest
from fourfold.kernel import Database, Transaction
from fourfold.models.streams.model import MIGRATIONS, PROFILE
from fourfold.models.streams.writer import SQL

_EVERY_NAME = ""


def restored(txn: Transaction, now_ms: int, ended: Iterable[Manifest] = ()) -> None:
    """Never again give out a number that a stream may have had which is not in this file."""
    past = [(manifest.name, manifest.incarnation_number) for manifest in ended]
    txn.execute_many(SQL.past_incarnation, [(_EVERY_NAME, now_ms), *past])


def restored_file(path: Path, now_ms: int) -> None:
    """Apply `restored` to the file of a backup that was brought back."""
    database = Database.open(path, profile=PROFILE, migrations=MIGRATIONS)
    try:
        database.transact(lambda txn: restored(txn, now_ms))
    finally:
        database.close()
