"""Tables of documents in the archive, and their folds over rows in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.pipeline.archive_plan import ArchivedTable, Lookup
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents import spark_fold
from fourfold.pipeline.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KIND: Final = REVISIONS.profile.name
_COMMITS: Final = ArchivedTable(
    kind=_KIND,
    source="documents.commit",
    schema={
        "space": "string",
        "file_id": "string",
        "_point": "bigint",
        "seq": "bigint",
        "branch": "string",
        "session_id": "string",
        "local_seq": "bigint",
        "created_at": "string",
        "original": "string",
        "resolution": "string",
    },
    columns={
        "space": "space",
        "seq": "seq",
        "branch": "branch",
        "session": "session_id",
        "local_seq": "local_seq",
        "time": "cast(created_at as timestamp)",
        "original": "original",
        "resolution": "resolution",
        "hash": "cast(null as string)",
        "previous": "cast(null as string)",
    },
    position="seq",
)
_REVISIONS: Final = ArchivedTable(
    kind=_KIND,
    source="documents.revision",
    schema={
        "space": "string",
        "file_id": "string",
        "_point": "bigint",
        "branch": "string",
        "id": "string",
        "seq": "bigint",
        "op_index": "bigint",
        "op": "string",
        "data": "string",
    },
    columns={
        "space": "space",
        "branch": "branch",
        "id": "id",
        "seq": "seq",
        "op_index": "cast(op_index as int)",
        "op": "op",
        "data": "data",
        "fact": "cast(null as string)",
    },
    position="seq",
    lookup=Lookup(
        columns={"time": "cast(created_at as timestamp)"}, on=("file_id", "seq"), source=_COMMITS
    ),
)


def _state(
    spark: SparkSession, options: ReadOptions, bounds: Sequence[FileBound], rows: DataFrame
) -> DataFrame:
    return spark_fold.newest(_of_lines(spark, options, bounds, rows))


def _history(
    spark: SparkSession, options: ReadOptions, bounds: Sequence[FileBound], rows: DataFrame
) -> DataFrame:
    return spark_fold.versions(_of_lines(spark, options, bounds, rows))


def _of_lines(
    spark: SparkSession, options: ReadOptions, bounds: Sequence[FileBound], rows: DataFrame
) -> DataFrame:
    """Return the rows that readers of the selected branches see, and that conditions allow."""
    visible = spark_fold.select_visible(spark, options, bounds, rows)
    for condition in options.conditions.spark_columns():
        visible = visible.where(condition)
    return visible


ARCHIVED: Final = {
    "commits": _COMMITS,
    "revisions": _REVISIONS,
    "state": ArchivedTable(kind=_KIND, rows="revisions", fold=_state),
    "history": ArchivedTable(kind=_KIND, rows="revisions", fold=_history),
}
