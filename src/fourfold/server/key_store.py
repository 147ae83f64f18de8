"""The keys of a store, in `server.sqlite`.

A key file of an older version (`access.json`) is imported when the keys are first used, and deleted
once its keys are on disk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, get_args

from fourfold.errors import FormatError, NotFound, Refused
from fourfold.kernel import Database, ReadTransaction, Transaction, sync_folder
from fourfold.kernel.idempotency import IdempotentRequest, run_once
from fourfold.server.database import FILE_NAME, SQL, open_database, open_for_writing

FILE_CLOCK_NS: Final = 100_000_000
"""Longer than the resolution of timestamps in any file system."""
KEYS_MAX: Final = 10_000
"""Keys of a store: a request is compared with each of them."""
OLD_FILE_NAME: Final = "access.json"
Scope = Literal["read", "write", "admin", "metrics", "query", "audit", "sync"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
IMPLIED_BY_ADMIN: Final = frozenset({"metrics", "audit"})
"""Scopes that `admin` includes.
"""
Model = Literal["documents", "streams", "graphs", "sessions", "store"]
MODELS: Final[tuple[Model, ...]] = get_args(Model)
"""Subject of a grant: the objects of a model, or the store as a whole, which has no names."""
NAMED_MODELS: Final = MODELS[:-1]
"""Models whose objects have names, so that a key may be for a prefix of them."""
_COLUMNS: Final = (
    *("id", "sha256", "label", "created_at_ms", "created_by", "expires_at_ms", "last_used_on"),
    *("replaces", "requests_per_s", "bytes_per_day"),
)
"""Fields of a key besides its grants, in the order of the queries."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes for the objects of one model whose names start with a prefix."""

    model: Model
    scopes: tuple[Scope, ...]
    prefix: str = ""

    def covers(self, name: str) -> bool:
        """Return True if the grant is for a name, or for a prefix of names."""
        return name.startswith(self.prefix)

    def allows(self, scope: Scope, name: str | None) -> bool:
        """Return True if the grant has a scope for a name, or for a prefix of names.

        None is for requests that name no object: the prefix of the grant does not matter.
        """
        has = scope in self.scopes or (scope in IMPLIED_BY_ADMIN and "admin" in self.scopes)
        return has and (name is None or self.covers(name))


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret; it is allowed what its grants state, and nothing else."""

    id: str
    sha256: str
    grants: tuple[Grant, ...] = ()
    label: str = ""
    created_at_ms: int | None = None
    """Time of its creation; None if an older version created it."""
    created_by: str = ""
    """Id of the key that created it; empty for the command line or a client without key."""
    expires_at_ms: int | None = None
    """Time from which it is refused; None if it does not expire."""
    last_used_on: str | None = None
    """Day of its last use in UTC, as in 2026-07-14; None if it was not used."""
    replaces: str = ""
    """Id of the key that it replaces by rotation; empty if it replaces none."""
    requests_per_s: float | None = None
    bytes_per_day: int | None = None
    """Quotas; None for no limit."""

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the key is refused at a time."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def grant(self, model: Model) -> Grant | None:
        """Return the grant for a model, or None if the key has none."""
        return next((grant for grant in self.grants if grant.model == model), None)

    def allows(self, scope: Scope, name: str | None, model: Model | Literal["any"]) -> bool:
        """Return True if the key has a scope for an object of a model, or for a prefix.

        None is for requests that name no object, and `any` for those that may read any model.
        """
        if model == "any":
            return any(grant.allows(scope, name) for grant in self.grants)
        grant = self.grant(model)
        return grant is not None and grant.allows(scope, name)


class KeyStore:
    """The keys of one store."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        self._old_path = root / OLD_FILE_NAME
        self._reader: Database | None = None
        self._inode: int | None = None
        self._state: tuple[tuple[Key, ...], bool] = ((), False)
        self._stamp: tuple[int, ...] | None = None
        """Times and sizes of the files when the state was read; None if it must be read again."""

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def read(self) -> tuple[tuple[Key, ...], bool]:
        """Return the keys, and True if a key is required because there was one before.

        Raises:
            FormatError: the file, or the key file of an older version, cannot be read.
        """
        if os.path.lexists(self._old_path):
            with self._writer():
                pass
        if self._stamp is not None and self._stamp == _stamp_of(self._path):
            return self._state
        reader = self._open_reader()
        if reader is None:
            return self._state
        stamp = _stamp_of(self._path)
        with reader.read() as snapshot:
            self._state = _read_keys(snapshot), bool(snapshot.value(SQL.key_required))
        # A later change may leave equal times and sizes while the clock of the files stands still.
        settled = time.time_ns() - max(stamp[::3], default=0) > FILE_CLOCK_NS
        self._stamp = stamp if settled else None
        return self._state

    def add(self, key: Key, request: IdempotentRequest | None = None) -> str:
        """Store a key; from then on a key is required.

        Returns its id, or that of the key which the same request stored before.

        Raises:
            Refused: there are too many keys.
        """

        def work() -> bytes:
            with database.write() as txn:
                _add(txn, key)
            return key.id.encode()

        with self._writer() as database:
            result = work() if request is None else run_once(database, request, work)[0]
        return result.decode()

    def rotate(
        self,
        key_id: str,
        successor: Key,
        overlap_until_ms: int,
        request: IdempotentRequest | None = None,
    ) -> str:
        """Store the successor of a key, which expires at `overlap_until_ms` at the latest.

        Returns the id of the successor, or of the one that the same request stored before.

        Raises:
            NotFound: there is no such key.
            Refused: there are too many keys.
        """

        def work() -> bytes:
            with database.write() as txn:
                if txn.value(SQL.key_number, (key_id,)) is None:
                    raise NotFound(f"unknown key {key_id!r}")
                _add(txn, successor)
                txn.execute(SQL.bring_forward_key_expiry, (key_id, overlap_until_ms))
            return successor.id.encode()

        with self._writer() as database:
            result = work() if request is None else run_once(database, request, work)[0]
        return result.decode()

    def set_expiry(self, key_id: str, expires_at_ms: int | None) -> None:
        """Set the time from which a key is refused; None for never.

        Raises:
            NotFound: there is no such key.
        """

        def work(txn: Transaction) -> None:
            if txn.value(SQL.set_key_expiry, (key_id, expires_at_ms)) is None:
                raise NotFound(f"unknown key {key_id!r}")

        with self._writer() as database:
            database.transact(work)

    def record_uses(self, key_ids: Iterable[str], day: str) -> None:
        """Record that keys were used on a day; those that were deleted are left out."""

        def work(txn: Transaction) -> None:
            for key_id in key_ids:
                txn.execute(SQL.set_key_use, (key_id, day))

        with self._writer() as database:
            database.transact(work)

    def remove(self, key_id: str) -> int:
        """Delete a key and return the number of keys that are left."""

        def work(txn: Transaction) -> int:
            number = txn.value(SQL.key_number, (key_id,))
            if number is None:
                raise NotFound(f"unknown key {key_id!r}")
            txn.execute(SQL.remove_key, (number,))
            return int(txn.value(SQL.key_count))

        with self._writer() as database:
            return database.transact(work)

    def _open_reader(self) -> Database | None:
        """Return the file, opened for reading; None if there is none yet.

        If it was replaced, the new file is opened; if it was deleted, the old one is still read.
        """
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            return self._reader
        if self._reader is None or self._inode != inode:
            self.close()
            try:
                self._reader = open_database(self._path, "r")
            except FormatError:
                # Its creation was interrupted, or it has pending migrations.
                with self._writer():
                    self._reader = open_database(self._path, "r")
            self._inode = inode
        return self._reader

    @contextmanager
    def _writer(self) -> Iterator[Database]:
        """Open the file for writing, and import the key file of an older version."""
        with open_for_writing(self._path) as database:
            self._import_old_file(database)
            yield database

    def _import_old_file(self, database: Database) -> None:
        """Import the key file of an older version, and then delete it.

        After a crash between the two it is imported again, which changes nothing.
        """
        if not os.path.lexists(self._old_path):
            return
        keys = _parse_old_file(self._old_path)

        def work(txn: Transaction) -> None:
            txn.execute(SQL.require_key)
            for key in keys:
                if txn.value(SQL.key_number, (key.id,)) is None:
                    _add(txn, key)

        database.transact(work)
        self._old_path.unlink()
        self._old_path.with_name(f".{OLD_FILE_NAME}.lock").unlink(missing_ok=True)
        sync_folder(self._old_path.parent)


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Return the times of change, in nanoseconds, and the sizes of a database and its log."""
    stamp: tuple[int, ...] = ()
    for name in (str(path), f"{path}-wal"):
        try:
            status = os.stat(name)  # noqa: PTH116 - much faster, and called for many requests
        except OSError:
            continue
        stamp += (status.st_mtime_ns, status.st_size, status.st_ino)
    return stamp


def _add(txn: Transaction, key: Key) -> None:
    if txn.value(SQL.key_count) >= KEYS_MAX:
        raise Refused(
            f"keys: must be at most {KEYS_MAX}", hint="Remove keys that are no longer used."
        )
    txn.execute(SQL.require_key)
    number = txn.value(SQL.add_key, tuple(getattr(key, name) for name in _COLUMNS))
    for grant in key.grants:
        txn.execute(SQL.add_grant, (number, grant.model, grant.prefix, " ".join(grant.scopes)))


def _read_keys(snapshot: ReadTransaction) -> tuple[Key, ...]:
    keys = []
    for columns, rows in groupby(snapshot.all(SQL.keys), lambda row: row[: len(_COLUMNS)]):
        grants = (
            Grant(model, tuple(scopes.split()), prefix)
            for *_, model, prefix, scopes in rows
            if model is not None
        )
        keys.append(Key(grants=tuple(grants), **dict(zip(_COLUMNS, columns, strict=True))))
    return tuple(keys)


def _parse_old_file(path: Path) -> tuple[Key, ...]:
    """Return the keys of an older version, which were for streams."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return tuple(
            Key(
                str(row["id"]),
                str(row["sha256"]),
                (Grant("streams", tuple(row["scopes"]), str(row.get("prefix", ""))),),
                str(row.get("label", "")),
            )
            for row in rows
        )
    except OSError as error:
        raise FormatError(f"{path}: cannot read the file: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected a list of keys: {error}") from None
