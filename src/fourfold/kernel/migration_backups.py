"""Backups made before the migration of a file that contains data.

    <file's folder>/backups/migrations/<file name>/v<version>-<time>.sqlite      and its sidecar

A store passes its own folder, `ROOT/backups/migrations/<model's folder>/`. These are ordinary
backups: verified when they are made, and restored with `fourfold.kernel.inspection.restore`. They
are deleted when data is deleted or purged from the file, which they still contain, and when they
are older than `MIGRATION_BACKUP_DAYS`.
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from fourfold.errors import DiskFull, ReadOnly, StorageError
from fourfold.kernel import backup, failpoints
from fourfold.kernel import migrations as steps
from fourfold.kernel.driver import Connection
from fourfold.kernel.files import DatabasePlan
from fourfold.kernel.transaction import SQL, ReadTransaction

MIGRATION_BACKUP_DAYS: Final = 30
"""Retention of a backup taken before a migration."""

_NAME = re.compile(r"v\d+-(\d{8}T\d{12})\.sqlite(\.json)?|\.v\d+-(\d{8}T\d{12})\.sqlite.*")
"""A copy, its sidecar, or what a killed process left of one."""
_TIME = "%Y%m%dT%H%M%S%f"


def folder_of(plan: DatabasePlan) -> Path:
    """Return the folder with the backups of one file."""
    folder = plan.backups or plan.path.parent / "backups" / "migrations"
    return folder / plan.path.name


def back_up_before_migrations(connection: Connection, plan: DatabasePlan) -> None:
    """Back up the file if migrations are pending and it contains data.

    Raises:
        DiskFull: The backup and the migration do not fit on the disk; nothing was changed.
    """
    snapshot = ReadTransaction(connection, plan.subject)
    if not steps.pending(snapshot, plan.migrations, plan.subject) or not _has_data(snapshot):
        return
    folder = folder_of(plan)
    _check_space(connection, plan)
    version = steps.applied_version(snapshot)
    name = f"v{version}-{datetime.now(UTC).strftime(_TIME)}.sqlite"
    # Counters that a pending migration is about to create are not in the file yet.
    known = str(snapshot.value(SQL.meta_get, ("sequences",)) or "").split()
    counters = tuple(counter for counter in plan.sequences if counter.name in known)
    try:
        backup.create(connection, folder / name, counters)
    except (ReadOnly, StorageError) as error:
        error.hint = (
            f"Make the backup possible in {folder}, and open the file again; it was not changed."
        )
        raise
    if failpoints.armed:
        failpoints.hit("kernel.migration.backed_up")
    # A failed migration is tried again: the newest copy of a version replaces earlier ones, and
    # what a killed process left of them.
    for pattern in (f"v{version}-*", f".v{version}-*"):
        for path in folder.glob(pattern):
            if not path.name.startswith(name):
                path.unlink(missing_ok=True)


def drop(plan: DatabasePlan, *, older_than: timedelta | None = None) -> int:
    """Delete the backups of one file, or those above an age; return their number."""
    folder = folder_of(plan)
    if not folder.is_dir():
        return 0
    limit = datetime.now(UTC) - (older_than or timedelta())
    removed = 0
    for path in sorted(folder.iterdir()):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        created_at = datetime.strptime(name[1] or name[3], _TIME).replace(tzinfo=UTC)
        if older_than is None or created_at < limit:
            path.unlink(missing_ok=True)
            removed += name[1] is not None and name[2] is None
    if not any(folder.iterdir()):
        folder.rmdir()
    return removed


def drop_expired(plan: DatabasePlan) -> None:
    """Delete the backups of one file that are older than the limit."""
    drop(plan, older_than=timedelta(days=MIGRATION_BACKUP_DAYS))


def _has_data(snapshot: ReadTransaction) -> bool:
    for (table,) in snapshot.all(SQL.tables_of_models):
        quoted = str(table).replace('"', '""')
        if snapshot.value(f'SELECT EXISTS (SELECT 1 FROM "{quoted}")'):  # noqa: S608
            return True
    return False


def _check_space(connection: Connection, plan: DatabasePlan) -> None:
    """Raise DiskFull unless twice the size of the file is free: for the copy and the migration."""
    pages = int(str(connection.pragma("page_count")))
    needed = 2 * pages * int(str(connection.pragma("page_size")))
    folder = folder_of(plan)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFull(
            f"{plan.subject}: the backup before its migration needs {needed} bytes, "
            f"got {free} free in {folder}",
            hint="Free space on the volume, and open the file again; it was not changed.",
            details={"needed_bytes": needed, "free_bytes": free},
        )
