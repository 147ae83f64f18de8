"""Limits and defaults that several modules share, with the unit in the name.

A limit that only one module uses is defined in that module.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Content, blobs and objects

CONTENT_DEPTH_MAX: Final = 500
"""Maximum nesting of a value, well within the stack of the interpreter."""
PAYLOAD_INLINE_BYTES_MAX: Final = 512
"""Largest payload that is stored inside its event; a larger one is a blob."""
PAYLOAD_KIND_CHARS_MAX: Final = 64
"""Length of a payload kind: a reference stays smaller than its payload."""
BLOB_BYTES_MAX: Final = 512 * MIB
"""Size of a blob: half of what SQLite holds in one value."""
BLOB_CHUNK_BYTES: Final = 1 * MIB
"""Bytes of a blob that are read or written at a time."""
BLOB_SWEEP_AGE_S: Final = 3_600.0
"""Temporary files younger than this may belong to a running writer."""
OBJECT_KEY_BYTES_MAX: Final = 1024
"""Length of an object key: the limit of S3, so that a store can move between backends."""
OBJECT_PUT_BYTES_MAX: Final = 5 * GIB
"""Size of an object in one request, a limit of S3; also of a conditional upload."""
OBJECT_UPLOAD_CHUNK_BYTES: Final = 8 * MIB
"""Size of one part of an upload."""
OBJECT_UPLOAD_CONCURRENCY: Final = 4
"""Parts of one upload in flight."""
OBJECT_TIMEOUT_S: Final = 60.0
"""Timeout of a request to an object store."""
OBJECT_RETRIES_MAX: Final = 5
"""Retries of a request to an object store."""
OBJECT_LIST_PAGE: Final = 1_000
"""Keys of one page of a listing."""

# Kernel

INTEGER_MAX: Final = 2**63 - 1
"""Greatest integer that SQLite stores, and so the greatest seq."""
BUSY_TIMEOUT_MS: Final = 5_000
"""Wait for a lock of SQLite."""
READERS_MAX: Final = 8
"""Pooled read connections of one database."""
DEADLINE_CHECK_STEPS: Final = 200_000
"""SQLite instructions between two checks of a deadline, about 5 ms."""
LOCK_LOOK_S: Final = 0.002
"""Pause between attempts to lock a file whose lock another process only inspects."""
TRANSACTION_DEADLINE_S: Final = 30.0
"""Deadline of a transaction."""
SLOW_TRANSACTION_MS: Final = 250
"""Transactions that take longer are in the slow log."""
GROUP_REQUESTS_MAX: Final = 1_024
"""Requests in one group commit: bounds how long the last one waits for the first."""
GROUP_BYTES_MAX: Final = 16 * MIB
"""Bytes of requests in one group commit."""
QUEUE_REQUESTS_MAX: Final = 65_536
"""Requests that wait for the writer before further ones are refused."""
QUEUE_BYTES_MAX: Final = 256 * MIB
"""Bytes of requests that wait for the writer."""
CHECKPOINT_BYTES: Final = 16 * MIB
"""Size of the WAL that starts a checkpoint: longer is less work, but slower to recover."""
WAL_DEGRADED_BYTES: Final = 64 * MIB
"""Size of the WAL from which a database is degraded."""
WAL_FAILED_BYTES: Final = 256 * MIB
"""Size of the WAL from which a database has failed."""
DISK_DEGRADED_BYTES: Final = 1 * GIB
"""Free disk space below which a database is degraded."""
DISK_FAILED_BYTES: Final = 64 * MIB
"""Free disk space below which a database has failed."""
BACKGROUND_PAUSES: Final = 4.0
"""Pause after a step of background work, as a multiple of the step's duration."""
BACKGROUND_PAUSE_MAX_S: Final = 0.1
"""Longest pause after a step of background work."""
BACKGROUND_LOOK_S: Final = 0.001
"""Interval at which background work checks for other writers."""

# Archive

SEGMENT_BYTES: Final = 16 * MIB
"""Pending payload from which a stream is sealed."""
SEGMENT_ROWS: Final = 100_000
"""Pending records from which a stream is sealed."""
SEGMENT_AGE_S: Final = 300.0
"""Age of the oldest pending record from which a stream is sealed."""
SEGMENT_GROUP_BYTES: Final = 1 * MIB
"""Payload of a row group, the least that a read decodes."""
SEGMENT_GROUP_ROWS: Final = 8_192
"""Rows of a row group."""
SEGMENT_PAGE_BYTES: Final = 256 * KIB
"""Size of a data page in Parquet."""
SEGMENT_ZSTD_LEVEL: Final = 3
"""Compression level of Parquet files."""
COMPACT_BYTES: Final = 4 * SEGMENT_BYTES
"""Maximum payload of a compacted segment."""
ARCHIVE_CACHE_BYTES: Final = 1 * GIB
"""Segments cached on disk."""
ARCHIVE_GRACE_S: Final = 86_400.0
"""Grace period of an unused object, for readers that still use it."""
ARCHIVE_CHUNK_BYTES: Final = 1 * MIB
"""Bytes of an object that are read or written at a time."""
ARCHIVE_LOCKS: Final = 64
"""Locks that streams or segments share by hash."""
ARCHIVE_CONCURRENCY: Final = 4
"""Transfers to or from the object store in flight."""
ARCHIVE_STREAMS_PER_ROUND: Final = 256
"""Streams that one round of background work covers."""
ARCHIVE_RECORD_DEADLINE_S: Final = 300.0
"""Deadline of a transaction that records manifests."""
ARCHIVE_COLLECT_OBJECTS: Final = 1_000
"""Objects that one round of gc deletes."""
ARCHIVE_RETRIES_MAX: Final = 2
"""Retries of a request to the object store."""
ARCHIVE_BACKOFF_S: Final = 1.0
"""First pause of a stream or database that cannot be published; it doubles with each failure."""
ARCHIVE_BACKOFF_MAX_S: Final = 300.0
"""Longest pause of a stream or database that cannot be published."""
ARCHIVE_TRIM_ROWS: Final = 250
"""Records that one transaction trims, so that appends get their turn."""
PUBLISH_ORPHAN_S: Final = 86_400.0
"""Age of a large value without a reference from which it is an orphan, not one in progress."""
PUBLISH_FORGET_POINTS: Final = 64
"""Minimum restore points that the background drops at a time: each time rewrites a list."""
PUBLISH_DEADLINE_S: Final = 3_600.0
"""Deadline of the read transaction that is sealed, and of a restore."""

# Documents and feeds

DOCUMENT_BYTES_MAX: Final = 64 * MIB
"""Size of one encoded document."""
DOCUMENT_INTEGER_BITS_MAX: Final = 4_096
"""Size of an integer in a document: every interpreter prints as many digits."""
ENTITY_ID_BYTES_MAX: Final = 1_024
"""Length of the id of an entity."""
NAMESPACE_LABELS_MAX: Final = 32
"""Labels of a namespace of a memory."""
BRANCH_NAME_CHARS_MAX: Final = 200
"""Length of the name of a branch."""
BRANCH_DEPTH_MAX: Final = 8
"""Ancestors of a branch."""
HISTORY_PAGE_ROWS: Final = 1_000
"""Rows of a page of history."""
SNAPSHOT_REPLAY_MAX: Final = 200
"""Patches since the last snapshot from which maintenance writes another one."""
MAINTENANCE_PAGE_ROWS: Final = 500
"""Rows that maintenance reads, and changes, in one transaction."""
GC_BATCH_ROWS: Final = 200
"""Rows of the log that one gc transaction removes."""
GC_BATCH_BYTES: Final = 4 * MIB
"""Bytes of the log that one gc transaction removes."""
GC_TRANSACTION_S: Final = 0.01
"""Time after which a gc transaction ends: writers wait for it."""
GC_ENTITIES_REMEMBERED: Final = 100_000
"""Finished entities that gc caches, so that it does not inspect them again."""
GC_REQUEST_BYTES_MIN: Final = 256
"""A shorter request is not replaced by its digest."""
WATCH_POLL_S: Final = 0.1
"""Interval at which a feed looks for commits of another process."""
WATCH_HEARTBEAT_S: Final = 1.0
"""Interval at which a waiting feed checks that its database is open."""

# Graphs

GRAPH_NAME_MAX: Final = 256
"""Characters of a title, a type key, a setting's key, a label."""
ENVELOPE_OPERATIONS_MAX: Final = 10_000
"""Operations of one envelope: it is one transaction, during which no other writer runs."""
NEIGHBOURS_MAX: Final = 200
"""Attributes, edges and ratings around an object that one read returns."""
TRAVERSE_OBJECTS_MAX: Final = 10_000
"""Objects that one traversal returns."""
TRAVERSE_DEPTH: Final = 3
"""Default number of hops of a traversal."""
PATH_OBJECTS_MAX: Final = 1_000_000
"""Objects that a search for a path visits, from both ends together."""
HTTP_PATH_OBJECTS_MAX: Final = 100_000
"""The same of a search over HTTP: several run at once."""
DEPTH_MAX: Final = 1_000
"""Edges of a walk over HTTP."""
PATH_DEPTH: Final = 16
"""Default maximum number of edges of a path."""
MATCH_STEPS_MAX: Final = 6
"""Steps of a pattern."""
MATCH_HOPS_MAX: Final = 6
"""Edges of a path in a pattern."""
MATCH_REACH_MAX: Final = 100_000
"""Objects, counted once at each distance, that a path in a pattern may reach from one object."""
VERSIONS_MAX: Final = 1_000
"""Versions of an object, its attributes and its ratings that one read returns."""
OBJECTS_READ_MAX: Final = 200
"""Objects that one read returns together with what is around them."""
FEED_PAGE_ROWS: Final = 1_000
"""Rows of a page of the change feed, which never splits a transaction."""

# Streams

STREAM_READ_RECORDS: Final = 10_000
"""Maximum records of one read; the reader continues from its end."""
STREAM_SHORT_READ_RECORDS: Final = 256
"""Records that are read on the thread of an event loop; larger reads use another thread."""
STREAM_PIECE_BYTES: Final = 512 * KIB
"""Approximate bytes of one piece of a response."""
STREAM_EXPIRES_MS_MAX: Final = 253_402_300_799_999
"""Latest expiry, in Unix milliseconds: the end of 9999, the last year of RFC 3339."""
ROUTING_KEY_MAX: Final = 1_024
"""Bytes of a routing key."""
APPEND_BATCH_BYTES: Final = 4 * MIB
"""Bytes of the messages that `fourfold stream append --from` sends together."""
LIST_STREAMS_MAX: Final = 1_000
"""Streams of one page of a listing."""
SCHEMA_INLINE_CHECKS: Final = 20_000
"""Values times schemas of an append that is validated in its transaction: a few ms."""
SCHEMA_REASON_CHARS: Final = 300
"""Characters of a reason why a message is not valid, or of a quoted schema."""
SUBSCRIPTION_TEXT_MAX: Final = 2_048
"""Characters of a URL, a description or the name of a worker."""
SUBSCRIPTION_STREAMS_MAX: Final = 1_000
"""Streams of one request, one wake or one page of a subscription."""
SUBSCRIPTION_BATCH: Final = 500
"""New streams, expired leases and wakes that one transaction handles."""
TOUCH_KEY_CHARS: Final = 4_096
"""Characters of an entity, a key or a value to wait for."""
TOUCH_TEMPLATES_MAX: Final = 256
"""Active templates of a stream, and as many retired ones."""

# Sessions

SESSION_ID_CHARS_MAX: Final = 200
"""Length of a session id."""
SESSION_KEY_CHARS_MAX: Final = 200
"""Length of an idempotency key."""
SESSION_BATCH_EVENTS_MAX: Final = 100_000
"""Events in one batch: bounds how long one transaction holds the writer."""
SESSION_EVENT_BYTES_MAX: Final = 8 * MIB
"""Size of an event, without the payloads that it refers to."""
SESSION_PAYLOAD_ROW_BYTES_MAX: Final = 64 * KIB
"""Largest payload in a row; a smaller file would waste its last block, and cost an fsync."""
SESSION_PAYLOAD_TOUCH_S: Final = 60
"""Precision of the recorded age of a payload."""
SESSION_GRACE_S: Final = 86_400.0
"""Grace period of unreferenced payloads, for writers that are about to refer to them."""
SESSION_SNAPSHOT_EVENTS_MAX: Final = 256
"""Events since the last snapshot from which one is stored: opening never folds more."""
SESSION_PAGE_EVENTS: Final = 500
"""Rows that are read at once, so that a long scan keeps no read transaction open."""
SESSION_FEED_TRANSIENTS_MAX: Final = 1_024
"""Transient items that wait for one subscriber; further ones are dropped and reported as a gap."""
SESSION_LEASE_S: Final = 30.0
"""Default duration of a lease."""
SESSION_STEPS_MAX: Final = 25
"""Default maximum of steps in one turn."""

# Pipeline

JAVA_PROBE_TIMEOUT_S: Final = 30.0
"""Timeout of `java -version`. A JVM answers in tenths of a second, a hung shim never."""
SOURCE_PARTITION_BYTES: Final = 256 * MIB
"""Input of one scan task, twice Spark's default: the bytes are not compressed."""
SOURCE_FILE_COST_BYTES: Final = 256 * KIB
"""Cost of opening a file, as the number of bytes that could be read in that time."""
SOURCE_BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch; smaller batches are concatenated."""
SOURCE_BATCH_BYTES: Final = 16 * MIB
"""Bytes of an Arrow batch."""
SOURCE_BUSY_TIMEOUT_MS: Final = 5_000
"""Wait for a lock of SQLite in a scan."""
SOURCE_FILES_PER_LOOK: Final = 200
"""Files that one task of a job opens."""
EXPORT_CACHE_BYTES: Final = 8 * GIB
"""Rows of live files that are exported for Spark."""
SOURCE_SELECTS_MAX: Final = 200
"""App tables in one statement of a scan; SQLite allows 500 selects in a compound."""
JOB_RECORDS_POLL_S: Final = 0.05
"""Pause between attempts to lock the table of runs."""
SINK_LOCK_WAIT_S: Final = 10.0
"""Maximum wait for the writer of a space; one killed with its driver takes a while to end."""
FOLD_BATCH_ROWS: Final = 10_000
"""States in one output batch of a bulk fold."""
MATERIALIZED_FILE_ROWS: Final = 1_000_000
"""Maximum rows of one Parquet file of a materialized table."""
MANIFESTS_PER_TASK: Final = 500
"""Manifests that one task of a job reads."""
VERIFY_PART_BYTES: Final = 64 * MIB
"""A larger file is verified in parts by several workers."""
VERIFY_TASKS: Final = 64
"""Approximate number of tasks that verify small files."""
VERIFY_TASK_BYTES_MIN: Final = 4 * MIB
"""Minimum input of a task that verifies."""
VERIFY_FAULTS_SHOWN: Final = 100
"""Problems listed in the report of a run; the file of the report has all of them."""

# Server and client

LONG_POLL_S: Final = 30.0
"""Duration of a long poll."""
HTTP_BODY_MAX: Final = 32 * MIB
"""Bytes of a request body."""
HTTP_BODY_BYTES_IN_FLIGHT: Final = 256 * MIB
"""Bytes of bodies that are being received over all connections."""
QUERY_PROCESSES: Final = 2
QUERY_MEMORY_BYTES: Final = 256 * MIB
"""Processes of a server that run SQL of clients, and the memory that one query may use."""
HTTP_BODY_SHARE: Final = 0.25
"""Share of these bytes that one key may have: enough for the largest body."""
HTTP_CONNECTIONS: Final = 4_096
"""Open connections."""
HTTP_CONNECTIONS_PER_ADDRESS: Final = 256
"""Open connections from one address."""
HTTP_WRITE_STALL_S: Final = 30.0
"""Time after which a client that reads nothing is disconnected."""
HTTP_HANDSHAKE_S: Final = 10.0
"""Time for a TLS handshake, and for the end of a TLS connection."""
HTTP_KEEP_ALIVE_S: Final = 75
"""Time after which an idle connection is closed."""
PAGE_ITEMS: Final = 100
PAGE_ITEMS_MAX: Final = 1_000
"""Items of a page of a list over HTTP: by default, and at most."""
PAGE_BYTES: Final = 8 * MIB
"""A page ends after an item that exceeds this size, however many items were requested."""
TRANSIENT_ITEMS_MAX: Final = 256
"""Transient items of a session in one request, and that wait for one reader."""
HTTP_LOOP_BYTES: Final = 64 * KIB
"""A larger body is decoded, and a larger document read, in a worker thread."""
RETRY_AFTER_S: Final = 1
"""`Retry-After` of a refused request, unless a better value is known."""
SLOW_REQUEST_S: Final = 1.0
"""Requests that take longer, without waiting for something new, are logged."""
AUDIT_BYTES: Final = 64 * MIB
"""Size of the audit log."""
WEBHOOK_TIMEOUT_S: Final = 30.0
"""Timeout of a webhook call, from name resolution to the last byte of the response."""
WEBHOOK_CONCURRENCY: Final = 16
"""Webhook calls in flight."""
CLIENT_TIMEOUT_S: Final = 30.0
"""Timeout of a request."""
CLIENT_LIVE_TIMEOUT_S: Final = 90.0
"""Timeout of a long poll, and between two events of SSE."""
CLIENT_RETRY_S: Final = 30.0
"""Total time of the retries of a call."""
CLIENT_FOLLOW_RETRY_S: Final = 300.0
"""Total time of the retries of a follower."""
