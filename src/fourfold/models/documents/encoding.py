"""Documents as stored text: JSON, keys sorted, no spaces, numbers as they are.

`encode` takes exactly what JSON can hold, and proves it by reading the text back: a value that does
not come back equal (NaN, a tuple, bytes, a key that is not a string) is refused. What comes back is
also a private copy, which no other code can change.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fourfold import limits
from fourfold.content.json_pointer import Unfit, measure
from fourfold.errors import ContentError, CorruptData

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()
decode = _decoder.decode

PATCH_GROWTH = 6
"""Bytes that a byte of a patch's text adds to a document at most: a path of empty names, `///`,
creates `"":{}` and a comma for each.
"""
_PLAIN_BYTES = 2 * limits.CONTENT_DEPTH_MAX
"""A text no longer than this has no room for too deep a nesting, nor for too long a number."""
_LONG_NUMBER = b"0" * int(limits.DOCUMENT_INTEGER_BITS_MAX * math.log10(2))
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)


def encode(value: Any, what: str) -> str:
    """Return the text of `value`; raise ContentError about `what` if JSON cannot hold it."""
    return checked(value, what)[0]


def checked(value: Any, what: str, owner: str | None = None) -> tuple[str, Any]:
    """Return the text of `value` and a private copy of it. Errors call it `what` of `owner`."""
    try:
        raw = _encoder.encode(value)
        copy = _decoder.decode(raw)
        same = bool(copy == value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ContentError(f"{_named(what, owner)} is not JSON: {error}", hint=_HINT) from error
    if not same:
        raise ContentError(
            f"{_named(what, owner)} holds something that JSON cannot: {_blame(value)}", hint=_HINT
        )
    _check_size(len(raw), _named(what, owner))
    if len(raw) > _PLAIN_BYTES:
        _check_extremes(raw, copy, what, owner)
    return raw.decode(), copy


def check_document_size(document: Any) -> int:
    """Return the size of a document's text; ContentError when it is too large to be stored."""
    size = len(_encoder.encode(document))
    _check_size(size, "the document")
    return size


def _check_size(size: int, subject: str) -> None:
    if size > limits.DOCUMENT_BYTES_MAX:
        raise ContentError(
            f"{subject} has {size} bytes; at most {limits.DOCUMENT_BYTES_MAX} are stored",
            hint="Put large content into a blob and refer to it.",
        )


def bytes_at_most(text: str) -> int:
    """Return an upper bound of a text's size in UTF-8, without encoding it."""
    return len(text) if text.isascii() else 4 * len(text)


def _named(what: str, owner: str | None) -> str:
    return what if owner is None else f"{what} of {owner!r}"


def _check_extremes(raw: bytes, copy: Any, what: str, owner: str | None) -> None:
    """Refuse nesting and numbers that other readers could not follow.

    To look at every part would cost more than to encode it. So the text is looked over first: most
    have fewer brackets than may be nested, and no long run of digits.
    """
    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets > limits.CONTENT_DEPTH_MAX or _LONG_NUMBER in raw.translate(_DIGITS_AS_ZERO):
        try:
            measure(copy)
        except Unfit as unfit:
            raise ContentError(f"{_named(what, owner)}: {unfit}", hint=_HINT) from None


def stored(text: str) -> Any:
    """Return the value of a text in the log; raise CorruptData if it is not readable."""
    try:
        return decode(text)
    except (TypeError, ValueError) as error:
        raise CorruptData(f"stored text is not valid JSON: {error}: {text!r:.60}") from error


def trusted(value: Any) -> str:
    """Return the text of a value that our own code made from checked parts."""
    return _encoder.encode(value).decode()


_HINT = "Use objects with string keys, lists, strings, finite numbers, booleans and None."


def _blame(value: Any, path: str = "") -> str:
    """Return the path of the first value that JSON cannot hold, or ""."""
    if type(value) is dict:
        strange = next((key for key in value if not isinstance(key, str)), None)
        if strange is not None:
            return f"the key {strange!r} at {path or '/'}"
        inner = ((f"{path}/{key}", item) for key, item in value.items())
    elif type(value) is list:
        inner = ((f"{path}/{index}", item) for index, item in enumerate(value))
    else:
        finite = isinstance(value, float) and math.isfinite(value)
        plain = value is None or isinstance(value, bool | str | int) or finite
        return "" if plain else f"{value!r:.60} at {path or '/'}"
    return next((message for where, item in inner if (message := _blame(item, where))), "")
