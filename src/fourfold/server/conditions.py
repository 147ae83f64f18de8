"""Request headers that make a write conditional or repeatable: If-Match, If-None-Match and
Idempotency-Key.

A version is an ETag in quotes. Writes accept one ETag or `*` in If-Match, and `*` in If-None-Match;
`replies` handles If-None-Match of reads. An Idempotency-Key belongs to the API key of the request:
equal keys of two clients do not meet.
"""

from __future__ import annotations

import re
from typing import Final

from fourfold.errors import InvalidInput
from fourfold.server.request import Request

ANY: Final = "*"
KEY_CHARS_MAX: Final = 255
"""Length of an Idempotency-Key."""
_ETAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{KEY_CHARS_MAX}}}")
IDEMPOTENT_SESSION: Final = "idem:"
"""Start of the sessions of commits that were sent with an Idempotency-Key."""


def parse_if_match(request: Request) -> str | None:
    """Return the version in If-Match without quotes, `*` for any, or None without the header.

    A weak ETag matches nothing, so it is returned as it was sent.
    """
    text = request.header("if-match")
    if text is None or text.strip() == ANY:
        return None if text is None else ANY
    text = text.strip()
    if not _ETAG.fullmatch(text):
        raise InvalidInput(
            f"If-Match: must be one ETag in quotes, or *, got {text!r:.80}",
            hint="Send the ETag of the version that the change is based on.",
        )
    return text if text.startswith("W/") else text[1:-1]


def must_not_exist(request: Request) -> bool:
    """Return True if a write has `If-None-Match: *`."""
    text = request.header("if-none-match")
    if text is None:
        return False
    if text.strip() != ANY:
        raise InvalidInput(f"If-None-Match: must be * for a write, got {text!r:.80}")
    return True


def parse_idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key, or None without one."""
    key = request.header("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidInput(
            "Idempotency-Key: must be from 1 to "
            f"{KEY_CHARS_MAX} printable ASCII characters, got {key!r:.80}",
            hint="Send a new random UUID for each new request.",
        )
    return key


def idempotent_session(request: Request) -> str | None:
    """Return the session of a commit with an Idempotency-Key, whose local_seq is 1."""
    key = parse_idempotency_key(request)
    return None if key is None else f"{IDEMPOTENT_SESSION}{request.key_id}:{key}"
