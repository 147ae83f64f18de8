"""The registry of a stream's schemas: which versions there are, from which offset on each holds,
and how a message of an older one becomes one of the newest. Pure.

    {"currentVersion": 2,
     "schemas":    {"1": {...}, "2": {...}},
     "lenses":     {"1": {"ops": [...]}},                    from version 1 to version 2
     "boundaries": [{"offset": "...", "version": 1}, ...],   each holds from there on
     "routingKey": {"jsonPointer": "/customer", "required": true},
     "search":     {"fields": ["status"]}}

Nothing is ever taken out of it but the last two, which are declarations for what comes: a message
that was stored under an old version is read through every lens that came since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import CorruptData, InvalidInput
from fourfold.models.streams.archive.indexes.fields import check_field
from fourfold.models.streams.schemas import compatibility, pointers
from fourfold.models.streams.schemas.lens import Lens
from fourfold.models.streams.validation import show_offset

Promote = Callable[[bytes], bytes]


class RoutingKey(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where a message has its routing key, and whether each must have one."""

    json_pointer: str
    required: bool = False


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields that messages are found by, once they are in published segments."""

    fields: list[str]


class Boundary(msgspec.Struct, frozen=True):
    """From which offset on a version holds."""

    offset: str
    version: int


class Change(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What shall be different; what is not said stays as it is."""

    schema: Any = msgspec.UNSET
    lens: Any = None
    routing_key: RoutingKey | msgspec.UnsetType | None = msgspec.UNSET
    search: Search | msgspec.UnsetType | None = msgspec.UNSET


class Registry(msgspec.Struct, frozen=True, rename="camel", dict=True):
    """The registry of one stream, as it is stored and shown."""

    current_version: int = 0
    schemas: dict[str, Any] = {}
    lenses: dict[str, Any] = {}
    boundaries: list[Boundary] = []
    routing_key: RoutingKey | None = None
    search: Search | None = None

    @property
    def schema(self) -> Any:
        """The current schema; None when there is none."""
        return self.schemas.get(str(self.current_version))

    @cached_property
    def _starts(self) -> list[int]:
        return [int(each.offset.partition("_")[2]) for each in self.boundaries]

    @cached_property
    def _lenses(self) -> dict[int, Lens]:
        return {int(version): Lens.read(each) for version, each in self.lenses.items()}

    def version_at(self, offset: int) -> int:
        """The version under which a record was stored."""
        at = bisect_right(self._starts, offset) - 1
        return self.boundaries[at].version if at >= 0 else self.boundaries[0].version

    def begin_of(self, version: int) -> int:
        """The first offset that is stored in a version, or in a later one."""
        for start, boundary in zip(self._starts, self.boundaries, strict=True):
            if boundary.version >= version:
                return start
        return 0

    @cached_property
    def _ways(self) -> dict[tuple[int, int], Lens]:
        """From one version to another, as far as somebody went."""
        return {}

    def _way(self, start: int, end: int) -> Lens:
        found = self._ways.get((start, end))
        if found is None:
            found = self._lenses[start]
            for step in range(start + 1, end):
                found = found.then(self._lenses[step])
            self._ways[start, end] = found
        return found

    def promote(self, payload: bytes, offset: int, version: int) -> bytes:
        """A message that is stored at an offset, as one of a version."""
        start = self.version_at(offset)
        return self._way(start, version).promote(payload) if start < version else payload

    def until(self, offset: int) -> Registry:
        """What a fork at an offset goes on with: versions that were set behind it are not its
        own.
        """
        kept = [
            each
            for start, each in zip(self._starts, self.boundaries, strict=True)
            if start <= offset
        ]
        version = kept[-1].version if kept else 0
        return msgspec.structs.replace(
            self,
            current_version=version,
            schemas={
                number: each for number, each in self.schemas.items() if int(number) <= version
            },
            lenses={number: each for number, each in self.lenses.items() if int(number) < version},
            boundaries=kept,
        )

    def ending_at(self, offset: int) -> Registry:
        """For a stream that goes on at an offset, since what was behind it is lost: a version that
        began there holds from that offset on.
        """
        held = [
            Boundary(show_offset(min(start, offset)), each.version)
            for start, each in zip(self._starts, self.boundaries, strict=True)
        ]
        return msgspec.structs.replace(self, boundaries=held)

    def of_incarnation(self, number: int) -> Registry:
        """For callers: with boundaries that are offsets of an incarnation. Stored ones have 0."""
        shown = [
            Boundary(show_offset(start, number), each.version)
            for start, each in zip(self._starts, self.boundaries, strict=True)
        ]
        return msgspec.structs.replace(self, boundaries=shown)

    def changed(self, change: Change) -> Registry:
        """With what shall be different; the same when nothing is. A new version has no boundary
        yet: `begun` says where it begins. InvalidInput when it cannot be.
        """
        found = self
        if change.schema is not msgspec.UNSET:
            found = found._with_schema(change.schema, change.lens)
        elif change.lens is not None:
            raise InvalidInput("a lens comes with the schema that it leads to")
        if change.routing_key is not msgspec.UNSET:
            if change.routing_key is not None:
                pointers.check(change.routing_key.json_pointer)
            found = msgspec.structs.replace(found, routing_key=change.routing_key)
        if change.search is not msgspec.UNSET:
            if change.search is not None:
                _check_search(change.search)
            found = msgspec.structs.replace(found, search=change.search)
        if len(encoded(found)) > limits.STREAM_REGISTRY_BYTES:
            raise InvalidInput(
                f"a registry has at most {limits.STREAM_REGISTRY_BYTES} bytes, all versions "
                f"together, and this one would have {len(encoded(found))}"
            )
        return found

    def _with_schema(self, schema: Any, lens: Any) -> Registry:
        version = self.current_version
        if version and same_json(schema, self.schema):
            # Whoever sends the same again, to be sure, has nothing to add to it.
            if lens is not None and not self._has_lens(lens):
                raise InvalidInput(f"version {version} is this schema already; it needs no lens")
            return self
        compatibility.compiled(schema)
        lenses = dict(self.lenses)
        if version:
            if lens is None:
                raise InvalidInput(
                    f"version {version + 1} needs a lens that brings messages of version {version} "
                    "into it",
                    hint='Send one beside the schema: {"ops": []} if every old message fits as it '
                    "is.",
                )
            read = Lens.read(lens)
            compatibility.refuse_unproven(self.schema, read, schema)
            lenses[str(version)] = read.plain()
        elif lens is not None:
            raise InvalidInput("the first version has nothing that a lens could begin with")
        return msgspec.structs.replace(
            self,
            current_version=version + 1,
            schemas={**self.schemas, str(version + 1): schema},
            lenses=lenses,
        )

    def _has_lens(self, lens: Any) -> bool:
        kept = self.lenses.get(str(self.current_version - 1))
        return kept is not None and same_json(Lens.read(lens).plain(), kept)

    def begun(self, offset: int) -> Registry:
        """With the newest version beginning at an offset. Two that begin at the same one are both
        kept: messages pass through either lens.
        """
        if not self.current_version or (
            self.boundaries and self.boundaries[-1].version == self.current_version
        ):
            return self
        begins = Boundary(show_offset(offset), self.current_version)
        return msgspec.structs.replace(self, boundaries=[*self.boundaries, begins])

    def keys_of(self, messages: Sequence[bytes]) -> Iterator[bytes | None]:
        """The routing key of each message; InvalidInput when one has none and must, or has one
        that cannot be.
        """
        declared = self.routing_key
        assert declared is not None
        for number, message in enumerate(messages, 1):
            key = pointers.text_at(message, declared.json_pointer)
            if key is None and declared.required:
                raise InvalidInput(
                    f"message {number} has no text at {declared.json_pointer!r}, which is the "
                    "routing key of this stream"
                )
            yield key


EMPTY = Registry()


def encoded(registry: Registry) -> bytes:
    return msgspec.json.encode(registry)


@lru_cache(maxsize=64)
def decoded(text: str) -> Registry:
    """A registry that is stored. Those that were read lately are kept, with what was made of
    them.
    """
    try:
        return msgspec.json.decode(text, type=Registry)
    except msgspec.DecodeError as error:
        raise CorruptData(f"a registry of schemas cannot be read: {error}") from None


def change_of(given: Any) -> Change:
    """A change as JSON has it; InvalidInput when it is none."""
    try:
        change = msgspec.convert(given, Change)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"this is no change of a registry: {error}",
            hint="It has some of: schema, lens, routingKey, search.",
        ) from None
    if change == Change():
        raise InvalidInput(
            "there is nothing to change", hint="Give some of: schema, lens, routingKey, search."
        )
    return change


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; true is not 1."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _check_search(search: Search) -> None:
    if len(search.fields) > limits.STREAM_SEARCH_FIELDS:
        raise InvalidInput(f"a stream is searched by at most {limits.STREAM_SEARCH_FIELDS} fields")
    for field in search.fields:
        check_field(field)
