"""Documents as stored text: JSON, keys sorted, no spaces, numbers as they are.

`encode` takes exactly what JSON can hold, and proves it by reading the text back: a value that does
not come back equal (NaN, a tuple, bytes, a key that is no string) is refused. What comes back is
also a private copy, which nobody else can change.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from fourfold import limits
from fourfold.errors import ContentError

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()
decode = _decoder.decode


def encode(value: Any, what: str) -> str:
    """The text of `value`; ContentError, naming `what`, when JSON cannot hold it."""
    return checked(value, what)[0]


def checked(value: Any, what: str) -> tuple[str, Any]:
    """The text of `value`, and a private copy of it."""
    try:
        raw = _encoder.encode(value)
        copy = _decoder.decode(raw)
        same = bool(copy == value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ContentError(f"{what} is not JSON: {error}", hint=_HINT) from error
    if not same:
        raise ContentError(f"{what} holds something that JSON cannot: {_blame(value)}", hint=_HINT)
    if len(raw) > limits.DOCUMENT_BYTES_MAX:
        raise ContentError(
            f"{what} has {len(raw)} bytes; at most {limits.DOCUMENT_BYTES_MAX} are stored",
            hint="Put large content into a blob and refer to it.",
        )
    return raw.decode(), copy


def trusted(value: Any) -> str:
    """The text of a value that was made by our own code out of checked parts."""
    return _encoder.encode(value).decode()


_HINT = "Use objects with string keys, lists, strings, finite numbers, booleans and None."


def _blame(value: Any, path: str = "") -> str:
    """Where the first thing is that JSON cannot hold; empty when there is none."""
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
    return next((found for where, item in inner if (found := _blame(item, where))), "")
