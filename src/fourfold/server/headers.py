"""Headers of the Durable Streams protocol: strict parsing, and one way to write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from msgspec import UnsetType

from fourfold import limits
from fourfold.errors import FourfoldError, InvalidInput, UnsupportedEncoding
from fourfold.models.streams import Producer, StreamInfo, record_headers
from fourfold.models.streams.rule_changes import UNCHANGED
from fourfold.models.streams.settings import SettingsChange
from fourfold.models.streams.validation import (
    JSON,
    Offset,
    check_expected,
    check_key,
    format_offset,
    plain_type,
)
from fourfold.server.request import Headers, Request

STREAM_PREFIX: Final = "/v1/stream/"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TAG = re.compile(r'"[^"]*"')
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

DEFAULT_HEADERS: Final[Headers] = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response, errors included; `origins` replaces the second for allowed origins."""

_APPEND_HEADERS: Final = frozenset(
    {
        "producer-id",
        "producer-epoch",
        "producer-seq",
        "stream-seq",
        "stream-closed",
        "stream-key",
        "stream-expected-offset",
        "stream-record-headers",
        "content-encoding",
    }
)
"""Headers that change the meaning of an append, besides Content-Type."""


def check_encoding(request: Request) -> None:
    """Raise UnsupportedEncoding for a body with a Content-Encoding other than identity."""
    coding = request.header("content-encoding")
    if coding is not None and coding.strip().lower() not in {"", "identity"}:
        raise UnsupportedEncoding(f"content-encoding must be identity, got {coding!r:.80}")


def parse_settings(request: Request) -> SettingsChange:
    """Return the stream settings that a request changes; the value `none` removes a setting."""
    return SettingsChange(
        _setting(request, "stream-ttl", parse_number),
        _setting(request, "stream-expires-at", lambda request, _: parse_expiry_ms(request)),
        _setting(request, "stream-retention-seconds", parse_number),
        _setting(request, "stream-retention-bytes", parse_number),
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


def content_headers(info: StreamInfo) -> Headers:
    """Return the Content-Type of a stream, with a sandbox if necessary."""
    return content_type_headers(info.content_type)


def content_type_headers(content_type: str) -> Headers:
    """Return the Content-Type of data that a client stored.

    Content that a browser might run gets a sandbox, without the cookies and storage of the site.
    """
    if plain_type(content_type) in _PASSIVE:
        return {"content-type": content_type}
    return {"content-type": content_type, "content-security-policy": _SANDBOX}


def parse_number(request: Request, name: str) -> int | None:
    """Return a header that is a whole number without leading zeros, or None if it is absent."""
    text = request.header(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{name}: must be a whole number, got {text!r:.80}")
    return int(text)


def parse_closed(request: Request) -> bool:
    """Return True if Stream-Closed is `true`; any other value is ignored."""
    return (request.header("stream-closed") or "").lower() == "true"


def parse_expiry_ms(request: Request) -> int | None:
    """Return Stream-Expires-At in milliseconds since the epoch, or None if it is absent."""
    text = request.header("stream-expires-at")
    if text is None:
        return None
    try:
        expires_at = datetime.fromisoformat(text.upper()) if _RFC3339.fullmatch(text) else None
    except ValueError:
        expires_at = None
    if expires_at is None:
        raise InvalidInput(
            f"stream-expires-at must be an RFC 3339 time with a time zone, got {text!r:.80}",
            hint="Send a time such as 2030-01-31T12:00:00Z.",
        )
    return int(expires_at.timestamp() * 1000)


def parse_routing_key(request: Request) -> bytes | None:
    """Return the routing key of an append, percent-decoded, or None if it is absent."""
    text = request.header("stream-key")
    return None if text is None else check_key(unquote_to_bytes(text))


def parse_expected(request: Request) -> Offset | None:
    """Return the offset at which a stream must end for an append, or None if it is absent."""
    text = request.header("stream-expected-offset")
    if text is None:
        return None
    expected = check_expected(text)
    assert isinstance(expected, Offset)
    return expected


def parse_record_headers(request: Request) -> bytes | None:
    """Return the headers of the records of an append, as stored, or None if there are none."""
    text = request.header("stream-record-headers")
    return None if text is None else record_headers.parse_headers(text)


def plain_content_type(fields: Headers) -> str | None:
    """Return the content type if no other header changes the meaning of the append."""
    return None if _APPEND_HEADERS & fields.keys() else fields.get("content-type")


def parse_producer(request: Request) -> Producer | None:
    """Return the producer of an append; all three producer headers are required, or none."""
    fields = request.headers
    name, epoch, seq = (
        fields.get("producer-id"),
        fields.get("producer-epoch"),
        fields.get("producer-seq"),
    )
    if name is None and epoch is None and seq is None:
        return None
    if not name or epoch is None or seq is None:
        raise InvalidInput("Producer-Id, Producer-Epoch and Producer-Seq must be sent together")
    numbers = parse_number(request, "producer-epoch"), parse_number(request, "producer-seq")
    assert numbers[0] is not None
    assert numbers[1] is not None
    return Producer(name, numbers[0], numbers[1])


def parse_fork_source(request: Request) -> str | None:
    """Return the stream to fork from, sent as a path or as a bare name; None if absent."""
    value = request.header("stream-forked-from")
    if value is None:
        return None
    try:
        path = unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("stream-forked-from: must be UTF-8") from None
    mounted = request.root + STREAM_PREFIX
    return path.removeprefix(mounted if path.startswith(mounted) else STREAM_PREFIX)


def matches_etag(request: Request, etag: str) -> bool:
    """Return True if the client has the content of a strong ETag already.

    Tags are compared weakly, as RFC 9110 requires for If-None-Match: caches may have weakened them.
    """
    value = request.header("if-none-match")
    return value is not None and (value.strip() == "*" or etag in _TAG.findall(value))


def stream_headers(info: StreamInfo) -> Headers:
    """Return all headers of a response to HEAD."""
    return {
        "content-type": info.content_type,
        "cache-control": "no-store",
        **position_headers(info, info.next_offset, closed=info.closed),
        **first_offset_header(info),
        **_lifetime_headers(info),
        **_retention_headers(info),
    }


def _lifetime_headers(info: StreamInfo) -> Headers:
    if info.ttl_seconds is not None:
        return {"stream-ttl": str(info.ttl_seconds)}
    if info.expires_at_ms is not None:
        # Streams created before the limit existed may expire later than a datetime can express.
        end_ms = min(info.expires_at_ms, limits.STREAM_EXPIRES_MS_MAX)
        end = _EPOCH + timedelta(milliseconds=end_ms)
        return {"stream-expires-at": end.isoformat().replace("+00:00", "Z")}
    return {}


def _retention_headers(info: StreamInfo) -> Headers:
    settings = (
        ("stream-retention-seconds", info.retention_seconds),
        ("stream-retention-bytes", info.retention_bytes),
    )
    return {name: str(value) for name, value in settings if value is not None}


def error_headers(error: FourfoldError) -> Headers:
    """Return the headers that a client needs, besides the status, to handle an error."""
    details = error.details
    headers: Headers = {}
    if error.kind == "stream_closed":
        headers = {"stream-closed": "true", "stream-next-offset": str(details["next_offset"])}
    elif error.kind == "precondition_failed" and "next_offset" in details:
        headers = {"stream-next-offset": str(details["next_offset"])}
    elif "first_offset" in details:
        headers = {"stream-first-offset": str(details["first_offset"])}
    elif error.kind == "producer_fenced":
        headers = {"producer-epoch": str(details["epoch"])}
    elif error.kind == "producer_gap":
        headers = {
            "producer-expected-seq": str(details["expected"]),
            "producer-received-seq": str(details["received"]),
        }
    elif error.kind == "unauthorized":
        headers = {"www-authenticate": "Bearer"}
    elif error.kind == "already_exists" and details.get("closed"):
        headers = {"stream-closed": "true"}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    return headers


def first_offset_header(info: StreamInfo) -> Headers:
    """Return the header with the offset of the earliest retained record."""
    return {"stream-first-offset": format_offset(info.first_offset, info.incarnation_number)}


def position_headers(info: StreamInfo, next_offset: int, *, closed: bool) -> Headers:
    """Return the headers with a reader's position in a stream."""
    headers = {"stream-next-offset": format_offset(next_offset, info.incarnation_number)}
    if closed:
        headers["stream-closed"] = "true"
    return headers
