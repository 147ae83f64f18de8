"""What manifests of every kind have in common as texts: they begin with the number of their format
and with the token of whoever wrote them.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from fourfold.errors import CorruptData, FutureFormat

T = TypeVar("T")
_TOKEN = re.compile(rb'\A\{"format":[0-9]+,"token":"([0-9a-f]{32})"')


def token_of(data: bytes) -> str | None:
    """Whose manifest this is, also when it was cut short."""
    found = _TOKEN.match(data)
    return None if found is None else found[1].decode()


def read(data: bytes, decoder: msgspec.json.Decoder[T], newest: int, what: str) -> T:
    """The manifest in `data`; an error when it is damaged, or of a later Fourfold, which is looked
    at first: a later one may have another shape.
    """
    try:
        stated = msgspec.json.decode(data)
        found = stated.get("format") if isinstance(stated, dict) else None
        if type(found) is int and found > newest:
            raise FutureFormat(f"{what}: states format {found}; this Fourfold reads {newest}")
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptData(f"{what}: is no manifest: {error}") from error
