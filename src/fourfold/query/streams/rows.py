"""The folded tables of streams in process: `messages`, promoted, and `state`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from fourfold.errors import HistoryTruncated
from fourfold.query.files import FoldedTable, QueryFile, read_all
from fourfold.query.streams.promotion import fold_messages, outdated, promoter
from fourfold.query.streams.tables import SQL

_LAST: Final = 2**62
_CHANGES: Final = {
    "samples": "0 AS own, '' AS stream, 0 AS offset, x'' AS payload",
    "columns": "own, stream, offset, CAST(payload AS BLOB) AS payload",
}
_TEXTUAL: Final = ("application/json", "text/")


def message_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the records of the file as readers get them, in the current version."""
    promote = promoter(_registries(file))
    sql, params = _records(file, constraints)
    for row in file.snapshot.rows(sql, params):
        stream, offset, position, time, stored, routing_key, headers, content_type = row
        payload = promote(stream, offset, stored)
        textual = content_type.lower().startswith(_TEXTUAL)
        text = payload.decode(errors="surrogateescape") if textual else None
        yield (
            *(stream, offset, position, time, payload),
            *(text, len(payload), routing_key, headers, content_type),
        )


def _records(file: QueryFile, constraints: Mapping[str, Any]) -> tuple[str, list[Any]]:
    params: list[Any] = [file.seq]
    conditions = f"position <= ?1 AND {file.prefix_condition('stream')}"
    if constraints.get("stream") is not None:
        params.append(constraints["stream"])
        conditions += " AND stream = ?2"
    columns = "stream, offset, position, time, payload, routing_key, headers, content_type"
    return SQL.selected.format(columns=columns, query=SQL.records, conditions=conditions), params


def _registries(file: QueryFile) -> Any:
    rows = file.snapshot.all(SQL.registries, (None,))
    return outdated((stream, text, first) for _, stream, _, text, first in rows)


def state_rows(file: QueryFile, constraints: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the newest value of each key of every state stream."""
    promote = promoter(_registries(file))
    params: list[Any] = [0, _LAST]
    conditions = file.prefix_condition("stream")
    if constraints.get("stream") is not None:
        params.append(constraints["stream"])
        conditions += ' AND "stream" = ?3'
    if not file.snapshot.value(SQL.changes_whole.format(conditions=conditions), params):
        raise HistoryTruncated(
            f"{file.path}: the state of a stream cannot be folded: some of its records are only in"
            " segments",
            hint="Select one stream, or query in Spark: `fourfold sql --engine spark`.",
        )
    sql = SQL.changes.format(**_CHANGES, cut=file.seq, conditions=conditions)
    rows = (
        (stream, offset, payload)
        for _, stream, offset, payload in read_all(file.snapshot, sql, params)
    )
    for stream, group in groupby(rows, itemgetter(0)):
        for (kind, key), value in fold_messages(stream, group, promote).items():
            yield (stream, kind, key, json.dumps(value, ensure_ascii=False))


FOLDED: Final = {
    "messages": FoldedTable(message_rows, keys=("stream",)),
    "state": FoldedTable(state_rows, keys=("stream",)),
}
