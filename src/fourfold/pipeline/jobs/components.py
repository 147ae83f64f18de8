"""The job `components`: which objects of an app hang together, and what lies around one.

Objects are parents; an edge joins its two ends, and one that leads to an attribute leads to the
object of that. Only what is current at the cut counts: objects and edges that are suppressed or
replaced do not. Components are found in about log n rounds (see `graphs.stars`), neighbourhoods in
as many as there are hops. Each round is written down before the next one begins.

Connected components of many graphs at once, by alternating large and small stars.

A round takes every edge nearer to the least object of its component: in a *large star* each object
hands its greater neighbours to the least of its neighbourhood, in a *small star* the lesser ones.
It is over when a round changes nothing; then every object points at the least of its component.
That takes about log n rounds, whatever the shape, where handing on the least object from neighbour
to neighbour would take as many as the longest path. (Kiveris and others, Connected Components in
MapReduce and Beyond, 2014.)

Edges are rows (graph, one, other) of a DataFrame; objects of different graphs never meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold.errors import InvalidInput
from fourfold.pipeline.cut import Cut, FileBound, read_cut
from fourfold.pipeline.graphs.app_tables import check_app
from fourfold.pipeline.jobs.job import Context, Job, Option, Plan, Range, Report, Rounds
from fourfold.pipeline.jobs.refresh import KeptTable
from fourfold.pipeline.jobs.reports import INTO, ReportTables, StagedTables
from fourfold.pipeline.options import ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SCHEMA: Final = "graph string, one bigint, other bigint"


def components(edges: DataFrame, rounds: Rounds) -> tuple[DataFrame, int]:
    """For each object that has an edge and is not the least of its component, that least one, as
    (graph, one, other); and how many rounds it took.
    """
    number = 0
    stars = rounds.kept(number, lambda: edges.where("one <> other").distinct())
    before = None
    while (now := _signature(stars)) != before:
        before = now
        number += 1
        stars = rounds.kept(number, lambda found: small(large(found)), stars)
    return stars, number


def large(edges: DataFrame) -> DataFrame:
    """Each object hands its greater neighbours to the least of itself and its neighbours."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    both = edges.unionByName(_turned(edges))
    least = both.groupBy("graph", "one").agg(f.min("other").alias("least"))
    least = least.withColumn("least", f.least("least", "one"))
    met = both.join(least, ["graph", "one"]).where("other > one")
    return met.selectExpr("graph", "other as one", "least as other").distinct()


def small(edges: DataFrame) -> DataFrame:
    """Each object hands itself and its lesser neighbours to the least of those."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

    falling = edges.selectExpr("graph", "greatest(one, other) as one", "least(one, other) as other")
    least = falling.groupBy("graph", "one").agg(f.min("other").alias("least"))
    met = falling.join(least, ["graph", "one"]).where("other <> least")
    handed = met.selectExpr("graph", "other as one", "least as other")
    own = least.selectExpr("graph", "one", "least as other")
    return handed.unionByName(own).distinct()


def _turned(edges: DataFrame) -> DataFrame:
    return edges.selectExpr("graph", "other as one", "one as other")


def _signature(edges: DataFrame) -> Any:
    """Other values for other sets of edges."""
    row = edges.selectExpr(
        "count(*)", "bit_xor(xxhash64(graph, one, other))", "bit_xor(hash(one, other, graph))"
    ).first()
    return tuple(row) if row is not None else None


_COMPONENTS: Final = KeptTable("components", ("root", "app_id", "object_id"))
_NEARBY: Final = KeptTable("neighbourhood", ("root", "app_id", "origin", "hops", "object_id"))
_HOPS: Final = 2
_SHOWN: Final = 20
_OBJECTS: Final = "root string, app string, app_id bigint, object_id bigint, graph string"
_TABLE: Final = (
    "root string, app string, app_id bigint, object_id bigint, component bigint, neighbours bigint"
)
_NEAR: Final = "graph string, origin bigint, object_id bigint, hops int"


class ComponentResult(msgspec.Struct, frozen=True):
    """What was found: figures, and where the tables are staged."""

    facts: dict[str, Any]
    staged: StagedTables | None = None


class Components(Job):
    """See the module."""

    name = "components"
    summary = "Connected components and neighbourhoods of the objects of apps."
    explanation = (
        "The table has every current object with the least object of its component and the number "
        "of its neighbours. With --from also the objects within some hops of these."
    )
    options = (
        Option("app", "Only this app, by its slug or its number."),
        Option("roots", "Look into the stores that match this pattern instead of ROOT."),
        Option("at", "A number or a time, instead of now."),
        Option("from", "An object whose neighbourhood is wanted; needs --app.", many=True),
        Option("hops", "How far a neighbourhood reaches.", kind="number", default=_HOPS),
        INTO,
    )

    def target(self, context: Context) -> str:
        options = context.options
        names = ("app", "roots", "at", "hops") if options["from"] else ("app", "roots", "at")
        asked = [str(options[name] or "") for name in names]
        return "\n".join([*asked, *sorted(options["from"]), _answer(context).folder]).strip()

    def plan(self, context: Context) -> Plan:
        origins = _origins(context)
        asked = _asked(context)
        cut = read_cut(asked)
        for bad in cut.bad:
            context.skip(bad.path, bad.problem)
        check_app(cut.marks, asked)
        answer = _answer(context)
        ranges = tuple(Range(mark.path, 0, mark.seq) for mark in cut.marks)
        return Plan(
            output=answer.output,
            ranges=ranges,
            facts={
                "app": asked.app,
                "from": origins,
                "hops": context.options["hops"],
                "version": answer.next_version(),
            },
            empty=not ranges,
            marks=cut.marks,
        )

    def run(self, context: Context, plan: Plan) -> ComponentResult:
        graph = _Graph(context, _asked(context), plan.marks)
        with context.spark_progress("joining"):
            table, rounds = graph.components()
            facts = {**_figures(table), "edges": graph.edges.count(), "rounds": rounds}
            tables = [(_COMPONENTS, table.orderBy(*_COMPONENTS.key))]
            if plan.facts["from"]:
                nearby = graph.neighbourhood(plan.facts["from"], plan.facts["hops"])
                facts["neighbourhood"] = nearby.count()
                facts["nearby"] = [row.asDict() for row in nearby.limit(_SHOWN).collect()]
                tables.append((_NEARBY, nearby.orderBy(*_NEARBY.key)))
            return ComponentResult(facts, _answer(context).stage(tables, plan.facts["version"]))

    def commit(self, context: Context, plan: Plan, result: ComponentResult) -> Report:
        del plan
        output = _answer(context).show(result.staged)
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


class _Graph:
    """The current objects and edges of one cut. A graph is one app of one store."""

    def __init__(self, context: Context, asked: ReadOptions, marks: tuple[FileBound, ...]) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an optional dependency

        self._f = f
        self._context = context
        self._spark = context.spark
        self._app = asked.app
        self._cut = Cut(marks).token()
        # What is read more than once is written down, so that it is folded once.
        self.objects = Rounds(context, "objects", _OBJECTS).kept(0, self._objects)
        self.edges = Rounds(context, "edges", SCHEMA).kept(0, self._edges)

    def _current(self, kind: str, columns: str) -> Any:
        source = self._spark.read.format("fourfold").option("root", str(self._context.root))
        source = source.option("model", "graphs").option("table", "current")
        source = source.option("cut", self._cut).option("columns", columns)
        source = source.option("where", f"kind = '{kind}'")
        if self._app is not None:
            source = source.option("app", self._app)
        graph = self._f.concat_ws(" ", "app_id", "root").alias("graph")
        return source.load().select("*", graph)

    def _objects(self) -> Any:
        found = self._current("parent", "root,app,app_id,object_id,kind")
        return found.select("root", "app", "app_id", "object_id", "graph")

    def _edges(self) -> Any:
        """Edges between objects that are there, each once."""
        f = self._f
        names = "root,app_id,kind,src_parent_id,dst_parent_id,dst_attr_id"
        edges = self._current("edge", names)
        attrs = self._current("attr", "root,app_id,kind,object_id,parent_id").selectExpr(
            "graph", "object_id as dst_attr_id", "parent_id as through"
        )
        led = edges.join(attrs, ["graph", "dst_attr_id"], "left").select(
            "graph",
            f.col("src_parent_id").alias("one"),
            f.coalesce("dst_parent_id", "through").alias("other"),
        )
        there = self.objects.select("graph", "object_id")
        for end in ("one", "other"):
            led = led.join(there.withColumnRenamed("object_id", end), ["graph", end], "left_semi")
        return led.select("graph", "one", "other").distinct()

    def components(self) -> tuple[Any, int]:
        """Every object with the least of its component, and how many others it is joined to."""
        f = self._f
        found, rounds = components(self.edges, Rounds(self._context, "stars", SCHEMA))
        both = self._both().where("one <> other")
        degrees = both.groupBy("graph", "one").agg(f.countDistinct("other").alias("neighbours"))
        table = (
            self.objects.withColumnRenamed("object_id", "one")
            .join(found, ["graph", "one"], "left")
            .join(degrees, ["graph", "one"], "left")
        )
        chosen = table.select(
            "root",
            "app",
            "app_id",
            f.col("one").alias("object_id"),
            f.coalesce("other", "one").alias("component"),
            f.coalesce("neighbours", f.lit(0)).alias("neighbours"),
        )
        return Rounds(self._context, "table", _TABLE).kept(0, lambda: chosen), rounds

    def neighbourhood(self, origins: list[int], hops: int) -> Any:
        """What lies within so many hops of some objects, whichever way edges lead."""
        f = self._f
        rounds = Rounds(self._context, "near", _NEAR)
        own = self.objects.where(f.col("object_id").isin(origins))
        rounds.kept(
            0,
            lambda: own.select(
                "graph", f.col("object_id").alias("origin"), "object_id", f.lit(0).alias("hops")
            ),
        )
        for number in range(1, hops + 1):
            rounds.kept(number, self._farther, rounds, number)
        near = rounds.read(range(hops + 1))
        return near.join(self.objects.drop("object_id").distinct(), "graph").select(
            "root", "app", "app_id", "origin", "object_id", "hops"
        )

    def _farther(self, rounds: Rounds, number: int) -> Any:
        f = self._f
        edge = rounds.read([number - 1]).withColumnRenamed("object_id", "one")
        met = edge.join(self._both(), ["graph", "one"]).select(
            "graph", "origin", f.col("other").alias("object_id")
        )
        seen = rounds.read(range(number)).select("graph", "origin", "object_id")
        fresh = met.distinct().join(seen, ["graph", "origin", "object_id"], "left_anti")
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
        "largest": [each.asDict() for each in largest.collect()],
    }


def _origins(context: Context) -> list[int]:
    given, hops = context.options["from"], context.options["hops"]
    if given and context.options["app"] is None:
        raise InvalidInput("--from names objects of an app: give --app too")
    if type(hops) is not int or hops < 0:
        raise InvalidInput(f"a neighbourhood cannot reach {hops!r} hops")
    for each in given:
        if not each.isdecimal():
            raise InvalidInput(f"{each!r} is not the id of an object")
    return sorted({int(each) for each in given})


def _asked(context: Context) -> ReadOptions:
    asked = {
        "model": "graphs",
        "table": "current",
        "skip_bad": str(context.skip_bad).lower(),
        "at": context.options["at"] or "",
    }
    app, roots = context.options["app"], context.options["roots"]
    asked |= {} if app is None else {"app": str(app)}
    asked |= {"roots": roots} if roots else {"root": str(context.root)}
    return read_options(asked)


def _answer(context: Context) -> ReportTables:
    return ReportTables(context, "components")


job = Components()
