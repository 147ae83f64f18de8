"""A Delta log over materialized files, for readers of Delta tables.

The manifest is authoritative, and the log is derived from it: every version of the tables is one
commit that replaces all files. It has the number of the version as an application transaction, so
an existing commit is detected and not repeated. Files of swept versions are gone, so time travel is
limited to the retained versions.
"""

from __future__ import annotations

import time
from pathlib import Path, PurePosixPath
from typing import Final

from fourfold.archive.delta_actions import Action, AddFile, Snapshot, Txn, table_actions
from fourfold.archive.delta_log import DeltaLog
from fourfold.archive.delta_schema import encode_schema, file_statistics
from fourfold.archive.parquet import arrow
from fourfold.objects import FolderStore
from fourfold.pipeline.documents.fold import folded_schema
from fourfold.pipeline.jobs.table_folder import VERSIONS, TableFolder
from fourfold.store.table_manifest import FolderManifest

CHECKPOINT_COMMITS: Final = 10
"""Commits between two checkpoints: each commit contains all files."""
_APPLICATION: Final = "fourfold"
_PAYLOAD: Final = "document"


def is_current(folder: TableFolder, manifest: FolderManifest) -> bool:
    """Return True if the log has this version."""
    with FolderStore(folder.into) as objects:
        return _version(DeltaLog(objects, "").snapshot()) == manifest.version


def commit(folder: TableFolder, manifest: FolderManifest) -> None:
    """Add a version to the log unless it is already there."""
    with FolderStore(folder.into) as objects:
        log = DeltaLog(objects, "")
        snapshot = log.snapshot()
        if _version(snapshot) == manifest.version:
            return
        snapshot.check_writable()
        log.commit(_actions(folder, manifest, snapshot), snapshot.version + 1)
        if (snapshot.version + 1) % CHECKPOINT_COMMITS == 0:
            # Files of older versions are swept with their folder, not by the log.
            log.checkpoint(log.update(snapshot), forget_removed_before_ms=_now_ms() + 1)


def _version(snapshot: Snapshot) -> int | None:
    txn = snapshot.txns.get(_APPLICATION)
    return None if txn is None else txn.version


def _actions(folder: TableFolder, manifest: FolderManifest, snapshot: Snapshot) -> list[Action]:
    schema = folded_schema()
    actions: list[Action] = [Txn(_APPLICATION, manifest.version)]
    if not snapshot.exists:
        actions += table_actions(schema, name="state")
    elif snapshot.defined().schema_string != encode_schema(schema):
        actions.append(snapshot.metadata_with(schema))
    now_ms = _now_ms()
    actions += [file.removed(now_ms) for file in snapshot.files.values()]
    # An unchanged file has the same name in every version.
    known = {PurePosixPath(path).name: file for path, file in snapshot.files.items()}
    state = Path(VERSIONS, manifest.folder, "state")
    for file in manifest.files:
        before, path = known.get(file.name), folder.into / state / file.name
        reused = before is not None and before.size == file.bytes and before.stats is not None
        actions.append(
            AddFile(
                (state / file.name).as_posix(),
                file.bytes,
                int(path.stat().st_mtime * 1000),
                stats=before.stats if before is not None and reused else _statistics(path),
            )
        )
    return actions


def _statistics(path: Path) -> str:
    _, pq = arrow()
    columns = [name for name in folded_schema().names if name != _PAYLOAD]
    return file_statistics(pq.read_metadata(path), columns)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
