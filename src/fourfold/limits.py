"""Every limit and default of Fourfold, in one file, with its unit in its name.

A number that bounds memory, time or size belongs here and nowhere else, so that a reader can see at
one glance what the system will and will not do.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Settings
CONFIG_BYTES_MAX: Final = 1 * MIB
"""A `fourfold.toml` larger than this is some other file."""

# Content
PAYLOAD_INLINE_BYTES_MAX: Final = 512
"""A payload of at most this many canonical bytes is stored inside its event; a larger one as a
blob.
"""
PAYLOAD_KIND_CHARS_MAX: Final = 64
"""A kind is a short name, so that a reference is always smaller than what it stands for."""
CONTENT_DEPTH_MAX: Final = 500
"""Nesting deeper than this is refused before the interpreter's own stack gives up."""
MERKLE_KEYS_REMEMBERED_MAX: Final = 4_096
"""Keys of objects whose digests are kept: the same few come in every document."""
MERKLE_KEY_CHARS_MAX: Final = 64

# Blobs and objects
BLOB_BYTES_MAX: Final = 512 * MIB
"""SQLite holds at most about 1 GB in one value; half of it leaves room for the row."""
BLOB_CHUNK_BYTES: Final = 1 * MIB
BLOB_SWEEP_AGE_S: Final = 3_600.0
"""Temp files younger than this are left alone: their writer may be about to finish."""
BLOB_LIST_PAGE: Final = 1_000
"""Ids that are read from a table at once, so that a long listing holds no snapshot open."""
OBJECT_KEY_BYTES_MAX: Final = 1024
"""The limit of S3, kept everywhere so that a store can move between backends."""
OBJECT_SEGMENT_BYTES_MAX: Final = 255
"""What common file systems allow between two slashes."""
OBJECT_PUT_BYTES_MAX: Final = 5 * GIB
"""The limit of S3 for one request; also for a streamed upload that must not replace anything."""
OBJECT_UPLOAD_CHUNK_BYTES: Final = 8 * MIB
OBJECT_UPLOAD_CONCURRENCY: Final = 4
OBJECT_TIMEOUT_S: Final = 60.0
OBJECT_RETRIES_MAX: Final = 5
OBJECT_RETRY_WINDOW_S: Final = 120.0
"""No retry starts later than this after the first try, while the signature of a request is
valid.
"""
OBJECT_CONFLICT_BACKOFF_S: Final = 0.05
"""First pause after S3 answers that two conditional writes met; it doubles with every retry."""
OBJECT_UPLOAD_PARTS_MAX: Final = 10_000
OBJECT_UPLOAD_BYTES_PER_S_MIN: Final = 1 * MIB
"""A large request may take as long as it takes at this speed before it counts as timed out."""
OBJECT_LIST_PAGE: Final = 1_000
OBJECT_FOLDER_PIECE_BYTES: Final = 80
"""A longer piece of a key is spread over nested folders: 80 bytes, each escaped, still fit a file
name.
"""
OBJECT_FOLDER_LOCKS: Final = 64
OBJECT_LOCK_WAIT_S: Final = 60.0
OBJECT_LOCK_POLL_S: Final = 0.001
OBJECT_LOCK_POLL_S_MAX: Final = 0.05
OBJECT_FOLDERS_KNOWN_MAX: Final = 65_536
"""Folders that one process remembers to have made durable, so that they need no second fsync."""
OBJECT_SWEEP_AGE_S: Final = 3_600.0

# Kernel: connections
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
"""Whoever looks who holds the writer's lock holds it a moment: a writer that meets them tries
again.
"""

DOCUMENTS_PAGE_SIZE: Final = 32_768
"""Large pages suit whole documents; a space may choose another size when it is created."""

# Kernel: transactions and group commit
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
BULK_ROWS_PER_STATEMENT: Final = 128
BULK_VARIABLES_MAX: Final = 2_048
"""Bound variables of one multi-row INSERT: more gains nothing, and long SQL text is not cached."""

# Kernel: write-ahead log
CHECKPOINT_PAGES: Final = 1_000
"""Pages in the WAL that make the checkpointer run, off the commit path."""

# Kernel: health
WAL_DEGRADED_BYTES: Final = 64 * MIB
WAL_FAILED_BYTES: Final = 256 * MIB
BUSY_DEGRADED_COUNT: Final = 3
BUSY_WINDOW_S: Final = 60.0
BUSY_REMEMBERED_MAX: Final = 1_000
"""Failures to get a lock that are counted within the window; more change no verdict."""
DISK_DEGRADED_BYTES: Final = 1 * GIB
DISK_FAILED_BYTES: Final = 64 * MIB

# Kernel: backup
BACKUP_PAGES_PER_STEP: Final = 4_096
SLOW_LOG_ENTRIES: Final = 256

# Pipeline
JAVA_PROBE_TIMEOUT_S: Final = 30.0
"""Time for one `java -version`: a JVM answers in tenths of a second, a hung shim never does."""
SPARK_TRIAL_TIMEOUT_S: Final = 240.0
"""Time for `fourfold doctor --spark` to start a session and run two small jobs on a slow
machine.
"""

# Command line
DOCTOR_FSYNC_ROUNDS: Final = 25
DOCTOR_ENTRIES_MAX: Final = 100_000
"""Files and folders of a store that `fourfold doctor` looks at; it says so when there are more."""

# Documents
DOCUMENT_BYTES_MAX: Final = 64 * MIB
DOCUMENT_ARRAY_INDEX_MAX: Final = 2**32 - 2
"""The largest array index that a path may spell; JavaScript has no larger one."""
DOCUMENT_INTEGER_BITS_MAX: Final = 4_096
"""More than anybody counts, and few enough that every interpreter prints the digits."""
OPERATIONS_MAX: Final = 100_000
"""Operations in one commit: bounds how long one transaction holds the writer."""
ENTITY_ID_BYTES_MAX: Final = 1_024
SPACE_DID_CHARS_MAX: Final = 200
"""A DID becomes a file name, and file systems stop at 255 bytes."""
BRANCH_NAME_CHARS_MAX: Final = 200
BRANCH_DEPTH_MAX: Final = 8
SNAPSHOT_PATCHES_MIN: Final = 10
"""Never a snapshot before so many patches have gathered since the last one."""
DOCUMENT_CACHE_BYTES: Final = 64 * MIB
HISTORY_PAGE_ROWS: Final = 1_000
EXPORT_PAGE_COMMITS: Final = 200
"""Commits that an export reads, and an import writes, in one transaction."""
SNAPSHOT_REPLAY_MAX: Final = 200
"""Maintenance makes a snapshot of a newest state that takes this many patches to reach."""
MAINTENANCE_PAGE_ROWS: Final = 500
"""Rows that maintenance looks at in one snapshot, and changes in one transaction."""
MERGE_ATTEMPTS_MAX: Final = 5
"""How often a merge is computed anew because its target changed meanwhile."""
WATCH_PAGE_COMMITS: Final = 256
"""Seqs that a watch knows ahead; the commits themselves are read one at a time."""
WATCH_POLL_S: Final = 0.1
"""How often a reader looks for the commits of another process."""
WATCH_HEARTBEAT_S: Final = 1.0
"""How often a waiting watch looks whether its database is still open."""
