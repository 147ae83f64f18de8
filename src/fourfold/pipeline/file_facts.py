"""Facts about database files that were inspected before: unchanged files are not opened again.

A file is unchanged if the inode, size and modification time of it and of its WAL are. The facts of
each folder of a model are one JSON file in the cache of the pipeline.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from fourfold._version import __version__
from fourfold.cache import LruCache

_RECENT_NS: Final = 100_000_000
"""A file that was modified this recently may change again within the resolution of its time."""
_VERSION: Final = f"2 {__version__}"
"""Facts of another version are not used: it may refuse other files."""


class PublishedPositions(msgspec.Struct, frozen=True, array_like=True):
    """Positions up to which a database is published to archive tables, by its own record."""

    generation: int
    token: str | None
    positions: dict[str, int]
    changed: tuple[str, ...]
    """Tables with changed rows that are not published yet."""
    collected: bool
    """True if rows of the log were removed or changed."""


class InspectedFile(msgspec.Struct, frozen=True, array_like=True):
    """Facts about a file in a state: the fields of its bound, and its publication."""

    state: str
    kind: str
    seq: int
    bytes: int
    file_id: str
    horizon: int
    publication: PublishedPositions | None = None
    """None if it is unknown, or the file was never published."""


class _StoredFacts(msgspec.Struct):
    version: str
    files: dict[str, InspectedFile]


_DECODER: Final = msgspec.json.Decoder(_StoredFacts)


_decoded: Final = LruCache[Path, tuple[tuple[int, ...], dict[str, InspectedFile]]](16)
"""Files of facts by path, each with the state in which it was decoded."""
_decoded_lock: Final = threading.Lock()


def _read_facts(path: Path) -> dict[str, InspectedFile]:
    """Return the facts in a file, which is only decoded if another process replaced it."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            state = status.st_ino, status.st_size, status.st_mtime_ns
            with _decoded_lock:
                known = _decoded.get(path)
            if known is None or known[0] != state:
                content = _DECODER.decode(file.read())
                known = state, content.files if content.version == _VERSION else {}
                with _decoded_lock:
                    _decoded.put(path, known)
            return known[1].copy()
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


class FileFacts:
    """The facts about the files of one folder. Call `save` after the last `put`."""

    def __init__(self, cache: Path, folder: str) -> None:
        name = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()
        self._path = cache / "facts" / f"{name[:32]}.json"
        self._files = _read_facts(self._path)
        self._is_changed = False

    def find(self, path: str, state: str | None) -> InspectedFile | None:
        """Return the facts about a file that has this state, or None."""
        facts = self._files.get(path)
        return facts if facts is not None and facts.state == state else None

    def put(self, path: str, facts: InspectedFile) -> None:
        """Remember facts about a file."""
        self._files[path] = facts
        self._is_changed = True

    def save(self, paths: Iterable[str] | None = None) -> None:
        """Write the facts, of these files only if `paths` is given."""
        if paths is not None:
            kept = set(paths)
            if not kept >= self._files.keys():
                self._files = {path: facts for path, facts in self._files.items() if path in kept}
                self._is_changed = True
        if not self._is_changed:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._path.with_suffix(f".{os.getpid()}.partial")
        partial.write_bytes(msgspec.json.encode(_StoredFacts(_VERSION, self._files)))
        partial.replace(self._path)
        self._is_changed = False


class FileStatus(NamedTuple):
    """Sizes and times of a file and its WAL."""

    bytes: int
    state: str | None
    """Changes whenever the file or its WAL does; None if it may change unseen."""


def file_status(path: str) -> FileStatus | None:
    """Return the status of a file, or None if it is missing or not a regular file."""
    now, size, text, is_settled = time.time_ns(), 0, "", True
    for name in (path, f"{path}-wal"):
        try:
            facts = os.stat(name)  # noqa: PTH116 - it runs for every file
        except FileNotFoundError:
            if name == path:
                return None
            continue
        if name == path and not stat.S_ISREG(facts.st_mode):
            return None
        is_settled = is_settled and now - facts.st_mtime_ns >= _RECENT_NS
        size += facts.st_size
        text += f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns};"
    return FileStatus(size, text if is_settled else None)


def file_state(path: str) -> str | None:
    """Return the state of a file that exists; None if it is missing, or may change unseen."""
    status = file_status(path)
    return None if status is None else status.state
