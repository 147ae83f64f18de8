"""Tables of graphs in Spark: those of the registry, with the fold of current objects."""

from __future__ import annotations

from fourfold.pipeline.graphs.app_tables import check_app, count_rows, spread
from fourfold.pipeline.graphs.fold import fold_current, folded_parts
from fourfold.query.graphs.tables import TABLES

GRAPHS = TABLES.for_spark(
    {"current": fold_current},
    folded_parts=folded_parts,
    check=check_app,
    spread=spread,
    count_rows=count_rows,
)
