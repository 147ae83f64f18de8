"""The catalog of an archive: which databases and points it has, and who publishes.

    catalog/_delta_log/...        a Delta table; a commit of it is a publication, and comes last
    catalog/...parquet

The catalog is a changelog. Each commit has one row about itself (kind `point`, or `tables` for
maintenance): its node and epoch, a token, and the version of every archive table at that time; and
a row of kind `database` for each database that changed. The newest row of a name is valid. The
version of the catalog after a commit is the number of the point.

A publisher commits only after the commit that it knows as the newest, so of two publishers one
succeeds. Rows of archive tables that no commit names do not count.

A commit may remove the oldest points: it replaces the files by one without their rows. A database
keeps the row that the oldest remaining point reads, and all newer ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from fourfold.archive.delta_actions import EMPTY, AddFile, Snapshot, table_actions
from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.archive.delta_schema import file_statistics
from fourfold.archive.parquet import arrow
from fourfold.archive.row_files import write_options
from fourfold.archive.table_state import PointInterval
from fourfold.archive.uploads import get_checked, put_once, upload_of
from fourfold.errors import CorruptData, FutureFormat, HistoryTruncated, NotFound
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

CATALOG: Final = "catalog"
FORMAT: Final = 2
CATALOG_FILES_MAX: Final = 100
"""Files of the catalog at which a publication compacts it, and writes a checkpoint."""
POINT_ROW, TABLES_ROW, DATABASE_ROW = "point", "tables", "database"
POSITIONS: Final = "positions"
"""Model of the row with the positions of streams, which have manifests of their own."""
_FORMAT_KEY = "fourfold.format"
_HISTORY = "history-"


class DatabaseRow(msgspec.Struct, frozen=True):
    """A database as of a commit."""

    version: int
    name: str
    model: str
    file_id: str
    base: int
    """First point whose rows count."""
    point: int
    """Last point whose rows count; less than `version` if a take-over chose an older state."""
    token: str
    position: int = 0
    migrations: int = 0
    absent: bool = False
    rows: int = 0
    bytes: int = 0
    node: str = ""
    epoch: int = 0

    @property
    def interval(self) -> PointInterval:
        """Rows that count."""
        return PointInterval(self.file_id, self.base, self.point)

    @property
    def is_positions(self) -> bool:
        """True if this is not a database, but the positions of streams at the point."""
        return self.model == POSITIONS

    @property
    def is_older(self) -> bool:
        """True if a take-over chose an older state: the next publication has all rows."""
        return self.point < self.version


class CommitRow(msgspec.Struct, frozen=True):
    """A commit of the catalog: a point, or maintenance of the tables."""

    version: int
    kind: str
    token: str
    node: str
    epoch: int
    tables: dict[str, int] = {}
    """Version of every archive table; in memory only of the newest commit."""
    id: str = ""
    at: str = ""
    started_ms: int = 0
    restored: str | None = None
    databases: int = 0
    streams: int = 0


class CatalogState:
    """The rows of the catalog at its newest version."""

    def __init__(self, snapshot: Snapshot = EMPTY) -> None:
        self.snapshot = snapshot
        self.commits: list[CommitRow] = []
        self.rows: dict[str, list[DatabaseRow]] = {}
        """Rows of each database, oldest first."""

    @property
    def head(self) -> CommitRow | None:
        """The newest commit."""
        return self.commits[-1] if self.commits else None

    @property
    def version(self) -> int:
        """Version of the catalog; -1 if there is none."""
        return self.snapshot.version

    @property
    def points(self) -> list[CommitRow]:
        """Commits that are points, oldest first."""
        return [commit for commit in self.commits if commit.kind == POINT_ROW]

    @property
    def tables(self) -> Mapping[str, int]:
        """Version of every archive table."""
        return {} if self.head is None else self.head.tables

    def find(self, name: str, at: int | None = None) -> DatabaseRow | None:
        """Return the row of a database at a version, by default the newest."""
        rows = self.rows.get(name, [])
        for row in reversed(rows):
            if at is None or row.version <= at:
                return row
        return None

    def names(self) -> list[str]:
        """Return the names of all databases, sorted."""
        return sorted(self.rows)

    def kept_from(self, oldest: int) -> CatalogState:
        """Return the rows that commits from a version on need."""
        state = CatalogState(self.snapshot)
        state.commits = [commit for commit in self.commits if commit.version >= oldest]
        for name, rows in self.rows.items():
            kept = [row for row, after in _with_next(rows) if after is None or after > oldest]
            if kept[0].absent and kept[0].version <= oldest:
                del kept[0]
            if kept:
                state.rows[name] = kept
        return state

    def add(self, commits: Iterable[CommitRow], rows: Iterable[DatabaseRow]) -> None:
        """Add rows of newer commits."""
        known = {commit.version: commit for commit in (*self.commits, *commits)}
        ordered = [known[version] for version in sorted(known)]
        older = (msgspec.structs.replace(commit, tables={}) for commit in ordered[:-1])
        self.commits = [*older, *ordered[-1:]]
        for row in sorted(rows, key=lambda row: row.version):
            history = self.rows.setdefault(row.name, [])
            if not history or history[-1].version < row.version:
                history.append(row)


def _with_next(rows: Sequence[DatabaseRow]) -> Iterator[tuple[DatabaseRow, int | None]]:
    """Yield the rows of a database, each with the version of the next one."""
    versions = [row.version for row in rows[1:]]
    yield from zip(rows, [*versions, None], strict=True)


class Catalog:
    """The catalog in an object store, read once and then kept up to date."""

    def __init__(self, objects: ObjectStore, retries: Retries | None = None) -> None:
        self._objects = objects
        self._retries = retries or Retries()
        self._log = DeltaLog(objects, CATALOG, self._retries)
        self.state = CatalogState()

    @property
    def exists(self) -> bool:
        """True if the archive has a catalog, as of the last `refresh`."""
        return self.state.snapshot.exists

    def refresh(self) -> CatalogState:
        """Read newer commits and return the state; read everything if the archive was replaced."""
        if not self.state.snapshot.exists or not self._is_same():
            self.state = self._loaded(self._log.snapshot())
            return self.state
        newest = self._log.update(self.state.snapshot)
        if newest.version != self.state.version:
            self._extend(newest)
        return self.state

    def _is_same(self) -> bool:
        """Return True if the newest known commit is still there, and the same."""
        head = self.state.head
        try:
            commit = self._log.read_commit(self.state.version)
        except HistoryTruncated:
            return False
        except NotFound:
            return False
        return head is None or head.version != commit.version or _token(commit.info) == head.token

    def has_commit(self, version: int) -> bool:
        """Return True if the catalog has a commit with this version now."""
        try:
            self._log.read_commit(version)
        except NotFound:
            return False
        return True

    def _loaded(self, snapshot: Snapshot) -> CatalogState:
        state = CatalogState(snapshot)
        if snapshot.exists:
            check_format(snapshot)
            state.add(*self._read(snapshot.files.values()))
        return state

    def _extend(self, newest: Snapshot) -> None:
        known = self.state.snapshot.files
        if any(path not in newest.files for path in known):
            self.state = self._loaded(newest)
            return
        new = [file for path, file in newest.files.items() if path not in known]
        self.state.add(*self._read(new))
        self.state.snapshot = newest

    def _read(self, files: Iterable[AddFile]) -> tuple[list[CommitRow], list[DatabaseRow]]:
        commits: list[CommitRow] = []
        rows: list[DatabaseRow] = []
        for file in files:
            for row in _decode(self._fetch(file), file.path):
                (commits if isinstance(row, CommitRow) else rows).append(row)  # type: ignore[arg-type]
        return commits, rows

    # Writing

    def create(self) -> None:
        """Create the catalog, unless another process has."""
        actions = table_actions(_schema(), name=CATALOG, configuration={_FORMAT_KEY: str(FORMAT)})
        with contextlib.suppress(CommitConflict):
            self._log.commit(actions, 0, {"operation": "CREATE"})
        self.state = self._loaded(self._log.snapshot())

    def commit(
        self, head: CommitRow, rows: Sequence[DatabaseRow], *, oldest: int | None = None
    ) -> None:
        """Commit rows as the version of `head`; with `oldest`, remove the points before it.

        Raises:
            CommitConflict: there is another commit with that version.
        """
        state, now_ms = self.state, time.time_ns() // 1_000_000
        kept = state if oldest is None else state.kept_from(oldest)
        full = oldest is not None or len(state.snapshot.files) + 1 >= CATALOG_FILES_MAX
        actions: list[Any] = [self._upload(_table([head, *rows]), f"{head.version:012d}-")]
        if full:
            actions += self._compacted(kept, now_ms)
        info = {
            "operation": "WRITE",
            "node": head.node,
            "epoch": head.epoch,
            "token": head.token,
            "point": head.id,
            "tables": head.tables,
        }
        commit = self._log.commit(actions, head.version, info)
        kept.snapshot = state.snapshot.apply(commit)
        kept.add([head], rows)
        self.state = kept
        if full:
            self._log.checkpoint(kept.snapshot)

    def _compacted(self, kept: CatalogState, now_ms: int) -> list[Any]:
        """Return the actions that replace all files by one with the rows of a state."""
        pa, _ = arrow()
        old = list(self.state.snapshot.files.values())
        table = pa.concat_tables([_read_table(self._fetch(file), file.path) for file in old])
        if kept is not self.state:
            table = table.filter(pa.array(_is_in(kept, table), pa.bool_()))
        add = self._upload(table.sort_by("version"), _HISTORY)
        return [
            msgspec.structs.replace(add, data_change=False),
            *(file.removed(now_ms, data_change=False) for file in old if file.path != add.path),
        ]

    def _fetch(self, file: AddFile) -> bytes:
        key = self._log.key(file.path)
        return get_checked(self._objects, key, digest_tag(file, key), self._retries)

    def _upload(self, table: Any, prefix: str) -> AddFile:
        pa, pq = arrow()
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, _schema(), **write_options()) as writer:
            writer.write_table(table, row_group_size=8_192)
        data = sink.getvalue().to_pybytes()
        digest = hashlib.sha256(data).hexdigest()
        path = f"{prefix}{digest[:32]}.parquet"
        put_once(self._objects, upload_of(self._log.key(path), data), self._retries)
        stats = file_statistics(pq.read_metadata(pa.BufferReader(data)), {"version", "name"})
        modified = time.time_ns() // 1_000_000
        return AddFile(path, len(data), modified, stats=stats, tags={"sha256": digest})


def _is_in(state: CatalogState, table: Any) -> list[bool]:
    """Return for each row of a file whether a state has it."""
    commits = {commit.version for commit in state.commits}
    databases = {(row.name, row.version) for rows in state.rows.values() for row in rows}
    columns = (table.column(name).to_pylist() for name in ("kind", "name", "version"))
    return [
        (name, version) in databases if kind == DATABASE_ROW else version in commits
        for kind, name, version in zip(*columns, strict=True)
    ]


def check_format(snapshot: Snapshot) -> None:
    """Raise FutureFormat if a newer version of Fourfold wrote the archive."""
    text = snapshot.defined().configuration.get(_FORMAT_KEY, "")
    if text != str(FORMAT):
        raise FutureFormat(
            f"the archive has format {text!r}; this Fourfold knows {FORMAT}",
            hint="Upgrade Fourfold.",
        )


def digest_tag(file: AddFile, key: str) -> str:
    """Return the SHA-256 of a file of the archive."""
    digest = (file.tags or {}).get("sha256")
    if digest is None:
        raise CorruptData(f"object {key!r} has no digest in the log of its table")
    return digest


def _token(info: Mapping[str, Any]) -> object:
    return info.get("token")


def _schema() -> Any:
    pa, _ = arrow()
    text, number = pa.string(), pa.int64()
    return pa.schema(
        [
            ("kind", text),
            ("version", number),
            ("token", text),
            ("node", text),
            ("epoch", number),
            ("id", text),
            ("at", text),
            ("started_ms", number),
            ("restored", text),
            ("databases", number),
            ("streams", number),
            ("tables", text),
            ("name", text),
            ("model", text),
            ("file_id", text),
            ("base", number),
            ("point", number),
            ("position", number),
            ("migrations", number),
            ("absent", pa.bool_()),
            ("rows", number),
            ("bytes", number),
        ]
    )


def _table(rows: Sequence[CommitRow | DatabaseRow]) -> Any:
    pa, _ = arrow()
    return pa.Table.from_pylist([_encode(row) for row in rows], schema=_schema())


def _encode(row: CommitRow | DatabaseRow) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    if isinstance(row, DatabaseRow):
        return {"kind": DATABASE_ROW, **values}
    return {**values, "tables": msgspec.json.encode(row.tables).decode()}


_COMMIT = CommitRow.__struct_fields__
_DATABASE = DatabaseRow.__struct_fields__
_TABLES = msgspec.json.Decoder(dict[str, int])


def _read_table(data: bytes, what: str) -> Any:
    pa, pq = arrow()
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return file.read(use_threads=False)
    except (OSError, ValueError) as error:
        raise CorruptData(f"{what} is not a file of the catalog: {error}") from error


def _decode(data: bytes, what: str) -> list[CommitRow | DatabaseRow]:
    found: list[CommitRow | DatabaseRow] = []
    try:
        for values in _read_table(data, what).to_pylist():
            if values["kind"] == DATABASE_ROW:
                found.append(DatabaseRow(**{name: values[name] for name in _DATABASE}))
            elif values["kind"] in {POINT_ROW, TABLES_ROW}:
                tables = _TABLES.decode(values["tables"])
                chosen = {name: values[name] for name in _COMMIT if name != "tables"}
                found.append(CommitRow(tables=tables, **chosen))
    except (KeyError, msgspec.DecodeError) as error:
        raise CorruptData(f"{what} is not a file of the catalog: {error}") from error
    return found
