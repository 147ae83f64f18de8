"""Tables of sessions in Spark: those of the registry, with the fold of views over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fourfold.blobs import FolderBlobs
from fourfold.kernel import Database
from fourfold.models.sessions.database import MIGRATIONS, POSITION, PROFILE
from fourfold.models.sessions.sqlite_log import SqliteLog
from fourfold.pipeline.sessions.fold import fold_views, folded_parts
from fourfold.query.sessions.tables import TABLES

SESSIONS = TABLES.for_spark({"view": fold_views}, folded_parts=folded_parts)


@contextmanager
def open_log(path: str) -> Iterator[SqliteLog]:
    """Open the log in a file for reading, while another process may write it."""
    with Database.open(
        Path(path), profile=PROFILE, migrations=MIGRATIONS, sequences=(POSITION,), mode="r"
    ) as database:
        yield SqliteLog(database)


def open_files(path: str) -> FolderBlobs:
    """Return the store of the largest payloads of that log."""
    return FolderBlobs(Path(path).parent / "blobs")
