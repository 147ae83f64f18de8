"""Changes of objects of graphs with their images before and after, from the logs in an archive.

There is a table for each kind: `graphs.parent_changes` and so on. A change is a new current version
of an object, as the log has it: a version of another node that arrives late, below the current one,
changes nothing. What suppressions hide is not left out. The images are the columns of a version, as
JSON; a change of flags is not a version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from fourfold.archive.table_layout import FILE_ID, OP, POINT, PUT
from fourfold.archive.table_layout import TABLE as APP_TABLE
from fourfold.models.graphs.records import KINDS, ROWS, Kind
from fourfold.pipeline.image_changes import (
    PRESENT,
    ImageLog,
    ImageTask,
    SmallRows,
    kind_of,
    new_rows,
    rows_of,
)
from fourfold.query.tables import Column

_APPS: Final = "graphs.apps"
_COLUMNS: Final = (
    Column("app", "string"),
    Column("file_id", "string"),
    Column("object_id", "bigint"),
    Column("version", "bigint"),
    Column("global_seq", "bigint"),
    Column("change", "string"),
    Column("before", "string"),
    Column("after", "string"),
    Column("_point", "bigint"),
)
_KEYS: Final = (FILE_ID, APP_TABLE, OP, POINT, "object_id")
_HIDDEN: Final = frozenset({"id", "global_seq", "sync_flags", "object_id", "version", "position"})
"""Columns of a version that are columns of a change, or are not written by a user."""

Key = tuple[str, str, int]
"""The id of the database file, the table of the app, and the id of the object."""


def _facts(rows: SmallRows, until: int) -> Mapping[str, dict[int, str]]:
    """Return the names of apps by their ids."""
    found: dict[str, dict[int, str]] = {}
    for table in rows(_APPS, (FILE_ID, POINT, OP, "app_id", "slug")):
        for row in table.to_pylist():
            if row[OP] in PRESENT and row[POINT] <= until:
                found.setdefault(row[FILE_ID], {})[row["app_id"]] = row["slug"]
    return found


def _key(row: Mapping[str, Any]) -> Key:
    return row[FILE_ID], row[APP_TABLE], row["object_id"]


def _read(kind: Kind, task: ImageTask) -> Iterator[dict[str, Any]]:
    """Yield the changes of a task, in the order of databases, apps, objects and seqs."""
    changed = {_key(row) for row in new_rows(task, _KEYS)}
    logs: dict[Key, dict[int, Mapping[str, Any]]] = {key: {} for key in changed}
    columns = sorted({*_KEYS, *_columns(kind), "id", "origin", "global_seq", "version"})
    objects = (number for _, _, number in changed)
    for row in rows_of(task, columns, "object_id", objects) if changed else ():
        log = logs.get(_key(row))
        if log is not None and row[OP] == PUT:
            # Changed flags publish a row again: the first time is when the version came.
            known = log.get(row["id"])
            if known is None or row[POINT] < known[POINT]:
                log[row["id"]] = row
    for key in sorted(logs):
        yield from _changes(kind, key, logs[key], task)


def _changes(
    kind: Kind, key: Key, log: Mapping[int, Mapping[str, Any]], task: ImageTask
) -> Iterator[dict[str, Any]]:
    file_id, app_table, number = key
    app = task.facts[file_id][int(app_table.split("_")[1])]
    newest: tuple[int, str] | None = None
    before: str | None = None
    for row in sorted(log.values(), key=lambda row: (row["global_seq"], row["id"])):
        rank = (row["version"], row["origin"])
        if newest is not None and rank < newest:
            continue
        newest, after = rank, _image(kind, row)
        if row[POINT] > task.after:
            yield {
                "app": app,
                "file_id": file_id,
                "object_id": number,
                "version": row["version"],
                "global_seq": row["global_seq"],
                "change": kind_of(before, after),
                "before": before,
                "after": after,
                POINT: row[POINT],
            }
        before = after


def _columns(kind: Kind) -> list[str]:
    return [name for name in ROWS[kind]._fields if name not in _HIDDEN]


def _image(kind: Kind, row: Mapping[str, Any]) -> str:
    values = {name: _plain(row[name]) for name in _columns(kind)}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _image_log(kind: Kind) -> ImageLog:
    name = f"graphs.{kind}_changes"
    return ImageLog(name, f"graphs.{kind}", _COLUMNS, partial(_read, kind), _facts)


IMAGES: Final = {images.name: images for images in map(_image_log, KINDS)}
