"""Fourfold: application state as append-only logs in SQLite files that you own.

    import fourfold
    with fourfold.open("my-store") as store:
        ...

Everything a user names is here. All errors derive from `FourfoldError`. What needs a database is
imported when it is first used, so that a part without one, such as a fold, loads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports
from fourfold._version import __version__
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

if TYPE_CHECKING:
    from fourfold.kernel import Database, Migration, ReadTransaction, Sequence, Transaction, Work
    from fourfold.models.documents import Branch, Commit, Space, State
    from fourfold.store import Store, restore
    from fourfold.store import open_store as open  # noqa: A004
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Branch": "fourfold.models.documents.records",
            "Commit": "fourfold.models.documents.records",
            "Database": "fourfold.kernel",
            "Migration": "fourfold.kernel",
            "Sequence": "fourfold.kernel",
            "ReadTransaction": "fourfold.kernel",
            "Space": "fourfold.models.documents.space",
            "State": "fourfold.models.documents.records",
            "Store": "fourfold.store",
            "Transaction": "fourfold.kernel",
            "Work": "fourfold.kernel",
            "open": "fourfold.store:open_store",
            "restore": "fourfold.store",
        },
    )

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
    "ReadTransaction",
    "Refused",
    "Sequence",
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
