"""The tables of a job that answers a question: they go into a folder when one is named (`--into`),
and otherwise the answer is the report of the run alone.

The folder changes all at once, as everything does that jobs publish; one that holds the tables of
another job is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fourfold.errors import Refused
from fourfold.pipeline.jobs.job import Context, Option
from fourfold.pipeline.jobs.refresh import KeptTable, written
from fourfold.pipeline.jobs.table_folder import File, FolderManifest, TableFolder

INTO = Option("into", "A folder for the tables, as Parquet in INTO/current.", kind="path")


class StagedTables(msgspec.Struct, frozen=True):
    """Tables that are written, and not shown yet."""

    folder: str
    manifest: FolderManifest


class ReportTables:
    """Where the answer of one run goes. `job` tells whose tables these are."""

    def __init__(self, context: Context, job: str) -> None:
        self._context = context
        self._job = job
        into = context.options["into"]
        self.folder = "" if into is None else str(Path(into).absolute())
        """Empty when no folder was named."""

    @property
    def output(self) -> str:
        return self.folder or "the report of the run"

    def next_version(self) -> int:
        if not self.folder:
            return 1
        before = TableFolder(Path(self.folder)).current()
        if before is None:
            return 1
        if before.origin.get("model") != self._job:
            raise Refused(
                f"{self.folder}: holds other tables", hint="Choose another folder for these."
            )
        return before.version + 1

    def stage(self, tables: Sequence[tuple[KeptTable, Any]], version: int) -> StagedTables | None:
        """Write the tables where no reader looks; None when no folder was named."""
        if not self.folder:
            return None
        context = self._context
        staging = TableFolder(Path(self.folder)).staging(context.work)
        files: list[File] = []
        for kept, rows in tables:
            files += written(rows, staging, kept, context.work)
        manifest = FolderManifest(
            version=version,
            work=context.work,
            origin={"root": context.options["roots"] or str(context.root), "model": self._job},
            spaces={},
            files=tuple(files),
            tables=tuple(kept.name for kept, _ in tables),
        )
        return StagedTables(str(staging), manifest)

    def show(self, staged: StagedTables | None) -> str | None:
        """Show what was staged, unless an earlier try of this run did; where it is then."""
        if staged is None:
            return None
        published = TableFolder(Path(self.folder))
        now = published.current()
        if now is None or now.work != staged.manifest.work:
            published.publish(Path(staged.folder), staged.manifest)
        return self.folder
