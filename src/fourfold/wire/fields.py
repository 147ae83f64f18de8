"""Types of fields that several Structs share, and the names of headers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Offset = Annotated[str, Meta(pattern="^[0-9]{16}_[0-9]{16}$")]
"""A place in a stream, as the protocol writes it."""
Count = Annotated[int, Meta(ge=0)]
CountText = Annotated[str, Meta(pattern="^(0|[1-9][0-9]{0,15})$")]
"""A whole number in a header."""
CountOrNone = Annotated[str, Meta(pattern="^(none|0|[1-9][0-9]{0,15})$")]
"""A whole number in a header, or `none`."""
SEQ_PATTERN = "0|[1-9][0-9]{0,18}"
TIME_PATTERN = (
    "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
    "([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
"""Regular expressions of a seq or event id, and of an RFC 3339 time."""
POINT_PATTERN = "[0-9]{8}T[0-9]{6}[.][0-9]{3}Z-[0-9a-f]{4}"
"""Regular expression of the id of a restore point."""
StoreTime = Annotated[
    str,
    Meta(
        pattern=f"^({TIME_PATTERN}|{POINT_PATTERN})$",
        description="At or before this RFC 3339 time or restore point, by default now.",
    ),
]
"""A point of the whole store, for reads of several logs."""
TrueText = Annotated[str, Meta(pattern="^true$")]


def header_name(field: str) -> str:
    """Return the header of a Struct field: `stream_next_offset` is Stream-Next-Offset."""
    names = {
        "etag": "ETag",
        "last_event_id": "Last-Event-ID",
        "stream_ttl": "Stream-TTL",
        "www_authenticate": "WWW-Authenticate",
    }
    return names.get(field) or "-".join(part.capitalize() for part in field.split("_"))
