"""Parse JSON lines into rows of the sink and stage them: the tasks of a load.

Nothing here needs SQLite, so it runs on any executor. An invalid line becomes a row that `staging`
refuses with a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.staging import ColumnRoles
from fourfold.query.tables import arrow

FILE_ORDER: Final = ("_file", "_block", "_line")
"""Columns that order rows from files: the file, the block in it, the line in the block."""
SCHEMA: Final = (
    "space string, branch string, id string, op string, data string, "
    "_file string, _block bigint, _line bigint"
)
_NOWHERE: Final = "did:unknown:line"


@dataclass(frozen=True, slots=True)
class DocumentParser:
    """Parses lines that are documents; the text is stored unchanged."""

    space: str | None
    space_field: str | None
    id_field: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _each_line(batches, self.row)

    def row(self, line: str) -> tuple[Any, ...]:
        """Return the row of a line."""
        document = _parsed(line)
        if document is None:
            return (self.space or _NOWHERE, "", "line", "set", line)
        space = self.space or document.get(self.space_field or "")
        return (space, "", _id(document.get(self.id_field)), "set", line)


@dataclass(frozen=True, slots=True)
class Operations:
    """Parses lines that are operations, in the form of the log or of a transaction."""

    space: str | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _each_line(batches, self.row)

    def row(self, line: str) -> tuple[Any, ...]:
        """Return the row of a line."""
        operation = _parsed(line)
        if operation is None:
            return (self.space or _NOWHERE, "", "line", "set", line)
        key = next((key for key in ("data", "value", "patches") if key in operation), "")
        value = operation.get(key)
        if value is None or (key == "data" and isinstance(value, str)):
            data = value
        else:
            # Unparsed: staging converts it to the form of the log.
            data = bytes(_raw(line)[key]).decode()
        space = operation.get("space", self.space)
        op = operation.get("op", "set")
        return (space, operation.get("branch", ""), _id(operation.get("id")), op, data)


@dataclass(frozen=True, slots=True)
class RowStager:
    """Stages rows in a file; yields one row with its description."""

    shape: ColumnRoles
    folder: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext  # noqa: PLC0415 - only in a task

        pa = arrow()
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        staged = staging.stage(batches, self.shape, self.folder, partition)
        yield pa.RecordBatch.from_arrays(
            [pa.array([msgspec.json.encode(staged)], pa.binary())], names=["staged"]
        )


def _each_line(batches: Iterator[Any], parse: Callable[[str], tuple[Any, ...]]) -> Iterator[Any]:
    pa = arrow()
    text = pa.string()
    names = ("space", "branch", "id", "op", "data")
    for batch in batches:
        values, *order = (batch.column(name) for name in ("value", *FILE_ORDER))
        indexes = [index for index, line in enumerate(values.to_pylist()) if line.strip()]
        parsed = [parse(values[index].as_py()) for index in indexes]
        columns = [pa.array([_text(row[at]) for row in parsed], text) for at in range(len(names))]
        order_columns = [column.take(pa.array(indexes, pa.int64())) for column in order]
        yield pa.RecordBatch.from_arrays([*columns, *order_columns], names=[*names, *FILE_ORDER])


_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _parsed(line: str) -> dict[str, Any] | None:
    """Parse one line as a JSON object; None if it is not one (rejected later)."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _id(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _text(value: Any) -> Any:
    """Return a text unchanged and None for any other value, which is rejected later."""
    return value if isinstance(value, str) else None
