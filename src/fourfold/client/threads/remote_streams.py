# Generated from ../coroutines/remote_streams.py by `make generate`: change that file.
"""Streams of a server with the methods of `fourfold.Streams`, for threads."""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fourfold import limits
from fourfold.client import requests, rules, stream_records
from fourfold.client.containers import StreamContainer, StreamsContainer
from fourfold.client.follower import RemoteFollower
from fourfold.client.reader import MessageReader
from fourfold.client.rules import TouchWaiter
from fourfold.client.stream_records import RecordsReader, offset_of, to_text, to_time
from fourfold.client.threads.connection import P
from fourfold.client.threads.streams import StreamClient
from fourfold.client.transport import start_retries
from fourfold.errors import ContentTypeMismatch, FourfoldError, InvalidInput, NotFound
from fourfold.models.streams import fold, json_messages, rule_changes, validation
from fourfold.models.streams.append import Append
from fourfold.models.streams.inspection import ProducerState, SegmentInfo, StreamSubscription
from fourfold.models.streams.profiles import Profile
from fourfold.models.streams.records import (
    Appended,
    Chunk,
    CreateResult,
    Producer,
    Record,
    StreamInfo,
    Totals,
)
from fourfold.models.streams.rule_changes import UNCHANGED, FieldsChange, KeyChange
from fourfold.models.streams.schemas.registry import Registry
from fourfold.models.streams.settings import Setting, Settings
from fourfold.models.streams.stream import encode_records
from fourfold.models.streams.times import Time, check_start, parse_time_ms
from fourfold.models.streams.touch import ActiveTemplate, Key, Meta, Template, Touched
from fourfold.models.streams.validation import Offset
from fourfold.models.streams.writer import Fork, StreamOptions
from fourfold.tabular import Rows
from fourfold.wire.streams import ProducerPage, SegmentPage, StreamSubscriptionPage


class RemoteStreams(StreamsContainer):
    """All streams of a server, with the methods of `fourfold.Streams`."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address
        self.schemas = RemoteSchemas(client)
        self.profiles = RemoteProfiles(client)
        self.touches = RemoteTouches(client)

    def create(
        self,
        name: str,
        content_type: str | None = None,
        *,
        ttl: int | None = None,
        expires_at_ms: int | None = None,
        closed: bool = False,
        body: bytes = b"",
        fork: Fork | None = None,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> RemoteStream:
        """Create a stream, or return the existing one if its settings match.

        Raises:
            AlreadyExists: a stream of that name has other settings.
        """
        options = StreamOptions(
            name,
            content_type,
            ttl,
            expires_at_ms,
            closed,
            fork,
            retention_seconds,
            retention_bytes,
        )
        self._create(options, body)
        return RemoteStream(self, self._client, name)

    def create_with_options(self, options: StreamOptions, body: bytes = b"") -> CreateResult:
        """Create a stream from `options`; `result.created` is False if it existed."""
        created = self._create(options, body)
        return CreateResult(self.info(options.name), created)

    def _create(self, options: StreamOptions, body: bytes) -> bool:
        fork = options.fork
        offset = None if fork is None else fork.offset
        if fork is not None and type(offset) is int:
            # Only the server knows the incarnation that a bare number belongs to.
            offset = Offset(offset, (self.info(fork.source)).incarnation_number)
        call = requests.create(
            self._address,
            options.name,
            options.content_type,
            ttl=options.ttl_seconds,
            expires_at=to_time(options.expires_at_ms),
            closed=options.closed,
            body=body,
            retention_seconds=options.retention_seconds,
            retention_bytes=options.retention_bytes,
            fork_from=None if fork is None else fork.source,
            fork_offset=None if offset is None else str(offset),
            fork_sub_offset=(fork.sub_offset or None) if fork is not None else None,
        )
        return (self._client.send(call)).status == 201

    def open(self, name: str) -> RemoteStream:
        """Return a handle of an existing stream.

        Raises:
            NotFound: there is no stream of that name.
        """
        self.info(name)
        return RemoteStream(self, self._client, name)

    def info(self, name: str) -> StreamInfo:
        """Return the metadata of a stream, without extending its TTL."""
        call = requests.details(self._address, name)
        return stream_records.parse_info(self._client.send(call))

    def list(
        self, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> tuple[StreamInfo, ...]:
        """Return streams with a name prefix in name order, at most `limit` after `after`."""
        infos: builtins.list[StreamInfo] = []
        start: str | None = after
        while start is not None and len(infos) < limit:
            most = min(limit - len(infos), limits.LIST_STREAMS_MAX)
            call = requests.list_page(self._address, prefix, start, most)
            page, start = stream_records.parse_page(self._client.send(call))
            infos += page
        return tuple(infos)

    def delete(self, name: str) -> None:
        """Delete a stream; its forks stay readable."""
        self._client.delete(name)

    def configure(self, name: str, settings: Settings) -> StreamInfo:
        """Change the lifetime or the retention of a stream, and return its new metadata."""
        call = requests.configure(
            self._address,
            name,
            ttl=settings.ttl_seconds,
            expires_at=to_time(settings.expires_at_ms),
            retention_seconds=settings.retention_seconds,
            retention_bytes=settings.retention_bytes,
        )
        self._client.send(call)
        return self.info(name)

    def offset_since(self, name: str, since: Time) -> Offset:
        """Return the offset of the first record at or after a time; the end if there is none.

        `since` is a datetime, ISO 8601 text, or milliseconds since 1970.
        """
        since_ms = parse_time_ms(since)
        call = requests.read(self._address, name, None, records=True, limit=1, since_ms=since_ms)
        chunk = stream_records.parse_chunk(self._client.send(call), validation.START)
        return Offset(chunk.start_offset, chunk.incarnation_number)

    def append(self, name: str, request: Append) -> Appended:
        """Append to a stream; return once the records are on disk.

        A request has one record of a stream of bytes: several are sent one after the other.
        """
        kind = request.content_type or (self.info(name)).content_type
        records = list(request.records)
        if requests.is_json(kind) and records:
            records = [json_messages.join(records, kind)]
        if len(records) > 1 and (request.producer is not None or request.stream_seq is not None):
            raise InvalidInput(
                f"stream {name!r}: several records of {kind} cannot be one request of a producer",
                hint="Append them one by one.",
            )
        result = None
        for number, body in enumerate(records or [b""], 1):
            call = requests.append(
                self._address,
                name,
                kind,
                body,
                producer=request.producer,
                seq=request.stream_seq,
                close=request.close and number >= len(records),
                key=to_text(request.routing_key),
            )
            result = stream_records.parse_appended(call, self._client.send(call))
        assert result is not None
        return result

    def state(self, name: str) -> dict[fold.Key, Any]:
        """Return the newest value of each key of a state stream."""
        state: dict[fold.Key, Any] = {}
        reader = MessageReader(self._address, name, validation.START)
        for message in self._client.run(reader):
            fold.apply(state, json_messages.decode(message))
        return state

    def totals(self) -> Totals:
        """Count the streams, records and bytes of the store."""
        return stream_records.parse_totals(self._client.send(requests.totals(self._address)))

    def __repr__(self) -> str:
        return f"<Streams at {self._address.root}>"


class RemoteStream(StreamContainer):
    """A handle of one stream of a server, with the methods of `fourfold.Stream`."""

    def __init__(self, streams: RemoteStreams, client: StreamClient, name: str) -> None:
        self._streams = streams
        self._client = client
        self._address = client.settings.address
        self._known: StreamInfo | None = None
        self.name = name

    @property
    def info(self) -> StreamInfo:
        """The metadata of the stream."""
        return self._streams.info(self.name)

    def append(
        self,
        values: Any,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
    ) -> Appended:
        """Append one or several records; return when they are on disk.

        Args:
            values: For a JSON stream, a JSON value, or a list of values that become one message
                each. For others, bytes or a list of bytes; text for a stream of text.
            producer: The id, epoch and number of an idempotent producer, to retry safely.
            seq: A text that must be greater than that of the append before.
            close: Close the stream after these records.
            key: A routing key, by which the records can be read.

        Raises:
            InvalidInput: A value does not fit the content type of the stream.
            StreamClosed: The stream takes no more records.
            OutcomeUnknown: No response arrived; with a `producer` the append is repeated instead.
        """
        # The content type of a stream does not change, unless another one takes its name.
        info = self._known = self._known or self.info
        records = encode_records(values, info)
        routing_key = None if key is None else validation.check_key(key)
        request = Append(records, info.content_type, producer, seq, close, routing_key)
        try:
            return self._streams.append(self.name, request)
        except (ContentTypeMismatch, NotFound):
            self._known = None
            raise

    def append_bytes(
        self,
        records: Iterable[bytes] | bytes,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | bytes | None = None,
    ) -> Appended:
        """Append records as bytes; an array of JSON text becomes one message per element."""
        data = [records] if isinstance(records, bytes) else list(records)
        for item in data:
            if not isinstance(item, bytes):
                raise InvalidInput(
                    f"stream {self.name!r}: a record must be bytes, got {type(item).__name__}",
                    hint="Use append() for values.",
                )
        return self.append(data, producer=producer, seq=seq, close=close, key=key)

    def close(self) -> Appended:
        """Close the stream: it accepts no more appends, and readers receive an end marker."""
        return self._streams.append(self.name, Append((), None, close=True))

    def read(
        self,
        offset: str | int = validation.START,
        limit: int | None = None,
        *,
        since: Time | None = None,
        key: str | bytes | None = None,
        where: tuple[str, Any] | None = None,
    ) -> Chunk:
        """Return the records after `offset`: all, those with `key`, or those that match `where`.

        `where` is a field of JSON messages and its value. A chunk of a read by `key` or `where`
        may be empty and end before the stream does: continue until it is `up_to_date`.

        Args:
            since: Start at the first record that was appended at or after this time, instead of
                `offset`: a datetime, ISO 8601 text, or milliseconds since 1970.
        """
        since_ms = check_start(offset, since)
        at = self._offset(offset)
        call = requests.read(
            self._address,
            self.name,
            at if since_ms is None else None,
            records=True,
            limit=limits.STREAM_READ_RECORDS if limit is None else limit,
            key=to_text(key),
            where=where,
            since_ms=since_ms,
        )
        return stream_records.parse_chunk(self._client.send(call), at)

    def fork(self, name: str, at: str | int | None = None, *, sub_offset: int = 0) -> RemoteStream:
        """Create a stream that shares the records before `at`, by default all, without copying."""
        offset = at if at is None or type(at) is int else validation.parse_offset(at)
        return self._streams.create(name, fork=Fork(self.name, offset, sub_offset))

    def configure(
        self,
        *,
        ttl: Setting = UNCHANGED,
        expires_at_ms: Setting = UNCHANGED,
        retention_seconds: Setting = UNCHANGED,
        retention_bytes: Setting = UNCHANGED,
    ) -> StreamInfo:
        """Change the lifetime or the retention of the stream, and return its new metadata.

        None removes a setting; omitted settings do not change. A TTL and a fixed expiry replace
        each other. Trimmed records stay trimmed.
        """
        settings = Settings(ttl, expires_at_ms, retention_seconds, retention_bytes)
        return self._streams.configure(self.name, settings)

    def schema(self) -> Registry:
        """Return the schema registry: versions, lenses, routing key and search fields."""
        return self._streams.schemas.get(self.name)

    def producers(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[ProducerState]:
        """Return idempotent producers of the stream, in the order of their ids.

        Args:
            after: Only producers after this id.
            limit: Maximum number of producers.
        """
        producers: Rows[ProducerState] = Rows((), ProducerState)
        for page in self._pages("producers", ProducerPage):
            rows = map(stream_records.to_producer, page.items)
            producers += [row for row in rows if row.id > after]
            if len(producers) >= limit:
                break
        return producers[:limit]

    def segments(self, *, after: int = -1, limit: int = limits.PAGE_ITEMS_MAX) -> Rows[SegmentInfo]:
        """Return sealed segments of the stream, in the order of their records.

        The newest records are in no segment yet; a fork has segments of its own records only.

        Args:
            after: Only segments whose first record is after this one.
            limit: Maximum number of segments.
        """
        segments: Rows[SegmentInfo] = Rows((), SegmentInfo)
        for page in self._pages("segments", SegmentPage):
            rows = map(stream_records.to_segment, page.items)
            segments += [row for row in rows if row.first_offset > after]
            if len(segments) >= limit:
                break
        return segments[:limit]

    def subscriptions(
        self, *, after: str = "", limit: int = limits.PAGE_ITEMS_MAX
    ) -> Rows[StreamSubscription]:
        """Return the subscriptions that follow the stream, with their cursors.

        Args:
            after: Only subscriptions after this id.
            limit: Maximum number of subscriptions.
        """
        subscriptions: Rows[StreamSubscription] = Rows((), StreamSubscription)
        for page in self._pages("subscriptions", StreamSubscriptionPage):
            rows = map(stream_records.to_subscription, page.items)
            subscriptions += [row for row in rows if row.id > after]
            if len(subscriptions) >= limit:
                break
        return subscriptions[:limit]

    def _pages(self, verb: str, kind: type[P]) -> Iterator[P]:
        call = requests.list_of_stream(self._address, verb, self.name)
        return self._client.pages(call, kind)

    def set_schema(
        self,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyChange = UNCHANGED,
        search: FieldsChange = UNCHANGED,
    ) -> Registry:
        """Add a schema version, or set the routing key or the search fields.

        `lens` converts messages of the previous version; `routing_key` is where messages contain
        their key, `search` the fields to find them by. Omitted parts do not change.
        """
        change = rule_changes.registry_change(schema, lens, routing_key, search)
        return self._streams.schemas.put(self.name, change)

    def profile(self) -> Profile:
        """Return the profile of the stream."""
        return self._streams.profiles.get(self.name)

    def set_profile(
        self,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> Profile:
        """Set the profile of the stream; omitted options have their defaults.

        The kind is "generic", "state-protocol" (with `touch`), or "evlog" (with `redact` and
        `routing_key`).
        """
        profile = rule_changes.profile(kind, touch, redact, routing_key)
        return self._streams.profiles.put(self.name, profile)

    def follow(
        self,
        offset: str | int = validation.START,
        *,
        since: Time | None = None,
        timeout: float | None = None,
        key: str | bytes | None = None,
    ) -> RemoteFollower[Chunk]:
        """Iterate over chunks and wait for more, until the stream is closed.

        Ends after `timeout` seconds without new records. With `key`, only the records with that
        routing key. With `since`, starts at the first record at or after that time, as in `read`.
        It continues after broken connections.
        """
        since_ms = check_start(offset, since)
        reader = RecordsReader(self._address, self.name, offset, to_text(key), since_ms)
        return RemoteFollower(self._client.settings, reader, timeout, wait=False)

    def position(self) -> Offset:
        """Return the end of the stream: the offset of the next record to be appended."""
        info = self.info
        return Offset(info.next_offset, info.incarnation_number)

    def delete(self) -> None:
        """Delete the stream; its forks stay readable."""
        self._streams.delete(self.name)

    def __iter__(self) -> Iterator[Record]:
        """Yield the retained records up to the end of the stream at the time of each read."""
        offset: str | int = validation.START
        while True:
            chunk = self.read(offset)
            for record in chunk:
                yield record
            if chunk.up_to_date:
                return
            offset = chunk.offset

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def _offset(self, offset: str | int) -> str:
        """Return an offset as text; only the server knows the incarnation of a bare number."""
        if type(offset) is int and offset >= 0:
            return Offset(offset, (self.info).incarnation_number)
        return str(offset)


class RemoteSchemas:
    """Schemas of the streams of a server."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> Registry:
        """Return the registry of a stream; an empty one if none was set."""
        response = self._client.send(rules.schema(self._address, name))
        return stream_records.parse_registry(response)

    def put(self, name: str, change: Any) -> Registry:
        """Change `schema` and `lens`, `routingKey` or `search`, and return the new registry."""
        response = self._client.send(rules.set_schema(self._address, name, change))
        return stream_records.parse_registry(response)


class RemoteProfiles:
    """Profiles of the streams of a server."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address

    def get(self, name: str) -> Profile:
        """Return the profile of a stream; the generic one if none was set."""
        response = self._client.send(rules.profile(self._address, name))
        return stream_records.parse_profile(response)

    def put(self, name: str, given: Any) -> Profile:
        """Set the profile of a stream from JSON, for all later appends."""
        response = self._client.send(rules.set_profile(self._address, name, given))
        return stream_records.parse_profile(response)


class RemoteTouches:
    """Changes of rows of the streams of a server, to wait for."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client

    def meta(self, name: str) -> Meta:
        """Return the current cursor of a stream, and how many templates it has.

        Only the server knows the number of waiters.
        """
        touch = self._client.touch(name)
        active = sum(template.state == "active" for template in touch.templates)
        return Meta(touch.cursor, offset_of(touch.processed_offset).record - 1, active, 0)

    def templates(self, name: str) -> tuple[ActiveTemplate, ...]:
        """Return all templates of a stream."""
        touch = self._client.touch(name)
        return tuple(map(stream_records.to_template, touch.templates))

    def activate(self, name: str, wanted: Sequence[Template]) -> tuple[ActiveTemplate, ...]:
        """Activate templates for a stream, all or none; active ones are renewed."""
        templates = self._client.touch_templates(name, wanted)
        return tuple(map(stream_records.to_template, templates))

    def wait(self, name: str, cursor: str | None, keys: Sequence[Key], timeout_s: float) -> Touched:
        """Wait until a change after `cursor` touches one of the keys, or until the timeout.

        After the first response it retries for as long as a follower.
        """
        timeout = None if timeout_s == math.inf else timeout_s
        waiter = TouchWaiter(self._client.settings.address, name, keys, cursor, timeout)
        touched = waiter.receive(self._client.send(waiter.call()))
        retries = start_retries(limits.CLIENT_FOLLOW_RETRY_S)
        while touched is None:
            try:
                touched = waiter.receive(self._client.send(waiter.call()))
                retries.restart()
            except FourfoldError as error:
                time.sleep(retries.pause(error))
        return touched
