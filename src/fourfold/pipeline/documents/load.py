"""Load JSON lines, Parquet files or a DataFrame into spaces.

A row is a document (one of its fields is its id, and the whole row is the document), or an
operation with the fields `id`, `op`, `data`, and if needed `space` and `branch`. Each space gets
its rows in one transaction (see `sink`), and detects by the name of the load what it already has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.documents import json_lines, staging
from fourfold.pipeline.documents.ingest import ingest
from fourfold.pipeline.documents.staging import Batch, ColumnRoles, StagedFile
from fourfold.pipeline.jobs.job import Context, Report, SkippedFile, pluralize
from fourfold.pipeline.jobs.load import Loader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGED: Final = "staged"


class DocumentsLoader(Loader):
    """Loads documents or operations into spaces."""

    accepts_frames = True

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise InvalidInput unless documents have one source of their space."""
        if options["as"] == "documents" and (options["space"] is None) == (
            options["space_from"] is None
        ):
            raise InvalidInput("pass either --space or --space-from to load documents")

    def output(self, options: Mapping[str, Any]) -> str:
        """Return the space, or "spaces"."""
        return str(options["space"] or "spaces")

    def stage(self, context: Context, read: Callable[[], DataFrame]) -> list[StagedFile]:
        """Check and stage the rows, unless a killed run has done it."""
        saved = context.finished.get(_STAGED)
        if saved is not None:
            staged = msgspec.convert(saved, list[StagedFile])
            if all(Path(file.path).exists() for file in staged if file.path):
                return staged
        rows, shape = _to_operations(read(), context.options)
        with context.spark_progress("staging"):
            collected = rows.mapInArrow(
                json_lines.RowStager(shape, str(context.staging)), "staged binary"
            ).collect()
        staged = [msgspec.json.decode(bytes(row[0]), type=StagedFile) for row in collected]
        context.finish(_STAGED, msgspec.to_builtins(staged))
        return staged

    def commit(self, context: Context, staged: list[StagedFile], job: str) -> Report:
        """Commit the staged rows, each space in one transaction."""
        history, skip_bad = context.options["history"], context.skip_bad
        batch = Batch(f"job:{job}", history=history, skip_bad=skip_bad)
        ingested = ingest(context.root, staged, batch, context.advance)
        context.skipped += [
            SkippedFile(f"row {row.row} of partition {row.partition}", str(row))
            for row in ingested.refused
        ]
        counts = staging.count_rows(staged)
        sentence = f"{pluralize(ingested.rows, 'row')} into {pluralize(ingested.spaces, 'space')}"
        if ingested.replayed:
            sentence += f", {ingested.replayed} already had it"
        if ingested.refused_rows:
            sentence += f"; {pluralize(ingested.refused_rows, 'bad row')} skipped"
        return Report(
            rows_in=counts["rows"] + counts["refused"],
            rows_out=ingested.rows,
            facts={
                "job": job,
                "spaces": ingested.spaces,
                "commits": ingested.commits,
                "replayed": ingested.replayed,
                "refused": ingested.refused_rows,
            },
            sentence=sentence,
        )


def _to_operations(frame: DataFrame, options: Mapping[str, Any]) -> tuple[DataFrame, ColumnRoles]:
    """Return the rows as the sink expects them, and their shape."""
    order = _order(frame.columns, options)
    space = None
    if options["as"] == "documents":
        rows = _documents(frame, options, order or ())
    elif _is_text(frame):
        rows = frame.mapInArrow(json_lines.Operations(options["space"]), json_lines.SCHEMA)
    else:
        rows = frame.drop(*(name for name in json_lines.FILE_ORDER if name not in (order or ())))
        space = options["space"]
    fields = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    return rows, staging.shape_of(fields, space=space, order=order)


def _is_text(frame: DataFrame) -> bool:
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


def _documents(frame: DataFrame, options: Mapping[str, Any], order: Sequence[str]) -> DataFrame:
    """Return each row as a set operation."""
    if _is_text(frame):
        return frame.mapInArrow(
            json_lines.DocumentParser(options["space"], options["space_from"], options["id"]),
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


LOADER: Final = DocumentsLoader()
