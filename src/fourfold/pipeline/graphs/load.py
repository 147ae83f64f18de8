"""Load envelopes into graphs from JSON lines.

    {"trace_id": "...", "ops": [{"op": "parent_create", "app_id": 1, ...}, ...]}

Spark's tasks check every line and stage the valid ones; if one is invalid, nothing is written. Then
this process applies them, in the order of the lines, each under its own seq, a page of them in one
transaction. The progress of a load is a setting that is written in the same transaction: a killed
load continues where it was, and a completed one does nothing. References of an envelope are checked
only when it is applied; a refused envelope stops the load there, or is skipped with `skip_bad`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.graphs import Graphs, envelopes
from fourfold.pipeline.jobs.job import Context, Report, SkippedFile, pluralize
from fourfold.pipeline.jobs.load import Loader
from fourfold.query.tables import arrow
from fourfold.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENVELOPE_LOAD_PAGE: Final = 500
"""Envelopes that a load applies in one transaction."""

SCHEMA: Final = "line string, problem string, _file string, _block bigint, _line bigint"
_ORDER: Final = ("_file", "_block", "_line")
_FOR_DOCUMENTS: Final = ("space", "space_from", "order", "history", "schema")


class EnvelopeCheck:
    """Task function: adds the problem of each line, if any."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        pa = arrow()
        for batch in batches:
            lines = batch.column("value").to_pylist()
            problems = [_problem(line) for line in lines]
            columns = [pa.array(lines, pa.string()), pa.array(problems, pa.string())]
            columns += [batch.column(name) for name in _ORDER]
            yield pa.RecordBatch.from_arrays(columns, names=["line", "problem", *_ORDER])


def _problem(line: str) -> str | None:
    if not line.strip():
        return None
    try:
        envelopes.parse(msgspec.json.decode(line))
    except msgspec.DecodeError as error:
        return f"not valid JSON: {error}"
    except FourfoldError as error:
        return error.message
    return None


class GraphsLoader(Loader):
    """Loads envelopes into graphs."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise InvalidInput for options that only apply to documents."""
        for name in _FOR_DOCUMENTS:
            if options[name] is not None:
                raise InvalidInput(
                    f"option --{name.replace('_', '-')} requires model 'documents', got 'graphs'"
                )
        if options["format"] not in {None, "ndjson"}:
            raise InvalidInput(f"format must be ndjson for envelopes, got {options['format']!r}")

    def output(self, options: Mapping[str, Any]) -> str:
        """Return the name of the model."""
        return str(options["model"])

    def stage(self, context: Context, read: Callable[[], DataFrame]) -> str:
        """Stage the valid lines in their order; return the folder."""
        folder = context.staging / "envelopes"
        shutil.rmtree(folder, ignore_errors=True)
        with context.spark_progress("checking"):
            checked = read().select("value", *_ORDER).mapInArrow(EnvelopeCheck(), SCHEMA)
            checked.orderBy(*_ORDER).write.parquet(str(folder))
            bad = (
                context.spark.read.schema(SCHEMA).parquet(str(folder)).where("problem is not null")
            )
            problems = bad.orderBy(*_ORDER).limit(limits.VERIFY_FAULTS_SHOWN).collect()
        if problems and not context.skip_bad:
            first = problems[0]
            raise InvalidInput(
                f"{first['_file']}: {first['problem']}: {first['line'][:200]}",
                hint="Fix the lines, or skip them with --skip-bad.",
                details={
                    "bad": [
                        {"line": row["line"][:200], "problem": row["problem"]} for row in problems
                    ]
                },
            )
        context.skipped += [SkippedFile(row["line"][:200], row["problem"]) for row in problems]
        return str(folder)

    def commit(self, context: Context, staged: str, job: str) -> Report:
        """Apply the staged lines, continuing after an earlier run."""
        key = f"load:{job}"
        with open_store(context.root) as store:
            graphs = store.graphs
            done = int(graphs.get_setting(key) or 0)
            already, added = done, 0
            lines = islice(_lines(Path(staged)), done, None)
            while page := list(islice(lines, ENVELOPE_LOAD_PAGE)):
                done += len(page)
                added += _applied(context, graphs, page, (key, str(done)))
                context.advance("applying", done, 0)
        return Report(
            rows_in=done,
            rows_out=added,
            facts={
                "job": job,
                "envelopes": added,
                "replayed": already,
                "refused": len(context.skipped),
            },
            sentence=f"{pluralize(added, 'envelope')} applied"
            + (f", {already} already existed" if already else ""),
        )


def _lines(folder: Path) -> Iterator[str]:
    """Yield the staged lines in their order, which is that of the file names."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["line", "problem"]):
                for row in batch.to_pylist():
                    if row["problem"] is None and row["line"].strip():
                        yield row["line"]


def _applied(context: Context, graphs: Graphs, page: Sequence[str], note: tuple[str, str]) -> int:
    """Apply a page in one transaction; return the number of envelopes. If one is refused, the page
    is not written; with `skip_bad` each is applied separately with its own progress.
    """
    envelopes_ = [msgspec.json.decode(line) for line in page]
    try:
        return len(graphs.apply_many(envelopes_, note=note))
    except FourfoldError as error:
        if not context.skip_bad or error.retryable:
            raise
    key, end = note[0], int(note[1])
    count = 0
    for at, line in enumerate(page, start=end - len(page) + 1):
        try:
            graphs.apply_many([envelopes_[at - end - 1]], note=(key, str(at)))
            count += 1
        except FourfoldError as error:
            context.skipped.append(SkippedFile(line[:200], error.message))
    graphs.apply_many([], note=note)
    return count


LOADER: Final = GraphsLoader()
