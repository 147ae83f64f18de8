"""The fold of state streams over Arrow batches: the very function that answers `streams.state`.

Rows come in the shape of the table `changes`: the messages of one stream together, in order, each
in the version that it was stored in. Out comes a row for each key that has a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData
from fourfold.models.streams.fold import Key, apply
from fourfold.models.streams.messages import readable
from fourfold.pipeline.streams.promoting import Promote, Registries, promoter
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

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
