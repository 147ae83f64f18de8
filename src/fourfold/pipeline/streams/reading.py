"""`spark.readStream` over streams: one, those of a pattern, or all, with an offset for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fourfold.errors import FourfoldError, InvalidInput
from fourfold.pipeline.failures import carried
from fourfold.pipeline.options import read_options
from fourfold.pipeline.source import column_names
from fourfold.pipeline.streaming import FourfoldStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OF_A_BATCH = ("at", "cut", "objects", "shared", "since", "where")
_TABLES = ("records", "messages")


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamsReader:
    """The reader of `DataSource.streamReader` for streams."""
    try:
        read = read_options(options)
        given = {name.lower() for name in options}
        for name in _OF_A_BATCH:
            if name in given:
                raise InvalidInput(f"the option {name} is for a batch, not for a stream")
        if read.table_name not in _TABLES:
            raise InvalidInput(
                f"the table {read.table_name} cannot be streamed: its rows change",
                hint=f"These can, since rows are only added to them: {', '.join(_TABLES)}.",
            )
        return StreamsReader(read, column_names(read, schema))
    except FourfoldError as error:
        raise carried(error) from error


class StreamsReader(FourfoldStreamReader):
    """As every stream of the source; only its offsets are those of streams."""

    def _following(self) -> Any:
        if self._files is None:
            from fourfold.pipeline.streams.following import (  # noqa: PLC0415 - not in workers
                StreamsFollowing,
            )

            self._files: Any = StreamsFollowing(self._options)
        return self._files
