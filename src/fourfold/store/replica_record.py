"""A read replica's record of the archive that it follows: a small file beside its databases.

The file exists before any database does, and makes the folder read-only for all other processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from fourfold.errors import CorruptData, ReadOnly
from fourfold.kernel import sync_folder

_FILE: Final = ".replica.json"


class ReplicaRecord(msgspec.Struct, frozen=True):
    """The archive of a replica, and the newest point that is applied completely."""

    url: str
    archive: str
    """Id of the catalog; an archive that is created again has another one."""
    version: int = -1
    token: str = ""
    point: str = ""
    at: str = ""


def read_replica(root: Path) -> ReplicaRecord | None:
    """Return the record of the replica in `root`; None if it is not a replica."""
    try:
        return msgspec.json.decode((root / _FILE).read_bytes(), type=ReplicaRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise CorruptData(f"{root / _FILE} is damaged: {error}") from error


def write_replica(root: Path, record: ReplicaRecord) -> None:
    """Replace the record, durably."""
    temporary = root / f"{_FILE}.{os.getpid()}.partial"
    with temporary.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(root / _FILE)
    sync_folder(root)


def check_not_replica(root: Path) -> None:
    """Raise ReadOnly if `root` is a replica, which only its follower writes."""
    record = read_replica(root)
    if record is not None:
        raise ReadOnly(
            f"{root}: is a read replica of {record.url}",
            hint="Open it with mode='r'. For a store that can be written, restore the archive to "
            "another folder: `fourfold bootstrap`.",
        )
