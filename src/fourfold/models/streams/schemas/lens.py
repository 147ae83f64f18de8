"""Lenses: convert messages of one schema version to the next. Pure.

A lens is JSON, `{"ops": [op, ...]}`, or the list of ops alone. Each op works on one object:

| op | does |
|---|---|
| `rename {from, to}`, `copy {from, to}` | moves or copies a property to another name |
| `add {name, value}` | sets a property if it is missing |
| `remove {name}` | removes a property |
| `hoist {host, name}` | moves a property out of the object in `host`, beside it |
| `plunge {name, host}` | moves a property into the object in `host`, created if missing |
| `wrap {name}`, `head {name}` | converts a value to an array; an array to its first item, if any |
| `convert {name, to}` | to a `string`, `integer`, `number` or `boolean`; null stays null |
| `convert {name, map, default}` | maps text by a table; `default`, if set, for all other values |
| `in {name, ops}`, `map {name, ops}` | ops on the object in a property, on each in its array |

An op on a missing property does nothing. Everything that an op does not change keeps its bytes:
numbers keep their digits, text its escapes. Of duplicate properties in one object the last one
counts.

Each op is implemented twice: for the bytes of an object, and for its schema. `apply` works on an
object whose properties are slices of the message, and moves the slices; it returns whether it
changed anything, and never raises. `derive` works on the shape of the schema, and raises
InvalidInput if the op may not have its effect on every valid object. Both must agree: proofs depend
on it.

Conversions to text: numbers by their digits, and `true` and `false`. From text: JSON numbers and
booleans. Null stays null. Values that cannot be converted stay unchanged; if a schema allows such a
value, the lens is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from math import isfinite
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

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

LENS_OPS_MAX: Final = 256
"""Ops of a lens, nested ones included."""
LENS_DEPTH_MAX: Final = 16
"""Nesting of ops."""
LENS_NUMBER_CHARS_MAX: Final = 300
"""Longest text that a lens converts to a number."""

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
"""Types of values that need no conversion, by target."""
_BECOMES_TEXT = frozenset({"integer", "number", "boolean"})


def text_of(raw: msgspec.Raw) -> str | None:
    """Return the text of a JSON string, or None for other values."""
    if memoryview(raw)[0] != _QUOTE:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.MsgspecError, ValueError):
        return None  # an escape of a lone surrogate


def converted(raw: msgspec.Raw, to: Target) -> msgspec.Raw | None:
    """Convert a JSON value to another type, or return None if it stays unchanged."""
    if to == "string":
        first = memoryview(raw)[0]
        if first in _NUMBER_STARTS or first in b"tf":
            return msgspec.Raw(b'"%b"' % bytes(raw))
        return None
    text = text_of(raw)
    encoded = None if text is None else _from_text(text, to)
    return None if encoded is None else msgspec.Raw(encoded)


def _from_text(text: str, to: Target) -> bytes | None:
    if len(text) > LENS_NUMBER_CHARS_MAX:
        return None
    if to == "boolean":
        return text.encode() if text in _BOOLEANS else None
    if to == "integer":
        return text.encode() if _INTEGER.fullmatch(text) else None
    # A number outside the range of floats could not be decoded by readers.
    return text.encode() if _NUMBER.fullmatch(text) and isfinite(float(text)) else None


def listed_values(schema: Schema) -> list[Any] | None:
    """Return the values that a schema lists by `const` or `enum`, or None."""
    if isinstance(schema, dict):
        if "const" in schema:
            return [schema["const"]]
        if isinstance(schema.get("enum"), list):
            return list(schema["enum"])
    return None


def one_of(values: list[Any]) -> Schema:
    """Return the schema of listed values, without duplicates."""
    return {"enum": list({msgspec.json.encode(value): value for value in values}.values())}


def converted_schema(document: Document, schema: Schema, to: Target) -> Schema:
    """Return the schema of converted values, or raise InvalidInput if some cannot be."""
    resolved = document.follow(schema)
    values = listed_values(resolved)
    if values is not None:
        return _converted_values(values, to)
    types = set(types_of(resolved))
    if not types:
        raise InvalidInput(f"the schema does not state the type of the value: {quoted(resolved)}")
    staying = types & _STAYS[to]
    if staying == types:
        return schema
    stuck = types - staying - (_BECOMES_TEXT if to == "string" else frozenset())
    if stuck:
        raise InvalidInput(f"a value of type {min(stuck)} may not be convertible to {to}")
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
            # A message may write an equal number with other digits, such as 1.0 for 1.
            any_text = True
        else:
            raw = converted(msgspec.Raw(msgspec.json.encode(value)), to)
            if raw is None:
                raise InvalidInput(f"the value {quoted(value)} is not convertible to {to}")
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
    """Return the properties of an object, or None for other values."""
    if raw is None or memoryview(raw)[0] != _OBJECT_START:
        return None
    try:
        return _FIELDS.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # a name with a lone surrogate, or nested too deeply


def _items_of(raw: msgspec.Raw | None) -> list[msgspec.Raw] | None:
    if raw is None or memoryview(raw)[0] != _ARRAY_START:
        return None
    try:
        return _ITEMS.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def raw_of(value: Any) -> msgspec.Raw:
    """Encode a value as JSON."""
    return msgspec.Raw(_ENCODER.encode(value))


def apply_all(ops: Sequence[AnyOp], fields: Fields) -> bool:
    """Apply ops to an object; return True if one of them changed it."""
    changed = False
    for op in ops:
        changed = op.apply(fields) or changed
    return changed


def derive_all(ops: Sequence[AnyOp], shape: ObjectShape, within: str = "") -> None:
    """Apply ops to a shape, or raise InvalidInput with the number of the failing op."""
    for number, op in enumerate(ops, 1):
        place = f"{within}{number}"
        try:
            op.derive(shape, place)
        except InvalidInput as error:
            if "op" in error.details:
                raise  # raised by a nested op
            raise InvalidInput(
                f"op {place} of the lens, {op.__struct_config__.tag}: {error.message}",
                hint=error.hint,
                details={"op": place},
            ) from None


class Op(
    msgspec.Struct, frozen=True, dict=True, tag_field="op", forbid_unknown_fields=True, kw_only=True
):
    """One step of a lens on an object: each op has `apply` and `derive`."""


class Rename(Op, frozen=True, tag="rename", rename={"source": "from", "target": "to"}):
    """Rename a field."""

    source: str
    target: str

    def __post_init__(self) -> None:
        _check_different(self.source, self.target)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        if self.source not in fields:
            return False
        fields[self.target] = fields.pop(self.source)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.source)
        if presence is Presence.NEVER:
            return
        shape.check_target(self.target)
        schema = shape.schema_of(self.source)
        shape.drop(self.source)
        shape.put(self.target, schema, presence)


class Copy(Op, frozen=True, tag="copy", rename={"source": "from", "target": "to"}):
    """Copy a field to another name."""

    source: str
    target: str

    def __post_init__(self) -> None:
        _check_different(self.source, self.target)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        if self.source not in fields:
            return False
        fields[self.target] = fields[self.source]
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.source)
        if presence is Presence.NEVER:
            return
        shape.check_target(self.target)
        shape.put(self.target, shape.schema_of(self.source), presence)


class Add(Op, frozen=True, tag="add"):
    """Add a field with a value."""

    name: str
    value: Any

    @cached_property
    def raw(self) -> msgspec.Raw:
        """The value that is added, encoded."""
        return raw_of(self.value)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        if self.name in fields:
            return False
        fields[self.name] = self.raw
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.name)
        if presence is Presence.ALWAYS:
            return
        added = exactly(self.value)
        if presence is Presence.MAYBE:
            added = either(shape.schema_of(self.name), added)
        shape.put(self.name, added, Presence.ALWAYS)


class Remove(Op, frozen=True, tag="remove"):
    """Remove a field."""

    name: str

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        return fields.pop(self.name, None) is not None

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        shape.drop(self.name)


class Hoist(Op, frozen=True, tag="hoist"):
    """Move a field of an object to the object around it."""

    host: str
    name: str

    def __post_init__(self) -> None:
        _check_different(self.host, self.name)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        inner = fields_of(fields.get(self.host))
        if inner is None or self.name not in inner:
            return False
        fields[self.name] = inner.pop(self.name)
        fields[self.host] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        host = shape.presence(self.host)
        if host is Presence.NEVER:
            return
        inner = shape.inner(self.host)
        presence = inner.presence(self.name)
        if presence is Presence.NEVER:
            return
        shape.check_target(self.name)
        if host is Presence.MAYBE or not inner.only_objects:
            presence = Presence.MAYBE
        shape.put(self.name, inner.schema_of(self.name), presence)
        inner.drop(self.name)
        shape.put(self.host, inner.schema(), host)


class Plunge(Op, frozen=True, tag="plunge"):
    """Move a field into an object."""

    name: str
    host: str

    def __post_init__(self) -> None:
        _check_different(self.host, self.name)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        if self.name not in fields:
            return False
        host = fields.get(self.host)
        inner = {} if host is None else fields_of(host)
        if inner is None:
            return False
        inner[self.name] = fields.pop(self.name)
        fields[self.host] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        host = shape.presence(self.host)
        created = ObjectShape(shape.document, f"the property {self.host!r}")
        created.put(self.name, shape.schema_of(self.name), Presence.ALWAYS)
        schema = created.schema()
        if host is not Presence.NEVER:
            inner = shape.inner(self.host)
            if not inner.only_objects:
                raise InvalidInput(f"{inner.what} may be a value that is not an object")
            inner.check_target(self.name)
            # A created host has only this property.
            lacking = host is Presence.MAYBE and bool(inner.required)
            inner.put(self.name, shape.schema_of(self.name), presence)
            schema = {"anyOf": [inner.schema(), schema]} if lacking else inner.schema()
        shape.drop(self.name)
        shape.put(self.host, schema, presence if host is not Presence.ALWAYS else host)


class Wrap(Op, frozen=True, tag="wrap"):
    """Put a value into a list."""

    name: str

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        value = fields.get(self.name)
        if value is None:
            return False
        fields[self.name] = msgspec.Raw(b"[%b]" % bytes(value))
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.name)
        if presence is not Presence.NEVER:
            items = shape.schema_of(self.name)
            shape.put(self.name, ArrayShape(("array",), items, 1, 1).schema(), presence)


class Head(Op, frozen=True, tag="head"):
    """Replace a list by its first item."""

    name: str

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        items = _items_of(fields.get(self.name))
        if items is None:
            return False
        if items:
            fields[self.name] = items[0]
        else:
            del fields[self.name]
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        del place
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        what = f"the property {self.name!r}"
        array = ArrayShape.read(shape.document, shape.schema_of(self.name), what)
        if array.types != ("array",):
            raise InvalidInput(f"{what} may be a value that is not an array")
        if array.items is False:
            shape.drop(self.name)  # it is always empty
            return
        shape.put(self.name, array.items, presence if array.least >= 1 else Presence.MAYBE)


class Convert(Op, frozen=True, tag="convert"):
    """Replace values by others."""

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
        table = {} if isinstance(self.map, msgspec.UnsetType) else self.map
        return {old: raw_of(new) for old, new in table.items()}

    @cached_property
    def _default_raw(self) -> msgspec.Raw | None:
        return None if self.default is msgspec.UNSET else raw_of(self.default)

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        value = fields.get(self.name)
        if value is None:
            return False
        if isinstance(self.to, msgspec.UnsetType):
            text = text_of(value)
            result = self._default_raw
            if text is not None:
                result = self._mapped.get(text, result)
        else:
            result = converted(value, self.to)
        if result is None:
            return False
        fields[self.name] = result
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
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
            unmapped = value if self.default is msgspec.UNSET else self.default
            return self.map.get(value, unmapped)
        return value if self.default is msgspec.UNSET else self.default


class In(Op, frozen=True, tag="in"):
    """Apply operations to the object in a field."""

    name: str
    ops: tuple[AnyOp, ...]

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
        inner = fields_of(fields.get(self.name))
        if inner is None or not apply_all(self.ops, inner):
            return False
        fields[self.name] = raw_of(inner)
        return True

    def derive(self, shape: ObjectShape, place: str) -> None:
        """Change the shape of the messages as the operation changes their fields."""
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        inner = shape.inner(self.name)
        derive_all(self.ops, inner, f"{place}.")
        shape.put(self.name, inner.schema(), presence)


class Map(Op, frozen=True, tag="map"):
    """Apply operations to each object of a list."""

    name: str
    ops: tuple[AnyOp, ...]

    def apply(self, fields: Fields) -> bool:
        """Apply the operation to the fields of a message; return False if it changes nothing."""
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
        """Change the shape of the messages as the operation changes their fields."""
        presence = shape.presence(self.name)
        if presence is Presence.NEVER:
            return
        what = f"the property {self.name!r}"
        array = ArrayShape.read(shape.document, shape.schema_of(self.name), what)
        inner = ObjectShape.read(shape.document, array.items, f"an item of {what}")
        derive_all(self.ops, inner, f"{place}.")
        shape.put(self.name, array._replace(items=inner.schema()).schema(), presence)


AnyOp: TypeAlias = Rename | Copy | Add | Remove | Hoist | Plunge | Wrap | Head | Convert | In | Map


def _check_different(one: str, other: str) -> None:
    if one == other:
        raise ValueError(f"Object contains the property {one!r} twice")


_ONE = msgspec.json.Decoder(msgspec.Raw)
_NUMBERS = re.compile(r"\[(\d+)\]")
_SHAPE_HINT = (
    'A lens is {"ops": [{"op": "rename", "from": "a", "to": "b"}, ...]}; the ops are rename, copy, '
    "add, remove, hoist, plunge, wrap, head, convert, in and map."
)


class _LensData(msgspec.Struct, forbid_unknown_fields=True):
    ops: tuple[AnyOp, ...]


class Lens:
    """A conversion of messages from one schema version to the next."""

    __slots__ = ("_ops",)

    def __init__(self, ops: tuple[AnyOp, ...]) -> None:
        self._ops = ops

    @classmethod
    def read(cls, data: Any) -> Lens:
        """Return the lens of JSON data, or raise InvalidInput with the number of the bad op."""
        try:
            whole = {"ops": data} if isinstance(data, list) else data
            _check_json(whole)
            ops = msgspec.convert(whole, _LensData).ops
            _check_count(ops)
        except msgspec.ValidationError as error:
            raise InvalidInput(_describe(str(error)), hint=_SHAPE_HINT) from None
        except RecursionError:
            raise InvalidInput("the lens is nested too deeply") from None
        return cls(ops)

    def then(self, other: Lens) -> Lens:
        """Return the composition of two lenses, which decodes and encodes a message once."""
        return Lens((*self._ops, *other._ops))

    def to_json(self) -> Any:
        """Return the lens as JSON."""
        return {"ops": msgspec.json.decode(msgspec.json.encode(self._ops))}

    def promote(self, payload: bytes) -> bytes:
        """Convert a message to the next version; a message that is not an object is unchanged."""
        try:
            fields = fields_of(_ONE.decode(payload))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return payload
        if fields is None or not apply_all(self._ops, fields):
            return payload
        return bytes(raw_of(fields))

    def derived(self, schema: Schema) -> Schema:
        """Return the schema of promoted messages, given the schema before.

        Raises:
            InvalidInput: it cannot be derived, or an op could lose a property.
        """
        if not self._ops:
            return schema
        document = Document(schema)
        obstacle = document.obstacle()
        if obstacle is not None:
            raise InvalidInput(
                f"a lens cannot be applied to this schema: {obstacle}",
                hint="Use references to #/$defs/..., in a schema of draft 2020-12.",
            )
        shape = ObjectShape.read(document, schema, "the message")
        try:
            derive_all(self._ops, shape)
        except RecursionError:
            raise InvalidInput("a value in the lens is nested too deeply") from None
        return {**document.around(), **shape.schema()}


def _check_json(data: Any) -> None:
    """Raise InvalidInput unless data is JSON: its values are written into messages."""
    try:
        same = msgspec.json.decode(msgspec.json.encode(data)) == data
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError):
        same = False
    if not same:
        raise InvalidInput("the lens is not JSON", hint=_SHAPE_HINT)


def _check_count(ops: tuple[AnyOp, ...]) -> None:
    count, level = 0, list(ops)
    for _ in range(LENS_DEPTH_MAX):
        count += len(level)
        if count > LENS_OPS_MAX:
            raise InvalidInput(f"a lens must have at most {LENS_OPS_MAX} ops")
        level = [inner for op in level if isinstance(op, In | Map) for inner in op.ops]
    if level:
        raise InvalidInput(f"ops must be nested at most {LENS_DEPTH_MAX} deep")


def _describe(error: str) -> str:
    """Return a decoder error with the number of the op: 2.1 is the first op in the second."""
    text, _, where = error.partition(" - at ")
    path = where.strip("`")
    numbers = ".".join(str(int(number) + 1) for number in _NUMBERS.findall(path))
    field = path.rpartition("]")[2].lstrip(".$")
    place = f"op {numbers} of the lens" if numbers else "the lens"
    return f"{place}: {text}" + (f" (`{field}`)" if field else "")
