"""Tables of sessions in the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fourfold.models.sessions.database import PROFILE
from fourfold.pipeline.archive_plan import Archived, ArchivedFold, ArchivedTable, Lookup
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.sessions.derivation import DERIVED, derive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENTS: Final = ArchivedTable(
    kind=PROFILE.name,
    source="sessions.events",
    schema={
        "file_id": "string",
        "_point": "bigint",
        "session_key": "bigint",
        "event_id": "bigint",
        "position": "bigint",
        "type": "string",
        "at": "string",
        "entity": "bigint",
        "entity_id": "bigint",
        "request_key": "string",
        "body": "string",
        "digest": "binary",
    },
    columns={
        "event_id": "event_id",
        "position": "position",
        "type": "type",
        "time": "cast(at as timestamp)",
        "entity": "elt(cast(entity as int), 'message', 'turn', 'step', 'eval')",
        "entity_id": "entity_id",
        "request_key": "request_key",
        "body": "body",
        "digest": "concat('sha256:', lower(hex(digest)))",
    },
    position="position",
    # The table has only sessions that are not deleted.
    lookups=(
        Lookup({"session": "session"}, on=("session_key",), live="session_keys", required=True),
    ),
)
_INPUT: Final = (
    "session",
    "event_id",
    "position",
    "type",
    "time",
    "entity",
    "entity_id",
    "body",
)


def _derived(
    _spark: SparkSession, options: ReadOptions, _bounds: Sequence[FileBound], rows: DataFrame
) -> DataFrame:
    derived = derive(options.table_name, rows)
    for condition in options.conditions.spark_columns():
        derived = derived.where(condition)
    return derived


ARCHIVED: Final[Mapping[str, Archived]] = {
    "events": (_EVENTS,),
    **{name: ArchivedFold("events", _INPUT, _derived) for name in DERIVED},
}
"""Tables of sessions by name. `view` is folded from snapshots, which are derived; `sessions` and
`payloads` change without an event.
"""
