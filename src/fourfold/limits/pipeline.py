"""Limits of the pipeline on Spark."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

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
PUBLISHED_MANIFEST_READERS: Final = 32
"""Manifests that are read together when a cut of published streams is taken."""
PUBLISHED_TASK_BYTES_MIN: Final = 4 * MIB
"""What a task reads of an object store at least, so that it does more than begin and end."""
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
"""Files of a table that only grows; with more of them it is rewritten."""
SEAL_WAVE_STREAMS: Final = 20_000
"""Streams that one wave of the job `seal` takes: what they became is in memory until it is in."""
SEAL_WAVE_TASKS: Final = 64
SEAL_TASK_BYTES_MIN: Final = 64 * MIB
SEAL_STREAM_COST_BYTES: Final = 128 * KIB
"""Making a file takes about as long as writing so much into one."""
SEAL_COMMIT_SEGMENTS: Final = 500
"""Segments that are taken in by one transaction."""
MANIFESTS_PER_TASK: Final = 500
MANIFEST_TASK_READERS: Final = 8
"""Manifests that one task of a job reads, and how many of them side by side."""
BOOTSTRAP_READ_KEYS: Final = 32
"""Manifests that a reader of `bootstrap` reads before it takes the next ones."""
BOOTSTRAP_STREAMS: Final = 20_000
BOOTSTRAP_SEGMENTS: Final = 50_000
"""Streams that `bootstrap` makes in one transaction, or segments of them, whichever comes first."""
COMPACT_WAVE: Final = 256
INDEX_WAVE: Final = 256
"""Files that Spark's workers build before the driver takes them in."""
