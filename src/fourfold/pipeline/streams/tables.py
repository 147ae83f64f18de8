"""Tables of streams in Spark: those of the registry, with their folds over Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fourfold.pipeline.conditions import Condition
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.streams.fold import fold_states, folded_parts, promoted, quoted
from fourfold.query.streams.tables import SQL, TABLES


def _only(
    _mark: FileBound, options: ReadOptions, _conditions: Iterable[Condition], query: str
) -> Iterator[tuple[str, ...]]:
    """Wrap the query of a table in the filter of the option `stream`."""
    if options.stream is None:
        yield (query,)
    else:
        yield (SQL.named.format(query=query, pattern=quoted(options.stream)),)


STREAMS = TABLES.for_spark(
    {"messages": promoted, "state": fold_states}, folded_parts=folded_parts, spread=_only
)
