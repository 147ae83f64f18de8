"""Retention of publications of a database: the oldest kept one becomes the first.

    restore it aside ──> all of its rows as files ──> uploaded ──> replace the manifest ──> record

Every later state needs the rows of earlier publications, so these cannot just be dropped: the state
at the oldest kept restore point is written again as a whole, and the publications before it are
retired. No object then contains data that was collected or purged before that point. Kept points
restore to the same state; `horizon` makes a restore to an earlier one an error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import database_manifest
from fourfold.archive.capture import CaptureState
from fourfold.archive.database_manifest import DatabaseManifest, ManifestPage, Publication
from fourfold.archive.publisher import DatabasePublisher, Subject, read_page
from fourfold.archive.restore import PublishedHistory, Restorer
from fourfold.archive.retired_objects import UnusedObject, retire
from fourfold.archive.row_files import RowFile
from fourfold.archive.sealer import OBJECT, SealedTable, SealTarget, seal
from fourfold.archive.uploads import get_checked, put_once, upload_of, upload_of_file
from fourfold.kernel import Database, failpoints
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

Scratch = Callable[[str], AbstractContextManager[Database]]
"""Opens a new, empty database of a model."""


class RemovalResult(NamedTuple):
    """Result of removing publications of a database."""

    name: str
    publications: int
    retired: int
    """Number of unreferenced objects."""
    bytes: int


class _RetentionPlan(NamedTuple):
    """The publications to keep, and the one that becomes the first."""

    kept: list[Publication]
    first: Publication | None
    """None if the kept history starts at the beginning."""


def plan(found: dict[int, Publication], points: Sequence[str], what: str) -> _RetentionPlan:
    """Return the publications that some restore points need.

    Points left aside by a take-over keep their whole history, except the part that they share with
    others.
    """
    newest = max(found)
    shown = [database_manifest.shown_at(found, point) for point in points]
    targets = {newest, *(entry.generation for entry in shown if entry is not None)}
    main = [link.generation for link in database_manifest.chain(found, newest, what)]
    first = next((at for at in main if at in targets and not found[at].absent), None)
    kept: set[int] = set()
    for target in targets:
        steps = [link.generation for link in database_manifest.chain(found, target, what)]
        kept |= set(steps[steps.index(first) :] if first in steps else steps)
    begins = first is None or not found[first].previous or found[first].previous in kept
    return _RetentionPlan(
        [found[at] for at in sorted(kept)], None if begins or first is None else found[first]
    )


class Retainer:
    """Removes publications of one database."""

    def __init__(
        self,
        subject: Subject,
        objects: ObjectStore,
        scratch: Scratch,
        retries: Retries | None = None,
    ) -> None:
        self._subject = subject
        self._objects = objects
        self._scratch = scratch
        self._retries = retries or Retries()
        self._folder = subject.folder.with_name(subject.folder.name + ".base")
        self._done: RemovalResult | None = None

    def retain(
        self, points: Sequence[str], now_ms: int, *, seldom: bool = False
    ) -> RemovalResult | None:
        """Keep the state at these restore points, oldest first, and remove earlier publications.

        With `seldom` only if at least as many publications are removed as kept, because all rows
        are written again.
        """
        publisher = DatabasePublisher(self._subject, self._objects, self._retries)

        def change(manifest: DatabaseManifest) -> DatabaseManifest | None:
            return self._kept(manifest, points, now_ms, seldom=seldom)

        self._done = None
        try:
            return self._done if publisher.rewrite(change) else None
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def would(self, points: Sequence[str]) -> int:
        """Return the number of publications that would be removed."""
        publisher = DatabasePublisher(self._subject, self._objects, self._retries)
        manifest = publisher.owned()
        if manifest is None or not points:
            return 0
        history = self._history(manifest)
        return len(history.found) - len(plan(history.found, points, manifest.name).kept)

    def _history(self, manifest: DatabaseManifest) -> PublishedHistory:
        found = {publication.generation: publication for publication in manifest.publications}
        for page in manifest.pages:
            for publication in read_page(self._objects, manifest.name, page, self._retries):
                found[publication.generation] = publication
        return PublishedHistory(manifest, found, "", b"")

    def _kept(
        self, manifest: DatabaseManifest, points: Sequence[str], now_ms: int, *, seldom: bool
    ) -> DatabaseManifest | None:
        history = self._history(manifest)
        wanted = plan(history.found, points, manifest.name)
        gone = len(history.found) - len(wanted.kept)
        enough = max(limits.PUBLISH_FORGET_POINTS, len(wanted.kept)) if seldom else 1
        if not points or gone < enough:
            return None
        kept = {segment.generation: segment for segment in wanted.kept}
        if wanted.first is not None:
            kept[wanted.first.generation] = self._first(history, wanted.first)
        pages, held = self._paged(manifest, kept)
        name = manifest.name
        old = set(database_manifest.objects_of(name, history.found.values()))
        old |= {_leaving(name, page) for page in manifest.pages}
        new = set(database_manifest.objects_of(name, kept.values()))
        new |= {_leaving(name, page) for page in pages}
        leaving = old - new
        leaving |= self._values(history, [key for key, _ in leaving])
        retired = retire(
            self._objects, database_manifest.folder(name), leaving, now_ms, self._retries
        )
        if failpoints.armed:
            failpoints.hit("archive.retired.listed")
        self._done = RemovalResult(name, gone, len(leaving), sum(size for _, size in leaving))
        return msgspec.structs.replace(
            manifest,
            pages=pages,
            publications=held,
            horizon=max(manifest.horizon, points[0]),
            retired=(*manifest.retired, *retired),
        )

    # The first publication

    def _first(self, history: PublishedHistory, publication: Publication) -> Publication:
        """Return a publication with all rows of its state, uploaded."""
        subject, name = self._subject, history.manifest.name
        with self._scratch(history.manifest.model) as database:
            # Large values are objects already, and stay.
            restorer = Restorer(
                database, subject.description, self._objects, self._retries, lambda _, __: None
            )
            restorer.restore(history, publication, subject.migrations)
            target = SealTarget(self._folder, lambda _, __, ___: None, subject.contents)
            sealed = seal(database, subject.description, CaptureState(), target)
        self._upload(name, publication.generation, sealed.files)
        files = tuple(file.file for file in sealed.files)
        return msgspec.structs.replace(publication, previous=0, files=files)

    def _upload(self, name: str, generation: int, sealed: list[SealedTable]) -> None:
        wanted = [
            upload_of_file(
                database_manifest.file_key(name, generation, file),
                path,
                file.size_bytes,
                file.sha256,
            )
            for file, path in sealed
            if path is not None
        ]
        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            list(pool.map(lambda each: put_once(self._objects, each, self._retries), wanted))

    # Pages

    def _paged(
        self, manifest: DatabaseManifest, kept: dict[int, Publication]
    ) -> tuple[tuple[ManifestPage, ...], tuple[Publication, ...]]:
        """Return the kept publications in pages as before, without empty pages."""
        pages: list[ManifestPage] = []
        for page in manifest.pages:
            steps = tuple(kept[at] for at in range(page.first, page.last + 1) if at in kept)
            if not steps:
                continue
            made, data = database_manifest.page_of(steps, page.level)
            if made.sha256 != page.sha256:
                upload = upload_of(database_manifest.page_key(manifest.name, made), data)
                put_once(self._objects, upload, self._retries)
            pages.append(page if made.sha256 == page.sha256 else made)
        held = tuple(
            kept[publication.generation]
            for publication in manifest.publications
            if publication.generation in kept
        )
        return tuple(pages), held

    # Large values

    def _values(self, history: PublishedHistory, leaving: list[str]) -> set[UnusedObject]:
        """Return large values that rows in these objects refer to.

        Other references are checked before they are deleted.
        """
        tables = {table.name for table in self._subject.description.tables if table.content}
        found: set[UnusedObject] = set()
        gone, name = set(leaving), history.manifest.name
        for step in history.found.values():
            for file in step.files:
                key = database_manifest.file_key(name, step.generation, file)
                if file.table in tables and key in gone:
                    gone.discard(key)
                    found |= self._named(key, file.sha256)
        return found

    def _named(self, key: str, digest: str) -> set[UnusedObject]:
        found = set()
        for value in values_of(
            RowFile(get_checked(self._objects, key, digest, self._retries), key)
        ):
            info = self._objects.head(database_manifest.blob_key(value))
            if info is not None:
                found.add(UnusedObject(info.key, info.size))
        return found


def values_of(read: RowFile) -> set[str]:
    """Return the digests of the large values that rows refer to."""
    found: set[str] = set()
    for columns, rows in read.rows():
        if OBJECT in columns:
            at = columns.index(OBJECT)
            found |= {row[at] for row in rows}
    return found - {None}


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
            key = database_manifest.file_key(history.manifest.name, step.generation, file)
            if file.table in tables and file.sha256 and key not in seen:
                seen.add(key)
                # An object that cannot be read may refer to any value: then nothing is deleted.
                data = get_checked(objects, key, file.sha256, retries)
                found |= values_of(RowFile(data, key))
    return frozenset(map(database_manifest.blob_key, found))


def _leaving(name: str, page: ManifestPage) -> UnusedObject:
    return UnusedObject(database_manifest.page_key(name, page), page.size_bytes)
