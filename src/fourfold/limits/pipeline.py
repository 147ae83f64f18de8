"""Limits of the pipeline on Spark."""

from __future__ import annotations

from typing import Final

from fourfold.limits.units import KIB, MIB

JAVA_PROBE_TIMEOUT_S: Final = 30.0
"""Timeout of `java -version`. A JVM answers in tenths of a second, a hung shim never."""
SPARK_TRIAL_TIMEOUT_S: Final = 240.0
"""Timeout of `fourfold doctor --spark`, which starts a session and runs two small jobs."""
SOURCE_PARTITION_BYTES: Final = 256 * MIB
"""Input of one scan task: larger files are split, smaller ones packed together. Twice Spark's
default, because these bytes are not compressed and a task costs about 40 ms of CPU time before its
first row.
"""
SOURCE_FOLD_SHARE: Final = 2
"""Divisor of the input of a task that folds, which takes longer than one that scans."""
SOURCE_FILE_COST_BYTES: Final = 256 * KIB
"""Cost of opening a file, as the number of bytes that could be read in that time."""
SOURCE_BATCH_ROWS: Final = 10_000
SOURCE_BATCH_BYTES: Final = 16 * MIB
"""Small batches are concatenated until they have this many rows or bytes."""
SOURCE_BUSY_TIMEOUT_MS: Final = 5_000
SOURCE_CREATION_WAIT_S: Final = 2.0
"""Maximum wait for a space that is being created."""
SOURCE_OPENERS: Final = 8
"""Files that are opened in parallel to read a cut."""
SOURCE_FILES_PER_LOOK: Final = 200
"""Files that one task inspects when Spark reads a cut."""
SOURCE_SELECTS_MAX: Final = 200
"""App tables in one statement of a scan; SQLite allows 500 selects in a compound."""
PUBLISHED_MANIFEST_READERS: Final = 32
"""Manifests that are read in parallel for a cut of published streams."""
PUBLISHED_TASK_BYTES_MIN: Final = 4 * MIB
"""Minimum input of a task that reads an object store."""
STREAM_BATCH_ROWS: Final = 200_000
"""Approximate rows of a micro-batch; a commit is never split."""
STREAM_TASK_ROWS: Final = 50_000
STREAM_SETTLED_S: Final = 2
"""A file modified more recently is inspected again: its times may not show a later change."""
JOB_RECORDS_WAIT_S: Final = 30.0
"""Maximum wait for another job that writes to the table of runs."""
JOB_RECORDS_POLL_S: Final = 0.05
JOB_RANGES_KEPT: Final = 100
"""Input ranges listed in the row of a run; further ones are only counted."""
SPARK_PROGRESS_S: Final = 0.25
SPARK_CONNECT_TIMEOUT_S: Final = 10.0
"""Timeout of a connection to Spark Connect, whose own client would retry for minutes."""
SINK_RUN_BYTES: Final = 64 * MIB
"""Rows that a task of the sink sorts in memory before it writes them."""
SINK_RUN_ROWS: Final = 500_000
SINK_BATCH_ROWS: Final = 4_096
SINK_COMMIT_OPERATIONS: Final = 10_000
"""Operations in one commit of the sink. A batch with more of them becomes several commits in the
same transaction.
"""
SINK_COMMIT_BYTES: Final = 8 * MIB
SINK_REMEMBERED_OPERATIONS: Final = 50_000
"""Operations of a transaction whose documents the sink caches for later patches."""
SINK_SPACES_OPEN: Final = 32
SINK_FILES_OPEN: Final = 64
SINK_MERGE_ROWS: Final = 65_536
"""Rows in memory while the staged files of one space are merged."""
SINK_REFUSED_NAMED: Final = 20
"""Bad rows that a task describes; further ones are only counted."""
SINK_REQUEST_BYTES: Final = 64 * MIB
SINK_LOCK_WAIT_S: Final = 10.0
"""Maximum wait for the writer of a space; one killed with its driver takes a while to end."""
SINK_STAGING_AGE_S: Final = 86_400.0
"""Staged files of writes without a name are swept when they are older than this."""
FOLD_WAITING_ROWS_MAX: Final = 1_000
FOLD_WAITING_CHARS: Final = 4 * MIB
"""Patches of one entity that a bulk fold leaves undecoded, because a later set replaces them."""
FOLD_PROGRAMS_REMEMBERED_MAX: Final = 4_096
FOLD_PROGRAM_CHARS_MAX: Final = 256
"""Cache of compiled patch lists in a bulk fold: logs repeat short ones."""
FOLD_BATCH_ROWS: Final = 10_000
FOLD_BATCH_CHARS: Final = 8 * MIB
"""States in one output batch of a bulk fold; small batches limit the memory of a worker."""
MATERIALIZED_VERSIONS_KEPT: Final = 2
"""The current version, and the previous one for readers that still use it."""
MATERIALIZED_FILE_ROWS: Final = 1_000_000
"""Maximum rows of one Parquet file of a materialized table."""
MATERIALIZED_GROUP_ROWS: Final = 100_000
MATERIALIZED_GROUP_BYTES: Final = 64 * MIB
"""Size of a row group, which a worker holds in memory."""
MATERIALIZED_PARTS_MAX: Final = 64
"""Maximum files of a table that only grows; with more it is rewritten."""
SEAL_WAVE_STREAMS: Final = 20_000
"""Streams in one wave of the job `seal`; their segments are in memory until it is committed."""
SEAL_WAVE_TASKS: Final = 64
SEAL_TASK_BYTES_MIN: Final = 64 * MIB
SEAL_STREAM_COST_BYTES: Final = 128 * KIB
"""Cost of creating a file, as the number of bytes that could be written in that time."""
SEAL_COMMIT_SEGMENTS: Final = 500
"""Segments that one transaction adopts."""
MANIFESTS_PER_TASK: Final = 500
MANIFEST_TASK_READERS: Final = 8
"""Manifests that one task of a job reads, and how many of them in parallel."""
BOOTSTRAP_READ_KEYS: Final = 32
"""Manifests that one thread of `bootstrap` reads at a time."""
BOOTSTRAP_STREAMS: Final = 20_000
BOOTSTRAP_SEGMENTS: Final = 50_000
"""Streams, or segments, that `bootstrap` creates in one transaction at most."""
COMPACT_WAVE: Final = 256
INDEX_WAVE: Final = 256
"""Files that Spark's workers build before the driver adopts them."""
