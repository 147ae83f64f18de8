"""The data source `spark.read.format("fourfold")`: all tables of all models, any number of stores.

    options     read_options    validated; unknown options are errors
    files       cut             discovered by name alone
    cut         cut             each file opened once for its newest seq; bad files are reported
    rows        table_files     exported as Parquet, `where` applied by SQLite

The cut is read when the DataFrame is created (`load()`), and stays with it: counting it twice, or
joining it with itself, uses the same rows, whatever is committed meanwhile. The exception is a
DataFrame with an explicit schema, whose cut is read when it is planned; use `columns` instead.

Spark prunes no columns of a Python source; the option `columns` selects those that are read. Rows
are filtered by the option `where`, never by the filters of a query: Spark passes those to a reader
that it shares between scans, so they would leak from one query into another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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

from fourfold.errors import FourfoldError, InvalidInput, NotFound
from fourfold.pipeline import scan
from fourfold.pipeline.models import DEFAULT_MODEL, PipelineModel, get_model, model_names
from fourfold.pipeline.options import ReadOptions, is_table, plain_options, read_options
from fourfold.pipeline.scan import ScanTask
from fourfold.pipeline.spark import wrap_error
from fourfold.query.tables import FILES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from fourfold.pipeline.cut import Cut
    from fourfold.pipeline.sink import Sink
    from fourfold.pipeline.table_files import FilePart

NAME = "fourfold"
_OPTIONS = "fourfold.options"
"""Metadata key under which the first column of a created table stores its options."""


class FourfoldSource(DataSource):
    """The format "fourfold". One instance is created per DataFrame and sent along with it."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._cut: Any = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str | StructType:
        """Return the columns, and read the cut: Spark calls this once per DataFrame."""
        scan.freeze_garbage()
        try:
            if _is_archive(self.options):
                from fourfold.pipeline.archive_stream import archive_ddl  # noqa: PLC0415

                return archive_ddl(self.options)
            options = read_options(self.options)
            if options.table.name != FILES:
                self._cut = _read_cut(options)
                _check_options(options, self._cut)
            if is_table(self.options):
                return _table_schema(options, plain_options(self.options))
            return options.table.ddl(options.columns)
        except FourfoldError as error:
            raise wrap_error(error) from error

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader, which takes over the cut: Spark sends this object to workers."""
        scan.freeze_garbage()
        try:
            if _is_archive(self.options):
                raise InvalidInput(
                    "option 'archive' is only supported by a streaming read",
                    hint="Read a table of the archive by its folder, or the store with `read`.",
                )
            texts = _table_options(schema) | dict(self.options)
            if not texts:
                raise InvalidInput(
                    "a table created with a list of columns has no options",
                    hint="Create it without a list of columns.",
                )
            options = read_options(texts)
            names = column_names(options, schema)
            cut = self._cut or _read_cut(options)
            self._drop_cut()
            if options.objects is not None:
                from fourfold.pipeline.streams.published_source import PublishedReader  # noqa: PLC0415

                return PublishedReader(options, names, cut)
            return FourfoldReader(replace(options, cut=None, columns=names), cut)
        except FourfoldError as error:
            raise wrap_error(error) from error

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer of the model."""
        return _sink(self.options).batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a streaming writer of the model."""
        return _sink(self.options).stream_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a streaming reader of the model."""
        from fourfold.pipeline.stream_reader import stream_reader  # noqa: PLC0415 - only for streams

        if _is_archive(self.options):
            from fourfold.pipeline.archive_stream import archive_stream_reader  # noqa: PLC0415

            return archive_stream_reader(self.options, schema)
        own = _model(self.options).stream_reader
        open_reader = stream_reader if own is None else own()
        reader = open_reader(self.options, schema)
        self._drop_cut()
        return reader

    def _drop_cut(self) -> None:
        """Drop the cut and its option once a reader has it, to keep this object small."""
        self._cut = None
        self.options.pop("cut", None)


class ScanPartition(InputPartition):
    """The input partition of one scan task."""

    def __init__(self, work: ScanTask) -> None:
        super().__init__(None)
        self.work = work


class FilePartition(InputPartition):
    """The input partition of one exported file."""

    def __init__(self, part: FilePart) -> None:
        super().__init__(None)
        self.part = part


class FourfoldReader(DataSourceReader):
    """A batch reader of the files of a table. `partitions` runs on the driver, `read` in the
    workers.
    """

    def __init__(self, options: ReadOptions, cut: Cut) -> None:
        self._options = options
        self._cut: Cut | None = cut

    def partitions(self) -> Sequence[InputPartition]:
        """Export the rows; return a partition for each file."""
        from fourfold.pipeline.table_files import table_files  # noqa: PLC0415 - only on the driver

        try:
            assert self._cut is not None
            return [FilePartition(part) for part in table_files(self._cut, self._options).parts]
        except FourfoldError as error:
            raise wrap_error(error) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        from fourfold.pipeline.table_files import read_part  # noqa: PLC0415 - only for batches

        assert isinstance(partition, FilePartition)
        return read_part(partition.part)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the cut, which workers do not need."""
        return self.__dict__ | {"_cut": None}


def _table_schema(options: ReadOptions, texts: dict[str, str]) -> StructType:
    """Return the columns of a created table, with its options as metadata: Spark stores them, but
    passes a Python source no options when it reads the table.
    """
    if "root" in texts:
        texts["root"] = str(Path(texts["root"]).absolute())
    types = {
        "string": StringType(),
        "bigint": LongType(),
        "int": IntegerType(),
        "double": DoubleType(),
        "timestamp": TimestampType(),
        "binary": BinaryType(),
        "boolean": BooleanType(),
    }
    columns = options.table.select_columns(options.columns)
    fields = [StructField(column.name, types[column.type]) for column in columns]
    fields[0].metadata = {_OPTIONS: texts}
    return StructType(fields)


def _table_options(schema: StructType) -> dict[str, str]:
    """Return the options stored in the columns of a created table; empty for a DataFrame."""
    return next((field.metadata[_OPTIONS] for field in schema if _OPTIONS in field.metadata), {})


def _is_archive(options: Mapping[str, str]) -> bool:
    """Return True if the options name an archive instead of a store."""
    return any(name.lower() == "archive" for name in options)


def _model(options: Mapping[str, str]) -> PipelineModel:
    """Return the model of the options, whose names are case-insensitive."""
    texts = {name.lower(): value for name, value in options.items()}
    try:
        return get_model(texts.get("model", DEFAULT_MODEL))
    except FourfoldError as error:
        raise wrap_error(error) from error


def _sink(options: Mapping[str, str]) -> Sink:
    """Import the sink of a model, which only writers need."""
    model = _model(options)
    if model.sink is None:
        names = " or ".join(model_names("sink"))
        error = NotFound(f"model {model.name!r} has no sink", hint=f"Write {names}.")
        raise wrap_error(error) from error
    return model.sink()


def _read_cut(options: ReadOptions) -> Any:
    """Return the cut of a read, of files or of published objects."""
    if options.objects is not None:
        from fourfold.pipeline.streams.published_source import read_cut  # noqa: PLC0415

        return read_cut(options)
    from fourfold.pipeline import cut  # noqa: PLC0415 - workers do not need the kernel

    return cut.Cut(()) if options.table.name == FILES else cut.read_cut(options)


def _check_options(options: ReadOptions, cut: Any) -> None:
    """Raise for options that match no file, before a DataFrame is created."""
    if options.objects is None and options.tables.check is not None:
        options.tables.check(cut.bounds, options)


def column_names(options: ReadOptions, schema: StructType) -> tuple[str, ...]:
    """Return the names of a schema after checking them and their types against the table."""
    names = tuple(schema.fieldNames())
    for field, column in zip(schema, options.table.select_columns(names), strict=True):
        if field.dataType.simpleString() != column.type:
            raise InvalidInput(
                f"{options.table_name}: column {column.name!r} must be {column.type}, "
                f"got {field.dataType.simpleString()}",
                hint="Read it with its own type and cast it afterwards.",
            )
    return names
