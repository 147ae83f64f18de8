"""What `load` brings into graphs: lines of JSON, each an envelope.

    {"trace_id": "...", "ops": [{"op": "parent_create", "app_id": 1, ...}, ...]}

Spark's tasks check the shape of every line and stage those that are right; if one is not, nothing
is written. Then this process applies them, in the order of the lines, each under a number of its
own, a page of them in one transaction. How far a load has come is a setting that is written in the
same transaction: a load that was killed goes on where it was, and one that is through does nothing.
What an envelope points at is known only when it is applied; one that is refused then stops the load
there, or is left out with `skip_bad`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.models.graphs import Graphs, envelopes
from fourfold.pipeline.jobs.job import Context, Report, SkippedFile, counted
from fourfold.pipeline.tables import arrow
from fourfold.store import open_store

WHAT: Final = ("envelopes",)
SCHEMA: Final = "line string, problem string, _file string, _block bigint, _line bigint"
_ORDER: Final = ("_file", "_block", "_line")
_FOR_DOCUMENTS: Final = ("space", "space_from", "order", "history")


def refuse_options(options: Mapping[str, Any]) -> None:
    for name in _FOR_DOCUMENTS:
        if options[name] is not None:
            raise InvalidInput(f"--{name.replace('_', '-')} is for documents")
    if options["format"] not in {None, "ndjson"}:
        raise InvalidInput("envelopes are loaded from lines of JSON")


class EnvelopeCheck:
    """What a task does with lines: each goes on with what is wrong with it, if anything is."""

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
        return f"it is no JSON: {error}"
    except FourfoldError as error:
        return error.message
    return None


def staged(context: Context, rows: Any) -> str:
    """The lines that are right, in their order, where no reader looks."""
    folder = context.staging / "envelopes"
    shutil.rmtree(folder, ignore_errors=True)
    with context.spark_progress("checking"):
        checked = rows.select("value", *_ORDER).mapInArrow(EnvelopeCheck(), SCHEMA)
        checked.orderBy(*_ORDER).write.parquet(str(folder))
        bad = context.spark.read.schema(SCHEMA).parquet(str(folder)).where("problem is not null")
        found = bad.orderBy(*_ORDER).limit(limits.VERIFY_FAULTS_SHOWN).collect()
    if found and not context.skip_bad:
        first = found[0]
        raise InvalidInput(
            f"{first['_file']}: {first['problem']}: {first['line'][:200]}",
            hint="Mend the lines, or leave them out: --skip-bad.",
            details={
                "bad": [{"line": row["line"][:200], "problem": row["problem"]} for row in found]
            },
        )
    context.skipped += [SkippedFile(row["line"][:200], row["problem"]) for row in found]
    return str(folder)


def commit(context: Context, folder: str, job: str) -> Report:
    """Apply what is staged, from where an earlier run has come to."""
    key = f"load:{job}"
    with open_store(context.root) as store:
        graphs = store.graphs
        done = int(graphs.get_setting(key) or 0)
        already, added = done, 0
        lines = islice(_lines(Path(folder)), done, None)
        while page := list(islice(lines, limits.ENVELOPE_LOAD_PAGE)):
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
        sentence=f"{counted(added, 'envelope')} applied"
        + (f", {already} were there already" if already else ""),
    )


def _lines(folder: Path) -> Iterator[str]:
    """The staged lines in their order; files are named in that order."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["line", "problem"]):
                for row in batch.to_pylist():
                    if row["problem"] is None and row["line"].strip():
                        yield row["line"]


def _applied(context: Context, graphs: Graphs, page: Sequence[str], note: tuple[str, str]) -> int:
    """Apply a page in one transaction. If one is refused, all of the page stay out; unless bad ones
    are to be left out: then each is tried for itself, and notes by itself how far it is.
    """
    given = [msgspec.json.decode(line) for line in page]
    try:
        return len(graphs.apply_many(given, note=note))
    except FourfoldError as error:
        if not context.skip_bad or error.retryable:
            raise
    key, end = note[0], int(note[1])
    count = 0
    for at, line in enumerate(page, start=end - len(page) + 1):
        try:
            graphs.apply_many([given[at - end - 1]], note=(key, str(at)))
            count += 1
        except FourfoldError as error:
            context.skipped.append(SkippedFile(line[:200], error.message))
    graphs.apply_many([], note=note)
    return count
