"""Spaces outside of a store: opened at a page size, filled, and proved to hold what they should."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.documents import dataset
from fourfold.kernel import Database, load_queries, profiles
from fourfold.kernel.driver import Connection, connect
from fourfold.kernel.named_queries import read_sql
from fourfold.models.documents import HISTORIES, Space, writer
from fourfold.models.documents.cache import CacheEntry

SQL = load_queries("bench.documents")
DID = "did:key:bench"
_TOGETHER = 2_000
"""Commits of a chain that are prepared in one database transaction; each is a commit of its own."""
_OPERATIONS = 1_000


class WrongRows(Exception):
    """A run left something else than it was given; its time means nothing."""


def open_database(path: Path, history: str, page_size: int, mode: str = "rw") -> Database:
    kind = HISTORIES[history]
    return Database.open(
        path,
        profile=kind.profile.with_(page_size=page_size),
        migrations=kind.migrations,
        sequences=(kind.seq,),
        mode=mode,
    )


@contextmanager
def opened(path: Path, history: str, page_size: int, mode: str = "rw") -> Iterator[Space]:
    with open_database(path, history, page_size, mode) as database:
        yield Space(DID, database, HISTORIES[history])


def fold_back(database: Database) -> None:
    """Everything into the file itself."""
    while database.checkpoint("TRUNCATE").busy:
        # The background checkpointer is still at it.
        time.sleep(0)


def bare_connection(path: Path, history: str, page_size: int, *, readonly: bool) -> Connection:
    """The kernel's driver with the pragmas of its writer or readers, and nothing else of it."""
    profile = HISTORIES[history].profile.with_(page_size=page_size)
    connection = connect(path, readonly=readonly)
    if readonly:
        profiles.apply_to_reader(connection, profile)
    else:
        profiles.apply_to_writer(connection, profile)
    return connection


# Files that runs start from


def make_written(path: Path, history: str, page_size: int) -> None:
    """The entities that single commits change."""
    with opened(path, history, page_size) as space:
        space.transact([dataset.set_operation(n, n) for n in range(dataset.WRITTEN)])


def make_many(path: Path, history: str, page_size: int, count: int) -> None:
    """Entities with 0 to 10 patches, in commits of 1,000 operations."""
    with opened(path, history, page_size) as space:
        for depth in range(dataset.DEPTHS):
            numbers = [n for n in range(count) if n % dataset.DEPTHS >= depth]
            for at in range(0, len(numbers), _OPERATIONS):
                part = numbers[at : at + _OPERATIONS]
                space.transact(
                    [dataset.patch_operation(n, depth + n) for n in part]
                    if depth
                    else [dataset.set_operation(n, n) for n in part]
                )


def make_key_values(path: Path, source: Path, history: str, page_size: int, count: int) -> None:
    """The newest documents of `source` under their ids, in a table of pairs."""
    encoder = msgspec.json.Encoder(order="sorted")
    with opened(source, history, page_size, "r") as space:
        states = space.read_many(map(dataset.entity, range(count)))
    path.touch()
    connection = connect(path, readonly=False)
    profile = HISTORIES[history].profile.with_(page_size=page_size)
    profiles.set_page_size(connection, profile)
    profiles.apply_to_writer(connection, profile)
    connection.execute(read_sql("bench.documents", "schema.sql"))
    with connection:
        for name, state in states.items():
            assert state is not None
            text = encoder.encode(state.document).decode()
            connection.execute(SQL.key_value_put, (name, text))
    connection.close()


def lengthen(path: Path, history: str, page_size: int, upto: int, filler: int = 200) -> None:
    """One entity with `upto` revisions: a set, and patches, each a commit of its own."""
    with opened(path, history, page_size) as space:
        if not space.seq():
            space.transact([dataset.set_operation(0, 0, filler)])
        while (at := space.seq()) < upto:
            with space.database.write():
                for version in range(at, min(at + _TOGETHER, upto)):
                    space.transact([dataset.patch_operation(0, version)])


def snapshot_every_ten() -> None:
    """In this process, the policy that most others have: every so many patches."""
    writer.snapshot_due = _every_ten


def _every_ten(entry: CacheEntry) -> bool:
    return entry.patches >= 10


# Proof


def fingerprint(path: Path, history: str, page_size: int) -> str:
    """The same for two files that hold the same rows in every table of the log."""
    hasher = hashlib.sha256()
    connection = bare_connection(path, history, page_size, readonly=True)
    try:
        names = ["every_commit", "every_revision", "every_head", "every_snapshot", "every_branch"]
        for name in names:
            for row in connection.execute(getattr(SQL, name)):
                hasher.update(repr(row).encode())
    finally:
        connection.close()
    return hasher.hexdigest()


def check(space: Space, seq: int) -> None:
    """Raise WrongRows unless the space has come to `seq` and is sound."""
    if space.seq() != seq:
        raise WrongRows(f"the space is at seq {space.seq()} instead of {seq}")
    problems = space.verify()
    if problems:
        raise WrongRows(problems[0].message)


def same(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise WrongRows(f"{what}: {found!r:.80} instead of {expected!r:.80}")
