"""Large values, stored once under the hash of their canonical bytes.

Small ones are rows beside the events and are committed with them; those beyond
`limits.SESSION_PAYLOAD_ROW_BYTES_MAX` are files. Either way a payload is stored before any event
that refers to it, so a crash leaves at worst an unreferenced payload. Collection removes those
that nothing refers to, after a grace period for writers that are about to refer to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.blobs import BlobStore, FolderBlobs
from fourfold.content import (
    InternedPayload,
    PayloadRef,
    content_id,
    decode,
    encode,
    find_refs,
    parse_content_id,
    read_payload,
)
from fourfold.content.refs import check_kind
from fourfold.errors import CorruptData, NotFound, PayloadMissing
from fourfold.models.sessions.log import (
    Log,
    LogReader,
    LogWriter,
    OpenReading,
    PayloadRow,
    SessionRow,
)
from fourfold.models.sessions.reader import existing
from fourfold.models.sessions.records import GcReport
from fourfold.models.sessions.stamps import event_of
from fourfold.models.sessions.writer import is_file

SESSION_PURGE_EVENTS: Final = 2_000
"""Events of a deleted session that one transaction removes."""

_PAGE = limits.SESSION_PAGE_EVENTS
_MARK = b'"~ref"'


def interned(value: object, kind: str) -> InternedPayload:
    """Return a payload of any size: the reference, and the bytes to store."""
    check_kind(kind)
    data = encode(value)
    return InternedPayload(PayloadRef(content_id(data), kind, len(data)), data)


def write_files(payloads: Iterable[InternedPayload], files: BlobStore | None) -> None:
    """Write large payloads to disk, before the transaction that refers to them."""
    for payload in payloads:
        if is_file(payload, files):
            assert files is not None
            files.put(payload.data)


def fetch(log: Log, files: BlobStore | None, ref: PayloadRef) -> object:
    """Return the value of a reference, verified by its hash."""
    return fetch_with(log.read, files, ref)


def fetch_with(open_reading: OpenReading, files: BlobStore | None, ref: PayloadRef) -> object:
    """Return the value of a reference like `fetch`, with reads that `open_reading` opens."""
    with open_reading() as reading:
        row = reading.payload(_digest(ref.id))
    return read_payload(ref, _bytes(row, files, ref.id))


def _bytes(row: tuple[int, bytes | None] | None, files: BlobStore | None, name: str) -> bytes:
    if row is None:
        raise _missing(name)
    data = row[1]
    if data is not None:
        if not isinstance(data, bytes):
            raise CorruptData(f"the row of payload {name} holds no bytes")
        return data
    if files is None:
        raise _missing(name)
    try:
        return files.get(name)
    except NotFound:
        raise _missing(name) from None


def size(log: Log, name: str) -> int:
    """Return the number of canonical bytes of a payload."""
    with log.read() as reading:
        size_bytes = reading.payload_size(_digest(name))
    if size_bytes is None:
        raise _missing(name)
    return size_bytes


def read_range(
    log: Log, files: BlobStore | None, name: str, start: int, length: int | None
) -> bytes:
    """Return the canonical bytes of a payload from `start`, at most `length` of them."""
    with log.read() as reading:
        payload = reading.payload(_digest(name))
    end = None if length is None else start + length
    if payload is None or payload[1] is not None or files is None or (start, length) == (0, None):
        return _bytes(payload, files, name)[start:end]
    try:
        return files.get_range(name, start, payload[0] - start if length is None else length)
    except NotFound:
        raise _missing(name) from None


def _missing(name: str) -> PayloadMissing:
    return PayloadMissing(f"payload {name} is not in this store", details={"payload": name})


def dangling(log: Log, files: BlobStore | None, sid: str | None) -> list[PayloadRef]:
    """Return the references in the events of a session, or of all, that lead to no payload."""
    with log.read() as reading:
        key = None if sid is None else existing(reading, sid).key
    lost: set[PayloadRef] = set()
    seen: set[bytes] = set()
    for ref in _refs(log, key):
        lost.update(_lost(log, files, ref, seen))
    return sorted(lost)


def _lost(
    log: Log, files: BlobStore | None, ref: PayloadRef, seen: set[bytes]
) -> Iterator[PayloadRef]:
    """Yield missing payloads among a reference and all that it refers to."""
    waiting = [ref]
    while waiting:
        pending = waiting.pop()
        if _digest(pending.id) in seen:
            continue
        seen.add(_digest(pending.id))
        try:
            with log.read() as reading:
                waiting += _inner(reading, files, pending.id)
        except PayloadMissing:
            yield pending
        except CorruptData:
            continue  # It is there; that it is damaged is for verification to say.


def _refs(
    log: Log, key: int | None, without: AbstractSet[int] = frozenset()
) -> Iterator[PayloadRef]:
    """Yield the references of a session, or of all but some."""
    after = 0
    while True:
        with log.read() as reading:
            rows = reading.events_with_refs(key, after, _PAGE)
        if not rows:
            return
        for owner, row in rows:
            if owner not in without:
                yield from find_refs(event_of(str(owner), row).data)
        last = rows[-1][1]
        after = last.position if key is None else last.event_id


def _inner(reading: LogReader, files: BlobStore | None, name: str) -> list[PayloadRef]:
    """Return the references inside a payload."""
    data = _bytes(reading.payload(_digest(name)), files, name)
    return find_refs(decode(data)) if _MARK in data else []


def closure(log: Log, files: BlobStore | None, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield payloads and all that they refer to, each once, with their verified bytes."""
    waiting = sorted(names, reverse=True)
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        with log.read() as reading:
            data = _bytes(reading.payload(_digest(name)), files, name)
        if content_id(data) != name:
            raise CorruptData(f"the stored bytes of payload {name} are not the ones it names")
        yield name, data
        for ref in find_refs(decode(data)) if _MARK in data else []:
            if ref.id not in seen:
                seen.add(ref.id)
                waiting.append(ref.id)


class Cutoff(NamedTuple):
    """Age limit of a removal: as text, in seconds, and for payloads.

    The last one is older, because the age of a payload is refreshed only now and then.
    """

    at: str
    seconds: float
    touched: int


def collect(log: Log, files: FolderBlobs | None, cutoff: Cutoff) -> GcReport:
    """Remove unreferenced payloads and deleted sessions older than the grace period."""
    sessions, events = _purge(log, cutoff.at)
    reached: set[bytes] = set()
    with log.read() as reading:
        position = reading.position()
    for ref in _refs(log, None):
        _reach(log, files, ref, reached)
    removed: list[PayloadRow] = []
    after = b""
    while True:
        with log.read() as reading:
            page = reading.payloads(after, _PAGE)
        if not page:
            break
        after = page[-1].hash
        old = [row for row in page if row.touched <= cutoff.touched and row.hash not in reached]
        if old:
            gone, position = _sweep(log, files, old, position, reached)
            removed += gone
    if files is not None:
        _remove_files(log, files, cutoff)
    if sessions or removed:
        log.drop_copies()
    return GcReport(sessions, events, len(removed), sum(row.size for row in removed))


def mark(log: Log, files: BlobStore | None, cutoff: Cutoff) -> GcReport:
    """Report what `collect` would remove. Only reads, also beside a writer."""
    events = payloads = size = after = 0
    going: set[int] = set()
    while page := _sessions(log, after):
        after = page[-1].key
        for row in page:
            if row.deleted_at is not None and not row.purged and row.deleted_at <= cutoff.at:
                going.add(row.key)
                with log.read() as reading:
                    events += reading.last_event(row.key)
    reached: set[bytes] = set()
    for ref in _refs(log, None, going):
        _reach(log, files, ref, reached)
    last_hash = b""
    while True:
        with log.read() as reading:
            rows = reading.payloads(last_hash, _PAGE)
        if not rows:
            return GcReport(len(going), events, payloads, size, dry_run=True)
        last_hash = rows[-1].hash
        for payload_row in rows:
            if payload_row.touched <= cutoff.touched and payload_row.hash not in reached:
                payloads, size = payloads + 1, size + payload_row.size


def _sessions(log: Log, after: int) -> list[SessionRow]:
    with log.read() as reading:
        return reading.sessions(after, _PAGE, deleted=True)


def _purge(log: Log, cutoff: str) -> tuple[int, int]:
    sessions = events = after = 0
    while True:
        with log.read() as reading:
            page = reading.sessions(after, _PAGE, deleted=True)
        if not page:
            return sessions, events
        after = page[-1].key
        for row in page:
            deleted = row.deleted_at
            if deleted is not None and not row.purged and deleted <= cutoff:
                events += _purge_session(log, row)
                sessions += 1


def _purge_session(log: Log, row: SessionRow) -> int:
    """Remove a session's events, newest first, in slices that other writers come between.

    A collection that was killed leaves the beginning of the log, and the next one continues.
    """
    events = 0

    def work(writing: LogWriter) -> int:
        count = writing.purge(row.key, SESSION_PURGE_EVENTS)
        if count < SESSION_PURGE_EVENTS:
            writing.mark_session(row._replace(purged=1))
        return count

    count = SESSION_PURGE_EVENTS
    while count == SESSION_PURGE_EVENTS:
        with log.paced():
            count = log.transact(work)
        events += count
    return events


def _reach(log: Log, files: BlobStore | None, ref: PayloadRef, reached: set[bytes]) -> None:
    waiting = [ref.id]
    while waiting:
        name = waiting.pop()
        digest = _digest(name)
        if digest in reached:
            continue
        reached.add(digest)
        try:
            with log.read() as reading:
                waiting += [inner.id for inner in _inner(reading, files, name)]
        except (PayloadMissing, CorruptData):
            continue  # Damage is for verification to name; nothing is removed because of it.


def _sweep(
    log: Log,
    files: BlobStore | None,
    old: list[PayloadRow],
    position: int,
    reached: set[bytes],
) -> tuple[list[PayloadRow], int]:
    """Remove rows, unless an event after `position` refers to them, or they were stored again: in a
    transaction nothing more can come. What the events lead to is added to `reached`.

    Returns the removed rows, and the position of the newest event that was examined.
    """

    def work(writing: LogWriter) -> tuple[list[PayloadRow], int]:
        waiting: list[str] = []
        after = position
        while events := writing.events_with_refs(None, after, _PAGE):
            after = events[-1][1].position
            for owner, event in events:
                waiting += [ref.id for ref in find_refs(event_of(str(owner), event).data)]
        while waiting:
            name = waiting.pop()
            if _digest(name) not in reached:
                reached.add(_digest(name))
                waiting += [inner.id for inner in _inner(writing, files, name)]
        gone = []
        for row in old:
            now = writing.payloads(_before(row.hash), 1)
            if row.hash not in reached and now == [row]:
                writing.delete_payload(row.hash)
                gone.append(row)
        return gone, after

    return log.transact_alone(work)


def _remove_files(log: Log, files: FolderBlobs, cutoff: Cutoff) -> None:
    """Remove files whose row is gone, or was never written because a writer died."""
    files.sweep(max(limits.BLOB_SWEEP_AGE_S, 0.0))
    for name in list(files.ids()):
        with log.read() as reading:
            if reading.payload_size(_digest(name)) is not None:
                continue

        def work(writing: LogWriter, name: str = name) -> None:
            # A writer that stores it again checks the file in a transaction, so after this.
            if writing.payload_size(_digest(name)) is None and _age(files.path(name), cutoff):
                files.delete(name)

        log.transact_alone(work)


def _age(path: Path, cutoff: Cutoff) -> bool:
    try:
        return path.lstat().st_mtime <= cutoff.seconds
    except FileNotFoundError:
        return False


def _before(digest: bytes) -> bytes:
    """Return the greatest hash below one, so that a page after it begins with it."""
    return (int.from_bytes(digest) - 1).to_bytes(len(digest)) if any(digest) else b""


def _digest(name: str) -> bytes:
    return bytes.fromhex(parse_content_id(name))
