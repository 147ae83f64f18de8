"""The fold of graphs over Arrow batches: the very functions that say which version is current, and
what is hidden.

Rows come in the shape of the table `versions`: those about one object together, its versions and
the ratings that may suppress it or what it points at, in any order. Out comes the newest version of
each object, unless it is hidden. One object is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from fourfold.models.graphs import fold
from fourfold.pipeline.graphs import shapes
from fourfold.pipeline.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = [column.name for column in shapes.of_all()]


class _Version(NamedTuple):
    """A row of `versions`, as the fold looks at it."""

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
    """The id of the version, or of the one that a judgement is about."""
    judged_owner: int | None
    """The owner of what a judgement suppresses."""
    place: tuple[Any, int]
    """The batch that the row is in, and where."""


_OWN = _Version._fields[:-1]
_JUDGEMENT = "judgement"
_about = attrgetter("app_id", "wanted", "target")


def fold_current(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The current objects, as rows of the table `current`."""
    for _, group in groupby(_newest(batches), lambda row: id(row.place[0])):
        found = list(group)
        batch = found[0].place[0].select(_SHOWN)
        yield batch.take(arrow().array([row.place[1] for row in found]))


def _newest(batches: Iterable[pa.RecordBatch]) -> Iterator[_Version]:
    for _, group in groupby(_rows(batches), _about):
        rows = list(group)
        batch, at = rows[0].place
        node = batch.column("node")[at].as_py()
        suppressed = batch.column("suppressed")[at].as_py()
        trusted = frozenset(json.loads(batch.column("trusted")[at].as_py()))
        versions = [row for row in rows if row.kind == row.wanted]
        for row in fold.current(versions, node).values():
            about = [each for each in rows if each.kind == _JUDGEMENT and each.via == row.via]
            if suppressed or not _is_hidden(fold.current(about, node).values(), trusted):
                yield row


def _is_hidden(judgements: Iterable[_Version], trusted: frozenset[int]) -> bool:
    """Return True if one of the current ratings of what hides a row counts."""
    return any(
        fold.is_hidden(by, judgement.judged_owner, trusted)
        for judgement in judgements
        for suppressions in fold.suppressions([judgement], {judgement.type_id})
        for by in suppressions.values()
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Version]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _OWN]
        for at, values in enumerate(zip(*columns, strict=True)):
            yield _Version._make((*values, (batch, at)))
