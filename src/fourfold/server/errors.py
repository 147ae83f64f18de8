"""Errors as responses: their status, headers and documents, without file paths of the server.

Messages name the file that they are about, for the operator of the store. Clients must not learn
where it is on the server's disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from fourfold import errors
from fourfold.errors import FourfoldError
from fourfold.wire.errors import ProblemKind

# Values that a client sent are quoted in messages, and stay even if they look like paths.
_SUBJECT: Final = re.compile(r"\A(?:/.*?|[^\s'\":]+/[^\s'\":]*): (?=.)", re.DOTALL)
_OS_ERROR: Final = re.compile(r"(\[Errno -?\d+\] [^:']*): '[^']*'(?: -> '[^']*')?")
_ANYWHERE: Final = re.compile(r"(?<![\w.:/'\"])/[^\s'\":/`]+/[^\s'\":`]+")
_STATUS: Final[tuple[tuple[type[FourfoldError], int], ...]] = (
    (errors.TooLarge, 413),
    (errors.UnsupportedEncoding, 415),
    (errors.InvalidInput, 400),
    (errors.StreamGone, 410),
    (errors.OffsetGone, 410),
    (errors.NotFound, 404),
    (errors.HistoryTruncated, 410),
    (errors.PreconditionFailed, 412),
    (errors.ReplayMismatch, 422),
    (errors.Overloaded, 429),
    (errors.Busy, 503),
    (errors.Unauthorized, 401),
    (errors.Forbidden, 403),
    (errors.ProducerFenced, 403),
    (errors.ReadOnly, 403),
    (errors.HostRefused, 421),
    (errors.Closed, 503),
    (errors.MissingDependency, 501),
    (errors.StorageError, 503),
    (errors.CorruptData, 503),
    (errors.FormatError, 503),
    (FourfoldError, 409),
)
"""Status of each error; the first class that matches counts."""
COMMON: Final[tuple[type[FourfoldError], ...]] = (
    errors.InvalidInput,
    errors.Unauthorized,
    errors.Forbidden,
    errors.TooLarge,
    errors.UnsupportedEncoding,
    errors.HostRefused,
    errors.Overloaded,
    errors.Busy,
)
"""Errors that every route may respond with."""
HEADERS: Final[dict[int, tuple[str, ...]]] = {
    401: ("WWW-Authenticate",),
    403: ("Producer-Epoch",),
    409: (
        "Stream-Closed",
        "Stream-Next-Offset",
        "Producer-Expected-Seq",
        "Producer-Received-Seq",
    ),
    410: ("Stream-First-Offset",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
"""Headers that a response with an error may have, by status."""


PROBLEMS: Final = "/problems/"
"""Start of the path of the page about a kind of error."""
PROBLEM_JSON: Final = "application/problem+json"
_KINDS: Final = {cls.kind: cls for cls in errors.tree()}


def accepts_problem(request_headers: Mapping[str, str]) -> bool:
    """Return True if a client accepts problem documents."""
    return PROBLEM_JSON in request_headers.get("accept", "")


def uses_problem(path: str, request_headers: Mapping[str, str]) -> bool:
    """Return True if the errors of a request are problem documents.

    Those of the Durable Streams protocol, and of the server itself, have an older form, unless the
    client accepts problem documents.
    """
    is_newer = path.startswith("/v1/") and not path.startswith("/v1/stream")
    return is_newer or accepts_problem(request_headers)


def problem(error: FourfoldError, root: str) -> dict[str, object]:
    """Return a problem document with the fields of `wire.errors.Problem`.

    `root` is the path where the server is mounted.
    """
    return {
        "type": quote(f"{root}{PROBLEMS}{error.kind}"),
        "title": _title(type(error)),
        "status": status_of(type(error)),
        "detail": error.message,
        "kind": error.kind,
        "hint": error.hint,
        "retryable": error.retryable,
        "details": error.details,
    }


def problem_kind(kind: str) -> ProblemKind:
    """Return what a kind of error means; raise NotFound for an unknown kind."""
    cls = _KINDS.get(kind)
    if cls is None:
        raise errors.NotFound(f"unknown kind of problem {kind!r:.80}")
    return ProblemKind(
        kind=kind,
        title=_title(cls),
        status=status_of(cls),
        hint=cls.default_hint,
        retryable=cls.retryable,
    )


def _title(cls: type[FourfoldError]) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def status_of(kind: type[FourfoldError]) -> int:
    """Return the status of a class of errors."""
    return next(status for parent, status in _STATUS if issubclass(kind, parent))


def redact_paths(error: FourfoldError) -> FourfoldError:
    """Return a copy of an error without file paths."""
    redacted = error.with_message(without_paths(error.message))
    redacted.hint = without_paths(error.hint)
    return redacted


def without_paths(text: str) -> str:
    """Return a message without file paths."""
    if "/" not in text:
        return text
    text = _OS_ERROR.sub(r"\1", _SUBJECT.sub("", text))
    return _ANYWHERE.sub("a file of the server", text)
