"""Graph databases outside of a store: opened, filled, and proved to hold what they should."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.graphs import dataset
from fourfold.kernel import Database, load_queries, profiles
from fourfold.kernel.driver import Connection, connect
from fourfold.models.graphs import (
    GLOBAL_SEQ,
    MIGRATIONS,
    PROFILE,
    Graphs,
    Kind,
    intervals,
    row_index,
)
from fourfold.models.graphs.records import BITS, KINDS, ROWS
from fourfold.models.graphs.verify import problems

SQL = load_queries("bench.graphs")
_OWN_TIMES = {"created_at", "updated_at"}


class WrongRows(Exception):
    """A run left something else than it was given; its time means nothing."""


def open_graphs(path: Path, mode: str = "rw") -> Graphs:
    database = Database.open(
        path, profile=PROFILE, migrations=MIGRATIONS, sequences=(GLOBAL_SEQ,), mode=mode
    )
    return Graphs(database)


@contextmanager
def opened(path: Path, mode: str = "rw") -> Iterator[Graphs]:
    graphs = open_graphs(path, mode)
    try:
        yield graphs
    finally:
        graphs.database.close()


def fold_back(database: Database) -> None:
    """Everything into the file itself."""
    while database.checkpoint("TRUNCATE").busy:
        # The background checkpointer is still at it.
        time.sleep(0)


def bare_connection(path: Path) -> Connection:
    """The kernel's driver with the pragmas of its readers, and nothing else of it."""
    connection = connect(path, readonly=True)
    profiles.apply_to_reader(connection, PROFILE)
    return connection


def table(kind: Kind) -> str:
    return f"app_{dataset.APP}_{kind}"


def filled(query: str, kind: Kind) -> str:
    """A query of this benchmark about one table."""
    columns = ", ".join(ROWS[kind]._fields)
    text = query.replace("{table}", table(kind)).replace("{columns}", columns)
    return text.replace("{bit}", str(BITS[kind]))


# Files that runs start from


def make_base(path: Path) -> None:
    """One app, a type of each kind, and parents to point at, which are shared."""
    with opened(path) as graphs:
        graphs.register_app("bench", "Bench")
        for kind, number in dataset.TYPES.items():
            found = graphs.register_type(dataset.APP, kind, f"bench {kind}")
            assert found == number
        parents = dataset.rows("parent", dataset.TARGETS, dataset.SHARED)
        graphs.insert_many_parents(dataset.APP, parents)


def make_log(path: Path, numbers: int) -> None:
    """Envelopes of five rows, as the feed reads them."""
    make_base(path)
    with opened(path) as graphs:
        for number in range(numbers):
            graphs.apply(dataset.envelope(number, "five"))


def numbers_of(rows: int) -> int:
    """How many numbers of five rows a database of so many rows has."""
    return (rows - dataset.TARGETS) // 5


def make_size(path: Path, rows: int) -> None:
    """The same shape in SQL, with its indexes made last: so many rows would take very long one by
    one.
    """
    make_base(path)
    numbers = numbers_of(rows)
    params = (numbers, dataset.TARGETS, 1)
    with opened(path) as graphs:
        with graphs.database.write(deadline_s=900) as txn:
            for (name,) in txn.all(SQL.indexes_of_app):
                txn.execute(f'DROP INDEX "{name}"')
            txn.execute(SQL.fill_parents, params)
            txn.execute(SQL.fill_attrs, params)
            txn.execute(SQL.fill_edges, params)
            row_index.rebuild(txn)
            intervals.rebuild(txn)
            txn.execute(SQL.fill_envelopes, params)
            txn.execute(SQL.fill_usage, params[:1])
            txn.execute(SQL.fill_seq, (numbers + 1,))
        with graphs.database.write(deadline_s=900) as txn:
            graphs._apps.ensure_tables(txn, dataset.APP)
        fold_back(graphs.database)


def copy(source: Path, path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(source, path)


# Proof


def fingerprint(path: Path, *, ordered: bool = True) -> str:
    """The same for two files that hold the same rows. Where several wrote at once, which of them
    came first is chance: then the rows of each table are compared, whatever their numbers.
    """
    hasher = hashlib.sha256()
    connection = bare_connection(path)
    try:
        for kind in KINDS:
            fields = ROWS[kind]._fields
            kept = [at for at, name in enumerate(fields) if name not in _OWN_TIMES]
            if not ordered:
                kept = [at for at in kept if fields[at].startswith(("value_", "type_id", "owner"))]
            found = [
                repr(tuple(row[at] for at in kept))
                for row in connection.execute(filled(SQL.every_row, kind))
            ]
            hasher.update("\n".join(found if ordered else sorted(found)).encode())
    finally:
        connection.close()
    return hasher.hexdigest()


def check(graphs: Graphs, seq: int) -> None:
    """Raise WrongRows unless the graphs have come to `seq` and are sound."""
    if graphs.get_global_seq() != seq:
        raise WrongRows(f"the newest number is {graphs.get_global_seq()} instead of {seq}")
    with graphs.database.read() as snapshot:
        found = problems(snapshot, str(graphs.database.path), graphs.node)
    if found:
        raise WrongRows(found[0])


def same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise WrongRows(f"{what}: {found!r:.80} instead of {expected!r:.80}")
