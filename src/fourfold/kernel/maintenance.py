"""Maintenance of a database file: checkpoint, vacuum, statistics, integrity check and metrics.

The caller holds the writer's lock if an operation needs it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.durability import sync_file
from fourfold.errors import Busy, FourfoldError, InvalidInput, StorageError
from fourfold.kernel import backup, failpoints
from fourfold.kernel.driver import CHECKPOINT_MODES, Connection, DriverError, translate
from fourfold.kernel.health import Health, Thresholds, assess
from fourfold.kernel.metrics import Metrics, MetricsReading
from fourfold.kernel.transaction import SQL

LOG_FILE_BYTES_MAX: Final = 64 * limits.MIB
"""Size to which the file of a write-ahead log is truncated after it grew under a long read."""
LOG_TRUNCATE_BYTES: Final = 32 * limits.MIB
"""Bytes that one commit truncates; freeing a gigabyte at once takes 100 to 300 ms."""

_LOG_HEADER_BYTES: Final = 32
_LOG_RUN: Final = slice(12, 24)
"""Checkpoint sequence number and salts in the header of a write-ahead log."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Result of a checkpoint: True if it was incomplete, pages in the log, pages copied."""

    busy: bool
    log_pages: int
    done_pages: int


def checkpoint(connection: Connection, mode: str, subject: str) -> Checkpoint:
    """Checkpoint the log. Modes other than PASSIVE wait for readers up to the busy timeout."""
    if mode not in CHECKPOINT_MODES:
        raise InvalidInput(
            f"checkpoint mode must be one of {', '.join(CHECKPOINT_MODES)}, got {mode!r}"
        )
    if failpoints.armed:
        failpoints.hit("kernel.checkpoint.before")
    try:
        # A connection ignores the log until its first read.
        connection.execute(SQL.fix_snapshot).fetchall()
        log, done = connection.wal_checkpoint("main", CHECKPOINT_MODES[mode])
    except DriverError as error:
        translated = translate(error, subject)
        if isinstance(translated, Busy):
            return Checkpoint(busy=True, log_pages=-1, done_pages=-1)
        raise translated from error
    if failpoints.armed:
        failpoints.hit("kernel.checkpoint.after")
    return Checkpoint(busy=done < log, log_pages=log, done_pages=done)


def limit_log(connection: Connection, path: Path) -> bool:
    """Let the next commit truncate a large log file by one step; return True if one is due.

    The log must be checkpointed completely. That commit starts the log over, and SQLite truncates
    the file to the limit of the connection. The caller holds the writer's lock, and calls
    `unlimit_log` before the next checkpoint: the log may have grown again until then.
    """
    size = size_of(log_path(path))
    if size <= LOG_FILE_BYTES_MAX:
        return False
    connection.pragma("journal_size_limit", max(LOG_FILE_BYTES_MAX, size - LOG_TRUNCATE_BYTES))
    return True


def unlimit_log(connection: Connection) -> None:
    """Do not truncate the file when the log starts over. The caller holds the writer's lock."""
    connection.pragma("journal_size_limit", -1)


def vacuum(connection: Connection, readers_in_use: int, subject: str) -> None:
    """Rebuild the file without free pages; raise Busy while read transactions are open."""
    if readers_in_use:
        raise Busy(
            f"{subject}: cannot vacuum while {readers_in_use} read transactions are open",
            hint="Vacuum after the readers have finished.",
        )
    try:
        connection.execute("VACUUM")
        connection.execute(SQL.meta_set, ("last_vacuum_ts", _now()))
    except DriverError as error:
        raise translate(error, subject) from error


def analyze(connection: Connection, subject: str) -> None:
    """Refresh the statistics of the query planner."""
    try:
        connection.execute("ANALYZE")
    except DriverError as error:
        raise translate(error, subject) from error


def integrity_problems(connection: Connection, subject: str) -> list[str]:
    """Return the problems of the integrity check; a check that fails is one problem."""
    try:
        return backup.integrity_problems(connection)
    except DriverError as error:
        return [translate(error, subject).message]


def sync_log(path: Path) -> None:
    """Flush the write-ahead log to disk.

    SQLite holds no lock on the log file, so opening it here is safe. Pages that are no longer in
    the log were synced with the database file before the log restarted.
    """
    log = log_path(path)
    for file in (log, path.parent):
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            sync_file(fd)
        except OSError as error:
            raise StorageError(f"{file}: cannot sync to disk: {error.strerror}") from error
        finally:
            os.close(fd)


def close_writer(connection: Connection) -> None:
    """Checkpoint the log and close; the last connection to close deletes the log file."""
    connection.set_wal_hook(None)
    # If another process reads, or the disk is full, the log remains and the next open replays it.
    # SQLite tries once more when it closes.
    with suppress(DriverError):
        connection.wal_checkpoint("main", CHECKPOINT_MODES["TRUNCATE"])
    with suppress(DriverError):
        connection.close()


def log_path(path: Path) -> Path:
    """Return the path of the write-ahead log of a database."""
    return path.with_name(path.name + "-wal")


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def health(
    path: Path,
    *,
    metrics: Metrics,
    failure: FourfoldError | None,
    integrity_errors: int,
    thresholds: Thresholds,
) -> Health:
    """Return the health of a database."""
    return assess(
        path.parent,
        wal_size_bytes=size_of(log_path(path)),
        busy_count=metrics.recent_busy_count(),
        failure=failure,
        integrity_errors=integrity_errors,
        thresholds=thresholds,
    )


def reading(
    path: Path,
    metrics: Metrics,
    *,
    open_connections: int,
    open_readers: int,
    queued: tuple[int, int],
) -> MetricsReading:
    """Return the metrics of a database that are known without reading it."""
    return MetricsReading(
        database=path.name,
        db_size_bytes=size_of(path),
        wal_size_bytes=size_of(log_path(path)),
        open_connections=open_connections,
        open_readers=open_readers,
        pending_checkpoint=metrics.wal_pages,
        last_vacuum_ts=None,
        last_backup_ts=None,
        txn_latency_ms={"p50": metrics.latency_ms(0.5), "p99": metrics.latency_ms(0.99)},
        sequences={},
        durable={},
        queued_requests=queued[0],
        queued_bytes=queued[1],
        counters={
            "transactions": metrics.transactions,
            "requests": metrics.requests,
            "rolled_back": metrics.rolled_back,
            "rejected": metrics.rejected,
            "busy_total": metrics.busy_total,
            "slow_total": metrics.slow_total,
            "checkpoints": metrics.checkpoints,
        },
        latency_sum_s=metrics.latency_sum_s,
        latency_buckets=tuple(metrics.latency_buckets),
        commit_sum_s=metrics.commit_sum_s,
        commit_buckets=tuple(metrics.commit_buckets),
        group_sum=metrics.group_sum,
        group_buckets=tuple(metrics.group_buckets),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def log_generation(path: Path, least_bytes: int) -> bytes | None:
    """Return an id of the write-ahead log that changes when the log restarts.

    Return None if the log is not longer than `least_bytes`.
    """
    try:
        with path.with_name(f"{path.name}-wal").open("rb") as file:
            header = file.read(_LOG_HEADER_BYTES)
            return header[_LOG_RUN] if file.seek(0, os.SEEK_END) > least_bytes else None
    except FileNotFoundError:
        return None
