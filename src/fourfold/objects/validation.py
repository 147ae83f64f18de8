"""Validation of keys and arguments, shared by all backends.

A key is 1 to 1024 bytes of UTF-8: segments of 1 to 255 bytes joined by single slashes. The
segments "." and ".." are invalid, and so are backslashes, control characters, and U+FFFE and
U+FFFF, which the XML of S3 cannot represent. Everything else is allowed and keeps its exact bytes:
no case folding, no Unicode normalisation. The rule is the same for every backend, so that a store
can move between them.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Final

from fourfold import limits
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fourfold.objects.protocol import Data

OBJECT_SEGMENT_BYTES_MAX: Final = 255
"""Longest name between two slashes that common file systems allow."""

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ufffe\uffff]")
_LAST_CHARACTER = "\U0010ffff"
_HINT = (
    "Use 1 to 1024 bytes of UTF-8, segments of at most 255 bytes joined by '/', without "
    "'.' and '..' segments, backslashes or control characters."
)


def check_key(key: str) -> str:
    """Return the key; raise InvalidInput if it is invalid."""
    segments = _segments(key, "key")
    if not key:
        raise InvalidInput("key must not be empty", hint=_HINT)
    if "" in segments:
        raise InvalidInput(
            f"key {_abbreviate(key)} starts or ends with '/' or has an empty segment", hint=_HINT
        )
    _check_dots(segments, key, "key")
    return key


def check_prefix(prefix: str, what: str = "prefix") -> str:
    """Return the prefix; raise InvalidInput if no key can start with it.

    The rule also applies to `start_after`.
    """
    segments = _segments(prefix, what)
    if "" in segments[:-1]:
        raise InvalidInput(
            f"{what} {_abbreviate(prefix)} starts with '/' or has an empty segment", hint=_HINT
        )
    _check_dots(segments[:-1], prefix, what)
    return prefix


def is_key(text: str) -> bool:
    """Return True if `text` is a valid key."""
    try:
        check_key(text)
    except InvalidInput:
        return False
    return True


def position_before(prefix: str) -> str:
    """Return a position shortly before every key that starts with `prefix`."""
    code = ord(prefix[-1]) - 1
    if 0xD800 <= code <= 0xDFFF:
        code = 0xD7FF
    while code >= 0x20 and _FORBIDDEN.match(chr(code)):
        code -= 1
    # No key has a character below the space, so the rest of the prefix is low enough.
    return prefix[:-1] + chr(code) + _LAST_CHARACTER if code >= 0x20 else prefix[:-1]


def _segments(text: str, what: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be str, got {type(text).__name__}", hint=_HINT)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInput(
            f"{what} {_abbreviate(text)} is not valid Unicode: it has a lone surrogate", hint=_HINT
        ) from exc
    if size > limits.OBJECT_KEY_BYTES_MAX:
        raise InvalidInput(
            f"{what} {_abbreviate(text)} must have at most {limits.OBJECT_KEY_BYTES_MAX} bytes, "
            f"got {size}",
            hint=_HINT,
        )
    if match := _FORBIDDEN.search(text):
        raise InvalidInput(
            f"{what} {_abbreviate(text)} has the forbidden character U+{ord(match[0]):04X}",
            hint=_HINT,
        )
    segments = text.split("/")
    for segment in segments:
        if len(segment.encode()) > OBJECT_SEGMENT_BYTES_MAX:
            raise InvalidInput(
                f"{what} {_abbreviate(text)} has a segment of more than "
                f"{OBJECT_SEGMENT_BYTES_MAX} bytes",
                hint=_HINT,
            )
    return segments


def _check_dots(segments: list[str], text: str, what: str) -> None:
    for segment in segments:
        if segment in {".", ".."}:
            raise InvalidInput(
                f"{what} {_abbreviate(text)} has the segment '{segment}'", hint=_HINT
            )


def _abbreviate(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")


def check_data(data: Data) -> bytes | memoryview:
    """Return the data as flat bytes, without a copy."""
    flat = _flat(data, "data")
    if len(flat) > limits.OBJECT_PUT_BYTES_MAX:
        raise InvalidInput(
            f"data must have at most {limits.OBJECT_PUT_BYTES_MAX} bytes, got {len(flat)}",
            hint="Upload it in chunks: store.upload(key, chunks).",
        )
    return data if isinstance(data, bytes) else flat


def check_conditions(*, if_absent: bool, if_version: str | None) -> None:
    """Raise InvalidInput if the conditions of a write are invalid."""
    if if_version is None:
        return
    if if_absent:
        raise InvalidInput(
            "if_absent and if_version cannot be used together",
            hint="Use if_absent to create an object, if_version to replace one.",
        )
    if not isinstance(if_version, str) or not if_version:
        raise InvalidInput(
            f"if_version must be the version of an object, got {if_version!r}",
            hint="Pass the `version` of an ObjectInfo unchanged.",
        )


def check_range(start: int, length: int) -> tuple[int, int]:
    """Return the range; raise InvalidInput if a number is negative."""
    return _natural(start, "start"), _natural(length, "length")


def check_chunk_bytes(chunk_bytes: int) -> int:
    """Return the size of chunks; raise InvalidInput if it is less than 1."""
    if _natural(chunk_bytes, "chunk_bytes") == 0:
        raise InvalidInput("chunk_bytes must be at least 1, got 0")
    return chunk_bytes


def checked_chunks(chunks: Iterable[Data]) -> Iterator[memoryview]:
    """Yield the chunks of an upload as flat bytes, without the empty ones."""
    if isinstance(chunks, bytes | bytearray | memoryview | str):
        raise InvalidInput(
            f"chunks must be an iterable of bytes, got {type(chunks).__name__}",
            hint="Use store.put(key, data) for bytes in memory.",
        )
    return (flat for chunk in chunks if len(flat := _flat(chunk, "chunk")))


def _flat(data: Data, what: str) -> memoryview:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput(
            f"{what} must be bytes, got {type(data).__name__}",
            hint="Encode text first: text.encode().",
        )
    try:
        return memoryview(data).cast("B")
    except TypeError as exc:
        raise InvalidInput(f"{what} must be a contiguous memoryview") from exc


def regrouped(chunks: Iterable[memoryview], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of exactly `size`; the last one may be shorter."""
    pending = bytearray()
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            part = chunk[at : at + size - len(pending)]
            pending += part
            at += len(part)
            if len(pending) == size:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)


def _natural(value: int, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError as exc:
        raise InvalidInput(f"{what} must be int, got {type(value).__name__}") from exc
    if number < 0:
        raise InvalidInput(f"{what} must not be negative, got {number}")
    return number
