"""Columns and conditions that a query needs of its tables, from Spark's plan of the query.

The query is analysed over empty tables with the same columns, and nothing runs. A column is needed
if an operator of the analysed plan refers to it, or if it is in the output of an operator that
compares or passes on rows as a whole. The conditions of a table are those that the optimizer moved
right above it; they are only given for a table that the plan refers to once, because every
reference reads the same view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fourfold.pipeline import driver
from fourfold.pipeline.conditions import Condition, Conditions, accepts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fourfold.query.tables import Column, Table

_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
_BY_REFERENCE: Final = frozenset(
    {
        "Project",
        "Filter",
        "Aggregate",
        "Join",
        "LateralJoin",
        "Sort",
        "Window",
        "Generate",
        "LocalLimit",
        "GlobalLimit",
        "Offset",
        "PipeOperator",
        "SubqueryAlias",
        "View",
        "WithCTE",
    }
)
"""Operators that depend on nothing of their input but the columns that they refer to."""
_SIGNS: Final = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_SWAPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class TableNeed:
    """The columns of a table that a query uses, and conditions that hold for all rows it uses."""

    columns: tuple[str, ...]
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class EmptyTable:
    """An empty view that replaces a table while a query is planned."""

    view: str
    table: Table
    columns: tuple[Column, ...]


def needs(
    spark: SparkSession, query: str, tables: Sequence[EmptyTable]
) -> dict[str, TableNeed] | None:
    """Return the needs of a query by the name of the table; None if the query is a command.

    The views of the tables are replaced by empty ones.
    """
    numbers = {_make_view(spark, table): table for table in tables}
    plans = _plans(spark, query)
    if plans is None:
        return None
    analyzed, optimized = plans
    used = set(_used(analyzed))
    columns: dict[str, set[str]] = {table.table.name: set() for table in tables}
    for leaf, table in _leaves(analyzed, numbers):
        names = {field.name() for field in _items(leaf.output()) if field.exprId().id() in used}
        columns[table.table.name] |= names
    return {
        table.table.name: TableNeed(
            tuple(
                column.name for column in table.columns if column.name in columns[table.table.name]
            )
            or (table.table.columns[0].name,),
            _conditions(optimized, numbers, table),
        )
        for table in tables
    }


def _make_view(spark: SparkSession, empty: EmptyTable) -> int:
    """Make the view of an empty table; return the number by which plans refer to it."""
    schema = ", ".join(f"{column.name} {column.type}" for column in empty.columns)
    frame = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    frame.createOrReplaceTempView(empty.view)
    return int(frame._jdf.queryExecution().analyzed().rdd().id())  # noqa: SLF001 - the only way


def _plans(spark: Any, query: str) -> tuple[Any, Any] | None:
    """Return the analysed and the optimized plan; nothing of the query is executed."""
    gateway = driver.gateway(spark)
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 - no public access
    skip = gateway.jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    execution = state.executePlan(state.sqlParser().parsePlan(query), skip)
    analyzed = execution.analyzed()
    if driver.loader(gateway.jvm).loadClass(_COMMAND).isInstance(analyzed):
        return None
    return analyzed, execution.optimizedPlan()


def _used(plan: Any) -> Iterator[int]:
    """Yield the ids of all columns that matter to a plan."""
    for root in _roots(plan):
        yield from _ids(root.output())
        for node in _nodes(root):
            yield from _ids(node.references().toSeq())
            if node.nodeName() not in _BY_REFERENCE:
                for child in _items(node.children()):
                    yield from _ids(child.output())


def _conditions(plan: Any, numbers: Mapping[int, EmptyTable], table: EmptyTable) -> Conditions:
    """Return the conditions under which a plan reads a table that it refers to once."""
    if sum(leaf_table is table for _, leaf_table in _leaves(plan, numbers)) != 1:
        return Conditions()
    for root in _roots(plan):
        for node in _nodes(root):
            if node.nodeName() == "Filter" and numbers.get(_number(node.child())) is table:
                conditions = (_condition(term) for term in _conjuncts(node.condition()))
                fitting = (item for item in conditions if item and accepts(table.table, item))
                return Conditions(tuple(fitting))
    return Conditions()


def _condition(expression: Any) -> Condition | None:
    """Translate a comparison of a column with constants; None if it is another expression."""
    kind = _kind(expression)
    if kind == "In":
        column, values = expression.value(), list(_items(expression.list()))
        sign = "in"
    elif kind in _SIGNS:
        column, values, sign = expression.left(), [expression.right()], _SIGNS[kind]
        if _kind(column) == "Literal":
            column, values, sign = values[0], [column], _SWAPPED[sign]
    else:
        return None
    if _kind(column) != "AttributeReference" or any(_kind(value) != "Literal" for value in values):
        return None
    constants = tuple(_value(value) for value in values)
    return None if None in constants else Condition(column.name(), sign, constants)


def _value(literal: Any) -> Any:
    """Return the value of a whole number or a string; None for anything else."""
    if literal.value() is None:
        return None
    kind = literal.dataType().simpleString()
    if kind in {"int", "bigint"}:
        return int(literal.value())
    return literal.value().toString() if kind == "string" else None


def _conjuncts(expression: Any) -> Iterator[Any]:
    if _kind(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _roots(plan: Any) -> Iterator[Any]:
    """Yield a plan and those of all its subqueries."""
    yield plan
    yield from _items(plan.subqueriesAll())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _leaves(plan: Any, numbers: Mapping[int, EmptyTable]) -> Iterator[tuple[Any, EmptyTable]]:
    for root in _roots(plan):
        for leaf in _items(root.collectLeaves()):
            table = numbers.get(_number(leaf))
            if table is not None:
                yield leaf, table


def _number(node: Any) -> int:
    return int(node.rdd().id()) if _kind(node) == "LogicalRDD" else -1


def _ids(attributes: Any) -> Iterator[int]:
    return (attribute.exprId().id() for attribute in _items(attributes))


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    return (sequence.apply(at) for at in range(sequence.size()))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
