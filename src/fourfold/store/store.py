"""The store: one folder with settings, databases and an object store.

The first URL of an object store is written into `fourfold.toml`, and a different one is refused:
published records are trimmed from the log, so a store must find its objects again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fourfold import html, limits
from fourfold.archive.restore_points import PointInfo
from fourfold.arguments import check_arguments, check_callable
from fourfold.content.namespaces import MEMORY_DID
from fourfold.durability import sync_file
from fourfold.errors import Closed, InvalidInput, NotFound, ReadOnly, Refused, StorageError
from fourfold.kernel import (
    Database,
    GroupLimits,
    Health,
    MetricsReading,
    Migration,
    Options,
    Profile,
    Thresholds,
    profiles,
    prometheus_text,
    sync_folder,
)
from fourfold.kernel import (
    Sequence as Counter,
)
from fourfold.models import documents
from fourfold.models.documents import Documents, Space
from fourfold.models.documents.histories import check_history
from fourfold.models.documents.memory import Memory, did_of_memory, open_memory
from fourfold.models.documents.model import MODEL as DOCUMENTS
from fourfold.models.graphs import Graphs
from fourfold.models.graphs.model import MODEL as GRAPHS
from fourfold.models.model import FileKind, Model, StoreContext, model_of_database
from fourfold.models.problem import to_problems
from fourfold.models.sessions import Sessions
from fourfold.models.sessions.model import MODEL as SESSIONS
from fourfold.models.streams import Streams
from fourfold.models.streams.archive.opener import policy_of
from fourfold.models.streams.model import MODEL as STREAMS
from fourfold.objects import ObjectStore, open_objects
from fourfold.settings import FILE_NAME, Settings, fresh_file, load
from fourfold.sql_result import Result
from fourfold.store import backup, layout, verification
from fourfold.store.backup import BackupReport
from fourfold.store.database_files import DatabaseFile, locate
from fourfold.store.model_metrics import ModelMetrics, read_models
from fourfold.store.replica_record import check_not_replica
from fourfold.store.verification import Progress

if TYPE_CHECKING:
    from fourfold.archive.subject import DatabaseStatus
    from fourfold.models.streams.archive import Archive, Policy
    from fourfold.store.publish import PublishReport
    from fourfold.wire.sql import SqlTable
    from fourfold.wire.store import Activity, ArchiveTableRow, StoreOverview


def options_of(settings: Settings) -> Options:
    """Return the options of databases that the settings of a store contain."""
    kernel = settings.kernel
    return Options(
        readers_max=kernel.readers_max,
        transaction_deadline_s=kernel.transaction_deadline_s,
        slow_transaction_ms=kernel.slow_transaction_ms,
        checkpoint_bytes=kernel.checkpoint_bytes,
        group=GroupLimits(
            group_requests_max=kernel.group_requests_max,
            group_bytes_max=kernel.group_bytes_max,
            queue_requests_max=kernel.queue_requests_max,
            queue_bytes_max=kernel.queue_bytes_max,
            placement=kernel.commit_placement,
        ),
        thresholds=Thresholds(
            wal_degraded_bytes=settings.health.wal_degraded_bytes,
            wal_failed_bytes=settings.health.wal_failed_bytes,
        ),
    )


T = TypeVar("T")
MEMORY = ":memory:"


@check_arguments(unchecked={"space"})
class Store:
    """A folder of application state.

    Use `fourfold.open`, and close it or use it in a `with` block.
    """

    def __init__(self, root: Path, settings: Settings, *, mode: str, temporary: bool) -> None:
        self.root = root
        self.settings = settings
        self.mode = mode
        self._temporary = temporary
        self._databases: dict[Path, Database] = {}
        self._lent: dict[Path, int] = {}
        """Number of users of each database that is open temporarily."""
        self._retained: set[Path] = set()
        """Databases that stay open until `release` or `close`."""
        self._collections: dict[str, tuple[Model[Any], Any]] = {}
        self._objects: ObjectStore | None = None
        self._context = StoreContext(
            root,
            settings,
            mode == "rw",
            lambda: self.objects,
            self.sql,
            before_collect=self._publish_positions,
        )
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.publishing = threading.Lock()
        """Serializes publishers; two at once would fence each other."""
        self._closed = False
        self._model_metrics = ModelMetrics()

    def database(
        self,
        name: str,
        *,
        migrations: Sequence[Migration] = (),
        sequences: Sequence[Counter] = (),
        profile: Profile = profiles.PLAIN,
    ) -> Database:
        """Open a database of your own in this store; repeated calls return the same object."""
        return self._open_database(
            layout.database_path(self.root, name), profile, migrations, sequences
        )

    def space(self, did: str, history: str | None = None) -> Space:
        """Open the space of documents with this DID, and create it if needed.

        `history` is the kind of history of a new space: "revisions" (the default) or "facts". An
        existing space keeps its own; a different value is refused.
        """
        location = DOCUMENTS.location
        documents.check_did(did)
        check_history(history)
        name = location.name(did)
        space: Space | None = self._opened(name)
        if space is None:
            kind = DOCUMENTS.kind_in(location.path(self.root, name))
            if kind is None:
                kind = DOCUMENTS.kind(history or documents.DEFAULT_HISTORY)
            _check_history(did, kind.name, history)
            space = self._open(DOCUMENTS, name, kind)
        _check_history(did, space.history_kind.name, history)
        return space

    @cached_property
    def documents(self) -> Documents:
        """Spaces of this store."""
        return Documents(self.root, self.space)

    def memory(self, name: str) -> Memory:
        """Open the memory with this name, and create it if needed.

        memory = store.memory("assistant")
        memory.put(("users", "ada"), "food", {"likes": "leek soup"})
        memory.search("soup")

        Raises:
            NotFound: There is none, and the store is open for reading.
        """
        did = did_of_memory(name)
        if self.mode == "r" and not self.has_space(did):
            raise NotFound(f"unknown memory {name!r}", hint="Names: store.memories().")
        return open_memory(self.space(did))

    def memories(self) -> list[str]:
        """Return the names of all memories in this store, sorted."""
        return [
            did.removeprefix(MEMORY_DID) for did in self.documents if did.startswith(MEMORY_DID)
        ]

    def has_space(self, did: str) -> bool:
        """Return True if the store has a space with this DID."""
        documents.check_did(did)
        location = DOCUMENTS.location
        return location.path(self.root, location.name(did)).exists()

    def space_file(self, did: str) -> tuple[int, int]:
        """Return the bytes of a space on disk, and the time of its last change in nanoseconds.

        The space is not opened. Both are 0 if there is none.
        """
        location = DOCUMENTS.location
        path = str(location.path(self.root, location.name(did)))
        size = changed_ns = 0
        for name in (path, f"{path}-wal"):
            with suppress(FileNotFoundError):
                status = Path(name).stat()
                size += status.st_size
                # A reader creates an empty log.
                changed_ns = max(changed_ns, status.st_mtime_ns if status.st_size else 0)
        return size, changed_ns

    def spaces(self) -> list[str]:
        """Return the DIDs of all spaces in this store, sorted."""
        return list(self.documents)

    @property
    def sessions(self) -> Sessions:
        """Sessions of this store: event logs, views, heads and payloads."""
        return self._open(SESSIONS)

    @property
    def graphs(self) -> Graphs:
        """Graphs of all apps of this store."""
        return self._open(GRAPHS)

    @property
    def streams(self) -> Streams:
        """Streams of this store."""
        return self._open(STREAMS)

    @property
    def archive(self) -> Archive:
        """Archive that seals the streams into segments and publishes them."""
        return self.streams.archive

    def _publish_positions(self) -> None:
        from fourfold.store import publish as publish_module  # noqa: PLC0415 - few stores publish

        publish_module.publish_positions(self)

    @property
    def archive_policy(self) -> Policy:
        """Policy for sealing, indexing and compacting streams, from the settings."""
        return policy_of(self.settings)

    def open(self, name: str) -> Any:
        """Open the collection over a database of any model, and create it if needed.

        The name is that of the database, such as `sessions` or `spaces/<did>`.
        """
        return self._open(model_of_database(name), name)

    def _open(self, model: Model[T], name: str = "", kind: FileKind | None = None) -> T:
        """Open the collection over the database `name`, or over the only one, once."""
        name = name or model.location.folder
        collection: T | None = self._opened(name)
        if collection is not None:
            return collection
        with self._opening:
            collection = self._opened(name)
            if collection is None:
                file = locate(self, model, name, kind)
                database = self._open_file(file)
                collection = model.open(database, file.kind, self._context)
                with self._lock:
                    self._refuse_if_closed()
                    self._collections[name] = (model, collection)
            return collection

    def _opened(self, name: str) -> Any:
        with self._lock:
            self._refuse_if_closed()
            entry = self._collections.get(name)
        return None if entry is None else entry[1]

    @property
    def objects(self) -> ObjectStore:
        """Object store of the setting `objects.url`; by default a folder of this store."""
        with self._lock:
            self._refuse_if_closed()
            if self._objects is None:
                self._objects = objects_of(self.root, self.settings)
            return self._objects

    def health(self) -> dict[str, Health]:
        """Return the health of every open database, by its path in the store."""
        return {str(path.relative_to(self.root)): db.health() for path, db in self._open_ones()}

    def metrics_text(self) -> str:
        """Return the metrics of every open database in the Prometheus exposition format."""
        return prometheus_text(db.metrics() for _, db in self._open_ones())

    def metrics_by_model(self) -> list[MetricsReading]:
        """Return the metrics of each model: of its open databases, and what closed ones counted."""
        with self._lock:
            closing, closed = self._model_metrics.parts()
            databases = [*self._databases.values(), *closing]
        return read_models(databases, closed)

    def backup(
        self,
        destination: str | Path,
        progress: Progress | None = None,
        *,
        one_point: bool = False,
    ) -> BackupReport:
        """Write a verified copy of the whole store to the new folder `destination`.

        The store may be in use.

        Args:
            destination: A new folder.
            progress: Called with the name of each part, its number and the total.
            one_point: Copy all databases as of one time, which the report has. Writers may wait for
                some milliseconds, and the log of each database grows until it is copied.

        Raises:
            LockTimeout: With `one_point`, transactions of writers last too long.
        """
        self._refuse_if_closed()
        check_callable(progress, "progress")
        return backup.back_up(self.root, Path(destination), progress, one_point=one_point)

    def verify(
        self, progress: Progress | None = None, *, objects: bool = False
    ) -> verification.VerifyReport:
        """Verify every database and every content-addressed file.

        With `objects`, published objects are verified too.
        """
        self._refuse_if_closed()
        check_callable(progress, "progress")
        report = verification.verify(self.root, progress)
        from fourfold.models.streams.archive.verify import (  # noqa: PLC0415 - rare
            object_problems,
            unclaimed_problems,
        )

        if objects and STREAMS.location.names(self.root):
            with self.streams.database.read(deadline_s=float("inf")) as snapshot:
                messages = [*object_problems(snapshot, self.objects, progress=progress)]
            messages += unclaimed_problems(self.streams.database, self.objects)
            file_problems = tuple(to_problems(messages))
            report = report.with_(
                verification.CheckResult("objects", "published streams", file_problems)
            )
        if objects:
            from fourfold.store import table_archive  # noqa: PLC0415 - few stores publish

            for name, wrong in table_archive.object_problems(self, progress):
                what, problems = "published database", tuple(to_problems(wrong))
                report = report.with_(verification.CheckResult(f"objects/{name}", what, problems))
        return report

    def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        at: datetime | int | str | None = None,
        branch: str = "",
        model: str | None = None,
        space: str | None = None,
        timeout_s: float = 10.0,
        max_rows: int = 100_000,
        max_bytes: int = 64 * limits.MIB,
    ) -> Result:
        """Run a SELECT over the tables of all models, and return its rows.

            store.sql("select id, document ->> 'title' from documents_state where space = ?", [did])
            store.sql("select count(*) from sessions_messages", at=datetime(2026, 3, 1, tzinfo=UTC))

        The query sees one state of each database, which `result.cut` names, and writes nothing.
        `sql_tables` lists the tables.

        Args:
            query: One SELECT, in the dialect of SQLite.
            params: Values of `?` or `:name` in it.
            at: As of a time or the id of a restore point; a seq if the query reads one log.
            branch: Branch of `documents_state` and `documents_history`; "*" for every branch.
            model: Model whose tables can be named without prefix, such as `state`.
            space: Only this space; other models have no tables then.
            timeout_s: Time after which the query is stopped.
            max_rows: Rows after which the result is truncated.
            max_bytes: Bytes of values after which the result is truncated.

        Raises:
            InvalidInput: The query is not valid.
            NotFound: A table, a space or a branch is unknown.
            Refused: The query does something else than to read tables.
            DeadlineExceeded: It took longer than `timeout_s`.
        """
        from fourfold.query import engine  # noqa: PLC0415 - few processes run queries

        self._refuse_if_closed()
        options = engine.QueryOptions(
            at=self.point_of(at),
            branch=branch,
            model=model,
            space=space,
            timeout_s=timeout_s,
            max_rows=max_rows,
            max_bytes=max_bytes,
        )
        return engine.run_query(self.root, query, params, options)

    def sql_tables(self) -> list[SqlTable]:
        """Return the tables that `sql` can read, with their columns."""
        from fourfold.query import engine  # noqa: PLC0415 - few processes run queries

        return list(engine.describe_tables())

    def overview(self, at: datetime | str | None = None) -> StoreOverview:
        """Return what each model of the store contains: counts, sizes and health.

        Args:
            at: As of a time, or of the id of a restore point, without sizes; by default now.

        Raises:
            NotFound: There is no such restore point.
        """
        from fourfold.store import overview  # noqa: PLC0415 - it imports this module

        self._refuse_if_closed()
        return overview.summarize(overview.describe(self.root, self._time_of(at)))

    def activity(self, at: datetime | str | None = None) -> Activity:
        """Return the newest entries of all models, and their number by the minute of an hour.

        Args:
            at: What happened at or before a time, or the id of a restore point; by default now.

        Raises:
            NotFound: There is no such restore point.
        """
        from fourfold.store import activity  # noqa: PLC0415 - it imports this module

        self._refuse_if_closed()
        time = self._time_of(at)
        until_ms = None if time is None else int(time.timestamp() * 1_000)
        # Connections that only read lock no database.
        with open_store(self.root, mode="r") as store:
            return activity.read_activity(store, time_ns() // 1_000_000, until_ms)

    def _time_of(self, at: datetime | str | None) -> datetime | None:
        time = self.point_of(at)
        if isinstance(time, int) or (time is not None and time.tzinfo is None):
            raise InvalidInput(
                f"at must be a datetime with a time zone, or a restore point, got {at!r:.100}"
            )
        return time

    def point_of(self, at: datetime | int | str | None) -> datetime | int | None:
        """Return a point in history for `sql`; a text is the id of a restore point, a time.

        Raises:
            NotFound: There is no such restore point.
        """
        if not isinstance(at, str):
            return at
        return self.point(at).time

    def point(self, point_id: str) -> PointInfo:
        """Return a restore point by its id.

        Raises:
            NotFound: There is no such restore point.
        """
        for point in self.points():
            if point.id == point_id:
                return point
        raise NotFound(
            f"unknown restore point {point_id!r:.100}",
            hint="Pass a datetime, or an id of store.points().",
        )

    def publish(
        self, models: Sequence[str] | None = None, progress: Progress | None = None
    ) -> PublishReport:
        """Publish new data of every space, the sessions, the graphs and the streams.

        Adds a restore point. `models` selects some of the models.
        """
        from fourfold.store import publish as publish_module  # noqa: PLC0415 - few stores publish

        self._refuse_if_closed()
        check_callable(progress, "progress")
        return publish_module.publish(self, models, progress)

    def published(self, models: Sequence[str] | None = None) -> list[DatabaseStatus]:
        """Return the publish status of each database; newer data exists only on this disk."""
        from fourfold.store import publish as publish_module  # noqa: PLC0415 - few stores publish

        self._refuse_if_closed()
        return publish_module.standings(self, models)

    def points(self) -> list[PointInfo]:
        """Return the restore points of this store, oldest first."""
        from fourfold.store import table_archive  # noqa: PLC0415 - few stores publish

        return table_archive.list_points(self)

    def archive_tables(self) -> list[ArchiveTableRow]:
        """Return the Delta tables of the archive, by name: versions, files, rows and bytes."""
        from fourfold.store import table_archive  # noqa: PLC0415 - few stores publish

        return table_archive.list_tables(self)

    def release(self, did: str) -> None:
        """Close a space, to limit open files; handles on it become unusable.

        While a database is lent, it is closed at the end of that.
        """
        with self._lock:
            self._refuse_if_closed()
            name = DOCUMENTS.location.name(did)
            path = DOCUMENTS.location.path(self.root, name)
            opened = self._collections.pop(name, None)
            self._retained.discard(path)
            database = None if path in self._lent else self._databases.pop(path, None)
            if database is not None:
                self._model_metrics.begin_close(database)
        if opened is not None:
            model, space = opened
            model.close(space)
        if database is not None:
            try:
                database.close()
            finally:
                with self._lock:
                    self._model_metrics.end_close(database)

    @contextmanager
    def lent(self, file: DatabaseFile) -> Iterator[Database]:
        """Open a database temporarily.

        It is closed again if it was closed before and no other thread has opened it meanwhile, so
        that other processes may write it.
        """
        path = file.path
        try:
            yield self._open_file(file, lent=True)
        finally:
            with self._lock:
                count = self._lent.pop(path, 0) - 1
                if count > 0:
                    self._lent[path] = count
                elif path in self._databases and path not in self._retained:
                    database = self._databases.pop(path)
                    self._model_metrics.begin_close(database)
                    try:
                        database.close()
                    finally:
                        self._model_metrics.end_close(database)

    def close(self) -> None:
        """Close every database; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            collections = list(self._collections.values())
        for model, collection in collections:
            # Without the lock: subscribers consume what is there, and may call the store.
            model.close(collection)
        with self._lock:
            for database in self._databases.values():
                database.close()
            self._databases.clear()
            self._collections.clear()
            if self._objects is not None:
                self._objects.close()
            if self._temporary:
                shutil.rmtree(self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.root} {'closed' if self._closed else self.mode}>"

    def _repr_html_(self) -> str:
        mode = "closed" if self._closed else self.mode
        return show_store(f"Store {self.root}", mode, list(self.documents))

    def _open_file(self, file: DatabaseFile, *, lent: bool = False) -> Database:
        kind = file.kind
        return self._open_database(
            file.path, file.profile, kind.migrations, kind.sequences, lent=lent
        )

    def _open_database(
        self,
        path: Path,
        profile: Profile,
        migrations: Sequence[Migration],
        sequences: Sequence[Counter],
        *,
        lent: bool = False,
    ) -> Database:
        with self._lock:
            self._refuse_if_closed()
            if path not in self._databases:
                self._databases[path] = Database.open(
                    path,
                    profile=profile.with_(busy_timeout_ms=self.settings.kernel.busy_timeout_ms),
                    migrations=migrations,
                    sequences=sequences,
                    mode=self.mode,
                    options=options_of(self.settings),
                    migration_backups=layout.migration_backups(self.root, path),
                )
            if lent:
                self._lent[path] = self._lent.get(path, 0) + 1
            else:
                self._retained.add(path)
            return self._databases[path]

    def _open_ones(self) -> list[tuple[Path, Database]]:
        with self._lock:
            return sorted(self._databases.items())

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed(f"{self.root} is closed")


def show_store(caption: str, mode: str, dids: Sequence[str]) -> str:
    """Return a store with its first spaces as HTML."""
    table = html.table(("space",), ((did,) for did in dids[: html.ROWS_MAX]))
    return html.fragment(html.facts({"mode": mode, "spaces": len(dids)}), table, caption=caption)


def open_store(
    root: str | Path, *, mode: str = "rw", settings: Mapping[str, object] | None = None
) -> Store:
    """Open the store in the folder `root`, and create it if needed.

    `":memory:"` opens a private store in memory that is deleted when it is closed. `mode="r"` opens
    an existing store for reading, even while another process writes. `settings` override the file
    and the environment, by dotted name.
    """
    if not isinstance(root, str | os.PathLike):
        raise InvalidInput(
            f"root must be a path, got {root!r:.80}", hint="Pass the folder of the store."
        )
    if mode not in ("r", "rw"):
        raise InvalidInput(f"mode must be 'r' or 'rw', got {mode!r:.80}")
    temporary = str(root) == MEMORY
    if temporary:
        folder = _memory_folder()
    else:
        folder = Path(root).absolute()
        _prepare(folder, create=mode == "rw")
        if mode == "rw":
            check_not_replica(folder)
    try:
        if temporary:
            _prepare(folder, create=True)
        loaded = load(folder, environ=os.environ, arguments=settings)
    except BaseException:
        if temporary:
            shutil.rmtree(folder)
        raise
    return Store(folder, loaded, mode=mode, temporary=temporary)


def objects_of(root: Path, settings: Settings) -> ObjectStore:
    """Open the object store of the store in `root`, by its settings."""
    return open_objects(
        objects_url(root, settings),
        timeout_s=settings.objects.timeout_s,
        retries_max=settings.objects.retries_max,
    )


def objects_url(root: Path, settings: Settings) -> str:
    """Return the URL of the object store; a relative path is relative to the store's folder."""
    url = settings.objects.url
    return url if ":" in url else str(root / url)


def _memory_folder() -> Path:
    """Create a folder in memory if the machine supports it, so that the same code applies."""
    shared = Path("/dev/shm")  # noqa: S108
    usable = shared.is_dir() and os.access(shared, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="fourfold-", dir=shared if usable else None))


def _prepare(root: Path, *, create: bool) -> None:
    toml = root / FILE_NAME
    if toml.exists():
        return
    if not create:
        raise NotFound(
            f"{root}: is not a Fourfold store (it has no {FILE_NAME})",
            hint="Check the path, or create a store by opening it with mode='rw'.",
        )
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(not layout.is_companion(p) and not layout.is_unfinished(p) for p in root.iterdir()):
            raise InvalidInput(
                f"{root}: is not empty and not a Fourfold store",
                hint="Choose an empty or new folder.",
            )
        partial = root / f".{FILE_NAME}.{os.getpid()}.partial"
        with partial.open("w", encoding="utf-8") as file:
            file.write(fresh_file())
            file.flush()
            sync_file(file.fileno())
        partial.chmod(0o600)
        partial.rename(toml)
        sync_folder(root)
    except PermissionError as error:
        raise ReadOnly(f"{root}: no permission to create a store there") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(f"{root}: is a file, not a folder") from error
    except OSError as error:
        raise StorageError(f"{root}: cannot be created: {error.strerror}") from error


def _check_history(did: str, actual: str, expected: str | None) -> None:
    if expected is not None and expected != actual:
        raise Refused(
            f"the space {did} has the history {actual!r}, got {expected!r}",
            hint="Omit `history`, or copy the space into a new one with `carry`.",
        )


_SETTING = "objects.url"
_DEFAULT_LINE = "#url = "


def remember(root: Path, objects: str | None) -> None:
    """Write the URL of the object store into the settings file, unless it is set."""
    if objects is None:
        return
    # A folder on the command line is relative to the current folder.
    url = objects if ":" in objects else str(Path(objects).absolute())
    settings = load(root, environ=os.environ)
    known = settings.objects.url
    if url in {known, str(root.absolute() / known)}:
        return
    file = root / FILE_NAME
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.startswith(_DEFAULT_LINE)]
    if settings.source(_SETTING).layer != "default" or len(numbers) != 1:
        raise Refused(
            f"{root}: has its objects at {known!r} ({settings.source(_SETTING)}), not at {url!r}",
            hint=f"Change {_SETTING} in {file}, once the objects are there.",
        )
    lines[numbers[0]] = f"url = {json.dumps(url)}\n"
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text("".join(lines), encoding="utf-8")
    partial.chmod(0o600)
    partial.replace(file)
