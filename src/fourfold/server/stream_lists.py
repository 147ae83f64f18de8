"""Lists about one stream over HTTP: its producers, keys, segments and subscriptions.

The verb precedes the name, as in the routes of sessions, so that these paths reserve no names.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from msgspec import UNSET

from fourfold.errors import NotFound, StreamGone
from fourfold.models.streams import Streams
from fourfold.models.streams.inspection import StreamSubscription
from fourfold.models.streams.validation import Offset, format_offset
from fourfold.server import cursors
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.pages import PageQuery
from fourfold.wire.streams import (
    KeyQuery,
    KeyRow,
    ProducerPage,
    ProducerRow,
    RoutingKeyPage,
    SegmentPage,
    SegmentRow,
    StreamSubscriptionPage,
    StreamSubscriptionRow,
)


class StreamLists:
    """Handlers of lists about one stream."""

    def __init__(self, streams: Streams, workers: Workers) -> None:
        self._streams = streams
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    async def list_producers(self, _request: Request, name: str, query: PageQuery) -> Reply:
        """Return a page of the producers of a stream."""
        return Reply(await self._workers.run(self._producers, name, query), is_large=True)

    def _producers(self, name: str, query: PageQuery) -> ProducerPage:
        listed = cursors.digest_of("producers", name)
        cursor = cursors.parse(query.cursor, listed, str)
        after = "" if cursor is None else cursor.after
        rows = self._streams.open(name).producers(after=after, limit=query.limit + 1)
        page = rows[: query.limit]
        more = len(rows) > len(page)
        return ProducerPage(
            items=[ProducerRow(**row._asdict()) for row in page],
            next_cursor=cursors.format_cursor(listed, 0, page[-1].id) if more else None,
        )

    async def list_keys(self, _request: Request, name: str, query: KeyQuery) -> Reply:
        """Return a page of the routing keys of a stream."""
        return Reply(await self._workers.run(self._keys, name, query), is_large=True)

    def _keys(self, name: str, query: KeyQuery) -> RoutingKeyPage:
        listed = cursors.digest_of("keys", name, query.prefix)
        cursor = cursors.parse(query.cursor, listed, str)
        after = None if query.after is UNSET else unquote_to_bytes(query.after)
        if cursor is not None:
            after = bytes.fromhex(cursor.after)
        prefix = unquote_to_bytes(query.prefix)
        page = self._streams.open(name).keys(prefix=prefix, after=after, limit=query.limit)
        return RoutingKeyPage(
            items=[KeyRow(key=quote(row.key), offset=_text(row.offset)) for row in page],
            next_cursor=None
            if page.after is None
            else cursors.format_cursor(listed, 0, page.after.hex()),
            complete_from=_text(page.complete_from),
        )

    async def list_segments(self, _request: Request, name: str, query: PageQuery) -> Reply:
        """Return a page of the segments of a stream."""
        return Reply(await self._workers.run(self._segments, name, query), is_large=True)

    def _segments(self, name: str, query: PageQuery) -> SegmentPage:
        listed = cursors.digest_of("segments", name)
        cursor = cursors.parse(query.cursor, listed, int)
        after = -1 if cursor is None else cursor.after
        incarnation = self._streams.info(name).incarnation_number
        rows = self._streams.open(name).segments(after=after, limit=query.limit + 1)
        page = rows[: query.limit]
        more = len(rows) > len(page)
        return SegmentPage(
            items=[
                SegmentRow(
                    first_offset=format_offset(row.first_offset, incarnation),
                    next_offset=format_offset(row.next_offset, incarnation),
                    size_bytes=row.size_bytes,
                    payload_bytes=row.payload_bytes,
                    last_append_ms=row.last_append_ms,
                    created_at_ms=row.created_at_ms,
                    location=row.location,
                    published_at_ms=row.published_at_ms,
                )
                for row in page
            ],
            next_cursor=cursors.format_cursor(listed, 0, page[-1].first_offset) if more else None,
        )

    async def list_subscriptions(self, request: Request, name: str, query: PageQuery) -> Reply:
        """Return a page of the subscriptions of a stream that the key owns.

        Others are left out, so that a page may have fewer items than the limit.
        """
        page = await self._workers.run(self._subscriptions, request, name, query)
        return Reply(page, is_large=True)

    def _subscriptions(
        self, request: Request, name: str, query: PageQuery
    ) -> StreamSubscriptionPage:
        listed = cursors.digest_of("stream_subscriptions", name)
        cursor = cursors.parse(query.cursor, listed, str)
        after = "" if cursor is None else cursor.after
        incarnation = self._streams.info(name).incarnation_number
        rows = self._streams.open(name).subscriptions(after=after, limit=query.limit + 1)
        page = rows[: query.limit]
        more = len(rows) > len(page)
        return StreamSubscriptionPage(
            items=[
                _subscription_row(row, incarnation)
                for row in page
                if request.covers(row.owner_prefix or "")
            ],
            next_cursor=cursors.format_cursor(listed, 0, page[-1].id) if more else None,
        )


def _text(offset: Offset) -> str:
    return format_offset(offset.record, offset.incarnation_number)


def _subscription_row(row: StreamSubscription, incarnation: int) -> StreamSubscriptionRow:
    return StreamSubscriptionRow(
        id=row.id,
        type=row.kind,
        pattern=row.pattern,
        link_type="explicit" if row.explicit else "glob",
        acked_offset=format_offset(row.acked, incarnation),
        pending=row.pending,
        failures=row.failures,
        created_at_ms=row.created_at_ms,
    )


def _list_route(verb: str, handler: Any, **options: Any) -> Route:
    """Return the route of a list about one stream."""
    return Route(
        *("GET", f"/v1/streams/{verb}/{{name:name}}", handler),
        scope="read",
        resource="name",
        errors=(NotFound, StreamGone),
        **{"query": PageQuery, **options},
    )


_ROUTES: Final = (
    _list_route(
        *("producers", StreamLists.list_producers),
        operation="list_producers",
        summary="List the idempotent producers of a stream, and the last append of each.",
        ok={200: Ok("A page of producers.", ProducerPage)},
    ),
    _list_route(
        *("keys", StreamLists.list_keys),
        operation="list_routing_keys",
        summary="List the routing keys of a stream, each with its newest record.",
        ok={200: Ok("A page of routing keys.", RoutingKeyPage)},
        query=KeyQuery,
    ),
    _list_route(
        *("segments", StreamLists.list_segments),
        operation="list_segments",
        summary="List the sealed segments of a stream: offsets, sizes, and whether published.",
        ok={200: Ok("A page of segments.", SegmentPage)},
    ),
    _list_route(
        *("subscriptions", StreamLists.list_subscriptions),
        operation="list_stream_subscriptions",
        summary="List the subscriptions that follow a stream, with their cursors.",
        ok={200: Ok("A page of subscriptions.", StreamSubscriptionPage)},
    ),
)
