"""Cursors of lists: opaque to clients, and bound to the state that the first page showed.

A cursor contains the seq at which the first page was read, so that all pages together show one
state, the position after which the next page starts, and a digest of what is listed: a cursor of
another list, or of other filters, is refused.

    listed = cursors.digest_of("ids", did, branch, prefix)
    cursor = cursors.parse(query.cursor, listed)          # None for the first page
    ...
    next_cursor = cursors.format_cursor(listed, seq, last_id)

A client could make one, and would learn nothing that the list does not show.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, UnsetType

from fourfold.errors import InvalidInput

P = TypeVar("P", str, int)


class PageCursor(Struct, Generic[P], frozen=True, array_like=True, forbid_unknown_fields=True):
    """Position at which a page starts."""

    listed: str
    """Digest of what is listed."""
    at: int
    """Seq at which the first page was read; 0 for lists without one."""
    after: P
    """Last item of the page before."""


def digest_of(*parts: object) -> str:
    """Return the digest of a list: its name and its filters."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def format_cursor(listed: str, at: int, after: str | int) -> str:
    """Return a cursor as text."""
    raw = msgspec.json.encode([listed, at, after])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse(text: str | UnsetType, listed: str, position: type[P]) -> PageCursor[P] | None:
    """Return the cursor of a request, or None for the first page.

    Raises:
        InvalidInput: it is not a cursor of this list.
    """
    if isinstance(text, UnsetType):
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor: PageCursor[P] = msgspec.json.decode(raw, type=PageCursor[position])  # type: ignore[valid-type]
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = PageCursor("", 0, position())
    if cursor.listed != listed or cursor.at < 0:
        raise InvalidInput(
            f"cursor: must be the next_cursor of a page of this list, got {text!r:.80}",
            hint="Repeat the request without cursor, and then change nothing but the cursor.",
        )
    return cursor
