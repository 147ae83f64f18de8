"""Headers of the Durable Streams protocol: read strictly, written the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from msgspec import UnsetType

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, UnsupportedEncoding
from fourfold.models.streams import Producer, StreamInfo
from fourfold.models.streams.rules import UNCHANGED
from fourfold.models.streams.settings import Settings
from fourfold.models.streams.validation import JSON, check_key, plain_type, show_offset
from fourfold.server.request import Headers, Request

STREAM_PREFIX: Final = "/v1/stream/"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TAG = re.compile(r'"[^"]*"')
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

ALWAYS: Headers = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "cross-origin",
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "Stream-Next-Offset, Stream-First-Offset, Stream-Cursor, "
    "Stream-Up-To-Date, Stream-Closed, Stream-TTL, Stream-Expires-At, "
    "Stream-Retention-Seconds, Stream-Retention-Bytes, Producer-Epoch, "
    "Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag, Content-Type, Location, "
    "Retry-After, stream-sse-data-encoding",
}
"""On every answer, also of errors: a browser must not guess, and may read across origins."""

_OF_APPENDS: Final = frozenset(
    {
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "stream-seq",
        "stream-closed",
        "stream-key",
        "content-encoding",
    }
)
"""What changes the meaning of an append, beside the type of its body."""

PREFLIGHT: Headers = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    "access-control-allow-headers": "Content-Type, Authorization, If-None-Match, Stream-Seq, "
    "Stream-TTL, Stream-Expires-At, Stream-Closed, Producer-Id, Producer-Epoch, Producer-Seq, "
    "Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Stream-Retention-Seconds, "
    "Stream-Retention-Bytes, Stream-Key",
    "access-control-max-age": "86400",
}


def refuse_encoding(request: Request) -> None:
    """Raise UnsupportedEncoding for a body that is not sent as it is."""
    coding = request.header("content-encoding")
    if coding is not None and coding.strip().lower() not in {"", "identity"}:
        raise UnsupportedEncoding(f"content-encoding must be identity, got {coding!r:.80}")


def settings(request: Request) -> Settings:
    """The settings of a stream that a request changes; `none` removes one."""
    return Settings(
        _setting(request, "stream-ttl", number),
        _setting(request, "stream-expires-at", lambda request, _: expiry_ms(request)),
        _setting(request, "stream-retention-seconds", number),
        _setting(request, "stream-retention-bytes", number),
    )


def _setting(
    request: Request, name: str, read: Callable[[Request, str], int | None]
) -> int | UnsetType | None:
    text = request.header(name)
    if text is None:
        return UNCHANGED
    return None if text.lower() == "none" else read(request, name)


_PASSIVE: Final = frozenset(
    {JSON, "text/plain", "application/octet-stream", "application/x-ndjson", "text/csv"}
)
_SANDBOX: Final = "default-src 'none'; sandbox"


def content(info: StreamInfo) -> Headers:
    """The type of what a stream holds. What a browser might run runs in a sandbox, without the
    cookies and the storage of the site that the server is a part of.
    """
    if plain_type(info.content_type) in _PASSIVE:
        return {"content-type": info.content_type}
    return {"content-type": info.content_type, "content-security-policy": _SANDBOX}


def number(request: Request, name: str) -> int | None:
    """A header that is a whole number, in the one way to write it."""
    text = request.header(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{name}: {text!r:.80} is not a whole number")
    return int(text)


def is_closed(request: Request) -> bool:
    """Only `true` counts; anything else is as if the header were not there."""
    return (request.header("stream-closed") or "").lower() == "true"


def expiry_ms(request: Request) -> int | None:
    text = request.header("stream-expires-at")
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.upper()) if _RFC3339.fullmatch(text) else None
    except ValueError:
        time = None
    if time is None:
        raise InvalidInput(
            f"stream-expires-at must be an RFC 3339 time with a time zone, got {text!r:.80}",
            hint="As in 2030-01-31T12:00:00Z.",
        )
    return int(time.timestamp() * 1000)


def routing_key(request: Request) -> bytes | None:
    """What the records of an append are found by; percent-encoded where it is not plain text."""
    text = request.header("stream-key")
    return None if text is None else check_key(unquote_to_bytes(text))


def plain_kind(given: Headers) -> str | None:
    """The content type of an append of which the headers tell nothing else."""
    return None if _OF_APPENDS & given.keys() else given.get("content-type")


def producer(request: Request) -> Producer | None:
    """All three headers, or none."""
    given = request.headers
    name, epoch, seq = (
        given.get("producer-id"),
        given.get("producer-epoch"),
        given.get("producer-seq"),
    )
    if name is None and epoch is None and seq is None:
        return None
    if not name or epoch is None or seq is None:
        raise InvalidInput("Producer-Id, Producer-Epoch and Producer-Seq belong together")
    numbers = number(request, "producer-epoch"), number(request, "producer-seq")
    assert numbers[0] is not None
    assert numbers[1] is not None
    return Producer(name, numbers[0], numbers[1])


def fork_source(request: Request) -> str | None:
    """The stream that a new one is forked from: a path, as in an address, or a bare name."""
    given = request.header("stream-forked-from")
    if given is None:
        return None
    try:
        path = unquote(given, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("stream-forked-from is not UTF-8") from None
    mounted = request.root + STREAM_PREFIX
    return path.removeprefix(mounted if path.startswith(mounted) else STREAM_PREFIX)


def is_known(request: Request, etag: str) -> bool:
    """Whether the reader has what a strong tag names already. Its tags are compared as RFC 9110
    says for If-None-Match: caches may have made weak ones of them.
    """
    given = request.header("if-none-match")
    return given is not None and (given.strip() == "*" or etag in _TAG.findall(given))


def of_stream(info: StreamInfo) -> Headers:
    """Everything that HEAD tells of a stream."""
    return {
        "content-type": info.content_type,
        "cache-control": "no-store",
        **position(info, info.next_offset, closed=info.closed),
        **first_offset(info),
        **_lifetime(info),
        **_retention(info),
    }


def _lifetime(info: StreamInfo) -> Headers:
    if info.ttl_seconds is not None:
        return {"stream-ttl": str(info.ttl_seconds)}
    if info.expires_at_ms is not None:
        # Streams from before the limit may have a later end than a datetime can be.
        end_ms = min(info.expires_at_ms, limits.STREAM_EXPIRES_MS_MAX)
        end = _EPOCH + timedelta(milliseconds=end_ms)
        return {"stream-expires-at": end.isoformat().replace("+00:00", "Z")}
    return {}


def _retention(info: StreamInfo) -> Headers:
    kept = (
        ("stream-retention-seconds", info.retention_seconds),
        ("stream-retention-bytes", info.retention_bytes),
    )
    return {name: str(value) for name, value in kept if value is not None}


def of_error(error: FourfoldError) -> Headers:
    """What a client needs beside the status to go on."""
    details = error.details
    found: Headers = {}
    if error.kind == "stream_closed":
        found = {"stream-closed": "true", "stream-next-offset": str(details["next_offset"])}
    elif "first_offset" in details:
        found = {"stream-first-offset": str(details["first_offset"])}
    elif error.kind == "producer_fenced":
        found = {"producer-epoch": str(details["epoch"])}
    elif error.kind == "producer_gap":
        found = {
            "producer-expected-seq": str(details["expected"]),
            "producer-received-seq": str(details["received"]),
        }
    elif error.kind == "unauthorized":
        found = {"www-authenticate": "Bearer"}
    elif error.kind == "already_exists" and details.get("closed"):
        found = {"stream-closed": "true"}
    if error.retry_after is not None:
        found["retry-after"] = str(max(1, round(error.retry_after)))
    return found


def first_offset(info: StreamInfo) -> Headers:
    """Where the earliest kept record of a stream is."""
    return {"stream-first-offset": show_offset(info.first_offset, info.incarnation_number)}


def position(info: StreamInfo, next_offset: int, *, closed: bool) -> Headers:
    """Where a reader of a stream is now."""
    found = {"stream-next-offset": show_offset(next_offset, info.incarnation_number)}
    if closed:
        found["stream-closed"] = "true"
    return found
