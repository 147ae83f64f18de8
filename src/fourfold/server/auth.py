"""Who may do what: API keys with scopes, each for the streams of one prefix.

A key is shown once, when it is made; the store keeps only its hash, in `access.json`. While no key
was ever made the server asks for none, and listens on this machine alone. Since the first one every
request needs a key that allows it, but for those that tell nothing of what is stored: `/health`,
`/openapi.json`, the public keys of the webhooks and OPTIONS; and workers show the token of their
wake instead. When the last key is removed nothing is allowed any more.
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
from fourfold.limits import KEYS_LOOK_S
from fourfold.server.headers import fork_source
from fourfold.server.request import Request

FILE_NAME: Final = "access.json"
Scope = Literal["read", "write", "admin", "metrics"]
Required = Literal["auto", "always", "never"]
"""When a key is required: once one was made, always, or not at all."""
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
_PREFIX: Final = "ff_"
_NEEDS: Final[dict[str, Scope]] = {
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
        has = scope in self.scopes or (scope == "metrics" and "admin" in self.scopes)
        return has and name.startswith(self.prefix)


_NOBODY: Final = Key("", "", ())
"""A key that no secret has, for a server that is closed."""


class Access:
    """The keys of one store, as its file says."""

    def __init__(self, root: Path, *, require_key: Required = "auto") -> None:
        self._path = root / FILE_NAME
        self._required = require_key
        self._seen: tuple[int, int] | None = None
        self._keys: tuple[Key, ...] = ()
        self._ever_made = False
        """Whether there was a key at any time: the file stays when the last one is removed."""
        self._asked: tuple[Key, ...] = ()
        self._looked = float("-inf")

    def stay_closed(self) -> None:
        """Require a key from now on, even if none was ever made."""
        self._required = "always"
        self._looked = float("-inf")

    def keys(self) -> tuple[Key, ...]:
        """What requests are held against: all keys, or nothing where none is asked for. The file
        is looked at every few milliseconds, and read again when it has changed: to look at it for
        every request would cost as much as to read the request.
        """
        now = time.monotonic()
        if now - self._looked < KEYS_LOOK_S:
            return self._asked
        if self._required == "never":
            self._asked = ()
        else:
            keys = self._look()
            closed = self._ever_made or self._required == "always"
            self._asked = keys or ((_NOBODY,) if closed else ())
        self._looked = now
        return self._asked

    def stored_keys(self) -> tuple[Key, ...]:
        """List the keys of the store."""
        return self._look()

    def _look(self) -> tuple[Key, ...]:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, ()
            return ()
        except OSError as error:
            raise FormatError(f"{self._path}: cannot be read: {error.strerror}") from error
        self._ever_made = True
        if self._seen != (stat.st_mtime_ns, stat.st_size):
            self._keys = _read(self._path)
            self._seen = (stat.st_mtime_ns, stat.st_size)
        return self._keys

    def add(self, scopes: tuple[Scope, ...], prefix: str = "", label: str = "") -> tuple[Key, str]:
        """A new key, and its secret, which is not kept."""
        if not scopes or any(scope not in SCOPES for scope in scopes):
            raise InvalidInput("a key has at least one scope", hint=f"One of: {', '.join(SCOPES)}.")
        secret = _PREFIX + secrets.token_urlsafe(32)
        key = Key(secrets.token_hex(4), _hash(secret), tuple(sorted(set(scopes))), prefix, label)
        with self._changing():
            self._write((*self._look(), key))
        return key, secret

    def remove(self, key_id: str) -> int:
        """Take a key away; how many are left."""
        with self._changing():
            keys = self._look()
            left = tuple(key for key in keys if key.id != key_id)
            if len(left) == len(keys):
                raise NotFound(f"there is no key {key_id!r}")
            self._write(left)
        return len(left)

    def check(self, request: Request, name: str | None, scope: Scope | None = None) -> Key | None:
        """Return the request's key, None if none is needed; Unauthorized or Forbidden unless it
        allows the request. `name` is the stream, or the beginning of those that are listed. Without
        a scope it is the one of the method.
        """
        if request.path == "/health" or request.method == "OPTIONS":
            return None
        keys = self.keys()
        if not keys:
            return None
        key = self._of_request(keys, request)
        scope = scope or _NEEDS.get(request.method, "admin")
        if name is None:
            scope, name = "admin", ""
        if not key.allows(scope, name):
            raise Forbidden(
                f"the key {key.id} does not allow to {scope} {name!r:.200}",
                details={"scope": scope},
            )
        source = fork_source(request)
        if source is not None and not key.allows("read", source):
            raise Forbidden(f"the key {key.id} does not allow to read {source!r:.200}")
        return key

    def identify(self, request: Request) -> Key | None:
        """Return the key of a request, or None where none is needed.

        Raises:
            Unauthorized: there are keys, and the request has none of them.
        """
        keys = self.keys()
        return self._of_request(keys, request) if keys else None

    def may_read_all(self, request: Request) -> bool:
        """Return True if a request may read every stream: its key allows it, or none is needed."""
        try:
            key = self.identify(request)
        except FourfoldError:
            return False
        return key is None or key.allows("read", "")

    def require(self, request: Request, scope: Scope, name: str) -> None:
        """Unauthorized or Forbidden unless the request's key has a scope for a stream, or for all
        that begin so.
        """
        keys = self.keys()
        if keys:
            key = self._of_request(keys, request)
            if not key.allows(scope, name):
                raise Forbidden(
                    f"the key {key.id} does not allow to {scope} {name!r:.200}",
                    details={"scope": scope},
                )

    def _of_request(self, keys: tuple[Key, ...], request: Request) -> Key:
        try:
            return _of_request(keys, request)
        except Unauthorized:
            # It may have been made since the last look.
            return _of_request(self._look(), request)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of the file, so that no change of another process is lost."""
        handle = os.open(
            self._path.with_name(f".{FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Two changes within a tick of the clock may leave equal times and sizes.
            self._seen = None
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
        self._looked = float("-inf")


def _of_request(keys: tuple[Key, ...], request: Request) -> Key:
    kind, _, secret = (request.header("authorization") or "").partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise Unauthorized("this server asks for a key", hint="Send `Authorization: Bearer KEY`.")
    given = _hash(secret.strip())
    # Every key is compared, and each in the same time, whichever it is.
    found = [key for key in keys if hmac.compare_digest(key.sha256, given)]
    if not found:
        raise Unauthorized("the key is not one of this store's")
    return found[0]


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be guessed back.
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(path: Path) -> tuple[Key, ...]:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))["keys"]
        return tuple(Key(**{**each, "scopes": tuple(each["scopes"])}) for each in given)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: is not a list of keys: {error}") from None
