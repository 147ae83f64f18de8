"""Large values of archive tables: which objects rows refer to, and which no row refers to.

A value is an object named by its SHA-256, uploaded once, and shared by all rows with that value. It
is needed while an object of a table has a row that refers to it, also if no commit has that object
yet, or a commit has removed it and readers of an older version may still read it.

A publisher that finds a value that is about half a day old uploads it again, which makes it young;
see `publisher.ValueUploads`. Values are deleted only if they are older than a day.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from fourfold import limits
from fourfold.archive.catalog_rows import digest_tag
from fourfold.archive.retired_objects import RetiredObject
from fourfold.archive.table_files import read_object
from fourfold.archive.table_layout import VALUE
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_sweep import LOG_FOLDER
from fourfold.archive.uploads import BLOBS, blob_key
from fourfold.errors import CorruptData
from fourfold.objects import ObjectInfo

VALUES: Final = "values"
"""Name of the large values in the report of a sweep."""


class ValueSweep:
    """Finds large values that no row refers to."""

    def __init__(self, archive: TableArchive, folder: Path, *, grace_s: float, now_ms: int) -> None:
        self._archive = archive
        self._folder = folder
        self._limit_ms = now_ms - int(1000 * max(grace_s, limits.PUBLISH_ORPHAN_S))

    def is_due(self, deleted: list[RetiredObject]) -> bool:
        """Return True if objects that are deleted now may have been the last to refer to a value.

        Values of publications that were interrupted are found the next time.
        """
        archive = self._archive
        tables = {entry.database for entry in deleted} & set(archive.catalog.state.tables)
        return any(_has_values(archive, table) for table in tables)

    def plan(
        self, deleted: Collection[str], others: Callable[[], frozenset[str]]
    ) -> list[RetiredObject]:
        """Return the values that can be deleted.

        Args:
            deleted: Keys of objects that are deleted now; their rows do not count.
            others: Returns the keys of the values that other archives under the URL need.
        """
        archive = self._archive
        infos = archive.retries.run(partial(_listed, archive, BLOBS))
        old = [info for info in infos if self._is_old(info)]
        if not old:
            return []
        needed = {*self._referred(deleted), *others()}
        return [
            RetiredObject(info.key, VALUES, info.size, None)
            for info in old
            if info.key not in needed
        ]

    def still_old(self, planned: list[RetiredObject]) -> list[RetiredObject]:
        """Return the values that were not uploaded again meanwhile."""
        archive = self._archive
        heads = ((entry, archive.objects.head(entry.key)) for entry in planned)
        return [entry for entry, info in heads if info is not None and self._is_old(info)]

    def _is_old(self, info: ObjectInfo) -> bool:
        return info.modified.timestamp() * 1000 < self._limit_ms

    def _referred(self, deleted: Collection[str]) -> Iterator[str]:
        """Yield the keys of the values that rows of any object of a table refer to."""
        archive = self._archive
        for table in sorted(archive.catalog.state.tables):
            if not _has_values(archive, table):
                continue
            snapshot, prefix = archive.expected(table), archive.log(table).key("")
            for info in archive.retries.run(partial(_listed, archive, prefix)):
                path = info.key[len(prefix) :]
                if path.startswith(LOG_FOLDER) or info.key in deleted:
                    continue
                file = snapshot.files.get(path)
                try:
                    digest = None if file is None else digest_tag(file, info.key)
                    yield from self._values(info.key, digest)
                except CorruptData:
                    # An object in use that cannot be read may refer to any value. One that no
                    # commit refers to is an upload that was cut short.
                    if file is not None:
                        raise

    def _values(self, key: str, digest: str | None) -> Iterator[str]:
        """Yield the keys of the values that rows of a file refer to."""
        path = self._folder / "rows.parquet"
        for group in read_object(self._archive, key, digest, path, [VALUE]):
            for value in group.column(VALUE).unique().drop_null().to_pylist():
                yield blob_key(value)


def _has_values(archive: TableArchive, table: str) -> bool:
    return VALUE in archive.expected(table).schema.names


def _listed(archive: TableArchive, prefix: str) -> list[ObjectInfo]:
    return list(archive.objects.list(prefix))
