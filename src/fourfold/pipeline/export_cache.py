"""Bounded folder of exported files, shared by the processes of a user.

    <key>.parquet          an export; its modification time is that of its last use
    users/<id>/lock        held with `flock` by a process while it lives
    users/<id>/<key>       the process uses this export
    users/<id>/*.partial   an export that is being written

A file is never changed after it has its name. The least recently used exports are deleted when the
folder grows beyond its limit, but none that a living process uses: a DataFrame of that process may
read it again. What a dead process left is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from fourfold.errors import LimitExceeded

EXPORT_GRACE_S: Final = 600.0
"""Time for which an export is not deleted after its last use: a planned query may still read it."""

_SUFFIX: Final = ".parquet"
_LOCK: Final = "lock"
_users: dict[tuple[int, str], _User] = {}


class ExportCache:
    """The exports in one folder."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # Only its owner may read what the store does not show to others.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "users").mkdir(mode=0o700, exist_ok=True)
        self._user = _user(folder)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    def find(self, key: str) -> Path | None:
        """Return the export with this key, which this process uses from now on, or None."""
        path = self._path(key)
        with self._locked():
            try:
                os.utime(path)
            except FileNotFoundError:
                return None
            self._user.use(key)
        return path

    def partial(self, key: str) -> Path:
        """Return a path for an export that is being written."""
        return self._user.folder / f"{key}.{uuid.uuid4().hex}.partial"

    def add(self, key: str, partial: Path) -> Path:
        """Store a written export and delete old ones.

        Raises:
            LimitExceeded: The exports in use exceed the limit of the folder.
        """
        path = self._path(key)
        with self._locked():
            try:
                # Another process may have written it: then a reader may have it open.
                os.link(partial, path)
            except FileExistsError:
                os.utime(path)
            partial.unlink()
            self._user.use(key)
            excess = self._evict()
            if excess > 0:
                self._user.release(key)
                path.unlink(missing_ok=True)
                raise LimitExceeded(
                    f"{self._folder}: exports in use exceed {self._max_bytes} bytes",
                    hint="Publish (`fourfold publish ROOT`): published rows are not exported. "
                    "Or read fewer columns or rows, or raise pipeline.cache_bytes.",
                    details={"folder": str(self._folder), "max_bytes": self._max_bytes},
                )
        return path

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _evict(self) -> int:
        """Delete unused exports, oldest first; return the bytes beyond the limit that remain."""
        entries = []
        for entry in os.scandir(self._folder):
            if entry.name.endswith(_SUFFIX):
                facts = entry.stat()
                entries.append((facts.st_mtime, facts.st_size, Path(entry.path)))
        excess = sum(size for _, size, _ in entries) - self._max_bytes
        if excess <= 0:
            return excess
        in_use = self._keys_in_use()
        newest = time.time() - EXPORT_GRACE_S
        for used_at, size, path in sorted(entries):
            if excess <= 0 or used_at > newest:
                break
            if path.name.removesuffix(_SUFFIX) not in in_use:
                path.unlink(missing_ok=True)
                excess -= size
        return excess

    def _keys_in_use(self) -> set[str]:
        """Return the keys that living processes use."""
        return {
            path.name for folder in _living(self._folder, self._user) for path in folder.iterdir()
        }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _User:
    """Registration of this process as a user of a folder."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.folder = folder
        self._lock = lock

    def use(self, key: str) -> None:
        (self.folder / key).touch()

    def release(self, key: str) -> None:
        (self.folder / key).unlink(missing_ok=True)


def _user(folder: Path) -> _User:
    """Return the user of this process, which lives as long as the process."""
    name = (os.getpid(), str(folder))
    known = _users.get(name)
    if known is not None and known.folder.is_dir():
        return known
    own = folder / "users" / uuid.uuid4().hex
    # Under its name only with its lock held: otherwise another process would remove it.
    hidden = folder / f".{own.name}"
    hidden.mkdir(mode=0o700)
    lock = (hidden / _LOCK).open("a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    hidden.rename(own)
    _users[name] = user = _User(own, lock)
    _living(folder, user)
    return user


def _living(folder: Path, own: _User) -> list[Path]:
    """Return the folders of living processes; remove what dead ones left."""
    living = []
    for user in (folder / "users").iterdir():
        if user == own.folder or not _is_free(user / _LOCK):
            living.append(user)
        else:
            shutil.rmtree(user, ignore_errors=True)
    return living


def _is_free(lock: Path) -> bool:
    """Return True if no process holds the lock."""
    try:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True
