"""Archives as the roots of a read, by their URLs, without the folders of their stores.

The catalog of an archive names the databases of a point, and bounds their rows, so most databases
are planned like those of a store without a tail. Some are restored into the cache of exports first,
and then read like live ones: those that gc collected, because what it left is not in the logs; all
databases of models with tables that are looked up in the file; and all of a read that needs files.
Restored databases are deleted when the process ends.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from fourfold import settings
from fourfold.archive import stream_positions
from fourfold.archive.catalog_rows import CommitRow
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.restore_points import find
from fourfold.archive.table_layout import FILE_ID
from fourfold.cache import LruCache
from fourfold.errors import InvalidInput, NotFound
from fourfold.models.model import model_of_database
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import java
from fourfold.pipeline.archive_plan import ArchivePlan, ArchiveTables, open_archive, plan_archive
from fourfold.pipeline.cut import Cut, FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.store_files import find_files
from fourfold.store.store import open_store
from fourfold.store.table_archive import point_info
from fourfold.store.table_restoration import restore_databases, restore_streams

DOCUMENTS: Final = "documents"
STREAMS: Final = "streams"
_NO_POINT: Final = -1
"""Version of the catalog of an archive that has only streams, and no restore point."""
_HORIZONS: Final = ("documents.gc_horizon", "documents.facts.gc_horizon")
"""Archive tables with a row for each database: gc collected it if a seq is greater than 0."""
_RESTORED_MAX: Final = 4
"""Points of archives of which a process keeps restored databases."""


def archive_cut(options: ReadOptions) -> Cut:
    """Return the databases of a model in the archives of a read, at its point."""
    bounds: list[FileBound] = []
    for url in options.urls:
        archive = open_archive(url)
        state = archive.refresh()
        if options.model == STREAMS:
            bounds += with_files([_streams_bound(state, url, options)], options)
            continue
        version = _point(state, options.archive_point, url).version
        found = _bounds(state, url, version, options)
        collected = _collected(archive) if options.model == DOCUMENTS else set()
        is_looked_up = options.model != DOCUMENTS
        chosen = [bound for bound in found if is_looked_up or bound.file_id in collected]
        others = [bound for bound in found if bound not in chosen]
        bounds += [*others, *with_files(chosen, options)]
    if options.space is not None and not bounds:
        raise NotFound(f"{options.location}: has no space {options.space!r}")
    cut = Cut(tuple(sorted(bounds, key=lambda bound: (bound.root, bound.space))))
    return cuts.apply_bounds(cut, options)


def _streams_bound(state: CatalogState, url: str, options: ReadOptions) -> FileBound:
    """Return the streams of an archive; without a restore point, those of its manifests."""
    if isinstance(options.at, int):
        raise InvalidInput(
            f"at must be a time or a restore point for streams of archives, got {options.at}"
        )
    has_points = state.newest_point is not None or options.archive_point is not None
    version = _point(state, options.archive_point, url).version if has_points else _NO_POINT
    [kind] = options.tables.kinds
    return FileBound(url, "", "", kind, 0, 0, version=version, name=stream_positions.NAME)


def plan_archives(
    bounds: Sequence[FileBound], options: ReadOptions, *, rooted: bool = False
) -> tuple[tuple[FileBound, ...], ArchivePlan | None]:
    """Return the bounds of a read of archives, and its plan; None if only files are read.

    Databases that are not read from published files have a file.
    """
    plan = None
    if not options.branch:
        plan = plan_archive(bounds, options, rooted=rooted)
    if plan is not None:
        plan = replace(plan, live=tuple(with_files(plan.live, options)))
        return tuple(bounds), plan
    # Branches are in the files, and so is everything that is not a row of a log.
    known = tuple(with_files(bounds, options))
    return known, plan_archive(known, options, rooted=rooted)


def with_files(bounds: Sequence[FileBound], options: ReadOptions) -> list[FileBound]:
    """Return the bounds of databases, restored from their archives if they have no file."""
    result = [bound for bound in bounds if bound.path]
    missing = [bound for bound in bounds if not bound.path]
    for url, version in dict.fromkeys((bound.root, bound.version) for bound in missing):
        same = [bound for bound in missing if (bound.root, bound.version) == (url, version)]
        folder = _restored(url, version, [bound.name for bound in same])
        files = find_files([folder], options.tables)
        known = {bound.space: bound for bound in cuts.read_files_cut(files, options.tables).bounds}
        for bound in same:
            file = known[bound.space or next(iter(known))]
            seq = min(file.seq, bound.seq) if bound.space else file.seq
            result.append(replace(file, root=url, seq=seq, since=bound.since))
    return result


def find_point(url: str, at: str | None) -> CommitRow:
    """Return a restore point of an archive by its id or a time; by default the newest one.

    Raises:
        NotFound: The archive has no such point.
    """
    return _point(open_archive(url).refresh(), at, url)


def _point(state: CatalogState, at: str | None, url: str) -> CommitRow:
    newest = state.newest_point
    if newest is None:
        raise NotFound(
            f"{url}: has no archive with a restore point",
            hint="Publish a store to it: `fourfold publish ROOT --objects URL`.",
        )
    if at is None:
        return newest
    points = {commit.id: commit for commit in state.points}
    return points[find(list(map(point_info, points.values())), at).id]


def _bounds(state: CatalogState, url: str, version: int, options: ReadOptions) -> list[FileBound]:
    """Return the databases of the model at a version, without files."""
    bounds = []
    for name in state.names():
        row = state.find(name, version)
        if row is None or row.absent or row.is_positions:
            continue
        model = model_of_database(name)
        if model.name != options.model:
            continue
        space = model.location.id_of(name) if options.tables.spaces else ""
        kind = model.kind(row.model).profile.name
        if options.space in {None, space}:
            bounds.append(
                FileBound(
                    *(url, "", space, kind, row.position, row.bytes),
                    file_id=row.file_id,
                    version=version,
                    name=name,
                )
            )
    return bounds


def _collected(archive: ArchiveTables) -> set[str]:
    """Return the ids of databases that gc has collected, at whatever point."""
    found: set[str] = set()
    for table in _HORIZONS:
        for rows in archive.rows(table, (FILE_ID, "seq", "requests_seq")):
            found |= {
                row[FILE_ID]
                for row in rows.to_pylist()
                if (row["seq"] or 0) > 0 or (row["requests_seq"] or 0) > 0
            }
    return found


# Restored databases

_STREAMS: Final = frozenset({stream_positions.NAME})
_lock: Final = threading.Lock()
_folders: Final = LruCache[Path, bool](_RESTORED_MAX)


def _restored(url: str, version: int, names: Iterable[str]) -> Path:
    """Return the folder of a store with these databases as of a version."""
    names = set(names)
    # Manifests change without a version.
    state = uuid.uuid4().hex if version == _NO_POINT else f"{version} {sorted(names & _STREAMS)}"
    digest = hashlib.sha256(f"{url}\n{state}".encode()).hexdigest()[:24]
    chosen = settings.load(None, environ=os.environ).pipeline
    folder = java.export_folder(chosen.cache_folder) / f"restored-{os.getpid()}-{digest}"
    with _lock:
        if _folders.get(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            for old in _folders.put(folder, True):
                shutil.rmtree(old, ignore_errors=True)
        with open_store(folder, settings={"objects.url": url}) as store:
            if names & _STREAMS:
                restore_streams(store, None if version == _NO_POINT else version)
            restore_databases(store, names - _STREAMS, version)
    return folder
