"""The tables that `materialize` writes of documents: `state`, and `variant` if requested.

A run opens only changed spaces, folds in them only entities with new commits, and rewrites only the
files that have such an entity: each file has a range of keys (see `key_ranges`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fourfold.pipeline.cut import Cut, FileBound
from fourfold.pipeline.documents import delta_log, key_ranges
from fourfold.pipeline.jobs.job import Context, Range
from fourfold.pipeline.jobs.materialize import (
    Changes,
    Materializer,
    MaterializeResult,
    Version,
    WrittenFiles,
)
from fourfold.pipeline.jobs.table_folder import TableFolder, link_or_copy
from fourfold.pipeline.reader import frame
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

STATE: Final = "state"
VARIANT: Final = "variant"


class DocumentsMaterializer(Materializer):
    """Materializes the state of the entities of all spaces."""

    options = ("roots", "branch", "variant", "delta")

    def tables(self, context: Context) -> tuple[str, ...]:
        """Return `state`, and `variant` if it is requested."""
        return (STATE, VARIANT) if context.options["variant"] else (STATE,)

    def origin(self, context: Context) -> dict[str, Any]:
        """Return the store or the pattern of stores, and the branch."""
        return {**self.stores(context), "branch": context.options["branch"] or ""}

    def compare(self, context: Context, cut: Cut, before: FolderManifest | None) -> Changes:
        """List the spaces with new commits; one whose file was replaced is folded again."""
        full = before is None or bool(context.options["full"])
        known: Mapping[str, int] = {}
        if before is not None and not full:
            replaced = _replaced(cut.bounds, before)
            known = {did: seq for did, seq in before.spaces.items() if did not in replaced}
        branch = context.options["branch"]
        ranges = tuple(
            Range(bound.space, _after(bound, known, branch), bound.seq)
            for bound in cut.bounds
            if known.get(bound.space) != bound.seq
        )
        present = {bound.space for bound in cut.bounds} | {bad.space for bad in cut.bad}
        return Changes(ranges, full, tuple(sorted(known.keys() - present)))

    def is_complete(self, context: Context, folder: TableFolder, before: FolderManifest) -> bool:
        """Return False if the Delta log is requested but does not have the current version."""
        return not context.options["delta"] or delta_log.is_current(folder, before)

    def write(self, version: Version) -> WrittenFiles:
        """Fold the changed entities and write the files that have them."""
        context = version.context
        with context.spark_progress("folding"):
            if version.before is None:
                files = _write_all(version, version.cut)
                written = WrittenFiles(files, 0, sum(file.rows for file in files))
            else:
                written = _merge(version, version.before)
        if VARIANT in version.tables:
            with context.spark_progress("shredding"):
                _write_variant(context.spark, version.staging)
        return written

    def after_commit(self, context: Context, folder: TableFolder, manifest: FolderManifest) -> None:
        """Commit the version to the Delta log if it is requested."""
        if context.options["delta"]:
            delta_log.commit(folder, manifest)

    def summarize(self, result: MaterializeResult) -> tuple[dict[str, Any], str]:
        """Return the number of entities and spaces, and of the entities that were folded."""
        manifest = result.manifest
        figures = {
            "rows": manifest.rows,
            "entities_folded": result.changed,
            "spaces": len(manifest.spaces),
        }
        contents = (
            f"{manifest.rows} entities of {len(manifest.spaces)} spaces, "
            f"{result.changed} of them folded"
        )
        return figures, contents


def _after(bound: FileBound, known: Mapping[str, int], branch: str) -> int:
    """Return the seq after which a space is folded: 0 if it is new or went back, and on a branch
    with a parent, because a branch created since the last run contains older entities.
    """
    before = known.get(bound.space, 0)
    return 0 if branch or bound.seq < before else before


def _replaced(bounds: tuple[FileBound, ...], before: FolderManifest) -> set[str]:
    """Return the spaces whose file is not the one that the tables were built from."""
    return {
        bound.space
        for bound in bounds
        if before.file_ids.get(bound.space, bound.file_id) != bound.file_id
    }


def _source_options(version: Version, cut: Cut) -> dict[str, str]:
    context = version.context
    options = {**MATERIALIZER.stores(context), "table": STATE, "cut": cut.token()}
    if context.options["branch"]:
        options["branch"] = context.options["branch"]
    return options


def _write_all(version: Version, cut: Cut) -> list[MaterializedFile]:
    from fourfold.pipeline.documents import state_files  # noqa: PLC0415 - it needs pyspark

    staging = version.staging
    return state_files.write(
        version.context.spark,
        _source_options(version, cut),
        staging / "written",
        staging / STATE,
        version.context.work,
    )


def _merge(version: Version, before: FolderManifest) -> WrittenFiles:
    """Return the files of the previous version, rewriting those with changed entities."""
    spark, staging = version.context.spark, version.staging
    table = version.folder.table()
    key_ranges.write(frame(spark, _source_options(version, version.cut)), staging / "changed")
    changed = spark.read.parquet(str(staging / "changed"))
    removed = {bound.space for bound in version.cut.bounds if bound.since == 0} | set(version.gone)
    bounds = key_ranges.range_bounds(before.files)
    dirty = key_ranges.find_touched(changed, bounds)
    dirty |= {at for at, file in enumerate(before.files) if _may_have(file, removed)}
    old_paths = [str(table / before.files[at].name) for at in sorted(dirty)]
    fresh: dict[int, list[Path]] = {}
    if old_paths:
        old = spark.read.schema(changed.schema).parquet(*old_paths)
        old = old.where(~old.space.isin(sorted(removed))) if removed else old
        fresh = key_ranges.write_merged(old, changed, bounds, staging / "merged")
    files: list[MaterializedFile] = []
    kept = 0
    (staging / STATE).mkdir(exist_ok=True)
    for at, file in enumerate(before.files):
        if at in dirty:
            files += _place(fresh.get(at, []), staging, f"{version.context.work}-{at:05}")
        else:
            link_or_copy(table / file.name, staging / STATE / file.name)
            files.append(file)
            kept += 1
    if not files:
        files = _write_all(version, Cut(()))
    rows = changed.count()
    for scratch in ("changed", "merged"):
        shutil.rmtree(staging / scratch, ignore_errors=True)
    return WrittenFiles(files, kept, rows)


def _may_have(file: MaterializedFile, spaces: set[str]) -> bool:
    """Return True if the key range of a file includes one of the spaces."""
    if file.first is None or file.last is None:
        return True
    return any(file.first[0] <= space <= file.last[0] for space in spaces)


def _place(paths: list[Path], staging: Path, label: str) -> list[MaterializedFile]:
    """Move the files to the table's folder under unique names."""
    folder = staging / STATE
    files = []
    for number, path in enumerate(paths):
        target = folder / f"{label[-24:]}-{number:05}.parquet"
        path.rename(target)
        files.append(key_ranges.describe(target))
    return files


def _write_variant(spark: Any, staging: Path) -> None:
    """Write the rows with their documents parsed and shredded: derived, fast to query."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    rows = spark.read.parquet(str(staging / STATE))
    settings = {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.inferShreddingSchema": "true",
    }
    with _spark_settings(spark, settings):
        parsed = rows.withColumn("document", f.parse_json("document"))
        parsed.write.option("compression", "zstd").parquet(str(staging / VARIANT))


@contextmanager
def _spark_settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Apply settings of the session for the duration of a block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            if previous is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, previous)


MATERIALIZER: Final = DocumentsMaterializer()
