"""Documents as stored text: JSON, keys sorted, no spaces, numbers as they are.

`encode` takes exactly what JSON can hold, and proves it by reading the text back: a value that does not come back equal (NaN, a tuple, bytes,
a key that is no string) is refused. What comes back is also a private copy, which nobody else can change.
"""

from __future__ import annotations

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
    """Where the first thing is that JSON cannot hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"the key {key!r} at {path or '/'}"
            found = _blame(item, f"{path}/{key}")
            if found:
                return found
        return "" if type(value) is dict else f"a {type(value).__name__} at {path or '/'}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            found = _blame(item, f"{path}/{index}")
            if found:
                return found
        return ""
    if value is None or isinstance(value, bool | str | int):
        return ""
    if isinstance(value, float) and value - value == 0:
        return ""
    return f"{value!r:.60} at {path or '/'}"
