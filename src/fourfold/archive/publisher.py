"""Publish a database: upload its new data, then replace its manifest.

    seal (one state) ──> upload files and values ──> intend ──> replace the manifest ──> record

The manifest is the commit point. It is replaced only if it is the version that this node wrote, so
of two nodes that act as the owner of a database one publishes; the other gets PublisherFenced. The
intent is recorded first, so that a node whose response was lost recognizes its manifest, and
continues after it. No object but the manifest is ever replaced.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from fourfold import limits
from fourfold.archive import capture, database_manifest, manifest_format
from fourfold.archive.capture import HELD_BACK, SQL, CaptureState, Intent, StatusRow
from fourfold.archive.database_manifest import DatabaseManifest, ManifestPage, Publication
from fourfold.archive.publication import Contents, Description
from fourfold.archive.sealer import SealedTable, Sealer, SealTarget, seal
from fourfold.archive.uploads import Upload, get_checked, put_once, upload_of, upload_of_file
from fourfold.errors import (
    AlreadyExists,
    CorruptData,
    NotFound,
    PreconditionFailed,
    PublisherFenced,
)
from fourfold.kernel import Database, Transaction, failpoints
from fourfold.objects import Object, ObjectStore
from fourfold.retry import Retries


@dataclass(frozen=True, slots=True)
class Subject:
    """A database to publish, and its scratch folder."""

    name: str
    """Name in the object store, the same on every node."""
    model: str
    migrations: int
    database: Database
    description: Description
    folder: Path
    contents: Contents | None = None
    """Returns the bytes of values that are files next to the database."""
    prefix: str = ""
    """Prefix of the names of its archive tables: the model, and the kind if it is not the first."""
    label: tuple[str, str] = ("database", "")
    """Column with the id of the database in archive tables, and the id."""


class PublishTime(NamedTuple):
    """Time and restore point of a publication."""

    point: str
    at: str


class DatabaseResult(NamedTuple):
    """Result of one publication."""

    name: str
    generation: int
    position: int
    rows: int
    objects: int
    bytes: int


class DatabaseStatus(NamedTuple):
    """Publish status of a database.

    Data after `published`, and `changes`, would be lost with the disk.
    """

    name: str
    published: int
    newest: int
    changes: int
    """Number of rows changed or deleted since, which positions do not show."""
    generation: int


def standing(subject: Subject) -> DatabaseStatus:
    with subject.database.read() as snapshot:
        record = capture.record_of(snapshot)
        newest = int(snapshot.value(subject.description.newest))
        changes = 0 if record is None else int(snapshot.value(SQL.count_changes))
    state = CaptureState() if record is None else record.state
    generation = 0 if record is None else record.generation
    return DatabaseStatus(
        subject.name, state.position, max(newest, state.position), changes, generation
    )


class _ManifestGone(Exception):
    """The manifest that this node wrote does not exist any more."""


class DatabasePublisher:
    """Publishes one database to an object store."""

    def __init__(
        self, subject: Subject, objects: ObjectStore, retries: Retries | None = None
    ) -> None:
        self._subject = subject
        self._objects = objects
        self._retries = retries or Retries()
        self._key = database_manifest.manifest_key(subject.name)
        self.full = False
        """True if the last publication filled a page of the manifest, which can be compacted."""

    def publish(self, time: PublishTime) -> DatabaseResult | None:
        """Publish new data; return None if there is none."""
        try:
            return self._publish_new(time)
        except _ManifestGone:
            # A different or emptied object store: publish everything.
            self._transact(lambda txn: txn.execute(SQL.forget))
            return self._publish_new(time)

    def _publish_new(self, time: PublishTime) -> DatabaseResult | None:
        subject = self._subject
        capture.watch(subject.database, subject.description)
        record = self._adopted(self._resolve_intent(self._record()))
        shutil.rmtree(subject.folder, ignore_errors=True)
        carried = ValueUploads(self._objects, self._retries)
        try:
            target = SealTarget(subject.folder, carried.carry, subject.contents)
            sealing = seal(subject.database, subject.description, record.state, target)
            if not sealing.files:
                return None
            return self._publish(record, sealing, carried, time)
        finally:
            shutil.rmtree(subject.folder, ignore_errors=True)

    def _publish(
        self, record: StatusRow, sealing: Sealer, carried: ValueUploads, time: PublishTime
    ) -> DatabaseResult:
        generation, previous = self._next(record)
        files = tuple(entry.file for entry in sealing.files)
        publication = Publication(
            generation, previous, time.point, time.at, sealing.position, files
        )
        manifest, pages = self._manifest(record, publication)
        self._upload_all(generation, sealing.files, pages)
        self.full = bool(pages)
        intent = Intent(manifest.token, publication, sealing.state, sealing.change)
        self._swap(record, intent, manifest)
        return DatabaseResult(
            self._subject.name,
            generation,
            sealing.position,
            sum(file.rows for file in files),
            sum(1 for file in files if file.sha256) + carried.count,
            sum(file.size_bytes for file in files) + carried.bytes,
        )

    def rewrite(self, change: Callable[[DatabaseManifest], DatabaseManifest | None]) -> bool:
        """Replace the manifest without publishing new data.

        `change` uploads objects, and returns the new manifest. Returns True if the manifest was
        replaced, False if this node has none.
        """
        manifest = self.owned()
        if manifest is None:
            return False
        record = self._record()
        changed = change(manifest)
        if changed is None:
            return False
        wanted = msgspec.structs.replace(
            changed, format=database_manifest.FORMAT, token=uuid.uuid4().hex, node=record.node
        )
        # Keep the publication, so that a node that stops here continues after it.
        self._swap(record, Intent(wanted.token, wanted.last, record.state, 0), wanted)
        return True

    def _swap(self, record: StatusRow, intent: Intent, manifest: DatabaseManifest) -> None:
        """Replace the manifest, after recording the intent and before recording the result.

        A node that stops in between finds out which of the two applies.
        """
        self._transact(lambda txn: txn.execute(SQL.intend, (_text(intent),)))
        if failpoints.armed:
            failpoints.hit("archive.manifest.intended")
        data = database_manifest.encode(manifest)
        version = self._replace(record, data)
        if failpoints.armed:
            failpoints.hit("archive.manifest.uploaded")
        self._recorded(intent, data, version)

    def owned(self) -> DatabaseManifest | None:
        """Return the manifest if it is the one that this node wrote last.

        Raises PublisherFenced if another node has written since. Returns None if this node has
        none, it is truncated, or the object store returned to an older state: the next publication
        fixes that.
        """
        with self._subject.database.read() as snapshot:
            known = capture.record_of(snapshot)
        if known is None or known.manifest is None:
            return None
        record = self._resolve_intent(known)
        found = self._fetch()
        if found is None or record.manifest is None:
            return None
        if record.version == HELD_BACK:
            raise self._fenced(f"this store was restored to publication {record.generation}")
        if found.info.version != record.version:
            self._version_to_replace(record, record.manifest, found)
            return None
        if manifest_format.token_of(found.data) != manifest_format.token_of(record.manifest):
            # A later one of this node, truncated.
            return None
        return database_manifest.decode(found.data, self._key)

    # What is known

    def _record(self) -> StatusRow:
        with self._subject.database.read() as snapshot:
            record = capture.record_of(snapshot)
        assert record is not None
        return record

    def _resolve_intent(self, record: StatusRow) -> StatusRow:
        """Return the record after resolving the last intent."""
        intent = record.intent
        if intent is None or intent.publication is None:
            return record
        found = self._fetch()
        if found is not None and manifest_format.token_of(found.data) == intent.token:
            try:
                manifest = database_manifest.decode(found.data, self._key)
            except CorruptData:
                # This node's own, truncated: the next one replaces it, also if that takes several
                # tries, and its own intent has replaced this one.
                self._transact(lambda txn: txn.execute(SQL.replaces, (found.info.version,)))
                return self._record()
            if manifest.last == intent.publication:
                self._recorded(intent, found.data, found.info.version)
                return self._record()
        return record

    def _adopted(self, record: StatusRow) -> StatusRow:
        """Return the record of a database that is published for the first time.

        After a take-over at a point without such a database, the name is free.
        """
        if record.manifest is not None or record.version is not None:
            return record
        found = self._fetch()
        if found is not None and database_manifest.decode(found.data, self._key).last.absent:
            return record._replace(manifest=found.data, version=found.info.version)
        return record

    def _next(self, record: StatusRow) -> tuple[int, int]:
        """Return the generation of the next publication, and that of its predecessor."""
        if record.manifest is None:
            return 1, 0
        newest = database_manifest.decode(record.manifest, self._key).newest
        return newest + 1, record.generation

    def _manifest(
        self, record: StatusRow, publication: Publication
    ) -> tuple[DatabaseManifest, dict[str, bytes]]:
        subject = self._subject
        token = uuid.uuid4().hex
        if record.manifest is None:
            manifest = DatabaseManifest(
                database_manifest.FORMAT, token, subject.name, subject.model, 0, record.node, 0
            )
        else:
            manifest = database_manifest.decode(record.manifest, self._key)
        manifest = msgspec.structs.replace(
            manifest, token=token, migrations=subject.migrations, node=record.node
        )
        return database_manifest.add(manifest, publication)

    # Objects

    def _upload_all(
        self, generation: int, sealed: list[SealedTable], pages: dict[str, bytes]
    ) -> None:
        """Upload several objects in parallel: each is small, and most of the time is latency."""
        wanted = [upload_of(key, data) for key, data in pages.items()]
        for file, path in sealed:
            if path is not None:
                key = database_manifest.file_key(self._subject.name, generation, file)
                wanted.append(upload_of_file(key, path, file.size_bytes, file.sha256))
        with ThreadPoolExecutor(limits.ARCHIVE_CONCURRENCY) as pool:
            list(pool.map(lambda each: put_once(self._objects, each, self._retries), wanted))

    def _fetch(self) -> Object | None:
        def get() -> Object | None:
            try:
                return self._objects.get(self._key)
            except NotFound:
                return None

        return self._retries.run(get)

    def _replace(self, record: StatusRow, data: bytes) -> str:
        """Replace the manifest that this node wrote before; return the new version."""
        version = record.version

        def put() -> str:
            nonlocal version
            try:
                if version is None:
                    return self._objects.put(self._key, data, if_absent=True).version
                return self._objects.put(self._key, data, if_version=version).version
            except (AlreadyExists, PreconditionFailed):
                found = self._fetch()
                if found is not None and found.data == data:
                    # An earlier try succeeded, and its response was lost.
                    return found.info.version
                version = self._version_to_replace(record, data, found)
                raise

        try:
            return self._retries.run(lambda: self._again(put))
        except (PreconditionFailed, AlreadyExists) as error:
            raise self._fenced("the manifest changed during the replacement") from error

    def _again(self, put: Callable[[], str]) -> str:
        """Retry with the found version, if that one may be replaced."""
        try:
            return put()
        except (PreconditionFailed, AlreadyExists):
            return put()

    def _version_to_replace(self, record: StatusRow, data: bytes, found: Object | None) -> str:
        """Return the version of a conflicting manifest if it is an older one of this node.

        Raises PublisherFenced if another node wrote it.
        """
        if found is None:
            raise _ManifestGone
        if manifest_format.token_of(found.data) == manifest_format.token_of(data):
            return found.info.version
        other = database_manifest.decode(found.data, self._key)
        if database_manifest.same_step(other.last, self._own(record, other.newest)):
            # The object store returned to an older manifest of this node.
            return found.info.version
        if record.version == HELD_BACK:
            raise PublisherFenced(
                f"{self._subject.name!r} was restored to publication {record.generation}, but "
                f"{other.newest} is published",
                hint="To continue from there: `fourfold bootstrap --at POINT --take-over`.",
            )
        raise self._fenced(f"publication {other.newest} was written by {other.node!r}")

    def _own(self, record: StatusRow, generation: int) -> Publication | None:
        """Return a publication as this node knows it; older ones are in pages."""
        if record.manifest is None:
            return None
        manifest = database_manifest.decode(record.manifest, self._key)
        held = manifest.publications
        for page in manifest.pages:
            if page.first <= generation <= page.last:
                held = read_page(self._objects, manifest.name, page, self._retries)
        return next((entry for entry in held if entry.generation == generation), None)

    def _fenced(self, why: str) -> PublisherFenced:
        return PublisherFenced(f"another node publishes {self._subject.name!r}: {why}")

    # The record of it

    def _recorded(self, intent: Intent, data: bytes, version: str) -> None:
        def work(txn: Transaction) -> None:
            state = _text(intent.state)
            assert intent.publication is not None
            txn.execute(SQL.record, (intent.publication.generation, version, data, state))
            txn.execute(SQL.forget_changes, (intent.change,))

        self._transact(work)
        if failpoints.armed:
            failpoints.hit("archive.manifest.recorded")

    def _transact(self, work: Callable[[Transaction], None]) -> None:
        self._subject.database.transact(work)


def read_page(
    objects: ObjectStore, name: str, page: ManifestPage, retries: Retries
) -> tuple[Publication, ...]:
    """Read the publications of a page."""
    key = database_manifest.page_key(name, page)
    return database_manifest.decode_page(get_checked(objects, key, page.sha256, retries), page, key)


class ValueUploads:
    """Uploads values, each once."""

    def __init__(self, objects: ObjectStore, retries: Retries) -> None:
        self._objects = objects
        self._retries = retries
        self.count = 0
        self.bytes = 0

    def carry(self, digest: str, chunks: Callable[[], Iterator[bytes]], size: int | None) -> None:
        key = database_manifest.blob_key(digest)
        found = self._retries.run(lambda: self._objects.head(key))
        if size is None:
            size = sum(map(len, chunks()))
        if found is not None and found.size == size:
            age = datetime.now(UTC) - found.modified
            if age.total_seconds() < limits.PUBLISH_ORPHAN_S / 2:
                return
            # The object may be about to be deleted as unreferenced: put the same bytes once more,
            # which makes it new, and restores it if it is already gone.
            self._retries.run(lambda: self._objects.upload(key, chunks()))
            return
        # Another database of this store may upload the same value concurrently.
        if put_once(self._objects, Upload(key, chunks, size, digest), self._retries):
            self.count += 1
            self.bytes += size


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
