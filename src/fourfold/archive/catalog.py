"""The catalog of an archive: which databases and points it has, and who publishes.

    catalog/_delta_log/...        a Delta table; a commit of it is a publication, and comes last
    catalog/...parquet

The catalog is a changelog. Each commit has one row about itself (kind `point`, or `tables` for
maintenance): its node and epoch, a token, and the version of every archive table at that time; and
a row of kind `database` for each database that changed. The newest row of a name is valid. The
version of the catalog after a commit is the number of the point.

A publisher commits only after the commit that it knows as the newest, so of two publishers one
succeeds. Rows of archive tables that no commit names do not count.

A commit may remove the oldest points: it replaces files by ones without their rows. A database
keeps the row that the oldest remaining point reads, and all newer ones.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fourfold.archive.catalog_files import CURRENT, CatalogFiles, kind_of, versions_of
from fourfold.archive.catalog_rows import (
    CATALOG,
    CommitRow,
    DatabaseRow,
    catalog_schema,
    decode_commits,
    decode_databases,
    encode_rows,
)
from fourfold.archive.catalog_state import CatalogState
from fourfold.archive.delta_actions import Action, AddFile, Snapshot, table_actions
from fourfold.archive.delta_log import CommitConflict, DeltaLog
from fourfold.errors import FutureFormat, HistoryTruncated, NotFound
from fourfold.kernel import failpoints
from fourfold.limits import ARCHIVE_GRACE_S
from fourfold.objects import ObjectStore
from fourfold.retry import Retries

FORMAT: Final = 2
CATALOG_FILES_MAX: Final = 100
"""Files of single commits at which a publication compacts the catalog, and writes a checkpoint."""
_FORMAT_KEY = "fourfold.format"


class Catalog:
    """The catalog in an object store, read once and then kept up to date."""

    def __init__(
        self,
        objects: ObjectStore,
        retries: Retries | None = None,
        *,
        grace_s: float = ARCHIVE_GRACE_S,
    ) -> None:
        retries = retries or Retries()
        self._log = DeltaLog(objects, CATALOG, retries)
        self._grace_s = grace_s
        self.files = CatalogFiles(objects, self._log, retries)
        """Files of the catalog."""
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
        state = CatalogState(snapshot, self._read_cached)
        if snapshot.exists:
            check_format(snapshot)
            for file in sorted(snapshot.files.values(), key=versions_of):
                if kind_of(file) in {"", CURRENT}:
                    self._add_file(state, file)
            state.set_snapshot(snapshot)
        return state

    def _extend(self, newest: Snapshot) -> None:
        state, known = self.state, self.state.snapshot.files
        removed = [file for path, file in known.items() if path not in newest.files]
        if any(kind_of(file) == CURRENT for file in removed):
            self.state = self._loaded(newest)
            return
        added = [file for path, file in newest.files.items() if path not in known]
        for file in sorted(added, key=versions_of):
            # Other files have rows that are known, or that newer ones have replaced.
            if kind_of(file) in {"", CURRENT} and versions_of(file)[1] > state.version:
                self._add_file(state, file)
        state.set_snapshot(newest)

    def _add_file(self, state: CatalogState, file: AddFile) -> None:
        table = self.files.read(file)
        commits = [] if kind_of(file) else decode_commits(table, file.path)
        state.add(commits, decode_databases(table, file.path))

    def _read_cached(self, file: AddFile) -> Any:
        return self.files.read(file, cached=True)

    # Writing

    def create(self) -> None:
        """Create the catalog, unless another process has."""
        actions = table_actions(
            catalog_schema(), name=CATALOG, configuration={_FORMAT_KEY: str(FORMAT)}
        )
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
        single = sum(1 for file in state.snapshot.files.values() if not kind_of(file))
        is_full = oldest is not None or single + 1 >= CATALOG_FILES_MAX
        own = self.files.upload([encode_rows([head, *rows])], f"{head.version:012d}")
        actions: list[Any] = [own]
        if is_full:
            actions += self._compacted(head.version, oldest, now_ms)
            if failpoints.armed:
                failpoints.hit("archive.catalog.compacted")
        info = {
            "operation": "WRITE",
            "node": head.node,
            "epoch": head.epoch,
            "token": head.token,
            "point": head.id,
            "tables": head.tables,
        }
        commit = self._log.commit(actions, head.version, info)
        state.add([head], rows)
        if oldest is not None:
            state.forget(oldest)
        state.set_snapshot(state.snapshot.apply(commit))
        if is_full:
            written = self._log.checkpoint(
                state.snapshot, forget_removed_before_ms=int(now_ms - 1000 * self._grace_s)
            )
            state.set_snapshot(written)

    def _compacted(self, version: int, oldest: int | None, now_ms: int) -> list[Action]:
        """Return the actions that divide and merge files, without changing the kept rows."""
        state = self.state

        def newest(name: str) -> int | None:
            row = state.find(name)
            return None if row is None else row.version

        before = state.snapshot.files
        after = self.files.divide(before, newest, version)
        if oldest is not None:
            after = self.files.forget(after, oldest)
        added = [file for path, file in after.items() if path not in before]
        removed = [file for path, file in before.items() if path not in after]
        return [*added, *(file.removed(now_ms, data_change=False) for file in removed)]


def check_format(snapshot: Snapshot) -> None:
    """Raise FutureFormat if a newer version of Fourfold wrote the archive."""
    text = snapshot.defined().configuration.get(_FORMAT_KEY, "")
    if text != str(FORMAT):
        raise FutureFormat(
            f"the archive has format {text!r}; this Fourfold knows {FORMAT}",
            hint="Upgrade Fourfold.",
        )


def _token(info: Mapping[str, Any]) -> object:
    return info.get("token")
