"""Streams of a server, with the methods that the commands call on the streams of a folder."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

from fourfold import limits
from fourfold.client import StreamClient, requests, responses
from fourfold.client import rules as calls
from fourfold.client.requests import Call
from fourfold.client.responses import Response, StreamListing
from fourfold.client.rules import LiveTemplate, TouchWaiter
from fourfold.client.transport import RetryPolicy
from fourfold.errors import BadAnswer, FourfoldError, InvalidInput, NotFound, Refused
from fourfold.models.streams import Append, Appended, Chunk, Record, StreamInfo, StreamOptions, fold
from fourfold.models.streams.json_messages import join
from fourfold.models.streams.records import CreateResult, RecordFilter, Totals
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.settings import Settings
from fourfold.models.streams.touch import (
    ActiveTemplate,
    Encoding,
    Key,
    Meta,
    Template,
    Touched,
)
from fourfold.models.streams.validation import START, Offset, parse_offset


class RemoteSchemas:
    """`Schemas` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> Registry:
        return self._registry(calls.schema(self._address, name))

    def put(self, name: str, change: dict[str, Any]) -> Registry:
        return self._registry(calls.set_schema(self._address, name, change))

    def _registry(self, call: Call) -> Registry:
        document = responses.parse_document(self._client.send(call))
        try:
            return msgspec.convert(document, Registry)
        except msgspec.ValidationError as error:
            raise BadAnswer(f"the schemas of the stream cannot be read: {error}") from None


class RemoteProfile:
    """A profile as the server reports it; its kind may be unknown here."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def to_json(self) -> dict[str, Any]:
        return self._document


class RemoteProfiles:
    """`Profiles` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> RemoteProfile:
        return self._profile(calls.profile(self._address, name))

    def put(self, name: str, profile: dict[str, Any]) -> RemoteProfile:
        return self._profile(calls.set_profile(self._address, name, profile))

    def _profile(self, call: Call) -> RemoteProfile:
        document = responses.parse_document(self._client.send(call))
        if not isinstance(document, dict) or "kind" not in document:
            raise BadAnswer("the profile of the stream cannot be read")
        return RemoteProfile(document)


class RemoteTouches:
    """`Touches` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client

    def meta(self, name: str) -> Meta:
        """Return the state of touch; only the server knows the number of waiters."""
        touch = self._client.touch(name)
        active = sum(template.state == "active" for template in touch.templates)
        return Meta(touch.cursor, offset_of(touch.processed_offset).record - 1, active, 0)

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch(name).templates))

    def activate(self, name: str, templates: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch_templates(name, templates)))

    def wait(self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float) -> Touched:
        """Wait for a change, and retry like a follower after the first response."""
        timeout = None if timeout_s == math.inf else timeout_s
        waiting = TouchWaiter(self._client.settings.address, name, keys, cursor, timeout)
        touched = waiting.receive(self._client.send(waiting.call()))
        retries = RetryPolicy(limits.CLIENT_FOLLOW_RETRY_S)
        while touched is None:
            try:
                touched = waiting.receive(self._client.send(waiting.call()))
                retries.restart()
            except FourfoldError as error:
                time.sleep(retries.pause(error))
        return touched


def offset_of(text: str) -> Offset:
    """Parse an offset of a server into its record and incarnation."""
    try:
        return parse_offset(text) or Offset(0, 0)
    except InvalidInput:
        raise BadAnswer(
            f"{text!r:.80} is not an offset of a Fourfold server",
            hint="The command line works with Fourfold's own server.",
        ) from None


def _template(row: LiveTemplate) -> ActiveTemplate:
    return ActiveTemplate(
        row.id,
        row.entity,
        cast("dict[str, Encoding]", row.fields),
        cast("Literal['active', 'retired']", row.state),
        offset_of(row.active_from_offset).record,
        row.last_seen_at_ms or 0,
        row.inactivity_ttl_ms or 0,
    )


class RemoteStreams:
    """`Streams` over HTTP, as far as the command line uses them."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address
        self.schemas = RemoteSchemas(client)
        self.profiles = RemoteProfiles(client)
        self.touches = RemoteTouches(client)

    def create_with_options(self, options: StreamOptions) -> CreateResult:
        fork = options.fork
        end = options.expires_at_ms
        call = requests.create(
            self._address,
            options.name,
            options.content_type,
            ttl=options.ttl_seconds,
            expires_at=None if end is None else datetime.fromtimestamp(end / 1000, UTC),
            closed=options.closed,
            retention_seconds=options.retention_seconds,
            retention_bytes=options.retention_bytes,
            fork_from=None if fork is None else fork.source,
            fork_offset=None if fork is None else _format_offset(fork.offset),
        )
        created = self._client.send(call).status == 201
        info = self.info(options.name)
        if fork is not None:
            at = info.next_offset if fork.offset is None else _record(fork.offset)
            info = info._replace(fork_offset=at)
        return CreateResult(info, created)

    def info(self, name: str) -> StreamInfo:
        # A name sorts before all others that start with it.
        rows, _ = self._page(name, "", 1)
        if not rows or rows[0].name != name:
            raise NotFound(f"unknown stream {name!r}")
        return _info(rows[0])

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> tuple[StreamInfo, ...]:
        infos: list[StreamInfo] = []
        start: str | None = after
        while start is not None and len(infos) < limit:
            most = min(limit - len(infos), limits.LIST_STREAMS_MAX)
            page, start = self._page(prefix, start, most)
            infos += map(_info, page)
        return tuple(infos)

    def totals(self) -> Totals:
        document = responses.parse_document(self._client.send(requests.totals(self._address)))
        try:
            return Totals(**document)
        except TypeError:
            raise BadAnswer("the totals of the streams cannot be read") from None

    def append(self, name: str, request: Append) -> Appended:
        """Send one append request. For a stream of bytes it makes one record, whatever its body."""
        kind = request.content_type or self.info(name).content_type
        assert len(request.records) < 2 or requests.is_json(kind)
        call = requests.append(
            self._address,
            name,
            kind,
            join(list(request.records), kind) if request.records else b"",
            producer=request.producer,
            close=request.close,
            key=_text(request.routing_key),
        )
        done = responses.parse_appended(call, self._client.send(call))
        end = offset_of(done.next_offset)
        return Appended(
            end.record, done.duplicate, done.closed, done.producer, end.incarnation_number
        )

    def configure(self, name: str, settings: Settings) -> StreamInfo:
        end = settings.expires_at_ms
        call = requests.configure(
            self._address,
            name,
            ttl=settings.ttl_seconds,
            expires_at=datetime.fromtimestamp(end / 1000, UTC) if isinstance(end, int) else end,
            retention_seconds=settings.retention_seconds,
            retention_bytes=settings.retention_bytes,
        )
        facts = responses.parse_facts(name, self._client.send(call))
        return self.info(name)._replace(
            retention_seconds=facts.retention_seconds, retention_bytes=facts.retention_bytes
        )

    def open(self, name: str) -> RemoteStream:
        self.info(name)
        return RemoteStream(self, name)

    def delete(self, name: str) -> None:
        self._client.delete(name)

    def read(
        self,
        name: str,
        offset: str = START,
        *,
        records_max: int = limits.STREAM_READ_RECORDS,
        sought: RecordFilter | None = None,
    ) -> tuple[None, Chunk]:
        call = requests.read(
            self._address,
            name,
            offset,
            records=True,
            limit=min(records_max, limits.STREAM_READ_RECORDS),
            key=None if sought is None else _text(sought.key),
        )
        return None, _chunk(self._client.send(call), offset)

    def wait(self, name: str, offset: str) -> Chunk:
        """Return the chunk after an offset, as soon as there is one, or an empty one after a
        timeout.
        """
        call = requests.read(self._address, name, offset, "long-poll", records=True)
        retries = RetryPolicy(limits.CLIENT_FOLLOW_RETRY_S)
        while True:
            try:
                return _chunk(self._client.send(call), offset)
            except FourfoldError as error:
                time.sleep(retries.pause(error))

    def state(self, name: str) -> dict[fold.Key, Any]:
        return fold.fold(self._client.open(name).items())

    def sweep(self) -> int:
        raise Refused("a server sweeps by itself", hint="Pass the folder of a store.")

    def trim_deleted(self) -> bool:
        raise Refused("a server sweeps by itself", hint="Pass the folder of a store.")

    def _page(
        self, prefix: str, after: str, limit: int
    ) -> tuple[Sequence[StreamListing], str | None]:
        return responses.parse_listing(
            self._client.send(requests.list_page(self._address, prefix, after, limit))
        )


class RemoteStream:
    """One stream of a server."""

    def __init__(self, streams: RemoteStreams, name: str) -> None:
        self._streams = streams
        self.name = name

    def close(self) -> Appended:
        return self._streams.append(self.name, Append((), None, close=True))

    def follow(self, offset: str) -> Iterator[Chunk]:
        """Yield chunks, and wait for new records, until the stream is closed."""
        while True:
            chunk = self._streams.wait(self.name, offset)
            offset = chunk.offset
            if chunk.records or chunk.closed:
                yield chunk
            if chunk.closed:
                return


def _info(row: StreamListing) -> StreamInfo:
    """Convert a row of the list to a `StreamInfo`; fields that it lacks stay empty."""
    return StreamInfo(
        sid=0,
        name=row.name,
        created_at_ms=row.created_at_ms,
        next_offset=offset_of(row.next_offset).record,
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
        incarnation_number=offset_of(row.next_offset).incarnation_number,
    )


def _chunk(response: Response, offset: str) -> Chunk:
    closed = responses.is_true(response.headers, "stream-closed")
    end = offset_of(response.headers.get("stream-next-offset", offset))
    records = []
    try:
        for row in json.loads(response.body) if response.body else ():
            coded = row.get("base64")
            payload = row["text"].encode() if coded is None else base64.b64decode(coded)
            records.append(Record(offset_of(row["offset"]).record, payload, row["ts_ms"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadAnswer(
            "the server does not return single records",
            hint="The command line reads from Fourfold's own server.",
        ) from None
    start = records[0].offset if records else end.record
    current = closed or responses.is_true(response.headers, "stream-up-to-date")
    return Chunk(tuple(records), start, end.record, current, closed, end.incarnation_number)


def _format_offset(offset: int | Offset | None) -> str | None:
    """Format an offset. A bare number is not sent: only the server knows the incarnation."""
    assert not isinstance(offset, int)
    return None if offset is None else str(offset)


def _record(offset: int | Offset) -> int:
    return offset.record if isinstance(offset, Offset) else offset


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()
