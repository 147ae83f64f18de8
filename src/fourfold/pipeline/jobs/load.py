"""The job `load`: load files or a DataFrame into a model.

Files are read by Spark, checked and staged by its tasks, and committed by this process through the
writer of the model. The job has a name, by which repeating a load changes nothing, and a killed
load is completed by the next run.

A model implements `Loader`; see `documents.load` and `graphs.load`.
"""

from __future__ import annotations

import csv
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from fourfold.errors import InvalidInput, NotFound, ReplayMismatch
from fourfold.models.documents import HISTORIES
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, model_option
from fourfold.pipeline.jobs.runner import RunReport
from fourfold.pipeline.jobs.runner import run as run_job
from fourfold.pipeline.models import DEFAULT_MODEL, get_loader
from fourfold.pipeline.reader import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NDJSON: Final = (".ndjson", ".jsonl", ".json")
_MALFORMED: Final = "MALFORMED_RECORD_IN_PARSING"
"""Spark's name of the error of a row of CSV that does not fit."""
_FORMATS: Final = ("ndjson", "parquet", "csv")


class Loader(ABC):
    """Interface of a model for loading rows."""

    accepts_frames: ClassVar[bool] = False
    """True if a DataFrame can be loaded, not only files."""

    @abstractmethod
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise InvalidInput for options that do not fit the model or each other."""

    @abstractmethod
    def output(self, options: Mapping[str, Any]) -> str:
        """Return what is written to, in words."""

    @abstractmethod
    def stage(self, context: Context, read: Callable[[], DataFrame]) -> Any:
        """Check and stage the rows that `read` returns; return what `commit` needs.

        Rows of JSON lines are in the column `value`; those of files have the columns `_file`,
        `_block` and `_line`, which order them.
        """

    @abstractmethod
    def commit(self, context: Context, staged: Any, job: str) -> Report:
        """Write what is staged, unless the load `job` has written it already."""


class Load(Job):
    """Load files into spaces."""

    name = "load"
    summary = "Load JSON lines, Parquet, CSV, a DataFrame or another archive into spaces."
    explanation = (
        "A row is a document, whose field `id` (or --id) is its id, or with --as operations "
        "a change: id, op (set, patch or delete), data, and if needed space and branch. "
        "Each space gets its rows in one transaction. Repeating a load changes nothing. "
        "CSV files have a header; their values are text unless --schema has other types. "
        "With --archive, the documents of all spaces of an archive are loaded, or those of --space."
    )
    options = (
        model_option("load"),
        Option("from", "A file, or a folder of files, to load.", kind="path", many=True),
        Option("format", "Format of the files; default: by their names.", choices=_FORMATS),
        Option("schema", "Columns of CSV files with their types, as in 'id string, n bigint'."),
        Option(
            "as", "The meaning of a row.", default="documents", choices=("documents", "operations")
        ),
        Option("space", "The DID of the space of all rows; of an archive, the one to load."),
        Option("space-from", "The field with the space of a document."),
        Option("id", "The field with the id of a document.", default="id"),
        Option("order", "The columns that order operations, separated by commas."),
        Option("history", "The kind of history of new spaces.", choices=tuple(HISTORIES)),
        Option("archive", "URL of an archive, of which documents are loaded.", kind="address"),
        Option("at", "A restore point of the archive, or a time; default: the newest point."),
        Option("job", "The name of this load; default: derived from the files."),
    )

    def __init__(self, frame: DataFrame | None = None) -> None:
        self._frame = frame

    def target(self, context: Context) -> str:
        """Return the name of the load."""
        return self._job_name(context, self._ranges(context))

    def plan(self, context: Context) -> Plan:
        """List the files to load."""
        options, loader = context.options, _loader(context)
        if self._frame is not None and not loader.accepts_frames:
            raise InvalidInput(
                f"the model {options['model']!r} is loaded from files, got a DataFrame"
            )
        if not options["archive"]:
            loader.check_options(options)
        ranges = self._ranges(context)
        if options["schema"] is not None and _format(options, ranges) != "csv":
            raise InvalidInput("option schema is for CSV files")
        name = self._job_name(context, ranges)
        return Plan(
            output=loader.output(options),
            ranges=ranges,
            facts={"job": name, "files": len(ranges)},
            empty=self._is_done(context, name, ranges),
        )

    def run(self, context: Context, plan: Plan) -> Any:
        """Check and stage the rows."""

        options = context.options

        def read() -> DataFrame:
            if self._frame is not None:
                return self._frame
            if options["archive"]:
                return _read_archive(context.spark, plan, options)
            return _read_files(context.spark, plan, options)

        if options["archive"]:
            # Its rows are operations, each with its space. Both contexts have one session.
            context.spark  # noqa: B018
            context = replace(context, options={**options, "as": "operations", "space": None})
        try:
            return _loader(context).stage(context, read)
        except Exception as error:
            if _MALFORMED not in str(error):
                raise
            raise InvalidInput(
                "a row of the CSV files does not have the columns and types of the schema",
                hint="Load the column as string, or correct the file.",
            ) from error

    def commit(self, context: Context, plan: Plan, result: Any) -> Report:
        """Write the staged rows."""
        # The name of the plan: the files may have changed since, and with them the default name.
        return _loader(context).commit(context, result, plan.facts["job"])

    def _ranges(self, context: Context) -> tuple[Range, ...]:
        """Return the files as inputs, each with its time and size."""
        if self._frame is not None:
            return ()
        if context.options["archive"]:
            _check_archive_options(context.options)
            return (_archive_range(context.options),)
        if context.options["at"]:
            raise InvalidInput("option --at requires --archive")
        return tuple(map(_range, _files(context.options["from"])))

    def _job_name(self, context: Context, files: Sequence[Range]) -> str:
        options = context.options
        if options["job"]:
            return str(options["job"])
        if self._frame is not None:
            raise InvalidInput("job is required to load a DataFrame")
        other_options = sorted(
            (key, str(value)) for key, value in options.items() if value is not None
        )
        digest = hashlib.sha256(msgspec.json.encode((files, other_options)))
        return f"load-{digest.hexdigest()[:16]}"

    def _is_done(self, context: Context, name: str, ranges: Sequence[Range]) -> bool:
        if not context.watermark or self._frame is not None:
            return False
        if dict(context.watermark) != {range_.source: range_.upto for range_ in ranges}:
            raise ReplayMismatch(
                f"load {name!r} was done with other files",
                hint="Give this load another name: --job NAME.",
            )
        return True


def load(frame: DataFrame, root: str | Path, *, job: str, **options: Any) -> RunReport:
    """Load a DataFrame into spaces of the store in `root`, once for each name `job`.

    Its rows are operations (`id`, `op`, `data`, ...) unless `as_="documents"`; then each is a
    document. The other options are those of the job: `space`, `id`, `order`, `history`, ...
    """
    job_options = {"as": options.pop("as_", "operations"), "job": job}
    control = {name: options.pop(name) for name in ("dry_run", "skip_bad") if name in options}
    spark = frame.sparkSession
    return run_job(Load(frame), root, {**job_options, **options}, spark=spark, **control)


def _loader(context: Context) -> Loader:
    return get_loader(context.options["model"])


def _files(sources: Sequence[Any]) -> list[Path]:
    """Return the files to load, sorted by name; hidden files in folders (beginning with a dot or an
    underscore) are ignored.
    """
    if not sources:
        raise InvalidInput("job 'load': option --from is required")
    files: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            files += [
                path
                for path in source.rglob("*")
                if path.is_file() and not _is_hidden(path.relative_to(source))
            ]
        elif source.exists():
            files.append(source)
        else:
            raise NotFound(f"{source}: file or folder does not exist")
    if not files:
        raise NotFound(f"{', '.join(map(str, sources))}: no files to load")
    return sorted({path.absolute() for path in files})


def _check_archive_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidInput for options that do not fit the load of an archive."""
    if options["model"] != DEFAULT_MODEL:
        raise InvalidInput(
            f"option --archive requires model {DEFAULT_MODEL!r}, got {options['model']!r}"
        )
    for name in ("from", "format", "schema", "space_from", "order"):
        if options[name]:
            raise InvalidInput(f"option --{name.replace('_', '-')} is for files, not for --archive")


def _archive_range(options: Mapping[str, Any]) -> Range:
    """Return the point of the archive that is loaded."""
    from fourfold.pipeline.archive_roots import find_point  # noqa: PLC0415 - it needs the kernel

    url = str(options["archive"])
    if "://" not in url:
        url = str(Path(url).absolute())
    point = find_point(url, options["at"])
    return Range(f"{url}@{point.id}", 0, point.version)


def _read_archive(spark: Any, plan: Plan, options: Mapping[str, Any]) -> DataFrame:
    """Return the documents of an archive at a point, as operations."""
    [(url, _, point)] = [range_.source.rpartition("@") for range_ in plan.ranges]
    rows = read(spark, url=url, at=point, space=options["space"], table="state")
    return rows.where("op <> 'delete'").selectExpr("space", "id", "'set' as op", "document as data")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _range(file: Path) -> Range:
    status = file.stat()
    return Range(f"{file}@{status.st_mtime_ns}", 0, status.st_size)


def _names(ranges: Sequence[Range]) -> list[str]:
    return [range_.source.rpartition("@")[0] for range_ in ranges]


def _format(options: Mapping[str, Any], ranges: Sequence[Range]) -> str:
    """Return the format of the files, by their names unless an option names it."""
    return str(options["format"] or _kind_of(_names(ranges)))


def _read_files(spark: Any, plan: Plan, options: Mapping[str, Any]) -> DataFrame:
    files = _names(plan.ranges)
    kind = _format(options, plan.ranges)
    rows = _read_csv(spark, files, options["schema"]) if kind == "csv" else None
    if rows is None:
        rows = spark.read.format("text" if kind == "ndjson" else "parquet").load(files)
    return rows.selectExpr(
        "*",
        "_metadata.file_path as _file",
        "_metadata.file_block_start as _block",
        "monotonically_increasing_id() as _line",
    )


def _read_csv(spark: Any, files: Sequence[str], schema: str | None) -> DataFrame:
    """Read CSV files, all with the same header; a row that does not fit fails the load."""
    names = _header(files[0])
    if schema is None:
        schema = ", ".join("`{}` string".format(name.replace("`", "``")) for name in names)
    rows: DataFrame = (
        spark.read.schema(schema)
        .options(header="true", mode="FAILFAST", multiLine="true", escape='"', encoding="UTF-8")
        .csv(list(files))
    )
    for file in files:
        if _header(file) != rows.columns:
            raise InvalidInput(
                f"{file}: expected the columns {', '.join(rows.columns)}, "
                f"got {', '.join(_header(file))}"
            )
    return rows


def _header(file: str) -> list[str]:
    """Return the names of the columns of a CSV file."""
    with Path(file).open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    if not names or len(set(names)) < len(names) or not all(names):
        raise InvalidInput(
            f"{file}: the first line must be distinct names of columns, got {names}",
            hint="Write the names of the columns into the first line.",
        )
    return names


def _kind_of(files: Sequence[str]) -> str:
    suffixes = {**dict.fromkeys(_NDJSON, "ndjson"), ".parquet": "parquet", ".csv": "csv"}
    kinds = {suffixes.get(Path(file).suffix, "") for file in files}
    if kinds - {""} != kinds or len(kinds) != 1:
        raise InvalidInput(
            "cannot infer one format from the file names",
            hint=f"Pass --format {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.",
        )
    return kinds.pop()


job: Final = Load()
