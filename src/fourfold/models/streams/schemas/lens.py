"""Lenses: how a message of one version of a schema becomes one of the next. Pure.

A lens is JSON, `{"ops": [op, ...]}`, or the list of ops alone. Each op works on the object at hand:

| op | does |
|---|---|
| `rename {from, to}`, `copy {from, to}` | moves a property to another name, or has it there too |
| `add {name, value}` | sets a property where there is none |
| `remove {name}` | takes a property away |
| `hoist {host, name}` | brings a property out of the object in `host` up beside it |
| `plunge {name, host}` | moves a property into the object in `host`, made where there is none |
| `wrap {name}`, `head {name}` | a value becomes an array of it; an array its first item, if any |
| `convert {name, to}` | to a `string`, `integer`, `number` or `boolean`; null stays null |
| `convert {name, map, default}` | text by a table; `default`, if given, for all that is not in it |
| `in {name, ops}`, `map {name, ops}` | ops on the object in a property, on each in its array |

An op on a property that is not there does nothing. What an op does not touch stays as the bytes
that came: numbers keep their digits, text its escapes. Of properties with the same name in one
object the last one counts.

The ops of a lens, each told twice: on the bytes of an object, and on the schema of it. Pure.

`apply` works on an object whose properties are slices of the message, and moves the slices; it says
whether it changed anything, and never raises. `derive` works on the shape that the schema tells,
and raises InvalidInput where it cannot be told that the op does what it should to every valid
object. Both must say the same: that is what a proof stands on.

How a lens converts values: at the bytes of a message, and in what a schema says of them. Pure.

To text: numbers by the digits they have, and `true` and `false`. From text: what JSON would write
as such a number or boolean. Null stays null. What cannot be converted stays as it is; where a
schema lets such a value through, that is found here, and the lens is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas.shape import (
    ArrayShape,
    Document,
    ObjectShape,
    Presence,
    Schema,
    either,
    exactly,
    quoted,
    types_of,
)

Target: TypeAlias = Literal["string", "integer", "number", "boolean"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_STARTS = frozenset(b"-0123456789")
_QUOTE = ord('"')
_BOOLEANS = frozenset({"true", "false"})

_STAYS: dict[str, frozenset[str]] = {
    "string": frozenset({"string", "null"}),
    "integer": frozenset({"integer", "null"}),
    "number": frozenset({"integer", "number", "null"}),
    "boolean": frozenset({"boolean", "null"}),
}
"""Types of values that are what they are to become already."""
_BECOMES_TEXT = frozenset({"integer", "number", "boolean"})


def text_of(raw: msgspec.Raw) -> str | None:
    """The text that a JSON string stands for; None for what is no string."""
    if memoryview(raw)[0] != _QUOTE:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, ValueError):
        return None  # an escape that stands for no character


def converted(raw: msgspec.Raw, to: Target) -> msgspec.Raw | None:
    """A JSON value as another type; None when it stays as it is."""
    if to == "string":
        first = memoryview(raw)[0]
        if first in _NUMBER_STARTS or first in b"tf":
            return msgspec.Raw(b'"%b"' % bytes(raw))
        return None
    text = text_of(raw)
    found = None if text is None else _from_text(text, to)
    return None if found is None else msgspec.Raw(found)


def _from_text(text: str, to: Target) -> bytes | None:
    if len(text) > limits.LENS_NUMBER_CHARS_MAX:
        return None
    if to == "boolean":
        return text.encode() if text in _BOOLEANS else None
    if to == "integer":
        return text.encode() if _INTEGER.fullmatch(text) else None
    # A number that no float can hold would be one that no reader can hold.
    return text.encode() if _NUMBER.fullmatch(text) and isfinite(float(text)) else None


def listed_values(schema: Schema) -> list[Any] | None:
    """The only values that a schema allows, where it lists them."""
    if isinstance(schema, dict):
        if "const" in schema:
            return [schema["const"]]
        if isinstance(schema.get("enum"), list):
            return list(schema["enum"])
    return None


def one_of(values: list[Any]) -> Schema:
    """The schema of listed values, each once."""
    return {"enum": list({msgspec.json.encode(value): value for value in values}.values())}


def converted_schema(document: Document, schema: Schema, to: Target) -> Schema:
    """The schema of converted values; InvalidInput when some would stay as they are."""
    found = document.follow(schema)
    values = listed_values(found)
    if values is not None:
        return _converted_values(values, to)
    types = set(types_of(found))
    if not types:
        raise InvalidInput(f"it does not say of which type the value is: {quoted(found)}")
    staying = types & _STAYS[to]
    if staying == types:
        return schema
    stuck = types - staying - (_BECOMES_TEXT if to == "string" else frozenset())
    if stuck:
        raise InvalidInput(f"a value of type {min(stuck)} may be no {to}")
    if types == {"boolean"}:
        return {"enum": ["true", "false"]}
    return {"type": ["string", "null"] if "null" in types else "string"}


def _converted_values(values: list[Any], to: Target) -> Schema:
    out: list[Any] = []
    any_text = False
    for value in values:
        if _is_of(value, _STAYS[to]):
            out.append(value)
        elif to == "string" and isinstance(value, int | float) and not isinstance(value, bool):
            # A message may write the same number in other digits, such as 1.0 for 1.
            any_text = True
        else:
            raw = converted(msgspec.Raw(msgspec.json.encode(value)), to)
            if raw is None:
                raise InvalidInput(f"the value {quoted(value)} is no {to}")
            out.append(msgspec.json.decode(raw))
    if any_text:
        return {"type": ["string", "null"] if None in out else "string"}
    return one_of(out)


def _is_of(value: Any, types: frozenset[str]) -> bool:
    if value is None or isinstance(value, bool | str):
        name = {bool: "boolean", str: "string"}.get(type(value), "null")
        return name in types
    if isinstance(value, float):
        return "number" in types or ("integer" in types and value.is_integer())
    return isinstance(value, int) and not types.isdisjoint({"integer", "number"})


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
    to: Target | msgspec.UnsetType = msgspec.UNSET
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
            text = text_of(there)
            found = self._otherwise
            if text is not None:
                found = self._mapped.get(text, found)
        else:
            found = converted(there, self.to)
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
            schema = converted_schema(shape.document, schema, self.to)
        else:
            values = listed_values(shape.document.follow(schema))
            if values is not None:
                schema = one_of([self._new_value(value) for value in values])
            elif self.default is not msgspec.UNSET:
                schema = one_of([*self.map.values(), self.default])
            else:
                schema = either(schema, one_of(list(self.map.values())))
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


_ONE = msgspec.json.Decoder(msgspec.Raw)
_NUMBERS = re.compile(r"\[(\d+)\]")
_SHAPE_HINT = (
    'A lens is {"ops": [{"op": "rename", "from": "a", "to": "b"}, ...]}; the ops are rename, copy, '
    "add, remove, hoist, plunge, wrap, head, convert, in and map."
)


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    ops: tuple[AnyOp, ...]


class Lens:
    """The way from one version of a schema to the next."""

    __slots__ = ("_ops",)

    def __init__(self, ops: tuple[AnyOp, ...]) -> None:
        self._ops = ops

    @classmethod
    def read(cls, given: Any) -> Lens:
        """The lens that JSON tells; InvalidInput names the op that is wrong."""
        try:
            whole = {"ops": given} if isinstance(given, list) else given
            _refuse_other_than_json(whole)
            ops = msgspec.convert(whole, _Given).ops
            _refuse_too_many(ops)
        except msgspec.ValidationError as error:
            raise InvalidInput(_told(str(error)), hint=_SHAPE_HINT) from None
        except RecursionError:
            raise InvalidInput("the lens is nested too deeply") from None
        return cls(ops)

    def then(self, other: Lens) -> Lens:
        """Both as one: a message is taken apart once, and put together once."""
        return Lens((*self._ops, *other._ops))

    def plain(self) -> Any:
        """The lens as JSON again."""
        return {"ops": msgspec.json.decode(msgspec.json.encode(self._ops))}

    def promote(self, payload: bytes) -> bytes:
        """A message in the next version. What is no object is left alone."""
        try:
            fields = fields_of(_ONE.decode(payload))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return payload
        if fields is None or not apply_all(self._ops, fields):
            return payload
        return bytes(raw_of(fields))

    def derived(self, schema: Schema) -> Schema:
        """What holds for promoted messages, given what holds for those of before. InvalidInput when
        that cannot be told, or when something could be lost that no op removes.
        """
        if not self._ops:
            return schema
        document = Document(schema)
        obstacle = document.obstacle()
        if obstacle is not None:
            raise InvalidInput(
                f"a lens cannot begin at this schema: {obstacle}",
                hint="Let references lead to #/$defs/..., in a schema of draft 2020-12.",
            )
        shape = ObjectShape.read(document, schema, "the message")
        try:
            derive_all(self._ops, shape)
        except RecursionError:
            raise InvalidInput("a value in the lens is nested too deeply") from None
        return {**document.around(), **shape.schema()}


def _refuse_other_than_json(given: Any) -> None:
    """Values in a lens are written into messages, so they must be what JSON can say."""
    try:
        same = msgspec.json.decode(msgspec.json.encode(given)) == given
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError):
        same = False
    if not same:
        raise InvalidInput("the lens is not JSON", hint=_SHAPE_HINT)


def _refuse_too_many(ops: tuple[AnyOp, ...]) -> None:
    count, level = 0, list(ops)
    for _ in range(limits.LENS_DEPTH_MAX):
        count += len(level)
        if count > limits.LENS_OPS_MAX:
            raise InvalidInput(f"a lens has at most {limits.LENS_OPS_MAX} ops")
        level = [inner for op in level if isinstance(op, In | Map) for inner in op.ops]
    if level:
        raise InvalidInput(f"ops lie within each other at most {limits.LENS_DEPTH_MAX} deep")


def _told(error: str) -> str:
    """An error of the decoder, with the op named as it is counted: 2.1 is the first op within the
    second.
    """
    text, _, where = error.partition(" - at ")
    path = where.strip("`")
    numbers = ".".join(str(int(number) + 1) for number in _NUMBERS.findall(path))
    field = path.rpartition("]")[2].lstrip(".$")
    place = f"op {numbers} of the lens" if numbers else "the lens"
    return f"{place}: {text}" + (f" (`{field}`)" if field else "")
