"""The streams of a server, with the calls that the commands make on those of a folder.

So a command does not know where its streams are, and prints the same for both.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from fourfold import limits
from fourfold.cli.stream.remote_rules import (
    RemoteProfiles,
    RemoteSchemas,
    RemoteTouches,
    offset_of,
)
from fourfold.client import StreamClient, answers, calls
from fourfold.client.answers import Answer, Listed
from fourfold.client.patience import Patience
from fourfold.errors import BadAnswer, FourfoldError, NotFound, Refused
from fourfold.models.streams import Append, Appended, Chunk, Record, StreamInfo, Wanted, fold
from fourfold.models.streams.messages import join
from fourfold.models.streams.names import START, Offset, show_offset
from fourfold.models.streams.records import Made, Sought, Totals
from fourfold.models.streams.settings import Settings


class RemoteStreams:
    """`Streams`, as far as the command line uses them, over HTTP."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._address = client.settings.address
        self.schemas = RemoteSchemas(client)
        self.profiles = RemoteProfiles(client)
        self.touches = RemoteTouches(client)

    def make(self, wanted: Wanted) -> Made:
        fork = wanted.fork
        end = wanted.expires_at_ms
        call = calls.create(
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
        return Made(info, created)

    def info(self, name: str) -> StreamInfo:
        # A name sorts before all others that begin with it.
        found, _ = self._page(name, "", 1)
        if not found or found[0].name != name:
            raise NotFound(f"there is no stream {name!r}")
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
        told = answers.document(self._client.send(calls.totals(self._address)))
        try:
            return Totals(**told)
        except TypeError:
            raise BadAnswer("the totals of the streams cannot be read") from None

    def append(self, name: str, request: Append) -> Appended:
        """One request. Of a stream of bytes it is one record, whatever its body."""
        kind = request.content_type or self.info(name).content_type
        assert len(request.records) < 2 or calls.is_json(kind)
        call = calls.append(
            self._address,
            name,
            kind,
            join(list(request.records), kind) if request.records else b"",
            producer=request.producer,
            close=request.close,
            key=_text(request.routing_key),
        )
        done = answers.appended(call, self._client.send(call))
        end = offset_of(done.next_offset)
        return Appended(
            end.record, done.duplicate, done.closed, done.producer, end.incarnation_number
        )

    def configure(self, name: str, settings: Settings) -> StreamInfo:
        end = settings.expires_at_ms
        call = calls.configure(
            self._address,
            name,
            ttl=settings.ttl_seconds,
            expires_at=datetime.fromtimestamp(end / 1000, UTC) if isinstance(end, int) else end,
            retention_seconds=settings.retention_seconds,
            retention_bytes=settings.retention_bytes,
        )
        facts = answers.facts(name, self._client.send(call))
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
        sought: Sought | None = None,
    ) -> tuple[None, Chunk]:
        call = calls.read(
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
        call = calls.read(self._address, name, offset, "long-poll", records=True)
        patience = Patience(limits.CLIENT_FOLLOW_RETRY_S)
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

    def _page(self, prefix: str, after: str, limit: int) -> tuple[Sequence[Listed], str | None]:
        return answers.listed(self._client.send(calls.page(self._address, prefix, after, limit)))


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


def _info(row: Listed) -> StreamInfo:
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


def _chunk(answer: Answer, offset: str) -> Chunk:
    closed = answers.is_true(answer.headers, "stream-closed")
    end, number = offset_of(answer.headers.get("stream-next-offset", offset))
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
    start = found[0].offset if found else end
    current = closed or answers.is_true(answer.headers, "stream-up-to-date")
    return Chunk(tuple(found), start, end, current, closed, number)


def _shown(offset: int | Offset | None) -> str | None:
    """A bare number is not sent: only the server knows the incarnation."""
    assert not isinstance(offset, int)
    return None if offset is None else show_offset(*offset)


def _record(offset: int | Offset) -> int:
    return offset.record if isinstance(offset, Offset) else offset


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()
