"""Materialize several tables of a model as Parquet, for models with a single file.

The result is a `TableFolder`, with a folder for each table. A run reads what is new since the last
one. Tables that only grow get new files beside the old ones; in the others, changed rows replace
those with the same key. If rows have disappeared, which a model signals by another `generation`,
everything is rewritten; so it always is if a model sets `WHOLE`, because new rows do not determine
which rows change.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput, Refused
from fourfold.pipeline.cut import Cut, read_cut
from fourfold.pipeline.jobs.job import Context, Plan, Range, Report
from fourfold.pipeline.jobs.table_folder import File, FolderManifest, TableFolder, link_or_copy
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.tables import load_part


class KeptTable(NamedTuple):
    """A materialized table and its key columns. If it `grows`, its rows never change."""

    name: str
    key: tuple[str, ...]
    grows: bool = False


class RefreshResult(msgspec.Struct, frozen=True):
    """A version that is ready to be published."""

    staging: str
    manifest: FolderManifest
    kept_files: int


def plan(context: Context) -> Plan:
    """Plan the new rows of each table since the last version."""
    for name in ("branch", "variant", "delta"):
        if context.options[name]:
            raise InvalidInput(
                f"option --{name} requires model 'documents', got {context.options['model']!r}"
            )
    model, read = _model(context), _read_options(context)
    published = TableFolder(Path(context.options["into"]).absolute())
    before = published.current()
    _check_origin(before, context)
    cut = read_cut(read)
    for bad in cut.bad:
        context.skip(bad.space, bad.problem)
    now = {bound.space: bound.seq for bound in cut.marks}
    generations = {bound.space: model.generation(bound) for bound in cut.marks}
    known = {} if before is None else dict(before.spaces)
    whole = (
        before is None
        or bool(context.options["full"])
        or dict(before.generations) != generations
        or any(
            before.file_ids.get(bound.space, bound.file_id) != bound.file_id for bound in cut.marks
        )
        or any(now.get(space, 0) < seq for space, seq in known.items())
        or (model.WHOLE and now != known)
    )
    ranges = tuple(
        Range(space, 0 if whole else known.get(space, 0), seq)
        for space, seq in now.items()
        if whole or known.get(space) != seq
    )
    return Plan(
        output=str(published.into),
        ranges=ranges,
        facts={
            "model": read.model,
            "full": whole,
            "tables": [table.name for table in model.TABLES],
            "generations": generations,
            "version": 1 if before is None else before.version + 1,
        },
        empty=before is not None and not ranges and not whole,
        bounds=cut.marks,
    )


def run(context: Context, plan: Plan) -> RefreshResult:
    """Write the tables of the new version to staging."""
    published = TableFolder(Path(plan.output))
    before = published.current()
    staging = published.staging(context.work)
    bounds = {bound.space: bound for bound in plan.bounds}
    selected = tuple(
        replace(bounds[range_.source], seq=range_.upto, since=range_.after)
        for range_ in plan.ranges
    )
    files: list[File] = []
    kept = 0
    for table in _model(context).TABLES:
        rows = _read(context, table, selected)
        with context.spark_progress(table.name):
            if before is None or plan.facts["full"]:
                table_files = written(rows.orderBy(*table.key), staging, table, context.work)
            else:
                table_files, linked = _joined(context, rows, staging, table, before, published)
                kept += linked
        files += table_files
    spaces = {} if before is None or plan.facts["full"] else dict(before.spaces)
    spaces.update({range_.source: range_.upto for range_ in plan.ranges})
    manifest = FolderManifest(
        version=plan.facts["version"],
        work=context.work,
        origin=_origin(context),
        spaces=spaces,
        files=tuple(files),
        tables=tuple(plan.facts["tables"]),
        generations=plan.facts["generations"],
        file_ids={bound.space: bound.file_id for bound in plan.bounds},
    )
    return RefreshResult(str(staging), manifest, kept)


def commit(context: Context, plan: Plan, result: RefreshResult) -> Report:
    """Publish the new version."""
    published = TableFolder(Path(plan.output))
    now = published.current()
    manifest = result.manifest
    if now is None or now.work != manifest.work:
        published.publish(Path(result.staging), manifest)
    rows = {
        table: sum(file.rows for file in manifest.files if file.name.startswith(f"{table}/"))
        for table in manifest.tables
    }
    noun = _model(context).NOUN
    return Report(
        rows_in=sum(range_.upto - range_.after for range_ in plan.ranges),
        rows_out=manifest.rows,
        output=plan.output,
        facts={
            "version": manifest.version,
            "rows": rows,
            "files": len(manifest.files),
            "files_kept": result.kept_files,
            "bytes": sum(file.bytes for file in manifest.files),
        },
        sentence=(
            f"version {manifest.version}: {rows[manifest.tables[0]]} {noun}s, "
            f"{manifest.rows} rows in {len(rows)} tables; "
            f"{len(manifest.files) - result.kept_files} files written, {result.kept_files} kept"
        ),
    )


def _model(context: Context) -> Any:
    return load_part(context.options["model"], "materialize")


def _read_options(context: Context) -> ReadOptions:
    return read_options(
        {
            "root": str(context.root),
            "model": context.options["model"],
            "table": _model(context).TABLES[0].name,
            "at": context.options["at"] or "",
            "skip_bad": str(context.skip_bad).lower(),
        }
    )


def _origin(context: Context) -> dict[str, Any]:
    return {"root": str(context.root), "model": context.options["model"]}


def _check_origin(before: FolderManifest | None, context: Context) -> None:
    if before is not None and dict(before.origin) != _origin(context):
        raise Refused(
            f"the folder contains tables of {before.origin['root']}, "
            f"model {before.origin.get('model', 'documents')!r}",
            hint="Choose another folder for another store or model.",
        )


def _read(context: Context, table: KeptTable, bounds: tuple[Any, ...]) -> Any:
    source = context.spark.read.format("fourfold").option("root", str(context.root))
    source = source.option("model", context.options["model"]).option("table", table.name)
    return source.option("cut", Cut(bounds).token()).load()


def _joined(  # noqa: PLR0917
    context: Context,
    rows: Any,
    staging: Path,
    table: KeptTable,
    before: FolderManifest,
    published: TableFolder,
) -> tuple[list[File], int]:
    """Return the previous table with the changes, and how many of its files are reused."""
    folder = published.table(table.name)
    old = [file for file in before.files if file.name.startswith(f"{table.name}/")]
    if table.grows and len(old) < limits.PUBLISHED_PARTS_MAX:
        fresh = written(rows.sortWithinPartitions(*table.key), staging, table, context.work)
        target = staging / table.name
        target.mkdir(exist_ok=True)
        for file in old:
            name = Path(file.name).name
            link_or_copy(folder / name, target / name)
        return [*old, *(file for file in fresh if file.rows)], len(old)
    paths = [str(folder / Path(file.name).name) for file in old]
    known = context.spark.read.schema(rows.schema).parquet(*paths)
    changed = rows.localCheckpoint() if not table.grows else rows
    if not table.grows:
        known = known.join(changed.select(*table.key), list(table.key), "left_anti")
    both = known.select(*rows.columns).unionByName(changed)
    return written(both.orderBy(*table.key), staging, table, context.work), 0


def written(rows: Any, staging: Path, table: KeptTable, work: str) -> list[File]:
    """Write the rows as files of the table with unique names."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    folder = staging / f"{table.name}-written"
    writer = rows.write.option("compression", "zstd")
    writer.option("maxRecordsPerFile", limits.PUBLISHED_FILE_ROWS).parquet(str(folder))
    target = staging / table.name
    target.mkdir(exist_ok=True)
    files = []
    for number, path in enumerate(sorted(folder.glob("*.parquet"))):
        name = f"{work[-24:]}-{number:05}.parquet"
        path.rename(target / name)
        count = pq.read_metadata(target / name).num_rows
        files.append(File(f"{table.name}/{name}", count, (target / name).stat().st_size))
    shutil.rmtree(folder)
    full = [file for file in files if file.rows]
    for file in files:
        # An empty file is kept only if no other file has the schema.
        if full and not file.rows:
            (staging / file.name).unlink()
    return full or files[:1]
