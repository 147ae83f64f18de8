"""Which keys every backend accepts: one rule, so that a store can move between backends.

A key is 1 to 1024 bytes of UTF-8: segments of 1 to 255 bytes joined by single slashes. The
segments "." and ".." are refused, and so are backslashes, control characters, and U+FFFE and
U+FFFF, which the XML of S3 cannot carry. Everything else is allowed and keeps its exact bytes: no
case folding, no Unicode normalisation.
"""

from __future__ import annotations

import re

from fourfold import limits
from fourfold.errors import InvalidInput

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ufffe\uffff]")
_LAST_CHARACTER = "\U0010ffff"
_HINT = (
    "A key is 1 to 1024 bytes of UTF-8, segments of at most 255 bytes joined by '/', without "
    "'.' and '..' segments, backslashes or control characters."
)


def check_key(key: str) -> str:
    """The key itself, or InvalidInput."""
    segments = _segments(key, "key")
    if not key:
        raise InvalidInput("the key is empty", hint=_HINT)
    if "" in segments:
        raise InvalidInput(
            f"key {_shown(key)} starts or ends with '/' or has an empty segment", hint=_HINT
        )
    _check_dots(segments, key, "key")
    return key


def check_prefix(prefix: str, what: str = "prefix") -> str:
    """The prefix itself, or InvalidInput when no key could start with it.

    Positions in key order (`start_after`) obey the same rule.
    """
    segments = _segments(prefix, what)
    if "" in segments[:-1]:
        raise InvalidInput(
            f"{what} {_shown(prefix)} starts with '/' or has an empty segment", hint=_HINT
        )
    _check_dots(segments[:-1], prefix, what)
    return prefix


def is_key(text: str) -> bool:
    """Whether a name that was found in a store is a key, and not another program's."""
    try:
        check_key(text)
    except InvalidInput:
        return False
    return True


def position_before(prefix: str) -> str:
    """A position below every key that starts with `prefix`, with hardly a key in between."""
    code = ord(prefix[-1]) - 1
    if 0xD800 <= code <= 0xDFFF:
        code = 0xD7FF
    while code >= 0x20 and _FORBIDDEN.match(chr(code)):
        code -= 1
    # No key holds a character below the space, so all that follows the rest of the prefix will do.
    return prefix[:-1] + chr(code) + _LAST_CHARACTER if code >= 0x20 else prefix[:-1]


def _segments(text: str, what: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidInput(f"the {what} is {type(text).__name__}, not str", hint=_HINT)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInput(
            f"{what} {_shown(text)} is not valid Unicode: it holds a lone surrogate", hint=_HINT
        ) from exc
    if size > limits.OBJECT_KEY_BYTES_MAX:
        raise InvalidInput(
            f"{what} {_shown(text)} has {size} bytes, more than {limits.OBJECT_KEY_BYTES_MAX}",
            hint=_HINT,
        )
    if found := _FORBIDDEN.search(text):
        raise InvalidInput(
            f"{what} {_shown(text)} holds the forbidden character U+{ord(found[0]):04X}", hint=_HINT
        )
    segments = text.split("/")
    for segment in segments:
        if len(segment.encode()) > limits.OBJECT_SEGMENT_BYTES_MAX:
            raise InvalidInput(
                f"{what} {_shown(text)} has a segment of more than "
                f"{limits.OBJECT_SEGMENT_BYTES_MAX} bytes",
                hint=_HINT,
            )
    return segments


def _check_dots(segments: list[str], text: str, what: str) -> None:
    for segment in segments:
        if segment in {".", ".."}:
            raise InvalidInput(f"{what} {_shown(text)} has the segment '{segment}'", hint=_HINT)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
