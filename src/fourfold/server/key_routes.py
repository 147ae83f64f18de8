"""The keys of a store over HTTP: list, create, rotate, expire and delete them.

These routes need a key for the store with the scope `admin`. A key cannot create one that is
allowed more than itself, or that lasts longer, nor delete itself, so requests cannot make a store
inaccessible. A secret is in the response that creates its key and nowhere else: a repeated request
returns the key only.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Final

import msgspec

from fourfold.errors import Forbidden, NotFound, Refused, ReplayMismatch
from fourfold.kernel.idempotency import IdempotentRequest, digest_of
from fourfold.server import conditions
from fourfold.server.auth import Access, make_key, make_successor
from fourfold.server.key_store import MODELS, Grant, Key
from fourfold.server.request import Reply, Request
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.workers import Workers
from fourfold.wire.pages import IdempotencyHeaders
from fourfold.wire.store import (
    CreatedKey,
    CurrentKey,
    DeletedKey,
    ExpireKey,
    GrantInfo,
    KeyInfo,
    KeyList,
    NewKey,
    RotateKey,
)

KEYS: Final = "/v1/keys"
KEY: Final = f"{KEYS}/{{key_id}}"
_log = logging.getLogger("fourfold.server")


class KeyRoutes:
    """Handlers of the keys of one store; without `access` there are none."""

    def __init__(self, access: Access | None, workers: Workers) -> None:
        self._access = access
        self._workers = workers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    async def list_keys(self, _request: Request) -> Reply:
        """Return the keys of the store, without their secrets."""
        access = self._access
        rows = [] if access is None else [_key_info(key) for key in access.stored_keys()]
        required = access is not None and bool(access.keys())
        return Reply(KeyList(required=required, keys=rows))

    async def get_key(self, request: Request) -> Reply:
        """Return the key of the request, and what it allows."""
        key = None if self._access is None else self._access.identify(request)
        info = None if key is None else _key_info(key)
        return Reply(CurrentKey(required=info is not None, key=info))

    async def create_key(self, request: Request, body: NewKey) -> Reply:
        """Create a key and return it with its secret."""
        access = self._writable()
        key, secret = make_key(
            tuple(body.scopes),
            body.prefix,
            body.label,
            models=body.models,
            created_by=request.key_id,
            expires_in_s=body.expires_in_s,
            requests_per_s=body.requests_per_s,
            bytes_per_day=body.bytes_per_day,
        )
        own = access.identify(request)
        _check_grants(own, key)
        _check_limits(own, key)
        idempotency_key, sent = conditions.parse_idempotency_key(request), None
        if idempotency_key is not None:
            digest = digest_of(b"create_key", msgspec.json.encode(body))
            sent = IdempotentRequest(request.key_id, idempotency_key, digest)
        stored, is_new = await self._workers.write(_store_key, access, key, sent)
        if is_new:
            _log.info("Key %s was created by %s", key.id, request.key_id or "a client without key")
        info = msgspec.structs.asdict(_key_info(stored))
        value = CreatedKey(**info, key=secret if is_new else None)
        return Reply(value, 201)

    async def rotate_key(self, request: Request, key_id: str, body: RotateKey) -> Reply:
        """Replace a key and return its successor with the secret."""
        access = self._writable()
        old = access.find(key_id)
        successor, secret = make_successor(
            old, created_by=request.key_id, expires_in_s=body.expires_in_s
        )
        own = access.identify(request)
        _check_grants(own, successor)
        _check_limits(own, successor)
        idempotency_key, sent = conditions.parse_idempotency_key(request), None
        if idempotency_key is not None:
            digest = digest_of(b"rotate_key", key_id.encode(), msgspec.json.encode(body))
            sent = IdempotentRequest(request.key_id, idempotency_key, digest)
        stored_id = await self._workers.write(
            access.store_successor, old, successor, body.overlap_s, sent
        )
        is_new = stored_id == successor.id
        info = msgspec.structs.asdict(_key_info(access.find(stored_id)))
        return Reply(CreatedKey(**info, key=secret if is_new else None), 201)

    async def expire_key(self, request: Request, key_id: str, body: ExpireKey) -> Reply:
        """Let a key expire, at once or after a time."""
        access = self._writable()
        if key_id == request.key_id and body.after_s is not None and not body.after_s > 0:
            raise Refused(
                f"key {key_id}: is the key of this request",
                hint="Use another key with the scope admin, or `fourfold key expire`.",
            )
        key, own = access.find(key_id), access.identify(request)
        at_ms = None if body.after_s is None else time.time_ns() // 1_000_000
        at_ms = None if at_ms is None else at_ms + round((body.after_s or 0) * 1000)
        if not _lasts_less(at_ms, key.expires_at_ms):
            # To prolong a key is to grant it again.
            _check_grants(own, key)
            _check_limits(own, replace(key, expires_at_ms=at_ms))
        await self._workers.write(access.expire, key_id, body.after_s)
        return Reply(_key_info(access.find(key_id)))

    async def delete_key(self, request: Request, key_id: str) -> Reply:
        """Delete a key; requests with it are refused from then on."""
        access = self._writable()
        if key_id == request.key_id:
            raise Refused(
                f"key {key_id}: is the key of this request",
                hint="Use another key with the scope admin, or `fourfold key remove`.",
            )
        left = await self._workers.write(access.remove, key_id)
        _log.info("Key %s was deleted by %s", key_id, request.key_id or "a client without key")
        return Reply(DeletedKey(id=key_id, left=left))

    def _writable(self) -> Access:
        if self._access is None:
            raise Refused("this server does not use keys")
        return self._access


def _store_key(access: Access, key: Key, request: IdempotentRequest | None) -> tuple[Key, bool]:
    """Store a key; return it and True, or the key that the same request created and False.

    Raises:
        Refused: it would be the only key, and could not create others.
        NotFound: the key that the same request created was deleted.
    """
    if not access.stored_keys() and not key.allows("admin", "", "store"):
        raise Refused(
            "the first key must be for the store, with the scope admin",
            hint="Create that one first: from then on every request needs a key.",
        )
    key_id = access.store_key(key, request)
    if key_id == key.id:
        return key, True
    for stored in access.stored_keys():
        if stored.id == key_id:
            return stored, False
    raise NotFound(f"key {key_id} was created by this request and is deleted")


def _lasts_less(at_ms: int | None, than_ms: int | None) -> bool:
    """Return True if a time of expiry is not after another one; None is never."""
    return than_ms is None or (at_ms is not None and at_ms <= than_ms)


def _check_limits(own: Key | None, key: Key) -> None:
    """Raise Forbidden if a key lasts longer, or may send more, than the key of the request."""
    if own is None:
        return
    for what, mine, new in (
        ("lifetime", own.expires_at_ms, key.expires_at_ms),
        ("quota requests_per_s", own.requests_per_s, key.requests_per_s),
        ("quota bytes_per_day", own.bytes_per_day, key.bytes_per_day),
    ):
        if mine is not None and (new is None or new > mine):
            raise Forbidden(
                f"key {own.id}: cannot grant a {what} beyond its own",
                hint="Grant what your key is allowed, or use `fourfold key add`.",
            )


def _check_grants(own: Key | None, key: Key) -> None:
    """Raise Forbidden if a key is allowed something that the key of the request is not."""
    if own is None:
        return
    for grant in key.grants:
        for scope in grant.scopes:
            if not any(_includes(mine, grant, scope) for mine in own.grants):
                raise Forbidden(
                    f"key {own.id}: cannot grant {scope} for {grant.model}"
                    f" with the prefix {grant.prefix!r:.200}",
                    hint="Grant what your key is allowed, or use `fourfold key add`.",
                    details={"scope": scope},
                )


def _includes(own: Grant, grant: Grant, scope: Any) -> bool:
    return own.model == grant.model and own.allows(scope, grant.prefix)


def _key_info(key: Key) -> KeyInfo:
    grants = [
        GrantInfo(model=grant.model, scopes=list(grant.scopes), prefix=grant.prefix)
        for grant in sorted(key.grants, key=lambda grant: MODELS.index(grant.model))
    ]
    return KeyInfo(
        id=key.id,
        label=key.label,
        grants=grants,
        created_at_ms=key.created_at_ms,
        created_by=key.created_by,
        expires_at_ms=key.expires_at_ms,
        last_used_on=key.last_used_on,
        replaces=key.replaces,
        requests_per_s=key.requests_per_s,
        bytes_per_day=key.bytes_per_day,
    )


_ROUTES: Final = (
    Route(
        *("GET", KEYS, KeyRoutes.list_keys),
        operation="list_keys",
        summary="List the keys, without their secrets.",
        scope="admin",
        model="store",
        ok={200: Ok("The keys.", KeyList)},
    ),
    Route(
        *("POST", KEYS, KeyRoutes.create_key),
        operation="create_key",
        summary="Create a key, which is allowed at most what the key of the request is.",
        scope="admin",
        model="store",
        headers=IdempotencyHeaders,
        body=NewKey,
        ok={201: Ok("The key; its secret is not shown again.", CreatedKey)},
        errors=(NotFound, Refused, ReplayMismatch),
    ),
    Route(
        *("DELETE", KEY, KeyRoutes.delete_key),
        operation="delete_key",
        summary="Delete a key, except that of the request.",
        scope="admin",
        model="store",
        ok={200: Ok("It is deleted.", DeletedKey)},
        errors=(NotFound, Refused),
    ),
    Route(
        *("POST", f"{KEY}/rotate", KeyRoutes.rotate_key),
        operation="rotate_key",
        summary="Replace a key; the old one is accepted until the overlap ends.",
        scope="admin",
        model="store",
        headers=IdempotencyHeaders,
        body=RotateKey,
        ok={201: Ok("The new key; its secret is not shown again.", CreatedKey)},
        errors=(NotFound, Refused, ReplayMismatch),
    ),
    Route(
        *("POST", f"{KEY}/expire", KeyRoutes.expire_key),
        operation="expire_key",
        summary="Set when a key expires: at once, after a time, or never.",
        scope="admin",
        model="store",
        body=ExpireKey,
        ok={200: Ok("The key.", KeyInfo)},
        errors=(NotFound, Refused),
    ),
    Route(
        *("GET", "/v1/key", KeyRoutes.get_key),
        operation="get_key",
        summary="Get the key of the request: the models, scopes and prefixes that it is for.",
        scope="owner",
        model="store",
        ok={200: Ok("The key.", CurrentKey)},
    ),
)
