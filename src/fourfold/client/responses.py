"""Responses of a server as records, and as errors of Fourfold's hierarchy, without I/O.

A Fourfold server sends the kind of an error. Errors of other servers are recognized by status and
headers, so that a program catches the same errors with every server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from fourfold import errors
from fourfold.client.requests import Call, is_json
from fourfold.errors import BadAnswer, FourfoldError, OutcomeUnknown, ServerUnreachable
from fourfold.models.streams.json_messages import has_lone_surrogate, split
from fourfold.models.streams.records import Producer
from fourfold.models.streams.validation import JSON, plain_type
from fourfold.wire.streams import StreamPage

Headers = Mapping[str, str]
B = TypeVar("B", bound=msgspec.Struct)
KINDS: Final = {cls.kind: cls for cls in errors.tree()}
_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_BY_STATUS: Final[dict[int, type[FourfoldError]]] = {
    400: errors.InvalidInput,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.Refused,
    409: errors.Conflict,
    410: errors.StreamGone,
    413: errors.TooLarge,
    429: errors.Overloaded,
    501: errors.Refused,
    503: errors.Busy,
}


class Response(NamedTuple):
    """A complete response."""

    status: int
    headers: Headers
    body: bytes = b""


class StreamFacts(NamedTuple):
    """The state of a stream, as reported by a server."""

    name: str
    content_type: str
    next_offset: str
    closed: bool
    ttl_seconds: int | None = None
    expires_at: str | None = None
    created: bool = False
    """True if this call created the stream."""
    first_offset: str | None = None
    """The earliest retained record; None if the server does not report it."""
    retention_seconds: int | None = None
    retention_bytes: int | None = None


class StreamListing(NamedTuple):
    """A stream in the list of a Fourfold server."""

    name: str
    content_type: str
    first_offset: str
    next_offset: str
    size_bytes: int
    closed: bool
    created_at_ms: int
    ttl_seconds: int | None
    expires_at_ms: int | None


class AppendResult(NamedTuple):
    """The result of an append.

    `duplicate` means that the server had it already; `producer` is the highest request of that
    producer that was accepted.
    """

    next_offset: str
    duplicate: bool
    closed: bool
    producer: Producer | None = None


class Part(NamedTuple):
    """A part of a stream: its bytes, and the offset after them."""

    body: bytes
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    """True if the stream is closed and this part reaches its end."""
    first_offset: str | None = None
    """The earliest retained record at the time of the read; None if not reported."""

    def messages(self) -> list[bytes]:
        """Return the messages of a JSON stream as received; of other streams, all bytes as one."""
        if not is_json(self.content_type):
            return [self.body] if self.body else []
        return split_messages(self.body)

    def items(self, loads: Callable[[bytes], Any] = json.loads) -> list[Any]:
        """Return the messages of a JSON stream as values."""
        return [loads(message) for message in self.messages()]

    def text(self) -> str:
        """Return the bytes decoded as UTF-8."""
        return self.body.decode()


def split_messages(body: bytes) -> list[bytes]:
    """Return the messages of a complete JSON body as received, without encoding them again."""
    try:
        return [bytes(raw) for raw in _RAW.decode(body)] if body else []
    except msgspec.DecodeError as error:
        if body.lstrip()[:1] == b"[" and has_lone_surrogate(body):
            return split(body, JSON, empty_list=True)
        raise BadAnswer(f"JSON stream: expected an array: {error}") from None


def parse_facts(name: str, response: Response) -> StreamFacts:
    """Return the state of a stream from the headers of a response."""
    return StreamFacts(
        name,
        response.headers.get("content-type", "application/octet-stream"),
        response.headers.get("stream-next-offset", ""),
        is_true(response.headers, "stream-closed"),
        _count(response.headers, "stream-ttl"),
        response.headers.get("stream-expires-at"),
        response.status == 201,
        response.headers.get("stream-first-offset"),
        _count(response.headers, "stream-retention-seconds"),
        _count(response.headers, "stream-retention-bytes"),
    )


def _count(headers: Headers, name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if text.isdecimal() else None


def parse_appended(call: Call, response: Response) -> AppendResult:
    """Return the result of an append."""
    headers = response.headers
    producer_id = call.headers.get("producer-id")
    accepted = None
    if producer_id is not None:
        # Some servers send the numbers only if they differ from those of the request.
        epoch = _number(headers, "producer-epoch", call.headers["producer-epoch"])
        seq = _number(headers, "producer-seq", call.headers["producer-seq"])
        accepted = Producer(producer_id, epoch, seq)
    duplicate = accepted is not None and response.status == 204 and bool(call.body)
    closed = is_true(headers, "stream-closed")
    return AppendResult(headers.get("stream-next-offset", ""), duplicate, closed, accepted)


def parse_listing(response: Response) -> tuple[list[StreamListing], str | None]:
    """Return a page of the list of streams, and the name after which the next page begins."""
    page = decode(response, StreamPage, "a list of streams")
    rows = [
        StreamListing(*(getattr(row, name) for name in StreamListing._fields))
        for row in page.streams
    ]
    return rows, page.next_after


def decode(response: Response, kind: type[B], subject: str) -> B:
    """Return the body of a response as a Struct; raise BadAnswer if it is another one."""
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadAnswer(
            f"unexpected response for {subject}: {error}",
            hint="Check that the address is that of a Fourfold server.",
        ) from None


def parse_document(response: Response) -> Any:
    """Return the body of a response, decoded as JSON."""
    try:
        return json.loads(response.body)
    except ValueError:
        raise BadAnswer("response: expected JSON") from None


def is_true(headers: Headers, name: str) -> bool:
    """Return True if a header is `true`."""
    return headers.get(name, "").lower() == "true"


def is_text(content_type: str) -> bool:
    """Return True if a content type is that of text."""
    return plain_type(content_type).startswith("text/")


def check(call: Call, response: Response) -> Response:
    """Return a successful response; raise the error of another."""
    if 200 <= response.status < 300:
        return response
    raise parse_error(call, response)


def parse_error(call: Call, response: Response) -> FourfoldError:
    """Return the error of a response."""
    document = _parse_error_document(response.body)
    message = document.get("message") or document.get("detail")
    if not isinstance(message, str):
        message = f"{call.operation}: the server responded with status {response.status}"
    details = dict(document["details"]) if isinstance(document.get("details"), dict) else {}
    details |= _producer_details(response.headers)
    cls = KINDS.get(str(document.get("kind"))) or _error_class(call, response)
    if issubclass(cls, ServerUnreachable) and not call.repeatable:
        cls = OutcomeUnknown
    hint = document.get("hint")
    return cls(
        message,
        hint=hint if isinstance(hint, str) else None,
        retry_after=_retry_after(response.headers),
        details=details,
    )


def _error_class(call: Call, response: Response) -> type[FourfoldError]:
    status, headers = response.status, response.headers
    cls = _BY_STATUS.get(status, BadAnswer)
    if status == 403 and "producer-epoch" in headers:
        cls = errors.ProducerFenced
    elif status == 409 and is_true(headers, "stream-closed") and call.method == "POST":
        cls = errors.StreamClosed
    elif status == 409 and "producer-expected-seq" in headers:
        cls = errors.ProducerGap
    elif status == 409 and call.method == "PUT":
        cls = errors.AlreadyExists
    elif status == 410 and call.method == "GET":
        cls = errors.OffsetGone
    elif status in {408, 500, 502, 504}:
        cls = ServerUnreachable
    return cls


def _parse_error_document(body: bytes) -> Mapping[str, Any]:
    """Return the error or problem document of a Fourfold server, or an empty one."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    if isinstance(document, dict) and "kind" not in document:
        document = document.get("error")
    return document if isinstance(document, dict) else {}


def _producer_details(headers: Headers) -> dict[str, object]:
    details: dict[str, object] = {}
    for name, key in (
        ("producer-epoch", "epoch"),
        ("producer-expected-seq", "expected"),
        ("producer-received-seq", "received"),
    ):
        if headers.get(name, "").isdecimal():
            details[key] = int(headers[name])
    return details


def _number(headers: Headers, name: str, sent: str) -> int:
    value = headers.get(name, "")
    return int(value if value.isdecimal() else sent)


def _retry_after(headers: Headers) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None
