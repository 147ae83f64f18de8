"""Tables of a job that reports: written to a folder with `--into`, else only to the report.

The folder is replaced atomically, like everything that jobs write; a folder with the tables of
another job is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fourfold.errors import Refused
from fourfold.pipeline.jobs.job import Context, Option
from fourfold.pipeline.jobs.table_folder import FolderTable, TableFolder, write_table
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

INTO = Option("into", "A folder for the tables, as Parquet in INTO/current.", kind="path")


class StagedTables(msgspec.Struct, frozen=True):
    """Tables that are written but not visible yet."""

    folder: str
    manifest: FolderManifest


class ReportTables:
    """The destination of the tables of one run; `job` identifies their owner."""

    def __init__(self, context: Context, job: str) -> None:
        self._context = context
        self._job = job
        into = context.options["into"]
        self.folder = "" if into is None else str(Path(into).absolute())
        """Empty without `--into`."""

    @property
    def output(self) -> str:
        """The destination, for messages."""
        return self.folder or "the report of the run"

    def next_version(self) -> int:
        """Return the version that this run writes."""
        if not self.folder:
            return 1
        before = TableFolder(Path(self.folder)).current()
        if before is None:
            return 1
        if before.origin.get("model") != self._job:
            raise Refused(f"{self.folder}: contains other tables", hint="Choose another folder.")
        return before.version + 1

    def stage(self, tables: Sequence[tuple[FolderTable, Any]], version: int) -> StagedTables | None:
        """Write the tables, invisible to readers; None without a folder."""
        if not self.folder:
            return None
        context = self._context
        staging = TableFolder(Path(self.folder)).staging(context.work)
        files: list[MaterializedFile] = []
        for table, rows in tables:
            files += write_table(rows, staging, table, context.work)
        manifest = FolderManifest(
            version=version,
            work=context.work,
            origin={"root": context.options["roots"] or str(context.root), "model": self._job},
            spaces={},
            files=tuple(files),
            tables=tuple(table.name for table, _ in tables),
        )
        return StagedTables(str(staging), manifest)

    def replace(self, staged: StagedTables | None) -> str | None:
        """Make the staged tables current unless this run already did; return the folder."""
        if staged is None:
            return None
        folder = TableFolder(Path(self.folder))
        now = folder.current()
        if now is None or now.work != staged.manifest.work:
            folder.replace(Path(staged.folder), staged.manifest)
        return self.folder
