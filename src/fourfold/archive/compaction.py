"""Compaction of publications: the rows of many small objects move into few packs.

    pages ──> packs, uploaded ──> a page that lists them ──> replace the manifest ──> record

A page of the manifest is merged when it is full, and 16 pages of one level become one of the next:
a row is rewritten once for each level. Every publication stays and refers to its rows in the packs,
so each restore point still works. The old objects and pages are listed as retired before the
manifest drops them, and deleted after a grace period. The manifest is replaced once, by
compare-and-swap.

A pack contains the rows of one table and one action, of several publications in order. Each
publication refers to its part. Objects that are large enough stay; packs are packed again with
others, without rows that no publication refers to.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.archive.database_manifest import (
    DatabaseManifest,
    ManifestFile,
    ManifestPage,
    Publication,
)
from fourfold.archive.parquet import arrow
from fourfold.archive.publisher import DatabasePublisher, Subject, read_page
from fourfold.archive.retired_objects import Retirement, UnusedObject, retire
from fourfold.archive.row_files import read_table, write_table
from fourfold.archive.uploads import get_checked, put_once, upload_of, upload_of_file
from fourfold.errors import CorruptData
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

PUBLISH_PACK_BYTES: Final = 32 * limits.MIB
"""Approximate rows of small publications that are merged into one object, in memory."""
PUBLISH_FANOUT: Final = 16
"""Pages of a manifest that are merged into one page of the next level."""
PUBLISH_LEVELS: Final = 3
"""The last level of pages."""
PUBLISH_MERGE_LEAST: Final = 4
"""Minimum number of publications that are merged on request."""

_Place = tuple[int, int]
"""A publication and one of its files, by their indexes."""


class _ObjectRows(NamedTuple):
    """Rows of one publication in an object."""

    place: _Place
    generation: int
    file: ManifestFile


class _PendingPack(NamedTuple):
    """Rows for the next pack, and the parts that they belong to."""

    tables: list[Any]
    parts: list[_ObjectRows]
    sources: set[str]


class Packer:
    """Packs the files of publications of one database."""

    def __init__(self, name: str, objects: ObjectStore, folder: Path, retries: Retries) -> None:
        self._name = name
        self._objects = objects
        self._folder = folder
        self._retries = retries
        self.packs = 0
        """Number of packs written."""

    def pack(self, steps: Sequence[Publication]) -> tuple[Publication, ...]:
        """Return the publications with their rows in as few objects as possible, uploaded."""
        files = [list(step.files) for step in steps]
        for parts in _by_table(steps):
            for place, file in self._packed(parts):
                files[place[0]][place[1]] = file
        return tuple(
            msgspec.structs.replace(step, files=tuple(parts))
            for step, parts in zip(steps, files, strict=True)
        )

    def _packed(self, parts: list[_ObjectRows]) -> Iterator[tuple[_Place, ManifestFile]]:
        held = _PendingPack([], [], set())
        size = 0
        for key, mine in _by_object(self._name, parts):
            table = read_table(self._get(key, mine[0].file), key)
            if held.tables and (
                held.tables[0].schema != table.schema or size + table.nbytes > PUBLISH_PACK_BYTES
            ):
                yield from self._flushed(held)
                held, size = _PendingPack([], [], set()), 0
            for part in mine:
                held.tables.append(_slice(table, part.file, key))
                held.parts.append(part)
            held.sources.add(key)
            size += table.nbytes
        yield from self._flushed(held)

    def _flushed(self, held: _PendingPack) -> Iterator[tuple[_Place, ManifestFile]]:
        """Upload a pack of the held parts; do nothing for a single source."""
        if len(held.sources) < 2:
            return
        pa, _ = arrow()
        first = held.parts[0].file
        generations = [part.generation for part in held.parts]
        span = min(generations), max(generations)
        written = write_table(
            pa.concat_tables(held.tables),
            self._folder,
            f"{self._name}, {first.table}",
            lambda digest: f"{first.action}-{digest}.parquet",
        )
        try:
            whole = ManifestFile(
                first.table, first.action, 0, written.size_bytes, written.digest, pack=span
            )
            key = database_manifest.file_key(self._name, 0, whole)
            upload = upload_of_file(key, written.path, written.size_bytes, written.digest)
            put_once(self._objects, upload, self._retries)
        finally:
            written.path.unlink(missing_ok=True)
        if failpoints.armed:
            failpoints.hit("archive.pack.uploaded")
        self.packs += 1
        at = 0
        for part in held.parts:
            yield part.place, msgspec.structs.replace(whole, rows=part.file.rows, at=at)
            at += part.file.rows

    def _get(self, key: str, file: ManifestFile) -> bytes:
        return get_checked(self._objects, key, file.sha256, self._retries)


def _by_table(steps: Sequence[Publication]) -> Iterator[list[_ObjectRows]]:
    """Return the small files of each table and action, in the order of their publications."""
    found: dict[tuple[str, str], list[_ObjectRows]] = {}
    for number, step in enumerate(steps):
        for at, file in enumerate(step.files):
            if file.sha256 and 2 * file.size_bytes <= PUBLISH_PACK_BYTES:
                part = _ObjectRows((number, at), step.generation, file)
                found.setdefault((file.table, file.action), []).append(part)
    yield from found.values()


def _by_object(name: str, parts: list[_ObjectRows]) -> Iterator[tuple[str, list[_ObjectRows]]]:
    """Group parts by object: a pack is fetched once."""
    found: dict[str, list[_ObjectRows]] = {}
    for part in parts:
        found.setdefault(database_manifest.file_key(name, part.generation, part.file), []).append(
            part
        )
    yield from found.items()


def _slice(table: Any, file: ManifestFile, key: str) -> Any:
    if file.at + file.rows > table.num_rows:
        raise CorruptData(f"{key}: expected {file.at + file.rows} rows, found {table.num_rows}")
    return table.slice(file.at, file.rows)


class CompactionReport(NamedTuple):
    """Result of compacting small publications."""

    name: str
    publications: int
    """Number of publications that moved to other objects."""
    retired: int
    """Number of unreferenced objects."""
    packs: int
    """Number of new objects."""


class _Group(NamedTuple):
    """Adjacent pages that become one, by their indexes; `end` is exclusive."""

    start: int
    end: int
    level: int


class Merger:
    """Compacts the publications of one database."""

    def __init__(
        self, subject: Subject, objects: ObjectStore, retries: Retries | None = None
    ) -> None:
        self._subject = subject
        self._objects = objects
        self._retries = retries or Retries()

    def merge(self, now_ms: int, *, everything: bool = False) -> CompactionReport | None:
        """Compact what is due, or return None.

        With `everything`, also the newest publications, if there are several.
        """
        folder = self._subject.folder.with_name(self._subject.folder.name + ".packs")
        publisher = DatabasePublisher(self._subject, self._objects, self._retries)
        packer = Packer(self._subject.name, self._objects, folder, self._retries)
        merging = _Compaction(self._objects, packer, self._retries, now_ms)
        try:
            changed = publisher.rewrite(lambda manifest: merging.run(manifest, everything))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return merging.done(self._subject.name) if changed else None


class _Compaction:
    def __init__(self, objects: ObjectStore, packer: Packer, retries: Retries, now_ms: int) -> None:
        self._objects = objects
        self._packer = packer
        self._retries = retries
        self._now_ms = now_ms
        self._known: dict[ManifestPage, tuple[Publication, ...]] = {}
        self._leaving: set[UnusedObject] = set()
        self._count = 0
        self._retired = 0

    def done(self, name: str) -> CompactionReport:
        return CompactionReport(name, self._count, self._retired, self._packer.packs)

    def run(self, manifest: DatabaseManifest, everything: bool) -> DatabaseManifest | None:
        """Return the manifest with larger pages, whose objects are uploaded."""
        held, pages = manifest.publications, manifest.pages
        if everything and len(held) > PUBLISH_MERGE_LEAST:
            page, _ = database_manifest.page_of(held[:-1])
            self._known[page] = held[:-1]
            held, pages = held[-1:], (*pages, page)
        before = pages
        while (group := due(pages)) is not None:
            merged = self._merged(manifest.name, pages[group.start : group.end], group.level)
            pages = (*pages[: group.start], merged, *pages[group.end :])
        if pages == before:
            return None
        for page in pages:
            if page not in manifest.pages:
                _, data = database_manifest.page_of(self._known[page], page.level)
                key = database_manifest.page_key(manifest.name, page)
                put_once(self._objects, upload_of(key, data), self._retries)
        retired = self._retire(manifest, pages)
        if failpoints.armed:
            failpoints.hit("archive.retired.listed")
        return msgspec.structs.replace(
            manifest, pages=pages, publications=held, retired=(*manifest.retired, *retired)
        )

    def _merged(self, name: str, pages: tuple[ManifestPage, ...], level: int) -> ManifestPage:
        steps = tuple(step for page in pages for step in self._steps(name, page))
        packed = self._packer.pack(steps)
        self._leaving |= set(database_manifest.objects_of(name, steps))
        self._leaving -= set(database_manifest.objects_of(name, packed))
        page, _ = database_manifest.page_of(packed, level)
        self._known[page] = packed
        self._count += len(packed)
        return page

    def _steps(self, name: str, page: ManifestPage) -> tuple[Publication, ...]:
        if page not in self._known:
            self._known[page] = read_page(self._objects, name, page, self._retries)
        return self._known[page]

    def _retire(
        self, manifest: DatabaseManifest, pages: tuple[ManifestPage, ...]
    ) -> tuple[Retirement, ...]:
        gone = [page for page in manifest.pages if page not in pages]
        keys = {
            UnusedObject(database_manifest.page_key(manifest.name, p), p.size_bytes) for p in gone
        }
        leaving = self._leaving | keys
        self._retired = len(leaving)
        folder = database_manifest.folder(manifest.name)
        return retire(self._objects, folder, leaving, self._now_ms, self._retries)


def due(pages: tuple[ManifestPage, ...]) -> _Group | None:
    """Return the first pages to merge: never merged ones, or enough of a level for the next."""
    at = 0
    for level, found in groupby(pages, key=lambda page: page.level):
        count = len(list(found))
        enough = level == 0 or (count >= PUBLISH_FANOUT and level < PUBLISH_LEVELS)
        if enough:
            return _Group(at, at + min(count, PUBLISH_FANOUT), level + 1)
        at += count
    return None
