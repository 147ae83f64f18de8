"""Shapes: schemas of objects and arrays that a lens can transform. Pure.

A lens changes properties, so it must know of each one whether it may or must be present, and its
schema. That is plain if a schema uses only `type`, `properties`, `required` and
`additionalProperties` (or `items`). Every other keyword could constrain the same properties, so a
schema that has one is rejected at the places where a lens works; elsewhere it is copied unchanged.

A part of a schema keeps its meaning when it moves only if its references resolve to something that
does not change. That is `$defs`, so all references must lead there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput

Schema: TypeAlias = dict[str, Any] | bool

_NOTES = frozenset(
    {"title", "description", "$comment", "default", "examples", "deprecated", "readOnly"}
    | {"writeOnly"}
)
"""Keywords that do not affect validity."""
_OF_THE_WHOLE = ("$schema", "$defs", "definitions")
"""Keywords of the outermost schema that apply to all of its parts."""
_AROUND = frozenset({*_NOTES, *_OF_THE_WHOLE, "$id"})
_OF_OBJECTS = frozenset({*_AROUND, "type", "properties", "required", "additionalProperties"})
_OF_ARRAYS = frozenset({*_AROUND, "type", "items", "minItems", "maxItems", "uniqueItems"})
_HOMES = ("#/$defs/", "#/definitions/")
_FOLLOWED_MAX = 32
_UNSUITED_DRAFTS = ("draft-03", "draft-04")


class Presence(Enum):
    """Presence of a property in valid objects."""

    NEVER = "never"
    MAYBE = "maybe"
    ALWAYS = "always"


def quoted(schema: Schema) -> str:
    """Return a schema as short text, for messages."""
    text = msgspec.json.encode(schema).decode()
    return text if len(text) <= limits.SCHEMA_REASON_CHARS else text[:200] + "..."


def exactly(value: Any) -> Schema:
    """Return the schema of one value; an object by its properties, so that ops can change it."""
    if not isinstance(value, dict):
        return {"enum": [value]}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    schema["properties"] = {name: exactly(inner) for name, inner in value.items()}
    if value:
        schema["required"] = list(value)
    return schema


def either(one: Schema, other: Schema) -> Schema:
    """Return the schema of values that satisfy one of the two."""
    if one is True or one == {}:
        return True
    return {"anyOf": [one, other]}


class Document:
    """An outermost schema, which resolves the references of its parts."""

    __slots__ = ("_root",)

    def __init__(self, root: Schema) -> None:
        self._root = root

    def around(self) -> dict[str, Any]:
        """Return the keywords that every part needs to keep its meaning on its own."""
        if not isinstance(self._root, dict):
            return {}
        return {key: self._root[key] for key in _OF_THE_WHOLE if key in self._root}

    def obstacle(self) -> str | None:
        """Return why parts of this schema cannot be moved, or None if they can."""
        if not isinstance(self._root, dict):
            return None
        if any(draft in str(self._root.get("$schema", "")) for draft in _UNSUITED_DRAFTS):
            return "its draft is older than 6"
        for part in _objects_within(self._root):
            for keyword in ("$dynamicRef", "$recursiveRef"):
                if isinstance(part.get(keyword), str):
                    return f"it has a {keyword}"
            if part is not self._root and isinstance(part.get("$id"), str):
                return f"a part of it has its own $id, {part['$id']!r}"
            reference = part.get("$ref")
            if isinstance(reference, str) and not reference.startswith(_HOMES):
                return f"it refers to {reference!r}, which is not in its $defs"
        return None

    def follow(self, schema: Schema) -> Schema:
        """Resolve a schema that is only a reference."""
        for _ in range(_FOLLOWED_MAX):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            beside = next((key for key in schema if key != "$ref" and key not in _AROUND), None)
            if beside is not None:
                raise InvalidInput(f"{beside!r} is not allowed beside a $ref")
            schema = self._target(schema["$ref"])
        raise InvalidInput("its references are circular")

    def _target(self, reference: str) -> Schema:
        target: Any = self._root
        if not reference.startswith(_HOMES):
            raise InvalidInput(f"the reference {reference!r} does not point into $defs")
        for step in unquote(reference[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise InvalidInput(f"the reference {reference!r} has no target")
            target = target[name]
        if not isinstance(target, dict | bool):
            raise InvalidInput(f"the reference {reference!r} does not point to a schema")
        return target


def _objects_within(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the types of a schema; empty if it has no `type`."""
    named = schema.get("type", ()) if isinstance(schema, dict) else ()
    return (named,) if isinstance(named, str) else tuple(named)


def _plain(
    document: Document, schema: Schema, kind: str, allowed: frozenset[str], what: str
) -> dict[str, Any]:
    """Return the resolved schema if it uses only the keywords of one `kind`."""
    try:
        resolved = document.follow(schema)
    except InvalidInput as error:
        raise error.with_message(f"{what} is not plain: {error.message}") from None
    if not isinstance(resolved, dict) or kind not in types_of(resolved):
        raise InvalidInput(f'{what} is not plain: it does not have "type": "{kind}"')
    for keyword in resolved:
        if keyword not in allowed and not keyword.startswith("x-"):
            raise InvalidInput(f"{what} is not plain: it has the keyword {keyword!r}")
    return resolved


class ObjectShape:
    """The schema of an object while ops change it, one after the other."""

    __slots__ = ("additional", "document", "properties", "required", "types", "what")

    def __init__(
        self,
        document: Document,
        what: str,
        *,
        types: tuple[str, ...] = ("object",),
        properties: Mapping[str, Schema] | None = None,
        required: tuple[str, ...] = (),
        additional: Schema = False,
    ) -> None:
        self.document = document
        self.what = what
        self.types = types
        """More than `object` if values of other types are allowed, which ops do not change."""
        self.properties: dict[str, Schema] = dict(properties or {})
        self.required = dict.fromkeys(required)
        self.additional = additional

    @classmethod
    def read(cls, document: Document, schema: Schema, what: str) -> ObjectShape:
        """Return the shape of a plain schema, or raise InvalidInput."""
        resolved = _plain(document, schema, "object", _OF_OBJECTS, what)
        return cls(
            document,
            what,
            types=types_of(resolved),
            properties=resolved.get("properties"),
            required=tuple(resolved.get("required", ())),
            additional=resolved.get("additionalProperties", True),
        )

    @property
    def only_objects(self) -> bool:
        """True if only objects are allowed."""
        return self.types == ("object",)

    def presence(self, name: str) -> Presence:
        """Return whether valid objects have a property."""
        if self.schema_of(name) is False:
            return Presence.NEVER
        return Presence.ALWAYS if name in self.required else Presence.MAYBE

    def schema_of(self, name: str) -> Schema:
        """Return the schema of a property."""
        return self.properties.get(name, self.additional)

    def inner(self, name: str) -> ObjectShape:
        """Return the shape of the object in a property."""
        return ObjectShape.read(self.document, self.schema_of(name), f"the property {name!r}")

    def put(self, name: str, schema: Schema, presence: Presence) -> None:
        """Set the schema and the presence of a property."""
        self.properties[name] = schema
        if presence is Presence.ALWAYS:
            self.required[name] = None
        else:
            self.required.pop(name, None)

    def drop(self, name: str) -> None:
        """Remove a property."""
        self.required.pop(name, None)
        self.properties.pop(name, None)
        if self.additional is not False:
            self.properties[name] = False

    def check_target(self, name: str) -> None:
        """Raise InvalidInput if a property may exist that an op would overwrite."""
        if self.presence(name) is not Presence.NEVER:
            raise InvalidInput(
                f"{self.what} may already have a property {name!r}, which would be lost",
                hint="Remove that property with an earlier op, or use another name.",
            )

    def schema(self) -> dict[str, Any]:
        """Return the shape as a schema."""
        out: dict[str, Any] = {"type": self.types[0] if self.only_objects else list(self.types)}
        out["properties"] = dict(self.properties)
        if self.required:
            out["required"] = list(self.required)
        if self.additional is not True:
            out["additionalProperties"] = self.additional
        return out


class ArrayShape(NamedTuple):
    """The schema of an array: its length and its items."""

    types: tuple[str, ...]
    items: Schema
    least: float
    most: float | None

    @classmethod
    def read(cls, document: Document, schema: Schema, what: str) -> ArrayShape:
        """Return the shape of a plain schema without `uniqueItems`: ops can make items equal."""
        resolved = _plain(document, schema, "array", _OF_ARRAYS, what)
        items = resolved.get("items", True)
        if not isinstance(items, dict | bool):
            raise InvalidInput(f"{what} is not plain: its items have separate schemas")
        return cls(types_of(resolved), items, resolved.get("minItems", 0), resolved.get("maxItems"))

    def schema(self) -> dict[str, Any]:
        """Return the shape as a schema."""
        out: dict[str, Any] = {"type": list(self.types), "items": self.items}
        if self.least:
            out["minItems"] = self.least
        if self.most is not None:
            out["maxItems"] = self.most
        return out
