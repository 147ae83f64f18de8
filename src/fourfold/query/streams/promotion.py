"""Promotion of messages to the current version of their stream, and the fold of state streams.

Stored messages never change. If the schema of a stream had several versions, messages of older ones
are promoted to the current version when they are read, by the function that serves its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fourfold.errors import CorruptData
from fourfold.models.streams.fold import Key, apply
from fourfold.models.streams.json_messages import readable
from fourfold.models.streams.schemas import registry as registries_of_streams
from fourfold.models.streams.schemas.registry import Registry

Registries = dict[str, Registry]
"""Registries that promote messages, by stream name."""
Promote = Callable[[str, int, bytes], bytes]
"""Promotes a message of a stream, given its offset, to the current version."""


def outdated(registries: Iterable[tuple[str, str, int]]) -> Registries:
    """Return the registries of streams that may have messages of an older version.

    `registries` yields the name of a stream, its registry as JSON, and its first offset.
    """
    result = {}
    for name, text, first in registries:
        registry = registries_of_streams.decoded(text)
        if first < registry.begin_of(registry.current_version):
            # Lenses do not need the schemas, which are the larger part.
            result[name] = msgspec.structs.replace(registry, schemas={}, search=None)
    return result


def begin_of_version(registries: Registries, stream: str) -> int:
    """Return the offset from which messages of a stream need no promotion."""
    registry = registries.get(stream)
    return 0 if registry is None else registry.begin_of(registry.current_version)


def promoter(registries: Registries) -> Promote:
    """Return a function that promotes messages of these streams and leaves others unchanged."""
    begins = {name: begin_of_version(registries, name) for name in registries}

    def promote(stream: str, offset: int, payload: bytes) -> bytes:
        if offset >= begins.get(stream, 0):
            return payload
        registry = registries[stream]
        return registry.promote(bytes(payload), offset, registry.current_version)

    return promote


def fold_messages(
    name: str, rows: Iterable[tuple[str, int, bytes]], promote: Promote
) -> dict[Key, Any]:
    """Return the state of a stream after its messages: stream, offset and payload, in order."""
    state: dict[Key, Any] = {}
    for _, offset, payload in rows:
        try:
            apply(state, msgspec.json.decode(readable(promote(name, offset, payload))))
        except msgspec.DecodeError as error:
            raise CorruptData(
                f"stream {name!r}: record {offset} is not valid JSON: {error}"
            ) from None
    return state
