"""How a lens converts values: at the bytes of a message, and in what a schema says of them. Pure.

To text: numbers by the digits they have, and `true` and `false`. From text: what JSON would write
as such a number or boolean. Null stays null. What cannot be converted stays as it is; where a
schema lets such a value through, that is found here, and the lens is refused.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Literal, TypeAlias

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas.shape import Document, Schema, quoted, types_of

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
