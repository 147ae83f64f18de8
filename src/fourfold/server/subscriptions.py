"""Subscriptions over HTTP, under the reserved path `/v1/stream/__ds`.

A subscription belongs to the key that created it. Keys of the same prefix, or of a shorter one, may
use it as far as their scopes allow; every other request is refused, whether the subscription exists
or not. Its streams are all under the owner's prefix. `Control._authorize` is the only place that
decides. A worker sends the token of its wake instead of a key.
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
from fourfold.models.streams.validation import format_offset
from fourfold.server import webhooks
from fourfold.server.auth import Access, Key, Scope
from fourfold.server.request import Request, Response
from fourfold.server.signing_keys import Keys
from fourfold.server.webhooks import CONTROL, Deliverer, Targets, link_document
from fourfold.settings import Server

PREFIX: Final = f"{CONTROL}/subscriptions/"
_JWKS: Final = f"{CONTROL}/jwks.json"
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
"""Error codes of the protocol, by `kind`."""


class WebhookBody(msgspec.Struct):
    """The webhook of a subscription."""

    url: str


class SubscribeBody(msgspec.Struct):
    """Body of a PUT of a subscription."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: list[str] = []
    webhook: WebhookBody | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None


class StreamsBody(msgspec.Struct):
    """Streams to follow by name."""

    streams: list[str]


class ClaimBody(msgspec.Struct):
    """The worker that claims a wake."""

    worker: str


class AckBody(msgspec.Struct):
    """The offset up to which a stream is processed."""

    offset: str
    stream: str | None = None
    path: str | None = None


class WorkBody(msgspec.Struct):
    """Progress of a worker on a wake; `done` ends the wake."""

    wake_id: str
    generation: int
    acks: list[AckBody] = []
    done: bool = False


_B = TypeVar("_B", bound=msgspec.Struct)


class Control:
    """Handle requests about the subscriptions of one store."""

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
        """Return the key of a request; raise Unauthorized if it has neither a key nor a token.

        What the key allows is checked by the handler. Workers send the token of their wake instead,
        and requests for the public keys need neither.
        """
        if self._access is None or request.path == _JWKS:
            return None
        subscription = worker_subscription(request)
        if subscription is None or not self._access.keys():
            return self._access.identify(request)
        self._token(request, subscription)
        return None

    def handlers(self) -> dict[str, Callable[..., Awaitable[Response]]]:
        """Return the handler of each route."""
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
        """Return a deliverer for the webhooks and wake streams of this store."""
        return Deliverer(
            self._subscriptions,
            self._keys,
            self.targets,
            concurrency=self._settings.webhook_concurrency,
            timeout_s=self._settings.webhook_timeout_s,
        )

    def targets(self) -> Targets:
        """Return which webhook addresses may be called.

        A server without keys serves its own machine only, so it may call that too.
        """
        targets = self._settings.webhook_targets
        if targets != "auto":
            return targets
        return "public" if self._access is not None and self._access.keys() else "local"

    # Subscriptions

    async def create(self, request: Request, subscription: str) -> Response:
        """Create a subscription."""
        body = _body(request, SubscribeBody)
        options = Subscribe(
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
        self._admit(request, options)
        if options.webhook_url is not None:
            webhooks.check_url(options.webhook_url, self.targets())
            # Fail now if there is no key to sign with.
            _ = self._keys.kid
        with suppress(NotFound):
            self._authorize(request, "write", self._subscriptions.get(subscription))
        created_subscription, created = await self._subscriptions.create_async(options)
        return _json(201 if created else 200, self._document(request, created_subscription))

    async def read(self, request: Request, subscription: str) -> Response:
        """Return a subscription and a page of its streams."""
        result = self._get(request, "read", subscription)
        parameters = request.parameters()
        return _json(200, self._document(request, result, after=parameters.get("after", "")))

    async def delete(self, request: Request, subscription: str) -> Response:
        """Delete a subscription."""
        try:
            self._get(request, "admin", subscription)
        except NotFound:
            return Response(204)
        await self._subscriptions.delete_async(subscription)
        return Response(204)

    async def add(self, request: Request, subscription: str) -> Response:
        """Follow more streams by name."""
        streams = _body(request, StreamsBody).streams
        result = self._get(request, "write", subscription)
        names = [name.strip("/") for name in streams]
        self._require(request, "read", names)
        _check_owner_may_read(result, names)
        await self._subscriptions.add_streams_async(subscription, streams)
        return Response(204)

    async def remove(self, request: Request, subscription: str, name: str) -> Response:
        """Stop following a stream by name."""
        self._get(request, "write", subscription)
        await self._subscriptions.remove_stream_async(subscription, name)
        return Response(204)

    async def jwks(self, _request: Request) -> Response:
        """Return the public keys for verifying webhook signatures."""
        headers = {
            "content-type": "application/jwk-set+json",
            "cache-control": "public, max-age=300",
        }
        return Response(200, headers, json.dumps(self._keys.jwks()).encode())

    # Workers

    async def claim(self, request: Request, subscription: str) -> Response:
        """Claim the lease of a pull-wake subscription."""
        worker = _body(request, ClaimBody).worker
        self._get(request, "write", subscription)
        wake = await self._subscriptions.claim_async(subscription, worker)
        document = {
            "wake_id": wake.wake_id,
            "generation": wake.generation,
            "token": self._keys.token(subscription, wake.generation),
            "streams": [link_document(link) for link in wake.streams],
            "lease_ttl_ms": wake.subscription.lease_ttl_ms,
        }
        return _json(200, document)

    async def callback(self, request: Request, subscription: str) -> Response:
        """Acknowledge offsets from a webhook."""
        return await self._acknowledge(request, subscription, "webhook")

    async def ack(self, request: Request, subscription: str) -> Response:
        """Acknowledge offsets from a worker."""
        return await self._acknowledge(request, subscription, "pull-wake")

    async def _acknowledge(
        self, request: Request, subscription: str, kind: Literal["webhook", "pull-wake"]
    ) -> Response:
        generation = self._token(request, subscription)
        body = _body(request, WorkBody)
        acks = [Ack(ack.stream or ack.path or "", ack.offset) for ack in body.acks]
        fence = Fence(body.wake_id, body.generation, generation)
        more = await self._subscriptions.acknowledge_async(
            subscription, fence, acks, kind=kind, done=body.done
        )
        return _json(200, {"ok": True, "next_wake": more})

    async def release(self, request: Request, subscription: str) -> Response:
        """Release a lease without finishing the work."""
        generation = self._token(request, subscription)
        body = _body(request, WorkBody)
        fence = Fence(body.wake_id, body.generation, generation)
        await self._subscriptions.release_async(subscription, fence)
        return Response(204)

    # Shared helpers

    def _token(self, request: Request, subscription: str) -> int:
        """Return the generation of the wake that a worker's token was issued for."""
        kind, _, token = (request.header("authorization") or "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("a token is required")
        generation = self._keys.generation(subscription, token.strip())
        self._subscriptions.get(subscription)
        return generation

    def _get(self, request: Request, scope: Scope, subscription: str) -> Subscription:
        """Return a subscription that the request's key may use."""
        try:
            result = self._subscriptions.get(subscription)
        except NotFound:
            key = self._key(request)
            if key is not None and not key.allows(scope, ""):
                # Same error as for another owner's subscription: its existence is not revealed.
                raise _forbidden(key, scope, subscription) from None
            raise
        self._authorize(request, scope, result)
        return result

    def _authorize(self, request: Request, scope: Scope, target: Subscription) -> None:
        """Check that the request's key may use a subscription in this way.

        Raises:
            Forbidden: the key lacks the scope, the subscription belongs to another prefix or
                follows a stream outside of the key's, or its wake stream may not be written.
        """
        key = self._key(request)
        if key is None:
            return
        if target.owner_prefix is None:
            # Created without a key: what it follows decides.
            is_owner = not key.prefix or self._subscriptions.is_inside(target, key.prefix)
        else:
            is_owner = target.owner_prefix.startswith(key.prefix)
        if not is_owner or not key.allows(scope, key.prefix):
            raise _forbidden(key, scope, target.id)
        if target.wake_stream is not None and scope != "read":
            self._require(request, "write", [target.wake_stream])

    def _key(self, request: Request) -> Key | None:
        """Return the key of a request, or None if no key is required."""
        return None if self._access is None else self._access.identify(request)

    def _owner(self, request: Request) -> Owner | None:
        key = self._key(request)
        return None if key is None else Owner(key.id, key.prefix)

    def _admit(self, request: Request, options: Subscribe) -> None:
        """Check that the key may read what is followed, and write to the wake stream."""
        if self._key(request) is None:
            return
        names = [name.strip("/") for name in options.streams]
        if options.pattern is not None:
            names.append(literal_prefix(check_pattern(options.pattern)))
        self._require(request, "read", names)
        self._require(request, "write", names)
        if options.wake_stream is not None:
            self._require(request, "write", [options.wake_stream.strip("/")])

    def _require(self, request: Request, scope: Scope, names: list[str]) -> None:
        if self._access is not None:
            for name in names:
                self._access.require(request, scope, name)

    def _address(self, request: Request) -> str:
        if self._settings.public_url != "auto":
            return self._settings.public_url.rstrip("/")
        base_url = request.address()
        if base_url is None or not _HOST.fullmatch(request.headers["host"]):
            raise InvalidInput(
                "callback URL: the server does not know its public address",
                hint="Send a Host header, or set server.public_url.",
            )
        return base_url

    def _document(
        self, request: Request, subscription: Subscription, *, after: str = ""
    ) -> dict[str, object]:
        """Return a subscription as JSON."""
        links = self._subscriptions.links(subscription.id, after=after)
        full = len(links) == limits.SUBSCRIPTION_STREAMS_MAX
        created_at = datetime.fromtimestamp(subscription.created_at_ms / 1000, UTC)
        document: dict[str, object] = {
            "id": subscription.id,
            "subscription_id": subscription.id,
            "type": subscription.kind,
            "pattern": subscription.pattern,
            "streams": [
                {
                    "path": link.stream,
                    "link_type": "explicit" if link.explicit else "glob",
                    "acked_offset": format_offset(link.acked, link.incarnation_number),
                }
                for link in links
            ],
            "next_after": links[-1].stream if full else None,
            "wake_stream": subscription.wake_stream,
            "lease_ttl_ms": subscription.lease_ttl_ms,
            "created_at": created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "status": "failed" if subscription.failures else "active",
            "description": subscription.description,
            "generation": subscription.generation,
            "holder": subscription.holder,
        }
        if subscription.webhook_url is not None:
            signing = {
                "alg": "ed25519",
                "kid": self._keys.kid,
                "jwks_url": f"{self._address(request)}{CONTROL}/jwks.json",
            }
            document["webhook"] = {"url": subscription.webhook_url, "signing": signing}
        return document


def worker_subscription(request: Request) -> str | None:
    """Return the subscription that a worker's request is about: `<id>/ack`, `callback`, `release`.

    Returns None for every other request. A subscription may itself be called `ack`.
    """
    if request.method != "POST" or not request.path.startswith(PREFIX):
        return None
    subscription, _, action = request.path.removeprefix(PREFIX).partition("/")
    return subscription if subscription and action in _WORKER_ACTIONS else None


def _check_owner_may_read(subscription: Subscription, names: list[str]) -> None:
    """Refuse streams that the owner of a subscription could not follow itself."""
    prefix = subscription.owner_prefix or ""
    for name in names:
        if not name.startswith(prefix):
            raise Forbidden(
                f"subscription {subscription.id!r}: streams must be under {prefix!r}, "
                f"got {name!r:.200}"
            )


def _forbidden(key: Key, scope: Scope, subscription: str) -> Forbidden:
    return Forbidden(
        f"key {key.id}: not allowed to {scope} the subscription {subscription!r:.200}",
        details={"scope": scope},
    )


def is_control(path: str) -> bool:
    """Return True if a path is reserved for the protocol, and is not a stream's."""
    return path == CONTROL or path.startswith(f"{CONTROL}/")


def control_error_document(error: FourfoldError) -> dict[str, object]:
    """Return an error with the protocol's code, besides the fields that all errors have."""
    code = _CODES.get(error.kind) or (
        "INVALID_REQUEST" if isinstance(error, InvalidInput) else None
    )
    document: dict[str, object] = {**error.details, **error.as_dict()}
    if code is not None:
        document["code"] = code
    return {"error": document}


def _body(request: Request, kind: type[_B]) -> _B:
    """Decode the body of a request."""
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"body: does not match the schema: {error}") from None


def _json(status: int, document: Any) -> Response:
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(status, headers, json.dumps(document).encode())
