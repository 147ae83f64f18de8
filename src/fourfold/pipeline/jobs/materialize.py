"""The job `materialize`: the state of a model as Parquet tables.

The result is a `TableFolder`. A run folds what changed since the last version and keeps the files
that are still right. The position of each input is in the manifest beside the tables, so that the
two always agree.

A model implements `Materializer`: what changed, and how the files of a version are written. Models
with a single file use `FileTables`; documents, which may have many spaces, have their own.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from fourfold.errors import InvalidInput, Refused
from fourfold.pipeline.cut import Cut, FileBound, read_cut
from fourfold.pipeline.jobs.job import (
    Context,
    Job,
    Option,
    Plan,
    Range,
    Report,
    model_option,
    pluralize,
)
from fourfold.pipeline.jobs.table_folder import FolderTable, TableFolder, link_or_copy, write_table
from fourfold.pipeline.jobs.table_objects import TableObjects
from fourfold.pipeline.models import get_materializer, model_tables
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame
from fourfold.store.layout import pipeline_folder
from fourfold.store.table_manifest import FolderManifest, MaterializedFile

UPLOADED: Final = "tables"
"""Folder in the scratch folder of a store, of the versions that tables at URLs continue."""
MATERIALIZED_PARTS_MAX: Final = 64
"""Maximum files of a table that only grows; with more it is rewritten."""

_OF_SOME_MODELS = ("roots", "branch", "variant", "delta")
"""Options that a model has to support."""


class Changes(NamedTuple):
    """The difference between a cut and the previous version of the tables."""

    ranges: tuple[Range, ...]
    full: bool
    """Write everything again, without the previous version."""
    gone: tuple[str, ...] = ()
    """Spaces of the previous version that do not exist any more."""
    generations: Mapping[str, int] = {}


class Version(NamedTuple):
    """The version that a run writes to `staging`, based on `before` unless that is None."""

    context: Context
    cut: Cut
    """What to read: each changed file after the position of the previous version."""
    staging: Path
    folder: TableFolder
    before: FolderManifest | None
    tables: tuple[str, ...]
    gone: tuple[str, ...]


class WrittenFiles(NamedTuple):
    """The files of a version: how many of them are reused, and how many rows were folded."""

    files: list[MaterializedFile]
    kept: int
    changed: int = 0


class MaterializeResult(msgspec.Struct, frozen=True):
    """A staged version."""

    staging: str
    manifest: FolderManifest
    kept_files: int
    changed: int


class Materializer(ABC):
    """Interface of a model for materializing it."""

    options: ClassVar[tuple[str, ...]] = ()
    """Options of the job that this model supports, of those that not every model does."""

    @abstractmethod
    def tables(self, context: Context) -> tuple[str, ...]:
        """Return the names of the tables; the options of the first define the cut."""

    @abstractmethod
    def compare(self, context: Context, cut: Cut, before: FolderManifest | None) -> Changes:
        """Compare a cut with the previous version."""

    @abstractmethod
    def write(self, version: Version) -> WrittenFiles:
        """Write the files of a version to its staging folder."""

    @abstractmethod
    def summarize(self, result: MaterializeResult) -> tuple[dict[str, Any], str]:
        """Return the model's own figures of a version, and what it contains in words."""

    def origin(self, context: Context) -> dict[str, Any]:
        """Return what identifies the origin of the tables."""
        return {"root": str(context.root), "model": context.options["model"]}

    def stores(self, context: Context) -> dict[str, str]:
        """Return the option of a read that names the store or the stores."""
        roots = context.options["roots"]
        return {"roots": str(roots)} if roots else {"root": str(context.root)}

    def is_complete(self, context: Context, folder: TableFolder, before: FolderManifest) -> bool:
        """Return False if something besides the tables is missing from the current version."""
        del context, folder, before
        return True

    def after_commit(self, context: Context, folder: TableFolder, manifest: FolderManifest) -> None:
        """Write what is derived from a version, after it became current."""
        del context, folder, manifest


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
        Option(
            "into",
            "The folder of the tables, or a URL, where they are Delta tables.",
            kind="address",
            required=True,
        ),
        Option("roots", "Materialize the stores that match this pattern instead of ROOT."),
        Option("branch", "The branch; * for all branches.", default=""),
        Option("at", "A seq or a time, instead of now."),
        Option(
            "variant", "Also write a table with the documents as shredded VARIANT.", kind="flag"
        ),
        Option("delta", "Also write a Delta log over the same files.", kind="flag"),
        Option("full", "Fold everything again.", kind="flag"),
    )

    def target(self, context: Context) -> str:
        """Return the folder or the URL of the tables."""
        into = str(context.options["into"])
        return into if _is_url(into) else str(Path(into).absolute())

    def _folder(self, context: Context) -> TableFolder:
        """Return the folder that runs continue: that of the store for tables at a URL."""
        target = self.target(context)
        if not _is_url(target):
            return TableFolder(Path(target))
        name = hashlib.sha256(target.encode()).hexdigest()[:24]
        return TableFolder(pipeline_folder(context.root) / UPLOADED / name)

    def plan(self, context: Context) -> Plan:
        """Compare the cut with the current version."""
        model = _materializer(context)
        _check_options(context, model)
        folder, url = self._folder(context), self.target(context)
        before = folder.current()
        _check_origin(before, context, model)
        tables = model.tables(context)
        if _is_url(url):
            with TableObjects(url) as objects:
                objects.check(tables, model.origin(context))
        cut = _read_cut(context, tables[0])
        _check_spaces(cut)
        for bad in cut.bad:
            context.skip(bad.space, bad.problem)
        changes = model.compare(context, cut, before)
        up_to_date = (
            before is not None
            and not (changes.full or changes.ranges or changes.gone)
            and before.tables == tables
            and model.is_complete(context, folder, before)
            and _is_uploaded(url, before)
        )
        return Plan(
            output=url,
            ranges=changes.ranges,
            facts={
                "model": context.options["model"],
                "branch": context.options["branch"] or "",
                "full": changes.full,
                "gone": list(changes.gone),
                "generations": changes.generations,
                "tables": list(tables),
                "version": 1 if before is None else before.version + 1,
            },
            empty=up_to_date,
            cut=cut,
        )

    def run(self, context: Context, plan: Plan) -> MaterializeResult:
        """Write the new version to staging."""
        model, facts = _materializer(context), plan.facts
        folder = self._folder(context)
        before = None if facts["full"] else folder.current()
        staging = folder.staging(context.work)
        cut = Cut(_changed_bounds(plan))
        tables, gone = tuple(facts["tables"]), tuple(facts["gone"])
        written = model.write(Version(context, cut, staging, folder, before, tables, gone))
        positions = {} if before is None else dict(before.spaces)
        positions |= {range_.source: range_.upto for range_ in plan.ranges}
        file_ids = {} if before is None else dict(before.file_ids)
        file_ids |= {bound.space: bound.file_id for bound in plan.cut.bounds}
        manifest = FolderManifest(
            version=facts["version"],
            work=context.work,
            origin=model.origin(context),
            spaces={space: seq for space, seq in positions.items() if space not in gone},
            files=tuple(written.files),
            tables=tables,
            generations=facts["generations"],
            file_ids={
                space: id_
                for space, id_ in file_ids.items()
                if space in positions and space not in gone
            },
        )
        return MaterializeResult(str(staging), manifest, written.kept, written.changed)

    def commit(self, context: Context, plan: Plan, result: MaterializeResult) -> Report:
        """Make the new version current."""
        model, manifest = _materializer(context), result.manifest
        folder = self._folder(context)
        current = folder.current()
        if current is None or current.work != manifest.work:
            folder.replace(Path(result.staging), manifest)
        if _is_url(plan.output):
            with TableObjects(plan.output) as objects:
                objects.upload(folder, manifest)
        model.after_commit(context, folder, manifest)
        figures, contents = model.summarize(result)
        written = len(manifest.files) - result.kept_files
        return Report(
            rows_in=sum(range_.upto - range_.after for range_ in plan.ranges),
            rows_out=manifest.rows,
            output=plan.output,
            facts={
                "version": manifest.version,
                **figures,
                "files": len(manifest.files),
                "files_kept": result.kept_files,
                "bytes": sum(file.bytes for file in manifest.files),
            },
            sentence=(
                f"version {manifest.version}: {contents}; "
                f"{pluralize(written, 'file')} written, {result.kept_files} kept"
            ),
        )


def _materializer(context: Context) -> Materializer:
    return get_materializer(context.options["model"])


def _check_options(context: Context, model: Materializer) -> None:
    options = context.options
    for name in _OF_SOME_MODELS:
        if options[name] and name not in model.options:
            raise InvalidInput(
                f"option --{name} requires model 'documents', got {options['model']!r}"
            )
    if _is_url(str(options["into"])):
        for name in ("variant", "delta"):
            if options[name]:
                raise InvalidInput(
                    f"option --{name} requires a folder, got {options['into']!r}",
                    hint="Tables at a URL are Delta tables anyway.",
                )
        return
    own = context.root / model_tables(options["model"]).folder
    if Path(options["into"]).absolute().is_relative_to(own):
        raise InvalidInput(
            f"the tables must be outside the folder of the model, got {options['into']}",
            hint="Choose a folder outside the store.",
        )


def _is_url(text: str) -> bool:
    return "://" in text


def _is_uploaded(target: str, manifest: FolderManifest) -> bool:
    """Return True unless the tables are at a URL that does not have this version."""
    if not _is_url(target):
        return True
    with TableObjects(target) as objects:
        return objects.is_current(manifest)


def _check_origin(before: FolderManifest | None, context: Context, model: Materializer) -> None:
    if before is not None and dict(before.origin) != model.origin(context):
        origin = ", ".join(f"{name} {value!r}" for name, value in before.origin.items())
        raise Refused(
            f"{context.options['into']}: contains tables of {origin}",
            hint="Choose another folder for another store, model or branch.",
        )


def _read_cut(context: Context, table: str) -> Cut:
    options = {
        **_materializer(context).stores(context),
        "model": context.options["model"],
        "table": table,
        "at": context.options["at"] or "",
        "skip_bad": str(context.skip_bad).lower(),
    }
    if context.options["branch"]:
        options["branch"] = context.options["branch"]
    return read_cut(read_options(options))


def _check_spaces(cut: Cut) -> None:
    """Raise InvalidInput if two stores have the same space: its rows would be one table's."""
    found: dict[str, str] = {}
    for bound in cut.bounds:
        other = found.setdefault(bound.space, bound.root)
        if other != bound.root:
            raise InvalidInput(
                f"space {bound.space} is in two stores: {other} and {bound.root}",
                hint="Choose stores with different spaces, or another folder for each store.",
            )


def _changed_bounds(plan: Plan) -> tuple[FileBound, ...]:
    """Return the bounds of the changed inputs, after what the previous version has of them."""
    bounds = {bound.space: bound for bound in plan.cut.bounds}
    return tuple(replace(bounds[range_.source], since=range_.after) for range_ in plan.ranges)


@dataclass(frozen=True)
class FileTables(Materializer):
    """Materializes several tables of a model whose data is in a single file.

    A run reads what is new since the last one. Tables that only grow get new files beside the old
    ones; in the others, changed rows replace those with the same key. If rows have disappeared,
    which another `generation` signals, everything is written again; so it always is with
    `rewritten`, because new rows do not determine which rows change.
    """

    contents: tuple[FolderTable, ...]
    noun: str
    """What a row of the first table is."""
    generation: Callable[[FileBound], int]
    """Returns a number that changes when rows disappear, or appear without a new position."""
    rewritten: bool = False

    def tables(self, context: Context) -> tuple[str, ...]:
        """Return the names of the tables."""
        del context
        return tuple(table.name for table in self.contents)

    def compare(self, context: Context, cut: Cut, before: FolderManifest | None) -> Changes:
        """Compare a cut with the previous version."""
        positions = {bound.space: bound.seq for bound in cut.bounds}
        generations = {bound.space: self.generation(bound) for bound in cut.bounds}
        known = {} if before is None else dict(before.spaces)
        full = (
            before is None
            or bool(context.options["full"])
            or dict(before.generations) != generations
            or any(
                before.file_ids.get(bound.space, bound.file_id) != bound.file_id
                for bound in cut.bounds
            )
            or any(positions.get(space, 0) < seq for space, seq in known.items())
            or (self.rewritten and positions != known)
        )
        ranges = tuple(
            Range(space, 0 if full else known.get(space, 0), seq)
            for space, seq in positions.items()
            if full or known.get(space) != seq
        )
        return Changes(ranges, full, generations=generations)

    def write(self, version: Version) -> WrittenFiles:
        """Write the tables, reusing files of those that only grow."""
        context, before = version.context, version.before
        files: list[MaterializedFile] = []
        kept = 0
        for table in self.contents:
            rows = _read_table(context, table, version.cut)
            with context.spark_progress(table.name):
                if before is None:
                    rows = rows.orderBy(*table.key)
                    files += write_table(rows, version.staging, table, context.work)
                else:
                    table_files, reused = _merge_table(version, before, table, rows)
                    files += table_files
                    kept += reused
        return WrittenFiles(files, kept)

    def summarize(self, result: MaterializeResult) -> tuple[dict[str, Any], str]:
        """Return the rows of each table."""
        manifest = result.manifest
        rows = {
            table: sum(file.rows for file in manifest.files if file.name.startswith(f"{table}/"))
            for table in manifest.tables
        }
        first = rows[manifest.tables[0]]
        contents = f"{first} {self.noun}s, {manifest.rows} rows in {len(rows)} tables"
        return {"rows": rows}, contents


def _read_table(context: Context, table: FolderTable, cut: Cut) -> Any:
    options = {
        "root": str(context.root),
        "model": context.options["model"],
        "table": table.name,
    }
    return frame(context.spark, options, cut)


def _merge_table(
    version: Version, before: FolderManifest, table: FolderTable, rows: Any
) -> tuple[list[MaterializedFile], int]:
    """Return the previous table with the changes, and how many of its files are reused."""
    context, staging = version.context, version.staging
    folder = version.folder.table(table.name)
    old = [file for file in before.files if file.name.startswith(f"{table.name}/")]
    if table.grows and len(old) < MATERIALIZED_PARTS_MAX:
        fresh = write_table(rows.sortWithinPartitions(*table.key), staging, table, context.work)
        for file in old:
            name = Path(file.name).name
            link_or_copy(folder / name, staging / table.name / name)
        return [*old, *(file for file in fresh if file.rows)], len(old)
    paths = [str(folder / Path(file.name).name) for file in old]
    known = context.spark.read.schema(rows.schema).parquet(*paths)
    changed = rows
    if not table.grows:
        changed = rows.localCheckpoint()
        known = known.join(changed.select(*table.key), list(table.key), "left_anti")
    both = known.select(*rows.columns).unionByName(changed)
    return write_table(both.orderBy(*table.key), staging, table, context.work), 0


job = Materialize()
