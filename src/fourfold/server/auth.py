"""Access by API keys.

A key's secret is shown once, when the key is created; the store has only its hash. Until the first
key is created the server requires none, and listens on this machine only. From then on every
request needs a key that allows it, except those of public routes, which reveal nothing of the data;
workers send the token of their wake instead. After the last key is removed every request is
refused.

Programs send the secret in the Authorization header. Browsers send it in a cookie that only the
login page of the explorer sets, and that pages of other sites cannot make them send.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Self

from fourfold.errors import Forbidden, FourfoldError, InvalidInput, NotFound, Unauthorized
from fourfold.kernel.idempotency import IdempotentRequest
from fourfold.server.key_store import (
    MODELS,
    NAMED_MODELS,
    SCOPES,
    Grant,
    Key,
    KeyStore,
    Model,
    Scope,
)
from fourfold.server.key_use import KeyUses
from fourfold.server.request import Request

KEYS_CHECK_S: Final = 0.005
"""Longest time for which a deleted key is still accepted."""
USES_RECORDED_EVERY_S: Final = 60.0
LIFETIME_S_MAX: Final = 3_660 * 86_400.0
"""Longest lifetime of a key that expires: ten years."""
REQUESTS_PER_S_MIN: Final = 0.001
_log = logging.getLogger("fourfold.server")

Required = Literal["auto", "always", "never"]
"""Condition for requiring a key: once one was created, always, or never."""
_PREFIX: Final = "ff_"
COOKIE: Final = "fourfold_key"
_NO_KEY: Final = Key("", "")
"""A key that no secret matches, for a server that requires keys and has none."""


class Access:
    """The keys of one store, and what they allow. Close it, or use it in a `with` block."""

    def __init__(self, root: Path, *, require_key: Required = "auto") -> None:
        self._store = KeyStore(root)
        self._required = require_key
        self._had_keys = False
        """True if a key ever existed, as far as this process has seen."""
        self._effective_keys: tuple[Key, ...] = ()
        self._checked_at = float("-inf")
        self._valid_of: tuple[Key, ...] = ()
        self._valid: tuple[Key, ...] = ()
        self._valid_until_ms = float("inf")
        self.uses = KeyUses()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file of the keys. Idempotent."""
        self._store.close()

    def always_require(self) -> None:
        """Require a key from now on, even if none was ever created."""
        self._required = "always"
        self._checked_at = float("-inf")

    def keys(self) -> tuple[Key, ...]:
        """Return the keys that requests are checked against; empty if none is required.

        They are read again every few milliseconds: reading them for every request would cost as
        much as parsing the request.
        """
        now = time.monotonic()
        if now - self._checked_at < KEYS_CHECK_S:
            return self._effective_keys
        if self._required == "never":
            self._effective_keys = ()
        else:
            keys = self._valid_keys()
            closed = self._had_keys or self._required == "always"
            self._effective_keys = keys or ((_NO_KEY,) if closed else ())
        self._checked_at = now
        return self._effective_keys

    def _valid_keys(self) -> tuple[Key, ...]:
        """Return the keys that have not expired: the same tuple until they change."""
        keys, now_ms = self.stored_keys(), time.time_ns() // 1_000_000
        if keys is not self._valid_of or now_ms >= self._valid_until_ms:
            self._valid_of = keys
            self._valid = tuple(key for key in keys if not key.is_expired(now_ms))
            ends = [key.expires_at_ms for key in self._valid if key.expires_at_ms is not None]
            self._valid_until_ms = min(ends, default=float("inf"))
        return self._valid

    def stored_keys(self) -> tuple[Key, ...]:
        """List the keys of the store, with those that have expired."""
        keys, had_keys = self._store.read()
        self._had_keys = self._had_keys or had_keys
        return keys

    def add(
        self,
        scopes: tuple[Scope, ...],
        prefix: str = "",
        label: str = "",
        *,
        models: Iterable[Model] = (),
        expires_in_s: float | None = None,
        requests_per_s: float | None = None,
        bytes_per_day: int | None = None,
    ) -> tuple[Key, str]:
        """Create a key and return it with its secret, which is not stored.

        The key is for the objects of `models` whose names start with `prefix`; by default for all
        models, and for the store if it has no prefix. It expires after `expires_in_s`, and has the
        quotas that are given.
        """
        key, secret = make_key(
            *(scopes, prefix, label),
            models=models,
            expires_in_s=expires_in_s,
            requests_per_s=requests_per_s,
            bytes_per_day=bytes_per_day,
        )
        self.store_key(key)
        return key, secret

    def store_key(self, key: Key, request: IdempotentRequest | None = None) -> str:
        """Store a key made by `make_key` and return its id.

        Idempotent: a repeated request stores nothing and returns the first id.
        """
        key_id = self._store.add(key, request)
        self._checked_at = float("-inf")
        return key_id

    def find(self, key_id: str) -> Key:
        """Return a key by its id.

        Raises:
            NotFound: there is no such key.
        """
        for key in self.stored_keys():
            if key.id == key_id:
                return key
        raise NotFound(f"unknown key {key_id!r:.80}")

    def rotate(
        self, key_id: str, *, overlap_s: float = 0.0, expires_in_s: float | None = None
    ) -> tuple[Key, str]:
        """Replace a key, and return its successor with the secret.

        The successor has the same grants, label and quotas. The old key expires after `overlap_s`,
        until which both are accepted.

        Args:
            overlap_s: Time until the old key expires.
            expires_in_s: Lifetime of the successor; by default that of the old key.

        Raises:
            NotFound: there is no such key.
        """
        old = self.find(key_id)
        successor, secret = make_successor(old, expires_in_s=expires_in_s)
        self.store_successor(old, successor, overlap_s)
        return successor, secret

    def store_successor(
        self, old: Key, successor: Key, overlap_s: float, request: IdempotentRequest | None = None
    ) -> str:
        """Store the successor of a key and return its id.

        Idempotent: a repeated request changes nothing and returns the first id.
        """
        until_ms = _expiry(overlap_s, "overlap", at_least=0.0)
        key_id = self._store.rotate(old.id, successor, until_ms, request)
        self._checked_at = float("-inf")
        return key_id

    def expire(self, key_id: str, after_s: float | None = 0.0) -> int | None:
        """Let a key expire after a time, by default now; None for never. Returns that time.

        Raises:
            NotFound: there is no such key.
        """
        at_ms = None if after_s is None else _expiry(after_s, "expiry", at_least=0.0)
        self._store.set_expiry(key_id, at_ms)
        self._checked_at = float("-inf")
        return at_ms

    def record_uses(self) -> None:
        """Write the day of their last use for the keys that were used since the last call."""
        day = datetime.now(UTC).date().isoformat()
        used = self.uses.used_since(self.stored_keys(), day)
        if used:
            self._store.record_uses(used, day)

    @contextmanager
    def recording_uses(self, every_s: float = USES_RECORDED_EVERY_S) -> Iterator[None]:
        """Record uses in the background until the block ends."""
        ended = threading.Event()

        def record() -> None:
            try:
                self.record_uses()
            except FourfoldError as error:
                _log.warning("The last use of keys was not recorded: %s", error)

        def run() -> None:
            while not ended.wait(every_s):
                record()

        thread = threading.Thread(target=run, name="fourfold-key-uses", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            record()

    def remove(self, key_id: str) -> int:
        """Delete a key and return the number of keys that are left."""
        left = self._store.remove(key_id)
        self._checked_at = float("-inf")
        return left

    def identify(self, request: Request) -> Key | None:
        """Return the key of a request, or None if no key is required.

        Raises:
            Unauthorized: the request has no valid key.
        """
        keys = self.keys()
        if not keys:
            return None
        secret = _secret(request)
        if secret is None:
            raise Unauthorized("a key is required", hint="Send `Authorization: Bearer KEY`.")
        digest = _hash(secret)
        # The key may have been created since the last check.
        key = _find_key(keys, digest) or _find_key(self.stored_keys(), digest)
        if key is None:
            raise Unauthorized("unknown key")
        if key.is_expired(time.time_ns() // 1_000_000):
            raise Unauthorized(
                f"key {key.id}: has expired",
                hint="Ask the operator of the store for a new key.",
                details={"key": key.id},
            )
        return key

    def may_read_all(self, request: Request, model: Model) -> bool:
        """Return True if a request may read every object of a model, by its key or without one."""
        try:
            key = self.identify(request)
        except FourfoldError:
            return False
        return key is None or key.allows("read", "", model)

    def require(
        self, request: Request, scope: Scope, name: str | None, model: Model | Literal["any"]
    ) -> Key | None:
        """Return the key of a request, or None if no key is required.

        `name` is an object of the model, or a prefix of names; empty for all of them, and None if
        the handler checks the prefix of the key.

        Raises:
            Unauthorized: the request has no valid key.
            Forbidden: the key lacks the scope.
        """
        key = self.identify(request)
        if key is not None:
            check_grant(key, scope, name, model)
        return key


def make_key(
    scopes: tuple[Scope, ...],
    prefix: str = "",
    label: str = "",
    *,
    models: Iterable[Model] = (),
    created_by: str = "",
    expires_in_s: float | None = None,
    requests_per_s: float | None = None,
    bytes_per_day: int | None = None,
) -> tuple[Key, str]:
    """Return a new key with its secret; it is valid once it is stored.

    Raises:
        InvalidInput: a scope or a model is unknown, the store is to have a prefix, or a lifetime or
            a quota is not positive.
    """
    if requests_per_s is not None and not requests_per_s >= REQUESTS_PER_S_MIN:
        raise InvalidInput(
            f"requests_per_s: must be at least {REQUESTS_PER_S_MIN}, got {requests_per_s}"
        )
    if bytes_per_day is not None and bytes_per_day < 1:
        raise InvalidInput(f"bytes_per_day: must be at least 1, got {bytes_per_day}")
    expires_at_ms = None if expires_in_s is None else _expiry(expires_in_s, "lifetime")
    if not scopes or any(scope not in SCOPES for scope in scopes):
        raise InvalidInput(
            f"scopes: must be one or more known scopes, got {', '.join(scopes) or 'none'}",
            hint=f"Use: {', '.join(SCOPES)}.",
        )
    granted = tuple(sorted(set(scopes)))
    grants = tuple(Grant(model, granted, prefix) for model in _models_of(models, prefix))
    secret = _PREFIX + secrets.token_urlsafe(32)
    now_ms = time.time_ns() // 1_000_000
    key = Key(
        *(secrets.token_hex(4), _hash(secret), grants, label, now_ms, created_by),
        expires_at_ms=expires_at_ms,
        requests_per_s=requests_per_s,
        bytes_per_day=bytes_per_day,
    )
    return key, secret


def make_successor(
    old: Key, *, created_by: str = "", expires_in_s: float | None = None
) -> tuple[Key, str]:
    """Return a key that is allowed what an old one is, with its secret."""
    if expires_in_s is None and old.expires_at_ms is not None and old.created_at_ms is not None:
        expires_in_s = (old.expires_at_ms - old.created_at_ms) / 1000
    now_ms = time.time_ns() // 1_000_000
    secret = _PREFIX + secrets.token_urlsafe(32)
    successor = replace(
        old,
        id=secrets.token_hex(4),
        sha256=_hash(secret),
        created_at_ms=now_ms,
        created_by=created_by,
        expires_at_ms=None if expires_in_s is None else _expiry(expires_in_s, "lifetime"),
        last_used_on=None,
        replaces=old.id,
    )
    return successor, secret


def _expiry(after_s: float, what: str, *, at_least: float = 1.0) -> int:
    """Return the time in milliseconds that is `after_s` from now."""
    if not at_least <= after_s <= LIFETIME_S_MAX:
        raise InvalidInput(
            f"{what}: must be from {at_least:g} to {LIFETIME_S_MAX:g} seconds, got {after_s:g}"
        )
    return time.time_ns() // 1_000_000 + round(after_s * 1000)


def check_grant(key: Key, scope: Scope, name: str | None, model: Model | Literal["any"]) -> None:
    """Raise Forbidden if a key lacks a scope for an object of a model, or for a prefix."""
    if not key.allows(scope, name, model):
        what = model if name is None else f"{name!r:.200}"
        raise Forbidden(
            f"key {key.id}: not allowed to {scope} {what}", details={"scope": scope, "key": key.id}
        )


def _models_of(models: Iterable[Model], prefix: str) -> tuple[Model, ...]:
    """Return the models of a new key: those that are given, or all that can have its prefix."""
    names = set(models)
    for model in sorted(names - set(MODELS)):
        raise InvalidInput(f"unknown model {model!r}", hint=f"Use: {', '.join(MODELS)}.")
    if prefix and "store" in names:
        raise InvalidInput(
            f"prefix: the store has no names, got {prefix!r:.200}",
            hint="Create a key for the store without a prefix, and another one for the prefix.",
        )
    possible = NAMED_MODELS if prefix else MODELS
    return tuple(model for model in possible if model in names) or possible


def _secret(request: Request) -> str | None:
    """Return the secret that a request sends, in the header or in the cookie."""
    kind, _, secret = (request.header("authorization") or "").partition(" ")
    if kind.lower() == "bearer" and secret:
        return secret.strip()
    for cookie in (request.header("cookie") or "").split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def _find_key(keys: tuple[Key, ...], digest: str) -> Key | None:
    # All keys are compared, in constant time.
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    return matches[0] if matches else None


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a plain hash cannot be reversed by guessing.
    return hashlib.sha256(secret.encode()).hexdigest()
