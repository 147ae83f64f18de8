"""Restore of a database from its publications in format 1, byte for byte, at any of them.

Publications are applied in order: keys are deleted, rows are put, small tables are replaced.
Derived data is rebuilt at the end. The database is new and private; the caller moves it into place
when it is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive.capture import SCHEMA
from fourfold.archive.database_filler import DatabaseFiller, PutContent
from fourfold.archive.format_1 import manifest as manifests
from fourfold.archive.format_1.manifest import (
    DatabaseManifest,
    ManifestFile,
    ManifestPage,
    Publication,
)
from fourfold.archive.publication import GONE, WHOLE, Description
from fourfold.archive.row_files import RowFile
from fourfold.archive.sealer import OBJECT
from fourfold.archive.uploads import blob_key, get_checked
from fourfold.errors import CorruptData, FutureFormat
from fourfold.kernel import Database
from fourfold.objects import Object, ObjectStore
from fourfold.retry import Retries


class PublishedHistory(NamedTuple):
    """A manifest with the publications of all its pages."""

    manifest: DatabaseManifest
    found: dict[int, Publication]
    version: str
    data: bytes

    @property
    def newest(self) -> int:
        """Number of the newest publication."""
        return self.manifest.newest

    def at(self, point: str | None) -> Publication | None:
        """Return the publication at a restore point; None if the database did not exist."""
        return manifests.at_point(self.found, point, self.manifest.horizon)


def read_history(read: Object, objects: ObjectStore, retries: Retries) -> PublishedHistory:
    """Read the history of a database from its manifest."""
    key = read.info.key
    manifest = manifests.decode(read.data, key)
    if manifests.manifest_key(manifest.name) != key:
        raise CorruptData(f"{key} is the manifest of another database")
    found = {publication.generation: publication for publication in manifest.publications}
    for page in manifest.pages:
        for publication in _read_page(objects, manifest.name, page, retries):
            found[publication.generation] = publication
    return PublishedHistory(manifest, found, read.info.version, read.data)


def _read_page(
    objects: ObjectStore, name: str, page: ManifestPage, retries: Retries
) -> tuple[Publication, ...]:
    key = manifests.page_key(name, page)
    return manifests.decode_page(get_checked(objects, key, page.sha256, retries), page, key)


def values_needed(
    history: PublishedHistory, tables: frozenset[str], objects: ObjectStore, retries: Retries
) -> frozenset[str]:
    """Return the keys of all large values that a published database refers to.

    `tables` are those whose rows may refer to some.
    """
    found: set[str] = set()
    seen: set[str] = set()
    for step in history.found.values():
        for file in step.files:
            key = manifests.file_key(history.manifest.name, step.generation, file)
            if file.table in tables and file.sha256 and key not in seen:
                seen.add(key)
                # An object that cannot be read may refer to any value: then nothing is deleted.
                data = get_checked(objects, key, file.sha256, retries)
                found |= _values_of(RowFile(data, key))
    return frozenset(map(blob_key, found))


def _values_of(read: RowFile) -> set[str]:
    """Return the digests of the large values that rows refer to."""
    found: set[str] = set()
    for columns, rows in read.rows():
        if OBJECT in columns:
            at = columns.index(OBJECT)
            found |= {row[at] for row in rows}
    return found - {None}


class Restorer:
    """Fills a new database with published rows."""

    def __init__(
        self,
        database: Database,
        description: Description,
        objects: ObjectStore,
        retries: Retries,
        put_content: PutContent | None,
    ) -> None:
        self._filler = DatabaseFiller(database, description, objects, retries, put_content)
        self._objects = objects
        self._retries = retries

    def restore(self, history: PublishedHistory, publication: Publication, migrations: int) -> int:
        """Restore the database to a publication; return the number of rows read."""
        manifest = history.manifest
        if manifest.migrations > migrations:
            raise FutureFormat(
                f"{manifest.name} has {manifest.migrations} migrations; "
                f"this Fourfold knows {migrations}"
            )
        rows = 0
        steps = manifests.chain(history.found, publication.generation, manifest.name)
        for file, read in self._fetched(manifest.name, _needed(steps)):
            self._apply(file, read)
            rows += file.rows
        self._filler.finish()
        return rows

    def remember(self, publication: Publication, version: str, manifest: bytes) -> None:
        """Let the database continue after a publication."""
        self._filler.remember(publication.position, publication.generation, version, manifest)

    def _fetched(
        self, name: str, needed: list[tuple[int, ManifestFile]]
    ) -> Iterator[tuple[ManifestFile, RowFile | None]]:
        """Yield the files with their readers, in order.

        A few are fetched ahead, because latency dominates. A pack is fetched once, and kept until
        it is no longer needed.
        """
        keys = [manifests.file_key(name, generation, file) for generation, file in needed]
        wanted = Counter(keys)
        coming: dict[str, Future[RowFile | None]] = {}
        at = 0
        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            for number, ((_, file), key) in enumerate(zip(needed, keys, strict=True)):
                while at <= number or (
                    at < len(needed) and len(coming) <= limits.ARCHIVE_CONCURRENCY
                ):
                    if keys[at] not in coming:
                        coming[keys[at]] = pool.submit(self._fetch, keys[at], needed[at][1])
                    at += 1
                yield file, coming[key].result()
                wanted[key] -= 1
                if not wanted[key]:
                    del coming[key]

    def _fetch(self, key: str, file: ManifestFile) -> RowFile | None:
        """Fetch a file; an empty table that is published as a whole has no object."""
        if not file.sha256:
            return None
        return RowFile(get_checked(self._objects, key, file.sha256, self._retries), key)

    def _apply(self, file: ManifestFile, read: RowFile | None) -> None:
        filler, table = self._filler, file.table
        if file.action == WHOLE and table != SCHEMA:
            filler.clear(table)
        if read is None:
            return
        part = read.rows() if file.pack is None else read.rows(file.at, file.rows)
        for columns, rows in part:
            if table == SCHEMA:
                filler.create_objects(rows)
            elif file.action == GONE:
                filler.delete(table, columns, rows)
            else:
                filler.put(table, columns, rows)


def _needed(steps: list[Publication]) -> list[tuple[int, ManifestFile]]:
    """Return the files to apply, in order.

    Files of a table before it was published as a whole are skipped; so tables are created in their
    final form.
    """
    kept: list[list[tuple[int, ManifestFile]]] = []
    whole: set[str] = set()
    for step in reversed(steps):
        # Deleted keys make room for new rows.
        files = sorted(step.files, key=lambda each: each.action != GONE)
        kept.append([(step.generation, file) for file in files if file.table not in whole])
        whole |= {file.table for file in files if file.action == WHOLE}
    # Tables are created before their rows, and each is filled separately, because its compacted
    # rows are adjacent.
    order: dict[str, int] = {SCHEMA: -1}
    for _, file in chain.from_iterable(reversed(kept)):
        order.setdefault(file.table, len(order))
    found = sorted(chain.from_iterable(reversed(kept)), key=lambda each: order[each[1].table])
    return _joined(found)


def _joined(found: list[tuple[int, ManifestFile]]) -> list[tuple[int, ManifestFile]]:
    """Join adjacent parts of a pack."""
    joined: list[tuple[int, ManifestFile]] = []
    for generation, file in found:
        before = joined[-1][1] if joined else None
        if (
            before is not None
            and file.pack is not None
            and file.action != WHOLE
            and (before.table, before.action, before.pack) == (file.table, file.action, file.pack)
            and before.sha256 == file.sha256
            and before.at + before.rows == file.at
        ):
            whole = msgspec.structs.replace(before, rows=before.rows + file.rows)
            joined[-1] = joined[-1][0], whole
        else:
            joined.append((generation, file))
    return joined
