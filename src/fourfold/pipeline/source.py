"""`spark.read.format("fourfold")`: every table of every model, over one store or ten thousand.

    options     read_options    checked; an unknown one is refused
    files       finding         by name alone
    cut         cut             each file opened once, the newest seq of each; what is bad is named
    tasks       planning        large files in parts, small ones packed; `where` given to SQLite
    rows        scan            in Spark's workers: SQLite to Arrow

The cut is taken when the DataFrame is made (`load()`), and stays with it: whoever counts it twice,
or joins it with itself, sees the same rows, whatever is committed meanwhile. The one exception is a
DataFrame that was given a schema, whose cut is taken when it is planned; give `columns` instead.

Spark prunes no columns of a Python source, so the option `columns` does: only those are read. And
rows are narrowed by the option `where`, never by the filters of a query: Spark hands those to a
reader that it shares between scans, so they would leak from one query into another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline import scan
from fourfold.pipeline.options import ReadOptions, is_table, plain_options, read_options
from fourfold.pipeline.scan import ScanTask, batches
from fourfold.pipeline.spark import carried
from fourfold.pipeline.tables import (
    DEFAULT_MODEL,
    FILES,
    ModelTables,
    arrow,
    model_tables,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from fourfold.pipeline.cut import Cut, StoreFile

NAME = "fourfold"
_OPTIONS = "fourfold.options"
"""Under this name the first column of a table remembers the options of the table."""


class FourfoldSource(DataSource):
    """The format "fourfold". An instance is made for each DataFrame, and travels with it."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._cut: Any = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str | StructType:
        """The columns; and, since this is asked once for each DataFrame, the cut."""
        scan.settle()
        try:
            options = read_options(self.options)
            if options.table.name != FILES:
                self._cut = _take(options)
                _refuse_unknown(options, self._cut)
            if is_table(self.options):
                return _table_schema(options, plain_options(self.options))
            return options.table.ddl(options.columns)
        except FourfoldError as error:
            raise carried(error) from error

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader takes the cut, since Spark sends what is left of this to every worker."""
        scan.settle()
        try:
            given = _table_options(schema) | dict(self.options)
            if not given:
                raise InvalidInput(
                    "no options reach a table that was created with a list of columns",
                    hint="Create it without a list of columns: its options are kept in them.",
                )
            options = read_options(given)
            names = column_names(options, schema)
            if options.table.name == FILES:
                return FilesReader(options, names)
            cut = self._cut or _take(options)
            self._travel_light()
            if options.objects is not None:
                reader: DataSourceReader = _published().PublishedReader(options, names, cut)
                return reader
            return FourfoldReader(replace(options, cut=None, columns=names), names, cut)
        except FourfoldError as error:
            raise carried(error) from error

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer: DataSourceWriter = _sink(self.options).batch_writer(self.options, schema, overwrite)
        return writer

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        sink = _sink(self.options)
        writer: DataSourceStreamWriter = sink.stream_writer(self.options, schema, overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from fourfold.pipeline.documents import stream_source  # noqa: PLC0415 - a batch does without it

        own = _model(self.options).stream_reader
        make = stream_source.stream_reader
        if own:
            module, _, name = own.partition(":")
            make = getattr(import_module(module), name)
        reader = make(self.options, schema)
        self._travel_light()
        return reader

    def _travel_light(self) -> None:
        """Drop the cut, in both of its forms, once a reader has it."""
        self._cut = None
        self.options.pop("cut", None)


class Task(InputPartition):
    """What one task of a scan reads."""

    def __init__(self, work: ScanTask) -> None:
        super().__init__(None)
        self.work = work


class FourfoldReader(DataSourceReader):
    """A batch read. It is planned on the driver; `read` runs in the workers."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], cut: Cut) -> None:
        self._options = options
        self._columns = columns
        self._cut: Cut | None = cut

    def partitions(self) -> Sequence[InputPartition]:
        try:
            from fourfold.pipeline import plan  # noqa: PLC0415 - workers do without the kernel

            assert self._cut is not None
            columns = self._options.table.chosen(self._columns)
            works = plan.plan(self._cut.marks, self._options, columns)
        except FourfoldError as error:
            raise carried(error) from error
        # Out of an empty list Spark makes a task of its own, which means nothing to `read`.
        return [Task(work) for work in works] or [Task(_nothing(columns))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return batches(partition.work)

    def __getstate__(self) -> dict[str, Any]:
        """What a worker gets: its task says all that it needs of the cut."""
        return self.__dict__ | {"_cut": None}


class Looks(InputPartition):
    """Files that one task looks at."""

    def __init__(self, files: tuple[StoreFile, ...]) -> None:
        super().__init__(None)
        self.files = files


class FilesReader(DataSourceReader):
    """The table `files`: each is opened by a task, so that many are looked at side by side. What is
    wrong with one is in its row. Workers use the kernel for this, and nothing else.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        from fourfold.pipeline import cut as cut_module  # noqa: PLC0415 - as in all that runs on the driver

        options = self._options
        try:
            found = cut_module.files(
                cut_module.stores(options.root, options.roots), options.tables, options.space
            )
        except FourfoldError as error:
            raise carried(error) from error
        size = limits.SOURCE_FILES_PER_LOOK
        groups = [tuple(found[at : at + size]) for at in range(0, len(found), size)]
        return [Looks(group) for group in groups or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from fourfold.pipeline import cut  # noqa: PLC0415 - other workers do without the kernel

        assert isinstance(partition, Looks)
        table, tables = self._options.table, self._options.tables
        rows = []
        for file in partition.files:
            seen = cut.look_at(file, tables, deep=self._options.skip_bad, at=self._options.at)
            row = {"space": file.space, "root": file.root, "path": file.path, "bytes": file.bytes}
            if isinstance(seen, cut.FileBound):
                facts = {"kind": seen.kind, "seq": seen.seq, "bytes": seen.bytes}
                rows.append(row | facts | {"file_id": seen.file_id, "horizon": seen.horizon})
            else:
                rows.append(row | {"error": seen.kind, "problem": seen.problem})
        yield arrow().RecordBatch.from_pylist(rows, schema=table.schema(self._columns))


def _table_schema(options: ReadOptions, given: dict[str, str]) -> StructType:
    """The columns of a table that Spark creates, which remember its options: Spark stores them, but
    gives a Python source none when it reads the table.
    """
    if "root" in given:
        given["root"] = str(Path(given["root"]).absolute())
    types = {
        "string": StringType(),
        "bigint": LongType(),
        "int": IntegerType(),
        "double": DoubleType(),
        "timestamp": TimestampType(),
        "binary": BinaryType(),
        "boolean": BooleanType(),
    }
    columns = options.table.chosen(options.columns)
    fields = [StructField(column.name, types[column.type]) for column in columns]
    fields[0].metadata = {_OPTIONS: given}
    return StructType(fields)


def _table_options(schema: StructType) -> dict[str, str]:
    """The options that the columns of a table remember; none of a DataFrame's."""
    return next((field.metadata[_OPTIONS] for field in schema if _OPTIONS in field.metadata), {})


def _model(options: Mapping[str, str]) -> ModelTables:
    """The model that the options name, in whichever case they are written."""
    given = {name.lower(): value for name, value in options.items()}
    try:
        return model_tables(given.get("model", DEFAULT_MODEL))
    except FourfoldError as error:
        raise carried(error) from error


def _sink(options: Mapping[str, str]) -> Any:
    """The sink of a model; it is only imported by those who write."""
    return import_module(_model(options).sink or "fourfold.pipeline.documents.sink")


def _nothing(columns: Any) -> ScanTask:
    return ScanTask((), columns, (), "", "", 1)


def _take(options: ReadOptions) -> Any:
    """The cut of a read: of files, or of published objects."""
    if options.objects is not None:
        return _published().take(options)
    from fourfold.pipeline import cut  # noqa: PLC0415 - workers do without the kernel

    return cut.take(options)


def _refuse_unknown(options: ReadOptions, cut: Any) -> None:
    """Refuse options that no file can answer, before a DataFrame is made of them."""
    if options.objects is not None:
        return
    from fourfold.pipeline.documents import fold  # noqa: PLC0415 - workers do without the kernel

    if options.tables.check is not None:
        options.tables.check(cut.marks, options)
    if options.branch:
        fold.check_branch(cut.marks, options)


def _published() -> Any:
    """What reads published objects; only imported by those who do."""
    return import_module("fourfold.pipeline.streams.published_source")


def column_names(options: ReadOptions, schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, which must be the table's, with the table's types."""
    names = tuple(schema.fieldNames())
    for field, column in zip(schema, options.table.chosen(names), strict=True):
        if field.dataType.simpleString() != column.type:
            raise InvalidInput(
                f"the column {column.name} of {options.table_name} is a {column.type}, "
                f"not a {field.dataType.simpleString()}",
                hint="Read it as it is, and cast it then.",
            )
    return names
