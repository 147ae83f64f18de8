"""The database of the benchmark: its schema, the template that every run starts from a copy of, and
the proof that a run stored what it should have.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import apsw

from bench.kernel import dataset
from bench.kernel.dataset import Dataset
from fourfold.kernel import Database, Migration, load_queries, profiles
from fourfold.kernel.named_queries import read_sql

PROFILE = profiles.PLAIN
SQL = load_queries("bench.kernel")
SCHEMA = (Migration(1, "log", read_sql("bench.kernel", "schema.sql")),)


class WrongRows(Exception):
    """A run left something else in the database than it was given; its time means nothing."""


def open_database(path: Path) -> Database:
    return Database.open(path, profile=PROFILE, migrations=SCHEMA)


def make_template(path: Path) -> None:
    """A database with a counter at 0 for each key, made by the kernel and used by both sides."""
    with open_database(path) as db, db.write() as txn:
        txn.insert_many("counter", ("key", "next"), [(k, 0) for k in range(1, dataset.KEYS + 1)])


def copy_template(template: Path, path: Path) -> None:
    """A fresh copy, on disk before the clock starts, so that nobody pays for writing it."""
    for suffix in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(template, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def setup_for_c(autocheckpoint_pages: int) -> str:
    """The pragmas of the kernel's writer, as text for the C program."""
    return ";".join(
        (
            f"PRAGMA busy_timeout={PROFILE.busy_timeout_ms}",
            "PRAGMA journal_mode=WAL",
            f"PRAGMA synchronous={PROFILE.synchronous}",
            f"PRAGMA wal_autocheckpoint={autocheckpoint_pages}",
            f"PRAGMA foreign_keys={int(PROFILE.foreign_keys)}",
            "PRAGMA cell_size_check=1",
            "PRAGMA temp_store=MEMORY",
            f"PRAGMA cache_size=-{PROFILE.cache_kib}",
            f"PRAGMA mmap_size={PROFILE.mmap_bytes}",
        )
    )


def verify(path: Path, expected: Dataset) -> None:
    """Raise WrongRows unless the file holds exactly the expected rows, dense and counted."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        _verify(connection, expected)
    finally:
        connection.close()


def _verify(connection: apsw.Connection, expected: Dataset) -> None:
    def ask(sql: str) -> list[tuple[object, ...]]:
        return connection.execute(sql).fetchall()

    count = connection.execute(SQL.count_entries).get
    if count != len(expected.keys):
        raise WrongRows(f"{count} rows instead of {len(expected.keys)}")
    if holes := ask(SQL.keys_with_holes):
        raise WrongRows(f"positions are not dense: key, rows, first, last = {holes[0]}")
    if wrong := ask(SQL.wrong_counters):
        raise WrongRows(f"counters disagree with the log: key, counter, rows = {wrong[0]}")
    if connection.execute(SQL.wrong_sizes).get:
        raise WrongRows("sizes disagree with the payloads")
    rows = cast("Iterable[tuple[int, bytes]]", connection.execute(SQL.all_payloads))
    if dataset.fingerprint(rows) != expected.fingerprint():
        raise WrongRows("payloads are not those that were given")
    problems = ask(SQL.integrity)
    if problems != [("ok",)]:
        raise WrongRows(f"integrity_check: {problems[0]}")
