"""Databases to publish, their publish status, and the results of publications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fourfold.archive import capture
from fourfold.archive.capture import SQL, CaptureState
from fourfold.archive.publication import Contents, Description
from fourfold.kernel import Database

Reopen = Callable[[], tuple[Database, Description]]
"""Opens a database for reading. It can be sent to another process."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A database to publish."""

    name: str
    """Name in the object store, the same on every node."""
    model: str
    migrations: int
    database: Database
    description: Description
    contents: Contents | None = None
    """Returns the bytes of values that are files next to the database."""
    prefix: str = ""
    """Prefix of the names of its archive tables: the model, and the kind if it is not the first."""
    label: tuple[str, str] = ("database", "")
    """Column with the id of the database in archive tables, and the id."""
    reopen: Reopen | None = None
    """None if another process does not know the model."""


class DatabaseResult(NamedTuple):
    """Result of one publication."""

    name: str
    generation: int
    position: int
    rows: int
    objects: int
    bytes: int


class DatabaseStatus(NamedTuple):
    """Publish status of a database.

    Data after `published`, and `changes`, would be lost with the disk.
    """

    name: str
    published: int
    newest: int
    changes: int
    """Number of rows changed or deleted since, which positions do not show."""
    generation: int


def standing(subject: Subject) -> DatabaseStatus:
    """Return the publish status of a database."""
    with subject.database.read() as snapshot:
        record = capture.record_of(snapshot)
        newest = int(snapshot.value(subject.description.newest))
        changes = 0 if record is None else int(snapshot.value(SQL.count_changes))
    state = CaptureState() if record is None else record.state
    generation = 0 if record is None else record.generation
    return DatabaseStatus(
        subject.name, state.position, max(newest, state.position), changes, generation
    )
