"""The peer: the same change feed as people build it by hand, with Python's own sqlite3. Triggers
copy every row into an audit table, and a reader follows that table.

It has no versions, no past, no checks, no flags, no numbers shared by a batch, and one writer at a
time; the file has the same journal mode, `synchronous` and cache.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

from bench.documents.job import Job
from bench.graphs import dataset, store
from bench.graphs.task import Task
from fourfold.kernel import load_queries

SQL = load_queries("bench.graphs", "peer.sql")
_AT = "2026-01-01T00:00:00+00:00"


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in (SQL.wal, SQL.normal, SQL.cache):
        connection.execute(pragma)
    return connection


def make_base(path: Path) -> None:
    connection = connect(path)
    connection.executescript(SQL.schema)
    parents = [(1, dataset.OWNER, _AT)] * dataset.TARGETS
    connection.execute(SQL.begin)
    connection.executemany(SQL.add_parent, parents)
    connection.execute(SQL.commit)
    connection.close()


def make_log(path: Path, numbers: int) -> None:
    make_base(path)
    connection = connect(path)
    for number in range(numbers):
        _add(connection, number)
    connection.close()


def _add(connection: sqlite3.Connection, number: int) -> None:
    """A conversation with three texts and an edge, in one transaction."""
    execute = connection.execute
    execute(SQL.begin)
    parent = execute(SQL.add_parent, (1, dataset.OWNER, _AT)).lastrowid
    for each in range(3):
        text = dataset.text(3 * number + each)
        execute(SQL.add_attr, (parent, 2, dataset.OWNER, text, _AT))
    execute(SQL.add_edge, (parent, number % dataset.TARGETS + 1, 3, dataset.OWNER, _AT))
    execute(SQL.commit)


def _finish(connection: sqlite3.Connection, rows: int) -> None:
    held, audited = connection.execute(SQL.counts).fetchone()
    store.same((held, audited), (rows, rows), "rows and their copies")
    connection.close()


def insert(task: Task) -> Job:
    """Attributes, 10,000 to a transaction."""
    connection = connect(Path(task.database))
    given = dataset.rows("attr", task.count)
    rows = [(row["parent_id"], 2, dataset.OWNER, row["value_text"], _AT) for row in given]
    held = connection.execute(SQL.counts).fetchone()[0]

    def run() -> list[float]:
        taken = []
        for at in range(0, len(rows), dataset.BATCH):
            before = time.perf_counter()
            connection.execute(SQL.begin)
            connection.executemany(SQL.add_attr, rows[at : at + dataset.BATCH])
            connection.execute(SQL.commit)
            taken.append(time.perf_counter() - before)
        connection.execute(SQL.fold_back)
        return taken

    return Job(run, after=lambda: _finish(connection, held + task.count))


def envelope(task: Task) -> Job:
    """Transactions of five rows, one after another."""
    connection = connect(Path(task.database))
    held = connection.execute(SQL.counts).fetchone()[0]

    def run() -> list[float]:
        taken = []
        for number in range(task.count):
            before = time.perf_counter()
            _add(connection, number)
            taken.append(time.perf_counter() - before)
        connection.execute(SQL.fold_back)
        return taken

    return Job(run, after=lambda: _finish(connection, held + 5 * task.count))


def feed(task: Task) -> Job:
    """The audit table from its beginning, in pages, each row parsed."""
    connection = connect(Path(task.database))

    def run() -> list[float]:
        before = time.perf_counter()
        last = count = 0
        while page := connection.execute(SQL.feed, (last, dataset.PAGE)).fetchall():
            last = page[-1][0]
            count += len([(*row[:5], json.loads(row[5])) for row in page])
        store.same(count, task.count, "rows read")
        return [(time.perf_counter() - before) / task.count]

    return Job(run, warm=run, after=connection.close)
