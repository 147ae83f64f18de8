"""Limits of the kernel: connections, transactions, the write-ahead log, health, backups."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import GIB, KIB, MIB

# Connections
BUSY_TIMEOUT_MS: Final = 5_000
READERS_MAX: Final = 8
READER_WAIT_S: Final = 5.0
STATEMENT_CACHE: Final = 256
CACHE_KIB: Final = 16_000
"""Page cache of one connection. Readers and the writer of one database each have their own."""
DEADLINE_CHECK_STEPS: Final = 200_000
"""SQLite instructions between two looks at the clock: about 5 ms, and too rare to be felt."""

LOCK_TRIES: Final = 50
LOCK_LOOK_S: Final = 0.002
"""A process that reads who holds the writer's lock holds it briefly: a writer that meets it tries
again.
"""

DOCUMENTS_PAGE_SIZE: Final = 32_768
"""Large pages suit whole documents; a space may choose another size when it is created."""

# Transactions and group commit
TRANSACTION_DEADLINE_S: Final = 30.0
SLOW_TRANSACTION_MS: Final = 250
GROUP_REQUESTS_MAX: Final = 1_024
"""Requests that share one transaction at most: bounds how long the last one waits for the first."""
GROUP_BYTES_MAX: Final = 16 * MIB
QUEUE_REQUESTS_MAX: Final = 65_536
QUEUE_BYTES_MAX: Final = 256 * MIB
OVERLOAD_RETRY_AFTER_S: Final = 0.1
QUEUE_LOOK_S: Final = 0.1
"""While coroutines wait for a writer that is taken, how often their deadlines are looked at."""
INLINE_COMMIT_MS_MAX: Final = 4.0
"""A commit that takes longer than this on average moves off the event loop into a thread."""
COMMIT_THREADS: Final = 8
CAUTIOUS_GROUPS: Final = 16
"""After one request spoilt a shared transaction, this many groups give every request a
savepoint.
"""
NOTIFY_SLICE_LISTENERS: Final = 16
"""Coroutines that a commit wakes in one iteration of their event loop. The others are woken in the
next ones, so that requests are served in between.
"""
BULK_ROWS_PER_STATEMENT: Final = 128
BULK_VARIABLES_MAX: Final = 2_048
"""Bound variables of one multi-row INSERT: more gains nothing, and long SQL text is not cached."""

# Write-ahead log
CHECKPOINT_BYTES: Final = 16 * MIB
"""A log of this size makes the checkpointer run, off the commit path. A page that changes often is
folded back once for all its versions in the log, so a longer log is less work; but it is also
longer to read at a restart.
"""
LOG_PREALLOCATE_MIN_BYTES: Final = 64 * KIB
LOG_PREALLOCATE_STEP_BYTES: Final = 1 * MIB
"""A log that is synced at every commit gets room ahead: from the first size on, as much again as it
has, and never more than this at once, since the next commit takes the zeros to the disk too.
"""
WAL_FILE_BYTES_MAX: Final = 64 * MIB
"""A log file that grew beyond this is truncated to it when its log starts over."""
CHECKPOINT_PASSES: Final = 3
CHECKPOINT_REST_PAGES: Final = 64
"""How often the log is folded back beside the writers, at most, until so little is left that they
can well wait for the rest.
"""

# Health
WAL_DEGRADED_BYTES: Final = 64 * MIB
WAL_FAILED_BYTES: Final = 256 * MIB
BUSY_DEGRADED_COUNT: Final = 3
BUSY_WINDOW_S: Final = 60.0
BUSY_REMEMBERED_MAX: Final = 1_000
"""Failures to get a lock that are counted within the window; more change no verdict."""
DISK_DEGRADED_BYTES: Final = 1 * GIB
DISK_FAILED_BYTES: Final = 64 * MIB

# Backup
BACKUP_PAGES_PER_STEP: Final = 4_096
MIGRATION_BACKUP_DAYS: Final = 30
"""How long a backup that was taken before a migration is retained."""
SLOW_LOG_ENTRIES: Final = 256
BACKGROUND_STEP_S: Final = 0.002
BACKGROUND_FREE_S: Final = 0.02
"""How long work in the background runs without a pause: while others write, and while they do not.
"""
BACKGROUND_STEP_MAX_S: Final = 10.0
"""A longer step is not one: its thread did something else in between."""
BACKGROUND_LOG_BYTES: Final = 64 * MIB
BACKGROUND_LOG_WAIT_S: Final = 1.0
"""A longer log is folded back between two reads in the background. In a process that cannot do that
they wait so long, at most, for the writer to do it.
"""
BACKGROUND_NICE: Final = 10
"""The priority of threads that work in the background: others come first."""
BACKGROUND_PAUSES: Final = 4.0
BACKGROUND_PAUSE_MAX_S: Final = 0.1
BACKGROUND_LOOK_S: Final = 0.001
"""The pause after a step, as a multiple of what the step took, and at most; and how often it is
checked whether others write.
"""
