"""Tables of documents in Spark: those of the registry, with their folds over Arrow batches."""

from __future__ import annotations

from fourfold.pipeline.documents.fold import fold_history, fold_state
from fourfold.pipeline.documents.fold_query import folded_parts
from fourfold.pipeline.documents.lines import check_branch
from fourfold.query.documents.tables import TABLES

DOCUMENTS = TABLES.for_spark(
    {"state": fold_state, "history": fold_history}, folded_parts=folded_parts, check=check_branch
)
