"""Which keys every backend accepts: one rule, so that a store can move between backends.

A key is 1 to 1024 bytes of UTF-8: segments of 1 to 255 bytes joined by single slashes. The
segments "." and ".." are refused, and so are backslashes, control characters, and U+FFFE and
U+FFFF, which the XML of S3 cannot carry. Everything else is allowed and keeps its exact bytes: no
case folding, no Unicode normalisation.

The checks of arguments that all backends share, made before anything is written.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fourfold.objects.protocol import Data


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


def check_data(data: Data) -> bytes | memoryview:
    """The data as flat bytes, not copied."""
    flat = _flat(data, "the data")
    if len(flat) > limits.OBJECT_PUT_BYTES_MAX:
        raise InvalidInput(
            f"the data has more than {limits.OBJECT_PUT_BYTES_MAX} bytes, the most for one put",
            hint="Stream it: store.upload(key, chunks).",
        )
    return data if isinstance(data, bytes) else flat


def check_conditions(*, if_absent: bool, if_version: str | None) -> None:
    if if_version is None:
        return
    if if_absent:
        raise InvalidInput(
            "if_absent and if_version exclude each other",
            hint="Give if_absent to create an object, if_version to replace one.",
        )
    if not isinstance(if_version, str) or not if_version:
        raise InvalidInput(
            f"if_version is {if_version!r}, not the version of an object",
            hint="Hand back the `version` of an ObjectInfo unchanged.",
        )


def check_range(start: int, length: int) -> tuple[int, int]:
    return _natural(start, "start"), _natural(length, "length")


def check_chunk_bytes(chunk_bytes: int) -> int:
    if _natural(chunk_bytes, "chunk_bytes") == 0:
        raise InvalidInput("chunk_bytes is 0; a chunk has at least one byte")
    return chunk_bytes


def checked_chunks(chunks: Iterable[Data]) -> Iterator[memoryview]:
    """The chunks of an upload as flat bytes, without the empty ones."""
    if isinstance(chunks, bytes | bytearray | memoryview | str):
        raise InvalidInput(
            f"chunks is {type(chunks).__name__}, not an iterable of bytes",
            hint="Use store.put(key, data) for bytes that are at hand.",
        )
    return (flat for chunk in chunks if len(flat := _flat(chunk, "a chunk of the upload")))


def _flat(data: Data, what: str) -> memoryview:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput(
            f"{what} is {type(data).__name__}, not bytes", hint="Encode text first: text.encode()."
        )
    try:
        return memoryview(data).cast("B")
    except TypeError as exc:
        raise InvalidInput(f"{what} is a memoryview that is not contiguous") from exc


def regrouped(chunks: Iterable[memoryview], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `size`, except that the last one may be shorter."""
    pending = bytearray()
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            took = chunk[at : at + size - len(pending)]
            pending += took
            at += len(took)
            if len(pending) == size:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)


def _natural(value: int, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError as exc:
        raise InvalidInput(f"{what} is {type(value).__name__}, not int") from exc
    if number < 0:
        raise InvalidInput(f"{what} is {number}, less than 0")
    return number
