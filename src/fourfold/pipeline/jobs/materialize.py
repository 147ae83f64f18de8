"""The job `materialize`: the state of every entity as Parquet.

The result is a `TableFolder`. A run folds only what changed since the last one: unchanged spaces
are not opened, in the others only entities with new commits are folded, and only files with such an
entity are rewritten. The position of each space is in the manifest beside the tables, so that the
two always agree.

This module covers documents, which may have many spaces. Other models are in `refresh`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput, Refused
from fourfold.pipeline.cut import Cut, FileBound, read_cut
from fourfold.pipeline.jobs import key_ranges, refresh
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.jobs.table_folder import File, FolderManifest, TableFolder, link_or_copy
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.tables import DEFAULT_MODEL

STATE: Final = "state"
VARIANT: Final = "variant"


class MaterializeResult(msgspec.Struct, frozen=True):
    """A version that is ready to be published."""

    staging: str
    manifest: FolderManifest
    changed: int
    kept_files: int


class Materialize(Job):
    """Materialize the state of a model."""

    name = "materialize"
    summary = "The state of every entity of every space as Parquet files."
    explanation = (
        "The tables are in INTO/current; each run replaces them atomically. A run processes what "
        "changed since the last one."
    )
    options = (
        model_option("materialize"),
        Option("into", "The folder of the tables.", kind="path", required=True),
        Option("branch", "The branch; * for all branches.", default=""),
        Option("at", "A seq or a time, instead of now."),
        Option(
            "variant", "Also write a table with the documents as shredded VARIANT.", kind="flag"
        ),
        Option("delta", "Also write a Delta log over the same files.", kind="flag"),
        Option("full", "Fold everything again.", kind="flag"),
    )

    def target(self, context: Context) -> str:
        """Return the folder of the tables."""
        return str(Path(context.options["into"]).absolute())

    def plan(self, context: Context) -> Plan:
        """Plan the spaces that changed since the last version."""
        if context.options["model"] != DEFAULT_MODEL:
            return refresh.plan(context)
        read = _read_options(context)
        published = TableFolder(Path(self.target(context)))
        before = published.current()
        _check_origin(before, context, read)
        cut = read_cut(read)
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        whole = before is None or bool(context.options["full"])
        known: Mapping[str, int] = {}
        if before is not None and not whole:
            replaced = _replaced(cut.marks, before)
            known = {did: seq for did, seq in before.spaces.items() if did not in replaced}
        ranges = tuple(
            Range(bound.space, _since(bound, known, read), bound.seq)
            for bound in cut.marks
            if known.get(bound.space) != bound.seq
        )
        unreadable = {bad.space for bad in cut.bad}
        here = {bound.space for bound in cut.marks} | unreadable
        gone = sorted(known.keys() - here)
        tables = [STATE, VARIANT] if context.options["variant"] else [STATE]
        facts = {
            "branch": read.branch,
            "full": whole,
            "gone": gone,
            "tables": tables,
            "version": 1 if before is None else before.version + 1,
        }
        unchanged = before is not None and not ranges and not gone and not whole
        complete = before is not None and list(before.tables) == tables
        delta_current = not context.options["delta"] or _delta_is_current(published, before)
        return Plan(
            output=str(published.into),
            ranges=ranges,
            facts=facts,
            empty=unchanged and complete and delta_current,
            bounds=cut.marks,
        )

    def run(self, context: Context, plan: Plan) -> MaterializeResult | refresh.RefreshResult:
        """Write the new version to staging."""
        if context.options["model"] != DEFAULT_MODEL:
            return refresh.run(context, plan)
        read = _read_options(context)
        published = TableFolder(Path(plan.output))
        before = published.current()
        staging = published.staging(context.work)
        bounds = {bound.space: bound for bound in plan.bounds}
        selected = tuple(
            replace(bounds[range_.source], seq=range_.upto, since=range_.after)
            for range_ in plan.ranges
        )
        with context.spark_progress("folding"):
            if before is None or plan.facts["full"]:
                files, kept, changed = _all(context, read, selected, staging), 0, 0
                changed = sum(file.rows for file in files)
            else:
                files, kept, changed = _merged(context, read, selected, staging, before, plan)
        if VARIANT in plan.facts["tables"]:
            with context.spark_progress("shredding"):
                _write_variant(context.spark, staging)
        spaces = {} if before is None or plan.facts["full"] else dict(before.spaces)
        for gone in plan.facts["gone"]:
            spaces.pop(gone, None)
        spaces.update({range_.source: range_.upto for range_ in plan.ranges})
        file_ids = {} if before is None else dict(before.file_ids)
        file_ids.update({bound.space: bound.file_id for bound in plan.bounds})
        manifest = FolderManifest(
            version=plan.facts["version"],
            work=context.work,
            origin=_origin(context, read),
            spaces=spaces,
            files=tuple(files),
            tables=tuple(plan.facts["tables"]),
            file_ids={did: file_ids[did] for did in spaces if did in file_ids},
        )
        return MaterializeResult(str(staging), manifest, changed, kept)

    def commit(
        self, context: Context, plan: Plan, result: MaterializeResult | refresh.RefreshResult
    ) -> Report:
        """Publish the new version."""
        if isinstance(result, refresh.RefreshResult):
            return refresh.commit(context, plan, result)
        published = TableFolder(Path(plan.output))
        now = published.current()
        if now is None or now.work != result.manifest.work:
            published.publish(Path(result.staging), result.manifest)
        if context.options["delta"]:
            from fourfold.pipeline.jobs import delta_log  # noqa: PLC0415 - an optional dependency

            delta_log.commit(published, result.manifest)
        manifest = result.manifest
        return Report(
            rows_in=sum(range_.upto - range_.after for range_ in plan.ranges),
            rows_out=manifest.rows,
            output=plan.output,
            facts={
                "version": manifest.version,
                "rows": manifest.rows,
                "entities_folded": result.changed,
                "files": len(manifest.files),
                "files_kept": result.kept_files,
                "bytes": sum(file.bytes for file in manifest.files),
                "spaces": len(manifest.spaces),
            },
            sentence=(
                f"version {manifest.version}: {manifest.rows} entities of {len(manifest.spaces)} "
                f"spaces, {result.changed} of them folded; "
                f"{len(manifest.files) - result.kept_files} files written, "
                f"{result.kept_files} kept"
            ),
        )


def _read_options(context: Context) -> ReadOptions:
    options = {
        "root": str(context.root),
        "table": STATE,
        "branch": context.options["branch"] or "",
        "at": context.options["at"] or "",
        "skip_bad": str(context.skip_bad).lower(),
    }
    return read_options(options)


def _since(bound: FileBound, known: Mapping[str, int], read: ReadOptions) -> int:
    """Return the seq after which a space is folded: 0 if it is new or went back, and on a branch
    with a parent, because a branch created since the last run contains older entities.
    """
    before = known.get(bound.space, 0)
    return 0 if read.branch or bound.seq < before else before


def _replaced(bounds: tuple[FileBound, ...], before: FolderManifest) -> set[str]:
    """Return the spaces whose file is not the one that the tables were built from."""
    return {
        bound.space
        for bound in bounds
        if before.file_ids.get(bound.space, bound.file_id) != bound.file_id
    }


def _origin(context: Context, read: ReadOptions) -> dict[str, Any]:
    return {"root": str(context.root), "branch": read.branch}


def _check_origin(before: FolderManifest | None, context: Context, read: ReadOptions) -> None:
    if before is not None and dict(before.origin) != _origin(context, read):
        raise Refused(
            f"the folder contains tables of {before.origin['root']}, "
            f"branch {before.origin['branch']!r}",
            hint="Choose another folder for another store or branch.",
        )
    if str(context.options["into"]).startswith(str(context.root / "spaces")):
        raise InvalidInput("the tables cannot be inside the folder of the spaces")


def _read(context: Context, bounds: tuple[FileBound, ...], read: ReadOptions) -> Any:
    source = context.spark.read.format("fourfold").option("root", str(context.root))
    source = source.option("table", STATE).option("cut", Cut(bounds).token())
    if read.branch:
        source = source.option("branch", read.branch)
    return source.load()


def _all(
    context: Context, read: ReadOptions, bounds: tuple[FileBound, ...], staging: Path
) -> list[File]:
    from fourfold.pipeline.jobs import state_files  # noqa: PLC0415 - it needs pyspark

    options = {"root": str(context.root), "table": STATE, "cut": Cut(bounds).token()}
    if read.branch:
        options["branch"] = read.branch
    return state_files.write(
        context.spark, options, staging / "written", staging / STATE, context.work
    )


def _merged(  # noqa: PLR0917
    context: Context,
    read: ReadOptions,
    bounds_: tuple[FileBound, ...],
    staging: Path,
    before: FolderManifest,
    plan: Plan,
) -> tuple[list[File], int, int]:
    """Return the files of the previous version, rewriting those with changed entities."""
    spark, table = context.spark, TableFolder(Path(plan.output)).table()
    key_ranges.write(_read(context, bounds_, read), staging / "changed")
    changed = spark.read.parquet(str(staging / "changed"))
    replaced = {range_.source for range_ in plan.ranges if range_.after == 0} | set(
        plan.facts["gone"]
    )
    bounds = key_ranges.range_bounds(before.files)
    dirty = key_ranges.find_touched(changed, bounds)
    dirty |= {at for at, file in enumerate(before.files) if _holds_one_of(file, replaced)}
    old_paths = [str(table / before.files[at].name) for at in sorted(dirty)]
    fresh: dict[int, list[Path]] = {}
    if old_paths:
        old = spark.read.schema(changed.schema).parquet(*old_paths)
        old = old.where(~old.space.isin(sorted(replaced))) if replaced else old
        fresh = key_ranges.write_merged(old, changed, bounds, staging / "merged")
    files: list[File] = []
    kept = 0
    (staging / STATE).mkdir(exist_ok=True)
    for at, file in enumerate(before.files):
        if at in dirty:
            files += _placed(fresh.get(at, []), staging, f"{context.work}-{at:05}")
        else:
            link_or_copy(table / file.name, staging / STATE / file.name)
            files.append(file)
            kept += 1
    if not files:
        files = _all(context, read, (), staging)
    rows = changed.count()
    for scratch in ("changed", "merged"):
        shutil.rmtree(staging / scratch, ignore_errors=True)
    return files, kept, rows


def _holds_one_of(file: File, spaces: set[str]) -> bool:
    if file.first is None or file.last is None:
        return True
    return any(file.first[0] <= space <= file.last[0] for space in spaces)


def _placed(paths: list[Path], staging: Path, label: str) -> list[File]:
    """Move the files to the table's folder under unique names."""
    folder = staging / STATE
    folder.mkdir(exist_ok=True)
    files = []
    for number, path in enumerate(paths):
        target = folder / f"{label[-24:]}-{number:05}.parquet"
        path.rename(target)
        files.append(key_ranges.describe(target))
    for path in {path.parent for path in paths} - {folder}:
        if path.parent == staging:
            shutil.rmtree(path)
    return files


def _write_variant(spark: Any, staging: Path) -> None:
    """Write the rows with their documents parsed and shredded: derived, fast to query."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    rows = spark.read.parquet(str(staging / STATE))
    with _settings(
        spark,
        {
            "spark.sql.variant.writeShredding.enabled": "true",
            "spark.sql.variant.inferShreddingSchema": "true",
        },
    ):
        parsed = rows.withColumn("document", f.parse_json("document"))
        parsed.write.option("compression", "zstd").parquet(str(staging / VARIANT))


class _settings:  # noqa: N801 - used as a statement
    """Spark settings for the duration of a block."""

    def __init__(self, spark: Any, values: Mapping[str, str]) -> None:
        self._spark = spark
        self._values = values
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for name, value in self._values.items():
            self._before[name] = self._spark.conf.get(name, None)
            self._spark.conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


def _delta_is_current(published: TableFolder, before: FolderManifest | None) -> bool:
    from fourfold.pipeline.jobs import delta_log  # noqa: PLC0415 - an optional dependency

    return before is not None and delta_log.version(published) == before.version


job = Materialize()
