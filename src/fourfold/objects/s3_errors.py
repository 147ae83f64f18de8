"""What a failed S3 request means: obstore's exceptions in our tree, each with a hint.

obstore tells most causes only in its text, so the text is read here and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fourfold.errors import (
    AlreadyExists,
    FourfoldError,
    MissingDependency,
    NotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    PreconditionFailed,
)

if TYPE_CHECKING:
    from types import ModuleType

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
_RETRIES: Final = re.compile(r"after (\d+) retries")
_REQUEST: Final = re.compile(r"Error performing ([A-Z]+) (\S+)")

_CREDENTIALS: Final = (
    "This is about credentials, not the network: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
    "(and AWS_SESSION_TOKEN for temporary ones), and allow them to read, write, list and delete."
)
_CLOCK: Final = "This machine's clock is wrong, so its signatures are refused: set the clock."
_NETWORK: Final = (
    "This is about the network, not credentials: check the endpoint, DNS, proxy and firewall, "
    "and that the server runs. A write that failed this way may still have happened."
)
_BUCKET: Final = "Create the bucket, or correct its name, its region or the endpoint."
_REGION: Final = "The bucket is in another region: give `region=...` or set AWS_REGION."
_SLOW: Final = "The store asks for fewer requests: wait, then try again with less at once."
_CONDITIONAL: Final = (
    "The server does not implement this request; conditional writes need If-None-Match and "
    "If-Match: see `check_conditional_writes`."
)
_COLLISION: Final = "Other writes of the same object are under way: try again in a moment."
_SERVER: Final = "The server failed, and went on failing when asked again: look at its log."

_HINT_BY_CODE: Final = {
    "NoSuchBucket": _BUCKET,
    "RequestTimeTooSkewed": _CLOCK,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "SlowDown": _SLOW,
    "NotImplemented": _CONDITIONAL,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "AccessDenied": _CREDENTIALS,
}


def import_obstore() -> ModuleType:
    """The object-store client, imported by the first S3 store and by nothing else."""
    try:
        import obstore  # noqa: PLC0415
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError as exc:
        raise MissingDependency(
            "S3 object stores need the package obstore",
            hint="Install it: pip install 'fourfold[s3]'",
        ) from exc
    return obstore


def caught() -> tuple[type[Exception], ...]:
    """The exceptions that obstore raises; some of its failures are built-in errors."""
    obstore = import_obstore()
    return (
        obstore.exceptions.BaseError,
        FileNotFoundError,
        NotImplementedError,
        PermissionError,
        ValueError,
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request, as far as obstore's text tells."""

    error: Exception
    text: str
    status: int | None
    code: str | None
    retries: int

    @property
    def name(self) -> str:
        return type(self.error).__name__

    @property
    def is_conflict(self) -> bool:
        return self.name in {"AlreadyExistsError", "PreconditionError"}

    @property
    def is_absent(self) -> bool:
        return isinstance(self.error, FileNotFoundError) and self.code != "NoSuchBucket"


def read_failure(error: Exception) -> Failure:
    # What follows is a dump of the same facts for developers, many screens long.
    text = str(error).partition("\n\nDebug source")[0]
    status = _STATUS.search(text)
    code = _CODE.search(text)
    retries = _RETRIES.search(text)
    return Failure(
        error=error,
        text=text,
        status=int(status[1]) if status else None,
        code=code[1] if code else None,
        retries=int(retries[1]) if retries else 0,
    )


def translated(failure: Failure, what: str, *, key: str | None = None) -> FourfoldError:
    """The error to raise for a failure. With a key, absence and conflict are about that object."""
    if key is not None and failure.is_absent:
        return NotFound(f"object {key!r} does not exist")
    if key is not None and failure.status != 409 and failure.code != "NoSuchBucket":
        if failure.name == "AlreadyExistsError":
            return AlreadyExists(f"object {key!r} exists")
        if failure.name == "PreconditionError":
            return PreconditionFailed(f"object {key!r} is not at the expected version")
    hint = _hint(failure)
    # Asking again with the same credentials, bucket and region would only be refused again.
    final = any(cause in hint for cause in (_CREDENTIALS, _CLOCK, _BUCKET, _REGION, _CONDITIONAL))
    kind = ObjectStoreDenied if final else ObjectStoreError
    return kind(f"cannot {what}: {_reason(failure)}", hint=hint)


def _reason(failure: Failure) -> str:
    tries = f" after {failure.retries} retries" if failure.retries else ""
    request = _REQUEST.search(failure.text)
    asked = f"{request[1]} {request[2].partition('?')[0]} " if request else ""
    if failure.status is not None:
        code = f" {failure.code}" if failure.code else ""
        return f"{asked}was answered with {failure.status}{code}{tries}"
    if request:
        return f"{asked}failed{tries}: {failure.text.rpartition(' - ')[2]}"
    return failure.text


def _hint(failure: Failure) -> str:
    text, status = failure.text, failure.status
    if failure.code in _HINT_BY_CODE:
        return _HINT_BY_CODE[failure.code]
    denied = failure.name in {"PermissionDeniedError", "UnauthenticatedError"}
    # Without credentials obstore asks the cloud machine's metadata service, which is not there.
    nameless = any(sign in text for sign in ("/latest/api/token", "/latest/meta-data"))
    rules = (
        (denied or status in {401, 403}, _CREDENTIALS),
        (nameless, "No credentials were found. " + _CREDENTIALS),
        ("configured region" in text or status in {301, 307}, _REGION),
        (status in {429, 503}, _SLOW),
        (status == 409, _COLLISION),
        (status == 501 or isinstance(failure.error, NotImplementedError), _CONDITIONAL),
        (status is not None and status >= 500, _SERVER),
        (status is not None, ObjectStoreError.default_hint),
    )
    return next((hint for applies, hint in rules if applies), _NETWORK)
