"""Objects of format 1 beside archive tables, and their deletion, after a proof that tables suffice.

The proof: every object of the tables matches its digest, every database with a manifest of format 1
is in the tables, and each database of the store, restored from the tables into a private file, has
the same rows as the database itself. Then restore points of format 1 are removed from the list, and
their manifests and rows are deleted. Segments of streams belong to both formats and stay; large
values that no row refers to any more are deleted by `retention.collect`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fourfold.archive.catalog_rows import DatabaseRow
from fourfold.archive.format_1 import manifest as manifests
from fourfold.archive.format_1.restorer import read_history, values_needed
from fourfold.archive.retired_objects import RetiredObject, delete
from fourfold.archive.subject import Subject, standing
from fourfold.archive.table_publisher import TableArchive
from fourfold.archive.table_reader import TableReader
from fourfold.archive.table_restore import RestoreSource, TableRestorer
from fourfold.errors import FourfoldError, Refused
from fourfold.kernel import failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries
from fourfold.store import database_files, table_archive
from fourfold.store.database_files import published_as, subject_lent, tables_with_values
from fourfold.store.fingerprint import fingerprint
from fourfold.store.publish import refuse_reader
from fourfold.store.restoration import opened_aside
from fourfold.store.table_maintenance import maintenance

if TYPE_CHECKING:
    from fourfold.store.publish import Progress
    from fourfold.store.store import Store

FORMAT_1: Final = "format 1"
"""Name of the objects of format 1 in the report."""
_PREFIXES: Final = (
    "points/",
    manifests.MANIFESTS,
    f"{manifests.ROOT}/",
)
"""In the order of deletion: a listed point can be restored."""


def list_objects(objects: ObjectStore) -> list[RetiredObject]:
    """Return the objects that only format 1 uses, in the order of deletion."""
    return [
        RetiredObject(info.key, FORMAT_1, info.size, None)
        for prefix in _PREFIXES
        for info in objects.list(prefix)
    ]


def drop_format_1(store: Store, progress: Progress | None = None) -> list[RetiredObject]:
    """Delete the objects of format 1, if the archive tables have everything; return them.

    Raises:
        Refused: The tables are missing, damaged, or differ from a database.
        PublisherFenced: Another node publishes to this archive.
    """
    refuse_reader(store)
    with store.publishing:
        if table_archive.archive_of(store).catalog.refresh().newest_point is None:
            raise _refused("the archive has no tables", "Publish first.")
        with maintenance(store) as (publication, folder):
            unneeded = list_objects(store.objects)
            if not unneeded:
                return []
            _Proof(store, folder, progress).run()
            # No publication that began before can add anything that the proof has not seen.
            publication.maintain({})
            for prefix in _PREFIXES:
                delete(store.objects, [entry for entry in unneeded if entry.key.startswith(prefix)])
                if failpoints.armed:
                    failpoints.hit("archive.format_1.deleted")
            return unneeded


def values_of_format_1(objects: ObjectStore, retries: Retries) -> frozenset[str]:
    """Return the keys of the large values that objects of format 1 refer to."""
    needed: set[str] = set()
    tables = tables_with_values()
    for info in retries.run(lambda: list(objects.list(manifests.MANIFESTS))):
        read = retries.run(lambda key=info.key: objects.get(key))  # type: ignore[misc]
        history = read_history(read, objects, retries)
        needed |= values_needed(history, tables, objects, retries)
    return frozenset(needed)


class _Proof:
    """Raises Refused unless the tables have everything that format 1 has."""

    def __init__(self, store: Store, folder: Path, progress: Progress | None) -> None:
        self._store = store
        self._folder = folder / ".proof"
        self._progress = progress
        self._archive: TableArchive = table_archive.archive_of(store)

    def run(self) -> None:
        state = self._archive.catalog.state
        names = list(database_files.names(self._store.root))
        for name in self._names_of_format_1():
            row = state.find(name)
            if row is None or (row.absent and name in names):
                raise _refused(f"{name!r} is in format 1 only", "Publish it to the tables first.")
            if not row.absent and name not in names:
                raise _refused(f"{name!r} is not in this store", "Run `fourfold bootstrap` first.")
        for table, problems in table_archive.object_problems(self._store, self._progress):
            if problems:
                raise _refused(f"archive table {table}: {problems[0]}", "Publish it again.")
        for number, name in enumerate(names):
            if self._progress is not None:
                self._progress(name, number, len(names))
            self._compare(name)

    def _names_of_format_1(self) -> Iterator[str]:
        objects, retries = self._store.objects, self._archive.retries
        for info in retries.run(lambda: list(objects.list(manifests.MANIFESTS))):
            data = retries.run(lambda key=info.key: objects.get(key)).data  # type: ignore[misc]
            manifest = manifests.decode(data, info.key)
            if not manifest.last.absent:
                yield manifest.name

    def _compare(self, name: str) -> None:
        """Raise Refused unless a database equals what the tables restore."""
        row = self._archive.catalog.state.find(name)
        if row is None or row.absent:
            raise _refused(f"{name!r} is not in the tables", "Publish it to the tables first.")
        reader = TableReader(
            self._store.objects,
            dict(self._archive.catalog.state.tables),
            self._folder / ".objects",
            self._archive.retries,
        )
        try:
            with subject_lent(self._store, name) as subject:
                status = standing(subject)
                if status.published != status.newest or status.changes:
                    raise _refused(f"{name!r} has changes that are not published", "Publish them.")
                difference = self._difference(subject, row, reader)
        except Refused:
            raise
        except FourfoldError as error:
            raise _refused(f"{name!r}: {error.message}", "Publish it again.") from error
        finally:
            reader.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        if difference is not None:
            raise _refused(
                f"table {difference!r} of {name!r} differs from the archive",
                "Run `fourfold verify --objects`.",
            )

    def _difference(self, subject: Subject, row: DatabaseRow, reader: TableReader) -> str | None:
        """Return a table whose rows differ from those in the archive, or None."""
        file = published_as(self._store, subject.name, row.model)
        source = RestoreSource(
            reader, self._store.objects, self._archive.retries, subject.prefix, subject.label
        )
        with opened_aside(self._folder / "restored.sqlite", file) as database:
            # Large values are fetched and their digests checked; they are not stored again.
            restorer = TableRestorer(database, subject.description, source, _discard)
            restorer.restore(row, len(file.kind.migrations))
            own = fingerprint(subject.database, subject.description)
            restored = fingerprint(database, subject.description)
        return next((name for name in own | restored if own.get(name) != restored.get(name)), None)


def _discard(_digest: str, _data: bytes) -> None:
    """Do nothing with a large value."""


def _refused(message: str, hint: str) -> Refused:
    return Refused(f"cannot delete the objects of format 1: {message}", hint=hint)
