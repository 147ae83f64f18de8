"""The checks of arguments that all backends share, made before anything is written."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from fourfold import limits
from fourfold.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fourfold.objects.protocol import Data


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
