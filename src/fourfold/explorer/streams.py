"""Pages of streams: the list by prefix, one stream with its newest records, and its live tail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, NotFound, OffsetGone, StreamRecreated
from fourfold.explorer import drawings
from fourfold.explorer.links import format_at
from fourfold.explorer.page import ExplorerPage, ExplorerQuery, PageFeed, Visit
from fourfold.explorer.stream_search import NO_SEARCH, search_stream
from fourfold.models.streams.validation import JSON, Offset, parse_offset, plain_type
from fourfold.server.errors import redact_paths
from fourfold.server.event_stream import KEEP_ALIVE, SSE_KEEP_ALIVE_S, SSE_S
from fourfold.server.request import Response
from fourfold.wire.streams import (
    ProducerPage,
    RegistryBody,
    SegmentPage,
    StreamDetails,
    StreamPage,
    StreamSubscriptionPage,
)

P = TypeVar("P", ProducerPage, SegmentPage, StreamSubscriptionPage)
PAGE_ROWS: Final = 50
RECORDS_SHOWN: Final = 50
ROWS_LISTED: Final = 10
"""Producers, segments and subscriptions on a page; links lead to more."""
RECORDS_COUNTED: Final = 240
"""Records whose times are drawn."""
BUCKETS: Final = 96


class StreamsQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the list of streams."""

    prefix: str = ""
    type: str = ""
    """Only streams of this content type."""
    after: str = ""


class StreamQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the page of a stream."""

    name: str
    until: int | None = None
    """Show records before this one, newest first."""
    start: str = ""
    """Show records from this number or time on, oldest first; the form sends it empty, too."""
    key: str = ""
    field: str = ""
    value: str = ""
    producers: str = ""
    segments: str = ""
    subscriptions: str = ""
    """Cursors of the lists."""
    q: str = ""
    """A search of the messages."""
    where: str = ""
    """A filter of the search, as JSON."""
    hits: str = ""
    """Cursor of the search."""


class StreamFeedQuery(ExplorerQuery, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of the live tail of a stream."""

    name: str
    after: str
    """Offset of the first record to send; `Last-Event-ID` comes first."""
    key: str = ""
    field: str = ""
    value: str = ""


class RecordJson(Struct, frozen=True, omit_defaults=True):
    """A record as the API returns it."""

    offset: str
    ts_ms: int
    text: str | None = None
    base64: str | None = None
    headers: dict[str, str] = {}
    key: str = ""
    """The routing key, percent-encoded."""

    @property
    def number(self) -> int:
        """Number of the record in its stream."""
        return offset_number(self.offset)


async def streams_page(visit: Visit, query: StreamsQuery) -> dict[str, Any]:
    """List streams by prefix, a page at a time."""
    prefix = await visit.list_prefix("streams", query.prefix)
    page = await visit.api.get(
        "/v1/streams",
        StreamPage,
        prefix=prefix,
        after=query.after,
        content_type=query.type,
        limit=PAGE_ROWS + 1,
    )
    rows = page.streams[:PAGE_ROWS]
    # With a type, a page ends after a number of streams, even if few of them match.
    ended = page.next_after if query.type else None
    until_ms = visit.time_ms
    return {
        "prefix": prefix,
        "type": query.type,
        "after": query.after,
        "streams": [
            {**msgspec.to_builtins(row), "records": _records(row)}
            for row in rows
            if until_ms is None or row.created_at_ms <= until_ms
        ],
        "next_after": rows[-1].name if len(page.streams) > PAGE_ROWS else ended,
    }


async def stream_page(visit: Visit, query: StreamQuery) -> dict[str, Any]:
    """Show a stream: its statistics, records and rules."""
    path = f"/v1/stream/{query.name}"
    details = await visit.api.get(f"{path}/_details", StreamDetails)
    reader = _RecordReader(visit, query, details)
    records, following = await reader.read()
    schemas = None
    if details.schema_version is not None:
        schemas = await visit.api.get(f"{path}/_schema", RegistryBody)
    found = NO_SEARCH
    if _is_json(details):
        found = await search_stream(visit, details.name, query.q, query.where, query.hits, schemas)
    counted = await reader.newest(RECORDS_COUNTED)
    producers, segments, subscriptions = await asyncio.gather(
        _list(visit, query, "producers", ProducerPage),
        _list(visit, query, "segments", SegmentPage),
        _list(visit, query, "subscriptions", StreamSubscriptionPage),
    )
    times = [record.ts_ms for record in counted]
    first, end = offset_number(details.first_offset), offset_number(details.next_offset)
    return {
        **found,
        "stream": details,
        "is_json": _is_json(details),
        "first": first,
        "next": end,
        "records": [_row(record) for record in records],
        "has_keys": any(record.key for record in counted + records),
        "order": "newest" if reader.is_newest_first else "oldest",
        "is_filtered": reader.is_filtered,
        "is_tail": reader.is_tail,
        "live_after": following if reader.is_filtered else details.next_offset,
        "older": reader.older(records),
        "following": offset_number(following) if not reader.is_newest_first else None,
        "activity": {
            "records": len(times),
            "start_ms": times[0] if times else None,
            "end_ms": times[-1] if times else None,
            "counts": drawings.histogram(times, times[0], times[-1], BUCKETS) if times else [],
        },
        "bands": _bands(details, first, end),
        "schemas": schemas,
        "producers": producers,
        "segments": segments,
        "subscriptions": subscriptions,
        "query": {"key": query.key, "field": query.field, "value": query.value},
    }


def _is_json(details: StreamDetails) -> bool:
    return plain_type(details.content_type) == JSON


async def _list(visit: Visit, query: StreamQuery, verb: str, kind: type[P]) -> P:
    """Return a page of a list about the stream, from its cursor in the address."""
    path = f"/v1/streams/{verb}/{query.name}"
    return await visit.api.get(path, kind, cursor=getattr(query, verb), limit=ROWS_LISTED)


async def stream_feed(visit: Visit, query: StreamFeedQuery) -> Response:
    """Send new records as they arrive: events with rows of the table, ids are offsets."""
    after = visit.request.header("last-event-id") or query.after
    # Fails before the response starts if the stream does not exist or is not allowed.
    await visit.api.call("HEAD", f"/v1/stream/{query.name}")
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    return Response(200, headers, pieces=TailFeed(visit, query).events(after))


class TailFeed:
    """The live tail of a stream, read from the API by long-poll."""

    def __init__(
        self, visit: Visit, query: StreamFeedQuery, keep_alive_s: float = SSE_KEEP_ALIVE_S
    ) -> None:
        self._visit = visit
        self._query = query
        self._keep_alive_s = keep_alive_s

    async def events(self, after: str) -> AsyncIterator[bytes]:
        """Yield events until the stream has ended or the connection has been open for long."""
        deadline = time.monotonic() + SSE_S
        yield b"retry: 1000\nid: %b\n\n" % after.encode()
        while time.monotonic() < deadline:
            started = time.monotonic()
            reading = asyncio.ensure_future(self._read(after))
            try:
                while not reading.done():
                    await asyncio.wait({reading}, timeout=self._keep_alive_s)
                    if not reading.done():
                        yield b"%bid: %b\n\n" % (KEEP_ALIVE, after.encode())
                response = await reading
            except OffsetGone as error:
                gap, after = await self._gap(after, error)
                yield gap
                if not after:
                    return
                continue
            except FourfoldError as error:
                yield self._problem(error)
                return
            finally:
                reading.cancel()
            after = response.headers["stream-next-offset"]
            if response.status == 200:
                yield self._records(response.body, after)
            if response.headers.get("stream-closed"):
                yield _event("end", {"message": "The stream is closed."})
                return
            if response.status == 204 and time.monotonic() - started < 1:
                # The server stops: it does not wait any more. The browser connects again.
                return

    async def _read(self, after: str) -> Response:
        return await self._visit.api.call(
            "GET",
            f"/v1/stream/{self._query.name}",
            offset=after,
            live="long-poll",
            format="records",
            routing_keys="true",
            limit=RECORDS_SHOWN,
            **_filter(self._query),
        )

    def _records(self, body: bytes, after: str) -> bytes:
        records = msgspec.json.decode(body, type=list[RecordJson])
        rows = self._visit.render(
            "records.html", records=[_row(row) for row in records[::-1]], name=self._query.name
        )
        return _event("records", {"count": len(records), "rows": rows}, after)

    async def _gap(self, after: str, error: OffsetGone) -> tuple[bytes, str]:
        """Return the event for records that were removed before they were read, and the next one.

        The offset is empty if the feed cannot continue.
        """
        if isinstance(error, StreamRecreated):
            return _event("end", {"message": "The stream was deleted and created again."}), ""
        try:
            path = f"/v1/stream/{self._query.name}/_details"
            details = await self._visit.api.get(path, StreamDetails)
        except FourfoldError as missing:
            return self._problem(missing), ""
        first = details.first_offset
        lost = offset_number(first) - offset_number(after)
        return _event("gap", {"lost": max(0, lost)}, first), first

    def _problem(self, error: FourfoldError) -> bytes:
        """Return the event for an error; the browser reconnects after a transient one."""
        if isinstance(error, NotFound):
            return _event("end", {"message": "The stream was deleted."})
        message = redact_paths(error).message
        return _event("busy" if error.retryable else "end", {"message": message})


def _event(name: str, data: dict[str, Any], place: str = "") -> bytes:
    id_line = b"id: %b\n" % place.encode() if place else b""
    return b"%bevent: %b\ndata: %b\n\n" % (id_line, name.encode(), msgspec.json.encode(data))


class _RecordReader:
    """Read the records that a page shows."""

    def __init__(self, visit: Visit, query: StreamQuery, details: StreamDetails) -> None:
        self._visit = visit
        self._query = query
        self._path = f"/v1/stream/{details.name}"
        self._first = offset_number(details.first_offset)
        self._end = offset_number(details.next_offset)
        self._incarnation = _incarnation(details.next_offset)
        self._closed = details.closed
        self.is_filtered = bool(_filter(query))
        self._start, self._since = _parse_start(query.start)
        self.is_newest_first = not self._has_start and not self.is_filtered

    @property
    def _has_start(self) -> bool:
        return self._start is not None or bool(self._since)

    @property
    def is_tail(self) -> bool:
        """True if the page shows the end of a stream that may grow."""
        query = self._query
        return (
            query.until is None
            and (not self._has_start or self.is_filtered)
            and self._visit.at is None
            and not self._closed
        )

    async def read(self) -> tuple[list[RecordJson], str]:
        """Return the records to show, and the offset after them."""
        if not self.is_newest_first:
            start = self._first if self._start is None else self._start
            page, after = await self._page(
                start, RECORDS_SHOWN, since=self._since, **_filter(self._query)
            )
            until_ms = self._visit.time_ms
            if until_ms is not None and page and page[-1].ts_ms > until_ms:
                page = [record for record in page if record.ts_ms <= until_ms]
                after = str(Offset(self._end, self._incarnation))
            return page, after
        records = await self.newest(RECORDS_SHOWN)
        following = records[-1].number + 1 if records else self._end
        return records[::-1], str(Offset(following, self._incarnation))

    async def newest(self, limit: int) -> list[RecordJson]:
        """Return the newest records before the end of the page, oldest first."""
        end = await self._last()
        start = max(self._first, end - limit)
        records: list[RecordJson] = []
        while start < end:
            page, following = await self._page(start, end - start)
            records += page
            # A page is bounded in bytes too, so a few large records take several.
            if not page or len(records) >= RECORDS_SHOWN:
                break
            start = offset_number(following)
        return records

    def older(self, records: list[RecordJson]) -> int | None:
        """Return the end offset of the previous page, or None on the first page."""
        if not self.is_newest_first or not records or records[-1].number <= self._first:
            return None
        return records[-1].number

    async def _last(self) -> int:
        """Return the end of the records to show: before `until`, and not after the time."""
        end = self._end
        if self._query.until is not None:
            end = max(self._first, min(end, self._query.until))
        until_ms = self._visit.time_ms
        if until_ms is not None:
            end = await self._find(end, lambda record: record.ts_ms > until_ms)
        return end

    async def _find(self, end: int, is_later: Callable[[RecordJson], bool]) -> int:
        """Return the first record that is later, by bisection; times do not decrease."""
        low, high = self._first, end
        while low < high:
            middle = (low + high) // 2
            records, _ = await self._page(middle, 1)
            if not records or is_later(records[0]):
                high = middle
            else:
                low = middle + 1
        return low

    async def _page(self, start: int, limit: int, **query: str) -> tuple[list[RecordJson], str]:
        response = await self._visit.api.call(
            "GET",
            self._path,
            offset="" if query.get("since") else Offset(max(start, self._first), self._incarnation),
            format="records",
            routing_keys="true",
            limit=max(1, min(limit, limits.STREAM_READ_RECORDS)),
            **query,
        )
        records = msgspec.json.decode(response.body, type=list[RecordJson])
        return records, response.headers["stream-next-offset"]


def _parse_start(text: str) -> tuple[int | None, str]:
    """Return the number of a record, or the time, from which records are shown."""
    if not text:
        return None, ""
    if text.isdecimal() and len(text) < 16:
        return int(text), ""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"start: must be the number of a record or a time, got {text!r:.80}",
            hint="Enter a number, or a time (UTC) such as 2026-11-15 18:00.",
        ) from None
    return None, format_at(parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed)


def _filter(query: StreamQuery | StreamFeedQuery) -> dict[str, str]:
    """Return the parameters of the filter; a field without a value does not filter."""
    parameters = {"key": query.key} if query.key else {}
    if query.field and query.value:
        parameters |= {"field": query.field, "value": query.value}
    return parameters


def _row(record: RecordJson) -> dict[str, Any]:
    """Return a record for a page; base64 stays as it is."""
    text = record.text if record.text is not None else record.base64 or ""
    return {
        "number": record.number,
        "ts_ms": record.ts_ms,
        "text": text,
        "is_text": record.text is not None,
        "key": unquote_to_bytes(record.key).decode(errors="backslashreplace"),
        "headers": record.headers,
    }


def _bands(details: StreamDetails, first: int, end: int) -> list[dict[str, Any]]:
    """Return where the records of a stream are: published, sealed, or only in the log."""
    archive = details.archive
    published = min(end, max(first, offset_number(archive.published_offset)))
    sealed = min(end, max(published, offset_number(archive.sealed_offset)))
    bands = (("published", first, published), ("sealed", published, sealed), ("open", sealed, end))
    total = max(1, end - first)
    return [
        {
            "where": where,
            "start": start,
            "end": stop - 1,
            "records": stop - start,
            "share": max(1, round(10 * (stop - start) / total)),
        }
        for where, start, stop in bands
        if stop > start
    ]


def _records(row: Any) -> int:
    return offset_number(row.next_offset) - offset_number(row.first_offset)


def offset_number(offset: str) -> int:
    """Return the number of a record from its offset."""
    parsed = parse_offset(offset)
    assert parsed is not None
    return parsed.record


def _incarnation(offset: str) -> int:
    parsed = parse_offset(offset)
    assert parsed is not None
    return parsed.incarnation_number


PAGES: Final = (
    ExplorerPage("/streams", "streams.html", streams_page, StreamsQuery, "List streams."),
    ExplorerPage("/stream", "stream.html", stream_page, StreamQuery, "Show a stream."),
)
FEEDS: Final = (PageFeed("/stream.events", stream_feed, StreamFeedQuery, "Follow a stream."),)
