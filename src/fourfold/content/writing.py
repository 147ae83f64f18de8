"""The careful way to canonical text: every type, every tag, and the path of what is refused.

One function per kind of value, and one stack frame per level of nesting, so that the deepest value
allowed still fits on the interpreter's stack. The format is drawn in `canonical`.
"""

from __future__ import annotations

import binascii
import math
from datetime import UTC, datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from fourfold import limits
from fourfold.content.integers import integer_text
from fourfold.content.paths import IN_SET, Refusal
from fourfold.content.refs import PayloadRef
from fourfold.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Callable


def write_text(value: object) -> str:
    """The canonical text of `value`."""
    try:
        return _WRITERS.get(type(value), _refuse_type)(value, 0)
    except Refusal as refusal:
        raise refusal.error("cannot encode") from None
    except RecursionError:
        raise ContentError(
            "cannot encode: the value is nested deeper than the stack of this call can follow",
            hint="Nest less deeply, or encode nearer to the top of the call stack.",
        ) from None


# A writer gets a value and the number of brackets that are open around it.


def _write_dict(value: dict[Any, object], depth: int) -> str:
    depth = _deeper(depth, 1)
    fields = []
    for key in _sorted_keys(value):
        item = value[key]
        try:
            name = _write_str("~" + key if key.startswith("~") else key, depth)
            fields.append(f"{name}:{_WRITERS.get(type(item), _refuse_type)(item, depth)}")
        except Refusal as refusal:
            raise refusal.within(key) from None
    return "{" + ",".join(fields) + "}"


def _write_list(value: list[object] | tuple[object, ...], depth: int) -> str:
    depth = _deeper(depth, 1)
    texts = []
    for index, item in enumerate(value):
        try:
            texts.append(_WRITERS.get(type(item), _refuse_type)(item, depth))
        except Refusal as refusal:
            raise refusal.within(index) from None
    return "[" + ",".join(texts) + "]"


def _write_set(value: set[object] | frozenset[object], depth: int) -> str:
    depth = _deeper(depth, 2)
    texts = []
    for item in value:
        try:
            texts.append(_WRITERS.get(type(item), _refuse_type)(item, depth))
        except Refusal as refusal:
            raise refusal.within(IN_SET) from None
    if len(set(texts)) != len(texts):
        # Two datetimes may be one instant and yet unequal, when a zone has their hour twice.
        raise Refusal("the set has two elements with the same bytes")
    # The code point order of texts is the byte order of their UTF-8.
    return '{"~set":[' + ",".join(sorted(texts)) + "]}"


def _write_str(value: str, _depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Refusal(f"lone surrogate at character {error.start} of a str") from None
    return encode_basestring(value)


def _write_float(value: float, _depth: int) -> str:
    if not math.isfinite(value):
        raise Refusal(f"{value!r} is not a finite float")
    return float.__repr__(value)


def _write_bytes(value: bytes, depth: int) -> str:
    _deeper(depth, 1)
    return f'{{"~bytes":"{binascii.b2a_base64(value, newline=False).decode()}"}}'


def _write_datetime(value: datetime, depth: int) -> str:
    _deeper(depth, 1)
    if value.utcoffset() is None:
        raise Refusal("a naive datetime names no instant; give it a timezone")
    try:
        moment = value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise Refusal(f"the datetime {value.isoformat()} has no year in UTC") from None
    return f'{{"~datetime":"{moment.isoformat(timespec="microseconds")}Z"}}'


def _write_uuid(value: UUID, depth: int) -> str:
    _deeper(depth, 1)
    return f'{{"~uuid":"{value}"}}'


def _write_decimal(value: Decimal, depth: int) -> str:
    _deeper(depth, 1)
    if not value.is_finite():
        raise Refusal(f"{value!r} is not a finite Decimal")
    # The caller's decimal context may ask for a small e.
    return f'{{"~decimal":"{str(value).replace("e", "E")}"}}'


def _write_ref(value: PayloadRef, depth: int) -> str:
    _deeper(depth, 2)
    return f'{{"~ref":{{"id":"{value.id}","kind":"{value.kind}","size":{value.size}}}}}'


_WRITERS: dict[type, Callable[[Any, int], str]] = {
    type(None): lambda _value, _depth: "null",
    bool: lambda value, _depth: "true" if value else "false",
    int: lambda value, _depth: integer_text(value),
    float: _write_float,
    str: _write_str,
    list: _write_list,
    tuple: _write_list,
    dict: _write_dict,
    set: _write_set,
    frozenset: _write_set,
    bytes: _write_bytes,
    datetime: _write_datetime,
    UUID: _write_uuid,
    Decimal: _write_decimal,
    PayloadRef: _write_ref,
}


def _refuse_type(value: object, _depth: int) -> NoReturn:
    for known in _WRITERS:
        if isinstance(value, known):
            raise Refusal(
                f"{_type_name(value)} is a subclass of {known.__name__} and would lose its type; "
                f"convert it to exactly {known.__name__}"
            )
    raise Refusal(f"{_type_name(value)} has no canonical form")


def _sorted_keys(value: dict[Any, object]) -> list[str]:
    for key in value:
        if type(key) is not str:
            shown = repr(key)[:60]
            raise Refusal(f"the key {shown} is {_type_name(key)}; keys must be exactly str")
    return sorted(value)


def _deeper(depth: int, brackets: int) -> int:
    most = limits.CONTENT_DEPTH_MAX
    if depth + brackets > most:
        raise Refusal(f"more than {most} brackets deep, or the value contains itself")
    return depth + brackets


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
