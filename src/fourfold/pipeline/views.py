"""Every log and every folded state as a table of Spark SQL, all of one cut.

    from fourfold.pipeline import session, sql, views
    spark = session()
    views(spark, "my-store")
    spark.sql("select space, count(*) from revisions group by space").show()

`views` takes one cut, by a Spark job that opens every file once, and makes a temporary view of each
table at that cut: a join of two of them never sees a commit in one and not in the other. To see
newer commits, call it again.

Spark prunes no columns of a source in Python, and hands it no conditions. `sql` knows the query, so
it makes views of what the query needs, for this query alone. For several queries over wide tables,
`columns` and `where` of `views` narrow what is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import CorruptData, FourfoldError, InvalidInput
from fourfold.pipeline import driver
from fourfold.pipeline.options import point
from fourfold.pipeline.query_plan import EmptyTable, TableNeed, needs
from fourfold.pipeline.reader import frame
from fourfold.pipeline.spark import typed
from fourfold.pipeline.streams.published_tables import MESSAGES, RECORDS, published_tables
from fourfold.pipeline.streams.published_tables import MODEL as STREAMS
from fourfold.pipeline.tables import DEFAULT_MODEL, Table, model_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut
    from fourfold.store import Store

_STATE: Final = "state"
_OF_OBJECTS: Final = (RECORDS, MESSAGES, _STATE)
"""What published objects are without the store that publishes them."""


@dataclass(frozen=True, slots=True)
class Views:
    """The views that were made, by name, and the cut that they show; `cut.bad` was left out."""

    names: tuple[str, ...]
    cut: Cut


def views(
    spark: SparkSession,
    store: Store | str | Path | None = None,
    *,
    roots: str | None = None,
    space: str | None = None,
    at: int | datetime | str | None = None,
    branch: str = "",
    model: str = DEFAULT_MODEL,
    app: str | int | None = None,
    prefix: str = "",
    objects: str | Path | None = None,
    skip_bad: bool = False,
    tables: Iterable[str] | None = None,
    columns: Mapping[str, Iterable[str]] | None = None,
    where: Mapping[str, str] | None = None,
) -> Views:
    """Make a temporary view of every table of one store, or, with `roots`, of many.

    `at` is a seq or a moment, for all of them; `branch` is what `state` and `history` of documents
    show, `app` the one app whose rows the tables of graphs show. Names begin with `prefix`. With
    `objects`, the views are `records`, `messages` and `state` of the streams that are published
    there, each of the moment when it is made; and where the store that publishes them is given too,
    what is not published yet is in them, and the other tables of streams are views as well. With
    `skip_bad` files that cannot be read are left out, and named in the result. `tables` are all if
    not given; `columns` narrows some to a few columns, `where` some to a few rows.
    """
    if objects is not None:
        return _with_published(
            spark,
            store,
            objects,
            _refused(model, roots, space),
            {"at": at, "prefix": prefix, "skip_bad": skip_bad},
            tables=tables,
            columns=columns or {},
            where=where or {},
        )
    options = _options(store, roots, space, at, model, skip_bad=skip_bad)
    cut = cut_of(spark, options)
    special = {"branch": branch} | ({} if app is None else {"app": str(app)})
    # The cut says it already, for each file.
    options.pop("at", None)
    names = []
    for table in _wanted(model, tables):
        asked = options | {"table": table.name}
        asked |= {name: value for name, value in special.items() if name in table.options}
        if columns and table.name in columns:
            asked["columns"] = ",".join(columns[table.name])
        if where and table.name in where:
            asked["where"] = where[table.name]
        name = f"{prefix}{table.name}"
        frame(spark, asked, cut).createOrReplaceTempView(name)
        names.append(name)
    return Views(tuple(names), cut)


def _refused(model: str, roots: str | None, space: str | None) -> str:
    """The model whose objects are read; what they cannot be asked is refused."""
    if roots is not None or space is not None:
        raise InvalidInput("published objects are of no pattern of stores, and of no space")
    if model not in {DEFAULT_MODEL, STREAMS}:
        raise InvalidInput(f"the objects of {model} are no tables: only those of streams are")
    return STREAMS


def _with_published(
    spark: SparkSession,
    store: Store | str | Path | None,
    objects: str | Path,
    model: str,
    options: dict[str, Any],
    *,
    tables: Iterable[str] | None,
    columns: Mapping[str, Iterable[str]],
    where: Mapping[str, str],
) -> Views:
    from fourfold.pipeline.cut import Cut, UnreadableFile  # noqa: PLC0415 - it needs the kernel
    from fourfold.pipeline.streams import published  # noqa: PLC0415

    names = list(_tables_of(model, objects, store) if tables is None else tables)
    others = [name for name in names if name not in _OF_OBJECTS]
    made = Views((), Cut(()))
    root = None
    if store is not None:
        root = Path(store) if isinstance(store, str | Path) else store.root
        made = views(
            spark, store, model=model, tables=others, columns=columns, where=where, **options
        )
    elif others:
        raise InvalidInput(f"without the store, objects are the tables {', '.join(_OF_OBJECTS)}")
    wanted = [name for name in names if name in _OF_OBJECTS]
    if not wanted:
        return made
    skip_bad = options["skip_bad"]
    common: dict[str, Any] = {"at": options["at"], "root": root, "skip_bad": skip_bad}
    for name in wanted:
        if name == _STATE:
            frame = published.published_state(spark, objects, **common)
        else:
            given = common | {"columns": columns.get(name), "where": where.get(name)}
            frame = published.published(spark, objects, table=name, **given)
        frame.createOrReplaceTempView(f"{options['prefix']}{name}")
    place = published.address(objects)
    bad = published.unreadable(place) if skip_bad and root is None else ()
    told = tuple(
        UnreadableFile(place, key, "", 0, CorruptData.kind, problem) for key, problem in bad
    )
    shown = (f"{options['prefix']}{name}" for name in wanted)
    return Views((*made.names, *shown), Cut(made.cut.marks, (*made.cut.bad, *told)))


def _tables_of(model: str, objects: Any, store: Any) -> list[str]:
    """The names of the views: without a store, what objects alone can show."""
    if objects is None:
        return [table.name for table in _wanted(model, None)]
    names = [table.name for table in _wanted(STREAMS, None)]
    return names if store is not None else list(_OF_OBJECTS)


def _wanted(model: str, names: Iterable[str] | None) -> list[Table]:
    found = model_tables(model)
    if names is None:
        return [table for table in found.tables.values() if table.public]
    return [found.table(name) for name in names]


def sql(
    spark: SparkSession, query: str, store: Store | str | Path | None = None, **options: Any
) -> tuple[DataFrame, Views]:
    """Answer a query over the tables of a store; return the answer and the views it is made of.

    The other arguments are those of `views`. Only what the query needs is read: columns, and rows
    where a table is used once. So the views are the query's own, and are dropped again; a command
    (`create view`, `describe`), and any query through Spark Connect, gets whole views that stay.
    """
    words = set(re.findall(r"\w+", query.lower()))
    prefix = options.get("prefix", "")
    objects = options.get("objects")
    public = _wanted(*_asked(options.get("model", DEFAULT_MODEL), objects, store))
    if objects is not None:
        told = published_tables(STREAMS).tables
        public = [told.get(table.name, table) for table in public]
    named = [table for table in public if f"{prefix}{table.name}".lower() in words] or public
    names = [table.name for table in named]
    if not driver.reachable(spark):
        made = views(spark, store, tables=names, **options)
        return spark.sql(query), made
    with _restored_views(spark, [f"{prefix}{name}" for name in names]) as keep:
        needed = planned_needs(spark, query, named, prefix)
        if needed is None:
            keep()
            made = views(spark, store, tables=names, **options)
            return spark.sql(query), made
        columns = {name: need.columns for name, need in needed.items()}
        where = {name: need.conditions.text() for name, need in needed.items() if need.conditions}
        made = views(spark, store, tables=names, columns=columns, where=where, **options)
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - an optional dependency

        try:
            return spark.sql(query), made
        except AnalysisException:
            # A query may name a column that it does not use: `select * except (data)`.
            made = views(spark, store, tables=names, where=where, **options)
            return spark.sql(query), made


def planned_needs(
    spark: SparkSession, query: str, tables: Iterable[Table], prefix: str
) -> dict[str, TableNeed] | None:
    """Plan a query over empty tables, with their hidden columns if it cannot do without."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an optional dependency

    words = set(re.findall(r"\w+", query.lower()))
    shown = [EmptyTable(f"{prefix}{table.name}", table, table.chosen()) for table in tables]
    try:
        return needs(spark, query, shown)
    except AnalysisException:
        named = [
            replace(
                each,
                columns=(
                    *each.columns,
                    *(one for one in each.table.columns if one.hidden and one.name in words),
                ),
            )
            for each in shown
        ]
        if named == shown:
            raise
        return needs(spark, query, named)


@contextmanager
def _restored_views(spark: Any, names: Iterable[str]) -> Iterator[Callable[[], None]]:
    """Put the temporary views of these names back at the end, unless the function is called."""
    catalog = spark._jsparkSession.sessionState().catalog()  # noqa: SLF001 - the only way
    before = {
        name: spark.table(name) if catalog.getTempView(name).isDefined() else None for name in names
    }
    try:
        yield before.clear
    finally:
        for name, frame in before.items():
            if frame is None:
                spark.catalog.dropTempView(name)
            else:
                frame.createOrReplaceTempView(name)


def _asked(model: str, objects: Any, store: Any) -> tuple[str, list[str]]:
    """Whose tables a query can be about, and which."""
    return STREAMS if objects is not None else model, _tables_of(model, objects, store)


def explained(error: Exception) -> BaseException:
    """What became of a query, for who asked it: an error of Fourfold's as it was, and one of
    Spark's about the query as bad input.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional dependency

    found = typed(error)
    if isinstance(found, FourfoldError) or not isinstance(error, PySparkException):
        return found
    return InvalidInput(
        str(error).strip().splitlines()[0],
        hint="Spark's SQL: https://spark.apache.org/docs/latest/sql-ref.html.",
    )


def cut_of(spark: SparkSession, options: Mapping[str, str]) -> Cut:
    """The cut of all files that the options of a read name, taken by Spark: on a cluster the
    workers open the files.
    """
    from fourfold.pipeline.cut import Cut, FileBound, UnreadableFile, check_reach, refusal  # noqa: PLC0415

    ignored = {"since", "branch", "columns", "where", "cut"}
    given = {name: value for name, value in options.items() if name not in ignored}
    rows = spark.read.format("fourfold").options(**given).option("table", "files").load().collect()
    found = sorted(rows, key=lambda row: str(row["path"]))
    marks = tuple(
        FileBound(
            *(row["root"], row["path"], row["space"], row["kind"], row["seq"], row["bytes"]),
            file_id=row["file_id"],
            horizon=row["horizon"],
        )
        for row in found
        if row["problem"] is None
    )
    bad = tuple(
        UnreadableFile(
            row["root"], row["path"], row["space"], row["bytes"], row["error"], row["problem"]
        )
        for row in found
        if row["problem"] is not None
    )
    if bad and options.get("skip_bad") != "true":
        raise refusal(bad)
    cut = Cut(marks, bad)
    check_reach(cut, point(options.get("at"), "at"), options.get("root", options.get("roots", "")))
    return cut


def _options(
    store: Store | str | Path | None,
    roots: str | None,
    space: str | None,
    at: int | datetime | str | None,
    model: str,
    *,
    skip_bad: bool,
) -> dict[str, str]:
    options = {"model": model}
    if store is not None:
        folder = Path(store) if isinstance(store, str | Path) else store.root
        options["root"] = str(folder.absolute())
    if roots is not None:
        options["roots"] = roots
    if len(options) != 2:
        raise InvalidInput("views are of one store, or of the stores that `roots` matches")
    if space is not None:
        options["space"] = space
    if at is not None:
        options["at"] = at.isoformat() if isinstance(at, datetime) else str(at)
    if skip_bad:
        options["skip_bad"] = "true"
    return options
