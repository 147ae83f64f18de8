"""Objects in a bucket of S3 or of an S3-compatible server, through obstore.

The version of an object is its ETag: it changes when the bytes change, but equal bytes may have
equal ETags. Conditional writes are those of the server (If-None-Match, If-Match). Some servers
silently ignore these headers; `check_conditional_writes` detects that.

- A conditional write stores a random mark in the metadata of the object. If the response to a try
  is lost and the retry gets a conflict, the mark shows if the conflict is with the first try.
- A streamed upload is sent in parts, with a bounded number in memory. obstore has no conditional
  upload in parts, and not every server with If-None-Match checks it there. So an upload with
  `if_absent` that is larger than one part is spooled to a temporary file and sent from there,
  memory-mapped, as one conditional request.
- A streamed read requests one window at a time, each with If-Match, so that a slow reader holds no
  connection open and never sees a mix of two versions: PreconditionFailed means that the object
  was replaced meanwhile.

obstore reports most causes of a failure only in its text, which is parsed only here.

Settings that are not given come from the environment: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL,
AWS_REGION or AWS_DEFAULT_REGION, and the credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
and AWS_SESSION_TOKEN, or else from the web identity, container or instance of the process.
"""

from __future__ import annotations

import ipaddress
import mmap
import os
import re
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fourfold import limits
from fourfold.errors import (
    AlreadyExists,
    Closed,
    FourfoldError,
    InvalidConfig,
    InvalidInput,
    MissingDependency,
    NotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    PreconditionFailed,
    Refused,
)
from fourfold.objects.folder import storage_errors
from fourfold.objects.protocol import Handle, Object, ObjectInfo
from fourfold.objects.validation import (
    check_chunk_bytes,
    check_conditions,
    check_data,
    check_key,
    check_prefix,
    check_range,
    checked_chunks,
    is_key,
    position_before,
    regrouped,
)
from fourfold.retry import Attempts, Retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import ModuleType

    from obstore import GetResult, ObjectMeta
    from obstore.store import S3Store as Client

    from fourfold.objects.protocol import Data

OBJECT_RETRY_WINDOW_S: Final = 120.0
"""No retry starts later than this after the first attempt: the signature of a request
expires.
"""
OBJECT_CONFLICT_BACKOFF_S: Final = 0.05
"""First pause after S3 reports a conflict of two conditional writes; it doubles with each
retry.
"""
OBJECT_UPLOAD_PARTS_MAX: Final = 10_000
"""Maximum parts of an upload, a limit of S3."""
OBJECT_UPLOAD_BYTES_PER_S_MIN: Final = 1 * limits.MIB
"""A large request times out only when it is slower than this."""

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
_RETRIES: Final = re.compile(r"after (\d+) retries")
_REQUEST: Final = re.compile(r"Error performing ([A-Z]+) (\S+)")

_CREDENTIALS: Final = (
    "Check the credentials, not the network: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
    "(and AWS_SESSION_TOKEN for temporary ones), and allow them to read, write, list and delete."
)
_CLOCK: Final = "Set the clock of this machine: it is wrong, so signatures are rejected."
_NETWORK: Final = (
    "Check the network, not the credentials: the endpoint, DNS, proxy and firewall, "
    "and that the server is running. The write may have succeeded nevertheless."
)
_BUCKET: Final = "Create the bucket, or correct its name, its region or the endpoint."
_REGION: Final = "Pass `region=...` or set AWS_REGION: the bucket is in another region."
_SLOW: Final = "Wait, then send fewer requests at a time: the store limits the rate."
_CONDITIONAL: Final = (
    "Use a server with If-None-Match and If-Match, which conditional writes need: see "
    "`check_conditional_writes`."
)
_COLLISION: Final = "Try again later: other writes of the same object are in progress."
_SERVER: Final = "See the log of the server: it failed, also when the request was repeated."

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
    """Import obstore; only the first S3 store does so."""
    try:
        import obstore  # noqa: PLC0415
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError as exc:
        raise MissingDependency(
            "S3 object stores need the package obstore",
            hint="Install it with pip install 'fourfold[s3]'.",
        ) from exc
    return obstore


def obstore_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that obstore raises; some of them are built-in errors."""
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
    """A failed request, parsed from the text of obstore."""

    error: Exception
    text: str
    status: int | None
    code: str | None
    retries: int

    @property
    def name(self) -> str:
        """Class name of the exception."""
        return type(self.error).__name__

    @property
    def is_conflict(self) -> bool:
        """True if a condition of the write failed."""
        return self.name in {"AlreadyExistsError", "PreconditionError"}

    @property
    def is_absent(self) -> bool:
        """True if the object does not exist."""
        return isinstance(self.error, FileNotFoundError) and self.code != "NoSuchBucket"


def parse_failure(error: Exception) -> Failure:
    """Parse an exception of obstore."""
    # The rest is a very long dump of the same facts for developers.
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


def translate(failure: Failure, what: str, *, key: str | None = None) -> FourfoldError:
    """Return the error to raise; with a key, NotFound and conflicts are about that object."""
    if key is not None and failure.is_absent:
        return NotFound(f"object {key!r} does not exist")
    if key is not None and failure.status != 409 and failure.code != "NoSuchBucket":
        if failure.name == "AlreadyExistsError":
            return AlreadyExists(f"object {key!r} already exists")
        if failure.name == "PreconditionError":
            return PreconditionFailed(f"object {key!r} is not at the expected version")
    hint = _hint(failure)
    # A retry with the same credentials, bucket and region would fail again.
    final = any(cause in hint for cause in (_CREDENTIALS, _CLOCK, _BUCKET, _REGION, _CONDITIONAL))
    kind = ObjectStoreDenied if final else ObjectStoreError
    return kind(f"cannot {what}: {_reason(failure)}", hint=hint)


def _reason(failure: Failure) -> str:
    tries = f" after {failure.retries} retries" if failure.retries else ""
    request = _REQUEST.search(failure.text)
    operation = f"{request[1]} {request[2].partition('?')[0]} " if request else ""
    if failure.status is not None:
        code = f" {failure.code}" if failure.code else ""
        return f"{operation}returned {failure.status}{code}{tries}"
    if request:
        return f"{operation}failed{tries}: {failure.text.rpartition(' - ')[2]}"
    return failure.text


def _hint(failure: Failure) -> str:
    text, status = failure.text, failure.status
    if failure.code in _HINT_BY_CODE:
        return _HINT_BY_CODE[failure.code]
    denied = failure.name in {"PermissionDeniedError", "UnauthenticatedError"}
    # Without credentials obstore queries the metadata service of a cloud machine.
    without_credentials = any(sign in text for sign in ("/latest/api/token", "/latest/meta-data"))
    rules = (
        (denied or status in {401, 403}, _CREDENTIALS),
        (without_credentials, "No credentials were found. " + _CREDENTIALS),
        ("configured region" in text or status in {301, 307}, _REGION),
        (status in {429, 503}, _SLOW),
        (status == 409, _COLLISION),
        (status == 501 or isinstance(failure.error, NotImplementedError), _CONDITIONAL),
        (status is not None and status >= 500, _SERVER),
        (status is not None, ObjectStoreError.default_hint),
    )
    return next((hint for applies, hint in rules if applies), _NETWORK)


_MARK: Final = "fourfold-write"
_PART: Final = limits.OBJECT_UPLOAD_CHUNK_BYTES
_PIECE: Final = _PART // 8
_BEYOND: Final = 1 << 62
_first_process: list[int] = []


class S3Store(Handle):
    """An ObjectStore in a bucket, below a prefix that belongs to it alone."""

    def __init__(self, settings: S3Settings, *, spool_folder: Path | None = None) -> None:
        super().__init__(f"s3://{settings.bucket}/{settings.prefix}".rstrip("/"))
        self._settings = settings
        self._spool_folder = spool_folder
        self._above = f"{settings.prefix}/" if settings.prefix else ""
        self._store_class = import_obstore().store.S3Store
        self._errors = obstore_errors()
        _check_not_forked()
        self._process = os.getpid()
        self._client = self._connect(settings.timeout_s)
        self._bucket_seen = False

    @property
    def settings(self) -> S3Settings:
        """The settings of the store."""
        return self._settings

    def _connect(self, timeout_s: float) -> Client:
        client: Client = self._store_class(**self._settings.client_arguments(timeout_s))
        return client

    def _check_open(self) -> None:
        super()._check_open()
        if os.getpid() != self._process:
            raise Closed(f"object store {self._name}: opened by another process, {self._process}")

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
        """Write one object."""
        path = self._path(key)
        check_conditions(if_absent=if_absent, if_version=if_version)
        flat = check_data(data)
        return self._send(key, path, flat, if_absent=if_absent, if_version=if_version)

    def _send(
        self,
        key: str,
        path: str,
        data: bytes | memoryview | mmap.mmap,
        *,
        if_absent: bool = False,
        if_version: str | None = None,
    ) -> ObjectInfo:
        """Write the whole object in one request."""
        mark = uuid.uuid4().hex
        options: dict[str, Any] = {"use_multipart": False}
        conditional = if_absent or if_version is not None
        if conditional:
            options["mode"] = "create" if if_absent else {"e_tag": if_version}
            options["attributes"] = {_MARK: mark}
        client = self._client_for(len(data))
        # S3 returns 409 for concurrent conditional writes.
        attempts = Attempts(
            Retries(self._settings.retries_max, OBJECT_CONFLICT_BACKOFF_S, self._settings.timeout_s)
        )
        while True:
            try:
                result = client.put(path, data, **options)
            except self._errors as exc:
                failure = parse_failure(exc)
                if failure.status == 409 and (pause := attempts.next_pause()) is not None:
                    time.sleep(pause)
                    continue
                # After more than one try, the conflict may be with the first of them.
                repeated = attempts.failures > 0 or failure.retries > 0
                rival = conditional and failure.is_conflict and failure.status != 409
                if rival and repeated and (mine := self._marked(path, mark)) is not None:
                    return self._info(mine, key)
                # S3 returns 404 for a conditional replace of a missing object.
                if if_version is not None and failure.is_absent:
                    raise PreconditionFailed(
                        f"object {key!r} is not at version {if_version!r}: it does not exist"
                    ) from exc
                error_key = key if rival else None
                raise translate(failure, f"write object {key!r}", key=error_key) from exc
            self._bucket_seen = True
            return self._written(key, len(data), result["e_tag"])

    def _marked(self, path: str, mark: str) -> ObjectMeta | None:
        """Return the object if it has this mark."""
        try:
            result = self._client.get(path, options={"head": True})
        except FileNotFoundError:
            return None
        except self._errors as exc:
            raise translate(parse_failure(exc), f"read the metadata of object {path!r}") from exc
        return result.meta if dict(result.attributes).get(_MARK) == mark else None

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
        """Write one object from chunks; if the iterable raises, nothing is written."""
        path = self._path(key)
        pieces = regrouped(checked_chunks(chunks), _PIECE)
        start: list[bytes] = []
        for piece in pieces:
            start.append(piece)
            if len(start) > _PART // _PIECE:
                break
        else:
            return self._send(key, path, b"".join(start), if_absent=if_absent)
        stream = chain(start, pieces)
        # The chain releases the start when it has passed it; so must this frame.
        del start, piece
        return self._spool(key, path, stream) if if_absent else self._stream(key, path, stream)

    def _stream(self, key: str, path: str, pieces: Iterator[bytes]) -> ObjectInfo:
        counted = _CountedBody(pieces, OBJECT_UPLOAD_PARTS_MAX * _PART)
        try:
            result = self._client.put(
                path,
                counted,
                use_multipart=True,
                chunk_size=_PART,
                max_concurrency=limits.OBJECT_UPLOAD_CONCURRENCY,
            )
        except BaseException as exc:
            # The caller's iterator failed, not the store.
            if counted.failure is not None:
                raise counted.failure from None
            if isinstance(exc, self._errors):
                raise translate(parse_failure(exc), f"upload object {key!r}") from exc
            raise
        self._bucket_seen = True
        return self._written(key, counted.size, result["e_tag"])

    def _spool(self, key: str, path: str, pieces: Iterator[bytes]) -> ObjectInfo:
        if self.head(key) is not None:
            raise AlreadyExists(f"object {key!r} already exists")
        with storage_errors("create a temporary file", writing=True):
            spool = tempfile.TemporaryFile(dir=self._spool_folder)  # noqa: SIM115
        with spool:
            for piece in _CountedBody(pieces, limits.OBJECT_PUT_BYTES_MAX):
                with storage_errors(f"spool object {key!r}", writing=True):
                    spool.write(piece)
            with storage_errors(f"spool object {key!r}", writing=True):
                spool.flush()
            # Left to the garbage collector: a request that was given up may still point into it.
            mapped = mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)
            return self._send(key, path, mapped, if_absent=True)

    def get(self, key: str) -> Object:
        """Return the object; raise NotFound if it does not exist."""
        path = self._path(key)
        for _ in range(self._settings.retries_max + 1):
            with self._failures(f"read object {key!r}", key):
                result = self._client.get(path)
                info = self._info(result.meta, key)
                if info.size <= _PART:
                    return Object(bytes(result.bytes()), info)
            del result
            # Read a large object in windows, each with its own timeout and retries.
            try:
                return Object(b"".join(self._windows(path, info, _PART)), info)
            except PreconditionFailed:
                continue
        raise ObjectStoreError(
            f"cannot read object {key!r}: it was replaced repeatedly during the read",
            hint="Read it with get_range, or pause its writers.",
        )

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end of the object."""
        path = self._path(key)
        start, length = check_range(start, length)
        if length == 0 or start >= _BEYOND:
            if self.head(key) is None:
                raise NotFound(f"object {key!r} does not exist")
            return b""
        try:
            client = self._client_for(min(length, limits.OBJECT_PUT_BYTES_MAX))
            end = start + min(length, _BEYOND)
            result = client.get(path, options={"range": (start, end)})
            return bytes(result.bytes())
        except self._errors as exc:
            failure = parse_failure(exc)
            if failure.status == 416:
                return b""
            raise translate(failure, f"read object {key!r}", key=key) from exc

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one version in chunks. The first step raises NotFound."""
        path = self._path(key)
        return self._pieces(key, path, check_chunk_bytes(chunk_bytes))

    def _pieces(self, key: str, path: str, chunk_bytes: int) -> Iterator[bytes]:
        info = self.head(key)
        if info is None:
            raise NotFound(f"object {key!r} does not exist")
        window = chunk_bytes * max(1, _PART // chunk_bytes)
        for data in self._windows(path, info, window):
            for at in range(0, len(data), chunk_bytes):
                yield data[at : at + chunk_bytes]

    def _windows(self, path: str, info: ObjectInfo, size: int) -> Iterator[bytes]:
        """Yield the bytes of exactly this version in windows of `size`."""
        for at in range(0, info.size, size):
            self._check_open()
            end = min(at + size, info.size)
            with self._failures(f"read object {info.key!r}", info.key):
                result: GetResult = self._client.get(
                    path, options={"range": (at, end), "if_match": info.version}
                )
                data = bytes(result.bytes())
            if len(data) != end - at:
                raise ObjectStoreError(
                    f"cannot read object {info.key!r}: expected {end - at} bytes, got {len(data)}"
                )
            yield data

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of the object, or None if it does not exist."""
        path = self._path(key)
        try:
            meta = self._client.head(path)
        except self._errors as exc:
            failure = parse_failure(exc)
            if not failure.is_absent:
                raise translate(failure, f"read the metadata of object {key!r}") from exc
            self._check_bucket()
            return None
        return self._info(meta, key)

    def _check_bucket(self) -> None:
        """Raise if the bucket is missing, which `head` cannot distinguish from a missing object."""
        if not self._bucket_seen:
            with self._failures(f"reach bucket {self._settings.bucket!r}"):
                next(self._client.list(self._settings.prefix or None, chunk_size=1), None)
            self._bucket_seen = True

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose key starts with `prefix` and is after `start_after`, in order."""
        self._check_open()
        check_prefix(prefix)
        if start_after is not None:
            check_prefix(start_after, "start_after")
        return self._walk(prefix, start_after)

    def _walk(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        # obstore lists whole folders, so list the folder from just before the prefix.
        full = self._above + prefix
        folder = full.rpartition("/")[0]
        start = "" if start_after is None else self._above + start_after
        offset = start
        if start.rpartition("/")[2] in {".", ".."}:
            # A valid position, but not a valid path for obstore.
            offset = position_before(start)
        if prefix and not prefix.endswith("/"):
            offset = max(offset, position_before(full))
        with self._failures(f"list objects {prefix!r}"):
            pages = self._client.list(
                folder or None, offset=offset or None, chunk_size=limits.OBJECT_LIST_PAGE
            )
        previous = ""
        while (page := self._next_page(pages.__next__, prefix)) is not None:
            for meta in page:
                path = meta["path"]
                if path <= previous:
                    raise ObjectStoreError(
                        f"cannot list objects {prefix!r}: {path!r} is listed after {previous!r}",
                        hint="Use a general purpose bucket: this one is not listed in key order.",
                    )
                previous = path
                if not path.startswith(full):
                    if path > full:
                        return
                    continue
                key = path[len(self._above) :]
                if path > start and is_key(key):
                    yield self._info(meta, key)

    def _next_page(
        self, next_page: Callable[[], Iterable[ObjectMeta]], prefix: str
    ) -> Iterable[ObjectMeta] | None:
        self._check_open()
        with self._failures(f"list objects {prefix!r}"):
            try:
                page = next_page()
            except StopIteration:
                page = None
        self._bucket_seen = True
        return page

    def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        path = self._path(key)
        if self.head(key) is None:
            return False
        with self._failures(f"delete object {key!r}"):
            self._client.delete(path)
        return True

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are not an error."""
        self._check_open()
        paths = [self._path(key) for key in keys]
        if paths:
            with self._failures(f"delete {len(paths)} objects"):
                self._client.delete(paths)

    def _path(self, key: str) -> str:
        self._check_open()
        path = self._above + check_key(key)
        if len(path.encode()) > limits.OBJECT_KEY_BYTES_MAX:
            raise InvalidInput(
                f"key {key[:77]!r}... and the prefix {self._settings.prefix!r} must have at most "
                f"{limits.OBJECT_KEY_BYTES_MAX} bytes together"
            )
        return path

    def _client_for(self, size: int) -> Client:
        """Return a client with a timeout for a request of this size."""
        needed_s = size / OBJECT_UPLOAD_BYTES_PER_S_MIN
        if needed_s <= self._settings.timeout_s:
            return self._client
        return self._connect(self._settings.timeout_s + needed_s)

    def _info(self, meta: ObjectMeta, key: str) -> ObjectInfo:
        self._bucket_seen = True
        return ObjectInfo(key, meta["size"], _version(key, meta["e_tag"]), meta["last_modified"])

    def _written(self, key: str, size: int, e_tag: str | None) -> ObjectInfo:
        # The response to a write has no modification time: use the local clock.
        return ObjectInfo(key, size, _version(key, e_tag), datetime.now(UTC))

    @contextmanager
    def _failures(self, what: str, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except self._errors as exc:
            raise translate(parse_failure(exc), what, key=key) from exc


class _CountedBody:
    """An iterator that counts its bytes and stores the error that ended it."""

    def __init__(self, pieces: Iterator[bytes], size_max: int) -> None:
        self._pieces = pieces
        self._size_max = size_max
        self.size = 0
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            raise
        except BaseException as exc:
            self.failure = exc
            raise
        self.size += len(piece)
        if self.size > self._size_max:
            self.failure = InvalidInput(
                f"upload has more than {self._size_max} bytes",
                hint="Split it into several objects.",
            )
            raise self.failure
        return piece


def _version(key: str, e_tag: str | None) -> str:
    if not e_tag:
        raise ObjectStoreError(
            f"object {key!r}: the server returned no ETag",
            hint="Use a server that sends ETags: versions need them.",
        )
    return e_tag


def _check_not_forked() -> None:
    """Raise Refused in a forked child: the threads of the client do not survive a fork."""
    if not _first_process:
        _first_process.append(os.getpid())
    if _first_process[0] != os.getpid():
        raise Refused(
            f"cannot open an S3 store after a fork: process {_first_process[0]} opened one before",
            hint="Start worker processes with 'spawn' or 'forkserver', not 'fork'.",
        )


_S3_SETTINGS_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_REGION_DEFAULT: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Bucket, prefix, endpoint, credentials and timeouts of an S3 store."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    allow_http: bool = False
    timeout_s: float = limits.OBJECT_TIMEOUT_S
    retries_max: int = limits.OBJECT_RETRIES_MAX

    def __post_init__(self) -> None:
        if not _S3_SETTINGS_BUCKET.fullmatch(self.bucket):
            raise InvalidConfig(
                f"invalid bucket name {self.bucket!r}",
                hint="Use 3 to 63 letters, digits, dots and hyphens.",
            )
        if self.prefix:
            try:
                check_key(self.prefix)
            except InvalidInput as exc:
                raise InvalidConfig(f"prefix of the store: {exc.message}") from exc
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidConfig(
                "access_key_id and secret_access_key must be set together",
                hint="Set both here, or both in the environment.",
            )
        if self.session_token is not None and self.access_key_id is None:
            raise InvalidConfig(
                "session_token requires access_key_id and secret_access_key",
                hint="Set all three here, or all in the environment.",
            )
        if not 0 < self.timeout_s < 86_400:
            raise InvalidConfig(f"timeout_s must be between 0 and 86400, got {self.timeout_s!r}")
        if not 0 <= self.retries_max <= limits.OBJECT_RETRIES_MAX:
            raise InvalidConfig(
                f"retries_max must be 0 to {limits.OBJECT_RETRIES_MAX}, got {self.retries_max}"
            )

    def client_arguments(self, timeout_s: float) -> dict[str, Any]:
        """Return the arguments for the S3 store of obstore."""
        endpoint = self.endpoint or _environment(
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
        )
        region = self.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
        arguments: dict[str, Any] = {
            "bucket": self.bucket,
            "region": region or _REGION_DEFAULT,
            "conditional_put": "etag",
            "client_options": {
                "allow_http": _is_http_allowed(endpoint, allowed=self.allow_http),
                "timeout": timedelta(seconds=timeout_s),
            },
            "retry_config": {
                "max_retries": self.retries_max,
                "retry_timeout": timedelta(seconds=OBJECT_RETRY_WINDOW_S),
            },
        }
        if endpoint:
            arguments["aws_endpoint_url_s3"] = endpoint
        if self.access_key_id is not None:
            # A provider, since plain arguments would be combined with a session token of the
            # environment.
            arguments["credential_provider"] = self._credentials
        return arguments

    def _credentials(self) -> dict[str, str | None]:
        return {
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "token": self.session_token,
            "expires_at": None,
        }


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _is_http_allowed(endpoint: str | None, *, allowed: bool) -> bool:
    """Return True for an HTTP endpoint; raise unless it is local or HTTP is allowed."""
    if endpoint is None:
        return False
    if "@" in endpoint:
        raise InvalidConfig(
            "endpoint must not contain a user name or password",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead.",
        )
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname
        _ = parts.port
    except ValueError as exc:
        raise InvalidConfig(f"invalid endpoint {endpoint!r}: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise InvalidConfig(
            f"endpoint must be an http or https URL, got {endpoint!r}",
            hint="Use a URL like https://s3.example.org or http://localhost:9000.",
        )
    if parts.scheme == "http" and not (allowed or _is_loopback(host)):
        raise InvalidConfig(
            f"endpoint {endpoint!r} must use https, since it is not on this machine",
            hint="Use https, or pass allow_http=True if the network is trusted.",
        )
    return parts.scheme == "http"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
