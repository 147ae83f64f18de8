"""The incarnation of a node: 16 random bytes that no copy of its database shares.

A log belongs to one incarnation, so a node that was restored from a backup, bootstrapped from an
archive or copied as files continues in a new log, and never gives a number of an old one to another
entry. It is noticed when the node signs: the database holds the inode of its own file and the inode
and change time of a token file beside it, which backups do not contain and no copy can preserve.

If the file was overwritten in place, nothing of that differs. Then the last resort is a peer that
has an entry of this incarnation which this node does not have: `renew` starts a new one.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fourfold.errors import StorageError
from fourfold.kernel import Transaction, load_queries
from fourfold.models.graphs.sync.envelope import NONCE_BYTES

_SQL = load_queries("fourfold.models.graphs.sync")


def token_path(database: Path) -> Path:
    """Return the path of the token file of a database."""
    return database.with_name(f"{database.name}.node")


def ensure(txn: Transaction, database: Path) -> bytes:
    """Return the incarnation of this node; start a new one if the file is a copy."""
    row = txn.one(_SQL.node)
    if row is not None and row[1] == _mark(database):
        return bytes(row[0])
    return renew(txn, database)


def renew(txn: Transaction, database: Path) -> bytes:
    """Start a new incarnation. If the transaction fails, the next one starts another."""
    token = token_path(database)
    try:
        token.unlink(missing_ok=True)
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("Copies of a graph database are noticed by the absence of this file.\n")
    except OSError as error:
        raise StorageError(f"{token}: cannot write the file: {error.strerror}") from error
    incarnation = secrets.token_bytes(NONCE_BYTES)
    txn.execute(_SQL.put_node, (incarnation, _mark(database)))
    return incarnation


def known(txn: Transaction) -> bytes | None:
    """Return the incarnation that was in use last, or None if the node never signed."""
    row = txn.one(_SQL.node)
    return None if row is None else bytes(row[0])


def _mark(database: Path) -> str:
    """Return what a copy cannot have: where the database and its token are on this disk."""
    try:
        token, file = token_path(database).stat(), database.stat()
    except FileNotFoundError:
        return ""
    return f"{file.st_dev}:{file.st_ino}:{token.st_ino}:{token.st_ctime_ns}"
