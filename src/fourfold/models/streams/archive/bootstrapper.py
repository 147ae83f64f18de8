"""Restore the streams of a node from manifests alone.

Unpublished records are lost, and reported for each stream as far as the manifests know: the number
of records after the published part when the manifest was written, and segments in the object store
that no manifest refers to. Producers and TTLs start again.

It can be run again: existing streams stay unchanged, so streams that a listing did not include the
first time are added later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from fourfold import limits
from fourfold.archive.manifest import MANIFEST, ROOT, Manifest, decode, manifest_key
from fourfold.errors import CorruptData, FormatError, FourfoldError, NotFound
from fourfold.kernel import Database, Transaction
from fourfold.models.streams import incarnations, routing_keys, validation
from fourfold.models.streams.archive import manifest_rules
from fourfold.models.streams.archive.indexes import catalog
from fourfold.models.streams.archive.records import SQL, meta_of_manifest
from fourfold.models.streams.archive.sweep import segment_of
from fourfold.models.streams.search.companions import catalog as companions
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

BOOTSTRAP_READ_KEYS: Final = 32
"""Manifests that one thread of `bootstrap` reads at a time."""
BOOTSTRAP_STREAMS: Final = 20_000
BOOTSTRAP_SEGMENTS: Final = 50_000
"""Streams, or segments, that `bootstrap` creates in one transaction at most."""

_READERS = 4 * limits.ARCHIVE_CONCURRENCY
Progress = Callable[[str, int, int], None]
"""Called with the current subject, the number of steps done, and the number of all steps."""


class LostRange(NamedTuple):
    """Acknowledged records that were not in a segment when the manifest was written."""

    stream: str
    first_offset: int
    next_offset: int

    @property
    def records(self) -> int:
        """Number of records."""
        return self.next_offset - self.first_offset


class UnclaimedObject(NamedTuple):
    """A segment in the object store that no manifest refers to."""

    key: str
    size_bytes: int


class BootstrapReport(NamedTuple):
    """Result of restoring streams from manifests."""

    restored: tuple[str, ...]
    present: tuple[str, ...]
    """Streams that already existed, left unchanged."""
    deleted: int
    """Number of manifests of deleted streams."""
    records: int
    lost: tuple[LostRange, ...]
    unclaimed: tuple[UnclaimedObject, ...]
    failures: dict[str, FourfoldError]
    """Unreadable manifests by key, and forks without their source by name."""


class FoundManifest(NamedTuple):
    """A manifest in the object store."""

    manifest: Manifest
    version: str
    size: int


def bootstrap(
    database: Database,
    objects: ObjectStore,
    *,
    now_ms: int,
    retries: Retries | None = None,
    progress: Progress | None = None,
) -> BootstrapReport:
    """Restore the streams of a database from the manifests in an object store."""
    found, unclaimed, failures = _collected(objects, retries or Retries(), progress)
    return restore(database, found, unclaimed, failures, now_ms=now_ms, progress=progress)


def restore(
    database: Database,
    found: Sequence[FoundManifest],
    unclaimed: Sequence[UnclaimedObject],
    failures: dict[str, FourfoldError],
    *,
    now_ms: int,
    progress: Progress | None = None,
) -> BootstrapReport:
    """Restore streams from manifests that were read, many in one transaction."""
    living = {row.manifest.name: row for row in found if not row.manifest.deleted}
    ended = [row.manifest for row in found if row.manifest.deleted]
    database.transact(lambda txn: incarnations.reserve(txn, now_ms, ended))
    restored: list[str] = []
    present: list[str] = []
    for batch in _batches(_sources_first(living, failures)):
        made = database.transact(
            lambda txn, batch=batch: _restore(txn, batch, now_ms),  # type: ignore[misc]
            deadline_s=limits.ARCHIVE_RECORD_DEADLINE_S,
        )
        for each, outcome in zip(batch, made, strict=True):
            name = each.manifest.name
            if isinstance(outcome, FourfoldError):
                failures[name] = outcome
            else:
                (restored if outcome else present).append(name)
        if progress is not None:
            progress("streams", len(restored) + len(present), len(living))
    kept = [living[name].manifest for name in restored]
    return BootstrapReport(
        tuple(restored),
        tuple(present),
        len(found) - len(living),
        sum(entry.next_offset - entry.first_offset for entry in map(_extent, kept)),
        tuple(filter(None, map(_lost, kept))),
        tuple(unclaimed),
        failures,
    )


def _collected(
    objects: ObjectStore, retries: Retries, progress: Progress | None
) -> tuple[list[FoundManifest], list[UnclaimedObject], dict[str, FourfoldError]]:
    """Read all manifests; return them, unclaimed objects, and failures."""
    found: list[FoundManifest] = []
    failures: dict[str, FourfoldError] = {}
    segments = retries.run(lambda: {info.key: info.size for info in objects.list(f"{ROOT}/")})
    keys = [key for key in segments if key.endswith(f"/{MANIFEST}")]
    with ThreadPoolExecutor(_READERS) as pool:
        several = pool.map(
            lambda some: [read_one(objects, retries, key) for key in some], _parts(keys)
        )
        reading = chain.from_iterable(several)
        for number, (key, read) in enumerate(zip(keys, reading, strict=True)):
            if progress is not None:
                progress("manifests", number, len(keys))
            del segments[key]
            if isinstance(read, FourfoldError):
                failures[key] = read
            elif read is not None:
                found.append(read)
    return found, unclaimed_of(found, segments), failures


def _parts(keys: list[str]) -> Iterator[list[str]]:
    """Divide the keys among readers, with few tasks: each task waits in memory for its turn."""
    size = max(1, min(BOOTSTRAP_READ_KEYS, len(keys) // _READERS))
    return (keys[at : at + size] for at in range(0, len(keys), size))


def unclaimed_of(found: Iterable[FoundManifest], held: dict[str, int]) -> list[UnclaimedObject]:
    """Return the objects, by key and size, that no manifest refers to.

    The Delta log of the segments is not one of them.
    """
    for key in [key for key in held if key.startswith(f"{ROOT}/_delta_log/")]:
        del held[key]
    for row in found:
        for segment in row.manifest.kept():
            held.pop(segment.key, None)
        for key, _, _ in row.manifest.others():
            held.pop(key, None)
    return [UnclaimedObject(key, size) for key, size in sorted(held.items())]


def read_one(
    objects: ObjectStore, retries: Retries, key: str
) -> FoundManifest | FourfoldError | None:
    """Read one manifest; return None if it was deleted since the listing."""
    try:
        read = retries.run(lambda: objects.get(key))
        manifest = decode(read.data, key)
        if manifest_key(manifest.name) != key:
            return CorruptData(f"{key} is the manifest of another stream")
        validation.check_name(manifest.name)
    except NotFound:
        return None
    except FourfoldError as error:
        return error
    return FoundManifest(manifest, read.info.version, len(read.data))


def _sources_first(
    living: dict[str, FoundManifest], failures: dict[str, FourfoldError]
) -> Iterator[FoundManifest]:
    """Order streams so that the source of a fork comes first."""
    done: set[str] = set()
    for name in sorted(living):
        chain = [name]
        while (origin := living[chain[-1]].manifest.origin) is not None and origin.name not in done:
            source = living.get(origin.name)
            if source is None or source.manifest.incarnation != origin.incarnation:
                break
            chain.append(origin.name)
        for link in reversed(chain):
            origin = living[link].manifest.origin
            if link in done or link in failures:
                continue
            if origin is not None and origin.name not in done:
                failures[link] = NotFound(
                    f"the stream {link!r} was forked from {origin.name!r}, whose manifest is "
                    "missing",
                    hint="Run it again: the listing may be stale.",
                )
                continue
            done.add(link)
            yield living[link]


def _extent(manifest: Manifest) -> LostRange:
    """Return the number of available records of a stream."""
    first = max(manifest.first_offset, 0 if manifest.origin is None else manifest.origin.offset)
    return LostRange(manifest.name, first, max(_end(manifest), first))


def _end(manifest: Manifest) -> int:
    """Return the next offset of a restored stream; records removed by retention are not lost."""
    return max(manifest.uploaded_through + 1, manifest.first_offset)


def _lost(manifest: Manifest) -> LostRange | None:
    end = _end(manifest)
    if end >= manifest.next_offset:
        return None
    return LostRange(manifest.name, end, manifest.next_offset)


def _batches(ordered: Iterable[FoundManifest]) -> Iterator[list[FoundManifest]]:
    """Yield batches of streams for one transaction, limited by streams and segments."""
    batch: list[FoundManifest] = []
    segments = 0
    for entry in ordered:
        count = entry.manifest.segment_count
        if batch and (len(batch) >= BOOTSTRAP_STREAMS or segments + count > BOOTSTRAP_SEGMENTS):
            yield batch
            batch, segments = [], 0
        batch.append(entry)
        segments += count
    if batch:
        yield batch


def refresh(
    database: Database, found: Sequence[FoundManifest], gone: Iterable[str], *, now_ms: int
) -> None:
    """Replace streams by those of newer manifests, and drop others, in one transaction.

    Only for a database whose streams are all restored from manifests: records that are not in
    segments would be lost.
    """

    def work(txn: Transaction) -> None:
        txn.execute(SQL.defer_references)
        sids: dict[str, int] = {}
        forks: Counter[int] = Counter()
        for name in {*gone, *(entry.manifest.name for entry in found)}:
            row = txn.one(SQL.forks_of, (name,))
            if row is not None:
                sids[name], count, source = row
                forks[row[0]] += count
                if source is not None:
                    forks[source] -= 1
                for statement in (SQL.drop_stream, SQL.drop_manifest, SQL.drop_retired_of):
                    txn.execute(statement, (name,))
        for outcome in _restore(txn, _forks_last(found), now_ms, sids):
            if isinstance(outcome, FormatError):
                raise outcome
        txn.execute_many(SQL.drop_name, [(entry.manifest.name,) for entry in found])
        txn.execute_many(SQL.add_forks, sorted(forks.items()))

    database.transact(work, deadline_s=limits.ARCHIVE_RECORD_DEADLINE_S)


def _forks_last(found: Sequence[FoundManifest]) -> list[FoundManifest]:
    """Order streams so that the source of a fork comes before it, if it is among them."""
    by_name = {entry.manifest.name: entry for entry in found}

    def depth(entry: FoundManifest) -> int:
        count, origin = 0, entry.manifest.origin
        while origin is not None and origin.name in by_name:
            count, origin = count + 1, by_name[origin.name].manifest.origin
        return count

    return sorted(found, key=lambda entry: (depth(entry), entry.manifest.name))


def _restore(
    txn: Transaction,
    batch: list[FoundManifest],
    now_ms: int,
    sids: Mapping[str, int] = MappingProxyType({}),
) -> list[bool | FormatError]:
    """Create streams, and return for each whether it was created; existing names are skipped.

    Nothing is written for a stream that cannot be created. Each table gets its rows in the order of
    its key, so that a page is written once, not once for each row. Segments are named by digests,
    so their order differs.
    """
    made = [
        _restore_stream(txn, entry.manifest, now_ms, sids.get(entry.manifest.name))
        for entry in batch
    ]
    new = [each for each, outcome in zip(batch, made, strict=True) if outcome is True]
    segments = sorted(chain.from_iterable(_segments(entry.manifest, now_ms) for entry in new))
    txn.execute_many(SQL.restore_segment, segments)
    txn.execute_many(
        SQL.put_meta,
        (
            (manifest.name, manifest.segment_count, *meta_of_manifest(manifest).packed())
            for manifest in (entry.manifest for entry in new)
            if manifest.segment_count
        ),
    )
    txn.execute_many(SQL.restore_manifest, map(_manifest_facts, new))
    for entry in new:
        catalog.restore(txn, entry.manifest, now_ms)
        companions.restore(txn, entry.manifest, now_ms)
    return made


def _restore_stream(
    txn: Transaction, manifest: Manifest, now_ms: int, sid: int | None = None
) -> bool | FormatError:
    if txn.one(SQL.is_stream, (manifest.name,)) is not None:
        return False
    origin, source = manifest.origin, None
    if origin is not None:
        row = txn.one(SQL.is_stream, (origin.name,))
        if row is None or row[1] != origin.incarnation:
            return FormatError(
                f"the stream {manifest.name!r} was forked from a different {origin.name!r} than "
                "there is"
            )
        source = row[0]
        txn.execute(SQL.restore_fork, (source,))
    txn.execute(SQL.restore_stream, (*_row(manifest, source, now_ms), sid))
    manifest_rules.restore(txn, manifest, _end(manifest), now_ms)
    routing_keys.note_gap(txn, manifest.name)
    return True


def _segments(manifest: Manifest, now_ms: int) -> Iterator[tuple[Any, ...]]:
    labeled = manifest.labeled_starts()
    for at, segment in enumerate(manifest.kept(), start=manifest.first_segment):
        yield (
            segment_of(segment.key),
            manifest.name,
            at,
            segment.start_offset,
            segment.end_offset,
            segment.size_bytes,
            segment.payload_bytes,
            segment.groups,
            segment.last_ts_ms,
            segment.digest,
            now_ms,
            int(segment.start_offset in labeled),
        )


def _manifest_facts(found: FoundManifest) -> tuple[Any, ...]:
    """Return the stored facts of a published manifest."""
    manifest = found.manifest
    facts = (manifest.generation, manifest.published_at_ms, found.version, found.size)
    return (manifest.name, *facts, manifest.incarnation)


def _row(manifest: Manifest, source: int | None, now_ms: int) -> tuple[Any, ...]:
    by = manifest.closed_by or (None, None, None)
    origin = manifest.origin
    expires = manifest.expires_at_ms
    if manifest.ttl_seconds is not None:
        expires = now_ms + 1000 * manifest.ttl_seconds
    return (
        manifest.name,
        manifest.created_at_ms,
        max((now_ms, *manifest.segments.last_append_ms)),
        manifest.uploaded_through,
        manifest.segment_count,
        manifest.content_type,
        manifest.profile,
        manifest.stream_seq,
        int(manifest.closed),
        *by,
        manifest.ttl_seconds,
        expires,
        int(manifest.hidden),
        manifest.logical_size_bytes,
        manifest.first_offset,
        manifest.retention_seconds,
        manifest.retention_bytes,
        source,
        None if origin is None else origin.offset,
        None if origin is None else origin.asked,
        None if origin is None else origin.sub_offset,
        manifest.incarnation,
        _end(manifest),
        manifest_rules.schema_version(manifest),
        manifest.incarnation_number,
    )
