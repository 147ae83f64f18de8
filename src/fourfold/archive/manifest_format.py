"""Common format of all manifests: the format number and the writer's token come first."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from fourfold.errors import CorruptData, FutureFormat

T = TypeVar("T")
_TOKEN = re.compile(rb'\A\{"format":[0-9]+,"token":"([0-9a-f]{32})"')


def token_of(data: bytes) -> str | None:
    """Return the token of a manifest's writer, even if the manifest is truncated."""
    found = _TOKEN.match(data)
    return None if found is None else found[1].decode()


def read(data: bytes, decoder: msgspec.json.Decoder[T], newest: int, what: str) -> T:
    """Decode a manifest; raise if it is damaged or from a later version.

    The format number is checked first, because a later format may have another shape.
    """
    try:
        stated = msgspec.json.decode(data)
        found = stated.get("format") if isinstance(stated, dict) else None
        if type(found) is int and found > newest:
            raise FutureFormat(f"{what} has format {found}, expected at most {newest}")
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what} is not a manifest: {error}") from error
