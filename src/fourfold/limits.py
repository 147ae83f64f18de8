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
SOURCE_PARTITION_BYTES: Final = 256 * MIB
"""What one task of a scan reads: a larger file is cut into parts, smaller ones are packed
together. Twice Spark's own default, since these bytes are not compressed; a task costs some 40 ms
of processor time before its first row.
"""
SOURCE_FOLD_SHARE: Final = 2
"""A task that folds takes several times as long as one that scans, so it gets one in so many of
these bytes.
"""
SOURCE_FILE_COST_BYTES: Final = 256 * KIB
"""Opening a file takes about as long as reading so much of one."""
SOURCE_BATCH_ROWS: Final = 10_000
SOURCE_BATCH_BYTES: Final = 16 * MIB
"""Small batches are joined until they have this many rows or bytes."""
SOURCE_BUSY_TIMEOUT_MS: Final = 5_000
SOURCE_CREATION_WAIT_S: Final = 2.0
"""How long a read waits for a space that is just being created."""
SOURCE_OPENERS: Final = 8
"""Files that are looked at together when a cut is taken."""
SOURCE_FILES_PER_LOOK: Final = 200
"""Files that one task describes, when a cut is taken by Spark."""
SOURCE_SELECTS_MAX: Final = 200
"""Tables of apps that one statement of a scan reads; SQLite joins no more than 500 selects."""
STREAM_BATCH_ROWS: Final = 200_000
"""Rows of a micro-batch, about: a commit is never divided."""
STREAM_TASK_ROWS: Final = 50_000
STREAM_SETTLED_S: Final = 2
"""A file that changed so recently is looked at again, since its times may not show a change."""
JOB_RECORDS_WAIT_S: Final = 30.0
"""How long a job waits for another one that is writing its own row in the table of runs."""
JOB_RECORDS_POLL_S: Final = 0.05
JOB_RANGES_KEPT: Final = 100
"""Ranges of the input that the row of a run lists one by one; the rest is counted."""
SPARK_PROGRESS_S: Final = 0.25
SPARK_CONNECT_TIMEOUT_S: Final = 10.0
"""Time for a Spark Connect server to take a connection; its own client would try for minutes."""
SINK_RUN_BYTES: Final = 64 * MIB
"""Rows that a task of the sink gathers and sorts before it writes them out."""
SINK_RUN_ROWS: Final = 500_000
SINK_BATCH_ROWS: Final = 4_096
SINK_COMMIT_OPERATIONS: Final = 10_000
"""Operations in one commit of the sink. A batch with more of them becomes several commits in the
same transaction.
"""
SINK_COMMIT_BYTES: Final = 8 * MIB
SINK_REMEMBERED_OPERATIONS: Final = 50_000
"""Operations of a transaction whose documents the sink keeps in memory, for patches that follow."""
SINK_SPACES_OPEN: Final = 32
SINK_FILES_OPEN: Final = 64
SINK_MERGE_ROWS: Final = 65_536
"""Rows that are in memory while those of one space are merged out of many staged files."""
SINK_REFUSED_NAMED: Final = 20
"""Bad rows that a task describes; the rest is counted."""
SINK_REQUEST_BYTES: Final = 64 * MIB
SINK_LOCK_WAIT_S: Final = 10.0
"""How long the sink waits for a space's writer: one that was killed with its driver may need a
moment to end.
"""
SINK_STAGING_AGE_S: Final = 86_400.0
"""Staged files of writes without a name are swept when they are older than this."""
FOLD_WAITING_ROWS_MAX: Final = 1_000
FOLD_WAITING_CHARS: Final = 4 * MIB
"""Patches of one entity that a bulk fold holds back undecoded: a later set would make them void."""
FOLD_PROGRAMS_REMEMBERED_MAX: Final = 4_096
FOLD_PROGRAM_CHARS_MAX: Final = 256
"""Lists of patches that a bulk fold keeps ready, because logs repeat the short ones."""
FOLD_BATCH_ROWS: Final = 10_000
FOLD_BATCH_CHARS: Final = 8 * MIB
"""States that a bulk fold hands on at once. Small batches keep the memory of a worker small."""
PUBLISHED_VERSIONS_KEPT: Final = 2
"""The version that readers see, and the one before, which some may still be reading."""
PUBLISHED_FILE_ROWS: Final = 1_000_000
"""Rows of one Parquet file of a published table, at most."""
PUBLISHED_GROUP_ROWS: Final = 100_000
PUBLISHED_GROUP_BYTES: Final = 64 * MIB
"""A row group of such a file ends when it has this much: a worker holds no more of it."""
PUBLISHED_PARTS_MAX: Final = 64
"""Files of a table that only grows; with more of them it is written anew."""

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
POINTERS_REMEMBERED_MAX: Final = 4_096
"""Pointers of patches whose paths are kept."""
POINTER_REMEMBERED_CHARS_MAX: Final = 128
DOCUMENT_CACHE_BYTES: Final = 64 * MIB
SEQ_MAX: Final = 2**63 - 1
"""The greatest integer that SQLite holds: no seq is beyond it."""
HISTORY_PAGE_ROWS: Final = 1_000
EXPORT_PAGE_COMMITS: Final = 200
"""Commits that an export reads, and an import writes, in one transaction."""
SNAPSHOT_REPLAY_MAX: Final = 200
"""Maintenance makes a snapshot of a newest state that takes this many patches to reach."""
VERIFY_PART_BYTES: Final = 64 * MIB
"""A file that is larger is checked in parts by several workers."""
VERIFY_TASKS: Final = 64
"""Tasks into which the check of small stores is divided, about."""
VERIFY_TASK_BYTES_MIN: Final = 4 * MIB
VERIFY_FAULTS_SHOWN: Final = 100
"""Faults that the report of a run lists; the others are counted, and stand in the file of the
report.
"""
VERIFY_ATTEMPTS: Final = 5
VERIFY_PAUSE_S: Final = 0.5
"""How often, and after what pause, a file is tried again that was busy."""
VERIFY_WAITING_ROWS: Final = 256
VERIFY_WAITING_BYTES: Final = 4 * MIB
"""Rows of one entity that verification folds at once."""
MAINTENANCE_PAGE_ROWS: Final = 500
"""Rows that maintenance looks at in one snapshot, and changes in one transaction."""
MERGE_ATTEMPTS_MAX: Final = 5
"""How often a merge is computed anew because its target changed meanwhile."""
GC_BATCH_ROWS: Final = 200
"""Rows of the log that a collection takes away in one transaction."""
GC_BATCH_BYTES: Final = 4 * MIB
GC_SEAL_ROWS: Final = 2_000
"""Rows that a collection reads in one transaction to seal commits, when these are large."""
GC_ENTITIES_REMEMBERED: Final = 100_000
"""Entities that a collection knows to be done with, so that it does not look at them again."""
GC_PREPARE_S: Final = 600.0
"""How long the first collection of a space may take to make its indexes."""
GC_REQUEST_BYTES_MIN: Final = 256
"""A shorter request is not worth a digest in its place."""
GC_BLOB_AGE_S: Final = 24 * 3_600.0
"""How long ago a blob was last put before a collection may take it: whoever puts one needs time to
commit what refers to it.
"""
GC_BLOB_TOUCH_S: Final = 600
"""A blob that is put again counts as new again, unless it was so long ago or less."""
WATCH_PAGE_COMMITS: Final = 256
"""Seqs that a watch knows ahead; the commits themselves are read one at a time."""
WATCH_POLL_S: Final = 0.1
"""How often a reader looks for the commits of another process."""
WATCH_HEARTBEAT_S: Final = 1.0
"""How often a waiting watch looks whether its database is still open."""

# Sessions
SESSION_ID_CHARS_MAX: Final = 200
SESSION_KEY_CHARS_MAX: Final = 200
"""The key of a request that may be sent again."""
SESSION_EVENT_TYPE_CHARS_MAX: Final = 100
SESSION_EVENT_BYTES_MAX: Final = 8 * MIB
"""One event, without the payloads that it refers to."""
SESSION_BATCH_EVENTS_MAX: Final = 100_000
"""Events in one batch: bounds how long one transaction holds the writer."""
SESSION_PAYLOAD_ROW_BYTES_MAX: Final = 64 * KIB
"""A larger payload is a file of its own; a smaller one would waste most of its file's last block,
and cost an fsync.
"""
SESSION_PAYLOAD_TOUCH_S: Final = 60
"""How exactly the age of a payload is known: a younger one is not written again to say so."""
SESSION_GRACE_S: Final = 86_400.0
"""What nothing refers to is kept so long, for whoever is about to refer to it."""
SESSION_SNAPSHOT_EVENTS_MIN: Final = 32
"""A head makes a snapshot of the folded state once so many events came since the last one."""
SESSION_SNAPSHOT_EVENTS_MAX: Final = 256
"""So many events make one without a head: opening a session never folds more."""
SESSION_SLOTS_MAX: Final = 4_096
"""Sessions whose state is kept in memory."""
SESSION_PAGE_EVENTS: Final = 500
"""Rows that are read at once, so that a long walk holds no snapshot open."""
SESSION_FEED_PAGE_EVENTS: Final = 256
"""Events that a feed reads ahead."""
SESSION_FEED_TRANSIENTS_MAX: Final = 1_024
"""Transient items that wait for one subscriber; what is more is dropped, and a gap says so."""
SESSION_DRAIN_S: Final = 5.0
"""How long a closing store waits for its subscribers to take what is there."""
SESSION_STEPS_MAX: Final = 25
"""Steps of one turn, if its runtime says nothing else."""
SESSION_FANOUT_MAX: Final = 50
"""Children that one call starts."""
SESSION_FANOUT_THREADS: Final = 16
"""Children that run at the same time."""
SESSION_DEPTH_MAX: Final = 16
"""Children of children: a step function that always calls itself comes to an end."""
SESSION_ERROR_CHARS_MAX: Final = 4_000
"""The message of an error, as a turn or an eval keeps it."""
SESSION_UPKEEP_DEADLINE_S: Final = 3_600.0
ADAPTER_THREADS_MAX: Final = 256
"""Threads of LangGraph whose newest checkpoints are kept in memory."""
ADAPTER_EVENTS_MAX: Final = 1_024
"""Events of one such thread that are."""
ADAPTER_ITEM_BYTES_MAX: Final = 4_096
"""An item of a conversation that stands in its event; a larger one is a payload."""
ADAPTER_LISTS_MAX: Final = 32
"""Lists of one such thread that are."""

# Graphs

INTEGER_MAX: Final = 2**63 - 1
"""The greatest integer that SQLite stores."""
GRAPH_NAME_MAX: Final = 256
"""Characters of a title, a type key, a setting's key, a label."""
ENVELOPE_OPERATIONS_MAX: Final = 10_000
"""Operations of one envelope: it is one transaction, and nobody else writes meanwhile."""
ENVELOPE_LOAD_PAGE: Final = 500
"""Envelopes that a load applies in one transaction."""
PACKAGE_BYTES_MAX: Final = 64 * MIB
"""A sync package; it is held in memory whole, because its signature covers all of it."""
FEED_PAGE_ROWS: Final = 1_000
"""Rows of a page of the change feed; a page is longer rather than cut one number in two."""

# Streams

STREAM_NAME_MAX: Final = 1024
"""Bytes of the name of a stream."""
STREAM_READ_RECORDS: Final = 10_000
"""Records of one read; whoever wants more goes on from where it ended."""
STREAM_READ_BYTES: Final = 4 * MIB
"""Bytes of one read, unless a single record is larger."""
STREAM_PAGE_BYTES: Final = 16 * MIB
"""Bytes of one answer to a reader that catches up, about; it is sent in pieces."""
STREAM_PIECE_BYTES: Final = 512 * KIB
STREAM_PIECE_BYTES_MAX: Final = 4 * STREAM_PIECE_BYTES
"""Bytes of such a piece: about, and at most, unless a single record is larger."""
STREAM_TAILS_MAX: Final = 8_192
"""Streams whose ends are remembered from one append to the next."""
STREAM_PRODUCERS_REMEMBERED: Final = 64
"""Producers of one of them."""
APPEND_BATCH_REQUESTS: Final = 1_024
APPEND_BATCH_BYTES: Final = 4 * MIB
"""Appends of coroutines that share one place in the queue of the writer."""
SWEEP_STREAMS: Final = 1_000
"""Streams that one sweep removes, or looks at, in one go."""
SUBSCRIPTIONS_MAX: Final = 10_000
SUBSCRIPTION_ID_MAX: Final = 200
SUBSCRIPTION_PATTERN_MAX: Final = 1_024
SUBSCRIPTION_TEXT_MAX: Final = 2_048
"""Characters of an address, a description, the name of a worker."""
SUBSCRIPTION_STREAMS_MAX: Final = 1_000
"""Streams that one request names, one wake tells of, or one page of a subscription shows."""
SUBSCRIPTION_BACKFILL_MAX: Final = 100_000
"""Streams that a new pattern may cover: they are linked in one transaction."""
SUBSCRIPTION_BATCH: Final = 500
"""New streams, ended leases and wakes that are dealt with in one transaction."""
LEASE_TTL_MS: Final = 30_000
"""How long a worker may be silent, if its subscription says nothing else."""
LEASE_TTL_MS_MIN: Final = 1_000
LEASE_TTL_MS_MAX: Final = 600_000

# Archive

SEGMENT_BYTES: Final = 16 * MIB
SEGMENT_ROWS: Final = 100_000
"""Payload, and records, that make a segment; a stream with so much pending is sealed."""
SEGMENT_AGE_S: Final = 300.0
SEGMENT_GROUP_BYTES: Final = 1 * MIB
SEGMENT_GROUP_ROWS: Final = 8_192
"""A row group of a segment: the least that a read decodes."""
SEGMENT_PAGE_BYTES: Final = 256 * KIB
SEGMENT_ZSTD_LEVEL: Final = 3
SEGMENT_BLOOM_FPP: Final = 0.01
ARCHIVE_CACHE_BYTES: Final = 1 * GIB
ARCHIVE_GRACE_S: Final = 86_400.0
"""How long an object that is no longer needed is kept: somebody may be reading it."""
ARCHIVE_CHUNK_BYTES: Final = 1 * MIB
ARCHIVE_TAIL_BYTES: Final = 64 * KIB
"""The end of a segment that is fetched at once; it says where everything else is."""
ARCHIVE_INDEXES_MAX: Final = 1_024
ARCHIVE_GROUPS_HELD: Final = 16
"""Ends of segments, and decoded row groups, that are kept in memory for whoever reads on."""
ARCHIVE_LOCKS: Final = 64
ARCHIVE_CONCURRENCY: Final = 4
ARCHIVE_STREAMS_PER_ROUND: Final = 256
ARCHIVE_TURN_SEGMENTS: Final = 4
"""Streams of one round, and segments of one stream in it, so that all of them get their turn."""
ARCHIVE_PUBLISH_ROWS: Final = 100_000
ARCHIVE_RECORD_DEADLINE_S: Final = 300.0
"""Records that one manifest adds, about: as many are trimmed in the transaction that records it."""
ARCHIVE_COLLECT_OBJECTS: Final = 1_000
ARCHIVE_EVERY_S: Final = 0.25
ARCHIVE_CHECKPOINT_S: Final = 60.0
ARCHIVE_RETRIES_MAX: Final = 2
ARCHIVE_RETRY_PAUSE_S: Final = 0.05
ARCHIVE_RETRY_PAUSE_MAX_S: Final = 2.0
ARCHIVE_BACKOFF_S: Final = 1.0
ARCHIVE_BACKOFF_MAX_S: Final = 300.0
"""A stream that cannot be published is left alone for so long, and longer with each failure."""

# Server

LONG_POLL_S: Final = 30.0
"""How long a long-poll waits for something new."""
SSE_S: Final = 60.0
"""How long one connection of server-sent events lasts; readers come back where they were."""
SSE_KEEP_ALIVE_S: Final = 15.0
"""A comment is sent so often while nothing happens, or proxies cut the connection."""
HTTP_BODY_MAX: Final = 32 * MIB
"""Bytes of a request's body."""
LIST_STREAMS_MAX: Final = 1_000
"""Streams of one page of the list."""
SWEEP_EVERY_S: Final = 1.0
"""How often streams are looked at whose time may be over."""
HTTP_KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept."""
HTTP_HEAD_S: Final = 20.0
"""How long the head of a request may take from its first byte."""
HTTP_BODY_S: Final = 30.0
HTTP_BODY_BYTES_PER_S_MIN: Final = 4 * KIB
"""How long a body may take, beside what it takes at this speed."""
HTTP_LOOK_S: Final = 1.0
"""How often connections are looked at that are too slow."""
HTTP_PIPELINE_MAX: Final = 1_024
"""Appends of one connection that are under way before no more is read from it."""
HTTP_BACKLOG: Final = 4_096
HTTP_SHUTDOWN_S: Final = 10
"""How long requests that are under way may take when the server stops."""
RETRY_AFTER_S: Final = 1
"""When a client that was turned away may come again, where nothing else is known."""
WEBHOOK_TIMEOUT_S: Final = 30.0
"""From the look-up of a webhook's name to the last byte of its answer."""
WEBHOOK_ANSWER_BYTES: Final = 64 * KIB
"""More of an answer is not read: it says done, or nothing that matters."""
WEBHOOK_CONCURRENCY: Final = 16
WEBHOOK_RETRY_S: Final = 1.0
WEBHOOK_RETRY_MAX_S: Final = 60.0
"""The pause before the second try; it doubles with each failure, up to the longest."""
WEBHOOK_JITTER: Final = 0.2
"""So much of a pause is up to chance, or receivers that failed together fail together again."""
WEBHOOK_LOOK_S: Final = 0.005
WEBHOOK_IDLE_S: Final = 5.0
WEBHOOK_DRAIN_S: Final = 2.0
"""How long webhooks that are under way may take when the server stops."""
APPEND_LINES: Final = 1_000
"""Lines of a file that go into one commit when a stream is loaded from it."""

# Client

CLIENT_CONNECT_S: Final = 10.0
CLIENT_TIMEOUT_S: Final = 30.0
CLIENT_LIVE_TIMEOUT_S: Final = 90.0
CLIENT_RETRY_S: Final = 30.0
COMMAND_RETRY_S: Final = 2.0
CLIENT_FOLLOW_RETRY_S: Final = 300.0
"""How long is asked again while a server cannot be reached: by a call, a command, a follower."""
CLIENT_BACKOFF_S: Final = 0.05
CLIENT_BACKOFF_S_MAX: Final = 5.0
CLIENT_WHOLE_BODY_BYTES: Final = 8 * MIB
PRODUCER_LINGER_S: Final = 0.005
PRODUCER_BATCH_COUNT: Final = 1_000
PRODUCER_BATCH_BYTES: Final = 1 * MIB
PRODUCER_IN_FLIGHT: Final = 4
PRODUCER_BUFFER_BYTES: Final = 16 * MIB
