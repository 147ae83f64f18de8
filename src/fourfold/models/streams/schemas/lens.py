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
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import InvalidInput
from fourfold.models.streams.schemas.ops import (
    AnyOp,
    In,
    Map,
    apply_all,
    derive_all,
    fields_of,
    raw_of,
)
from fourfold.models.streams.schemas.shape import Document, ObjectShape, Schema

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
