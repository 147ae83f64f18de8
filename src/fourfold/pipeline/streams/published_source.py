"""`format("fourfold").option("objects", ...)`: published streams by Fourfold's own reader.

It reads any object store that Fourfold knows, in the workers. The cut is taken when the DataFrame
is made, as for every table.
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
from fourfold.pipeline.streams.published_scan import SegmentWork, TailWork, read_batches
from fourfold.pipeline.streams.published_tables import MESSAGES

if TYPE_CHECKING:
    import pyarrow as pa


def read_cut(options: ReadOptions) -> PublishedCut:
    """The cut of a read; what cannot be asked of objects is refused."""
    assert options.objects is not None
    if options.roots is not None or options.since is not None or options.cut is not None:
        raise InvalidInput("the options roots, since and cut are not for published objects")
    published_cut.checked_moment(options.at)
    return published_cut.read_cut(
        options.objects,
        root=options.root,
        streams=options.stream,
        shared=options.shared,
        skip_bad=options.skip_bad,
        promoted=options.table_name == MESSAGES,
    )


class Objects(InputPartition):
    """What one task reads."""

    def __init__(self, work: SegmentWork | TailWork | None) -> None:
        super().__init__(None)
        self.work = work


class PublishedReader(DataSourceReader):
    """A batch read of published objects. It is planned on the driver; `read` runs in workers."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], cut: PublishedCut) -> None:
        self._options = options
        self._columns = columns
        self._read = tuple(dict.fromkeys((*columns, *options.conditions.columns)))
        self._cut: PublishedCut | None = cut

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        assert self._cut is not None
        assert options.objects is not None
        try:
            works = published_plan.plan_tasks(
                self._cut,
                options.objects,
                options.table.chosen(self._read),
                options.conditions,
                until_ms=published_cut.checked_moment(options.at),
                partition_bytes=options.partition_bytes,
                batch_rows=options.batch_rows,
            )
        except FourfoldError as error:
            raise wrap_error(error) from error
        return [Objects(work) for work in works] or [Objects(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Conditions leave out objects and row groups first, and then the rows of the others."""
        assert isinstance(partition, Objects)
        if partition.work is None:
            return
        for batch in read_batches(partition.work):
            rows = self._options.conditions.filtered(batch)
            if rows.num_rows:
                yield rows.select(list(self._columns))

    def __getstate__(self) -> dict[str, object]:
        """What a worker gets: its task says all that it needs of the cut."""
        return self.__dict__ | {"_cut": None}
