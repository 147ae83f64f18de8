"""Fourfold: application state as append-only logs in SQLite files that you own.

    import fourfold
    with fourfold.open("my-store") as store:
        ...

Everything a user names is here. All errors derive from `FourfoldError`.
"""

from __future__ import annotations

from fourfold.errors import (
    Busy,
    Conflict,
    CorruptData,
    FormatError,
    FourfoldError,
    InvalidInput,
    MissingDependency,
    NotFound,
    Refused,
    StorageError,
)
from fourfold.kernel import Database, Migration, Sequence, Snapshot, Transaction, Work
from fourfold.models.documents import Branch, Commit, Space, State
from fourfold.store import Store, restore
from fourfold.store import open_store as open  # noqa: A004
from fourfold.version import __version__

__all__ = [
    "Branch",
    "Busy",
    "Commit",
    "Conflict",
    "CorruptData",
    "Database",
    "FormatError",
    "FourfoldError",
    "InvalidInput",
    "Migration",
    "MissingDependency",
    "NotFound",
    "Refused",
    "Sequence",
    "Snapshot",
    "Space",
    "State",
    "StorageError",
    "Store",
    "Transaction",
    "Work",
    "__version__",
    "open",
    "restore",
]
