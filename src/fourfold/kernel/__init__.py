"""The kernel: the only code that uses SQLite.

It opens database files with checked pragmas, provides read transactions and write transactions,
group commit, sequences, schema migrations, health checks and backups. It does not depend on
documents, streams, graphs or sessions.
"""

from __future__ import annotations

from fourfold.durability import sync_folder
from fourfold.kernel import commit_traces, failpoints, inspection, profiles
from fourfold.kernel.backup import Sidecar, read_sidecar
from fourfold.kernel.backup import replace as replace_database
from fourfold.kernel.backup import verify as verify_backup
from fourfold.kernel.database import Database, Options, Work
from fourfold.kernel.driver import SQLITE_VERSION_MIN, sqlite_version
from fourfold.kernel.group_commit import GroupLimits
from fourfold.kernel.health import Health, HealthFinding, Thresholds
from fourfold.kernel.lock import holder
from fourfold.kernel.maintenance import Checkpoint
from fourfold.kernel.metrics import MetricsReading, combine, prometheus_text
from fourfold.kernel.migrations import Migration, load_migrations
from fourfold.kernel.named_queries import Queries, load_queries
from fourfold.kernel.notifier import Follower, Listener, Notifier
from fourfold.kernel.profiles import Profile
from fourfold.kernel.sequences import Sequence
from fourfold.kernel.transaction import ReadTransaction, Transaction

__all__ = [
    "SQLITE_VERSION_MIN",
    "Checkpoint",
    "Database",
    "Follower",
    "GroupLimits",
    "Health",
    "HealthFinding",
    "Listener",
    "MetricsReading",
    "Migration",
    "Notifier",
    "Options",
    "Profile",
    "Queries",
    "ReadTransaction",
    "Sequence",
    "Sidecar",
    "Thresholds",
    "Transaction",
    "Work",
    "combine",
    "commit_traces",
    "failpoints",
    "holder",
    "inspection",
    "load_migrations",
    "load_queries",
    "profiles",
    "prometheus_text",
    "read_sidecar",
    "replace_database",
    "sqlite_version",
    "sync_folder",
    "verify_backup",
]
