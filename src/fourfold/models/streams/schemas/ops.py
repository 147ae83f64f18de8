"""The ops of a lens, each told twice: on the bytes of an object, and on the schema of it. Pure.

`apply` works on an object whose properties are slices of the message, and moves the slices; it says
whether it changed anything, and never raises. `derive` works on the shape that the schema tells,
and raises InvalidInput where it cannot be told that the op does what it should to every valid
object. Both must say the same: that is what a proof stands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import msgspec

from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas import conversions
from fourfold.models.streams.schemas.shape import (
    ArrayShape,
    ObjectShape,
    Presence,
    either,
    exactly,
)

Fields: TypeAlias = dict[str, msgspec.Raw]

_FIELDS = msgspec.json.Decoder(Fields)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_OBJECT_START = ord("{")
_ARRAY_START = ord("[")


def fields_of(raw: msgspec.Raw | None) -> Fields | None:
    """The properties of an object; None for everything else."""
    if raw is None or memoryview(raw)[0] != _OBJECT_START:
        return None
    try:
        return _FIELDS.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # a name with an escape that stands for no character, or nested too deeply


def _items_of(raw: msgspec.Raw | None) -> list[msgspec.Raw] | None:
    if raw is None or memoryview(raw)[0] != _ARRAY_START:
        return None
    try:
        return _ITEMS.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def raw_of(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))


def apply_all(ops: Sequence[AnyOp], fields: Fields) -> bool:
    changed = False
    for op in ops:
        changed = op.apply(fields) or changed
    return changed


def derive_all(ops: Sequence[AnyOp], shape: ObjectShape, within: str = "") -> None:
    """Bring a shape through ops; InvalidInput names the op that stands in the way."""
    for number, op in enumerate(ops, 1):
        place = f"{within}{number}"
        try:
            op.derive(shape, place)
        except InvalidInput as error:
            if "op" in error.details:
                raise  # named by an op within this one
            raise InvalidInput(
                f"op {place} of the lens, {op.__struct_config__.tag}: {error.message}",
                hint=error.hint,
                details={"op": place},
            ) from None


class Op(
    msgspec.Struct, frozen=True, dict=True, tag_field="op", forbid_unknown_fields=True, kw_only=True
):
    """One step of a lens, on the object at hand: each has `apply` and `derive`."""


class Rename(Op, frozen=True, tag="rename", rename={"source": "from", "target": "to"}):
    source: str
    target: str

    def __post_init__(self) -> None:
        _refuse_same(self.source, self.target)

    def apply(self, fields: Fields) -> bool:
        if self.source not in fields:
            return False
        fields[self.target] = fields.pop(self.source)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.source)
        if presence is Presence.NEVER:
            return
        shape.refuse_target(self.target)
        schema = shape.schema_of(self.source)
        shape.drop(self.source)
        shape.put(self.target, schema, presence)


class Copy(Op, frozen=True, tag="copy", rename={"source": "from", "target": "to"}):
    source: str
    target: str

    def __post_init__(self) -> None:
        _refuse_same(self.source, self.target)

    def apply(self, fields: Fields) -> bool:
        if self.source not in fields:
            return False
        fields[self.target] = fields[self.source]
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.source)
        if presence is Presence.NEVER:
            return
        shape.refuse_target(self.target)
        shape.put(self.target, shape.schema_of(self.source), presence)


class Add(Op, frozen=True, tag="add"):
    name: str
    value: Any

    @cached_property
    def raw(self) -> msgspec.Raw:
        return raw_of(self.value)

    def apply(self, fields: Fields) -> bool:
        if self.name in fields:
            return False
        fields[self.name] = self.raw
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.name)
        if presence is Presence.ALWAYS:
            return
        added = exactly(self.value)
        if presence is Presence.MAYBE:
            added = either(shape.schema_of(self.name), added)
        shape.put(self.name, added, Presence.ALWAYS)


class Remove(Op, frozen=True, tag="remove"):
    name: str

    def apply(self, fields: Fields) -> bool:
        return fields.pop(self.name, None) is not None

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        shape.drop(self.name)


class Hoist(Op, frozen=True, tag="hoist"):
    host: str
    name: str

    def __post_init__(self) -> None:
        _refuse_same(self.host, self.name)

    def apply(self, fields: Fields) -> bool:
        inner = fields_of(fields.get(self.host))
        if inner is None or self.name not in inner:
            return False
        fields[self.name] = inner.pop(self.name)
        fields[self.host] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        host = shape.presence(self.host)
        if host is Presence.NEVER:
            return
        inner = shape.inner(self.host)
        presence = inner.presence(self.name)
        if presence is Presence.NEVER:
            return
        shape.refuse_target(self.name)
        if host is Presence.MAYBE or not inner.only_objects:
            presence = Presence.MAYBE
        shape.put(self.name, inner.schema_of(self.name), presence)
        inner.drop(self.name)
        shape.put(self.host, inner.schema(), host)


class Plunge(Op, frozen=True, tag="plunge"):
    name: str
    host: str

    def __post_init__(self) -> None:
        _refuse_same(self.host, self.name)

    def apply(self, fields: Fields) -> bool:
        if self.name not in fields:
            return False
        there = fields.get(self.host)
        inner = {} if there is None else fields_of(there)
        if inner is None:
            return False
        inner[self.name] = fields.pop(self.name)
        fields[self.host] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        host = shape.presence(self.host)
        made = ObjectShape(shape.document, f"the property {self.host!r}")
        made.put(self.name, shape.schema_of(self.name), Presence.ALWAYS)
        schema = made.schema()
        if host is not Presence.NEVER:
            inner = shape.inner(self.host)
            if not inner.only_objects:
                raise InvalidInput(f"{inner.what} may be something else than an object")
            inner.refuse_target(self.name)
            # Where the host is made, it has nothing but this property in it.
            lacking = host is Presence.MAYBE and bool(inner.required)
            inner.put(self.name, shape.schema_of(self.name), presence)
            schema = {"anyOf": [inner.schema(), schema]} if lacking else inner.schema()
        shape.drop(self.name)
        shape.put(self.host, schema, presence if host is not Presence.ALWAYS else host)


class Wrap(Op, frozen=True, tag="wrap"):
    name: str

    def apply(self, fields: Fields) -> bool:
        there = fields.get(self.name)
        if there is None:
            return False
        fields[self.name] = msgspec.Raw(b"[%b]" % bytes(there))
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.name)
        if presence is not Presence.NEVER:
            items = shape.schema_of(self.name)
            shape.put(self.name, ArrayShape(("array",), items, 1, 1).schema(), presence)


class Head(Op, frozen=True, tag="head"):
    name: str

    def apply(self, fields: Fields) -> bool:
        items = _items_of(fields.get(self.name))
        if items is None:
            return False
        if items:
            fields[self.name] = items[0]
        else:
            del fields[self.name]
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        what = f"the property {self.name!r}"
        array = ArrayShape.read(shape.document, shape.schema_of(self.name), what)
        if array.types != ("array",):
            raise InvalidInput(f"{what} may be something else than an array")
        if array.items is False:
            shape.drop(self.name)  # it is always empty
            return
        shape.put(self.name, array.items, presence if array.least >= 1 else Presence.MAYBE)


class Convert(Op, frozen=True, tag="convert"):
    name: str
    to: conversions.Target | msgspec.UnsetType = msgspec.UNSET
    map: Annotated[dict[str, Any], msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET
    default: Any = msgspec.UNSET

    def __post_init__(self) -> None:
        if (self.to is msgspec.UNSET) == (self.map is msgspec.UNSET):
            raise ValueError("Object must have one of the fields `to` and `map`")
        if self.map is msgspec.UNSET and self.default is not msgspec.UNSET:
            raise ValueError("Object has a field `default` without a `map`")

    @cached_property
    def _mapped(self) -> dict[str, msgspec.Raw]:
        given = {} if isinstance(self.map, msgspec.UnsetType) else self.map
        return {old: raw_of(new) for old, new in given.items()}

    @cached_property
    def _otherwise(self) -> msgspec.Raw | None:
        return None if self.default is msgspec.UNSET else raw_of(self.default)

    def apply(self, fields: Fields) -> bool:
        there = fields.get(self.name)
        if there is None:
            return False
        if isinstance(self.to, msgspec.UnsetType):
            text = conversions.text_of(there)
            found = self._otherwise
            if text is not None:
                found = self._mapped.get(text, found)
        else:
            found = conversions.converted(there, self.to)
        if found is None:
            return False
        fields[self.name] = found
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        del place
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        schema = shape.schema_of(self.name)
        if isinstance(self.map, msgspec.UnsetType):
            assert not isinstance(self.to, msgspec.UnsetType)
            schema = conversions.converted_schema(shape.document, schema, self.to)
        else:
            values = conversions.listed_values(shape.document.follow(schema))
            if values is not None:
                schema = conversions.one_of([self._new_value(value) for value in values])
            elif self.default is not msgspec.UNSET:
                schema = conversions.one_of([*self.map.values(), self.default])
            else:
                schema = either(schema, conversions.one_of(list(self.map.values())))
        shape.put(self.name, schema, presence)

    def _new_value(self, value: Any) -> Any:
        if isinstance(value, str) and not isinstance(self.map, msgspec.UnsetType):
            value_if_missing = value if self.default is msgspec.UNSET else self.default
            return self.map.get(value, value_if_missing)
        return value if self.default is msgspec.UNSET else self.default


class In(Op, frozen=True, tag="in"):
    name: str
    ops: tuple[AnyOp, ...]

    def apply(self, fields: Fields) -> bool:
        inner = fields_of(fields.get(self.name))
        if inner is None or not apply_all(self.ops, inner):
            return False
        fields[self.name] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        inner = shape.inner(self.name)
        derive_all(self.ops, inner, f"{place}.")
        shape.put(self.name, inner.schema(), presence)


class Map(Op, frozen=True, tag="map"):
    name: str
    ops: tuple[AnyOp, ...]

    def apply(self, fields: Fields) -> bool:
        items = _items_of(fields.get(self.name))
        if items is None:
            return False
        changed = False
        for number, item in enumerate(items):
            inner = fields_of(item)
            if inner is not None and apply_all(self.ops, inner):
                items[number] = raw_of(inner)
                changed = True
        if changed:
            fields[self.name] = raw_of(items)
        return changed

    def derive(self, shape: ObjectShape, place: str) -> None:
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        what = f"the property {self.name!r}"
        array = ArrayShape.read(shape.document, shape.schema_of(self.name), what)
        inner = ObjectShape.read(shape.document, array.items, f"an item of {what}")
        derive_all(self.ops, inner, f"{place}.")
        shape.put(self.name, array._replace(items=inner.schema()).schema(), presence)


AnyOp: TypeAlias = Rename | Copy | Add | Remove | Hoist | Plunge | Wrap | Head | Convert | In | Map


def _refuse_same(one: str, other: str) -> None:
    if one == other:
        raise ValueError(f"Object names the same property {one!r} twice")
