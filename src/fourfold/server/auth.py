"""API keys with scopes, each for the streams of one prefix.

A key's secret is shown once, when the key is created; the store holds only its hash, in
`access.json`. Until the first key is created the server requires none, and listens on this machine
only. From then on every request needs a key that allows it, except those that reveal nothing of the
data: `/health`, `/openapi.json`, the public keys of webhooks, and OPTIONS; workers send the token
of
their wake instead. After the last key is removed every request is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from fourfold.errors import (
    Forbidden,
    FormatError,
    FourfoldError,
    InvalidInput,
    NotFound,
    Unauthorized,
)
from fourfold.kernel import sync_folder
from fourfold.limits import KEYS_CHECK_S
from fourfold.server.headers import parse_fork_source
from fourfold.server.request import Request

FILE_NAME: Final = "access.json"
Scope = Literal["read", "write", "admin", "metrics"]
Required = Literal["auto", "always", "never"]
"""When a key is required: once one was created, always, or never."""
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
_PREFIX: Final = "ff_"
_METHOD_SCOPES: Final[dict[str, Scope]] = {
    "GET": "read",
    "HEAD": "read",
    "PUT": "write",
    "POST": "write",
    "PATCH": "admin",
    "DELETE": "admin",
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret."""

    id: str
    sha256: str
    scopes: tuple[Scope, ...]
    prefix: str = ""
    label: str = ""

    def allows(self, scope: Scope, name: str) -> bool:
        """Return True if the key has a scope for a stream, or for a prefix of streams."""
        has = scope in self.scopes or (scope == "metrics" and "admin" in self.scopes)
        return has and name.startswith(self.prefix)


_NO_KEY: Final = Key("", "", ())
"""A key that no secret matches, for a server that requires keys and has none."""


class Access:
    """The keys of one store, read from its file."""

    def __init__(self, root: Path, *, require_key: Required = "auto") -> None:
        self._path = root / FILE_NAME
        self._required = require_key
        self._file_stamp: tuple[int, int] | None = None
        self._keys: tuple[Key, ...] = ()
        self._had_keys = False
        """True if a key ever existed: the file stays when the last one is removed."""
        self._effective_keys: tuple[Key, ...] = ()
        self._checked_at = float("-inf")

    def always_require(self) -> None:
        """Require a key from now on, even if none was ever created."""
        self._required = "always"
        self._checked_at = float("-inf")

    def keys(self) -> tuple[Key, ...]:
        """Return the keys that requests are checked against; empty if none is required.

        The file is checked every few milliseconds and read again when it has changed: a check for
        every
        request would cost as much as parsing the request.
        """
        now = time.monotonic()
        if now - self._checked_at < KEYS_CHECK_S:
            return self._effective_keys
        if self._required == "never":
            self._effective_keys = ()
        else:
            keys = self._load()
            closed = self._had_keys or self._required == "always"
            self._effective_keys = keys or ((_NO_KEY,) if closed else ())
        self._checked_at = now
        return self._effective_keys

    def stored_keys(self) -> tuple[Key, ...]:
        """List the keys of the store."""
        return self._load()

    def _load(self) -> tuple[Key, ...]:
        """Return the keys, after reading the file if it has changed."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._file_stamp, self._keys = None, ()
            return ()
        except OSError as error:
            raise FormatError(f"{self._path}: cannot read the file: {error.strerror}") from error
        self._had_keys = True
        if self._file_stamp != (stat.st_mtime_ns, stat.st_size):
            self._keys = _read(self._path)
            self._file_stamp = (stat.st_mtime_ns, stat.st_size)
        return self._keys

    def add(self, scopes: tuple[Scope, ...], prefix: str = "", label: str = "") -> tuple[Key, str]:
        """Create a key and return it with its secret, which is not stored."""
        if not scopes or any(scope not in SCOPES for scope in scopes):
            raise InvalidInput(
                f"scopes: must be one or more known scopes, got {', '.join(scopes) or 'none'}",
                hint=f"Use: {', '.join(SCOPES)}.",
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        key = Key(secrets.token_hex(4), _hash(secret), tuple(sorted(set(scopes))), prefix, label)
        with self._locked_file():
            self._write((*self._load(), key))
        return key, secret

    def remove(self, key_id: str) -> int:
        """Delete a key and return the number of keys that are left."""
        with self._locked_file():
            keys = self._load()
            remaining = tuple(key for key in keys if key.id != key_id)
            if len(remaining) == len(keys):
                raise NotFound(f"unknown key {key_id!r}")
            self._write(remaining)
        return len(remaining)

    def check(self, request: Request, name: str | None, scope: Scope | None = None) -> Key | None:
        """Return the key of a request, or None if no key is required.

        `name` is the stream, or the prefix of a listing. `scope` defaults to the one of the method.

        Raises:
            Unauthorized: the request has no valid key.
            Forbidden: the key does not allow the request.
        """
        if request.path == "/health" or request.method == "OPTIONS":
            return None
        keys = self.keys()
        if not keys:
            return None
        key = self._match_key(keys, request)
        scope = scope or _METHOD_SCOPES.get(request.method, "admin")
        if name is None:
            scope, name = "admin", ""
        if not key.allows(scope, name):
            raise Forbidden(
                f"key {key.id}: not allowed to {scope} {name!r:.200}",
                details={"scope": scope},
            )
        source = parse_fork_source(request)
        if source is not None and not key.allows("read", source):
            raise Forbidden(f"key {key.id}: not allowed to read {source!r:.200}")
        return key

    def identify(self, request: Request) -> Key | None:
        """Return the key of a request, or None if no key is required.

        Raises:
            Unauthorized: the request has no valid key.
        """
        keys = self.keys()
        return self._match_key(keys, request) if keys else None

    def may_read_all(self, request: Request) -> bool:
        """Return True if a request may read every stream, by its key or without one."""
        try:
            key = self.identify(request)
        except FourfoldError:
            return False
        return key is None or key.allows("read", "")

    def require(self, request: Request, scope: Scope, name: str) -> None:
        """Check that the key of a request has a scope for a stream, or for a prefix of streams.

        Raises:
            Unauthorized: the request has no valid key.
            Forbidden: the key lacks the scope.
        """
        keys = self.keys()
        if keys:
            key = self._match_key(keys, request)
            if not key.allows(scope, name):
                raise Forbidden(
                    f"key {key.id}: not allowed to {scope} {name!r:.200}",
                    details={"scope": scope},
                )

    def _match_key(self, keys: tuple[Key, ...], request: Request) -> Key:
        try:
            return _match_key(keys, request)
        except Unauthorized:
            # The key may have been created since the last check.
            return _match_key(self._load(), request)

    @contextmanager
    def _locked_file(self) -> Iterator[None]:
        """Hold the lock of the file, so that no concurrent change of another process is lost."""
        handle = os.open(
            self._path.with_name(f".{FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Two changes within one clock tick may leave equal times and sizes.
            self._file_stamp = None
            yield
        finally:
            os.close(handle)

    def _write(self, keys: tuple[Key, ...]) -> None:
        partial = self._path.with_name(f".{FILE_NAME}.{os.getpid()}.partial")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"keys": [asdict(key) for key in keys]}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._path)
        sync_folder(self._path.parent)
        self._checked_at = float("-inf")


def _match_key(keys: tuple[Key, ...], request: Request) -> Key:
    kind, _, secret = (request.header("authorization") or "").partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise Unauthorized("a key is required", hint="Send `Authorization: Bearer KEY`.")
    digest = _hash(secret.strip())
    # All keys are compared, in constant time.
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise Unauthorized("unknown key")
    return matches[0]


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be reversed by guessing.
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(path: Path) -> tuple[Key, ...]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return tuple(Key(**{**row, "scopes": tuple(row["scopes"])}) for row in rows)
    except OSError as error:
        raise FormatError(f"{path}: cannot read the file: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected a list of keys: {error}") from None
