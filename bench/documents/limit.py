"""The limits: ready rows inserted with no check, by a bare loop and by the kernel's bulk insert;
and a table of keys and values.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from bench.documents import dataset
from bench.documents.job import Job, in_blocks
from bench.documents.spaces import SQL, bare_connection, fold_back, open_database
from bench.documents.task import Task
from fourfold.kernel.bulk_insert import values_statement
from fourfold.limits import CHECKPOINT_BYTES
from fourfold.models.documents import HISTORIES

Row = tuple[Any, ...]
Rows = dict[str, tuple[tuple[str, ...], list[Row]]]
"""Of each table: its columns, and the rows of one commit."""


def commits_of(connection: apsw.Connection, history: str, after: int) -> Iterator[tuple[int, Rows]]:
    """The rows of every commit beyond a seq, table by table, in the order of their inserts."""
    tables = {"commit": "commits_after", "revision": "revisions_after"}
    if history == "facts":
        tables = {"commit": "commits_after", "fact": "facts_after"}
        tables["occurrence"] = "occurrences_after"
    tables["snapshot"] = "snapshots_after"
    commits: dict[int, Rows] = defaultdict(dict)
    for table, query in tables.items():
        columns = tuple(str(name) for (name,) in connection.execute(SQL.columns_of, (table,)))
        at = columns.index("seq")
        found: list[Row] = connection.execute(getattr(SQL, query), (after,)).fetchall()
        for row in found:
            commits[row[at]].setdefault(table, (columns, []))[1].append(row)
    if history == "facts":
        _add_values(connection, commits, after)
    return iter(sorted(commits.items()))


def _add_values(connection: apsw.Connection, commits: dict[int, Rows], after: int) -> None:
    """The values that a commit was the first to name."""
    texts: dict[Any, Any] = {row[0]: row[1] for row in connection.execute(SQL.all_values)}
    known: set[str] = set()
    for seq in sorted(commits):
        rows = commits[seq]
        named = []
        for table in ("fact", "snapshot"):
            columns, found = rows.get(table, ((), []))
            named += [row[columns.index("value_ref")] for row in found]
        new = [name for name in dict.fromkeys(named) if name not in known]
        known.update(new)
        if seq > after and new:
            rows["value"] = (("hash", "data"), [(name, texts[name]) for name in new])


_HEAD = {
    "revisions": ("branch", "id", "seq", "op_index"),
    "facts": ("branch", "id", "seq", "op_index", "fact_hash"),
}
_ORDER = ("commit", "value", "fact", "revision", "occurrence", "snapshot")


def _heads(rows: Rows, history: str) -> list[Row]:
    """The last operation of a commit on each of its entities, as the upsert of heads takes it."""
    columns, found = rows.get("revision") or rows["occurrence"]
    picks = [columns.index(name) for name in _HEAD[history]]
    last = {row[columns.index("id")]: tuple(row[at] for at in picks) for row in found}
    return list(last.values())


def bare(task: Task) -> Job:
    """One commit after another: BEGIN IMMEDIATE, its rows, its heads, the branch's head, COMMIT."""
    sql = HISTORIES[task.history].sql
    connection = bare_connection(Path(task.database), task.history, task.page_size, readonly=False)
    connection.wal_autocheckpoint(CHECKPOINT_BYTES // task.page_size)
    after = connection.execute(SQL.newest_seq).get
    source = bare_connection(Path(task.rows), task.history, task.page_size, readonly=True)
    work: list[list[tuple[str, Row]]] = []
    for seq, rows in commits_of(source, task.history, after):
        statements = [
            (_insert(table, rows[table][0]), row)
            for table in _ORDER
            if table in rows
            for row in rows[table][1]
        ]
        statements += [(sql.upsert_head, head) for head in _heads(rows, task.history)]
        statements.append((sql.raise_branch_head, ("", seq)))
        work.append(statements)
    source.close()

    def run() -> list[float]:
        taken = []
        execute = connection.execute
        for statements in work:
            before = time.perf_counter()
            execute(SQL.begin)
            for text, params in statements:
                execute(text, params)
            execute(SQL.commit)
            taken.append(time.perf_counter() - before)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return taken

    return Job(run, after=connection.close)


def _insert(table: str, columns: tuple[str, ...]) -> str:
    # A value that an earlier commit of the file named is there already, in either history.
    verb = "INSERT OR IGNORE" if table == "value" else "INSERT"
    return values_statement(table, columns, 1, verb)


def kernel_bulk(task: Task) -> Job:
    """The same rows by `insert_many`, a transaction for each commit."""
    sql = HISTORIES[task.history].sql
    database = open_database(Path(task.database), task.history, task.page_size)
    with database.read() as snapshot:
        after = snapshot.value(SQL.newest_seq)
    source = bare_connection(Path(task.rows), task.history, task.page_size, readonly=True)
    work = list(commits_of(source, task.history, after))
    source.close()
    columns = _HEAD[task.history]
    heads = [_heads(rows, task.history) for _, rows in work]

    def run() -> list[float]:
        taken = []
        for (seq, rows), moved in zip(work, heads, strict=True):
            before = time.perf_counter()
            with database.write() as txn:
                for table in _ORDER:
                    if table in rows:
                        verb = "INSERT OR IGNORE" if table == "value" else "INSERT"
                        txn.insert_many(table, *rows[table], verb=verb)
                txn.insert_many("head", columns, moved, verb="INSERT OR REPLACE")
                txn.execute(sql.raise_branch_head, ("", seq))
            taken.append(time.perf_counter() - before)
        fold_back(database)
        return taken

    return Job(run, after=database.close)


def key_value(task: Task) -> Job:
    """`SELECT value` and parsing, key after key."""
    connection = bare_connection(Path(task.database), task.history, task.page_size, readonly=True)
    decode = msgspec.json.Decoder().decode
    keys = [dataset.entity(number) for number in dataset.shuffled(task.count)]

    execute = connection.execute

    def get(key: str) -> object:
        return decode(execute(SQL.key_value_get, (key,)).get)

    return Job(
        lambda: in_blocks(keys, get),
        warm=lambda: in_blocks(keys, get),
        after=connection.close,
    )
