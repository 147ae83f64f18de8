"""The store: one folder with settings, databases and objects."""

from __future__ import annotations

from fourfold.store.backup import BackupReport, RestoreReport, restore, verify_backup
from fourfold.store.store import Store, open_store
from fourfold.store.verification import VerifyReport, verify

__all__ = [
    "BackupReport",
    "RestoreReport",
    "Store",
    "VerifyReport",
    "open_store",
    "restore",
    "verify",
    "verify_backup",
]
