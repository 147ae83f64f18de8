"""The fold of graphs over Arrow batches.

It applies the functions of the model that determine the current version and what is hidden. Its
input has the columns of the table `versions`: the rows of one object are consecutive, its versions
and the ratings that may suppress it or its targets, in any order. Its output is the newest version
of each object, unless it is hidden. One object is in memory at a time.

The input is read per app and kind, merged by object. A large table is split by object id. Small
tables of many apps share a task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fourfold import limits
from fourfold.models.graphs.records import KINDS, Kind
from fourfold.pipeline import cut as cuts
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.graphs.app_tables import SQL, FileApp, apps_of
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Piece
from fourfold.query.graphs import shapes
from fourfold.query.graphs.current import current_query, select_current
from fourfold.query.tables import ROOT, SPACE, arrow

if TYPE_CHECKING:
    import pyarrow as pa


_OUTPUT = [column.name for column in shapes.of_all()]


class _Version(NamedTuple):
    """A row of `versions`, as the fold uses it."""

    app_id: int
    target: int
    kind: str
    type_id: int
    object_id: int
    version: int
    origin: str
    owner_identity: int
    target_parent_id: int | None
    target_attr_id: int | None
    value_number: float | None
    wanted: str
    via: int
    """The id of the version, or of the version that a judgement refers to."""
    judged_owner: int | None
    """The owner of what a judgement suppresses."""
    place: tuple[Any, int]
    """The batch of the row, and its index there."""


_OWN = _Version._fields[:-1]
_about = attrgetter("app_id", "wanted", "target")


def fold_current(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the current objects as rows of the table `current`."""
    for _, group in groupby(_newest(batches), lambda row: id(row.place[0])):
        rows = list(group)
        batch = rows[0].place[0].select(_OUTPUT)
        yield batch.take(arrow().array([row.place[1] for row in rows]))


def _newest(batches: Iterable[pa.RecordBatch]) -> Iterator[_Version]:
    for _, group in groupby(_rows(batches), _about):
        rows = list(group)
        batch, at = rows[0].place
        node = batch.column("node")[at].as_py()
        suppressed = batch.column("suppressed")[at].as_py()
        trusted = frozenset(json.loads(batch.column("trusted")[at].as_py()))
        yield from select_current(rows, node, trusted, suppressed=suppressed)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Version]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _OWN]
        for at, values in enumerate(zip(*columns, strict=True)):
            yield _Version._make((*values, (batch, at)))


_CASTS: Final = {
    "string": "TEXT",
    "bigint": "INTEGER",
    "double": "REAL",
    "binary": "BLOB",
    "boolean": "INTEGER",
}
_SAMPLES: Final = {"TEXT": "''", "INTEGER": "0", "REAL": "0.0", "BLOB": "x''"}
_CONSTANT: Final = ("node", "trusted", "suppressed")
_BLOB: Final = "value_blob"
_LAST: Final = 2**62


def folded_parts(bounds: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """Yield the input of the table `current`, each piece with its approximate bytes."""
    kinds = [kind for kind in KINDS if options.conditions.allow("kind", kind)]
    for bound in bounds:
        tables = [
            (app, kind)
            for app in apps_of(bound, options, options.conditions.items)
            for kind in kinds
        ]
        if not tables:
            continue
        [(node,)] = cuts.fetch_rows(bound, SQL.node)
        share = bound.bytes // len(tables)
        # A single table may be large and is split; many tables share statements.
        size = 1 if share > options.partition_bytes else limits.SOURCE_SELECTS_MAX // 4
        for at in range(0, len(tables), size):
            group = tables[at : at + size]
            ranges = _ranges(bound, options, group[0], share) if size == 1 else [(0, _LAST)]
            for between in ranges:
                cost = share * len(group) // len(ranges)
                yield cost, _piece(bound, options, str(node), group, between)


def _ranges(
    bound: FileBound, options: ReadOptions, table: tuple[FileApp, Kind], share: int
) -> list[tuple[int, int]]:
    parts = -(-share // options.partition_bytes)
    sql = SQL.greatest_object.replace("{n}", str(table[0].app_id)).replace("{kind}", table[1])
    [(greatest,)] = cuts.fetch_rows(bound, sql)
    width = max(1, -(-greatest // parts))
    return [(low, low + width) for low in range(0, max(greatest, 1), width)]


def _piece(
    bound: FileBound,
    options: ReadOptions,
    node: str,
    tables: Sequence[tuple[FileApp, Kind]],
    between: tuple[int, int],
) -> Piece:
    read = options.tables.table(options.table.reads).select_columns()
    casts = [(column.name, _CASTS[column.type]) for column in read if column.name not in _CONSTANT]
    blobs = _BLOB in (options.columns or ())
    columns = ", ".join(_cast(name, cast, blobs=blobs) for name, cast in casts)
    merged = [
        SQL.merged.format(
            columns=columns, parts=current_query(table[0].app_id, table[1], bound.seq)
        )
        for table in tables
    ]
    sql = SQL.folding.format(
        samples=", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts),
        merged=" ".join(merged),
    )
    constants: tuple[tuple[str, Any], ...] = (
        (SPACE, bound.space),
        (ROOT, bound.root),
        ("node", node),
        ("trusted", json.dumps(options.trusted)),
        ("suppressed", options.suppressed),
    )
    return Piece(bound.path, sql, between, constants)


def _cast(name: str, cast: str, *, blobs: bool) -> str:
    """Return a column with its type; bytes that are not selected are not read."""
    value = "NULL" if name == _BLOB and not blobs else f'"{name}"'
    return f'CAST({value} AS {cast}) AS "{name}"'
