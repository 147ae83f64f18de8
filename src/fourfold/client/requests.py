"""What a client asks for: each operation of the protocol as a request. Pure.

A call says whether it may be sent again when no answer came. It may when a second one changes
nothing: reads, a creation, an end, and an append that a producer has numbered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from msgspec import UnsetType

from fourfold.errors import InvalidInput
from fourfold.models.streams.admission import check_producer
from fourfold.models.streams.records import Producer
from fourfold.models.streams.rules import UNCHANGED
from fourfold.models.streams.validation import JSON, check_key, check_name

STREAMS = "/v1/stream"
_PLAIN = "!#$&'()*+,/:;=?@[]"
"""What a header carries as it is."""
Live = Literal["long-poll", "sse"]
Value = TypeVar("Value")


class Call(NamedTuple):
    """One request."""

    method: str
    url: str
    what: str
    """In words, for messages: append to 'orders'."""
    headers: dict[str, str]
    params: dict[str, str]
    body: bytes = b""
    repeatable: bool = True
    live: bool = False


class Address:
    """Where a server is."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise InvalidInput(
                f"{url!r:.200} is not the address of a server",
                hint="It looks like http://127.0.0.1:4437.",
            )
        self.root = url.rstrip("/").removesuffix(STREAMS)

    def stream(self, name: str) -> str:
        return f"{self.root}{STREAMS}/{quote(check_name(name))}"

    def list(self) -> str:
        return f"{self.root}/v1/streams"


def create(
    address: Address,
    name: str,
    content_type: str | None,
    *,
    ttl: int | None = None,
    expires_at: datetime | str | None = None,
    closed: bool = False,
    body: bytes = b"",
    retention_seconds: int | None = None,
    retention_bytes: int | None = None,
    fork_from: str | None = None,
    fork_offset: str | None = None,
    fork_sub_offset: int | None = None,
) -> Call:
    headers = _present(
        ("content-type", content_type),
        ("stream-ttl", ttl),
        ("stream-expires-at", _time(expires_at)),
        ("stream-closed", "true" if closed else None),
        ("stream-retention-seconds", retention_seconds),
        ("stream-retention-bytes", retention_bytes),
        ("stream-forked-from", fork_from and f"{STREAMS}/{quote(check_name(fork_from))}"),
        ("stream-fork-offset", fork_offset),
        ("stream-fork-sub-offset", fork_sub_offset),
    )
    return Call("PUT", address.stream(name), f"create {name!r}", headers, {}, body)


def configure(
    address: Address,
    name: str,
    *,
    ttl: int | UnsetType | None = UNCHANGED,
    expires_at: datetime | str | UnsetType | None = UNCHANGED,
    retention_seconds: int | UnsetType | None = UNCHANGED,
    retention_bytes: int | UnsetType | None = UNCHANGED,
) -> Call:
    given = {
        "stream-ttl": ttl,
        "stream-expires-at": expires_at,
        "stream-retention-seconds": retention_seconds,
        "stream-retention-bytes": retention_bytes,
    }
    headers = _present(
        *(
            (key, "none" if value is None else _time(value))
            for key, value in given.items()
            if not isinstance(value, UnsetType)
        )
    )
    return Call("PATCH", address.stream(name), f"configure {name!r}", headers, {})


def append(
    address: Address,
    name: str,
    content_type: str,
    body: bytes,
    *,
    producer: Producer | None = None,
    seq: str | None = None,
    close: bool = False,
    key: str | None = None,
) -> Call:
    if not body and not close:
        raise InvalidInput("there is nothing to append")
    if producer is not None:
        check_producer(producer)
    headers = _present(
        ("content-type", content_type if body else None),
        ("stream-seq", seq),
        ("stream-closed", "true" if close else None),
        ("stream-key", None if key is None else quote(check_key(key), safe=_PLAIN)),
        ("producer-id", producer and producer.id),
        ("producer-epoch", None if producer is None else producer.epoch),
        ("producer-seq", None if producer is None else producer.seq),
    )
    repeatable = producer is not None or not body
    what = f"append to {name!r}" if body else f"close {name!r}"
    return Call("POST", address.stream(name), what, headers, {}, body, repeatable)


def read(
    address: Address,
    name: str,
    offset: str,
    live: Live | None = None,
    cursor: str | None = None,
    *,
    records: bool = False,
    limit: int | None = None,
    key: str | None = None,
) -> Call:
    params = _present(
        ("offset", offset),
        ("key", None if key is None else check_key(key).decode()),
        ("live", live),
        ("cursor", cursor),
        ("format", "records" if records else None),
        ("limit", limit),
    )
    # What comes event by event must come at once, and not when a compressor has enough of it.
    headers = (
        {"accept": "text/event-stream", "accept-encoding": "identity"} if live == "sse" else {}
    )
    what = f"read {name!r}" if live is None else f"follow {name!r}"
    return Call("GET", address.stream(name), what, headers, params, live=live is not None)


def head(address: Address, name: str) -> Call:
    return Call("HEAD", address.stream(name), f"look at {name!r}", {}, {})


def delete(address: Address, name: str) -> Call:
    return Call("DELETE", address.stream(name), f"delete {name!r}", {}, {})


def page(address: Address, prefix: str, after: str, limit: int) -> Call:
    params = _present(("prefix", prefix or None), ("after", after or None), ("limit", limit))
    return Call("GET", address.list(), "list the streams", {}, params)


def totals(address: Address) -> Call:
    return Call("GET", f"{address.list()}/totals", "count the streams", {}, {})


def json_body(values: Iterable[Any]) -> bytes:
    """Values as the body of an append, each a message of its own."""
    parts = [as_json(value) for value in values]
    if not parts:
        raise InvalidInput("there is nothing to append")
    return b"[" + b",".join(parts) + b"]"


def as_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a message is not JSON: {error}") from None


def as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data)


def is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == JSON


def _present(*pairs: tuple[str, object]) -> dict[str, str]:
    found = {name: str(value) for name, value in pairs if value is not None}
    for name, value in found.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise InvalidInput(f"{name} cannot hold the end of a line")
    return found


def _time(moment: datetime | Value) -> str | Value:
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise InvalidInput("expires_at has no time zone")
    return moment.isoformat()
