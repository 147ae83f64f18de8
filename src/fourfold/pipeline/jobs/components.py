"""The job `components`: connected components of the objects of apps, and neighbourhoods.

Objects are parents; an edge connects its two ends, and an edge to an attribute connects to the
attribute's object. Only current objects and edges at the cut count: suppressed and replaced ones do
not. Neighbourhoods take as many rounds as hops. Each round is written before the next one begins.

Components are found by alternating large and small stars, for many graphs at once. A round moves
every edge nearer to the least object of its component: in a *large star* each object passes its
greater neighbours to the least of its neighbourhood, in a *small star* the lesser ones. It ends
when a round changes nothing; then every object points at the least of its component. That takes
about log n rounds for any shape, where passing the least object from neighbour to neighbour would
take as many as the longest path. (Kiveris and others, Connected Components in MapReduce and Beyond,
2014.)

Edges are rows (graph, one, other) of a DataFrame; graphs are independent of each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.cut import read_cut
from fourfold.pipeline.graphs.app_tables import check_app
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, Rounds
from fourfold.pipeline.jobs.reports import INTO, ReportTables, StagedTables
from fourfold.pipeline.jobs.table_folder import FolderTable
from fourfold.pipeline.options import ReadOptions, read_options
from fourfold.pipeline.reader import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SCHEMA: Final = "graph string, one bigint, other bigint"


def components(edges: DataFrame, rounds: Rounds) -> tuple[DataFrame, int]:
    """Return (graph, one, other) for each object `one` that has an edge and is not the least,
    `other`, of its component; and the number of rounds.
    """
    number = 0
    stars = rounds.get_or_write(number, lambda: edges.where("one <> other").distinct())
    before = None
    while (now := _signature(stars)) != before:
        before = now
        number += 1
        stars = rounds.get_or_write(number, lambda edges: small(large(edges)), stars)
    return stars, number


def large(edges: DataFrame) -> DataFrame:
    """Pass the greater neighbours of each object to the least of itself and its neighbours."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    both = edges.unionByName(_turned(edges))
    least = both.groupBy("graph", "one").agg(f.min("other").alias("least"))
    least = least.withColumn("least", f.least("least", "one"))
    joined = both.join(least, ["graph", "one"]).where("other > one")
    return joined.selectExpr("graph", "other as one", "least as other").distinct()


def small(edges: DataFrame) -> DataFrame:
    """Pass each object and its lesser neighbours to the least of those."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    falling = edges.selectExpr("graph", "greatest(one, other) as one", "least(one, other) as other")
    least = falling.groupBy("graph", "one").agg(f.min("other").alias("least"))
    joined = falling.join(least, ["graph", "one"]).where("other <> least")
    passed = joined.selectExpr("graph", "other as one", "least as other")
    own = least.selectExpr("graph", "one", "least as other")
    return passed.unionByName(own).distinct()


def _turned(edges: DataFrame) -> DataFrame:
    """Return the edges in the reverse direction."""
    return edges.selectExpr("graph", "other as one", "one as other")


def _signature(edges: DataFrame) -> Any:
    """Return a value that differs for different sets of edges."""
    row = edges.selectExpr(
        "count(*)", "bit_xor(xxhash64(graph, one, other))", "bit_xor(hash(one, other, graph))"
    ).first()
    return tuple(row) if row is not None else None


_COMPONENTS: Final = FolderTable("components", ("root", "app_id", "object_id"))
_NEARBY: Final = FolderTable("neighbourhood", ("root", "app_id", "origin", "hops", "object_id"))
_HOPS: Final = 2
_SHOWN: Final = 20
_OBJECTS: Final = "root string, app string, app_id bigint, object_id bigint, graph string"
_TABLE: Final = (
    "root string, app string, app_id bigint, object_id bigint, component bigint, neighbours bigint"
)
_NEAR: Final = "graph string, origin bigint, object_id bigint, hops int"


class ComponentResult(msgspec.Struct, frozen=True):
    """The result: figures, and the staged tables."""

    facts: dict[str, Any]
    staged: StagedTables | None = None


class Components(Job):
    """Find connected components."""

    name = "components"
    summary = "Connected components and neighbourhoods of the objects of apps."
    explanation = (
        "The table has every current object with the least object of its component and the number "
        "of its neighbours. With --from also the objects within --hops of these."
    )
    options = (
        Option("app", "Only this app, by its slug or its number."),
        Option("roots", "Read the stores that match this pattern instead of ROOT."),
        Option("at", "A seq or a time, instead of now."),
        Option("from", "An object whose neighbourhood is computed; requires --app.", many=True),
        Option("hops", "Maximum distance in a neighbourhood.", kind="number", default=_HOPS),
        INTO,
    )

    def target(self, context: Context) -> str:
        """Return the selected data and the output folder."""
        options = context.options
        names = ("app", "roots", "at", "hops") if options["from"] else ("app", "roots", "at")
        values = [str(options[name] or "") for name in names]
        return "\n".join(
            [*values, *sorted(options["from"]), _report_tables(context).folder]
        ).strip()

    def plan(self, context: Context) -> Plan:
        """Read the cut."""
        origins = _origins(context)
        read = _read_options(context)
        cut = read_cut(read)
        for bad in cut.bad:
            context.skip(bad.path, bad.problem)
        check_app(cut.bounds, read)
        tables = _report_tables(context)
        ranges = tuple(Range(bound.path, 0, bound.seq) for bound in cut.bounds)
        return Plan(
            output=tables.output,
            ranges=ranges,
            facts={
                "app": read.app,
                "from": origins,
                "hops": context.options["hops"],
                "version": tables.next_version(),
            },
            empty=not ranges,
            cut=cut,
        )

    def run(self, context: Context, plan: Plan) -> ComponentResult:
        """Compute the components and neighbourhoods."""
        graph = _ObjectGraph(context, plan)
        with context.spark_progress("joining"):
            table, rounds = graph.components()
            facts = {**_figures(table), "edges": graph.edges.count(), "rounds": rounds}
            tables = [(_COMPONENTS, table.orderBy(*_COMPONENTS.key))]
            if plan.facts["from"]:
                nearby = graph.neighbourhood(plan.facts["from"], plan.facts["hops"])
                facts["neighbourhood"] = nearby.count()
                facts["nearby"] = [row.asDict() for row in nearby.limit(_SHOWN).collect()]
                tables.append((_NEARBY, nearby.orderBy(*_NEARBY.key)))
            return ComponentResult(
                facts, _report_tables(context).stage(tables, plan.facts["version"])
            )

    def commit(self, context: Context, plan: Plan, result: ComponentResult) -> Report:
        """Make the tables current."""
        del plan
        output = _report_tables(context).replace(result.staged)
        facts = result.facts
        return Report(
            rows_in=facts["objects"] + facts["edges"],
            rows_out=facts["objects"],
            output=output,
            facts=facts,
            sentence=(
                f"{facts['objects']} objects in {facts['components']} components, "
                f"found in {facts['rounds']} rounds"
            ),
        )


class _ObjectGraph:
    """The current objects and edges of one cut. A graph is one app of one store."""

    def __init__(self, context: Context, plan: Plan) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        self._f = f
        self._context = context
        self._spark = context.spark
        self._app = plan.facts["app"]
        self._cut = plan.cut
        # Written to disk, because they are read more than once and folded only once.
        self.objects = Rounds(context, "objects", _OBJECTS).get_or_write(0, self._objects)
        self.edges = Rounds(context, "edges", SCHEMA).get_or_write(0, self._edges)

    def _current(self, kind: str, columns: str) -> Any:
        options = {"model": "graphs", "table": "current", "columns": columns}
        options |= {"root": str(self._context.root), "where": f"kind = '{kind}'"}
        if self._app is not None:
            options["app"] = self._app
        graph = self._f.concat_ws(" ", "app_id", "root").alias("graph")
        return frame(self._spark, options, self._cut).select("*", graph)

    def _objects(self) -> Any:
        parents = self._current("parent", "root,app,app_id,object_id,kind")
        return parents.select("root", "app", "app_id", "object_id", "graph")

    def _edges(self) -> Any:
        """Return the distinct edges between existing objects."""
        f = self._f
        names = "root,app_id,kind,src_parent_id,dst_parent_id,dst_attr_id"
        edges = self._current("edge", names)
        attrs = self._current("attr", "root,app_id,kind,object_id,parent_id").selectExpr(
            "graph", "object_id as dst_attr_id", "parent_id as through"
        )
        resolved = edges.join(attrs, ["graph", "dst_attr_id"], "left").select(
            "graph",
            f.col("src_parent_id").alias("one"),
            f.coalesce("dst_parent_id", "through").alias("other"),
        )
        existing = self.objects.select("graph", "object_id")
        for end in ("one", "other"):
            resolved = resolved.join(
                existing.withColumnRenamed("object_id", end), ["graph", end], "left_semi"
            )
        return resolved.select("graph", "one", "other").distinct()

    def components(self) -> tuple[Any, int]:
        """Return every object with its component and its number of neighbours."""
        f = self._f
        stars, rounds = components(self.edges, Rounds(self._context, "stars", SCHEMA))
        both = self._both().where("one <> other")
        degrees = both.groupBy("graph", "one").agg(f.countDistinct("other").alias("neighbours"))
        table = (
            self.objects.withColumnRenamed("object_id", "one")
            .join(stars, ["graph", "one"], "left")
            .join(degrees, ["graph", "one"], "left")
        )
        result = table.select(
            "root",
            "app",
            "app_id",
            f.col("one").alias("object_id"),
            f.coalesce("other", "one").alias("component"),
            f.coalesce("neighbours", f.lit(0)).alias("neighbours"),
        )
        return Rounds(self._context, "table", _TABLE).get_or_write(0, lambda: result), rounds

    def neighbourhood(self, origins: list[int], hops: int) -> Any:
        """Return the objects within `hops` of some objects, in any direction."""
        f = self._f
        rounds = Rounds(self._context, "near", _NEAR)
        own = self.objects.where(f.col("object_id").isin(origins))
        rounds.get_or_write(
            0,
            lambda: own.select(
                "graph", f.col("object_id").alias("origin"), "object_id", f.lit(0).alias("hops")
            ),
        )
        for number in range(1, hops + 1):
            rounds.get_or_write(number, self._farther, rounds, number)
        near = rounds.read(range(hops + 1))
        return near.join(self.objects.drop("object_id").distinct(), "graph").select(
            "root", "app", "app_id", "origin", "object_id", "hops"
        )

    def _farther(self, rounds: Rounds, number: int) -> Any:
        f = self._f
        frontier = rounds.read([number - 1]).withColumnRenamed("object_id", "one")
        reached = frontier.join(self._both(), ["graph", "one"]).select(
            "graph", "origin", f.col("other").alias("object_id")
        )
        seen = rounds.read(range(number)).select("graph", "origin", "object_id")
        fresh = reached.distinct().join(seen, ["graph", "origin", "object_id"], "left_anti")
        return fresh.withColumn("hops", f.lit(number))

    def _both(self) -> Any:
        turned = self.edges.selectExpr("graph", "other as one", "one as other")
        return self.edges.unionByName(turned)


def _figures(table: Any) -> dict[str, Any]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    sizes = table.groupBy("root", "app", "app_id", "component").agg(f.count("*").alias("objects"))
    row = sizes.agg(f.count("*"), f.coalesce(f.sum("objects"), f.lit(0))).first()
    largest = sizes.orderBy(f.desc("objects"), "root", "app_id", "component").limit(_SHOWN)
    return {
        "objects": row[1],
        "components": row[0],
        "largest": [row.asDict() for row in largest.collect()],
    }


def _origins(context: Context) -> list[int]:
    objects, hops = context.options["from"], context.options["hops"]
    if objects and context.options["app"] is None:
        raise InvalidInput("--from requires --app")
    if type(hops) is not int or hops < 0:
        raise InvalidInput(f"hops must be a non-negative integer, got {hops!r}")
    for object_id in objects:
        if not object_id.isdecimal():
            raise InvalidInput(f"invalid object id {object_id!r}")
    return sorted({int(object_id) for object_id in objects})


def _read_options(context: Context) -> ReadOptions:
    options = {
        "model": "graphs",
        "table": "current",
        "skip_bad": str(context.skip_bad).lower(),
        "at": context.options["at"] or "",
    }
    app, roots = context.options["app"], context.options["roots"]
    options |= {} if app is None else {"app": str(app)}
    options |= {"roots": roots} if roots else {"root": str(context.root)}
    return read_options(options)


def _report_tables(context: Context) -> ReportTables:
    return ReportTables(context, "components")


job = Components()
