"""Connected components of many graphs at once, by alternating large and small stars.

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

from fourfold.pipeline.jobs.rounds import Rounds

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
