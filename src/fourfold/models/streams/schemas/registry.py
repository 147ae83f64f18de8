"""The schema registry of a stream: its versions, the offset each starts at, and the lenses. Pure.

    {"currentVersion": 2,
     "schemas":    {"1": {...}, "2": {...}},
     "lenses":     {"1": {"ops": [...]}},                    from version 1 to version 2
     "boundaries": [{"offset": "...", "version": 1}, ...],   start of each version
     "routingKey": {"jsonPointer": "/customer", "required": true},
     "search":     {"fields": ["status"], "text": ["note"]}}

Versions and lenses are never removed: a message that was stored in an old version is read through
every later lens. `routingKey` and `search` apply to later appends and can be removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.streams.schemas import compatibility, pointers
from fourfold.models.streams.schemas.lens import Lens
from fourfold.models.streams.schemas.search import Search, check_search
from fourfold.models.streams.validation import format_offset

STREAM_REGISTRY_BYTES: Final = 256 * limits.KIB
"""Bytes of a schema registry, all versions and lenses included."""

Promote = Callable[[bytes], bytes]


class RoutingKey(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Location of the routing key in messages, and whether it is required."""

    json_pointer: str
    required: bool = False


class Boundary(msgspec.Struct, frozen=True):
    """The offset at which a version starts."""

    offset: str
    version: int


class RegistryChange(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A change of a registry; unset fields do not change."""

    schema: Any = msgspec.UNSET
    lens: Any = None
    routing_key: RoutingKey | msgspec.UnsetType | None = msgspec.UNSET
    search: Search | msgspec.UnsetType | None = msgspec.UNSET


class Registry(msgspec.Struct, frozen=True, rename="camel", dict=True):
    """The registry of one stream, as stored and returned."""

    current_version: int = 0
    schemas: dict[str, Any] = {}
    lenses: dict[str, Any] = {}
    boundaries: list[Boundary] = []
    routing_key: RoutingKey | None = None
    search: Search | None = None

    @property
    def schema(self) -> Any:
        """The current schema, or None if there is none."""
        return self.schemas.get(str(self.current_version))

    @cached_property
    def _starts(self) -> list[int]:
        return [int(boundary.offset.partition("_")[2]) for boundary in self.boundaries]

    @cached_property
    def _lenses(self) -> dict[int, Lens]:
        return {int(version): Lens.read(lens) for version, lens in self.lenses.items()}

    def version_at(self, offset: int) -> int:
        """Return the version in which the record at an offset is stored."""
        at = bisect_right(self._starts, offset) - 1
        return self.boundaries[at].version if at >= 0 else self.boundaries[0].version

    def begin_of(self, version: int) -> int:
        """Return the first offset that is stored in a version or a later one."""
        for start, boundary in zip(self._starts, self.boundaries, strict=True):
            if boundary.version >= version:
                return start
        return 0

    @cached_property
    def _composed(self) -> dict[tuple[int, int], Lens]:
        """Cache of composed lenses by their first and last version."""
        return {}

    def _lens_between(self, start: int, end: int) -> Lens:
        lens = self._composed.get((start, end))
        if lens is None:
            lens = self._lenses[start]
            for version in range(start + 1, end):
                lens = lens.then(self._lenses[version])
            self._composed[start, end] = lens
        return lens

    def promote(self, payload: bytes, offset: int, version: int) -> bytes:
        """Convert a message that is stored at an offset to a version."""
        start = self.version_at(offset)
        return self._lens_between(start, version).promote(payload) if start < version else payload

    def until(self, offset: int) -> Registry:
        """Return the registry of a fork at an offset, without versions that start after it."""
        kept = [
            boundary
            for start, boundary in zip(self._starts, self.boundaries, strict=True)
            if start <= offset
        ]
        version = kept[-1].version if kept else 0
        return msgspec.structs.replace(
            self,
            current_version=version,
            schemas={
                number: schema for number, schema in self.schemas.items() if int(number) <= version
            },
            lenses={number: lens for number, lens in self.lenses.items() if int(number) < version},
            boundaries=kept,
        )

    def ending_at(self, offset: int) -> Registry:
        """Return the registry of a stream that lost all records from an offset on.

        Versions that started after the offset start there.
        """
        boundaries = [
            Boundary(format_offset(min(start, offset)), boundary.version)
            for start, boundary in zip(self._starts, self.boundaries, strict=True)
        ]
        return msgspec.structs.replace(self, boundaries=boundaries)

    def of_incarnation(self, number: int) -> Registry:
        """Return the registry with offsets of an incarnation; stored offsets have 0."""
        boundaries = [
            Boundary(format_offset(start, number), boundary.version)
            for start, boundary in zip(self._starts, self.boundaries, strict=True)
        ]
        return msgspec.structs.replace(self, boundaries=boundaries)

    def changed(self, change: RegistryChange) -> Registry:
        """Return the registry after a change, or raise InvalidInput.

        A new version has no boundary yet: `begun` adds it.
        """
        registry = self
        if change.schema is not msgspec.UNSET:
            registry = registry._with_schema(change.schema, change.lens)
        elif change.lens is not None:
            raise InvalidInput("a lens requires the schema that it leads to")
        if change.routing_key is not msgspec.UNSET:
            if change.routing_key is not None:
                pointers.check(change.routing_key.json_pointer)
            registry = msgspec.structs.replace(registry, routing_key=change.routing_key)
        if change.search is not msgspec.UNSET:
            if change.search is not None:
                check_search(change.search)
            registry = msgspec.structs.replace(registry, search=change.search)
        if len(encoded(registry)) > STREAM_REGISTRY_BYTES:
            raise InvalidInput(
                f"registry must have at most {STREAM_REGISTRY_BYTES} bytes, all versions "
                f"together, got {len(encoded(registry))}"
            )
        return registry

    def _with_schema(self, schema: Any, lens: Any) -> Registry:
        version = self.current_version
        if version and same_json(schema, self.schema):
            # A repeated request changes nothing.
            if lens is not None and not self._has_lens(lens):
                raise InvalidInput(
                    f"version {version} already has this schema, so a lens is not allowed"
                )
            return self
        compatibility.compiled(schema)
        lenses = dict(self.lenses)
        if version:
            if lens is None:
                raise InvalidInput(
                    f"version {version + 1} requires a lens that converts messages of version "
                    f"{version}",
                    hint='Send one with the schema: {"ops": []} if every old message is valid as '
                    "it is.",
                )
            parsed = Lens.read(lens)
            compatibility.check_proven(self.schema, parsed, schema)
            lenses[str(version)] = parsed.to_json()
        elif lens is not None:
            raise InvalidInput("the first version cannot have a lens")
        return msgspec.structs.replace(
            self,
            current_version=version + 1,
            schemas={**self.schemas, str(version + 1): schema},
            lenses=lenses,
        )

    def _has_lens(self, lens: Any) -> bool:
        current = self.lenses.get(str(self.current_version - 1))
        return current is not None and same_json(Lens.read(lens).to_json(), current)

    def begun(self, offset: int) -> Registry:
        """Return the registry with the newest version starting at an offset.

        Versions that start at the same offset are all kept: messages pass through each lens.
        """
        if not self.current_version or (
            self.boundaries and self.boundaries[-1].version == self.current_version
        ):
            return self
        start = Boundary(format_offset(offset), self.current_version)
        return msgspec.structs.replace(self, boundaries=[*self.boundaries, start])

    def keys_of(self, messages: Sequence[bytes]) -> Iterator[bytes | None]:
        """Yield the routing key of each message.

        Raises:
            InvalidInput: a required key is missing, or a key is invalid.
        """
        declared = self.routing_key
        assert declared is not None
        for number, message in enumerate(messages, 1):
            key = pointers.text_at(message, declared.json_pointer)
            if key is None and declared.required:
                raise InvalidInput(
                    f"message {number}: no text at {declared.json_pointer!r}, the routing key of "
                    "this stream"
                )
            yield key


EMPTY = Registry()


def encoded(registry: Registry) -> bytes:
    """Encode a registry as JSON."""
    return msgspec.json.encode(registry)


@lru_cache(maxsize=64)
def decoded(text: str) -> Registry:
    """Decode a stored registry; recent ones are cached with their composed lenses."""
    try:
        return msgspec.json.decode(text, type=Registry)
    except msgspec.DecodeError as error:
        raise CorruptData(f"cannot decode a schema registry: {error}") from None


def change_of(data: Any) -> RegistryChange:
    """Return the change that JSON describes, or raise InvalidInput."""
    try:
        change = msgspec.convert(data, RegistryChange)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"invalid change of a registry: {error}",
            hint="Send some of: schema, lens, routingKey, search.",
        ) from None
    if change == RegistryChange():
        raise InvalidInput(
            "no change of the registry", hint="Send some of: schema, lens, routingKey, search."
        )
    return change


def same_json(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON; true is not 1."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
