"""The job `load`: load files or a DataFrame into spaces, or envelopes into graphs.

JSON lines and Parquet files are read by Spark, checked and staged by its tasks, and committed by
this process, each space in one transaction (see `fourfold.pipeline.documents.sink`). The job has a
name, by which each space detects rows that it has: repeating a load changes nothing, and a killed
load is completed by the next run. Envelopes are in `graphs.load`.

A row is a document (one of its fields is its id, and the whole row is the document), or an
operation with the fields `id`, `op`, `data`, and if needed `space` and `branch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold.errors import InvalidInput, NotFound, ReplayMismatch
from fourfold.models.documents import HISTORIES
from fourfold.pipeline.documents import json_lines, staging
from fourfold.pipeline.documents.ingest import ingest
from fourfold.pipeline.documents.staging import Batch, Shape, StagedFile
from fourfold.pipeline.jobs.job import (
    Context,
    Job,
    Option,
    Plan,
    Range,
    Report,
    SkippedFile,
    model_option,
    pluralize,
)
from fourfold.pipeline.jobs.runner import RunReport
from fourfold.pipeline.jobs.runner import run as run_job
from fourfold.pipeline.tables import DEFAULT_MODEL, load_part

_NDJSON: Final = (".ndjson", ".jsonl", ".json")
_FORMATS: Final = ("ndjson", "parquet")
_STAGED: Final = "staged"


class Load(Job):
    """Load files into spaces."""

    name = "load"
    summary = "Load JSON lines, Parquet files or a DataFrame into spaces."
    explanation = (
        "A row is a document, whose field `id` (or --id) is its id, or with --as operations "
        "a change: id, op (set, patch or delete), data, and if needed space and branch. "
        "Each space gets its rows in one transaction. Repeating a load changes nothing."
    )
    options = (
        model_option("load"),
        Option("from", "A file, or a folder of files, to load.", kind="path", many=True),
        Option("format", "Format of the files; default: by their names.", choices=_FORMATS),
        Option(
            "as", "The meaning of a row.", default="documents", choices=("documents", "operations")
        ),
        Option("space", "The DID of the space of all rows."),
        Option("space-from", "The field with the space of a document."),
        Option("id", "The field with the id of a document.", default="id"),
        Option("order", "The columns that order operations, separated by commas."),
        Option("history", "The kind of history of new spaces.", choices=tuple(HISTORIES)),
        Option("job", "The name of this load; default: derived from the files."),
    )

    def __init__(self, frame: Any = None) -> None:
        self._frame = frame

    def target(self, context: Context) -> str:
        """Return the name of the load."""
        return self._job_name(context)

    def plan(self, context: Context) -> Plan:
        """List the files to load."""
        options = context.options
        if _is_other(context):
            load_part(options["model"], "load").refuse_options(options)
        elif options["as"] == "documents" and (options["space"] is None) == (
            options["space_from"] is None
        ):
            raise InvalidInput("pass either --space or --space-from to load documents")
        ranges = () if self._frame is not None else tuple(map(_range, _files(options["from"])))
        done = self._is_done(context, ranges)
        return Plan(
            output=options["model"] if _is_other(context) else options["space"] or "spaces",
            ranges=ranges,
            facts={"job": self._job_name(context), "files": len(ranges)},
            empty=done,
        )

    def run(self, context: Context, plan: Plan) -> list[StagedFile] | str:
        """Check and stage the rows."""
        if _is_other(context):
            rows = _read_files(context.spark, plan, context.options)
            return str(load_part(context.options["model"], "load").staged(context, rows))
        saved = context.finished.get(_STAGED)
        if saved is not None:
            staged = msgspec.convert(saved, list[StagedFile])
            if all(Path(file.path).exists() for file in staged if file.path):
                return staged
        rows, shape = self._rows(context, plan)
        with context.spark_progress("staging"):
            collected = rows.mapInArrow(
                json_lines.StagingInto(shape, str(context.staging)), "staged binary"
            ).collect()
        staged = [msgspec.json.decode(bytes(row[0]), type=StagedFile) for row in collected]
        context.finish(_STAGED, msgspec.to_builtins(staged))
        return staged

    def commit(self, context: Context, plan: Plan, result: list[StagedFile] | str) -> Report:
        """Commit the staged rows."""
        del plan
        if isinstance(result, str):
            report: Report = load_part(context.options["model"], "load").commit(
                context, result, self._job_name(context)
            )
            return report
        batch = Batch(
            f"job:{self._job_name(context)}",
            history=context.options["history"],
            skip_bad=context.skip_bad,
        )
        ingested = ingest(context.root, result, batch, context.advance)
        context.skipped += [
            SkippedFile(f"row {row.row} of partition {row.partition}", str(row))
            for row in ingested.refused
        ]
        staged_rows = staging.count_rows(result)
        facts = {
            "job": self._job_name(context),
            "spaces": ingested.spaces,
            "commits": ingested.commits,
            "replayed": ingested.replayed,
            "refused": ingested.refused_rows,
        }
        already = f", {ingested.replayed} already had it" if ingested.replayed else ""
        return Report(
            rows_in=staged_rows["rows"] + staged_rows["refused"],
            rows_out=ingested.rows,
            facts=facts,
            sentence=f"{pluralize(ingested.rows, 'row')} into "
            f"{pluralize(ingested.spaces, 'space')}{already}"
            + (
                f"; {pluralize(ingested.refused_rows, 'bad row')} skipped"
                if ingested.refused_rows
                else ""
            ),
        )

    def _rows(self, context: Context, plan: Plan) -> tuple[Any, Shape]:
        """Return the rows as the sink expects them, and their shape."""
        options = context.options
        read = self._frame
        if read is None:
            read = _read_files(context.spark, plan, options)
        order = _order(read.columns, options)
        space = None
        if options["as"] == "documents":
            rows = _documents(read, options, order or ())
        elif _is_text(read):
            rows = read.mapInArrow(json_lines.Operations(options["space"]), json_lines.SCHEMA)
        else:
            unused = [name for name in json_lines.FILE_ORDER if name not in (order or ())]
            rows = read.drop(*unused) if self._frame is None else read
            space = options["space"]
        fields = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
        return rows, staging.shape_of(fields, space=space, order=order)

    def _job_name(self, context: Context) -> str:
        options = context.options
        if options["job"]:
            return str(options["job"])
        if self._frame is not None:
            raise InvalidInput("job is required to load a DataFrame")
        files = [_range(file) for file in _files(options["from"])]
        other_options = sorted(
            (key, str(value)) for key, value in options.items() if value is not None
        )
        digest = hashlib.sha256(msgspec.json.encode((files, other_options)))
        return f"load-{digest.hexdigest()[:16]}"

    def _is_done(self, context: Context, ranges: Sequence[Range]) -> bool:
        if not context.watermark or self._frame is not None:
            return False
        if dict(context.watermark) != {range_.source: range_.upto for range_ in ranges}:
            raise ReplayMismatch(
                f"load {self._job_name(context)!r} was done with other files",
                hint="Give this load another name: --job NAME.",
            )
        return True


def load(frame: Any, root: str | Path, *, job: str, **options: Any) -> RunReport:
    """Load a DataFrame into spaces of the store in `root`, once for each name `job`.

    Its rows are operations (`id`, `op`, `data`, ...) unless `as_="documents"`; then each is a
    document. The other options are those of the job: `space`, `id`, `order`, `history`, ...
    """
    job_options = {"as": options.pop("as_", "operations"), "job": job}
    control = {name: options.pop(name) for name in ("dry_run", "skip_bad") if name in options}
    spark = frame.sparkSession
    return run_job(Load(frame), root, {**job_options, **options}, spark=spark, **control)


def _is_other(context: Context) -> bool:
    return bool(context.options["model"] != DEFAULT_MODEL)


# Files


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


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _range(file: Path) -> Range:
    status = file.stat()
    return Range(f"{file}@{status.st_mtime_ns}", 0, status.st_size)


def _read_files(spark: Any, plan: Plan, options: Mapping[str, Any]) -> Any:
    files = [range_.source.rpartition("@")[0] for range_ in plan.ranges]
    kind = options["format"] or _kind_of(files)
    read = spark.read.format("text" if kind == "ndjson" else "parquet").load(files)
    return read.selectExpr(
        "*",
        "_metadata.file_path as _file",
        "_metadata.file_block_start as _block",
        "monotonically_increasing_id() as _line",
    )


def _kind_of(files: Sequence[str]) -> str:
    kinds = {
        "ndjson" if file.endswith(_NDJSON) else "parquet" if file.endswith(".parquet") else ""
        for file in files
    }
    if kinds - {""} != kinds or len(kinds) != 1:
        raise InvalidInput(
            "cannot infer one format from the file names",
            hint=f"Pass --format {' or '.join(_FORMATS)}.",
        )
    return kinds.pop()


# Rows


def _is_text(frame: Any) -> bool:
    return {"value", *json_lines.FILE_ORDER} == set(frame.columns)


def _order(columns: Sequence[str], options: Mapping[str, Any]) -> list[str] | None:
    """Return the order columns: those of the option, those of operations, or the position in the
    files; None leaves it to the sink.
    """
    from_files = set(json_lines.FILE_ORDER) <= set(columns)
    if options["order"]:
        if from_files and "value" in columns:
            raise InvalidInput("--order is not supported for JSON lines, which keep their order")
        return [name.strip() for name in options["order"].split(",")]
    has_order = options["as"] == "operations" and any(
        name in columns for name in staging.DEFAULT_ORDER
    )
    return list(json_lines.FILE_ORDER) if from_files and not has_order else None


def _documents(frame: Any, options: Mapping[str, Any], order: Sequence[str]) -> Any:
    """Return each row as a set operation."""
    if _is_text(frame):
        return frame.mapInArrow(
            json_lines.Documents(options["space"], options["space_from"], options["id"]),
            json_lines.SCHEMA,
        )
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the usual name

    own = [name for name in frame.columns if name not in json_lines.FILE_ORDER]
    for name in filter(None, (options["id"], options["space_from"])):
        if name not in own:
            raise InvalidInput(f"unknown column {name!r}", hint=f"Columns: {', '.join(own)}.")
    whole = F.struct(*[F.col(f"`{name}`") for name in own])
    space = options["space_from"]
    return frame.select(
        (F.col(f"`{space}`").cast("string") if space else F.lit(options["space"])).alias("space"),
        F.col(f"`{options['id']}`").cast("string").alias("id"),
        F.to_json(whole, {"ignoreNullFields": "false"}).alias("data"),
        *order,
    )


job: Final = Load()
