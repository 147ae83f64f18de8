"""The careful way from canonical bytes to the value, with the path of what is refused.

JSON is parsed first, then tags become values, then the value is written again: only if that gives
the very same text were the bytes canonical. The format is drawn in `canonical`.
"""

from __future__ import annotations

import binascii
import json
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from fourfold.content.integers import parse_integer
from fourfold.content.paths import IN_SET, Refusal, path_at
from fourfold.content.refs import PayloadRef
from fourfold.content.writing import write_text
from fourfold.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Callable


def read_text(data: bytes) -> Any:
    """The value whose canonical bytes these are; anything else is refused."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ContentError(
            f"cannot decode: byte {error.start} is not UTF-8",
            hint="The bytes are not canonical content, or were damaged.",
        ) from None
    try:
        value = _untag(_parser.decode(text), in_set=False)
        again = write_text(value)
    except json.JSONDecodeError as error:
        raise _not_canonical(text, error.pos, f"{error.msg} at character {error.pos}") from None
    except Refusal as refusal:
        raise refusal.error("cannot decode") from None
    except ContentError as error:
        raise ContentError(
            f"cannot decode: the bytes stand for no value: {error.message}"
        ) from None
    except RecursionError:
        raise ContentError(
            "cannot decode: the value is nested deeper than the stack of this call can follow",
            hint="Decode nearer to the top of the call stack.",
        ) from None
    if again != text:
        at = _first_difference(text, again)
        found, expected = text[at : at + 20], again[at : at + 20]
        raise _not_canonical(text, at, f"found {found!r} where the canonical text has {expected!r}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(f"{name} is not a finite float")


_parser = json.JSONDecoder(parse_int=parse_integer, parse_constant=_refuse_constant)


def _untag(raw: Any, *, in_set: bool) -> Any:
    """The value that parsed JSON stands for; inside a set everything must be hashable."""
    reader = _READERS.get(type(raw))
    return raw if reader is None else reader(raw, in_set)


def _read_list(raw: list[Any], in_set: bool) -> Any:
    items: list[Any] = []
    for index, item in enumerate(raw):
        reader = _READERS.get(type(item))
        try:
            items.append(item if reader is None else reader(item, in_set))
        except Refusal as refusal:
            raise refusal.within(index) from None
    return tuple(items) if in_set else items


def _read_dict(raw: dict[str, Any], in_set: bool) -> Any:
    tag = next((key for key in raw if key.startswith("~") and not key.startswith("~~")), None)
    if tag == "~set" and len(raw) == 1 and type(raw[tag]) is list:
        try:
            elements = _read_list(raw[tag], in_set=True)
        except Refusal as refusal:
            refusal.steps[-1] = IN_SET
            raise
        return _set_of(elements)
    if tag is not None:
        return _read_tag(tag, raw)
    if in_set:
        raise Refusal("a dict cannot be an element of a set")
    fields: dict[str, Any] = {}
    for key, item in raw.items():
        name = key.removeprefix("~")
        reader = _READERS.get(type(item))
        try:
            fields[name] = item if reader is None else reader(item, False)
        except Refusal as refusal:
            raise refusal.within(name) from None
    return fields


_READERS: dict[type, Callable[[Any, bool], Any]] = {list: _read_list, dict: _read_dict}


def _set_of(elements: tuple[Any, ...]) -> frozenset[Any]:
    found = frozenset(elements)
    if len(found) != len(elements):
        raise Refusal("the set has two equal elements")
    return found


def _read_tag(tag: str, raw: dict[str, Any]) -> Any:
    if len(raw) > 1:
        raise Refusal(f"the tag {tag[:60]!r} stands beside other keys")
    reader = _TAGS.get(tag)
    if reader is None:
        raise Refusal(f"the tag {tag[:60]!r} is unknown, or holds no list")
    held = raw[tag]
    if type(held) is not (dict if tag == "~ref" else str):
        raise Refusal(f"the tag {tag!r} holds a {type(held).__name__}")
    try:
        return reader(held)
    except (ValueError, ArithmeticError, KeyError):
        raise Refusal(f"{str(held)[:100]!r} does not fit the tag {tag!r}") from None


_TAGS: dict[str, Callable[[Any], Any]] = {
    "~bytes": lambda text: binascii.a2b_base64(text, strict_mode=True),
    "~datetime": datetime.fromisoformat,
    "~uuid": UUID,
    "~decimal": Decimal,
    "~ref": lambda fields: PayloadRef(fields["id"], fields["kind"], fields["size"]),
}


def _first_difference(one: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _not_canonical(text: str, position: int, reason: str) -> ContentError:
    return ContentError(
        f"cannot decode: not canonical at {path_at(text, position)}: {reason}",
        hint="Canonical bytes come from `encode`: no spaces, sorted keys, one spelling of a value.",
    )
