"""Names, content types and offsets of streams: how they look, and what is refused. Pure."""

from __future__ import annotations

import re
import sys
from typing import Self

from fourfold import limits
from fourfold.errors import InvalidInput

JSON = "application/json"
START = "-1"
NOW = "now"
_OFFSET = re.compile(r"([0-9]{16})_([0-9]{16})")
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def check_name(name: object) -> str:
    """The name of a stream: any text that a path can carry, except what would climb out of it."""
    if (
        not isinstance(name, str)
        or not 0 < len(name.encode("utf-8", "replace")) <= limits.STREAM_NAME_MAX
    ):
        raise InvalidInput(
            f"the name of a stream is text of 1 to {limits.STREAM_NAME_MAX} bytes, not {name!r:.80}"
        )
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or not name.isprintable():
        raise InvalidInput(
            f"{name!r:.80} cannot be the name of a stream",
            hint="Use printable text; parts between slashes are not empty, '.' or '..'.",
        )
    return name


def behind(prefix: str) -> str | None:
    """The first text that sorts after every name with this beginning; None when there is none."""
    kept = stored(prefix).rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # What lies between is kept for halves of characters, which are no text.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)


def stored(text: str) -> str:
    """Text that can be stored; half a character cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r:.80} holds half a character") from None
    return text


def check_content_type(given: object) -> str:
    """A MIME type, kept as it was given."""
    if not isinstance(given, str):
        raise InvalidInput(f"a content type is text, not {given!r:.80}")
    if not _TYPE.fullmatch(plain_type(given)) or not given.isprintable():
        raise InvalidInput(f"{given!r:.80} is not a content type")
    return given.strip()


def plain_type(content_type: str) -> str:
    """What two content types are compared by: lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


class Offset(str):
    """A place in a stream: the next record to read, and the incarnation that it is a record of.

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
        self = super().__new__(cls, show_offset(record, incarnation_number))
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


def show_offset(record: int, incarnation_number: int = 0) -> str:
    """Format an offset: sorted as text it is sorted by incarnation, and then by record."""
    return f"{incarnation_number:016d}_{record:016d}"


def read_offset(text: object) -> Offset | None:
    """Parse an offset; None is the end of the stream, `now`. `-1` is the all-zero offset, which is
    the start of every incarnation.
    """
    if isinstance(text, Offset):
        return text
    if isinstance(text, str):
        if text == START:
            return Offset(0, 0)
        if text == NOW:
            return None
        if found := _OFFSET.fullmatch(text):
            return Offset(int(found[2]), int(found[1]))
    raise InvalidInput(
        f"{text!r:.80} is not an offset",
        hint="Use -1 for the beginning, now for the end, or an offset that a read gave you.",
    )


def check_key(key: str | bytes) -> bytes:
    """A routing key as it is stored: text as UTF-8, or bytes."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if not isinstance(data, bytes) or not data:
        raise InvalidInput("a routing key is text or bytes, and not empty")
    if len(data) > limits.ROUTING_KEY_MAX:
        raise InvalidInput(
            f"a routing key has at most {limits.ROUTING_KEY_MAX} bytes, not {len(data)}"
        )
    return data
