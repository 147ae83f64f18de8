"""Places in a document: JSON Pointers (RFC 6901), paths, and JSON values.

A pointer is text, a path the tuple of its segments: `/value/items/0` is `("value", "items", "0")`,
and `""` is `()`, the root. The two forms name the same places, and each place has one of each:
`format_pointer(parse_pointer(text)) == text` for every pointer that is not refused.

A segment says nothing about the container it is used on: `"0"` is the first element of an array and
the key `"0"` of an object. An array index has no sign and no leading zero. The segment `-`, the
place after the last element, is for writing only, so `lookup` never finds anything there.

Absence is not null: `lookup` answers `ABSENT` where there is nothing, and None where null stands.

A value must be JSON, in exactly these types: dict with str keys, list, str,
int, float, bool, None. `measure` refuses everything else: other types, even subclasses of these,
NaN and infinities, text that is no Unicode, and values that are too deep or contain themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from fourfold import limits
from fourfold.errors import InvalidInput

DOCUMENT_ARRAY_INDEX_MAX: Final = 2**32 - 2
"""Largest array index in a path, as in JavaScript."""
POINTERS_REMEMBERED_MAX: Final = 4_096
"""Parsed pointers that are cached."""
POINTER_REMEMBERED_CHARS_MAX: Final = 128
"""Longest pointer that is cached."""

Path: TypeAlias = tuple[str, ...]


class Absence(Enum):
    """The type of `ABSENT`; an enumeration, so that it stays one object across processes."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = Absence.ABSENT
"""Value of a place where there is nothing, not even null."""

END: Final = "-"
"""The segment for the place after the last element of an array."""


class Unfit(Exception):
    """A value or a path is not accepted; the caller turns this into an error with context."""


_INDEX = re.compile(r"0|[1-9][0-9]*")
_INDEX_DIGITS_MAX = len(str(DOCUMENT_ARRAY_INDEX_MAX))
_BROKEN_ESCAPE = re.compile(r"~(?![01])")
_HINT = (
    "A JSON pointer is empty or starts with `/`; inside a segment write `~` as `~0` and `/` as "
    "`~1`, as in `/value/a~1b`."
)
_POINTER_SHOWN = 120


def parse_pointer(text: object) -> Path:
    """Return the path of a JSON pointer."""
    if type(text) is not str:
        raise InvalidInput(f"a JSON pointer is a str, not {type(text).__name__}", hint=_HINT)
    if not text:
        return ()
    if text[0] != "/":
        raise InvalidInput(f"not a JSON pointer: {text[:_POINTER_SHOWN]!r}", hint=_HINT)
    if not is_encodable(text):
        raise InvalidInput("a JSON pointer has a lone surrogate")
    if "~" not in text:
        return tuple(text[1:].split("/"))
    if _BROKEN_ESCAPE.search(text):
        raise InvalidInput(
            f"not a JSON pointer: {text[:_POINTER_SHOWN]!r} has a `~` that escapes nothing",
            hint=_HINT,
        )
    # In this order `~01` means `~1`; in the other it would become a slash.
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def known_pointer(text: object) -> Path:
    """Return the path of a JSON pointer; short ones are cached, because logs repeat a few."""
    if type(text) is str and len(text) <= POINTER_REMEMBERED_CHARS_MAX:
        return _short_pointer(text)
    return parse_pointer(text)


@lru_cache(maxsize=POINTERS_REMEMBERED_MAX)
def _short_pointer(text: str) -> Path:
    return parse_pointer(text)


def format_pointer(path: Iterable[str]) -> str:
    """Return the JSON pointer of `path`."""
    return "".join(["/" + part.replace("~", "~0").replace("/", "~1") for part in path])


def as_path(place: object) -> Path:
    """Return the path that a caller passed as a JSON pointer or as a list of segments."""
    if type(place) is str:
        return parse_pointer(place)
    if not isinstance(place, list | tuple):
        raise InvalidInput(
            f"a path is a JSON pointer or a list of segments, not {type(place).__name__}"
        )
    for segment in place:
        if type(segment) is not str or not is_encodable(segment):
            raise InvalidInput(
                f"the segments of a path are str, but one is {repr(segment)[:_POINTER_SHOWN]}",
                hint='Write an array index as text, as in ["value", "items", "0"].',
            )
    return tuple(place)


def show_pointer(path: Iterable[str]) -> str:
    """Return a pointer for a message: quoted if it is empty, shortened if it is very long."""
    text = format_pointer(path)
    if len(text) > _POINTER_SHOWN:
        text = text[: _POINTER_SHOWN - 3] + "..."
    return text or '""'


def is_index(segment: str) -> bool:
    """Return True if `segment` is spelled like an array index."""
    return _INDEX.fullmatch(segment) is not None


def array_index(segment: str) -> int | None:
    """Return the index that `segment` spells, or None.

    An index that no array can have is replaced by one beyond the end of every array: thousands of
    digits are not worth converting.
    """
    if not _INDEX.fullmatch(segment):
        return None
    beyond = DOCUMENT_ARRAY_INDEX_MAX + 1
    return min(int(segment), beyond) if len(segment) <= _INDEX_DIGITS_MAX else beyond


def is_prefix(path: Path, other: Path) -> bool:
    """Return True if `path` is `other` or one of its ancestors."""
    return other[: len(path)] == path


def lookup(document: Any, path: Iterable[str]) -> Any:
    """Return the value at `path`, or `ABSENT`."""
    node = document
    for segment in path:
        kind = type(node)
        if kind is dict:
            node = node.get(segment, ABSENT)
        elif kind is list:
            index = array_index(segment)
            node = node[index] if index is not None and index < len(node) else ABSENT
        else:
            return ABSENT
    return node


def is_encodable(text: str) -> bool:
    """Return True if `text` can be encoded as UTF-8; a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
    Absence: "nothing",
}


def kind_of(value: object) -> str:
    """Return the JSON type of a value for a message, or the name of its Python type."""
    return _KINDS.get(type(value)) or f"a Python {type(value).__name__}"


def check_document(document: object) -> None:
    """Refuse what cannot be a document: anything but an object of JSON values."""
    if type(document) is not dict:
        raise InvalidInput(f"a document is an object, not {kind_of(document)}")
    try:
        measure(document)
    except Unfit as unfit:
        raise InvalidInput(f"not a document: {unfit}") from None


_Trail: TypeAlias = tuple[Any, str | int] | None
"""The path to a container, innermost step first, as a chain; None for the value itself."""


def measure(value: Any) -> int:
    """Return the nesting depth of `value`: 0 for a leaf, 1 for `[]`."""
    if type(value) is not dict and type(value) is not list:
        _check_leaf(value, None)
        return 0
    level: dict[int, tuple[Any, _Trail]] = {id(value): (value, None)}
    depth = 0
    while level:
        depth += 1
        if depth > limits.CONTENT_DEPTH_MAX:
            raise Unfit(
                f"it is nested deeper than {limits.CONTENT_DEPTH_MAX} levels, or contains itself"
            )
        # A part that stands in many places is looked into once per level.
        below: dict[int, tuple[Any, _Trail]] = {}
        for container, trail in level.values():
            is_object = type(container) is dict
            for key, item in container.items() if is_object else enumerate(container):
                if is_object:
                    _check_key(key, trail)
                if type(item) is dict or type(item) is list:
                    below[id(item)] = (item, (trail, key))
                else:
                    _check_leaf(item, (trail, key))
        level = below
    return depth


def _check_key(key: object, trail: _Trail) -> None:
    if type(key) is not str:
        raise Unfit(f"the key {repr(key)[:60]}{_show(trail)} is not a str")
    if not is_encodable(key):
        raise Unfit(f"the key {key[:60]!r}{_show(trail)} has a lone surrogate")


def _check_leaf(leaf: object, trail: _Trail) -> None:
    kind = type(leaf)
    if kind is str:
        assert isinstance(leaf, str)
        if not is_encodable(leaf):
            raise Unfit(f"the string{_show(trail)} has a lone surrogate")
    elif kind is float:
        assert isinstance(leaf, float)
        if not math.isfinite(leaf):
            raise Unfit(f"{leaf!r}{_show(trail)} is not a JSON number")
    elif kind is int:
        assert isinstance(leaf, int)
        if leaf.bit_length() > limits.DOCUMENT_INTEGER_BITS_MAX:
            raise Unfit(f"an integer{_show(trail)} has {leaf.bit_length()} bits, too many")
    elif leaf is not None and kind is not bool:
        raise Unfit(f"a {kind.__name__}{_show(trail)} is not a JSON value")


def _show(trail: _Trail) -> str:
    steps: list[str] = []
    while trail is not None:
        trail, step = trail
        steps.append(str(step))
    return f" at {show_pointer(reversed(steps))} of the value" if steps else ""
