"""The streams of a server, with the calls that the commands make on those of a folder.

So a command does not know where its streams are, and prints the same for both.

The rules of a server's streams, with the calls that the commands make on those of a folder.
"""

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
        told = responses.parse_document(self._client.send(call))
        try:
            return msgspec.convert(told, Registry)
        except msgspec.ValidationError as error:
            raise BadAnswer(f"the schemas of the stream cannot be read: {error}") from None


class RemoteProfile:
    """A profile as the server tells it; it may be of a kind that is not known here."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    def to_json(self) -> dict[str, Any]:
        return self._told


class RemoteProfiles:
    """`Profiles` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> RemoteProfile:
        return self._profile(calls.profile(self._address, name))

    def put(self, name: str, given: dict[str, Any]) -> RemoteProfile:
        return self._profile(calls.set_profile(self._address, name, given))

    def _profile(self, call: Call) -> RemoteProfile:
        told = responses.parse_document(self._client.send(call))
        if not isinstance(told, dict) or "kind" not in told:
            raise BadAnswer("the profile of the stream cannot be read")
        return RemoteProfile(told)


class RemoteTouches:
    """`Touches` over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client

    def meta(self, name: str) -> Meta:
        """How many wait is known to the server alone."""
        found = self._client.touch(name)
        active = sum(each.state == "active" for each in found.templates)
        return Meta(found.cursor, offset_of(found.processed_offset).record - 1, active, 0)

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch(name).templates))

    def activate(self, name: str, wanted: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        return tuple(map(_template, self._client.touch_templates(name, wanted)))

    def wait(self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float) -> Touched:
        """As patient as a follower is, with a server that has answered once."""
        timeout = None if timeout_s == math.inf else timeout_s
        waiting = TouchWaiter(self._client.settings.address, name, keys, cursor, timeout)
        told = waiting.receive(self._client.send(waiting.call()))
        patience = RetryPolicy(limits.CLIENT_FOLLOW_RETRY_S)
        while told is None:
            try:
                told = waiting.receive(self._client.send(waiting.call()))
                patience.restart()
            except FourfoldError as error:
                time.sleep(patience.pause(error))
        return told


def offset_of(text: str) -> Offset:
    """An offset of a server as the record and the incarnation that it names."""
    try:
        return parse_offset(text) or Offset(0, 0)
    except InvalidInput:
        raise BadAnswer(
            f"{text!r:.80} is not an offset of a Fourfold server",
            hint="The command line works with Fourfold's own server.",
        ) from None


def _template(told: LiveTemplate) -> ActiveTemplate:
    return ActiveTemplate(
        told.id,
        told.entity,
        cast("dict[str, Encoding]", told.fields),
        cast("Literal['active', 'retired']", told.state),
        offset_of(told.active_from_offset).record,
        told.last_seen_at_ms or 0,
        told.inactivity_ttl_ms or 0,
    )


class RemoteStreams:
    """`Streams`, as far as the command line uses them, over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address
        self.schemas = RemoteSchemas(client)
        self.profiles = RemoteProfiles(client)
        self.touches = RemoteTouches(client)

    def create_with_options(self, wanted: StreamOptions) -> CreateResult:
        fork = wanted.fork
        end = wanted.expires_at_ms
        call = requests.create(
            self._address,
            wanted.name,
            wanted.content_type,
            ttl=wanted.ttl_seconds,
            expires_at=None if end is None else datetime.fromtimestamp(end / 1000, UTC),
            closed=wanted.closed,
            retention_seconds=wanted.retention_seconds,
            retention_bytes=wanted.retention_bytes,
            fork_from=None if fork is None else fork.source,
            fork_offset=None if fork is None else _shown(fork.offset),
        )
        created = self._client.send(call).status == 201
        info = self.info(wanted.name)
        if fork is not None:
            at = info.next_offset if fork.offset is None else _record(fork.offset)
            info = info._replace(fork_offset=at)
        return CreateResult(info, created)

    def info(self, name: str) -> StreamInfo:
        # A name sorts before all others that begin with it.
        found, _ = self._page(name, "", 1)
        if not found or found[0].name != name:
            raise NotFound(f"unknown stream {name!r}")
        return _info(found[0])

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> tuple[StreamInfo, ...]:
        found: list[StreamInfo] = []
        start: str | None = after
        while start is not None and len(found) < limit:
            most = min(limit - len(found), limits.LIST_STREAMS_MAX)
            page, start = self._page(prefix, start, most)
            found += map(_info, page)
        return tuple(found)

    def totals(self) -> Totals:
        told = responses.parse_document(self._client.send(requests.totals(self._address)))
        try:
            return Totals(**told)
        except TypeError:
            raise BadAnswer("the totals of the streams cannot be read") from None

    def append(self, name: str, request: Append) -> Appended:
        """One request. Of a stream of bytes it is one record, whatever its body."""
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
        """What comes behind an offset, as soon as there is something, or nothing for long."""
        call = requests.read(self._address, name, offset, "long-poll", records=True)
        patience = RetryPolicy(limits.CLIENT_FOLLOW_RETRY_S)
        while True:
            try:
                return _chunk(self._client.send(call), offset)
            except FourfoldError as error:
                time.sleep(patience.pause(error))

    def state(self, name: str) -> dict[fold.Key, Any]:
        return fold.fold(self._client.open(name).items())

    def sweep(self) -> int:
        raise Refused("a server sweeps by itself", hint="Give the folder of a store.")

    def trim_deleted(self) -> bool:
        raise Refused("a server sweeps by itself", hint="Give the folder of a store.")

    def _page(
        self, prefix: str, after: str, limit: int
    ) -> tuple[Sequence[StreamListing], str | None]:
        return responses.parse_listing(
            self._client.send(requests.list_page(self._address, prefix, after, limit))
        )


class RemoteStream:
    """One of them."""

    def __init__(self, streams: RemoteStreams, name: str) -> None:
        self._streams = streams
        self.name = name

    def close(self) -> Appended:
        return self._streams.append(self.name, Append((), None, close=True))

    def follow(self, offset: str) -> Iterator[Chunk]:
        """Chunk by chunk, waiting for more, until the stream is closed."""
        while True:
            chunk = self._streams.wait(self.name, offset)
            offset = chunk.offset
            if chunk.records or chunk.closed:
                yield chunk
            if chunk.closed:
                return


def _info(row: StreamListing) -> StreamInfo:
    """A row of the list as the model's own record; what it does not tell stays empty."""
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


def _chunk(answer: Response, offset: str) -> Chunk:
    closed = responses.is_true(answer.headers, "stream-closed")
    end = offset_of(answer.headers.get("stream-next-offset", offset))
    found = []
    try:
        for row in json.loads(answer.body) if answer.body else ():
            coded = row.get("base64")
            payload = row["text"].encode() if coded is None else base64.b64decode(coded)
            found.append(Record(offset_of(row["offset"]).record, payload, row["ts_ms"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadAnswer(
            "the server does not give records one by one",
            hint="The command line reads from Fourfold's own server.",
        ) from None
    start = found[0].offset if found else end.record
    current = closed or responses.is_true(answer.headers, "stream-up-to-date")
    return Chunk(tuple(found), start, end.record, current, closed, end.incarnation_number)


def _shown(offset: int | Offset | None) -> str | None:
    """A bare number is not sent: only the server knows the incarnation."""
    assert not isinstance(offset, int)
    return None if offset is None else str(offset)


def _record(offset: int | Offset) -> int:
    return offset.record if isinstance(offset, Offset) else offset


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()
