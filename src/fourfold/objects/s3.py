"""Objects in a bucket of S3, or of a server that speaks its protocol, through obstore.

The version of an object is its ETag: it changes when the bytes change, but equal bytes may have
equal ETags. Conditional writes are the server's own (If-None-Match, If-Match). Some servers ignore
these headers without a word; `check_conditional_writes` finds out.

- A conditional write carries a random mark in the object's metadata. When the answer to a try is
  lost and the retry meets a conflict, the mark tells whether the conflict is with somebody else or
  with the first try.
- A streamed upload goes up in parts, with a bounded number in memory. obstore has no conditional
  upload in parts, and not every server that has If-None-Match checks it there. So an upload with
  `if_absent` that is larger than one part is spooled to a temporary file and sent from there,
  memory-mapped, as one conditional request.
- A streamed read asks for one window at a time, each with If-Match, so that a slow reader holds no
  connection open and never sees a mix of two versions: PreconditionFailed tells that the object
  was replaced meanwhile.

What a failed S3 request means: obstore's exceptions in our tree, each with a hint.

obstore tells most causes only in its text, so the text is read here and nowhere else.

Where an S3 bucket is and how to reach it, checked before the first request.

What is not given comes from the environment: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION
or AWS_DEFAULT_REGION, and the credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_SESSION_TOKEN, or else from the web identity, container or instance that the process runs in.
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import ModuleType

    from obstore import GetResult, ObjectMeta
    from obstore.store import S3Store as Client

    from fourfold.objects.protocol import Data


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
        self._caught = caught()
        _refuse_after_fork()
        self._process = os.getpid()
        self._client = self._connect(settings.timeout_s)
        self._bucket_seen = False

    @property
    def settings(self) -> S3Settings:
        return self._settings

    def _connect(self, timeout_s: float) -> Client:
        client: Client = self._store_class(**self._settings.client_arguments(timeout_s))
        return client

    def _check_open(self) -> None:
        super()._check_open()
        if os.getpid() != self._process:
            raise Closed(f"object store {self._name} was opened by process {self._process}")

    def put(
        self, key: str, data: Data, *, if_absent: bool = False, if_version: str | None = None
    ) -> ObjectInfo:
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
        """One request that carries the whole object."""
        mark = uuid.uuid4().hex
        options: dict[str, Any] = {"use_multipart": False}
        conditional = if_absent or if_version is not None
        if conditional:
            options["mode"] = "create" if if_absent else {"e_tag": if_version}
            options["attributes"] = {_MARK: mark}
        client = self._client_for(len(data))
        for attempt in range(self._settings.retries_max + 1):
            try:
                result = client.put(path, data, **options)
            except self._caught as exc:
                failure = read_failure(exc)
                if self._settles(failure, attempt):
                    continue
                # After more than one try, the conflict may be with the first of them.
                repeated = attempt > 0 or failure.retries > 0
                rival = conditional and failure.is_conflict and failure.status != 409
                if rival and repeated and (mine := self._marked(path, mark)) is not None:
                    return self._info(mine, key)
                # A conditional replace of an object that is gone is answered with 404 by S3.
                if if_version is not None and failure.is_absent:
                    raise PreconditionFailed(
                        f"object {key!r} is not at version {if_version!r}: it is gone"
                    ) from exc
                about = key if rival else None
                raise translated(failure, f"write object {key!r}", key=about) from exc
            self._bucket_seen = True
            return self._written(key, len(data), result["e_tag"])
        raise AssertionError

    def _settles(self, failure: Failure, attempt: int) -> bool:
        """Whether to try again: S3 answers 409 when two conditional writes meet under way."""
        if failure.status != 409 or attempt == self._settings.retries_max:
            return False
        time.sleep(limits.OBJECT_CONFLICT_BACKOFF_S * 2**attempt)
        return True

    def _marked(self, path: str, mark: str) -> ObjectMeta | None:
        """The object if it is the very one that carries this mark."""
        try:
            found = self._client.get(path, options={"head": True})
        except FileNotFoundError:
            return None
        except self._caught as exc:
            raise translated(read_failure(exc), f"look at object {path!r}") from exc
        return found.meta if dict(found.attributes).get(_MARK) == mark else None

    def upload(self, key: str, chunks: Iterable[Data], *, if_absent: bool = False) -> ObjectInfo:
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
        # The chain lets go of the start when it has passed it; so must this frame.
        del start, piece
        return self._spool(key, path, stream) if if_absent else self._stream(key, path, stream)

    def _stream(self, key: str, path: str, pieces: Iterator[bytes]) -> ObjectInfo:
        counted = _CountedBody(pieces, limits.OBJECT_UPLOAD_PARTS_MAX * _PART)
        try:
            result = self._client.put(
                path,
                counted,
                use_multipart=True,
                chunk_size=_PART,
                max_concurrency=limits.OBJECT_UPLOAD_CONCURRENCY,
            )
        except BaseException as exc:
            # The caller's own stream failed: that is no failure of the store, whatever its type.
            if counted.failure is not None:
                raise counted.failure from None
            if isinstance(exc, self._caught):
                raise translated(read_failure(exc), f"upload object {key!r}") from exc
            raise
        self._bucket_seen = True
        return self._written(key, counted.size, result["e_tag"])

    def _spool(self, key: str, path: str, pieces: Iterator[bytes]) -> ObjectInfo:
        if self.head(key) is not None:
            raise AlreadyExists(f"object {key!r} exists")
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
        path = self._path(key)
        for _ in range(self._settings.retries_max + 1):
            with self._failures(f"read object {key!r}", key):
                result = self._client.get(path)
                info = self._info(result.meta, key)
                if info.size <= _PART:
                    return Object(bytes(result.bytes()), info)
            del result
            # A large object comes window by window: each has its own time limit and its own
            # retries.
            try:
                return Object(b"".join(self._windows(path, info, _PART)), info)
            except PreconditionFailed:
                continue
        raise ObjectStoreError(
            f"cannot read object {key!r}: it was replaced again and again while being read",
            hint="Read it with get_range, or let its writers rest.",
        )

    def get_range(self, key: str, start: int, length: int) -> bytes:
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
        except self._caught as exc:
            failure = read_failure(exc)
            if failure.status == 416:
                return b""
            raise translated(failure, f"read object {key!r}", key=key) from exc

    def read(self, key: str, chunk_bytes: int) -> Iterator[bytes]:
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
        """The bytes of exactly this version, so much at a time."""
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
                    f"cannot read object {info.key!r}: {end - at} bytes asked, {len(data)} received"
                )
            yield data

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        try:
            meta = self._client.head(path)
        except self._caught as exc:
            failure = read_failure(exc)
            if not failure.is_absent:
                raise translated(failure, f"look at object {key!r}") from exc
            self._check_bucket()
            return None
        return self._info(meta, key)

    def _check_bucket(self) -> None:
        """A missing bucket answers like a missing object, until any request has succeeded."""
        if not self._bucket_seen:
            with self._failures(f"reach bucket {self._settings.bucket!r}"):
                next(self._client.list(self._settings.prefix or None, chunk_size=1), None)
            self._bucket_seen = True

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._check_open()
        check_prefix(prefix)
        if start_after is not None:
            check_prefix(start_after, "start_after")
        return self._walk(prefix, start_after)

    def _walk(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        # obstore lists whole folders; a plain prefix is the folder, from just before the prefix on.
        full = self._above + prefix
        folder = full.rpartition("/")[0]
        start = "" if start_after is None else self._above + start_after
        offset = start
        if start.rpartition("/")[2] in {".", ".."}:
            # Not a path for obstore, though it is a position.
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
                        f"cannot list objects {prefix!r}: {path!r} came after {previous!r}",
                        hint="The server does not list in key order (S3 directory buckets do not): "
                        "use a general purpose bucket.",
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
        self, turn: Callable[[], Iterable[ObjectMeta]], prefix: str
    ) -> Iterable[ObjectMeta] | None:
        self._check_open()
        with self._failures(f"list objects {prefix!r}"):
            try:
                page = turn()
            except StopIteration:
                page = None
        self._bucket_seen = True
        return page

    def delete(self, key: str) -> bool:
        path = self._path(key)
        if self.head(key) is None:
            return False
        with self._failures(f"delete object {key!r}"):
            self._client.delete(path)
        return True

    def delete_many(self, keys: Iterable[str]) -> None:
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
                f"key {key[:77]!r}... and the prefix {self._settings.prefix!r} of the store have "
                f"more than {limits.OBJECT_KEY_BYTES_MAX} bytes together"
            )
        return path

    def _client_for(self, size: int) -> Client:
        """A client whose time limit suits a request of this size."""
        needed_s = size / limits.OBJECT_UPLOAD_BYTES_PER_S_MIN
        if needed_s <= self._settings.timeout_s:
            return self._client
        return self._connect(self._settings.timeout_s + needed_s)

    def _info(self, meta: ObjectMeta, key: str) -> ObjectInfo:
        self._bucket_seen = True
        return ObjectInfo(key, meta["size"], _version(key, meta["e_tag"]), meta["last_modified"])

    def _written(self, key: str, size: int, e_tag: str | None) -> ObjectInfo:
        # The answer to a write has no modification time: this machine's clock stands in for it.
        return ObjectInfo(key, size, _version(key, e_tag), datetime.now(UTC))

    @contextmanager
    def _failures(self, what: str, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except self._caught as exc:
            raise translated(read_failure(exc), what, key=key) from exc


class _CountedBody:
    """A stream that knows how much it gave, and that keeps the error that ended it."""

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
                f"the upload has more than {self._size_max} bytes",
                hint="Split it into several objects.",
            )
            raise self.failure
        return piece


def _version(key: str, e_tag: str | None) -> str:
    if not e_tag:
        raise ObjectStoreError(
            f"the server gave no ETag for object {key!r}",
            hint="Versions need ETags: use a server that sends them.",
        )
    return e_tag


def _refuse_after_fork() -> None:
    """The client's threads do not survive a fork, and a child that used it would wait for ever."""
    if not _first_process:
        _first_process.append(os.getpid())
    if _first_process[0] != os.getpid():
        raise Refused(
            f"process {_first_process[0]} opened an S3 store and then forked process {os.getpid()}",
            hint="Start worker processes with 'spawn' or 'forkserver', not 'fork'.",
        )


_S3_SETTINGS_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_REGION_DEFAULT: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """One bucket, the prefix in it that belongs to the store, and the way there."""

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
                f"{self.bucket!r} is not a bucket name",
                hint="A bucket name has 3 to 63 letters, digits, dots and hyphens.",
            )
        if self.prefix:
            try:
                check_key(self.prefix)
            except InvalidInput as exc:
                raise InvalidConfig(f"the prefix of the store: {exc.message}") from exc
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise InvalidConfig(
                "access_key_id and secret_access_key belong together",
                hint="Give both, or neither and set them in the environment.",
            )
        if self.session_token is not None and self.access_key_id is None:
            raise InvalidConfig(
                "session_token needs access_key_id and secret_access_key",
                hint="Give all three, or none and set them in the environment.",
            )
        if not 0 < self.timeout_s < 86_400:
            raise InvalidConfig(f"timeout_s is {self.timeout_s!r}, not a number of seconds")
        if not 0 <= self.retries_max <= limits.OBJECT_RETRIES_MAX:
            raise InvalidConfig(
                f"retries_max is {self.retries_max}, not 0 to {limits.OBJECT_RETRIES_MAX}"
            )

    def client_arguments(self, timeout_s: float) -> dict[str, Any]:
        """The arguments of obstore's own S3 store."""
        endpoint = self.endpoint or _environment(
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
        )
        region = self.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
        arguments: dict[str, Any] = {
            "bucket": self.bucket,
            "region": region or _REGION_DEFAULT,
            "conditional_put": "etag",
            "client_options": {
                "allow_http": _http_allowed(endpoint, asked=self.allow_http),
                "timeout": timedelta(seconds=timeout_s),
            },
            "retry_config": {
                "max_retries": self.retries_max,
                "retry_timeout": timedelta(seconds=limits.OBJECT_RETRY_WINDOW_S),
            },
        }
        if endpoint:
            arguments["aws_endpoint_url_s3"] = endpoint
        if self.access_key_id is not None:
            # A provider, since plain arguments would be joined with a session token of the
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


def _http_allowed(endpoint: str | None, *, asked: bool) -> bool:
    """Whether plain HTTP may be spoken: to this machine, or where the user asked for it."""
    if endpoint is None:
        return False
    if "@" in endpoint:
        raise InvalidConfig(
            "the endpoint holds a user name or password",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead.",
        )
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname
        _ = parts.port
    except ValueError as exc:
        raise InvalidConfig(f"endpoint {endpoint!r} is not a URL: {exc}") from exc
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise InvalidConfig(
            f"endpoint {endpoint!r} is not an http or https URL",
            hint="Write it like https://s3.example.org or http://localhost:9000.",
        )
    if parts.scheme == "http" and not (asked or _is_loopback(host)):
        raise InvalidConfig(
            f"endpoint {endpoint!r} is not encrypted and not on this machine",
            hint="Use https, or give allow_http=True if the network between is trusted.",
        )
    return parts.scheme == "http"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
