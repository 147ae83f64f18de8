"""Temporary views of all tables in Spark SQL, at one cut.

    from fourfold.pipeline import session, sql, views
    spark = session()
    views(spark, "my-store")
    spark.sql("select space, count(*) from revisions group by space").show()

`views` reads one cut, for which every file is opened once, exports the rows of each table, and
creates a temporary view of it at that cut: a join of two of them never sees a commit in one but not
in the other. To see newer commits, call it again. `columns` and `where` narrow what is exported.

`sql` creates the views of the tables that a query names, for this query only. It also knows the
names `<model>_<table>` of every model, as `Store.sql` does, and tables at a point in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fourfold.errors import CorruptData, FourfoldError, InvalidInput
from fourfold.pipeline import driver
from fourfold.pipeline.models import DEFAULT_MODEL, model_tables
from fourfold.pipeline.options import read_options
from fourfold.pipeline.query_tables import TableUse, find_uses
from fourfold.pipeline.query_tables import words_of as _words
from fourfold.pipeline.reader import frame
from fourfold.pipeline.spark import unwrap_error
from fourfold.pipeline.streams.published_tables import MESSAGES, RECORDS, published_tables
from fourfold.pipeline.streams.published_tables import MODEL as STREAMS
from fourfold.query.tables import FILES, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fourfold.pipeline.cut import Cut
    from fourfold.store import Store

_STATE: Final = "state"
_OF_OBJECTS: Final = (RECORDS, MESSAGES, _STATE)
"""Tables that published objects have without the store that publishes them."""


@dataclass(frozen=True, slots=True)
class Views:
    """The names of the created views and their cut; files in `cut.bad` were left out."""

    names: tuple[str, ...]
    cut: Cut


def views(
    spark: SparkSession,
    store: Store | str | Path | None = None,
    *,
    roots: str | Iterable[str] | None = None,
    url: str | Path | None = None,
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
    """Create a temporary view of every table of one store, or of many with `roots`.

    With `url`, or URLs as `roots`, the tables are those of archives, without the folders of their
    stores; `at` is then the id of a restore point, a time, or a seq.

    `at` is a seq or a time for all of them; `branch` selects the branch of `state` and `history` of
    documents, `app` the app in the tables of graphs. View names begin with `prefix`. With
    `objects`, the views are `records`, `messages` and `state` of the streams that are published
    there, each at the time it is created. With `skip_bad`,
    unreadable files are left out and listed in the result. `tables` defaults to all; `columns` and
    `where` limit the columns and rows of some tables.
    """
    if objects is not None:
        _check_objects(model, store, roots, space)
        return _published_views(
            spark,
            objects,
            {"at": at, "skip_bad": skip_bad},
            prefix=prefix,
            tables=_OF_OBJECTS if tables is None else tables,
            columns=columns or {},
            where=where or {},
        )
    from fourfold.pipeline.cut import Cut, read_cut  # noqa: PLC0415 - it needs the kernel

    selected = _select_tables(model, tables)
    if not selected:
        return Views((), Cut(()))
    options = _options(store, roots, url, space, at, model, skip_bad=skip_bad)
    parsed = read_options({**options, "table": FILES})
    if parsed.urls:
        from fourfold.pipeline.archive_roots import archive_cut  # noqa: PLC0415 - so does this

        cut = archive_cut(parsed)
    else:
        cut = read_cut(parsed)
    special = {"branch": branch} | ({} if app is None else {"app": str(app)})
    # The cut contains it already, for each file.
    options.pop("at", None)
    names = []
    for table in selected:
        table_options = options | {"table": table.name}
        table_options |= {name: value for name, value in special.items() if name in table.options}
        if columns and table.name in columns:
            table_options["columns"] = ",".join(columns[table.name])
        if where and table.name in where:
            table_options["where"] = where[table.name]
        name = f"{prefix}{table.name}"
        frame(spark, table_options, cut).createOrReplaceTempView(name)
        names.append(name)
    return Views(tuple(names), cut)


def _check_objects(
    model: str, store: Any, roots: str | Iterable[str] | None, space: str | None
) -> None:
    """Raise for options that reads of published objects do not support."""
    if store is not None or roots is not None or space is not None:
        raise InvalidInput(
            "published objects do not support a store, 'roots' and 'space'",
            hint="Without objects, published and unpublished records of a store are read.",
        )
    if model not in {DEFAULT_MODEL, STREAMS}:
        raise InvalidInput(f"published objects require model 'streams', got {model!r}")


def _published_views(
    spark: SparkSession,
    objects: str | Path,
    options: dict[str, Any],
    *,
    prefix: str,
    tables: Iterable[str],
    columns: Mapping[str, Iterable[str]],
    where: Mapping[str, str],
) -> Views:
    from fourfold.pipeline.cut import Cut, UnreadableFile  # noqa: PLC0415 - it needs the kernel
    from fourfold.pipeline.streams import published  # noqa: PLC0415

    names = list(tables)
    others = [name for name in names if name not in _OF_OBJECTS]
    if others:
        raise InvalidInput(
            f"tables must be {', '.join(_OF_OBJECTS)} without a store, got {', '.join(others)}"
        )
    for name in names:
        if name == _STATE:
            frame = published.published_state(spark, objects, **options)
        else:
            narrowed = options | {"columns": columns.get(name), "where": where.get(name)}
            frame = published.published(spark, objects, table=name, **narrowed)
        frame.createOrReplaceTempView(f"{prefix}{name}")
    url = published.address(objects)
    bad = tuple(
        UnreadableFile(url, key, "", 0, CorruptData.kind, problem)
        for key, problem in (published.unreadable(url) if options["skip_bad"] else ())
    )
    return Views(tuple(f"{prefix}{name}" for name in names), Cut((), bad))


def _select_tables(model: str, names: Iterable[str] | None) -> list[Table]:
    registry = model_tables(model)
    if names is None:
        return [table for table in registry.tables.values() if table.public]
    return [registry.table(name) for name in names]


def sql(
    spark: SparkSession, query: str, store: Store | str | Path | None = None, **options: Any
) -> tuple[DataFrame, Views]:
    """Run a query over the tables of a store; return the result and the views it uses.

    The other arguments are those of `views`. Only tables that the query names are read: those of
    the model by their names, those of every model as `<model>_<table>`. `<table>_at(POINT)` and
    `<table>_at(POINT, 'BRANCH')` are a table at a point. The views belong to this query and are
    dropped again; those of a command (`create view`, `describe`), and of any query through Spark
    Connect, stay.
    """
    if options.get("objects") is not None:
        uses = [_objects_use(query, options)]
    else:
        query, uses = find_uses(query, options.get("model", DEFAULT_MODEL), options)
    if not driver.is_reachable(spark):
        created = _create_views(spark, store, uses, options)
        return spark.sql(query), created
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an optional dependency

    with _restored_views(spark, [name for use in uses for name in use.names]) as keep:
        created = _create_views(spark, store, uses, options)
        try:
            frame = spark.sql(query)
        except AnalysisException:
            words = set(_words(query))
            narrowed = [replace(use, columns=_with_hidden(use.tables, words)) for use in uses]
            if not any(use.columns for use in narrowed):
                raise
            created = _create_views(spark, store, narrowed, options)
            frame = spark.sql(query)
        if _is_command(frame):
            keep()
        return frame, created


def _objects_use(query: str, options: Mapping[str, Any]) -> TableUse:
    """Return the tables of published objects that a query names."""
    words, prefix = set(_words(query)), options.get("prefix", "")
    published = published_tables(STREAMS).tables
    public = [published.get(table.name, table) for table in _select_tables(STREAMS, _OF_OBJECTS)]
    named = [table for table in public if f"{prefix}{table.name}".lower() in words]
    if not named and "show" in words:
        named = public
    return TableUse(options.get("model", DEFAULT_MODEL), tuple(named), prefix)


def _create_views(
    spark: SparkSession, store: Any, uses: Iterable[TableUse], options: Mapping[str, Any]
) -> Views:
    """Create the views of a query; the tables of one model are at one cut."""
    from fourfold.pipeline.cut import Cut  # noqa: PLC0415 - it needs the kernel

    names: list[str] = []
    cut = Cut(())
    for use in uses:
        chosen = {**options, "model": use.model, "prefix": use.prefix, **use.options}
        chosen["tables"] = [table.name for table in use.tables]
        if use.columns:
            chosen["columns"] = use.columns
        created = views(spark, store, **chosen)
        names += created.names
        cut = Cut((*cut.bounds, *created.cut.bounds), (*cut.bad, *created.cut.bad))
        for table in use.tables:
            for alias in use.aliases:
                spark.table(f"{use.prefix}{table.name}").createOrReplaceTempView(
                    f"{alias}{table.name}"
                )
    return Views(tuple(names), cut)


def _with_hidden(tables: Iterable[Table], words: set[str]) -> dict[str, list[str]]:
    """Return the columns of tables whose hidden columns a query may use."""
    hidden = {
        table.name: [
            column.name for column in table.columns if column.hidden and column.name in words
        ]
        for table in tables
    }
    return {
        table.name: [*(column.name for column in table.select_columns()), *hidden[table.name]]
        for table in tables
        if hidden[table.name]
    }


def _is_command(frame: Any) -> bool:
    """Return True if the query was a command, which has been executed."""
    analyzed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the only way
    return str(analyzed.nodeName()) == "CommandResult"


@contextmanager
def _restored_views(spark: Any, names: Iterable[str]) -> Iterator[Callable[[], None]]:
    """Restore the temporary views of these names at the end, unless the function is called."""
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


def to_user_error(error: Exception) -> BaseException:
    """Return the Fourfold error inside `error`; Spark's query errors become InvalidInput."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional dependency

    cause = unwrap_error(error)
    if isinstance(cause, FourfoldError) or not isinstance(error, PySparkException):
        return cause
    return InvalidInput(
        str(error).strip().splitlines()[0],
        hint="See Spark SQL: https://spark.apache.org/docs/latest/sql-ref.html.",
    )


def _options(  # noqa: PLR0917 - those of `views`
    store: Store | str | Path | None,
    roots: str | Iterable[str] | None,
    url: str | Path | None,
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
        options["roots"] = roots if isinstance(roots, str) else ",".join(roots)
    if url is not None:
        options["url"] = str(url)
    if len(options) != 2:
        raise InvalidInput("pass either a store, `roots` or `url`")
    if space is not None:
        options["space"] = space
    if at is not None:
        options["at"] = at.isoformat() if isinstance(at, datetime) else str(at)
    if skip_bad:
        options["skip_bad"] = "true"
    return options
