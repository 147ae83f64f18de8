"""The fold of state streams over Arrow batches: the very function that answers `streams.state`.

Rows come in the shape of the table `changes`: the messages of one stream together, in order, each
in the version that it was stored in. Out comes a row for each key that has a value.

Queries of streams that are put together here: what the folds read, and ranges of offsets.

Messages in the version that their stream is at: by the very function that serves its readers.

What is stored stays as it came. A stream whose schema went through several versions has messages of
older ones, and only those are touched here; of all other streams nothing is known, and their
records pass as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData
from fourfold.kernel import load_queries
from fourfold.models.streams.fold import Key, apply
from fourfold.models.streams.json_messages import readable
from fourfold.models.streams.schemas import registry as registries_of_streams
from fourfold.models.streams.schemas.registry import Registry
from fourfold.pipeline import cut as cuts
from fourfold.pipeline import plan
from fourfold.pipeline.conditions import as_sql
from fourfold.pipeline.cut import FileBound
from fourfold.pipeline.options import ReadOptions
from fourfold.pipeline.scan import Guard, Piece
from fourfold.pipeline.tables import ROOT, SPACE, Column, arrow

if TYPE_CHECKING:
    import pyarrow as pa


Registries = dict[str, Registry]
"""By the name of the stream: those by which something is promoted."""
Promote = Callable[[str, int, bytes], bytes]
"""A message of a stream, with its offset, as its readers get it."""

_MADE: Final = frozenset({"payload", "text", "size"})
"""Columns that another version of a message is seen in."""
_READ: Final = (
    Column("stream", "string", nullable=False),
    Column("offset", "bigint", nullable=False),
    Column("payload", "binary", nullable=False),
    Column("content_type", "string", nullable=False),
)
"""What they are made of."""


def outdated(told: Iterable[tuple[str, str, int]]) -> Registries:
    """Of streams, each with its registry as JSON and its first offset, those that may have messages
    of an older version than they are at.
    """
    found = {}
    for name, text, first in told:
        registry = registries_of_streams.decoded(text)
        if first < registry.begin_of(registry.current_version):
            # The schemas are not needed to go through the lenses, and are the larger part.
            found[name] = msgspec.structs.replace(registry, schemas={}, search=None)
    return found


def begin_of_version(registries: Registries, stream: str) -> int:
    """The first offset of a stream from which on nothing is to be promoted."""
    found = registries.get(stream)
    return 0 if found is None else found.begin_of(found.current_version)


def promoter(registries: Registries) -> Promote:
    """The function that promotes messages of these streams; others it leaves alone."""
    begins = {name: begin_of_version(registries, name) for name in registries}

    def promote(stream: str, offset: int, payload: bytes) -> bytes:
        if offset >= begins.get(stream, 0):
            return payload
        found = registries[stream]
        return found.promote(bytes(payload), offset, found.current_version)

    return promote


def shows_messages(columns: Iterable[Column]) -> bool:
    """Whether the version of a message makes a difference to one of these columns."""
    return any(column.name in _MADE for column in columns)


def columns_read(columns: Iterable[Column]) -> tuple[Column, ...]:
    """What has to be read so that `promoted` can make these columns."""
    kept = tuple(column for column in columns if column.name not in _MADE)
    names = {column.name for column in kept}
    return (*kept, *(column for column in _READ if column.name not in names))


def promoted(
    batches: Iterable[pa.RecordBatch], registries: Registries | None = None
) -> Iterator[pa.RecordBatch]:
    """Stored records as messages: with the columns `text` and `size`, which are those of what is
    in `payload` now.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    promote = promoter(registries or {})
    names = pa.array(list(registries or {}), pa.string())
    for batch in batches:
        concerned = pc.is_in(batch.column("stream"), value_set=names)
        payload = _payloads(batch, pc.indices_nonzero(concerned).to_pylist(), promote)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {
            "payload": payload,
            "text": _texts(payload, batch.column("content_type")),
            "size": pc.binary_length(payload).cast(pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _payloads(batch: pa.RecordBatch, places: list[int], promote: Promote) -> pa.Array:
    stored = batch.column("payload")
    if not places:
        return stored
    found = stored.to_pylist()
    streams, offsets = batch.column("stream"), batch.column("offset")
    for at in places:
        found[at] = promote(streams[at].as_py(), offsets[at].as_py(), found[at])
    return arrow().array(found, stored.type)


def _texts(payload: pa.Array, content_type: pa.Array) -> pa.Array:
    """The payloads of JSON and text as text: bytes as they are, as SQLite and Spark have them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - an optional dependency

    pa = arrow()
    textual = pc.match_substring_regex(content_type, "^(application/json|text/)", ignore_case=True)
    return pc.if_else(textual, payload.view(pa.string()), pa.scalar(None, pa.string()))


_NAMES = ("stream", "type", "key", "value")


def fold_states(
    batches: Iterable[pa.RecordBatch], registries: Registries | None = None
) -> Iterator[pa.RecordBatch]:
    """The state of each stream, as rows of the table `state`."""
    pa = arrow()
    promote = promoter(registries or {})
    schema = pa.schema([(name, pa.string()) for name in _NAMES])
    ready: list[tuple[str, str, str, str]] = []
    for name, rows in groupby(_rows(batches), itemgetter(0)):
        for key, value in _state(name, rows, promote).items():
            ready.append((name, *key, json.dumps(value, ensure_ascii=False)))
            if len(ready) >= limits.FOLD_BATCH_ROWS:
                yield _batch(ready, schema)
                ready = []
    if ready:
        yield _batch(ready, schema)


def _state(name: str, rows: Iterable[tuple[str, int, bytes]], promote: Promote) -> dict[Key, Any]:
    state: dict[Key, Any] = {}
    for _, offset, payload in rows:
        try:
            apply(state, msgspec.json.decode(readable(promote(name, offset, payload))))
        except msgspec.DecodeError as error:
            raise CorruptData(f"record {offset} of {name!r} is not JSON: {error}") from None
    return state


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("stream", "offset", "payload"))
        yield from zip(*columns, strict=True)


def _batch(rows: list[tuple[str, str, str, str]], schema: pa.Schema) -> pa.RecordBatch:
    pa = arrow()
    return pa.RecordBatch.from_arrays(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema
    )


SQL: Final = load_queries("fourfold.pipeline.streams", "tables.sql")
_CASTS: Final = {"string": "TEXT", "bigint": "INTEGER", "binary": "BLOB", "timestamp": "TEXT"}
_SAMPLES: Final = {"TEXT": "''", "INTEGER": "0", "BLOB": "x''"}

Range = tuple[int, int, int]
"""The key of a stream, an offset, and the one to stop before."""


def registries_in(mark: FileBound, pattern: str | None = None) -> Registries:
    """The registries by which messages in a file are promoted. A registry only ever goes on, and
    this is asked after the cut: so whatever is read, its version is one of them.
    """
    rows = cuts.fetch_rows(mark, SQL.registries, (pattern,))
    return outdated((stream, text, first) for _, stream, _, text, first in rows)


def folded_parts(marks: Sequence[FileBound], options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What the folded tables read, each piece with the registries of its file."""
    parts = _changes_in if options.table.reads == "changes" else _stored_in
    for mark in marks:
        registries = registries_in(mark, options.stream)
        for cost, piece in parts(mark, options):
            yield cost, replace(piece, context=registries or None)


def _stored_in(mark: FileBound, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What messages are made of."""
    stored = replace(options, table_name=options.table.reads, columns=None)
    return plan.iter_raw_parts([mark], stored, stored.table.chosen())


def _changes_in(mark: FileBound, options: ReadOptions) -> Iterator[tuple[int, Piece]]:
    """What the fold of states reads; a large file is cut into parts by the keys of its streams."""
    count = -(-mark.bytes // options.partition_bytes)
    [(greatest,)] = cuts.fetch_rows(mark, SQL.greatest_sid)
    width = max(1, -(-greatest // count))
    lows = range(0, max(greatest, 1), width)
    for low in lows:
        yield mark.bytes // len(lows), _changes(mark, options, low, low + width)


def _changes(mark: FileBound, options: ReadOptions, after: int, upto: int) -> Piece:
    columns = options.tables.table(options.table.reads).chosen()
    texts, given = as_sql(options.conditions.on("stream"), 3)
    if options.stream is not None:
        texts.append(f'"stream" GLOB {quoted(options.stream)}')
    conditions = " AND ".join(texts) or "1"
    sql = SQL.changes.format(**_shape(columns), cut=mark.seq, conditions=conditions)
    values = (after, upto, *given)
    guard = Guard(
        SQL.changes_whole.format(conditions=conditions),
        values,
        "records of a stream were published, and its state cannot be folded of the others alone",
    )
    return Piece(mark.path, sql, values, _constants(mark), guard=guard)


def ranges(mark: FileBound, columns: Sequence[Column], wanted: Sequence[Range]) -> Iterator[Piece]:
    """The records of ranges of offsets, in pieces of a good size; all of them, or an error."""
    own = [each for each in columns if each.name not in {SPACE, ROOT}]
    sql = SQL.ranges.format(**_shape(own))
    for some in _divided(wanted):
        asked = json.dumps(some)
        refusal = "retention or the archive gave up records before they were read"
        guard = Guard(SQL.ranges_whole, (asked,), refusal)
        yield Piece(mark.path, sql, (asked,), _constants(mark), guard=guard)


def _divided(wanted: Sequence[Range]) -> Iterator[list[Range]]:
    """Ranges together until there is enough to do; a long one in several."""
    ready: list[Range] = []
    left = limits.STREAM_TASK_ROWS
    for sid, start, end in wanted:
        low = start
        while low < end:
            high = min(end, low + left)
            ready.append((sid, low, high))
            left -= high - low
            low = high
            if not left:
                yield ready
                ready, left = [], limits.STREAM_TASK_ROWS
    if ready:
        yield ready


def _shape(columns: Sequence[Column]) -> dict[str, str]:
    casts = [(each.name, _CASTS[each.type]) for each in columns]
    return {
        "samples": ", ".join(f'{_SAMPLES[cast]} AS "{name}"' for name, cast in casts),
        "columns": ", ".join(f'CAST("{name}" AS {cast}) AS "{name}"' for name, cast in casts),
    }


def _constants(mark: FileBound) -> tuple[tuple[str, str], ...]:
    return ((SPACE, mark.space), (ROOT, mark.root))


def quoted(text: str) -> str:
    """Text inside a query."""
    return "'" + text.replace("'", "''") + "'"
