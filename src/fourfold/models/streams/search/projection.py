"""Decoders that read only the fields that a search or an aggregate needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, TypedDict

import msgspec

from fourfold.content.filters import And, Comparison, Exists, Not, Or
from fourfold.content.json_pointer import ABSENT
from fourfold.models.streams.search.query import AnyText, decode_message

DecodeAll = Callable[[Sequence[bytes]], list[Any]]
FRAGMENT_MIN: Final = 3
"""Bytes of a fragment that is worth looking for."""
_UNDECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def compile_decoder(names: Iterable[str] | None) -> DecodeAll:
    """Return a function that decodes the fields of objects with these names.

    Everything else of an object is skipped, which takes a third of the time. What is not an
    object is decoded as a whole, and so is every message if `names` is None.
    """
    if names is None:
        return lambda payloads: list(map(decode_message, payloads))
    fields = dict.fromkeys(names, Any)
    decode = msgspec.json.Decoder(TypedDict("_Fields", fields, total=False)).decode  # type: ignore[operator]

    def decode_fields(payload: bytes) -> Any:
        try:
            return decode(payload)
        except _UNDECODED:
            return decode_message(payload)

    def decode_all(payloads: Sequence[bytes]) -> list[Any]:
        try:
            return list(map(decode, payloads))
        except _UNDECODED:
            # One is not an object, or only the other decoder can read it.
            return list(map(decode_fields, payloads))

    return decode_all


def compile_columns(names: Iterable[str]) -> Callable[[bytes, int], dict[str, list[Any]] | None]:
    """Return a function that decodes these fields of objects into a list for each name.

    It takes so many objects, joined by line feeds: one call for all of them takes half of the time
    of one for each. A field that an object lacks is ABSENT. The function returns None if it cannot
    decode them all.
    """
    attributes = {name: f"f{at}" for at, name in enumerate(dict.fromkeys(names))}
    fields = [(attribute, Any, ABSENT) for attribute in attributes.values()]
    renamed = {attribute: name for name, attribute in attributes.items()}
    decode = msgspec.json.Decoder(
        msgspec.defstruct("_Columns", fields, rename=renamed, gc=False)
    ).decode_lines
    getters = {name: attrgetter(attribute) for name, attribute in attributes.items()}

    def decode_columns(lines: bytes, count: int) -> dict[str, list[Any]] | None:
        try:
            objects = decode(lines)
        except _UNDECODED:
            return None
        if len(objects) != count:
            return None
        return {name: list(map(getter, objects)) for name, getter in getters.items()}

    return decode_columns


def field_names(condition: Any) -> frozenset[str] | None:
    """Return the names of the fields of a message that decide a condition; None if all may."""
    names: set[str] = set()
    for part in _leaves(condition):
        if isinstance(part, AnyText) or not part.path:
            return None
        names.add(part.path[0])
    return frozenset(names)


def _leaves(condition: Any) -> Iterator[Any]:
    if isinstance(condition, And | Or):
        for part in condition.parts:
            yield from _leaves(part)
    elif isinstance(condition, Not):
        yield from _leaves(condition.part)
    else:
        yield condition


def required_fragment(condition: Any) -> bytes | None:
    """Return bytes that each match contains, unless the message has escapes; None if unknown."""
    parts = condition.parts if isinstance(condition, And) else ()
    fragments = map(required_fragment, parts) if parts else (_fragment(condition),)
    return max((fragment for fragment in fragments if fragment), key=len, default=None)


def _fragment(part: Any) -> bytes | None:
    if isinstance(part, Exists) and part.expected:
        return _bytes_of(f'"{part.path[-1]}"') if len(part.path) == 1 else None
    if not isinstance(part, Comparison) or not isinstance(part.value, str):
        return None
    opening, closing = {"$eq": ('"', '"'), "$prefix": ('"', ""), "$contains": ("", "")}.get(
        part.operator, (None, None)
    )
    return None if opening is None else _bytes_of(f"{opening}{part.value}{closing}")


def _bytes_of(text: str) -> bytes | None:
    try:
        fragment = text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is always written with an escape.
        return None
    return fragment if len(fragment) >= FRAGMENT_MIN else None
