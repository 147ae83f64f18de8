"""Plan a read over published files: which files of the archive Spark reads, and what is exported.

The rows of a database are those of the archive until its last publication, and the later ones of
the live file, its *tail*. Both are bounded by the cut. A database is read from the archive if

- it is the file that the archive has (`file_id`), in the state that it recorded when it published;
- no change or removal of rows is unpublished or was made by gc.

All other databases are exported as a whole: those that were never published, and those that gc
collected. So every row comes from one place. Most logs are append-only; of a table whose rows
change, such as the flags of graphs, the newest version of each row is read (`ArchivedTable.key`).

The catalog bounds which rows of a file count (`Interval`). What a file contains is read once, from
three columns, and remembered by its digest. Spark reads files whose rows all count as they are; the
rows of others are joined with the intervals.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import settings
from fourfold.archive.catalog import Catalog
from fourfold.archive.catalog_rows import DatabaseRow, digest_tag
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import EMPTY, AddFile, Snapshot
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import FileStatistics
from fourfold.archive.node_record import read_record
from fourfold.archive.parquet import arrow
from fourfold.archive.row_files import damage
from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT, TABLES, defaults_in
from fourfold.archive.uploads import download_checked, get_checked
from fourfold.cache import LruCache
from fourfold.errors import Busy, CorruptData, NotFound
from fourfold.models.model import model as registered_model
from fourfold.objects import FolderStore, ObjectStore, open_objects
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.conditions import Condition
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.export_cache import ExportCache
from fourfold.pipeline.file_facts import PublishedPositions, file_state
from fourfold.pipeline.models import get_model
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.table_files import open_cache
from fourfold.query.tables import SPACE
from fourfold.retry import Retries
from fourfold.store.store import objects_of, objects_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    FoldFunction = Callable[[SparkSession, ReadOptions, Sequence[FileBound], DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Columns of a table that are in another one, joined by `on`.

    Either `source` is a table of the archive, of the same database; its rows with equal values of
    `on` are equal. Or `live` is a small table of the model, which is exported.
    """

    columns: Mapping[str, str]
    """Expression for each column, in terms of the other table."""
    on: tuple[str, ...]
    source: ArchivedTable | None = None
    live: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Expression for a column of `on` in terms of the other table, unless it has that column."""
    required: bool = False
    """True if a row without a match is left out."""


@dataclass(frozen=True, slots=True)
class ArchivedTable:
    """A table of a model, in terms of a table of the archive."""

    kind: str
    """Kind of the databases that have it."""
    source: str = ""
    """Name of the archive table, which ends with that of the table of the database; empty if
    databases of the kind have no rows.
    """
    schema: Mapping[str, str] = field(default_factory=dict)
    """Columns of the archive table with their types in Spark."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Expression in Spark SQL for each column; it may use those of lookups."""
    position: str = ""
    """Column of the archive table that a cut bounds; empty if none does."""
    log: str = ""
    """Table of the database whose published position is that of this table; default: itself."""
    key: tuple[str, ...] = ()
    """Key of a row, if rows change; the newest version of each is read."""
    shared: bool = False
    """True if the archive table has rows of several tables of a database."""
    lookups: tuple[Lookup, ...] = ()

    @property
    def table(self) -> str:
        """Name of the table in a database."""
        return self.source.rpartition(".")[2]

    def has_changes(self, changed: Iterable[str]) -> bool:
        """Return True if one of these tables of a database is this one."""
        if self.shared:
            return any(name.endswith(f"_{self.table}") for name in changed)
        return self.table in changed

    def needed_lookups(self, columns: Iterable[str]) -> tuple[Lookup, ...]:
        """Return the lookups that these columns need."""
        names = set(columns)
        return tuple(
            lookup
            for lookup in self.lookups
            if lookup.required or not lookup.columns.keys().isdisjoint(names)
        )


@dataclass(frozen=True, slots=True)
class ArchivedFold:
    """A table of a model that is computed from the rows of another one."""

    rows: str
    """Name of the other table."""
    input: tuple[str, ...]
    """Columns of it that are read."""
    fold: FoldFunction
    selected_by: tuple[str, ...] = ()
    """Columns of the table by which rows of the other one can be selected."""


Archived = ArchivedFold | tuple[ArchivedTable, ...]
"""How a table is read from the archive: its parts, each for the databases of one kind."""


@dataclass(frozen=True, slots=True)
class Visible:
    """Rows of a database file that a read sees: points and positions from a first to a last."""

    file_id: str
    base: int
    point: int
    since: int
    until: int


@dataclass(slots=True)
class FileGroup:
    """Published files of one store; of several if `root` is None."""

    tables: tuple[ArchivedTable, ...]
    """Tables whose rows together are those of the read."""
    root: str | None
    bounds: list[FileBound] = field(default_factory=list)
    """Databases whose rows are in the files."""
    whole: dict[str, list[str]] = field(default_factory=dict)
    """Files whose rows all count, by archive table."""
    filtered: dict[str, list[str]] = field(default_factory=dict)
    """Files of which only visible rows count, by archive table."""
    visible: list[Visible] = field(default_factory=list)
    since: int = 0
    until: int | None = None
    """Positions that apply to all rows."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The parts of a read: published files, tails of their databases, and other databases."""

    fold: ArchivedFold | None
    groups: tuple[FileGroup, ...]
    tails: tuple[FileBound, ...]
    live: tuple[FileBound, ...]

    @property
    def archived(self) -> tuple[FileBound, ...]:
        """Databases that are read from the archive."""
        return tuple(bound for group in self.groups for bound in group.bounds)


def plan_archive(
    bounds: Sequence[FileBound], options: ReadOptions, *, rooted: bool = False
) -> ArchivePlan | None:
    """Return how to read a table from the archives of its stores; None if none has it.

    Args:
        rooted: Keep the files of different stores apart, because `root` is read.
    """
    archived = archived_table(options.model, options.table_name)
    if archived is None or not bounds:
        return None
    fold = archived if isinstance(archived, ArchivedFold) else None
    if fold is not None and any(bound.since for bound in bounds):
        # Few entities changed, which an index of the live file finds.
        return None
    tables = archived if fold is None else archived_table(options.model, fold.rows)
    assert isinstance(tables, tuple)
    names = [column.name for column in options.table.select_columns(options.columns)]
    if fold is not None:
        names, rooted = list(fold.input), True
    selected = [bound for bound in bounds if options.conditions.allow(SPACE, bound.space)]
    kinds = {table.kind for table in tables}
    groups: list[FileGroup] = []
    tails: list[FileBound] = []
    live = [bound for bound in selected if bound.kind not in kinds]
    for kind in sorted({table.kind for table in tables if table.source}):
        of_kind = tuple(table for table in tables if table.kind == kind)
        planner = _Planner(options, of_kind, names, None if fold is None else fold.selected_by)
        same = [bound for bound in selected if bound.kind == kind]
        for root in dict.fromkeys(bound.root for bound in same):
            planner.add(root, [bound for bound in same if bound.root == root])
        is_local = any(lookup.live for table in of_kind for lookup in table.lookups)
        groups += planner.groups if rooted or is_local else _merged(planner.groups)
        tails += planner.tails
        live += planner.live
    if not groups:
        return None
    return ArchivePlan(fold, tuple(groups), tuple(tails), tuple(live))


def archived_table(model: str, name: str) -> Archived | None:
    """Return a table of a model in terms of the archive, or None if it is only read live."""
    archived = get_model(model).archived
    return None if archived is None else archived().get(name)


def _sources(table: ArchivedTable, names: Iterable[str]) -> Iterator[ArchivedTable]:
    """Yield a table of the archive, and those in which its columns are looked up."""
    yield table
    for lookup in table.needed_lookups(names):
        if lookup.source is not None:
            yield from _sources(lookup.source, lookup.columns)


class _Planner:
    """Divides the databases of a read, store by store."""

    def __init__(
        self,
        options: ReadOptions,
        tables: tuple[ArchivedTable, ...],
        names: Sequence[str],
        selected_by: tuple[str, ...] | None,
    ) -> None:
        self._options = options
        self._tables = tables
        self._selected_by = selected_by
        sources = [source for table in tables for source in _sources(table, names)]
        self._needed = list({source.source: source for source in sources}.values())
        self._cache = open_cache(options.root)
        self._facts = cuts.open_facts(options)
        self.groups: list[FileGroup] = []
        self.tails: list[FileBound] = []
        self.live: list[FileBound] = []

    def add(self, root: str, bounds: Sequence[FileBound]) -> None:
        """Add the databases of a store."""
        archive = open_archive(root) if self._options.urls else _archive_of(root)
        if archive is None:
            self.live += bounds
            return
        publications = self._publications([bound for bound in bounds if bound.path])
        # After the databases: so it has everything that they recorded.
        state = archive.refresh()
        if not all(_has_columns(archive.snapshot(table.source), table) for table in self._needed):
            self.live += bounds
            return
        entries: list[_Entry] = []
        for bound in bounds:
            if not bound.path:
                row = state.find(bound.name, bound.version)
                if row is None or row.file_id != bound.file_id:
                    raise Busy(f"{root}: the archive was replaced", hint="Read it again.")
                entries.append(_Entry(bound, row, row.position))
                continue
            publication = publications.get(bound.path)
            row = None if publication is None else self._published_row(state, bound, publication)
            if row is None or publication is None:
                self.live.append(bound)
            else:
                log = self._tables[0].log or self._tables[0].table
                entries.append(_Entry(bound, row, publication.positions[log]))
        files = {table.source: self._files(archive, table, entries) for table in self._needed}
        entries = self._without_removed(entries, files.values())
        if not entries:
            return
        group = _group(self._tables, root, entries, files)
        self.groups.append(group)
        for entry in entries:
            since = max(entry.bound.since, entry.position)
            if since < entry.bound.seq:
                self.tails.append(replace(entry.bound, since=since))

    def _publications(self, bounds: Sequence[FileBound]) -> dict[str, PublishedPositions | None]:
        """Return how far databases are published, without opening those that are unchanged."""
        result: dict[str, PublishedPositions | None] = {}
        for bound in bounds:
            state = file_state(bound.path)
            known = self._facts.find(bound.path, state)
            if known is not None and known.publication is not None:
                result[bound.path] = known.publication
                continue
            publication = cuts.read_publication(bound, self._options.tables)
            result[bound.path] = publication
            if known is not None and publication is not None:
                facts = msgspec.structs.replace(known, publication=publication)
                self._facts.put(bound.path, facts)
        self._facts.save()
        return result

    def _published_row(
        self, state: CatalogState, bound: FileBound, publication: PublishedPositions
    ) -> DatabaseRow | None:
        """Return the row of the catalog that bounds the rows of a database, if they are all there
        and none was changed.
        """
        if publication.collected:
            return None
        for table in self._needed:
            if table.has_changes(publication.changed):
                return None
            if (table.log or table.table) not in publication.positions:
                return None
        row = state.find(_database_name(self._options.model, bound), publication.generation)
        if row is None or row.absent or row.is_older or row.file_id != bound.file_id:
            return None
        if (row.point, row.token) != (publication.generation, publication.token):
            return None
        return row

    def _files(
        self, archive: ArchiveTables, table: ArchivedTable, entries: Sequence[_Entry]
    ) -> list[_PlannedFile]:
        """Return the files of an archive table that may have rows of the read."""
        snapshot = archive.snapshot(table.source)
        if not entries:
            return []
        id_column = snapshot.defined().configuration.get("fourfold.name", "")
        found = []
        for file in snapshot.files.values():
            stats = FileStatistics.decode(file.stats)
            if not self._admits(stats, id_column, table, entries):
                continue
            path = archive.path(table.source, file, self._cache)
            found.append(_PlannedFile(str(path), _contents(path, file, self._cache.folder)))
        return found

    def _admits(
        self, stats: FileStatistics, id_column: str, table: ArchivedTable, entries: Sequence[_Entry]
    ) -> bool:
        """Return False if statistics exclude every row of the read."""
        if id_column == SPACE:
            spaces = [entry.bound.space for entry in entries]
            if not stats.admits_range(SPACE, min(spaces), max(spaces)):
                return False
        # A condition on a revision says nothing about its commit.
        is_read, selected_by = table in self._tables, self._selected_by
        conditions = self._options.conditions.without(SPACE) if is_read else []
        return all(
            _is_possible(stats, condition)
            for condition in conditions
            if table.columns.get(condition.column) == condition.column
            and (selected_by is None or condition.column in selected_by)
        )

    def _without_removed(
        self, entries: Sequence[_Entry], tables: Iterable[Sequence[_PlannedFile]]
    ) -> list[_Entry]:
        """Return the databases of whose rows none was removed; the others are read live."""
        removed = {
            content.file_id
            for files in tables
            for file in files
            for content in file.contents
            if not content.is_put
        }
        kept = []
        for entry in entries:
            if entry.row.file_id in removed:
                self.live.append(entry.bound)
            else:
                kept.append(entry)
        return kept


def _has_columns(snapshot: Snapshot, table: ArchivedTable) -> bool:
    """Return True if every file of a table has the columns that are read."""
    if not snapshot.exists:
        return False
    added = defaults_in(snapshot.defined().configuration)
    names = set(table.schema)
    return names <= set(snapshot.schema.names) and not any(
        # Spark reads a column that a file does not have as null.
        value is not None and name in names
        for name, value in added.items()
    )


def _database_name(model: str, bound: FileBound) -> str:
    location = registered_model(model).location
    return location.folder if location.check_id is None else location.name(bound.space)


def _is_possible(stats: FileStatistics, condition: Condition) -> bool:
    """Return False if no row of a file can meet a condition."""
    lower, upper = stats.min_values.get(condition.column), stats.max_values.get(condition.column)
    if lower is None or upper is None:
        return True
    if condition.sign in {"=", "in"}:
        return any(lower <= value <= upper for value in condition.values)
    [value] = condition.values
    return bool(lower <= value) if condition.sign.startswith("<") else bool(upper >= value)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A database that is read from the archive."""

    bound: FileBound
    row: DatabaseRow
    position: int
    """Published position of the table."""


class _DatabaseRows(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one database in a file of the archive: their points."""

    file_id: str
    first: int
    last: int
    is_put: bool


@dataclass(frozen=True, slots=True)
class _PlannedFile:
    path: str
    contents: tuple[_DatabaseRows, ...]


def _group(
    tables: tuple[ArchivedTable, ...],
    root: str,
    entries: Sequence[_Entry],
    files: Mapping[str, Sequence[_PlannedFile]],
) -> FileGroup:
    """Return the files of a store, divided into those whose rows all count, and others."""
    group = FileGroup(tables, root, [entry.bound for entry in entries])
    bounds = _common_bounds(entries)
    if bounds is not None:
        group.since, group.until = bounds
    group.visible = [
        Visible(
            entry.row.file_id,
            entry.row.base,
            entry.row.point,
            entry.bound.since,
            entry.bound.seq,
        )
        for entry in entries
    ]
    intervals = {entry.row.file_id: entry.row.interval for entry in entries}
    for source, several in files.items():
        whole, filtered = [], []
        for file in several:
            counts = [
                (interval := intervals.get(content.file_id)) is not None
                and interval.base <= content.first
                and content.last <= interval.point
                for content in file.contents
            ]
            if bounds is not None and all(counts):
                whole.append(file.path)
            elif any(content.file_id in intervals for content in file.contents):
                filtered.append(file.path)
        group.whole[source], group.filtered[source] = whole, filtered
    return group


def _common_bounds(entries: Sequence[_Entry]) -> tuple[int, int | None] | None:
    """Return positions that bound the published rows of all databases; None if they differ."""
    sinces = {entry.bound.since for entry in entries}
    untils = {entry.bound.seq for entry in entries if entry.position > entry.bound.seq}
    if len(sinces) > 1 or len(untils) > 1:
        return None
    until = untils.pop() if untils else None
    if until is not None and any(
        entry.position > until for entry in entries if entry.bound.seq != until
    ):
        return None
    return sinces.pop(), until


def _merged(groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Return one group for all stores, unless two have copies of one database."""
    if not groups:
        return []
    ids = [visible.file_id for group in groups for visible in group.visible]
    bounds = {(group.since, group.until) for group in groups}
    if len(groups) == 1 or len(set(ids)) < len(ids) or len(bounds) > 1:
        return list(groups)
    merged = FileGroup(groups[0].tables, None, since=groups[0].since, until=groups[0].until)
    for group in groups:
        merged.bounds += group.bounds
        merged.visible += group.visible
        for source in group.whole:
            merged.whole.setdefault(source, []).extend(group.whole[source])
            merged.filtered.setdefault(source, []).extend(group.filtered[source])
    return [merged]


# Archives


class ArchiveTables:
    """The tables of an archive, as a reader sees them."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._retries = Retries()
        self._catalog = Catalog(objects, self._retries)
        self._snapshots: dict[str, Snapshot] = {}
        self._lock = threading.Lock()

    def refresh(self) -> CatalogState:
        """Return the newest state of the catalog."""
        with self._lock:
            return self._catalog.refresh()

    def snapshot(self, table: str) -> Snapshot:
        """Return a table at the version that the catalog names."""
        with self._lock:
            version = self._catalog.state.tables.get(table, EMPTY.version)
            known = self._snapshots.get(table, EMPTY)
            if known.version != version:
                log = DeltaLog(self._objects, f"{TABLES}/{table}", self._retries)
                known = log.snapshot(version) if version >= 0 else EMPTY
                self._snapshots[table] = known
            return known

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Any]:
        """Yield columns of the files of a table, whether or not their rows count."""
        _, pq = arrow()
        for file in self.snapshot(table).files.values():
            key = f"{TABLES}/{table}/{file.path}"
            data = get_checked(self._objects, key, digest_tag(file, key), self._retries)
            with damage(key):
                yield pq.read_table(io.BytesIO(data), columns=list(columns))

    def path(self, table: str, file: AddFile, cache: ExportCache) -> Path:
        """Return where a file is on this machine: in a folder of objects, or in the cache."""
        key = f"{TABLES}/{table}/{file.path}"
        if isinstance(self._objects, FolderStore):
            path = self._objects.path(key)
            if not path.is_file() or path.stat().st_size != file.size:
                raise CorruptData(
                    f"object {key!r} is missing or damaged",
                    hint="Run `fourfold verify --objects` to list all damage.",
                )
            return path
        digest = digest_tag(file, key)
        known = cache.find(digest)
        if known is not None:
            return known
        partial = cache.partial(digest)
        self._retries.run(lambda: download_checked(self._objects, key, digest, partial))
        return cache.add(digest, partial)


_archives: dict[tuple[int, str], ArchiveTables] = {}
_archives_lock: Final = threading.Lock()


def open_archive(url: str) -> ArchiveTables:
    """Return the tables of the archive at a URL; raise NotFound if its folder is missing."""
    if ":" not in url and not Path(url).is_dir():
        # It would be created.
        raise NotFound(f"{url}: folder does not exist")
    return _cached(url, lambda: open_objects(url))


def _cached(url: str, opened: Callable[[], ObjectStore]) -> ArchiveTables:
    # A process that was forked must not share connections.
    key = os.getpid(), url
    with _archives_lock:
        if key not in _archives:
            _archives[key] = ArchiveTables(opened())
        return _archives[key]


def _archive_of(root: str) -> ArchiveTables | None:
    """Return the archive tables of a store; None if it does not publish to such an archive."""
    if read_record(Path(root)) is None:
        return None
    chosen = settings.load(root, environ=os.environ)
    url = objects_url(Path(root), chosen)
    if ":" not in url and not Path(url).is_dir():
        # It would be created.
        return None
    return _cached(url, lambda: objects_of(Path(root), chosen))


CONTENTS_KEPT_S: Final = 7 * 86_400.0
"""Time after which the contents of a file that no process reads any more are forgotten."""
_CONTENTS: Final = msgspec.json.Decoder(tuple[_DatabaseRows, ...])
_SUFFIX: Final = ".contents.json"
_known: Final = LruCache[str, tuple[_DatabaseRows, ...]](1_000_000, len)


def _contents(path: Path, file: AddFile, cache: Path) -> tuple[_DatabaseRows, ...]:
    """Return which databases have rows in a file; remembered by its digest."""
    digest = digest_tag(file, file.path)
    with _archives_lock:
        known = _known.get(digest)
    if known is not None:
        return known
    stored = cache / "facts" / f"{digest}{_SUFFIX}"
    try:
        contents = _CONTENTS.decode(stored.read_bytes())
        os.utime(stored)
    except (FileNotFoundError, msgspec.DecodeError):
        contents = _read_contents(path, file)
        stored.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = stored.with_suffix(f".{os.getpid()}.{threading.get_ident()}.partial")
        partial.write_bytes(msgspec.json.encode(contents))
        partial.replace(stored)
        _forget_old(stored.parent)
    with _archives_lock:
        _known.put(digest, contents)
    return contents


def _forget_old(folder: Path) -> None:
    oldest = time.time() - CONTENTS_KEPT_S
    for entry in os.scandir(folder):
        with suppress(FileNotFoundError):
            if entry.name.endswith(_SUFFIX) and entry.stat().st_mtime < oldest:
                os.unlink(entry.path)  # noqa: PTH108 - it runs for every file


def _read_contents(path: Path, file: AddFile) -> tuple[_DatabaseRows, ...]:
    _, pq = arrow()
    with damage(file.path), pq.ParquetFile(path) as opened:
        rows = opened.read(columns=[FILE_ID, OP, POINT])
    groups = rows.group_by([FILE_ID, OP]).aggregate([(POINT, "min"), (POINT, "max")])
    return tuple(
        _DatabaseRows(row[FILE_ID], row[f"{POINT}_min"], row[f"{POINT}_max"], row[OP] == PUT)
        for row in groups.to_pylist()
    )
