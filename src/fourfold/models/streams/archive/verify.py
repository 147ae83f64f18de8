"""Verification of segments, arrays, manifests and their objects.

Each problem names its stream or its object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from fourfold import limits
from fourfold.archive import DiskCache, open_segments
from fourfold.archive.manifest import (
    COMPANION_SUFFIX,
    LEFT,
    MANIFEST,
    ROOT,
    Manifest,
    decode,
    manifest_key,
)
from fourfold.errors import CorruptData, FourfoldError, NotFound
from fourfold.kernel import Database, ReadTransaction
from fourfold.models.streams.archive.indexes.records import SQL as INDEXES
from fourfold.models.streams.archive.indexes.verify import index_problems
from fourfold.models.streams.archive.records import SQL, meta_of
from fourfold.models.streams.archive.sweep import segment_of
from fourfold.models.streams.search.companions.verify import companion_problems
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

_NAMED_MAX = 20
Progress = Callable[[str, int, int], None]


def problems(snapshot: ReadTransaction) -> list[str]:
    """Return the problems in the tables of the archive."""
    checks = (
        (SQL.broken_segments, "segments: {!r} overlaps, leaves a gap, or is out of order"),
        (SQL.broken_meta, "stream_segment_meta: the arrays of {!r} do not match its segments"),
        (SQL.broken_marks, "streams: {!r} has a sealed_through beyond its segments"),
        (SQL.broken_manifests, "manifests: the counters of {!r} are inconsistent"),
        (SQL.broken_swaps, "segment_swaps: {!r} cannot replace any segments"),
        (SQL.broken_companions, "search_segment_companions: {!r} has no segment or no plan"),
        (INDEXES.broken_indexes, "index_state: {!r} covers more than is published"),
        (INDEXES.broken_runs, "index_runs: {!r} overlaps, or exceeds its index"),
    )
    found = [
        sentence.format(row[0])
        for sql, sentence in checks
        for row in snapshot.all(sql, (_NAMED_MAX,))
    ]
    return found or list(_different(snapshot))


def _different(snapshot: ReadTransaction) -> Iterator[str]:
    """Yield arrays that differ from the rows that they repeat."""
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
                yield f"stream_segment_meta: entry {at} of {name!r} does not match its segment"


def object_problems(
    snapshot: ReadTransaction,
    objects: ObjectStore,
    *,
    contents: bool = True,
    retries: Retries | None = None,
    progress: Progress | None = None,
) -> Iterator[str]:
    """Yield the problems in the object store: foreign manifests, and missing objects.

    With `contents`, also damaged objects.
    """
    again = retries or Retries()
    # No cache: every byte is read from the objects themselves.
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
                yield f"manifest of {name!r}: lists other segments than this node"
            found = list(_objects_of(objects, again, manifest, contents=contents))
            yield from found
            if contents and not found:
                yield from index_problems(segments, manifest)
                yield from companion_problems(segments, manifest)
        after = rows[-1][0]


def unclaimed_problems(
    database: Database, objects: ObjectStore, retries: Retries | None = None
) -> Iterator[str]:
    """Yield the objects of streams that no manifest and no row refers to.

    Nothing would ever delete them. They are listed before the rows are read, because a row exists
    before its object.
    """
    again = retries or Retries()
    listed = objects.list(f"{ROOT}/")
    for name, folder in groupby(listed, lambda each: each.key.split("/")[1]):
        if name == "_delta_log":
            continue
        keys = [entry.key for entry in folder if entry.key.endswith((".parquet", COMPANION_SUFFIX))]
        with database.read() as snapshot:
            found = [
                key for key in keys if not snapshot.value(SQL.is_claimed, (key, segment_of(key)))
            ]
        if not found:
            continue
        # Another node may refer to them, or a manifest that a take-over has replaced.
        texts = [f"{ROOT}/{name}/{MANIFEST}"]
        texts += [entry.key for entry in objects.list(f"{LEFT}/{name}/")]
        named = {key for text in texts for key in _named(objects, again, text)}
        for key in found:
            if key not in named and again.run(lambda: objects.head(key)) is not None:  # noqa: B023
                yield f"object {key!r} is unclaimed: no manifest refers to it"


def _named(objects: ObjectStore, retries: Retries, key: str) -> Iterator[str]:
    try:
        manifest = decode(retries.run(lambda: objects.get(key)).data, key)
    except (NotFound, CorruptData):
        return
    yield from (segment.key for segment in manifest.kept())
    yield from (key for key, _, _ in manifest.others())


def _manifest(objects: ObjectStore, retries: Retries, name: str) -> Manifest:
    key = manifest_key(name)
    return decode(retries.run(lambda: objects.get(key)).data, key)


def _objects_of(
    objects: ObjectStore, retries: Retries, manifest: Manifest, *, contents: bool
) -> Iterator[str]:
    named = [(segment.key, segment.size_bytes, segment.digest) for segment in manifest.kept()]
    named += manifest.others()
    for key, size, digest in named:
        try:
            info = retries.run(lambda: objects.head(key))  # noqa: B023
            if info is None:
                yield f"object {key!r} of {manifest.name!r} is missing"
            elif info.size != size:
                yield f"object {key!r} of {manifest.name!r} has {info.size} bytes"
            elif contents and _digest(objects, retries, key) != digest:
                yield f"object {key!r} of {manifest.name!r} does not match its digest"
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
