"""Incarnation numbers: the first half of every offset, unique among the streams of a name.

A new stream gets the number after the last one of its name. After a restore, numbers that were used
later than the restored state are unknown; so new numbers start above the milliseconds since 1970,
which no stream has reached before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fourfold.archive.manifest import Manifest
from fourfold.kernel import Database, Transaction
from fourfold.models.streams import record_ids
from fourfold.models.streams.database import MIGRATIONS, PROFILE
from fourfold.models.streams.writer import SQL

_EVERY_NAME = ""


def reserve(txn: Transaction, now_ms: int, ended: Iterable[Manifest] = ()) -> None:
    """Reserve the numbers of streams and records that may have existed but are not in this file."""
    past = [(manifest.name, manifest.incarnation_number) for manifest in ended]
    txn.execute_many(SQL.past_incarnation, [(_EVERY_NAME, now_ms), *past])
    record_ids.begin_history(txn, now_ms)


def reserve_in_file(path: Path, now_ms: int, migration_backups: Path) -> None:
    """Reserve incarnation numbers in the file of a restored backup, which may need migrations."""
    database = Database.open(
        path, profile=PROFILE, migrations=MIGRATIONS, migration_backups=migration_backups
    )
    try:
        database.transact(lambda txn: reserve(txn, now_ms))
    finally:
        database.close()
