"""Which published objects a read is about: a cut, taken once, before any record is read.

    manifests     of all streams, of those of a pattern, or of one, read side by side
    the node      instead, where its folder is given: one state of its file says which segments
                  there are, and what is in the log behind them, so the two join without a seam

Segments never change and manifests only go on, so what a cut names stays readable for as long as
retired objects are kept. A fork is published after what it shares, so the manifest of its source,
if it was read too early, is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Final, NamedTuple

from fourfold import limits
from fourfold.archive.manifest import MANIFEST, ROOT, Manifest, decode, key_of, manifest_key
from fourfold.archive.retry import Retries
from fourfold.errors import CorruptData, FourfoldError, InvalidInput, NotFound
from fourfold.kernel import load_queries
from fourfold.objects import ObjectStore, open_objects
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound, find_files, find_stores
from fourfold.pipeline.streams.fold import Registries, outdated

SQL: Final = load_queries("fourfold.pipeline.streams", "published.sql")
_GLOB: Final = frozenset("*?[")


class Held(NamedTuple):
    """One object with records. Both offsets are those of records in it."""

    key: str
    start: int
    end: int
    size: int
    last_ms: int


class PublishedInfo(NamedTuple):
    """What the cut knows of a stream: its own records, and what it goes on from."""

    name: str
    incarnation: str
    content_type: str
    generation: int
    hidden: bool
    first: int
    through: int
    """The end of what is published."""
    next: int
    """The end of what is read: beyond `through` only where the node's file is read, too."""
    origin: str | None
    origin_incarnation: str | None
    fork: int
    sid: int
    segments: tuple[Held, ...]
    registry: str | None = None
    """Of its schemas, as JSON."""


class Part(NamedTuple):
    """Records of one object that belong to one stream: from `low` up to, and without, `high`."""

    stream: str
    content_type: str
    generation: int
    held: Held
    low: int
    high: int

    @property
    def whole(self) -> bool:
        return self.low <= self.held.start and self.high > self.held.end


class Tail(NamedTuple):
    """Records that are only in the file of the node."""

    stream: str
    source: str
    sid: int
    low: int
    high: int


class PublishedCut(NamedTuple):
    """All that a read is about."""

    parts: tuple[Part, ...]
    tails: tuple[Tail, ...] = ()
    mark: FileBound | None = None
    """The file of the node."""
    bad: tuple[tuple[str, str], ...] = ()
    """Manifests that cannot be read, and why."""
    registries: Registries | None = None
    """Where messages are wanted and some are to be promoted: those that it takes."""


def read_cut(
    url: str,
    *,
    root: str | None = None,
    streams: str | None = None,
    shared: bool = False,
    skip_bad: bool = False,
    promoted: bool = False,
) -> PublishedCut:
    """The cut as of now. `streams` is a name or a pattern; with `shared`, a fork has the records
    that it shares with its source too; with `promoted`, it has the registries by which messages
    are promoted.
    """
    if root is not None:
        mark, known = _of_node(root)
        cut = _cut(known, streams, _nothing, shared=shared)._replace(mark=mark)
        if promoted and mark is not None:
            _with_registries(mark, known)
    else:
        bad: list[tuple[str, str]] = []
        with open_objects(url) as objects:
            reader = _Reader(objects, bad if skip_bad else None)
            known = reader.all(streams)
            cut = _cut(known, streams, reader.one, shared=shared)
        cut = cut._replace(bad=tuple(bad))
    return cut._replace(registries=_registries(known)) if promoted else cut


def _registries(known: dict[str, PublishedInfo]) -> Registries | None:
    told = (
        (each.name, each.registry, each.first)
        for each in known.values()
        if each.registry is not None and not each.hidden
    )
    return outdated(told) or None


def checked_moment(at: datetime | int | None) -> int | None:
    """The moment up to which records are read, in milliseconds since 1970."""
    if isinstance(at, int):
        raise InvalidInput(
            "published streams have no common position: `at` must be a time",
            hint="As in 2026-03-01T12:00:00Z; or filter on the column offset.",
        )
    if at is None:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def matches(name: str, pattern: str | None) -> bool:
    """As SQLite's GLOB: `*`, `?` and `[...]`, where `^` means none of these."""
    return pattern is None or fnmatchcase(name, pattern.replace("[^", "[!"))


def _nothing(name: str) -> PublishedInfo | None:
    del name
    return None


def _cut(
    known: dict[str, PublishedInfo],
    pattern: str | None,
    reread: Callable[[str], PublishedInfo | None],
    *,
    shared: bool,
) -> PublishedCut:
    parts: list[Part] = []
    tails: list[Tail] = []
    for name in sorted(known):
        told = known[name]
        if told.hidden or not matches(name, pattern):
            continue
        for source, low, high in _pieces(told, known, reread, shared=shared):
            parts += _parts(told, source, low, min(high, source.through))
            first = max(low, source.through)
            if first < high:
                tails.append(Tail(name, source.name, source.sid, first, high))
    return PublishedCut(tuple(parts), tuple(tails))


def _pieces(
    told: PublishedInfo,
    known: dict[str, PublishedInfo],
    reread: Callable[[str], PublishedInfo | None],
    *,
    shared: bool,
) -> Iterator[tuple[PublishedInfo, int, int]]:
    """The ranges of offsets that are a stream, each with the stream whose records they are: as a
    read by the engine goes through forks.
    """
    start, end = told.first, told.next
    link: PublishedInfo = told
    while start < end:
        if end > link.fork:
            yield link, max(start, link.fork), end
        if link.origin is None or not shared:
            return
        end = min(end, link.fork)
        link = _source(link, known, reread, end)


def _source(
    fork: PublishedInfo,
    known: dict[str, PublishedInfo],
    reread: Callable[[str], PublishedInfo | None],
    end: int,
) -> PublishedInfo:
    assert fork.origin is not None
    found = known.get(fork.origin)
    if found is None or found.incarnation != fork.origin_incarnation or found.next < end:
        again = reread(fork.origin)
        found = again or found
    if found is None or found.incarnation != fork.origin_incarnation:
        raise NotFound(
            f"the stream {fork.name!r} was forked from {fork.origin!r}, whose manifest is missing",
            hint="Read it again: a listing may be behind.",
        )
    known[fork.origin] = found
    return found


def _parts(told: PublishedInfo, source: PublishedInfo, low: int, high: int) -> Iterator[Part]:
    """The objects with a range of the offsets of a stream; an error when there is a hole."""
    at = low
    for held in source.segments:
        if at >= high or held.start > at:
            break
        if held.end >= at:
            upto = min(held.end + 1, high)
            yield Part(told.name, told.content_type, source.generation, held, at, upto)
            at = upto
    if at < high:
        raise CorruptData(
            f"record {at} of the stream {source.name!r} is published, and in no segment",
            hint="`fourfold pipeline run verify ROOT --objects URL` shows all that is damaged.",
        )


# From manifests


class _Reader:
    """Reads manifests, many side by side. What is damaged is noted in `bad`, or raised."""

    def __init__(self, objects: ObjectStore, bad: list[tuple[str, str]] | None) -> None:
        self._objects = objects
        self._bad = bad
        self._retries = Retries()

    def all(self, pattern: str | None) -> dict[str, PublishedInfo]:
        """Every stream, by name; with a plain name, that one alone, without a listing."""
        if pattern is not None and not _GLOB & set(pattern):
            found = self.one(pattern)
            return {} if found is None else {pattern: found}
        keys = [key for key, _ in listed(self._objects, self._retries)]
        with ThreadPoolExecutor(limits.PUBLISHED_MANIFEST_READERS) as pool:
            read = pool.map(self._told, keys)
            return {told.name: told for told in read if told is not None}

    def one(self, name: str) -> PublishedInfo | None:
        return self._told(manifest_key(name))

    def _told(self, key: str) -> PublishedInfo | None:
        try:
            manifest = read_manifest(self._objects, self._retries, key)
        except NotFound:
            # Its stream has never been published, or this object is gone since it was listed.
            return None
        except FourfoldError as error:
            if self._bad is None:
                raise
            self._bad.append((key, error.message))
            return None
        return None if manifest.deleted else told_by(manifest)


def listed(objects: ObjectStore, retries: Retries) -> list[tuple[str, int]]:
    """The keys of all manifests, and their sizes."""
    found = retries.run(lambda: list(objects.list(f"{ROOT}/")))
    ending = f"/{MANIFEST}"
    return [(info.key, info.size) for info in found if info.key.endswith(ending)]


def read_manifest(objects: ObjectStore, retries: Retries, key: str) -> Manifest:
    """One manifest, which must be the one of its key."""
    manifest = decode(retries.run(lambda: objects.get(key)).data, key)
    if manifest_key(manifest.name) != key:
        raise CorruptData(f"{key}: is the manifest of another stream")
    return manifest


def told_by(manifest: Manifest) -> PublishedInfo:
    origin = manifest.origin
    through = max(manifest.uploaded_through + 1, manifest.first_offset)
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
            Held(each.key, each.start_offset, each.end_offset, each.size_bytes, each.last_ts_ms)
            for each in manifest.kept()
        ),
        manifest.schema_json,
    )


# From the file of a node


def _of_node(root: str) -> tuple[FileBound | None, dict[str, PublishedInfo]]:
    """One state of the node's file; nothing where it has no streams."""
    from fourfold.pipeline.streams.tables import STREAMS  # noqa: PLC0415 - only nodes need it

    found = find_files(find_stores(root, None), STREAMS)
    marks = cuts.read_files_cut(found, STREAMS).marks
    if not marks:
        return None, {}
    [mark] = marks
    known = {}
    for _, rows in groupby(cuts.iter_rows(mark, SQL.node), key=lambda row: row[0]):
        told = _told(list(rows))
        known[told.name] = told
    return mark, known


def _with_registries(mark: FileBound, known: dict[str, PublishedInfo]) -> None:
    """Registries only go on, so those that are read after the rest know every version in it."""
    from fourfold.pipeline.streams.fold import SQL as TABLES  # noqa: PLC0415 - as above

    for _, name, incarnation, text, _ in cuts.iter_rows(mark, TABLES.registries, (None,)):
        told = known.get(name)
        if told is not None and told.incarnation == incarnation:
            known[name] = told._replace(registry=text)


def _told(rows: list[tuple[object, ...]]) -> PublishedInfo:
    first = list(rows[0][:12])
    first[4] = bool(first[4])
    segments = tuple(
        Held(key_of(str(row[12])), *row[13:])  # type: ignore[arg-type]
        for row in rows
        if row[12] is not None
    )
    return PublishedInfo._make((*first, segments, None))
