"""Cursors of pages: the seq that the first page read, and the place after which the next starts.

A cursor has a digest of what is read, so that one of another query is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from fourfold.errors import InvalidInput


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place of a page."""

    digest: str
    seq: int
    after: Any


def digest_of(query: Any) -> str:
    """Return the digest of a query."""
    return hashlib.sha256(msgspec.json.encode(query)).hexdigest()[:16]


def encode(digest: str, seq: int, after: Any) -> str:
    """Return a cursor as text."""
    raw = msgspec.json.encode([digest, seq, after])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse(text: str | None, digest: str) -> Cursor | None:
    """Return the cursor of a page, or None for the first page.

    Raises:
        InvalidInput: It is not a cursor of this query.
    """
    if text is None:
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (binascii.Error, ValueError, TypeError, msgspec.MsgspecError):
        cursor = Cursor("", 0, None)
    if cursor.digest != digest:
        raise InvalidInput(
            f"cursor must be that of a page of this query, got {text!r:.80}",
            hint="Repeat the call without cursor, and then change nothing but the cursor.",
        )
    return cursor
