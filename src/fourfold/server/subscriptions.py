"""Subscriptions over HTTP, under the reserved path `/v1/stream/__ds`.

A subscription belongs to the key that created it. Keys of the same prefix, or of a shorter one, may
use it as far as their scopes allow; every other request is refused, whether the subscription exists
or not. Its streams are all under the owner's prefix. `Control._authorize` is the one place that
decides. A worker shows the token of its wake instead of a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from fourfold import limits
from fourfold.errors import Forbidden, FourfoldError, InvalidInput, NotFound, Unauthorized
from fourfold.models.streams import Streams
from fourfold.models.streams.subscriptions import Ack, Owner, Subscribe, Subscription
from fourfold.models.streams.subscriptions.leases import Fence
from fourfold.models.streams.subscriptions.members import check_pattern, literal_prefix
from fourfold.models.streams.validation import show_offset
from fourfold.server import webhooks
from fourfold.server.auth import Access, Key, Scope
from fourfold.server.request import Request, Response
from fourfold.server.signing_keys import Keys
from fourfold.server.webhooks import CONTROL, Deliverer, Targets, shown
from fourfold.settings import Server

PREFIX: Final = f"{CONTROL}/subscriptions/"
_JWKS: Final = "/__ds/jwks.json"
_WORKER_ACTIONS: Final = frozenset({"callback", "ack", "release"})
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_CODES: Final[dict[str, str]] = {
    "webhook_refused": "WEBHOOK_URL_REJECTED",
    "wake_fenced": "FENCED",
    "already_claimed": "ALREADY_CLAIMED",
    "nothing_pending": "NO_PENDING_WORK",
    "ack_refused": "INVALID_OFFSET",
    "already_exists": "SUBSCRIPTION_ALREADY_EXISTS",
    "not_found": "SUBSCRIPTION_NOT_FOUND",
    "unauthorized": "TOKEN_INVALID",
    "invalid_input": "INVALID_REQUEST",
}
"""How the protocol calls what went wrong."""


class WebhookBody(msgspec.Struct):
    url: str


class SubscribeBody(msgspec.Struct):
    """What a PUT of a subscription sends."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: list[str] = []
    webhook: WebhookBody | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None


class StreamsBody(msgspec.Struct):
    streams: list[str]


class ClaimBody(msgspec.Struct):
    worker: str


class AckBody(msgspec.Struct):
    offset: str
    stream: str | None = None
    path: str | None = None


class WorkBody(msgspec.Struct):
    """What a worker says of a wake: how far it is, and whether that is all."""

    wake_id: str
    generation: int
    acks: list[AckBody] = []
    done: bool = False


_B = TypeVar("_B", bound=msgspec.Struct)


class Control:
    """Answers requests about the subscriptions of one store."""

    def __init__(
        self,
        streams: Streams,
        keys: Keys,
        access: Access | None = None,
        *,
        settings: Server | None = None,
    ) -> None:
        self._subscriptions = streams.subscriptions
        self._keys = keys
        self._access = access
        self._settings = settings or Server()

    def admit(self, request: Request) -> Key | None:
        """Refuse who has no key at all; what a key is for is looked at when it is known what is
        followed. Workers show tokens, and public keys are public: then there is no key.
        """
        if (
            self._access is not None
            and not _shows_token(request.path)
            and not request.path.endswith(_JWKS)
        ):
            return self._access.identify(request)
        return None

    def handlers(self) -> dict[str, Callable[..., Awaitable[Response]]]:
        """Who answers which route."""
        return {
            "subscribe": self.create,
            "subscription": self.read,
            "unsubscribe": self.delete,
            "follow": self.add,
            "unfollow": self.remove,
            "claim": self.claim,
            "callback": self.callback,
            "ack": self.ack,
            "release": self.release,
            "jwks": self.jwks,
        }

    def deliverer(self) -> Deliverer:
        """What tells the webhooks and wake streams of this store."""
        return Deliverer(
            self._subscriptions,
            self._keys,
            self.targets,
            concurrency=self._settings.webhook_concurrency,
            timeout_s=self._settings.webhook_timeout_s,
        )

    def targets(self) -> Targets:
        """Which webhooks are called. A server without keys serves its own machine alone, so it may
        call it too.
        """
        asked = self._settings.webhook_targets
        if asked != "auto":
            return asked
        return "public" if self._access is not None and self._access.keys() else "local"

    # Subscriptions

    async def create(self, request: Request, subscription: str) -> Response:
        body = _body(request, SubscribeBody)
        wanted = Subscribe(
            subscription,
            body.type,
            body.pattern,
            body.streams,
            None if body.webhook is None else body.webhook.url,
            body.wake_stream,
            body.lease_ttl_ms,
            body.description,
            self._address(request),
            self._owner(request),
        )
        self._admit(request, wanted)
        if wanted.webhook_url is not None:
            webhooks.check_url(wanted.webhook_url, self.targets())
            # Without a key to sign with, no webhook is promised.
            _ = self._keys.kid
        with suppress(NotFound):
            self._authorize(request, "write", self._subscriptions.get(subscription))
        found, created = await self._subscriptions.create_async(wanted)
        return _json(201 if created else 200, self._shown(request, found))

    async def read(self, request: Request, subscription: str) -> Response:
        found = self._found(request, "read", subscription)
        given = request.parameters()
        return _json(200, self._shown(request, found, after=given.get("after", "")))

    async def delete(self, request: Request, subscription: str) -> Response:
        try:
            self._found(request, "admin", subscription)
        except NotFound:
            return Response(204)
        await self._subscriptions.delete_async(subscription)
        return Response(204)

    async def add(self, request: Request, subscription: str) -> Response:
        streams = _body(request, StreamsBody).streams
        found = self._found(request, "write", subscription)
        names = [name.strip("/") for name in streams]
        self._require(request, "read", names)
        _check_owner_may_read(found, names)
        await self._subscriptions.add_streams_async(subscription, streams)
        return Response(204)

    async def remove(self, request: Request, subscription: str, name: str) -> Response:
        self._found(request, "write", subscription)
        await self._subscriptions.remove_stream_async(subscription, name)
        return Response(204)

    async def jwks(self, _request: Request) -> Response:
        told = {
            "content-type": "application/jwk-set+json",
            "cache-control": "public, max-age=300",
        }
        return Response(200, told, json.dumps(self._keys.jwks()).encode())

    # Workers

    async def claim(self, request: Request, subscription: str) -> Response:
        worker = _body(request, ClaimBody).worker
        self._found(request, "write", subscription)
        wake = await self._subscriptions.claim_async(subscription, worker)
        told = {
            "wake_id": wake.wake_id,
            "generation": wake.generation,
            "token": self._keys.token(subscription, wake.generation),
            "streams": [shown(link) for link in wake.streams],
            "lease_ttl_ms": wake.subscription.lease_ttl_ms,
        }
        return _json(200, told)

    async def callback(self, request: Request, subscription: str) -> Response:
        return await self._acknowledge(request, subscription, "webhook")

    async def ack(self, request: Request, subscription: str) -> Response:
        return await self._acknowledge(request, subscription, "pull-wake")

    async def _acknowledge(
        self, request: Request, subscription: str, kind: Literal["webhook", "pull-wake"]
    ) -> Response:
        generation = self._token(request, subscription)
        body = _body(request, WorkBody)
        acks = [Ack(each.stream or each.path or "", each.offset) for each in body.acks]
        fence = Fence(body.wake_id, body.generation, generation)
        more = await self._subscriptions.acknowledge_async(
            subscription, fence, acks, kind=kind, done=body.done
        )
        return _json(200, {"ok": True, "next_wake": more})

    async def release(self, request: Request, subscription: str) -> Response:
        generation = self._token(request, subscription)
        body = _body(request, WorkBody)
        fence = Fence(body.wake_id, body.generation, generation)
        await self._subscriptions.release_async(subscription, fence)
        return Response(204)

    # What they have in common

    def _token(self, request: Request, subscription: str) -> int:
        kind, _, token = (request.header("authorization") or "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("a worker shows the token of its wake")
        generation = self._keys.generation(subscription, token.strip())
        self._subscriptions.get(subscription)
        return generation

    def _found(self, request: Request, scope: Scope, subscription: str) -> Subscription:
        """Return a subscription that the request's key may use."""
        try:
            found = self._subscriptions.get(subscription)
        except NotFound:
            key = self._key(request)
            if key is not None and not key.allows(scope, ""):
                # As for one that belongs to another owner: its existence is not revealed.
                raise _forbidden(key, scope, subscription) from None
            raise
        self._authorize(request, scope, found)
        return found

    def _authorize(self, request: Request, scope: Scope, found: Subscription) -> None:
        """Refuse a request whose key may not use a subscription in this way.

        Raises:
            Forbidden: the key lacks the scope, the subscription belongs to another prefix or
                follows a stream outside of the key's, or its wake stream may not be written.
        """
        key = self._key(request)
        if key is None:
            return
        if found.owner_prefix is None:
            # Created without a key: what it follows decides.
            is_owner = not key.prefix or self._subscriptions.is_inside(found, key.prefix)
        else:
            is_owner = found.owner_prefix.startswith(key.prefix)
        if not is_owner or not key.allows(scope, key.prefix):
            raise _forbidden(key, scope, found.id)
        if found.wake_stream is not None and scope != "read":
            self._require(request, "write", [found.wake_stream])

    def _key(self, request: Request) -> Key | None:
        """Return the key of a request; None where none is needed."""
        return None if self._access is None else self._access.identify(request)

    def _owner(self, request: Request) -> Owner | None:
        key = self._key(request)
        return None if key is None else Owner(key.id, key.prefix)

    def _admit(self, request: Request, wanted: Subscribe) -> None:
        """Refuse a new subscription unless the key may read what it follows, and write where it
        wakes.
        """
        if self._key(request) is None:
            return
        names = [name.strip("/") for name in wanted.streams]
        if wanted.pattern is not None:
            names.append(literal_prefix(check_pattern(wanted.pattern)))
        self._require(request, "read", names)
        self._require(request, "write", names)
        if wanted.wake_stream is not None:
            self._require(request, "write", [wanted.wake_stream.strip("/")])

    def _require(self, request: Request, scope: Scope, names: list[str]) -> None:
        if self._access is not None:
            for name in names:
                self._access.require(request, scope, name)

    def _address(self, request: Request) -> str:
        if self._settings.public_url != "auto":
            return self._settings.public_url.rstrip("/")
        found = request.address()
        if found is None or not _HOST.fullmatch(request.headers["host"]):
            raise InvalidInput(
                "the server does not know how it is reached",
                hint="Send a Host header, or set server.public_url.",
            )
        return found

    def _shown(
        self, request: Request, found: Subscription, *, after: str = ""
    ) -> dict[str, object]:
        links = self._subscriptions.links(found.id, after=after)
        full = len(links) == limits.SUBSCRIPTION_STREAMS_MAX
        moment = datetime.fromtimestamp(found.created_at_ms / 1000, UTC)
        told: dict[str, object] = {
            "id": found.id,
            "subscription_id": found.id,
            "type": found.kind,
            "pattern": found.pattern,
            "streams": [
                {
                    "path": link.stream,
                    "link_type": "explicit" if link.explicit else "glob",
                    "acked_offset": show_offset(link.acked, link.incarnation_number),
                }
                for link in links
            ],
            "next_after": links[-1].stream if full else None,
            "wake_stream": found.wake_stream,
            "lease_ttl_ms": found.lease_ttl_ms,
            "created_at": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "status": "failed" if found.failures else "active",
            "description": found.description,
            "generation": found.generation,
            "holder": found.holder,
        }
        if found.webhook_url is not None:
            signing = {
                "alg": "ed25519",
                "kid": self._keys.kid,
                "jwks_url": f"{self._address(request)}{CONTROL}/jwks.json",
            }
            told["webhook"] = {"url": found.webhook_url, "signing": signing}
        return told


def _shows_token(path: str) -> bool:
    """Return True for the requests of workers: `<subscription>/ack`, and nothing else that ends so.

    A subscription may itself be called `ack`.
    """
    subscription, _, action = path.removeprefix(PREFIX).partition("/")
    return path.startswith(PREFIX) and bool(subscription) and action in _WORKER_ACTIONS


def _check_owner_may_read(found: Subscription, names: list[str]) -> None:
    """Refuse streams that the owner of a subscription could not follow itself."""
    prefix = found.owner_prefix or ""
    for name in names:
        if not name.startswith(prefix):
            raise Forbidden(
                f"the subscription {found.id!r} follows only streams under {prefix!r}, "
                f"got {name!r:.200}"
            )


def _forbidden(key: Key, scope: Scope, subscription: str) -> Forbidden:
    return Forbidden(
        f"the key {key.id} does not allow to {scope} the subscription {subscription!r:.200}",
        details={"scope": scope},
    )


def is_control(path: str) -> bool:
    """Whether a path is kept for the protocol itself, and no stream's."""
    return path == CONTROL or path.startswith(f"{CONTROL}/")


def of_error(error: FourfoldError) -> dict[str, object]:
    """An error as the protocol writes it, beside how it is written everywhere else."""
    code = _CODES.get(error.kind) or (
        "INVALID_REQUEST" if isinstance(error, InvalidInput) else None
    )
    told: dict[str, object] = {**error.details, **error.as_dict()}
    if code is not None:
        told["code"] = code
    return {"error": told}


def _body(request: Request, kind: type[_B]) -> _B:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}") from None


def _json(status: int, document: Any) -> Response:
    told = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(status, told, json.dumps(document).encode())
