"""Tables of a job in an object store: a Delta table for each, copied from a folder of tables.

    URL/<table>/*.parquet
    URL/<table>/_delta_log/

The folder is on this machine, and has the version that the next run continues. Names of files are
never used twice, so only new files are uploaded, and one commit for each table then makes the
version visible. A run that dies before it is completed by the next one. Objects that neither the
version nor the one before it has are deleted, so Delta's time travel reaches back to that one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from fourfold.archive.delta_actions import Action, AddFile, Snapshot, table_actions
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import encode_schema, file_statistics
from fourfold.archive.parquet import arrow
from fourfold.archive.uploads import put_once, upload_of_file
from fourfold.errors import Refused
from fourfold.objects import open_objects
from fourfold.pipeline.jobs.table_folder import TableFolder
from fourfold.retry import Retries
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

CHECKPOINT_COMMITS: Final = 10
"""Commits between two checkpoints."""
_ORIGIN: Final = "fourfold.origin"
"""Key in the configuration of a table: what it was materialized from, as JSON."""


class TableObjects:
    """The Delta tables at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._objects = open_objects(url)
        self._retries = Retries()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._objects.close()

    def check(self, tables: tuple[str, ...], origin: Mapping[str, Any]) -> None:
        """Raise Refused if one of the tables has another origin."""
        for name in tables:
            snapshot = self._log(name).snapshot()
            if not snapshot.exists:
                continue
            found = snapshot.defined().configuration.get(_ORIGIN)
            if found != _encoded(origin):
                raise Refused(
                    f"{self._url}: table {name!r} has another origin: {found}",
                    hint="Choose another URL for another store, model or branch.",
                )

    def is_current(self, manifest: FolderManifest) -> bool:
        """Return True if the tables have the files of a version."""
        return all(
            set(self._log(name).snapshot().files) == set(files)
            for name, files in _by_table(manifest).items()
        )

    def upload(self, folder: TableFolder, manifest: FolderManifest) -> None:
        """Make a version visible, which is the current one of the folder."""
        for name, files in _by_table(manifest).items():
            log = self._log(name)
            before = log.snapshot()
            paths = {file: folder.table(name) / file for file in files}
            for file, path in paths.items():
                if file not in before.files:
                    self._put(log.key(file), path)
            actions = _actions(name, paths, before, manifest.origin)
            if actions:
                before.check_writable()
                done = log.commit(actions, before.version + 1)
                if (done.version + 1) % CHECKPOINT_COMMITS == 0:
                    log.checkpoint(log.update(before), forget_removed_before_ms=_now_ms() + 1)
            self._sweep(name, {*files, *before.files})

    def _put(self, key: str, path: Path) -> None:
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        put_once(
            self._objects, upload_of_file(key, path, path.stat().st_size, digest), self._retries
        )

    def _log(self, name: str) -> DeltaLog:
        return DeltaLog(self._objects, name, self._retries)

    def _sweep(self, name: str, kept: set[str]) -> None:
        """Delete the files of a table that two versions do not have."""
        entries = self._retries.run(lambda: list(self._objects.list(f"{name}/")))
        for entry in entries:
            file = entry.key.removeprefix(f"{name}/")
            if file.endswith(".parquet") and "/" not in file and file not in kept:
                self._retries.run(partial(self._objects.delete, entry.key))


def _by_table(manifest: FolderManifest) -> dict[str, dict[str, MaterializedFile]]:
    """Return the files of each table by their names within it."""
    tables: dict[str, dict[str, MaterializedFile]] = {name: {} for name in manifest.tables}
    for file in manifest.files:
        path = Path(file.name)
        name = str(path.parent) if str(path.parent) != "." else manifest.tables[0]
        tables[name][path.name] = file
    return tables


def _actions(
    name: str, paths: Mapping[str, Path], before: Snapshot, origin: Mapping[str, Any]
) -> list[Action]:
    """Return what makes a table have exactly these files."""
    pa, pq = arrow()
    actions: list[Action] = []
    if paths:
        stored = pq.read_schema(next(iter(paths.values())))
        # Delta tables have timestamps in microseconds, whatever the files have.
        time_type = pa.timestamp("us", tz="UTC")
        schema = pa.schema(
            [
                pa.field(field.name, time_type if pa.types.is_timestamp(field.type) else field.type)
                for field in stored
            ]
        )
        if not before.exists:
            actions += table_actions(schema, name=name, configuration={_ORIGIN: _encoded(origin)})
        elif before.defined().schema_string != encode_schema(schema):
            actions.append(before.metadata_with(schema))
    now_ms = _now_ms()
    actions += [file.removed(now_ms) for path, file in before.files.items() if path not in paths]
    for file, path in paths.items():
        if file not in before.files:
            facts = path.stat()
            statistics = file_statistics(pq.read_metadata(path))
            modified_ms = int(facts.st_mtime * 1000)
            actions.append(AddFile(file, facts.st_size, modified_ms, stats=statistics))
    return actions


def _encoded(origin: Mapping[str, Any]) -> str:
    return msgspec.json.encode(origin, order="sorted").decode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
