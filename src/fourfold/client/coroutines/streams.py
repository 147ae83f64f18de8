"""The client for coroutines.

async with AsyncStreamClient("http://127.0.0.1:4437", key=None) as client:
    orders = await client.create("orders")
    await orders.append_json([{"id": 1}])
    async with orders.follow("now") as parts:
        async for part in parts: ...
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UnsetType

from fourfold import limits
from fourfold.client import requests, responses, rules
from fourfold.client.coroutines.connection import AsyncConnection, AsyncLiveFeed
from fourfold.client.producer import AsyncProducer, BatchOptions
from fourfold.client.reader import BytesReader, LiveReader, MessageReader, TextReader
from fourfold.client.requests import Live
from fourfold.client.responses import AppendResult, Part, StreamFacts, StreamListing
from fourfold.client.rules import (
    LiveTemplate,
    SchemaRegistry,
    StreamProfile,
    TouchFacts,
    TouchWaiter,
)
from fourfold.client.transport import ConnectionSettings, start_retries, was_sent
from fourfold.errors import FourfoldError, NotFound, ServerUnreachable
from fourfold.models.streams import rule_changes
from fourfold.models.streams.record_headers import encode_headers
from fourfold.models.streams.records import Producer, Where
from fourfold.models.streams.rule_changes import UNCHANGED, FieldsChange, KeyChange
from fourfold.models.streams.touch.records import Key, Template, WaitResult
from fourfold.models.streams.validation import JSON, START


class AsyncStreamClient(AsyncConnection):
    """A client of a server. It belongs to one event loop.

    Args:
        url: Address of the server, such as `http://127.0.0.1:4437`.
        key: API key, if the server requires one.
        timeout: Seconds to wait for a response.
        retry_for: Seconds for which a request that is safe to repeat is retried while the server is
            unreachable or busy; None retries forever.
        verify: Trusted certificates: True for the usual ones, a file, a context, or False for any.
        headers: Headers to send with every request.
    """

    async def create(
        self,
        name: str,
        content_type: str = JSON,
        *,
        ttl: int | None = None,
        expires_at: datetime | str | None = None,
        closed: bool = False,
        body: bytes = b"",
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> AsyncStream:
        """Create a stream. Idempotent: returns the existing stream if its settings match.

        Retention is an option of Fourfold's server.
        """
        call = requests.create(
            self.settings.address,
            name,
            content_type,
            ttl=ttl,
            expires_at=expires_at,
            closed=closed,
            body=body,
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        return AsyncStream(self, responses.parse_facts(name, await self.send(call)))

    async def open(self, name: str) -> AsyncStream:
        """Return an existing stream; raise NotFound if there is none."""
        response = await self.send(requests.head(self.settings.address, name))
        return AsyncStream(self, responses.parse_facts(name, response))

    async def list(
        self, prefix: str = "", *, after: str = "", content_type: str = ""
    ) -> AsyncIterator[StreamListing]:
        """Yield the streams of a Fourfold server in the order of their names."""
        start: str | None = after
        while start is not None:
            call = requests.list_page(
                self.settings.address, prefix, start, limits.LIST_STREAMS_MAX, content_type
            )
            streams, start = responses.parse_listing(await self.send(call))
            for stream in streams:
                yield stream

    async def delete(self, name: str) -> None:
        """Delete a stream; its forks remain."""
        call = requests.delete(self.settings.address, name)
        retries = start_retries(self.settings.retry_for)
        may_be_done = False
        while True:
            try:
                await self.transport.send(call)
            except NotFound:
                # A retry after a lost response: the first request deleted it.
                if not may_be_done:
                    raise
            except FourfoldError as error:
                may_be_done = may_be_done or (
                    isinstance(error, ServerUnreachable) and was_sent(error)
                )
                await asyncio.sleep(retries.pause(error))
                continue
            return

    # Rules

    async def schema(self, name: str) -> SchemaRegistry:
        """Return the schema registry of a stream."""
        return rules.parse_registry(await self.send(rules.schema(self.settings.address, name)))

    async def set_schema(
        self,
        name: str,
        schema: Any = UNCHANGED,
        *,
        lens: Any = None,
        routing_key: KeyChange = UNCHANGED,
        search: FieldsChange = UNCHANGED,
    ) -> SchemaRegistry:
        """Set a new schema version, the routing key, or the search fields of a stream.

        `lens` converts messages of the previous version to the new one. What is not passed stays. A
        schema is not sent again when no response arrives: that raises OutcomeUnknown.
        """
        change = rule_changes.registry_change(schema, lens, routing_key, search)
        call = rules.set_schema(self.settings.address, name, change)
        return rules.parse_registry(await self.send(call))

    async def profile(self, name: str) -> StreamProfile:
        """Return the profile of a stream."""
        return rules.parse_profile(await self.send(rules.profile(self.settings.address, name)))

    async def set_profile(
        self,
        name: str,
        kind: str,
        *,
        touch: bool | None = None,
        redact: Sequence[str] | None = None,
        routing_key: Sequence[str] | None = None,
    ) -> StreamProfile:
        """Set the profile of a stream: "generic", "state-protocol" (with `touch`), or "evlog".

        "evlog" accepts `redact` and `routing_key`. What is not passed has its default.
        """
        document = rule_changes.profile(kind, touch, redact, routing_key)
        call = rules.set_profile(self.settings.address, name, document)
        return rules.parse_profile(await self.send(call))

    async def touch(self, name: str) -> TouchFacts:
        """Return the touch cursor and the live templates of a stream."""
        return rules.parse_touch_facts(await self.send(rules.touch(self.settings.address, name)))

    async def touch_wait(
        self,
        name: str,
        keys: Sequence[Key],
        *,
        cursor: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a wait that is over gives a cursor
    ) -> WaitResult:
        """Wait until a change after `cursor` (default: now) touches one of the keys.

        Waits at most `timeout` seconds, forever by default. It continues over the limits of the
        server and over broken connections, and misses no change. Cancel it to end it.
        """
        waiter = TouchWaiter(self.settings.address, name, keys, cursor, timeout)
        while True:
            change = waiter.receive(await self.send(waiter.call()))
            if change is not None:
                return change

    async def touch_templates(
        self, name: str, templates: Sequence[Template]
    ) -> tuple[LiveTemplate, ...]:
        """Activate live templates, in the given order, so that `touch_wait` can use them."""
        call = rules.touch_templates(self.settings.address, name, templates)
        return rules.parse_templates(await self.send(call))


class AsyncStream:
    """A stream of a server. It holds no connection open."""

    def __init__(self, client: AsyncStreamClient, facts: StreamFacts) -> None:
        self._client = client
        self._address = client.settings.address
        self.facts = facts
        """State of the stream when this handle was created; `head()` updates it."""
        self.name = facts.name
        self.content_type = facts.content_type

    async def head(self) -> StreamFacts:
        """Return the current state of the stream. This does not extend its TTL."""
        response = await self._client.send(requests.head(self._address, self.name))
        self.facts = responses.parse_facts(self.name, response)
        return self.facts

    async def append(
        self,
        data: bytes | str,
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | None = None,
        expected: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append bytes or text; to a JSON stream, a message or an array of messages.

        Returns when they are on disk. `key` is the routing key by which they can be read. Without a
        producer an append is not repeated when no response arrives, and raises OutcomeUnknown.
        With `expected`, a Fourfold server appends only if the stream ends exactly at that offset,
        and otherwise the call raises PreconditionFailed; `headers` are texts that each record has.
        """
        call = requests.append(
            self._address,
            self.name,
            self.content_type,
            requests.to_bytes(data),
            producer=producer,
            seq=seq,
            close=close,
            key=key,
            expected=expected,
            headers=encode_headers(headers),
        )
        return responses.parse_appended(call, await self._client.send(call))

    async def append_json(
        self,
        values: list[Any] | tuple[Any, ...],
        *,
        producer: Producer | None = None,
        seq: str | None = None,
        close: bool = False,
        key: str | None = None,
        expected: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AppendResult:
        """Append values, each as one message."""
        return await self.append(
            requests.json_body(values),
            producer=producer,
            seq=seq,
            close=close,
            key=key,
            expected=expected,
            headers=headers,
        )

    async def close(self) -> AppendResult:
        """Close the stream: no more appends, and readers receive an end-of-stream marker."""
        return await self.append(b"", close=True)

    async def delete(self) -> None:
        """Delete the stream; its forks remain."""
        await self._client.delete(self.name)

    async def configure(
        self,
        *,
        ttl: int | UnsetType | None = UNCHANGED,
        expires_at: datetime | str | UnsetType | None = UNCHANGED,
        retention_seconds: int | UnsetType | None = UNCHANGED,
        retention_bytes: int | UnsetType | None = UNCHANGED,
    ) -> StreamFacts:
        """Change the lifetime or the retention of a stream of a Fourfold server.

        None removes a setting; a setting that is not passed stays. A TTL and a fixed expiry replace
        each other. Records that retention has removed stay removed.
        """
        call = requests.configure(
            self._address,
            self.name,
            ttl=ttl,
            expires_at=expires_at,
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        self.facts = responses.parse_facts(self.name, await self._client.send(call))
        return self.facts

    async def fork(
        self, name: str, at: str | None = None, *, sub_offset: int | None = None
    ) -> AsyncStream:
        """Create a stream that shares all records up to `at` (default: the end) with this one."""
        call = requests.create(
            self._address,
            name,
            None,
            fork_from=self.name,
            fork_offset=at,
            fork_sub_offset=sub_offset,
        )
        return AsyncStream(self._client, responses.parse_facts(name, await self._client.send(call)))

    async def read(
        self, offset: str = START, *, key: str | None = None, where: Where | None = None
    ) -> Part:
        """Return the records after `offset`, as many as the server returns at once.

        With `key`, only records with that routing key, and with `where` only messages that match
        the filter; there may be none in the part.
        """
        call = requests.read(self._address, self.name, offset, key=key, where=where)
        response = await self._client.send(call)
        headers = response.headers
        closed = responses.is_true(headers, "stream-closed")
        return Part(
            response.body,
            headers.get("content-type", self.content_type),
            headers.get("stream-next-offset", offset),
            closed or responses.is_true(headers, "stream-up-to-date"),
            closed,
            headers.get("stream-first-offset"),
        )

    def read_bytes(self, offset: str = START, *, key: str | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from an offset to the end, in pieces of bounded size."""
        return self._client.run(BytesReader(self._address, self.name, offset, key))

    def read_text(self, offset: str = START, *, key: str | None = None) -> AsyncIterator[str]:
        """Yield the text from an offset to the end, in pieces of bounded size."""
        return self._client.run(TextReader(self._address, self.name, offset, key))

    def messages(
        self, offset: str = START, *, key: str | None = None, where: Where | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the messages of a JSON stream from an offset to the end, as received bytes."""
        return self._client.run(MessageReader(self._address, self.name, offset, key, where=where))

    async def items(
        self,
        offset: str = START,
        *,
        where: Where | None = None,
        loads: Callable[[bytes], Any] = json.loads,
    ) -> AsyncIterator[Any]:
        """Yield the messages of a JSON stream from an offset to the end, as values."""
        async for message in self.messages(offset, where=where):
            yield loads(message)

    def follow(
        self,
        offset: str = START,
        *,
        live: Live | None = None,
        key: str | None = None,
        where: Where | None = None,
        retry_for: float | None = limits.CLIENT_FOLLOW_RETRY_S,
    ) -> AsyncFollower:
        """Follow the stream part by part until it is closed, or the follower is stopped.

        After a broken connection it continues from the last offset. `live` is the method of
        waiting: "sse" or "long-poll". By default text is polled for, since events change its line
        endings, and everything else is received as events.
        """
        reader = LiveReader(self._address, self.name, offset, live, key=key, where=where)
        return AsyncFollower(self._client.settings, reader, retry_for)

    def producer(
        self,
        producer_id: str,
        *,
        epoch: int | None = None,
        auto_claim: bool = False,
        batching: BatchOptions | None = None,
        retry_for: float | None = limits.CLIENT_FOLLOW_RETRY_S,
    ) -> AsyncProducer:
        """Create a producer: it sends messages in batches, several at once, and each exactly once.

        Without an `epoch` it begins a new one, and so takes over from an earlier producer of the
        same id. `auto_claim` lets it take over again after another one has.
        """
        return AsyncProducer(
            self._client.settings,
            self.name,
            self.content_type,
            producer_id,
            epoch=epoch,
            auto_claim=auto_claim,
            batching=batching or BatchOptions(),
            retry_for=retry_for,
        )


class AsyncFollower(AsyncLiveFeed[Part]):
    """Iterator over the parts of a stream and those that arrive later.

    Leave its block, or call `stop()`, to end it.
    """

    def __init__(
        self, settings: ConnectionSettings, reader: LiveReader, retry_for: float | None
    ) -> None:
        super().__init__(settings, reader, retry_for)
        self._reader = reader

    @property
    def offset(self) -> str:
        """The offset after the last part that was received."""
        return self._reader.offset
