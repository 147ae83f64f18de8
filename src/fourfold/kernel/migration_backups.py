"""Backups that the kernel takes before it migrates a file that holds data.

    <file's folder>/backups/migrations/<file name>/v<version>-<time>.sqlite      and its sidecar

A store passes a folder of its own, `ROOT/backups/migrations/<model's folder>/`. A backup is an
ordinary one: verified when it is taken, and restored with `fourfold.kernel.inspection.restore`. It
is removed when something is deleted or purged from the file, since it still holds that, and when it
is older than `limits.MIGRATION_BACKUP_DAYS`.
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fourfold import limits
from fourfold.errors import DiskFull, ReadOnly, StorageError
from fourfold.kernel import backup, failpoints
from fourfold.kernel import migrations as steps
from fourfold.kernel.driver import Connection
from fourfold.kernel.files import Plan
from fourfold.kernel.transaction import SQL, ReadTransaction

_NAME = re.compile(r"v\d+-(\d{8}T\d{12})\.sqlite(\.json)?")
_TIME = "%Y%m%dT%H%M%S%f"


def folder_of(plan: Plan) -> Path:
    """Return the folder with the backups of one file."""
    folder = plan.backups or plan.path.parent / "backups" / "migrations"
    return folder / plan.path.name


def back_up_before_migrations(connection: Connection, plan: Plan) -> None:
    """Back up the file if migrations are pending and it holds data.

    Raises:
        DiskFull: there is no room for the backup and the migration; nothing was changed.
    """
    snapshot = ReadTransaction(connection, plan.subject)
    if not steps.pending(snapshot, plan.migrations, plan.subject) or not _holds_data(snapshot):
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
            f"The file was not changed. Make room for the backup in {folder}, and open it again."
        )
        raise
    if failpoints.armed:
        failpoints.hit("kernel.migration.backed_up")
    # A migration that fails is tried again: the newest copy of a version replaces earlier ones.
    for path in folder.glob(f"v{version}-*"):
        if not path.name.startswith(name):
            path.unlink(missing_ok=True)


def drop(plan: Plan, *, older_than: timedelta | None = None) -> int:
    """Remove the backups of one file, or only those above an age; returns how many there were."""
    folder = folder_of(plan)
    if not folder.is_dir():
        return 0
    limit = datetime.now(UTC) - (older_than or timedelta())
    removed = 0
    for path in sorted(folder.iterdir()):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        taken = datetime.strptime(name[1], _TIME).replace(tzinfo=UTC)
        if older_than is None or taken < limit:
            path.unlink(missing_ok=True)
            removed += name[2] is None
    if removed and not any(folder.iterdir()):
        folder.rmdir()
    return removed


def drop_expired(plan: Plan) -> None:
    """Remove the backups of one file that are older than the limit."""
    drop(plan, older_than=timedelta(days=limits.MIGRATION_BACKUP_DAYS))


def _holds_data(snapshot: ReadTransaction) -> bool:
    for (table,) in snapshot.all(SQL.tables_of_models):
        quoted = str(table).replace('"', '""')
        if snapshot.value(f'SELECT EXISTS (SELECT 1 FROM "{quoted}")'):  # noqa: S608
            return True
    return False


def _check_space(connection: Connection, plan: Plan) -> None:
    """Refuse when the copy, and as much again for the migration, would not fit."""
    pages = int(str(connection.pragma("page_count")))
    needed = 2 * pages * int(str(connection.pragma("page_size")))
    place = folder_of(plan)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise DiskFull(
            f"{plan.subject}: the backup before its migration needs {needed} bytes, "
            f"got {free} free in {place}",
            hint="Free some space on the volume and open it again; the file was not changed.",
            details={"needed_bytes": needed, "free_bytes": free},
        )
