"""Schemas of objects and arrays, as far as a lens can tell what they say. Pure.

A lens changes which properties there are, so it must know of each one whether it can be there, must
be there, and what it is. That is plain where a schema says so by `type`, `properties`, `required`
and `additionalProperties` (or `items`), and by nothing else. Every other keyword could say more
about the very same properties, so a schema that has one is refused at the places where a lens
works; everywhere else it is carried along as it is.

A part of a schema keeps its meaning when it moves only as long as its references lead to where
nothing changes. That is `$defs`, so all references must lead there.
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
"""Keywords that say nothing about what is valid."""
_OF_THE_WHOLE = ("$schema", "$defs", "definitions")
"""Keywords of the outermost schema that hold for all of its parts."""
_AROUND = frozenset({*_NOTES, *_OF_THE_WHOLE, "$id"})
_OF_OBJECTS = frozenset({*_AROUND, "type", "properties", "required", "additionalProperties"})
_OF_ARRAYS = frozenset({*_AROUND, "type", "items", "minItems", "maxItems", "uniqueItems"})
_HOMES = ("#/$defs/", "#/definitions/")
_FOLLOWED_MAX = 32
_UNSUITED_DRAFTS = ("draft-03", "draft-04")


class Presence(Enum):
    """Whether valid objects have a property."""

    NEVER = "never"
    MAYBE = "maybe"
    ALWAYS = "always"


def quoted(schema: Schema) -> str:
    """A schema as short text, for messages."""
    text = msgspec.json.encode(schema).decode()
    return text if len(text) <= limits.SCHEMA_REASON_CHARS else text[:200] + "..."


def exactly(value: Any) -> Schema:
    """The schema of one value. An object is told by its properties, so that a later op can work on
    it.
    """
    if not isinstance(value, dict):
        return {"enum": [value]}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    schema["properties"] = {name: exactly(inner) for name, inner in value.items()}
    if value:
        schema["required"] = list(value)
    return schema


def either(one: Schema, other: Schema) -> Schema:
    """What satisfies one of the two."""
    if one is True or one == {}:
        return True
    return {"anyOf": [one, other]}


class Document:
    """An outermost schema, in which references of its parts are followed."""

    __slots__ = ("_root",)

    def __init__(self, root: Schema) -> None:
        self._root = root

    def around(self) -> dict[str, Any]:
        """What every part needs around it to mean the same on its own."""
        if not isinstance(self._root, dict):
            return {}
        return {key: self._root[key] for key in _OF_THE_WHOLE if key in self._root}

    def obstacle(self) -> str | None:
        """Why parts of this schema cannot be moved; None when they can."""
        if not isinstance(self._root, dict):
            return None
        if any(draft in str(self._root.get("$schema", "")) for draft in _UNSUITED_DRAFTS):
            return "it is of a draft before 6"
        for part in _objects_within(self._root):
            for keyword in ("$dynamicRef", "$recursiveRef"):
                if isinstance(part.get(keyword), str):
                    return f"it has a {keyword}"
            if part is not self._root and isinstance(part.get("$id"), str):
                return f"a part of it has an address of its own, {part['$id']!r}"
            reference = part.get("$ref")
            if isinstance(reference, str) and not reference.startswith(_HOMES):
                return f"it refers to {reference!r}, which is not in its $defs"
        return None

    def follow(self, schema: Schema) -> Schema:
        """The schema itself, where there is only a reference to it."""
        for _ in range(_FOLLOWED_MAX):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            beside = next((key for key in schema if key != "$ref" and key not in _AROUND), None)
            if beside is not None:
                raise InvalidInput(f"there is {beside!r} beside a $ref")
            schema = self._target(schema["$ref"])
        raise InvalidInput("its references lead in a circle")

    def _target(self, reference: str) -> Schema:
        found: Any = self._root
        if not reference.startswith(_HOMES):
            raise InvalidInput(f"the reference {reference!r} does not lead into $defs")
        for step in unquote(reference[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise InvalidInput(f"the reference {reference!r} leads nowhere")
            found = found[name]
        if not isinstance(found, dict | bool):
            raise InvalidInput(f"the reference {reference!r} does not lead to a schema")
        return found


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
    """The types that a schema names; none when it names none."""
    named = schema.get("type", ()) if isinstance(schema, dict) else ()
    return (named,) if isinstance(named, str) else tuple(named)


def _plain(
    document: Document, schema: Schema, kind: str, allowed: frozenset[str], what: str
) -> dict[str, Any]:
    """A schema that says what it says by the keywords of one `kind` alone."""
    try:
        found = document.follow(schema)
    except InvalidInput as error:
        raise error.with_message(f"{what} is not plain: {error.message}") from None
    if not isinstance(found, dict) or kind not in types_of(found):
        raise InvalidInput(f'{what} is not plain: it does not say "type": "{kind}"')
    for keyword in found:
        if keyword not in allowed and not keyword.startswith("x-"):
            raise InvalidInput(f"{what} is not plain: it says more by {keyword!r}")
    return found


class ObjectShape:
    """What is known of an object while ops work on it, one after the other."""

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
        """More than `object` where there may be something else too, which ops leave alone."""
        self.properties: dict[str, Schema] = dict(properties or {})
        self.required = dict.fromkeys(required)
        self.additional = additional

    @classmethod
    def read(cls, document: Document, schema: Schema, what: str) -> ObjectShape:
        """The shape that a schema tells; InvalidInput when it does not do so plainly."""
        found = _plain(document, schema, "object", _OF_OBJECTS, what)
        return cls(
            document,
            what,
            types=types_of(found),
            properties=found.get("properties"),
            required=tuple(found.get("required", ())),
            additional=found.get("additionalProperties", True),
        )

    @property
    def only_objects(self) -> bool:
        return self.types == ("object",)

    def presence(self, name: str) -> Presence:
        if self.schema_of(name) is False:
            return Presence.NEVER
        return Presence.ALWAYS if name in self.required else Presence.MAYBE

    def schema_of(self, name: str) -> Schema:
        return self.properties.get(name, self.additional)

    def inner(self, name: str) -> ObjectShape:
        """The shape of the object in a property."""
        return ObjectShape.read(self.document, self.schema_of(name), f"the property {name!r}")

    def put(self, name: str, schema: Schema, presence: Presence) -> None:
        self.properties[name] = schema
        if presence is Presence.ALWAYS:
            self.required[name] = None
        else:
            self.required.pop(name, None)

    def drop(self, name: str) -> None:
        """From here on there is no such property."""
        self.required.pop(name, None)
        self.properties.pop(name, None)
        if self.additional is not False:
            self.properties[name] = False

    def refuse_target(self, name: str) -> None:
        """InvalidInput when a property that is to be written may be there, and would be lost."""
        if self.presence(name) is not Presence.NEVER:
            raise InvalidInput(
                f"{self.what} may have a property {name!r} already, which would be lost",
                hint="Remove that property with an op before this one, if it may be lost, or "
                "choose another name.",
            )

    def schema(self) -> dict[str, Any]:
        """The shape as a schema again."""
        out: dict[str, Any] = {"type": self.types[0] if self.only_objects else list(self.types)}
        out["properties"] = dict(self.properties)
        if self.required:
            out["required"] = list(self.required)
        if self.additional is not True:
            out["additionalProperties"] = self.additional
        return out


class ArrayShape(NamedTuple):
    """What is known of an array: how long it is, and of what."""

    types: tuple[str, ...]
    items: Schema
    least: float
    most: float | None

    @classmethod
    def read(cls, document: Document, schema: Schema, what: str) -> ArrayShape:
        """The shape that a schema tells. That items differ is not kept: ops can make them equal."""
        found = _plain(document, schema, "array", _OF_ARRAYS, what)
        items = found.get("items", True)
        if not isinstance(items, dict | bool):
            raise InvalidInput(f"{what} is not plain: its items are told one by one")
        return cls(types_of(found), items, found.get("minItems", 0), found.get("maxItems"))

    def schema(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": list(self.types), "items": self.items}
        if self.least:
            out["minItems"] = self.least
        if self.most is not None:
            out["maxItems"] = self.most
        return out
