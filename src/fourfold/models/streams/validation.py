"""Names, content types and offsets of streams: formats and checks. Pure."""

from __future__ import annotations

import re
import sys
from typing import Final, Self

from fourfold import limits
from fourfold.errors import InvalidInput

STREAM_NAME_MAX: Final = 1024
"""Bytes of a stream name."""

JSON = "application/json"
START = "-1"
NOW = "now"
_OFFSET = re.compile(r"([0-9]{16})_([0-9]{16})")
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def check_name(name: object) -> str:
    """Return `name` if it is a valid stream name: printable, without empty or dot parts."""
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= STREAM_NAME_MAX:
        raise InvalidInput(
            f"stream name must be text of 1 to {STREAM_NAME_MAX} bytes, got {name!r:.80}"
        )
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or not name.isprintable():
        raise InvalidInput(
            f"invalid stream name {name!r:.80}",
            hint="Use printable text; parts between slashes must not be empty, '.' or '..'.",
        )
    return name


def prefix_upper_bound(prefix: str) -> str | None:
    """Return the first text that sorts after every name with `prefix`, or None if there is none."""
    base = check_storable(prefix).rstrip(chr(sys.maxunicode))
    if not base:
        return None
    following = ord(base[-1]) + 1
    # U+D800 to U+DFFF are surrogates, which are not valid text.
    return base[:-1] + chr(0xE000 if following == 0xD800 else following)


def check_storable(text: object, name: str = "text") -> str:
    """Return `text` if it can be stored as UTF-8; a lone surrogate cannot."""
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, got {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} must not contain a lone surrogate, got {text!r:.80}") from None
    return text


def check_content_type(content_type: object) -> str:
    """Return a MIME type without surrounding blanks, otherwise unchanged."""
    if not isinstance(content_type, str):
        raise InvalidInput(f"content type must be text, got {content_type!r:.80}")
    if not _TYPE.fullmatch(plain_type(content_type)) or not content_type.isprintable():
        raise InvalidInput(f"invalid content type {content_type!r:.80}")
    return content_type.strip()


def plain_type(content_type: str) -> str:
    """Return a content type for comparison: lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


class Offset(str):
    """A place in a stream: the next record to read, and the incarnation it belongs to.

    An offset is the text that the protocol uses, so it can be stored and passed back as text, and
    sorts by incarnation and then by record.

        chunk = stream.read()
        later = stream.read(chunk.offset)
        assert chunk.offset.record == chunk.next_offset
    """

    __slots__ = ("incarnation_number", "record")

    record: int
    """The number of the next record to read."""
    incarnation_number: int
    """The incarnation of the stream; 0 for the first stream of a name."""

    def __new__(cls, record: int, incarnation_number: int = 0) -> Self:
        self = super().__new__(cls, format_offset(record, incarnation_number))
        self.record = record
        self.incarnation_number = incarnation_number
        return self

    @property
    def is_start(self) -> bool:
        """True for the all-zero offset, which is the start of every incarnation."""
        return not self.record and not self.incarnation_number

    def __reduce__(self) -> tuple[type[Offset], tuple[int, int]]:
        return type(self), (self.record, self.incarnation_number)

    def __repr__(self) -> str:
        return f"Offset({self.record}, {self.incarnation_number})"


def format_offset(record: int, incarnation_number: int = 0) -> str:
    """Format an offset as text that sorts by incarnation, then by record."""
    return f"{incarnation_number:016d}_{record:016d}"


def parse_offset(text: object) -> Offset | None:
    """Parse an offset; `now`, the end of the stream, is None.

    `-1` is the all-zero offset, which is the start of every incarnation.
    """
    if isinstance(text, Offset):
        return text
    if isinstance(text, str):
        if text == START:
            return Offset(0, 0)
        if text == NOW:
            return None
        if match := _OFFSET.fullmatch(text):
            return Offset(int(match[2]), int(match[1]))
    raise InvalidInput(
        f"invalid offset {text!r:.80}",
        hint="Use -1 for the start, now for the end, or an offset that a read returned.",
    )


def check_expected(expected: object) -> Offset | int:
    """Return the expected end of a stream: an offset, or a record of the current incarnation.

    `-1` and `now` are refused: every stream has such a place, so they state no condition.
    """
    if type(expected) is int and expected >= 0:
        return expected
    if isinstance(expected, str) and expected not in {START, NOW}:
        offset = parse_offset(expected)
        assert offset is not None
        return offset
    raise InvalidInput(
        f"expected offset must be an offset or a number of records, got {expected!r:.80}",
        hint="Pass the offset that a read or an append returned, or stream.position().",
    )


def check_limit(limit: object) -> int:
    """Return the maximum number of records of a read: a read of none would never end."""
    if type(limit) is not int or limit < 1:
        raise InvalidInput(f"limit must be a positive integer, got {limit!r:.80}")
    return limit


def check_key(key: str | bytes) -> bytes:
    """Return a routing key as the bytes that are stored: text as UTF-8."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if not isinstance(data, bytes) or not data:
        raise InvalidInput("routing key must be non-empty text or bytes")
    if len(data) > limits.ROUTING_KEY_MAX:
        raise InvalidInput(
            f"routing key must have at most {limits.ROUTING_KEY_MAX} bytes, got {len(data)}"
        )
    return data
