"""The invariants of segments, arrays and manifests, and whether the object store has what they
speak of. Each fault names its stream or its object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from fourfold import limits
from fourfold.archive import DiskCache, open_segments
from fourfold.archive.manifest import LEFT, MANIFEST, ROOT, Manifest, decode, manifest_key
from fourfold.archive.retry import Retries
from fourfold.errors import CorruptData, FourfoldError, NotFound
from fourfold.kernel import Database, ReadTransaction
from fourfold.models.streams.archive.indexes.records import SQL as INDEXES
from fourfold.models.streams.archive.indexes.verify import index_problems
from fourfold.models.streams.archive.records import SQL, meta_of
from fourfold.models.streams.archive.sweep import segment_of
from fourfold.objects import ObjectStore

_NAMED_MAX = 20
Progress = Callable[[str, int, int], None]


def problems(snapshot: ReadTransaction) -> list[str]:
    """What contradicts itself in the tables of the archive; empty when all is well."""
    told = (
        (SQL.broken_segments, "segments: {!r} overlaps, leaves a hole, or is out of order"),
        (SQL.broken_meta, "stream_segment_meta: the arrays of {!r} do not fit its segments"),
        (SQL.broken_marks, "streams: {!r} says that more is sealed than there are segments for"),
        (SQL.broken_manifests, "manifests: that of {!r} is ahead of itself"),
        (SQL.broken_swaps, "segment_swaps: {!r} cannot take the place of any segments"),
        (SQL.broken_companions, "search_segment_companions: {!r} is of no segment, or no plan"),
        (INDEXES.broken_indexes, "index_state: that of {!r} covers more than is published"),
        (INDEXES.broken_runs, "index_runs: {!r} overlaps, or covers what its index does not"),
    )
    found = [
        sentence.format(row[0])
        for sql, sentence in told
        for row in snapshot.all(sql, (_NAMED_MAX,))
    ]
    return found or list(_different(snapshot))


def _different(snapshot: ReadTransaction) -> Iterator[str]:
    """Arrays that say something else than the rows that they repeat."""
    for (name,) in snapshot.all(SQL.all_meta):
        meta = meta_of(snapshot.one(SQL.meta, (name,)))
        for row in snapshot.all(SQL.segment_rows, (name,)):
            at = row[0]
            entry = (
                meta.starts[at],
                meta.ends[at],
                meta.sizes[at],
                meta.payloads[at],
                meta.groups[at],
                meta.last_ms[at],
                meta.digests[at],
            )
            if entry != row[1:]:
                yield f"stream_segment_meta: entry {at} of {name!r} is not its segment"


def object_problems(
    snapshot: ReadTransaction,
    objects: ObjectStore,
    *,
    contents: bool = True,
    retries: Retries | None = None,
    progress: Progress | None = None,
) -> Iterator[str]:
    """What is wrong in the object store: manifests that are not those that this node wrote, and
    objects that are missing, or, with `contents`, damaged.
    """
    again = retries or Retries()
    # Nothing is cached: every byte is read from the objects themselves.
    segments = open_segments(objects, DiskCache(Path(), 0), again)
    after = ""
    while rows := snapshot.all(SQL.every_manifest, (after, limits.ARCHIVE_STREAMS_PER_ROUND)):
        for number, (name, generation) in enumerate(rows):
            if progress is not None:
                progress(name, number, len(rows))
            try:
                manifest = _manifest(objects, again, name)
            except FourfoldError as error:
                yield error.message
                continue
            if manifest.generation != generation:
                yield (
                    f"manifest of {name!r}: generation {manifest.generation} is in the object "
                    f"store, {generation} was published here"
                )
            meta = meta_of(snapshot.one(SQL.meta, (name,)))
            digests = tuple(manifest.segments.sha256)
            if digests != meta.digests[: len(digests)]:
                yield f"manifest of {name!r}: speaks of other segments than there are here"
            found = list(_objects_of(objects, again, manifest, contents=contents))
            yield from found
            if contents and not found:
                yield from index_problems(segments, manifest)
        after = rows[-1][0]


def unclaimed_problems(
    database: Database, objects: ObjectStore, retries: Retries | None = None
) -> Iterator[str]:
    """Yield the objects of streams that no manifest and no row here speaks of: nothing would ever
    delete them. They are listed before the rows are read, since a row is there before its object.
    """
    again = retries or Retries()
    listed = objects.list(f"{ROOT}/")
    for name, folder in groupby(listed, lambda each: each.key.split("/")[1]):
        keys = [each.key for each in folder if each.key.endswith(".parquet")]
        with database.read() as snapshot:
            found = [
                key for key in keys if not snapshot.value(SQL.is_claimed, (key, segment_of(key)))
            ]
        if not found:
            continue
        # Another node may speak of them, or a manifest from which an earlier point was restored.
        texts = [f"{ROOT}/{name}/{MANIFEST}"]
        texts += [each.key for each in objects.list(f"{LEFT}/{name}/")]
        named = {key for text in texts for key in _named(objects, again, text)}
        for key in found:
            if key not in named and again.run(lambda: objects.head(key)) is not None:  # noqa: B023
                yield f"object {key!r} is not claimed: no manifest speaks of it, nothing deletes it"


def _named(objects: ObjectStore, retries: Retries, key: str) -> Iterator[str]:
    try:
        manifest = decode(retries.run(lambda: objects.get(key)).data, key)
    except (NotFound, CorruptData):
        return
    yield from (each.key for each in manifest.kept())
    yield from (each.key for each in manifest.runs())


def _manifest(objects: ObjectStore, retries: Retries, name: str) -> Manifest:
    key = manifest_key(name)
    return decode(retries.run(lambda: objects.get(key)).data, key)


def _objects_of(
    objects: ObjectStore, retries: Retries, manifest: Manifest, *, contents: bool
) -> Iterator[str]:
    named = [(each.key, each.size_bytes, each.digest) for each in manifest.kept()]
    named += [(each.key, each.size_bytes, each.sha256) for each in manifest.runs()]
    for key, size, digest in named:
        try:
            info = retries.run(lambda: objects.head(key))  # noqa: B023
            if info is None:
                yield f"object {key!r} of {manifest.name!r} is missing"
            elif info.size != size:
                yield f"object {key!r} of {manifest.name!r} has {info.size} bytes"
            elif contents and _digest(objects, retries, key) != digest:
                yield f"object {key!r} of {manifest.name!r} has another content"
        except NotFound:
            yield f"object {key!r} of {manifest.name!r} is missing"
        except FourfoldError as error:
            yield error.message


def _digest(objects: ObjectStore, retries: Retries, key: str) -> str:
    def read() -> str:
        hashing = hashlib.sha256()
        for chunk in objects.read(key, limits.ARCHIVE_CHUNK_BYTES):
            hashing.update(chunk)
        return hashing.hexdigest()

    return retries.run(read)
