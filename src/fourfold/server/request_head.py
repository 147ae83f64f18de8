"""Heads of requests: both the ASGI application and the fast append path parse them here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import unquote_to_bytes

from fourfold.errors import InvalidInput
from fourfold.server.headers import plain_content_type
from fourfold.server.key_store import Key
from fourfold.server.key_use import KeyUse
from fourfold.server.request import Headers

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as received; names are in lower case."""


def parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Decode headers; of those with equal names the last one counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}


def check_head(raw: RawHeaders, http_version: str, raw_path: bytes | None = None) -> None:
    """Raise InvalidInput if the host is ambiguous, or the path is not UTF-8."""
    hosts = sum(name == b"host" for name, _ in raw)
    if hosts > 1 or (not hosts and http_version == "1.1"):
        raise InvalidInput(f"Host: must be sent exactly once, got {hosts}")
    if raw_path is not None and (b"%" in raw_path or not raw_path.isascii()):
        try:
            unquote_to_bytes(raw_path).decode()
        except UnicodeDecodeError:
            # Lenient decoding would map different names to the same one.
            raise InvalidInput("path: must be UTF-8") from None


class AppendHead:
    """The head of an append, for all requests that repeat it; streams and lengths may differ.

    Most clients repeat their heads exactly, so that a head is parsed, and its key found, once.
    """

    __slots__ = ("content_type", "headers", "key", "keys", "raw", "use")

    def __init__(self, raw: RawHeaders, headers: Headers) -> None:
        self.raw = raw
        """Headers as received, without Content-Length."""
        self.headers = headers
        self.content_type = plain_content_type(headers)
        """The content type, if no other header changes the meaning of the append."""
        self.key: Key | None = None
        """Key of the request, found among `keys`; None if no key is required."""
        self.use: KeyUse | None = None
        """Use of that key, with its quotas."""
        self.keys: tuple[Key, ...] | None = None
        """Keys of the server when the head was admitted; None before."""
