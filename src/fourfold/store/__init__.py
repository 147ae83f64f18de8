"""The store: one folder with settings, databases and objects."""

from __future__ import annotations

from fourfold.store.background_publisher import Continuous
from fourfold.store.backup import BackupReport, RestoreReport, restore, verify_backup
from fourfold.store.restoration import rebuild
from fourfold.store.store import Store, open_store
from fourfold.store.verification import VerifyReport, verify

__all__ = [
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
