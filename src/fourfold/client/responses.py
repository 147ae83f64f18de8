"""What a server answers, as records and as errors of Fourfold's tree. Pure.

A Fourfold server names the kind of an error in the answer. Others are understood by status and
headers, so that a program catches the same errors whoever serves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fourfold import errors
from fourfold.client.requests import Call, is_json
from fourfold.errors import BadAnswer, FourfoldError, OutcomeUnknown, ServerUnreachable
from fourfold.models.streams.json_messages import has_lone_surrogate, split
from fourfold.models.streams.records import Producer
from fourfold.models.streams.validation import JSON, plain_type

Headers = Mapping[str, str]
_KINDS: Final = {each.kind: each for each in errors.tree()}
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
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes = b""


class StreamFacts(NamedTuple):
    """What a server says of a stream."""

    name: str
    content_type: str
    next_offset: str
    closed: bool
    ttl_seconds: int | None = None
    expires_at: str | None = None
    created: bool = False
    """Whether this call has made it."""
    first_offset: str | None = None
    """The earliest kept record; None if the server does not report it."""
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


class Appended(NamedTuple):
    """What became of an append. `duplicate` means that it was there already; `producer` is the
    highest request of that producer that was accepted.
    """

    next_offset: str
    duplicate: bool
    closed: bool
    producer: Producer | None = None


class Part(NamedTuple):
    """A part of a stream: its bytes, and where to go on."""

    body: bytes
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    """Whether the stream is closed and this part reaches its end."""
    first_offset: str | None = None
    """The earliest kept record when this was read; None if the server does not report it."""

    def messages(self) -> list[bytes]:
        """The messages of a JSON stream, as the bytes that came; of another, all of its bytes."""
        if not is_json(self.content_type):
            return [self.body] if self.body else []
        return whole_messages(self.body)

    def items(self, loads: Callable[[bytes], Any] = json.loads) -> list[Any]:
        """The messages of a JSON stream as values."""
        return [loads(message) for message in self.messages()]

    def text(self) -> str:
        return self.body.decode()


def whole_messages(body: bytes) -> list[bytes]:
    """The messages of a whole answer; nothing is written anew."""
    try:
        return [bytes(raw) for raw in _RAW.decode(body)] if body else []
    except msgspec.DecodeError as error:
        if body.lstrip()[:1] == b"[" and has_lone_surrogate(body):
            return split(body, JSON, empty_list=True)
        raise BadAnswer(f"a part of a JSON stream is not an array: {error}") from None


def facts(name: str, answer: Response) -> StreamFacts:
    return StreamFacts(
        name,
        answer.headers.get("content-type", "application/octet-stream"),
        answer.headers.get("stream-next-offset", ""),
        is_true(answer.headers, "stream-closed"),
        _count(answer.headers, "stream-ttl"),
        answer.headers.get("stream-expires-at"),
        answer.status == 201,
        answer.headers.get("stream-first-offset"),
        _count(answer.headers, "stream-retention-seconds"),
        _count(answer.headers, "stream-retention-bytes"),
    )


def _count(headers: Headers, name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if text.isdecimal() else None


def appended(call: Call, answer: Response) -> Appended:
    headers = answer.headers
    numbered = call.headers.get("producer-id")
    accepted = None
    if numbered is not None:
        # Some servers tell the numbers only where they differ from those that were sent.
        epoch = _number(headers, "producer-epoch", call.headers["producer-epoch"])
        seq = _number(headers, "producer-seq", call.headers["producer-seq"])
        accepted = Producer(numbered, epoch, seq)
    duplicate = accepted is not None and answer.status == 204 and bool(call.body)
    closed = is_true(headers, "stream-closed")
    return Appended(headers.get("stream-next-offset", ""), duplicate, closed, accepted)


def listed(answer: Response) -> tuple[list[StreamListing], str | None]:
    """A page of the list, and where the next one begins."""
    try:
        told = json.loads(answer.body)
        rows = [
            StreamListing(*(row[name] for name in StreamListing._fields if name in row))
            for row in told["streams"]
        ]
        return rows, told["next_after"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadAnswer(f"the list of streams cannot be read: {error!r}") from None


def document(answer: Response) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        raise BadAnswer("the answer is not JSON") from None


def is_true(headers: Headers, name: str) -> bool:
    return headers.get(name, "").lower() == "true"


def of_text(content_type: str) -> bool:
    return plain_type(content_type).startswith("text/")


def check(call: Call, answer: Response) -> Response:
    """The answer, or the error that it is."""
    if 200 <= answer.status < 300:
        return answer
    raise error_of(call, answer)


def error_of(call: Call, answer: Response) -> FourfoldError:
    """The error that an answer stands for."""
    told = _told(answer.body)
    message = str(told.get("message") or f"the server answered {answer.status}")
    details = dict(told["details"]) if isinstance(told.get("details"), dict) else {}
    details |= _numbers(answer.headers)
    cls = _KINDS.get(str(told.get("kind"))) or _class(call, answer)
    if issubclass(cls, ServerUnreachable) and not call.repeatable:
        cls = OutcomeUnknown
    hint = told.get("hint")
    return cls(
        f"{call.what}: {message}",
        hint=hint if isinstance(hint, str) else None,
        retry_after=_retry_after(answer.headers),
        details=details,
    )


def _class(call: Call, answer: Response) -> type[FourfoldError]:
    status, headers = answer.status, answer.headers
    found = _BY_STATUS.get(status, BadAnswer)
    if status == 403 and "producer-epoch" in headers:
        found = errors.ProducerFenced
    elif status == 409 and is_true(headers, "stream-closed") and call.method == "POST":
        found = errors.StreamClosed
    elif status == 409 and "producer-expected-seq" in headers:
        found = errors.ProducerGap
    elif status == 409 and call.method == "PUT":
        found = errors.AlreadyExists
    elif status == 410 and call.method == "GET":
        found = errors.OffsetGone
    elif status in {408, 500, 502, 504}:
        found = ServerUnreachable
    return found


def _told(body: bytes) -> Mapping[str, Any]:
    """What a Fourfold server says of an error; others say what they like."""
    try:
        found = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(headers: Headers) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, key in (
        ("producer-epoch", "epoch"),
        ("producer-expected-seq", "expected"),
        ("producer-received-seq", "received"),
    ):
        if headers.get(name, "").isdecimal():
            found[key] = int(headers[name])
    return found


def _number(headers: Headers, name: str, sent: str) -> int:
    told = headers.get(name, "")
    return int(told if told.isdecimal() else sent)


def _retry_after(headers: Headers) -> float | None:
    told = headers.get("retry-after", "")
    return float(told) if told.isdecimal() else None
