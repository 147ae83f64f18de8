"""Pages of lists: every list of the API has this shape and these parameters."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold import limits
from fourfold.wire.fields import header_name


class Page(Struct, kw_only=True, frozen=True):
    """A page of a list. `next_cursor` is None on the last page."""

    items: list[Any]
    next_cursor: str | None = None


class PageQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of every list."""

    cursor: Annotated[
        Annotated[str, Meta(max_length=8192)] | UnsetType,
        Meta(description="The next_cursor of the page before."),
    ] = UNSET
    limit: Annotated[
        int, Meta(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum number of items.")
    ] = limits.PAGE_ITEMS


class IdempotencyHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Header of requests that may be repeated without a second effect."""

    idempotency_key: Annotated[
        Annotated[str, Meta(pattern="^[!-~]{1,255}$")] | UnsetType,
        Meta(
            description="A key of the client for this request: repeating it returns the first "
            "result, and another request with it is refused (422)."
        ),
    ] = UNSET


class EventHeaders(Struct, kw_only=True, frozen=True, rename=header_name):
    """Header of requests for server-sent events."""

    last_event_id: Annotated[
        str | UnsetType, Meta(description="Continue after this event; it wins over `after`.")
    ] = UNSET
