"""Streams of a Fourfold server as the records of a local store: conversions, without I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, cast
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import UnsetType

from fourfold.client import requests, responses
from fourfold.client.reader import EventReader, FeedItem, ResponseReader
from fourfold.client.requests import Address, Call
from fourfold.client.responses import Headers, Response
from fourfold.client.rules import LiveTemplate
from fourfold.errors import BadAnswer, InvalidInput
from fourfold.models.streams import profiles
from fourfold.models.streams.feed_records import FeedGap, StreamRecord
from fourfold.models.streams.inspection import ProducerState, SegmentInfo, StreamSubscription
from fourfold.models.streams.profiles import GenericProfile
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.records import AppendResult, Chunk, Record, StreamInfo, Totals, Where
from fourfold.models.streams.routing_keys import KeyPage, RoutingKeyInfo
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.touch import ActiveTemplate, Encoding
from fourfold.models.streams.validation import NOW, START, Offset, parse_offset
from fourfold.tabular import Rows
from fourfold.wire.streams import (
    FeedRecord,
    ProducerRow,
    RoutingKeyPage,
    SegmentRow,
    StreamDetails,
    StreamPage,
    StreamRow,
    StreamsGap,
    StreamSubscriptionRow,
    StreamTotals,
)

_OTHER_SERVER = "Fourfold's own server is required; others work with `fourfold.client`."


def offset_of(text: str) -> Offset:
    """Parse an offset of a server into its record and incarnation."""
    try:
        return parse_offset(text) or Offset(0, 0)
    except InvalidInput:
        raise BadAnswer(
            f"{text!r:.80} is not an offset of a Fourfold server", hint=_OTHER_SERVER
        ) from None


def to_time(ms: Any) -> Any:
    """Return a time in milliseconds as a datetime; None and UNSET stay."""
    return datetime.fromtimestamp(ms / 1000, UTC) if isinstance(ms, int) else ms


def to_text(key: str | bytes | None) -> str | None:
    """Return a routing key as text, which is all that a URL and a header carry."""
    try:
        return key.decode() if isinstance(key, bytes) else key
    except UnicodeDecodeError:
        raise InvalidInput("routing key must be UTF-8 text for a server") from None


def parse_info(response: Response) -> StreamInfo:
    """Return the metadata of a stream; fields that only the store knows stay empty."""
    row = responses.decode(response, StreamDetails, "the details of a stream")
    return _info(row)._replace(
        profile=row.profile,
        schema_version=row.schema_version,
        retention_seconds=row.retention_seconds,
        retention_bytes=row.retention_bytes,
        fork_offset=None if row.fork_offset is None else offset_of(row.fork_offset).record,
        forks=row.forks,
        wal_bytes=row.wal_bytes,
    )


def parse_page(response: Response) -> tuple[list[StreamInfo], str | None]:
    """Return a page of the list of streams, and the name after which the next page begins."""
    page = responses.decode(response, StreamPage, "a list of streams")
    return [_info(row) for row in page.streams], page.next_after


def _info(row: StreamRow) -> StreamInfo:
    end = offset_of(row.next_offset)
    return StreamInfo(
        sid=0,
        name=row.name,
        created_at_ms=row.created_at_ms,
        next_offset=end.record,
        content_type=row.content_type,
        stream_seq=None,
        closed=row.closed,
        closed_by=None,
        ttl_seconds=row.ttl_seconds,
        expires_at_ms=row.expires_at_ms,
        deleted=False,
        size_bytes=row.size_bytes,
        first_offset=offset_of(row.first_offset).record,
        forked_from=None,
        fork_offset=None,
        forks=0,
        incarnation="",
        profile="",
        retention_seconds=None,
        retention_bytes=None,
        wal_bytes=0,
        fork_asked=None,
        fork_sub_offset=None,
        incarnation_number=end.incarnation_number,
    )


def to_producer(row: ProducerRow) -> ProducerState:
    """Return a producer of a stream."""
    return ProducerState(row.id, row.epoch, row.last_seq, row.updated_at_ms)


def to_segment(row: SegmentRow) -> SegmentInfo:
    """Return a segment of a stream."""
    return SegmentInfo(
        offset_of(row.first_offset).record,
        offset_of(row.next_offset).record,
        row.size_bytes,
        row.payload_bytes,
        row.last_append_ms,
        row.created_at_ms,
        row.published_at_ms,
    )


def parse_keys(response: Response) -> KeyPage:
    """Return a page of routing keys."""
    page = responses.decode(response, RoutingKeyPage, "a list of routing keys")
    keys = [RoutingKeyInfo(unquote_to_bytes(row.key), offset_of(row.offset)) for row in page.items]
    last = keys[-1].key if page.next_cursor is not None and keys else None
    return KeyPage(Rows(keys, RoutingKeyInfo), last, offset_of(page.complete_from))


def to_subscription(row: StreamSubscriptionRow) -> StreamSubscription:
    """Return a subscription that follows a stream; the server does not say whose it is."""
    return StreamSubscription(
        row.id,
        row.type,
        row.pattern,
        row.link_type == "explicit",
        offset_of(row.acked_offset).record,
        row.failures,
        row.created_at_ms,
        row.pending,
    )


def parse_totals(response: Response) -> Totals:
    """Return the counts over all streams."""
    totals = responses.decode(response, StreamTotals, "the totals of the streams")
    return Totals(totals.streams, totals.records, totals.bytes)


def parse_appended(call: Call, response: Response) -> AppendResult:
    """Return the result of an append."""
    done = responses.parse_appended(call, response)
    end = offset_of(done.next_offset)
    return AppendResult(
        end.record, done.duplicate, done.closed, done.producer, end.incarnation_number
    )


def parse_chunk(response: Response, offset: str) -> Chunk:
    """Return the records of a read after `offset`."""
    closed = responses.is_true(response.headers, "stream-closed")
    end = offset_of(response.headers.get("stream-next-offset", offset))
    records = []
    try:
        for row in json.loads(response.body) if response.body else ():
            coded = row.get("base64")
            payload = row["text"].encode() if coded is None else base64.b64decode(coded)
            headers = encode_headers(row.get("headers"))
            at = offset_of(row["offset"]).record
            records.append(Record(at, payload, row["ts_ms"], headers))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadAnswer("the server does not return single records", hint=_OTHER_SERVER) from None
    start = records[0].offset if records else end.record
    if offset not in {NOW, START}:
        start = offset_of(offset).record
    current = closed or responses.is_true(response.headers, "stream-up-to-date")
    return Chunk(tuple(records), start, end.record, current, closed, end.incarnation_number)


class FeedEventReader(EventReader[StreamRecord]):
    """Read the feed over all streams: a record with the cursor after it."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, self._to_record)

    def _to_record(self, name: str, data: bytes) -> StreamRecord | None:
        cursor = self.position or ""
        if name == "gap":
            gap = msgspec.json.decode(data, type=StreamsGap)
            raise FeedGap(cursor, gap.stream, gap.records).to_error()
        if name != "record":
            return None
        event = msgspec.json.decode(data, type=FeedRecord)
        offset = offset_of(event.offset)
        payload = event.text.encode() if isinstance(event.text, str) else event.base64
        assert isinstance(payload, bytes)
        headers = None if isinstance(event.headers, UnsetType) else encode_headers(event.headers)
        record = Record(offset.record, payload, event.ts_ms, headers)
        return StreamRecord(event.stream, record, cursor, offset.incarnation_number)


class RecordsReader(ResponseReader[FeedItem[Chunk]]):
    """Follow a stream by long-poll, record by record, from an offset or since a time.

    The records that are stored are requested first, so that the first response does not wait.
    Only the server knows the incarnation that a bare number belongs to: it is requested first.
    """

    def __init__(
        self,
        address: Address,
        name: str,
        offset: str | int,
        *,
        key: str | None = None,
        where: Where | None = None,
        since_ms: int | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._offset = offset
        self._key = key
        self._where = where
        self._since_ms = since_ms
        self._headers: Headers = {}
        self._body: list[bytes] = []
        self._done = False
        self._is_current = False

    def ended(self) -> bool:
        """Return True if there is nothing more to request."""
        return self._done

    def call(self) -> Call:
        """Return the next request."""
        if isinstance(self._offset, int):
            return requests.details(self._address, self._name)
        return requests.read(
            self._address,
            self._name,
            self._offset if self._since_ms is None else None,
            "long-poll" if self._is_current else None,
            records=True,
            key=self._key,
            where=self._where,
            since_ms=self._since_ms,
        )

    def begin(self, headers: Headers) -> None:
        """Process the headers of a response."""
        self._headers, self._body = headers, []

    def feed(self, piece: bytes) -> list[FeedItem[Chunk]]:
        """Process received bytes and return what they complete."""
        self._body.append(piece)
        return []

    def end(self) -> list[FeedItem[Chunk]]:
        """Process the end of a response and return what it completes."""
        response = Response(200, self._headers, b"".join(self._body))
        if isinstance(self._offset, int):
            self._offset = Offset(self._offset, parse_info(response).incarnation_number)
            return []
        chunk = parse_chunk(response, self._offset)
        self._offset, self._done, self._since_ms = chunk.offset, chunk.closed, None
        self._is_current = self._is_current or chunk.up_to_date
        return [FeedItem(chunk.offset, chunk if chunk.records or chunk.closed else None)]


def parse_registry(response: Response) -> Registry:
    """Return the schema registry of a stream."""
    try:
        return msgspec.convert(responses.parse_document(response), Registry)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"the schemas of the stream cannot be read: {error}") from None


def parse_profile(response: Response) -> GenericProfile:
    """Return the profile of a stream."""
    document: Mapping[str, Any] = responses.parse_document(response)
    try:
        return profiles.read(document)
    except InvalidInput as error:
        raise BadAnswer(f"the profile of the stream cannot be read: {error}") from None


def to_template(row: LiveTemplate) -> ActiveTemplate:
    """Return a template of a stream."""
    return ActiveTemplate(
        row.id,
        row.entity,
        cast("dict[str, Encoding]", row.fields),
        cast("Literal['active', 'retired']", row.state),
        offset_of(row.active_from_offset).record,
        row.last_seen_at_ms or 0,
        row.inactivity_ttl_ms or 0,
    )
