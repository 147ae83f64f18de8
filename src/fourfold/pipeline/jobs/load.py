"""`load`: files, or any DataFrame, into spaces; or envelopes into graphs (see `graphs.loading`).

Lines of JSON and Parquet files are read by Spark, checked and staged by its tasks, and committed by
this process, each space in one transaction (see `fourfold.pipeline.documents.sink`). The job has a
name, by which each space knows what it has: loading the same again changes nothing, and a load that
was killed is completed by the next run.

A row is a document (then one of its fields is its id, and the whole row is the document), or an
operation with the fields `id`, `op`, `data`, and where needed `space` and `branch`.
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
from fourfold.pipeline.documents.sink import ingest
from fourfold.pipeline.documents.staging import Batch, Shape, StagedFile
from fourfold.pipeline.jobs.job import (
    Context,
    Job,
    Option,
    Plan,
    Range,
    Report,
    SkippedFile,
    counted,
    model_option,
)
from fourfold.pipeline.jobs.runner import RunReport
from fourfold.pipeline.jobs.runner import run as run_job
from fourfold.pipeline.tables import DEFAULT_MODEL, load_part

_NDJSON: Final = (".ndjson", ".jsonl", ".json")
_FORMATS: Final = ("ndjson", "parquet")
_STAGED: Final = "staged"


class Load(Job):
    """Bring files into spaces."""

    name = "load"
    summary = "Load lines of JSON, Parquet files or a DataFrame into spaces."
    explanation = (
        "A row is a document, whose field `id` (or --id) is its id, or with --as operations "
        "a change: id, op (set, patch or delete), data, and where needed space and branch. "
        "Each space gets its rows in one transaction. The same load again changes nothing."
    )
    options = (
        model_option("load"),
        Option("from", "A file, or a folder of files, to load.", kind="path", many=True),
        Option("format", "Of the files; by their names if not given.", choices=_FORMATS),
        Option("as", "What a row is.", default="documents", choices=("documents", "operations")),
        Option("space", "The DID of the space that all rows go to."),
        Option("space-from", "The field that says the space of a document."),
        Option("id", "The field of a document that is its id.", default="id"),
        Option("order", "The columns that say the order of operations, separated by commas."),
        Option("history", "How a new space keeps its history.", choices=tuple(HISTORIES)),
        Option("job", "The name of this load; made from the files if not given."),
    )

    def __init__(self, frame: Any = None) -> None:
        self._frame = frame

    def target(self, context: Context) -> str:
        return self._job_name(context)

    def plan(self, context: Context) -> Plan:
        options = context.options
        if _is_other(context):
            load_part(options["model"], "load").refuse_options(options)
        elif options["as"] == "documents" and (options["space"] is None) == (
            options["space_from"] is None
        ):
            raise InvalidInput("a load of documents needs --space or --space-from, and not both")
        ranges = () if self._frame is not None else tuple(map(_range, _files(options["from"])))
        done = self._is_done(context, ranges)
        return Plan(
            output=options["model"] if _is_other(context) else options["space"] or "spaces",
            ranges=ranges,
            facts={"job": self._job_name(context), "files": len(ranges)},
            empty=done,
        )

    def run(self, context: Context, plan: Plan) -> list[StagedFile] | str:
        if _is_other(context):
            rows = _read_files(context.spark, plan, context.options)
            return str(load_part(context.options["model"], "load").staged(context, rows))
        kept = context.finished.get(_STAGED)
        if kept is not None:
            staged = msgspec.convert(kept, list[StagedFile])
            if all(Path(each.path).exists() for each in staged if each.path):
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
        del plan
        if isinstance(result, str):
            done: Report = load_part(context.options["model"], "load").commit(
                context, result, self._job_name(context)
            )
            return done
        batch = Batch(
            f"job:{self._job_name(context)}",
            history=context.options["history"],
            skip_bad=context.skip_bad,
        )
        taken = ingest(context.root, result, batch, context.advance)
        context.skipped += [
            SkippedFile(f"row {each.row} of partition {each.partition}", str(each))
            for each in taken.refused
        ]
        found = staging.count_rows(result)
        facts = {
            "job": self._job_name(context),
            "spaces": taken.spaces,
            "commits": taken.commits,
            "replayed": taken.replayed,
            "refused": taken.refused_rows,
        }
        already = f", {taken.replayed} had it already" if taken.replayed else ""
        return Report(
            rows_in=found["rows"] + found["refused"],
            rows_out=taken.rows,
            facts=facts,
            sentence=f"{counted(taken.rows, 'row')} into {counted(taken.spaces, 'space')}{already}"
            + (
                f"; {counted(taken.refused_rows, 'bad row')} left out" if taken.refused_rows else ""
            ),
        )

    def _rows(self, context: Context, plan: Plan) -> tuple[Any, Shape]:
        """The rows in the shape of the sink, and that shape."""
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
            raise InvalidInput("the load of a DataFrame needs a name: job=...")
        known = [_range(file) for file in _files(options["from"])]
        rest = sorted((key, str(value)) for key, value in options.items() if value is not None)
        digest = hashlib.sha256(msgspec.json.encode((known, rest)))
        return f"load-{digest.hexdigest()[:16]}"

    def _is_done(self, context: Context, ranges: Sequence[Range]) -> bool:
        if not context.watermark or self._frame is not None:
            return False
        if dict(context.watermark) != {each.source: each.upto for each in ranges}:
            raise ReplayMismatch(
                f"the load {self._job_name(context)!r} was done with other files",
                hint="Give this load a name of its own: --job NAME.",
            )
        return True


def load(frame: Any, root: str | Path, *, job: str, **options: Any) -> RunReport:
    """Load a DataFrame into spaces of the store in `root`, once under the name `job`.

    Its rows are operations (`id`, `op`, `data`, ...) unless `as_="documents"`, then each is a
    document. The other options are those of the job: `space`, `id`, `order`, `history`, ...
    """
    given = {"as": options.pop("as_", "operations"), "job": job}
    control = {name: options.pop(name) for name in ("dry_run", "skip_bad") if name in options}
    spark = frame.sparkSession
    return run_job(Load(frame), root, {**given, **options}, spark=spark, **control)


def _is_other(context: Context) -> bool:
    return bool(context.options["model"] != DEFAULT_MODEL)


# Files


def _files(given: Sequence[Any]) -> list[Path]:
    """The files to load, in the order of their names; those in folders that begin with a dot or an
    underscore are somebody's notes.
    """
    if not given:
        raise InvalidInput("the job 'load' needs --from: A file, or a folder of files, to load.")
    found: list[Path] = []
    for each in map(Path, given):
        if each.is_dir():
            found += [
                path
                for path in each.rglob("*")
                if path.is_file() and not _is_hidden(path.relative_to(each))
            ]
        elif each.exists():
            found.append(each)
        else:
            raise NotFound(f"{each}: there is no such file or folder")
    if not found:
        raise NotFound(f"{', '.join(map(str, given))}: there is no file to load")
    return sorted({path.absolute() for path in found})


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _range(file: Path) -> Range:
    found = file.stat()
    return Range(f"{file}@{found.st_mtime_ns}", 0, found.st_size)


def _read_files(spark: Any, plan: Plan, options: Mapping[str, Any]) -> Any:
    files = [each.source.rpartition("@")[0] for each in plan.ranges]
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
            "the names of the files do not say one format",
            hint=f"Give --format {' or '.join(_FORMATS)}.",
        )
    return kinds.pop()


# Rows


def _is_text(frame: Any) -> bool:
    return {"value", *json_lines.FILE_ORDER} == set(frame.columns)


def _order(columns: Sequence[str], options: Mapping[str, Any]) -> list[str] | None:
    """The columns that say the order: those asked for, those that operations have for it, or the
    place in the files. None leaves it to the sink.
    """
    from_files = set(json_lines.FILE_ORDER) <= set(columns)
    if options["order"]:
        if from_files and "value" in columns:
            raise InvalidInput("lines of JSON go in by their order in the files: leave out --order")
        return [name.strip() for name in options["order"].split(",")]
    say_it = options["as"] == "operations" and any(
        name in columns for name in staging.DEFAULT_ORDER
    )
    return list(json_lines.FILE_ORDER) if from_files and not say_it else None


def _documents(frame: Any, options: Mapping[str, Any], order: Sequence[str]) -> Any:
    """Each row as the setting of a document."""
    if _is_text(frame):
        return frame.mapInArrow(
            json_lines.Documents(options["space"], options["space_from"], options["id"]),
            json_lines.SCHEMA,
        )
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the usual name

    own = [name for name in frame.columns if name not in json_lines.FILE_ORDER]
    for name in filter(None, (options["id"], options["space_from"])):
        if name not in own:
            raise InvalidInput(f"the rows have no column {name!r}", hint=f"They have: {own}.")
    whole = F.struct(*[F.col(f"`{name}`") for name in own])
    space = options["space_from"]
    return frame.select(
        (F.col(f"`{space}`").cast("string") if space else F.lit(options["space"])).alias("space"),
        F.col(f"`{options['id']}`").cast("string").alias("id"),
        F.to_json(whole, {"ignoreNullFields": "false"}).alias("data"),
        *order,
    )


job: Final = Load()
