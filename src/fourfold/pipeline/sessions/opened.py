"""The log of a store's sessions, opened for reading, in a worker or on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fourfold.blobs import FolderBlobs
from fourfold.kernel import Database
from fourfold.models.sessions.table import MIGRATIONS, POSITION, PROFILE, TableLog


@contextmanager
def log_in(path: str) -> Iterator[TableLog]:
    """The log in a file, beside whoever writes it."""
    with Database.open(
        Path(path), profile=PROFILE, migrations=MIGRATIONS, sequences=(POSITION,), mode="r"
    ) as database:
        yield TableLog(database)


def files_beside(path: str) -> FolderBlobs:
    """Where the largest payloads of that log lie."""
    return FolderBlobs(Path(path).parent / "blobs")
