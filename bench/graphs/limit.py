"""The limits: ready rows inserted by the kernel with no check, and bare SELECTs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.documents.job import Job
from bench.graphs import callers, dataset, store
from bench.graphs.store import SQL
from bench.graphs.task import Task
from fourfold.kernel import Database, Transaction
from fourfold.models.graphs import GLOBAL_SEQ, Kind
from fourfold.models.graphs.records import KINDS, ROWS
from fourfold.models.graphs.statements import SQL as GRAPHS

Row = tuple[Any, ...]
DERIVED = (
    ("seq_row", SQL.seqs_after, ("app_id", "kind", "first_id", "global_seq")),
    (
        *("edge_now", SQL.edges_after),
        ("app_id", "src", "type_id", "dst_kind", "dst", "object_id", "from_seq"),
    ),
    (
        *("value_now", SQL.values_after),
        ("app_id", "kind", "target_kind", "target", "type_id", "object_id", "value", "from_seq"),
    ),
)
"""Tables that Fourfold derives from the rows in their transaction: name, statement, columns."""
Written = tuple[Row, list[tuple[str, tuple[str, ...], list[Row]]], tuple[int, int, int]]
"""An envelope, its rows table by table, and what it adds to the usage of its app."""


def ready(path: Path, after: int) -> list[Written]:
    """What Fourfold wrote behind a number, envelope by envelope."""
    connection = store.bare_connection(path)
    rows: dict[int, list[tuple[str, tuple[str, ...], list[Row]]]] = {}
    counts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for kind in KINDS:
        fields = ROWS[kind]._fields
        at = fields.index("global_seq")
        groups: dict[int, list[Row]] = {}
        for row in connection.execute(store.filled(SQL.rows_after, kind), (after,)):
            groups.setdefault(row[at], []).append(row)
        for seq, group in groups.items():
            rows.setdefault(seq, []).append((store.table(kind), fields, group))
            counts[seq] = counts.get(seq, 0) + len(group)
            sizes[seq] = sizes.get(seq, 0) + sum(_size(kind, row) for row in group)
    for table, query, columns in DERIVED:
        intervals: dict[int, list[Row]] = {}
        for row in connection.execute(query, (after,)):
            intervals.setdefault(row[-1], []).append(row)
        for seq, group in intervals.items():
            rows[seq].append((table, columns, group))
    found = []
    for envelope in connection.execute(SQL.envelopes_after, (after,)):
        seq = envelope[0]
        found.append((tuple(envelope), rows[seq], (dataset.APP, counts[seq], sizes[seq])))
    connection.close()
    return found


def _size(kind: Kind, row: Row) -> int:
    values = ROWS[kind]._make(row)
    text, number = getattr(values, "value_text", None), getattr(values, "value_number", None)
    return (len(text.encode()) if text else 0) + (8 if number is not None else 0)


def writing(written: Written) -> Callable[[Transaction], None]:
    envelope, tables, usage = written

    def work(txn: Transaction) -> None:
        txn.claim(GLOBAL_SEQ)
        for table, columns, rows in tables:
            txn.insert_many(table, columns, rows)
        txn.execute(GRAPHS.add_envelope, envelope)
        txn.execute(GRAPHS.use, usage)

    return work


def _opened(task: Task) -> tuple[Database, list[Callable[[Transaction], None]]]:
    database = store.open_graphs(Path(task.database)).database
    after = database.sequence(GLOBAL_SEQ)
    return database, [writing(each) for each in ready(Path(task.rows), after)]


def bulk(task: Task) -> Job:
    """The rows of each transaction by `insert_many`, in a transaction of its own."""
    database, work = _opened(task)

    def run() -> list[float]:
        taken = []
        for each in work:
            before = time.perf_counter()
            with database.write() as txn:
                each(txn)
            taken.append(time.perf_counter() - before)
        store.fold_back(database)
        return taken

    return Job(run, after=database.close)


def group(task: Task) -> Job:
    """The rows of each envelope, by as many callers as wrote them through Fourfold."""
    database, work = _opened(task)
    crowd = callers.crowd(task.form, work, database.transact, database.transact_async)

    def run() -> list[float]:
        taken = crowd()
        store.fold_back(database)
        return taken

    return Job(
        run,
        after=database.close,
        transactions=lambda: int(database.metrics().counters["transactions"]),
    )


def select(task: Task) -> Job:
    """Every row of every table, in pages, as the driver gives them."""
    connection = store.bare_connection(Path(task.database))
    execute = connection.execute
    newest = execute(SQL.newest_seq).get
    by_id = task.form.endswith("id")
    query = SQL.page_by_id if by_id else SQL.page_by_number
    queries = [store.filled(query, kind) for kind in KINDS]
    per_page = dataset.PAGE // 5

    def by_ids() -> int:
        count = 0
        for sql in queries:
            last: Any = 0
            while rows := execute(sql, (last, dataset.PAGE)).fetchall():
                last = rows[-1][0]
                count += len(rows)
        return count

    def by_numbers() -> int:
        count = 0
        for after in range(0, newest, per_page):
            for sql in queries:
                count += len(execute(sql, (after, after + per_page)).fetchall())
        return count

    def run() -> list[float]:
        before = time.perf_counter()
        store.same(by_ids() if by_id else by_numbers(), task.count, "rows read")
        return [(time.perf_counter() - before) / task.count]

    return Job(run, warm=run, after=connection.close)
