"""A node's record of the archive that it publishes to: a small file beside its databases.

The archive has one publisher. A node may publish if the newest commit of the catalog is the one
that it wrote, or restored from. Tokens of commits that it tried are recorded before, so that it
recognizes a commit whose response was lost, even if that arrives late.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from fourfold.durability import sync_file
from fourfold.errors import CorruptData, LockTimeout
from fourfold.kernel import sync_folder
from fourfold.retry import Retries

_FILE: Final = ".archive.json"
_LOCK: Final = ".archive.lock"
_COMPACTION_LOCK: Final = ".compaction.lock"
_LOCK_WAIT_S: Final = 600.0


class NodeRecord(msgspec.Struct, frozen=True):
    """The newest commit of the catalog that a node knows as its own, or continues after."""

    node: str
    version: int = -1
    token: str = ""
    intents: tuple[str, ...] = ()
    """Tokens of commits that were tried after it."""
    late: tuple[str, ...] = ()
    """Tokens of commits that were found after a later one was tried: databases have no intent."""
    went_back: int | None = None
    """Version to which the archive had returned when this node found it."""


def new_record(version: int = -1, token: str = "") -> NodeRecord:
    """Return the record of a node that continues after a commit."""
    return NodeRecord(uuid.uuid4().hex, version, token)


def read_record(root: Path) -> NodeRecord | None:
    """Return the record of the store in `root`; None if it has none."""
    try:
        return msgspec.json.decode((root / _FILE).read_bytes(), type=NodeRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise CorruptData(f"{root / _FILE} is damaged: {error}") from error


def write_record(root: Path, record: NodeRecord) -> None:
    """Replace the record, durably."""
    temporary = root / f"{_FILE}.{os.getpid()}.partial"
    with temporary.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(msgspec.json.encode(record))
        file.flush()
        sync_file(file.fileno())
    temporary.replace(root / _FILE)
    sync_folder(root)


@contextmanager
def archive_lock(root: Path) -> Iterator[None]:
    """Hold the right of this process to publish the store in `root`; others wait.

    Raises:
        LockTimeout: another process held it for too long.
    """
    with (root / _LOCK).open("ab") as file:

        def lock() -> None:
            if not _try_lock(file):
                raise LockTimeout(f"{root}: another process publishes this store")

        Retries.every(0.05, on=LockTimeout, within_s=_LOCK_WAIT_S).run(lock)
        yield


@contextmanager
def compaction_lock(root: Path) -> Iterator[bool]:
    """Hold the right to compact in the background; yield False if another process has it."""
    with (root / _COMPACTION_LOCK).open("ab") as file:
        yield _try_lock(file)


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
