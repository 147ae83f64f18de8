"""Tables of documents in the archive, and their folds over rows in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fourfold.models.documents.facts.log import FACTS
from fourfold.models.documents.revisions.log import REVISIONS
from fourfold.pipeline.archive_plan import Archived, ArchivedFold, ArchivedTable, Lookup
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.documents import spark_fold
from fourfold.pipeline.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COMMIT: Final = {
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
}
_COMMITS: Final = ArchivedTable(
    kind=REVISIONS.profile.name,
    source="documents.commit",
    schema=_COMMIT,
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
_COMMITS_OF_FACTS: Final = replace(
    _COMMITS,
    kind=FACTS.profile.name,
    source="documents.facts.commit",
    schema={**_COMMIT, "hash": "string", "previous": "string"},
    columns={**_COMMITS.columns, "hash": "hash", "previous": "previous"},
)
_OPERATION: Final = {
    "space": "string",
    "file_id": "string",
    "_point": "bigint",
    "branch": "string",
    "id": "string",
    "seq": "bigint",
    "op_index": "bigint",
}
_REVISIONS: Final = ArchivedTable(
    kind=_COMMITS.kind,
    source="documents.revision",
    schema={**_OPERATION, "op": "string", "data": "string"},
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
    lookups=(
        Lookup({"time": "cast(created_at as timestamp)"}, on=("file_id", "seq"), source=_COMMITS),
    ),
)
_VALUES: Final = ArchivedTable(
    kind=FACTS.profile.name,
    source="documents.facts.value",
    schema={"file_id": "string", "_point": "bigint", "hash": "string", "data": "string"},
    columns={},
)
_FACTS: Final = ArchivedTable(
    kind=FACTS.profile.name,
    source="documents.facts.fact",
    schema={
        **{name: _OPERATION[name] for name in ("space", "file_id", "_point", "id")},
        "hash": "string",
        "value_ref": "string",
        "parent": "string",
        "branch": "string",
        "seq": "bigint",
        "commit_ref": "string",
        "fact_type": "string",
    },
    columns={
        "space": "space",
        "hash": "hash",
        "id": "id",
        "value_ref": "value_ref",
        "parent": "parent",
        "branch": "branch",
        "seq": "seq",
        "commit_ref": "commit_ref",
        "op": "fact_type",
    },
    position="seq",
    lookups=(
        Lookup({"data": "data"}, ("file_id", "value_ref"), _VALUES, keys={"value_ref": "hash"}),
    ),
)
_OCCURRENCES: Final = ArchivedTable(
    kind=FACTS.profile.name,
    source="documents.facts.occurrence",
    schema={**_OPERATION, "fact_hash": "string", "fact_type": "string", "text": "string"},
    columns={
        **_REVISIONS.columns,
        "op": "fact_type",
        "data": "coalesce(text, data)",
        "fact": "fact_hash",
    },
    position="seq",
    lookups=(
        replace(_REVISIONS.lookups[0], source=_COMMITS_OF_FACTS),
        # A fact may be older than the rows that are read.
        Lookup(
            {"data": "data"},
            ("file_id", "fact_hash"),
            replace(_FACTS, position=""),
            keys={"fact_hash": "hash"},
        ),
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


_FOLD_INPUT: Final = ("space", "branch", "id", "seq", "op_index", "op", "data")
ARCHIVED: Final[Mapping[str, Archived]] = {
    "commits": (_COMMITS, _COMMITS_OF_FACTS),
    "revisions": (_REVISIONS, _OCCURRENCES),
    "facts": (_FACTS, ArchivedTable(kind=REVISIONS.profile.name)),
    "state": ArchivedFold("revisions", _FOLD_INPUT, _state, ("id",)),
    "history": ArchivedFold("revisions", _FOLD_INPUT, _history, ("id",)),
}
"""Tables of documents by name. The others change without a commit, or are derived."""
