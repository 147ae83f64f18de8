"""Lines of JSON as rows of the sink, and rows into staged files: what the tasks of a load run.

Nothing here needs SQLite, so that it runs on any executor. A line that makes no sense becomes a row
that will be refused, with a cause: that is for `staging` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fourfold.pipeline.documents import staging
from fourfold.pipeline.documents.staging import Shape
from fourfold.pipeline.tables import arrow

FILE_ORDER: Final = ("_file", "_block", "_line")
"""What says the order of rows that came out of files: the file, the part of it, the row in that."""
SCHEMA: Final = (
    "space string, branch string, id string, op string, data string, "
    "_file string, _block bigint, _line bigint"
)
_NOWHERE: Final = "did:unknown:line"


@dataclass(frozen=True, slots=True)
class Documents:
    """Lines that are documents. Each goes in as the text that it is."""

    space: str | None
    space_field: str | None
    id_field: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _each_line(batches, self.row)

    def row(self, line: str) -> tuple[Any, ...]:
        found = _parsed(line)
        if found is None:
            return (self.space or _NOWHERE, "", "line", "set", line)
        space = self.space or found.get(self.space_field or "")
        return (space, "", _id(found.get(self.id_field)), "set", line)


@dataclass(frozen=True, slots=True)
class Operations:
    """Lines that are operations: of the shape of the log, or of a transaction."""

    space: str | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        return _each_line(batches, self.row)

    def row(self, line: str) -> tuple[Any, ...]:
        found = _parsed(line)
        if found is None:
            return (self.space or _NOWHERE, "", "line", "set", line)
        key = next((key for key in ("data", "value", "patches") if key in found), "")
        given = found.get(key)
        if given is None or (key == "data" and isinstance(given, str)):
            data = given
        else:
            # The text as it stands, which staging brings into the form of the log.
            data = bytes(_raw(line)[key]).decode()
        space = found.get("space", self.space)
        op = found.get("op", "set")
        return (space, found.get("branch", ""), _id(found.get("id")), op, data)


@dataclass(frozen=True, slots=True)
class StagingInto:
    """Rows into a staged file; gives one row that says which."""

    shape: Shape
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
        kept = [index for index, line in enumerate(values.to_pylist()) if line.strip()]
        parsed = [parse(values[index].as_py()) for index in kept]
        columns = [pa.array([_text(row[at]) for row in parsed], text) for at in range(len(names))]
        taken = [column.take(pa.array(kept, pa.int64())) for column in order]
        yield pa.RecordBatch.from_arrays([*columns, *taken], names=[*names, *FILE_ORDER])


_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _parsed(line: str) -> dict[str, Any] | None:
    """The object of a line; None for what is none, which then is refused as it stands."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _id(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _text(value: Any) -> Any:
    """Columns of text hold nothing else. What is no text is nothing, and is refused as that."""
    return value if isinstance(value, str) else None
