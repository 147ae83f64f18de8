"""The cut of published objects, read once before any record.

    manifests     of all streams, of those of a pattern, or of one, read in parallel
    node_cut      instead, the file of a node, which has the same lists and a log

Segments never change and manifests only advance, so the objects of a cut stay readable until the
grace period ends. A fork is published after what it shares, so the manifest of its source is read
again if it was read too early.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from fourfold.archive.manifest import MANIFEST, ROOT, Manifest, decode, manifest_key
from fourfold.errors import CorruptData, FourfoldError, InvalidInput, NotFound
from fourfold.objects import ObjectStore, open_objects
from fourfold.pipeline.cut import FileBound
from fourfold.query.streams.promotion import Registries, outdated
from fourfold.retry import Retries

PUBLISHED_MANIFEST_READERS: Final = 32
"""Manifests that are read in parallel for a cut of published streams."""

_GLOB: Final = frozenset("*?[")


class RecordsObject(NamedTuple):
    """One object with records. Both offsets are those of records in it."""

    key: str
    start: int
    end: int
    size: int
    last_ms: int
    digest: str
    label: str | None = None
    """Name of the stream in its rows; None if they do not name it."""


class PublishedInfo(NamedTuple):
    """A stream in the cut: its own records, and the stream it was forked from."""

    name: str
    incarnation: str
    content_type: str
    generation: int
    hidden: bool
    first: int
    through: int
    """End of the published records."""
    next: int
    """End of the records to read: after `through` only if the node's file is read too."""
    origin: str | None
    origin_incarnation: str | None
    fork: int
    sid: int
    segments: tuple[RecordsObject, ...]
    registry: str | None = None
    """Its schema registry as JSON."""
    start: int = 0
    end: int = sys.maxsize
    """The read is limited to its records with `start` <= offset < `end`."""


class ObjectRecords(NamedTuple):
    """Records of one object that belong to one stream: `low` <= offset < `high`."""

    stream: str
    content_type: str
    generation: int
    held: RecordsObject
    low: int
    high: int

    @property
    def whole(self) -> bool:
        """True if the part covers all records of the object."""
        return self.low <= self.held.start and self.high > self.held.end


class LiveTail(NamedTuple):
    """Records that are only in the file of the node."""

    stream: str
    source: str
    sid: int
    low: int
    high: int


class PublishedCut(NamedTuple):
    """The objects and log rows of a read."""

    parts: tuple[ObjectRecords, ...]
    tails: tuple[LiveTail, ...] = ()
    bound: FileBound | None = None
    """The file of the node."""
    bad: tuple[tuple[str, str], ...] = ()
    """Manifests that cannot be read, with the reason."""
    registries: Registries | None = None
    """Registries that promote messages, if messages are read."""


def read_cut(
    url: str,
    *,
    streams: str | None = None,
    shared: bool = False,
    skip_bad: bool = False,
    promoted: bool = False,
) -> PublishedCut:
    """Return the current cut.

    `streams` is a name or a pattern. With `shared`, a fork includes the records that it shares with
    its source. With `promoted`, the cut includes the registries that promote messages.
    """
    bad: list[tuple[str, str]] = []
    with open_objects(url) as objects:
        reader = _ManifestReader(objects, bad if skip_bad else None)
        infos = reader.all(streams)
        cut = select_records(infos, streams, reader.one, shared=shared)
    cut = cut._replace(bad=tuple(bad))
    return cut._replace(registries=registries_of(infos)) if promoted else cut


def registries_of(infos: dict[str, PublishedInfo]) -> Registries | None:
    """Return the registries of streams whose messages are promoted."""
    registries = (
        (info.name, info.registry, info.first)
        for info in infos.values()
        if info.registry is not None and not info.hidden
    )
    return outdated(registries) or None


def until_ms_of(at: datetime | int | None) -> int | None:
    """Return the time up to which records are read, in milliseconds since 1970."""
    if isinstance(at, int):
        raise InvalidInput(
            f"at must be a time for published streams, got {at}",
            hint="Use a time such as 2026-03-01T12:00:00Z, or filter on the column offset.",
        )
    if at is None:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def matches(name: str, pattern: str | None) -> bool:
    """Return True if a name matches a pattern, by the rules of SQLite's GLOB."""
    return pattern is None or fnmatchcase(name, pattern.replace("[^", "[!"))


def select_records(
    infos: dict[str, PublishedInfo],
    pattern: str | None,
    reread: Callable[[str], PublishedInfo | None],
    *,
    shared: bool,
) -> PublishedCut:
    """Return the records of the streams that match a pattern.

    Args:
        reread: Returns a stream again, if it was read too early.
    """
    parts: list[ObjectRecords] = []
    tails: list[LiveTail] = []
    for name in sorted(infos):
        info = infos[name]
        if info.hidden or not matches(name, pattern):
            continue
        for source, start, end in _pieces(info, infos, reread, shared=shared):
            low, high = max(start, source.start), min(end, source.end)
            parts += _parts(info, source, low, min(high, source.through))
            first = max(low, source.through)
            if first < high:
                tails.append(LiveTail(name, source.name, source.sid, first, high))
    return PublishedCut(tuple(parts), tuple(tails))


def _pieces(
    info: PublishedInfo,
    infos: dict[str, PublishedInfo],
    reread: Callable[[str], PublishedInfo | None],
    *,
    shared: bool,
) -> Iterator[tuple[PublishedInfo, int, int]]:
    """Yield the ranges of offsets of a stream, each with the stream that stores them, following
    forks like a read by the engine.
    """
    start, end = info.first, info.next
    link: PublishedInfo = info
    while start < end:
        if end > link.fork:
            yield link, max(start, link.fork), end
        if link.origin is None or not shared:
            return
        end = min(end, link.fork)
        link = _source(link, infos, reread, end)


def _source(
    fork: PublishedInfo,
    infos: dict[str, PublishedInfo],
    reread: Callable[[str], PublishedInfo | None],
    end: int,
) -> PublishedInfo:
    assert fork.origin is not None
    source = infos.get(fork.origin)
    if source is None or source.incarnation != fork.origin_incarnation or source.next < end:
        source = reread(fork.origin) or source
    if source is None or source.incarnation != fork.origin_incarnation:
        raise NotFound(
            f"stream {fork.name!r}: the manifest of its source {fork.origin!r} is missing",
            hint="Read again: a listing may lag.",
        )
    infos[fork.origin] = source
    return source


def _parts(
    info: PublishedInfo, source: PublishedInfo, low: int, high: int
) -> Iterator[ObjectRecords]:
    """Yield the objects that cover a range of offsets; a gap raises CorruptData."""
    at = low
    for held in source.segments:
        if at >= high or held.start > at:
            break
        if held.end >= at:
            until = min(held.end + 1, high)
            yield ObjectRecords(info.name, info.content_type, source.generation, held, at, until)
            at = until
    if at < high:
        raise CorruptData(
            f"stream {source.name!r}: published record {at} is in no segment",
            hint="Run `fourfold pipeline run verify ROOT --objects URL` to list all damage.",
        )


# From manifests


class _ManifestReader:
    """Reads manifests in parallel. Damage is collected in `bad`, or raised."""

    def __init__(self, objects: ObjectStore, bad: list[tuple[str, str]] | None) -> None:
        self._objects = objects
        self._bad = bad
        self._retries = Retries()

    def all(self, pattern: str | None) -> dict[str, PublishedInfo]:
        """Return every matching stream by name; a plain name needs no listing."""
        if pattern is not None and not _GLOB & set(pattern):
            info = self.one(pattern)
            return {} if info is None else {pattern: info}
        keys = [key for key, _ in list_manifests(self._objects, self._retries)]
        with ThreadPoolExecutor(PUBLISHED_MANIFEST_READERS) as pool:
            infos = pool.map(self._info, keys)
            return {info.name: info for info in infos if info is not None}

    def one(self, name: str) -> PublishedInfo | None:
        """Return one stream by name, or None if it is not published."""
        return self._info(manifest_key(name))

    def _info(self, key: str) -> PublishedInfo | None:
        try:
            manifest = read_manifest(self._objects, self._retries, key)
        except NotFound:
            # The stream was never published, or the object was deleted after it was listed.
            return None
        except FourfoldError as error:
            if self._bad is None:
                raise
            self._bad.append((key, error.message))
            return None
        return None if manifest.deleted else manifest_info(manifest)


def list_manifests(objects: ObjectStore, retries: Retries) -> list[tuple[str, int]]:
    """Return the keys and sizes of all manifests."""
    entries = retries.run(lambda: list(objects.list(f"{ROOT}/")))
    suffix = f"/{MANIFEST}"
    return [(info.key, info.size) for info in entries if info.key.endswith(suffix)]


def read_manifest(objects: ObjectStore, retries: Retries, key: str) -> Manifest:
    """Return one manifest, after checking that it belongs to its key."""
    manifest = decode(retries.run(lambda: objects.get(key)).data, key)
    if manifest_key(manifest.name) != key:
        raise CorruptData(f"{key}: manifest of another stream")
    return manifest


def manifest_info(manifest: Manifest) -> PublishedInfo:
    """Return the description of a stream from its manifest."""
    origin = manifest.origin
    through = max(manifest.uploaded_through + 1, manifest.first_offset)
    labeled = manifest.labeled_starts()
    return PublishedInfo(
        manifest.name,
        manifest.incarnation,
        manifest.content_type,
        manifest.generation,
        manifest.hidden,
        manifest.first_offset,
        through,
        through,
        None if origin is None else origin.name,
        None if origin is None else origin.incarnation,
        0 if origin is None else origin.offset,
        0,
        tuple(
            RecordsObject(
                segment.key,
                segment.start_offset,
                segment.end_offset,
                segment.size_bytes,
                segment.last_ts_ms,
                segment.digest,
                manifest.name if segment.start_offset in labeled else None,
            )
            for segment in manifest.kept()
        ),
        manifest.schema_json,
    )
