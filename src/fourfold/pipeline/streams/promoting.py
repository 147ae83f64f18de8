"""Messages in the version that their stream is at: by the very function that serves its readers.

What is stored stays as it came. A stream whose schema went through several versions has messages of
older ones, and only those are touched here; of all other streams nothing is known, and their
records pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from fourfold.models.streams.schemas import registry as registries_of_streams
from fourfold.models.streams.schemas.registry import Registry
from fourfold.pipeline.tables import Column, arrow

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
