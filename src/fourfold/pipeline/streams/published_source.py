"""Published streams by Fourfold's own reader: `format("fourfold").option("objects", ...)`.

It reads any supported object store, in the workers. The cut is read when the DataFrame is created,
as for every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.spark import wrap_error
from fourfold.pipeline.streams import published_cut, published_plan
from fourfold.pipeline.streams.published_cut import PublishedCut
from fourfold.pipeline.streams.published_scan import SegmentWork, read_batches
from fourfold.pipeline.streams.published_tables import MESSAGES

if TYPE_CHECKING:
    import pyarrow as pa


def read_cut(options: ReadOptions) -> PublishedCut:
    """Return the cut of a read; raise for options that objects do not support."""
    assert options.objects is not None
    for name in ("root", "roots", "since", "cut"):
        if getattr(options, name) is not None:
            raise InvalidInput(
                f"published objects do not support the option {name!r}",
                hint="With `root` alone, published and unpublished records of a store are read.",
            )
    published_cut.until_ms_of(options.at)
    return published_cut.read_cut(
        options.objects,
        streams=options.stream,
        shared=options.shared,
        skip_bad=options.skip_bad,
        promoted=options.table_name == MESSAGES,
    )


class Objects(InputPartition):
    """The input partition of one task."""

    def __init__(self, work: SegmentWork | None) -> None:
        super().__init__(None)
        self.work = work


class PublishedReader(DataSourceReader):
    """A batch reader of published objects. `partitions` runs on the driver, `read` in workers."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], cut: PublishedCut) -> None:
        self._options = options
        self._columns = columns
        self._read = tuple(dict.fromkeys((*columns, *options.conditions.columns)))
        self._cut: PublishedCut | None = cut

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks of the read."""
        options = self._options
        assert self._cut is not None
        assert options.objects is not None
        try:
            tasks = published_plan.plan_tasks(
                self._cut,
                options.objects,
                options.table.select_columns(self._read),
                options.conditions,
                until_ms=published_cut.until_ms_of(options.at),
                partition_bytes=options.partition_bytes,
                batch_rows=options.batch_rows,
            )
        except FourfoldError as error:
            raise wrap_error(error) from error
        return [Objects(task) for task in tasks] or [Objects(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; conditions first skip objects and row groups, then rows."""
        assert isinstance(partition, Objects)
        if partition.work is None:
            return
        for batch in read_batches(partition.work):
            rows = self._options.conditions.filtered(batch)
            if rows.num_rows:
                yield rows.select(list(self._columns))

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the cut: a task contains all that a worker needs of it."""
        return self.__dict__ | {"_cut": None}
