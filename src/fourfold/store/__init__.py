"""The store: one folder with settings, databases and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports
from fourfold.store.backup import BackupReport, RestoreReport, restore, verify_backup
from fourfold.store.store import Store, open_store
from fourfold.store.verification import VerifyReport, verify

if TYPE_CHECKING:
    from fourfold.store.background_publisher import Continuous
    from fourfold.store.replica import ArchiveFollower
    from fourfold.store.restoration import rebuild
else:
    # Few stores publish, and what they need for it is large.
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Continuous": "fourfold.store.background_publisher",
            "ArchiveFollower": "fourfold.store.replica",
            "rebuild": "fourfold.store.restoration",
        },
    )

__all__ = [
    "ArchiveFollower",
    "BackupReport",
    "Continuous",
    "RestoreReport",
    "Store",
    "VerifyReport",
    "open_store",
    "rebuild",
    "restore",
    "verify",
    "verify_backup",
]
