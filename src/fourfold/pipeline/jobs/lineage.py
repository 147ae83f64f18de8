"""The job `lineage`: what heads of sessions go back to and what goes back to them, over all stores.

A head stands on its basis and on the heads from which edges lead to it, and edges may lead into
other stores. Each round of the job follows the frontier through every file to its end and joins
the results (see `sessions.walking`); it is over when a round finds nothing new. What was found
before is never followed again, so the job ends whatever is in the files. Every round is written
down before the next one begins: plans stay small, and a run that was killed goes on with the round
that it was at.

The lineage of heads over many stores: what a worker does in one round of a walk.

A round follows every head of the frontier through each file to its very end, by one recursive
query: a chain of ten thousand heads in one store is one step. What is found is the frontier of the
next round, in which every *other* file goes on from it. So the number of rounds is that of the
changes from one store to another on the way, and no pair of a head and a file is followed twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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
from fourfold.pipeline.jobs.refresh import KeptTable
from fourfold.pipeline.jobs.reports import INTO, ReportTables, StagedTables
from fourfold.pipeline.options import read_options
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

BACK: Final = "ancestor"
FORTH: Final = "descendant"
FOUND: Final = "origin string, relation string, head string, finder int"
"""What a round finds: the head that was asked for, what the found one is to it, and the number of
the file that led to it.
"""
FRONTIER: Final = "origin string, relation string, head string, finders array<int>"
_SQL: Final = load_queries("fourfold.pipeline.sessions", "walking.sql")
_KNOWN: Final = {BACK: _SQL.known_back, FORTH: _SQL.known_forth}
_WALK: Final = {BACK: _SQL.back, FORTH: _SQL.forth}


class LineageWalk:
    """What a worker does with the numbers of the tasks that it is given: each is some files."""

    def __init__(self, work: Sequence[Sequence[tuple[int, FileBound]]], frontier: str) -> None:
        self._work = work
        self._frontier = frontier

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

        pa = arrow()
        asked = pq.read_table(self._frontier).to_pylist()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                for number, mark in self._work[place]:
                    for rows in _pages(_found(number, mark, asked), limits.SOURCE_BATCH_ROWS):
                        yield pa.RecordBatch.from_pylist(rows, schema=_schema())


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while page := list(islice(left, size)):
        yield page


def _schema() -> pa.Schema:
    pa = arrow()
    texts = [(name, pa.string()) for name in ("origin", "relation", "head")]
    return pa.schema([*texts, ("finder", pa.int32())])


def _found(
    number: int, mark: FileBound, asked: Iterable[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The heads that one file leads to from those of the frontier that it has not followed yet."""
    waiting: dict[str, list[tuple[str, str]]] = {BACK: [], FORTH: []}
    for row in asked:
        if number not in row["finders"]:
            waiting[row["relation"]].append((row["origin"], row["head"]))
    for relation, pairs in waiting.items():
        known: set[str] = set()
        for some in _pages(sorted({head for _, head in pairs}), limits.SOURCE_BATCH_ROWS):
            known.update(
                row[0] for row in cuts.fetch_rows(mark, _KNOWN[relation], (json.dumps(some),))
            )
        seeds = [pair for pair in pairs if pair[1] in known]
        if seeds:
            for origin, head in cuts.iter_rows(
                mark, _WALK[relation], (json.dumps(seeds), mark.seq)
            ):
                yield {"origin": origin, "relation": relation, "head": head, "finder": number}


_DIRECTIONS: Final = {"ancestors": BACK, "descendants": FORTH}
_LINEAGE: Final = KeptTable("lineage", ("origin", "relation", "head"))
_KEY: Final = list(_LINEAGE.key)
_SHOWN: Final = 100


class ClosedSession(msgspec.Struct, frozen=True):
    """What was found: where it is staged, how many of each relation, and the first of them."""

    counts: dict[str, int]
    rounds: int
    first: list[dict[str, Any]]
    staged: StagedTables | None = None


class Lineage(Job):
    """See the module."""

    name = "lineage"
    summary = "Ancestors and descendants of heads of sessions, over all stores."
    explanation = (
        "The result is a table of the heads, each with what it is to the one that was asked for, "
        "its session, and how many of the stores have it; a head that no store has is one that an "
        "edge leads to. Sessions that were deleted lead nowhere."
    )
    options = (
        Option("head", "The id of a head to begin with.", many=True, required=True),
        Option("direction", "Only one of the two.", choices=tuple(_DIRECTIONS)),
        Option("roots", "Walk through the stores that match this pattern instead of ROOT."),
        Option("at", "A position or a time, instead of now."),
        INTO,
    )

    def target(self, context: Context) -> str:
        options = context.options
        asked = [*sorted(options["head"]), options["direction"] or "", options["roots"] or ""]
        return "\n".join([*asked, options["at"] or "", _answer(context).folder]).strip()

    def plan(self, context: Context) -> Plan:
        for head in context.options["head"]:
            if not is_content_id(head):
                raise InvalidInput(f"{head!r} is not the id of a head", hint="As in sha256:...")
        cut = _cut(context)
        for bad in cut.bad:
            context.skip(bad.path, bad.problem)
        answer = _answer(context)
        return Plan(
            output=answer.output,
            ranges=tuple(Range(mark.path, 0, mark.seq) for mark in cut.marks),
            facts={
                "heads": sorted(set(context.options["head"])),
                "relations": _relations(context),
                "version": answer.next_version(),
            },
        )

    def run(self, context: Context, plan: Plan) -> ClosedSession:
        upto = {each.source: each.upto for each in plan.ranges}
        marks = [
            replace(mark, seq=upto[mark.path]) for mark in _cut(context).marks if mark.path in upto
        ]
        heads = _heads(context, marks)
        _refuse_unknown(heads, plan.facts["heads"])
        with context.spark_progress("walking"):
            walk = _Walk(context, marks, plan)
            found, rounds = walk.to_its_end()
            table = found.join(heads, "head", "left").select(
                "origin", "relation", "head", "session", "stores"
            )
            table = table.fillna(0, ["stores"]).orderBy(*_KEY).localCheckpoint()
        counts = {row[0]: row[1] for row in table.groupBy("relation").count().collect()}
        first = [row.asDict() for row in table.limit(_SHOWN).collect()]
        staged = _answer(context).stage([(_LINEAGE, table)], plan.facts["version"])
        return ClosedSession(counts, rounds, first, staged)

    def commit(self, context: Context, plan: Plan, result: ClosedSession) -> Report:
        output = _answer(context).show(result.staged)
        told = {name: result.counts.get(name, 0) for name in plan.facts["relations"]}
        facts = {**told, "rounds": result.rounds, "files": len(plan.ranges), "first": result.first}
        said = " and ".join(f"{count} {name}s" for name, count in told.items())
        return Report(
            rows_in=len(plan.facts["heads"]),
            rows_out=sum(told.values()),
            output=output,
            facts=facts,
            sentence=f"{said} in {len(plan.ranges)} files, found in {result.rounds} rounds",
        )


class _Walk:
    """The rounds of a walk, each in a folder of its own."""

    def __init__(self, context: Context, marks: list[FileBound], plan: Plan) -> None:
        self._context = context
        self._spark = context.spark
        self._rounds = Rounds(context, "walk", FRONTIER)
        self._plan = plan
        numbered = list(enumerate(marks))
        size = max(1, min(limits.SOURCE_FILES_PER_LOOK, len(marks) // limits.VERIFY_TASKS))
        self._work = [numbered[at : at + size] for at in range(0, len(numbered), size)]

    def to_its_end(self) -> tuple[Any, int]:
        """All that was found, and in how many rounds."""
        number = 0
        frontier = self._rounds.kept(number, self._beginning)
        while not frontier.isEmpty():
            number += 1
            frontier = self._rounds.kept(number, self._found, number)
        return self._rounds.read(range(1, number + 1)).select(*_KEY), number

    def _beginning(self) -> Any:
        asked, relations = self._plan.facts["heads"], self._plan.facts["relations"]
        none: list[int] = []
        rows = [(head, relation, head, none) for head in asked for relation in relations]
        return self._spark.createDataFrame(rows, FRONTIER)

    def _found(self, number: int) -> Any:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        worker = LineageWalk(self._work, str(self._rounds.folder(number - 1)))

        def walk(batches: Iterable[Any]) -> Iterator[Any]:
            return worker(batches)

        tasks = self._spark.range(0, len(self._work), 1, max(len(self._work), 1))
        rows = tasks.mapInArrow(walk, FOUND)
        merged = rows.groupBy(*_KEY).agg(f.collect_set("finder").alias("finders"))
        seen = self._rounds.read(range(number))
        return merged.join(seen.select(*_KEY), _KEY, "left_anti")


def _cut(context: Context) -> Cut:
    asked = {
        "model": "sessions",
        "table": "heads",
        "skip_bad": str(context.skip_bad).lower(),
        "at": context.options["at"] or "",
    }
    roots = context.options["roots"]
    asked |= {"roots": roots} if roots else {"root": str(context.root)}
    return read_cut(read_options(asked))


def _heads(context: Context, marks: list[FileBound]) -> Any:
    """Every head that a store has, with its session, and in how many stores it is."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    source = context.spark.read.format("fourfold").option("root", str(context.root))
    source = source.option("model", "sessions").option("table", "heads")
    source = source.option("cut", Cut(tuple(marks)).token()).option("columns", "head,session,root")
    counted = source.load().groupBy("head")
    return counted.agg(f.min("session").alias("session"), f.countDistinct("root").alias("stores"))


def _refuse_unknown(heads: Any, asked: list[str]) -> None:
    known = {row["head"] for row in heads.where(heads["head"].isin(asked)).collect()}
    for head in asked:
        if head not in known:
            raise NotFound(f"no store has a head {head}")


def _relations(context: Context) -> list[str]:
    chosen = context.options["direction"]
    return [_DIRECTIONS[chosen]] if chosen else list(_DIRECTIONS.values())


def _answer(context: Context) -> ReportTables:
    return ReportTables(context, "lineage")


job = Lineage()
