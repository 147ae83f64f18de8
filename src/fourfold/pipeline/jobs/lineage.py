"""The job `lineage`: ancestors and descendants of session heads, over all stores.

The ancestors of a head are its basis and the heads from which edges lead to it; edges may lead into
other stores. Each round follows the frontier through every file to its end, by one recursive query:
a chain of ten thousand heads in one store is one step. The new heads are the frontier of the next
round, in which every *other* file continues from them. So the number of rounds is that of the
changes between stores on the way, and no pair of a head and a file is followed twice. It ends when
a round finds nothing new, whatever is in the files. Every round is written before the next one
begins: plans stay small, and a killed run continues with its last round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from fourfold import limits
from fourfold.content import is_content_id
from fourfold.errors import InvalidInput, NotFound
from fourfold.kernel import load_queries
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import Cut, FileBound, read_cut
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, Rounds
from fourfold.pipeline.jobs.reports import INTO, ReportTables, StagedTables
from fourfold.pipeline.jobs.table_folder import FolderTable
from fourfold.pipeline.options import read_options
from fourfold.pipeline.reader import frame
from fourfold.query.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

BACK: Final = "ancestor"
FORTH: Final = "descendant"
FOUND: Final = "origin string, relation string, head string, finder int"
"""Columns of a round: the requested head, the relation of the found head to it, and the number of
the file that led to it.
"""
FRONTIER: Final = "origin string, relation string, head string, finders array<int>"
_SQL: Final = load_queries("fourfold.pipeline.jobs", "lineage.sql")
_KNOWN: Final = {BACK: _SQL.known_back, FORTH: _SQL.known_forth}
_WALK: Final = {BACK: _SQL.back, FORTH: _SQL.forth}


class LineageWalk:
    """Worker function: follows the frontier through the files of its tasks."""

    def __init__(self, work: Sequence[Sequence[tuple[int, FileBound]]], frontier: str) -> None:
        self._work = work
        self._frontier = frontier

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

        pa = arrow()
        frontier = pq.read_table(self._frontier).to_pylist()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for number, bound in self._work[index]:
                    for rows in _pages(_follow(number, bound, frontier), limits.SOURCE_BATCH_ROWS):
                        yield pa.RecordBatch.from_pylist(rows, schema=_schema())


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while page := list(islice(left, size)):
        yield page


def _schema() -> pa.Schema:
    pa = arrow()
    texts = [(name, pa.string()) for name in ("origin", "relation", "head")]
    return pa.schema([*texts, ("finder", pa.int32())])


def _follow(
    number: int, bound: FileBound, frontier: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the heads that one file leads to from heads that it has not followed yet."""
    pending: dict[str, list[tuple[str, str]]] = {BACK: [], FORTH: []}
    for row in frontier:
        if number not in row["finders"]:
            pending[row["relation"]].append((row["origin"], row["head"]))
    for relation, pairs in pending.items():
        known: set[str] = set()
        for page in _pages(sorted({head for _, head in pairs}), limits.SOURCE_BATCH_ROWS):
            known.update(
                row[0] for row in cuts.fetch_rows(bound, _KNOWN[relation], (json.dumps(page),))
            )
        seeds = [pair for pair in pairs if pair[1] in known]
        if seeds:
            for origin, head in cuts.iter_rows(
                bound, _WALK[relation], (json.dumps(seeds), bound.seq)
            ):
                yield {"origin": origin, "relation": relation, "head": head, "finder": number}


_DIRECTIONS: Final = {"ancestors": BACK, "descendants": FORTH}
_LINEAGE: Final = FolderTable("lineage", ("origin", "relation", "head"))
_KEY: Final = list(_LINEAGE.key)
_SHOWN: Final = 100


class LineageResult(msgspec.Struct, frozen=True):
    """The result: counts by relation, the first heads, and the staged table."""

    counts: dict[str, int]
    rounds: int
    first: list[dict[str, Any]]
    staged: StagedTables | None = None


class LineageJob(Job):
    """Find ancestors and descendants of heads."""

    name = "lineage"
    summary = "Ancestors and descendants of heads of sessions, over all stores."
    explanation = (
        "The result is a table of heads, each with its relation to the requested head, its "
        "session, and the number of stores that have it; a head that no store has is the target "
        "of an edge. Deleted sessions are ignored."
    )
    options = (
        Option("head", "The id of a head to start from.", many=True, required=True),
        Option("direction", "Only this direction.", choices=tuple(_DIRECTIONS)),
        Option("roots", "Read the stores that match this pattern instead of ROOT."),
        Option("at", "A position or a time, instead of now."),
        INTO,
    )

    def target(self, context: Context) -> str:
        """Return the selected data and the output folder."""
        options = context.options
        values = [*sorted(options["head"]), options["direction"] or "", options["roots"] or ""]
        return "\n".join([*values, options["at"] or "", _report_tables(context).folder]).strip()

    def plan(self, context: Context) -> Plan:
        """Read the cut."""
        for head in context.options["head"]:
            if not is_content_id(head):
                raise InvalidInput(f"invalid head id {head!r}", hint="Use an id such as sha256:...")
        cut = _read_cut(context)
        for bad in cut.bad:
            context.skip(bad.path, bad.problem)
        tables = _report_tables(context)
        return Plan(
            output=tables.output,
            ranges=tuple(Range(bound.path, 0, bound.seq) for bound in cut.bounds),
            facts={
                "heads": sorted(set(context.options["head"])),
                "relations": _relations(context),
                "version": tables.next_version(),
            },
            cut=cut,
        )

    def run(self, context: Context, plan: Plan) -> LineageResult:
        """Follow the heads to their end."""
        heads = _heads(context, plan.cut)
        _check_heads(heads, plan.facts["heads"])
        with context.spark_progress("walking"):
            walk = _LineageWalk(context, plan)
            reached, rounds = walk.run()
            table = reached.join(heads, "head", "left").select(
                "origin", "relation", "head", "session", "stores"
            )
            table = table.fillna(0, ["stores"]).orderBy(*_KEY).localCheckpoint()
        counts = {row[0]: row[1] for row in table.groupBy("relation").count().collect()}
        first = [row.asDict() for row in table.limit(_SHOWN).collect()]
        staged = _report_tables(context).stage([(_LINEAGE, table)], plan.facts["version"])
        return LineageResult(counts, rounds, first, staged)

    def commit(self, context: Context, plan: Plan, result: LineageResult) -> Report:
        """Make the table current."""
        output = _report_tables(context).replace(result.staged)
        counts = {name: result.counts.get(name, 0) for name in plan.facts["relations"]}
        facts = {
            **counts,
            "rounds": result.rounds,
            "files": len(plan.ranges),
            "first": result.first,
        }
        summary = " and ".join(f"{count} {name}s" for name, count in counts.items())
        return Report(
            rows_in=len(plan.facts["heads"]),
            rows_out=sum(counts.values()),
            output=output,
            facts=facts,
            sentence=f"{summary} in {len(plan.ranges)} files, found in {result.rounds} rounds",
        )


class _LineageWalk:
    """The rounds of a walk, each in its own folder."""

    def __init__(self, context: Context, plan: Plan) -> None:
        self._context = context
        self._spark = context.spark
        self._rounds = Rounds(context, "walk", FRONTIER)
        self._plan = plan
        numbered = list(enumerate(plan.cut.bounds))
        size = max(1, min(limits.SOURCE_FILES_PER_LOOK, len(numbered) // limits.VERIFY_TASKS))
        self._work = [numbered[at : at + size] for at in range(0, len(numbered), size)]

    def run(self) -> tuple[Any, int]:
        """Return all reached heads, and the number of rounds."""
        number = 0
        frontier = self._rounds.get_or_write(number, self._start)
        while not frontier.isEmpty():
            number += 1
            frontier = self._rounds.get_or_write(number, self._next_round, number)
        return self._rounds.read(range(1, number + 1)).select(*_KEY), number

    def _start(self) -> Any:
        heads, relations = self._plan.facts["heads"], self._plan.facts["relations"]
        none: list[int] = []
        rows = [(head, relation, head, none) for head in heads for relation in relations]
        return self._spark.createDataFrame(rows, FRONTIER)

    def _next_round(self, number: int) -> Any:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        worker = LineageWalk(self._work, str(self._rounds.folder(number - 1)))

        def walk(batches: Iterable[Any]) -> Iterator[Any]:
            return worker(batches)

        tasks = self._spark.range(0, len(self._work), 1, max(len(self._work), 1))
        rows = tasks.mapInArrow(walk, FOUND)
        merged = rows.groupBy(*_KEY).agg(f.collect_set("finder").alias("finders"))
        seen = self._rounds.read(range(number))
        return merged.join(seen.select(*_KEY), _KEY, "left_anti")


def _read_cut(context: Context) -> Cut:
    options = {
        "model": "sessions",
        "table": "heads",
        "skip_bad": str(context.skip_bad).lower(),
        "at": context.options["at"] or "",
    }
    roots = context.options["roots"]
    options |= {"roots": roots} if roots else {"root": str(context.root)}
    return read_cut(read_options(options))


def _heads(context: Context, cut: Cut) -> Any:
    """Return every head of the stores with its session and the number of stores."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    options = {"root": str(context.root), "model": "sessions", "table": "heads"}
    heads = frame(context.spark, options | {"columns": "head,session,root"}, cut)
    counted = heads.groupBy("head")
    return counted.agg(f.min("session").alias("session"), f.countDistinct("root").alias("stores"))


def _check_heads(heads: Any, requested: list[str]) -> None:
    """Raise NotFound if no store has one of the heads."""
    known = {row["head"] for row in heads.where(heads["head"].isin(requested)).collect()}
    for head in requested:
        if head not in known:
            raise NotFound(f"unknown head {head}")


def _relations(context: Context) -> list[str]:
    direction = context.options["direction"]
    return [_DIRECTIONS[direction]] if direction else list(_DIRECTIONS.values())


def _report_tables(context: Context) -> ReportTables:
    return ReportTables(context, "lineage")


job = LineageJob()
