"""Requests of the client: each operation of the protocol as a `Call`, without I/O.

A call states whether it may be sent again after a lost response. It may if a second one changes
nothing: reads, creation, close, and an append that a producer has numbered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from msgspec import UnsetType

from fourfold import limits
from fourfold.content.filters import parse_filter
from fourfold.errors import InvalidInput
from fourfold.models.streams.admission import check_producer
from fourfold.models.streams.feed_records import check_after
from fourfold.models.streams.records import Producer, Where
from fourfold.models.streams.rule_changes import UNCHANGED
from fourfold.models.streams.validation import JSON, check_key, check_name

STREAMS = "/v1/stream"
_HEADER_SAFE = "!#$&'()*+,/:;=?@[]"
"""Characters that a header carries unescaped."""
Live = Literal["long-poll", "sse"]
Value = TypeVar("Value")


class Call(NamedTuple):
    """A request."""

    method: str
    url: str
    operation: str
    """Description for error messages: append to 'orders'."""
    headers: dict[str, str]
    params: dict[str, Any]
    body: bytes = b""
    repeatable: bool = True
    live: bool = False
    bounded: bool = False
    """True for a request with a deadline of its own: after that it is not sent again."""
    accepted: tuple[int, ...] = ()
    """Statuses besides 2xx whose body is a result, not an error."""
    response_max: int | None = None
    """Bytes of the response after which it is refused; None without a limit."""


class Address:
    """The base URL of a server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise InvalidInput(
                f"url: must be the URL of a server, got {url!r:.200}",
                hint="Pass a URL such as http://127.0.0.1:4437.",
            )
        self.root = url.rstrip("/").removesuffix(STREAMS)

    def stream(self, name: str) -> str:
        """Return the URL of a stream."""
        return f"{self.root}{STREAMS}/{quote(check_name(name))}"

    def list(self) -> str:
        """Return the URL of the list of streams."""
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
    """Build the request that creates a stream."""
    headers = stringify(
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
    """Build the request that changes settings of a stream."""
    settings = {
        "stream-ttl": ttl,
        "stream-expires-at": expires_at,
        "stream-retention-seconds": retention_seconds,
        "stream-retention-bytes": retention_bytes,
    }
    headers = stringify(
        *(
            (key, "none" if value is None else _time(value))
            for key, value in settings.items()
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
    expected: str | None = None,
    headers: bytes | None = None,
) -> Call:
    """Build the request that appends to a stream, closes it, or both."""
    if not body and not close:
        raise InvalidInput("append: the body is empty")
    if producer is not None:
        check_producer(producer)
    fields = stringify(
        ("content-type", content_type if body else None),
        ("stream-seq", seq),
        ("stream-closed", "true" if close else None),
        ("stream-key", None if key is None else quote(check_key(key), safe=_HEADER_SAFE)),
        ("stream-expected-offset", expected),
        ("stream-record-headers", None if headers is None else _to_ascii(headers)),
        ("producer-id", producer and producer.id),
        ("producer-epoch", None if producer is None else producer.epoch),
        ("producer-seq", None if producer is None else producer.seq),
    )
    repeatable = producer is not None or not body
    operation = f"append to {name!r}" if body else f"close {name!r}"
    return Call("POST", address.stream(name), operation, fields, {}, body, repeatable)


def read(
    address: Address,
    name: str,
    offset: str | None,
    live: Live | None = None,
    cursor: str | None = None,
    *,
    records: bool = False,
    limit: int | None = None,
    key: str | None = None,
    where: Where | None = None,
    since_ms: int | None = None,
) -> Call:
    """Build the request that reads or follows a stream, from an offset or since a time."""
    field = where if isinstance(where, tuple) else None
    if key is not None and field is not None:
        raise InvalidInput("pass key, or a field and its value, not both", hint="Use a filter.")
    has_filter = where is not None and field is None
    params = stringify(
        ("offset", offset),
        ("since", since_ms),
        ("key", None if key is None else check_key(key).decode()),
        ("field", None if field is None else field[0]),
        ("value", None if field is None else to_json(field[1]).decode()),
        ("filter", to_json(parse_filter(where).where).decode() if has_filter else None),
        ("live", live),
        ("cursor", cursor),
        ("format", "records" if records else None),
        ("limit", limit),
    )
    # A compressor would delay events until its buffer is full.
    headers = (
        {"accept": "text/event-stream", "accept-encoding": "identity"} if live == "sse" else {}
    )
    operation = f"read {name!r}" if live is None else f"follow {name!r}"
    return Call("GET", address.stream(name), operation, headers, params, live=live is not None)


def head(address: Address, name: str) -> Call:
    """Build the request for the state of a stream."""
    return Call("HEAD", address.stream(name), f"get {name!r}", {}, {})


def details(address: Address, name: str) -> Call:
    """Build the request for all metadata of a stream of a Fourfold server."""
    return Call("GET", f"{address.stream(name)}/_details", f"get {name!r}", {}, {})


def delete(address: Address, name: str) -> Call:
    """Build the request that deletes a stream."""
    return Call("DELETE", address.stream(name), f"delete {name!r}", {}, {})


def list_page(
    address: Address, prefix: str, after: str, limit: int, content_type: str = ""
) -> Call:
    """Build the request for a page of the list of streams."""
    params = stringify(
        ("prefix", prefix or None),
        ("after", after or None),
        ("limit", limit),
        ("content_type", content_type or None),
    )
    return Call("GET", address.list(), "list the streams", {}, params)


def list_of_stream(address: Address, verb: str, name: str) -> Call:
    """Build the request for a list about one stream: its producers, segments or subscriptions."""
    path = f"{address.list()}/{verb}/{quote(check_name(name))}"
    return Call("GET", path, f"list the {verb} of {name!r}", {}, {})


def list_keys(
    address: Address, name: str, prefix: str | bytes, after: str | bytes | None, limit: int
) -> Call:
    """Build the request for a page of the routing keys of a stream."""
    params = stringify(
        ("prefix", quote(check_key(prefix)) if prefix else None),
        ("after", None if after is None else quote(check_key(after))),
        ("limit", limit),
    )
    return list_of_stream(address, "keys", name)._replace(params=params)


def with_cursor(call: Call, cursor: str | None, limit: int) -> Call:
    """Return the request for a page of a list, the first one without a cursor."""
    size = max(1, min(limit, limits.PAGE_ITEMS_MAX))
    return call._replace(params=call.params | stringify(("cursor", cursor), ("limit", size)))


def totals(address: Address) -> Call:
    """Build the request that counts streams, records and bytes."""
    return Call("GET", f"{address.list()}/totals", "count the streams", {}, {})


def live(address: Address, prefix: str, after: str | None) -> Call:
    """Build the request for the feed over all streams of a Fourfold server."""
    headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
    params = stringify(("prefix", prefix or None), ("after", check_after(after)))
    return Call("GET", f"{address.list()}/live", "follow the streams", headers, params, live=True)


def json_body(values: Iterable[Any]) -> bytes:
    """Encode values as the body of an append, each as one message."""
    parts = [to_json(value) for value in values]
    if not parts:
        raise InvalidInput("append: the body is empty")
    return b"[" + b",".join(parts) + b"]"


def to_json(value: Any) -> bytes:
    """Encode a value as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"message: must be a JSON value: {error}") from None


def to_bytes(data: bytes | str) -> bytes:
    """Return bytes, or text encoded as UTF-8."""
    return data.encode() if isinstance(data, str) else bytes(data)


def is_json(content_type: str) -> bool:
    """Return True if a content type is that of JSON."""
    return content_type.partition(";")[0].strip().lower() == JSON


def stringify(*pairs: tuple[str, object]) -> dict[str, Any]:
    """Return the pairs whose value is not None as strings; raise InvalidInput for line breaks."""
    strings = {name: str(value) for name, value in pairs if value is not None}
    for name, value in strings.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise InvalidInput(f"{name}: must not contain a line break")
    return strings


def _to_ascii(text: bytes) -> str:
    """Return JSON in ASCII, which is all that a header carries."""
    return json.dumps(json.loads(text), separators=(",", ":"))


def _time(value: datetime | Value) -> str | Value:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise InvalidInput("expires_at: must have a time zone")
    return value.isoformat()


def format_time(at: datetime | None) -> str | None:
    """Return a time as a parameter; raise InvalidInput without a time zone."""
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInput(f"at must be a datetime with a time zone, got {at!r:.100}")
    return at.isoformat()
