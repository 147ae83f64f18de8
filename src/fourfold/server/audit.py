"""Audit log of a server: who wrote what and with which outcome, and what was refused.

Entries are JSON lines in the folder `audit` of the store: no bodies, no queries, no secrets. Plain
appends to streams are not entries, since the log itself has them. Requests only add an entry to a
bounded queue; a thread writes it within a second. So a crash loses the entries of the last second,
and a full disk loses entries but fails no request; both are reported, in the next entry and in the
log of the server. Files are numbered, the newest has the largest number, and the oldest is deleted
when all together exceed the limit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.server.key_use import TokenBucket
from fourfold.wire.store import AuditEntry, AuditPage

AUDIT_FILES: Final = 8
"""Files that the log is divided into, so that an eighth of it is deleted at a time."""
AUDIT_QUEUE_MAX: Final = 10_000
AUDIT_FLUSH_S: Final = 1.0
"""Entries that wait to be written, and the longest time that they do."""
REFUSALS_PER_S: Final = 10.0
REFUSAL_SOURCES_MAX: Final = 1_024
"""Refusals of one key or address that are recorded per second, and how many are counted."""
PATH_CHARS_MAX: Final = 500
FOLDER: Final = "audit"
_SUFFIX: Final = ".jsonl"
_log = logging.getLogger("fourfold.server")
_decoder: Final = msgspec.json.Decoder(AuditEntry)


class AuditLog:
    """The audit log of one store, for the server that writes it."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        self._folder = root / FOLDER
        self._file_bytes_max = max(1, bytes_max // AUDIT_FILES)
        self._is_on = bytes_max > 0
        self._queue: deque[AuditEntry] = deque()
        self._dropped = 0
        self._sources: OrderedDict[str, tuple[TokenBucket, list[int]]] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, entry: AuditEntry) -> None:
        """Queue an entry; it is dropped, and counted, while too many wait."""
        if not self._is_on:
            return
        if len(self._queue) >= AUDIT_QUEUE_MAX:
            self._dropped += 1
        else:
            self._queue.append(entry)

    def record_refusal(self, entry: AuditEntry) -> None:
        """Queue a refusal, unless its key or address had too many of them in the last second."""
        source = entry.key or entry.address
        bucket, suppressed = self._source(source)
        if bucket.wait_s():
            suppressed[0] += 1
            return
        bucket.take(1)
        self.record(msgspec.structs.replace(entry, suppressed=suppressed[0]))
        suppressed[0] = 0

    def _source(self, source: str) -> tuple[TokenBucket, list[int]]:
        found = self._sources.pop(source, None)
        state = found or (TokenBucket(REFUSALS_PER_S, REFUSALS_PER_S), [0])
        self._sources[source] = state
        if len(self._sources) > REFUSAL_SOURCES_MAX:
            self._sources.popitem(last=False)
        return state

    def flush(self) -> None:
        """Write the queued entries; entries that cannot be written are dropped and counted."""
        with self._lock:
            entries = [self._queue.popleft() for _ in range(len(self._queue))]
            if self._dropped:
                entries.append(_now(operation="audit", error="dropped", suppressed=self._dropped))
            if not entries:
                return
            try:
                number = append_lines(self._folder, entries)
                self._rotate(number)
            except OSError as error:
                self._dropped += len(entries)
                _log.warning("The audit log cannot be written: %s", error)
            else:
                self._dropped = 0

    def _rotate(self, number: int) -> None:
        """Begin a new file after `number` if that is full, and delete the oldest."""
        if _path(self._folder, number).stat().st_size < self._file_bytes_max:
            return
        _path(self._folder, number + 1).touch(mode=0o600)
        for old in _numbers(self._folder)[:-AUDIT_FILES]:
            _path(self._folder, old).unlink(missing_ok=True)

    @contextmanager
    def running(self, every_s: float = AUDIT_FLUSH_S) -> Iterator[None]:
        """Write entries in the background until the block ends, and then the rest."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(every_s):
                self.flush()

        thread = threading.Thread(target=run, name="fourfold-audit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.flush()


def record_command(root: Path, operation: str, path: str) -> None:
    """Write the entry of a change that was made on the machine of the store, without a server.

    The change is made already, so that a log which cannot be written is only reported.
    """
    address = f"uid {os.getuid()}"
    entry = _now(operation=operation, method="COMMAND", path=path, address=address)
    try:
        append_lines(root / FOLDER, [entry])
    except OSError as error:
        _log.warning("The audit log cannot be written: %s", error)


def append_lines(folder: Path, entries: list[AuditEntry]) -> int:
    """Append entries to the newest file, in one write, and return its number."""
    folder.mkdir(mode=0o700, exist_ok=True)
    number = max(_numbers(folder), default=1)
    data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    handle = os.open(_path(folder, number), flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return number


def read_entries(
    root: Path,
    *,
    limit: int,
    before: str | None = None,
    key: str | None = None,
    operation: str | None = None,
    refused: bool = False,
) -> AuditPage:
    """Return the newest entries before a position, newest first.

    Lines that were cut by a crash are left out.

    Args:
        before: `next_cursor` of the page before.
        key: Only entries of this key.
        operation: Only entries of this operation.
        refused: Only requests that failed or were refused.

    Raises:
        InvalidInput: `before` is not a position.
    """
    page: list[AuditEntry] = []
    cursor = None
    for position, entry in _iter_newest_first(root / FOLDER, before):
        if (
            (key is not None and entry.key != key)
            or (operation is not None and entry.operation != operation)
            or (refused and not entry.error)
        ):
            continue
        if len(page) == limit:
            return AuditPage(items=page, next_cursor=cursor)
        page.append(entry)
        cursor = position
    return AuditPage(items=page)


def _iter_newest_first(folder: Path, before: str | None) -> Iterator[tuple[str, AuditEntry]]:
    """Yield entries with their positions; one file is in memory at a time."""
    last, end = _parse_position(before)
    for number in reversed(_numbers(folder)):
        if last is not None and number > last:
            continue
        try:
            data = _path(folder, number).read_bytes()
        except FileNotFoundError:
            # Deleted by a rotation meanwhile, as are all older ones.
            return
        stop = end if number == last else None
        lines = data[:stop].splitlines(keepends=True)
        offset = sum(map(len, lines))
        for line in reversed(lines):
            offset -= len(line)
            try:
                entry = _decoder.decode(line)
            except msgspec.DecodeError:
                continue
            yield f"{number}:{offset}", entry


def _parse_position(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    number, _, offset = text.partition(":")
    if not (number.isdecimal() and offset.isdecimal()) or len(text) > 40:
        raise InvalidInput(f"cursor: invalid position {text!r:.80}")
    return int(number), int(offset)


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of the files, in order."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08}{_SUFFIX}"


def _now(
    *,
    operation: str,
    method: str = "",
    path: str = "",
    address: str = "",
    error: str = "",
    suppressed: int = 0,
) -> AuditEntry:
    return AuditEntry(
        time_ms=time.time_ns() // 1_000_000,
        key="",
        address=address,
        operation=operation,
        method=method,
        path=path,
        status=0,
        error=error,
        suppressed=suppressed,
    )


def make_entry(
    operation: str,
    method: str,
    path: str,
    *,
    key: str,
    address: str,
    status: int,
    error: FourfoldError | None = None,
) -> AuditEntry:
    """Return the entry of a request that was answered now."""
    return AuditEntry(
        time_ms=time.time_ns() // 1_000_000,
        key=key,
        address=address,
        operation=operation,
        method=method,
        path=path[:PATH_CHARS_MAX],
        status=status,
        error="" if error is None else error.kind,
    )
