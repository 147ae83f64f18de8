"""Subscriptions over HTTP, under the reserved path `/v1/stream/__ds`.

A subscription belongs to the key that created it. Keys of the same prefix, or of a shorter one, may
use it as far as their scopes allow; every other request is refused, whether the subscription exists
or not. Its streams are all under the owner's prefix. `Control._authorize` is the only place that
decides. A worker sends the token of its wake instead of a key.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import UNSET

from fourfold import limits
from fourfold.errors import (
    AckRefused,
    AlreadyClaimed,
    AlreadyExists,
    Forbidden,
    FourfoldError,
    InvalidInput,
    LimitExceeded,
    MissingDependency,
    NotFound,
    NothingPending,
    Unauthorized,
    WakeFenced,
)
from fourfold.models.streams import Streams
from fourfold.models.streams.subscriptions import Ack, Owner, Subscribe, Subscription
from fourfold.models.streams.subscriptions.leases import Fence
from fourfold.models.streams.subscriptions.members import check_pattern, literal_prefix
from fourfold.models.streams.validation import format_offset
from fourfold.server import webhooks
from fourfold.server.auth import Access
from fourfold.server.key_store import Key, Scope
from fourfold.server.request import Request, Response, json_response
from fourfold.server.routes import Ok, Route, bind
from fourfold.server.signing_keys import Keys
from fourfold.server.webhooks import CONTROL, Deliverer, Targets, pending_stream
from fourfold.settings import ServerSettings
from fourfold.wire.subscriptions import (
    AckResult,
    ClaimedWake,
    FollowedStream,
    NewSubscription,
    StreamNames,
    SubscriptionDetails,
    SubscriptionQuery,
    WakeClaim,
    WakeProgress,
    Webhook,
    WebhookKeys,
    WebhookSigning,
)

PREFIX: Final = f"{CONTROL}/subscriptions/"
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


class Control:
    """Handle requests about the subscriptions of one store."""

    def __init__(
        self,
        streams: Streams,
        keys: Keys,
        access: Access | None = None,
        *,
        settings: ServerSettings | None = None,
    ) -> None:
        self._subscriptions = streams.subscriptions
        self._keys = keys
        self._access = access
        self._settings = settings or ServerSettings()
        self.webhook_outcomes: Counter[str] = Counter()
        """Calls of webhooks by outcome: the class of the status, or the kind of failure."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of these handlers."""
        return bind(_ROUTES, self)

    def deliverer(self) -> Deliverer:
        """Return a deliverer for the webhooks and wake streams of this store."""
        return Deliverer(
            self._subscriptions,
            self._keys,
            self.targets,
            concurrency=self._settings.webhook_concurrency,
            timeout_s=self._settings.webhook_timeout_s,
            outcomes=self.webhook_outcomes,
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

    async def create(self, request: Request, subscription: str, body: NewSubscription) -> Response:
        """Create a subscription."""
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
        details = self._details(request, created_subscription)
        return json_response(details, 201 if created else 200)

    async def read(self, request: Request, subscription: str, query: SubscriptionQuery) -> Response:
        """Return a subscription and a page of its streams."""
        result = self._get(request, "read", subscription)
        return json_response(self._details(request, result, after=query.after))

    async def delete(self, request: Request, subscription: str) -> Response:
        """Delete a subscription."""
        try:
            self._get(request, "admin", subscription)
        except NotFound:
            return Response(204)
        await self._subscriptions.delete_async(subscription)
        return Response(204)

    async def add(self, request: Request, subscription: str, body: StreamNames) -> Response:
        """Follow more streams by name."""
        result = self._get(request, "write", subscription)
        names = [name.strip("/") for name in body.streams]
        self._require(request, "read", names)
        _check_owner_may_read(result, names)
        await self._subscriptions.add_streams_async(subscription, body.streams)
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

    async def claim(self, request: Request, subscription: str, body: WakeClaim) -> Response:
        """Claim the lease of a pull-wake subscription."""
        self._get(request, "write", subscription)
        wake = await self._subscriptions.claim_async(subscription, body.worker)
        return json_response(
            ClaimedWake(
                wake_id=wake.wake_id,
                generation=wake.generation,
                token=self._keys.token(subscription, wake.generation),
                streams=[pending_stream(link) for link in wake.streams],
                lease_ttl_ms=wake.subscription.lease_ttl_ms,
            )
        )

    async def callback(self, request: Request, subscription: str, body: WakeProgress) -> Response:
        """Acknowledge offsets from a webhook."""
        return await self._acknowledge(request, subscription, body, "webhook")

    async def ack(self, request: Request, subscription: str, body: WakeProgress) -> Response:
        """Acknowledge offsets from a worker."""
        return await self._acknowledge(request, subscription, body, "pull-wake")

    async def _acknowledge(
        self,
        request: Request,
        subscription: str,
        body: WakeProgress,
        kind: Literal["webhook", "pull-wake"],
    ) -> Response:
        generation = self.check_token(request, subscription)
        acks = [Ack(ack.stream or ack.path or "", ack.offset) for ack in body.acks]
        fence = Fence(body.wake_id, body.generation, generation)
        more = await self._subscriptions.acknowledge_async(
            subscription, fence, acks, kind=kind, done=body.done
        )
        return json_response(AckResult(ok=True, next_wake=more))

    async def release(self, request: Request, subscription: str, body: WakeProgress) -> Response:
        """Release a lease without finishing the work."""
        generation = self.check_token(request, subscription)
        fence = Fence(body.wake_id, body.generation, generation)
        await self._subscriptions.release_async(subscription, fence)
        return Response(204)

    # Shared helpers

    def check_token(self, request: Request, subscription: str) -> int:
        """Return the generation of the wake that a worker's token was issued for.

        Raises:
            Unauthorized: the request has no token, or one of another subscription or server.
            NotFound: the subscription does not exist any more.
        """
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
            if key is not None and not key.allows(scope, "", "streams"):
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
        grant = key.grant("streams")
        if grant is None:
            raise _forbidden(key, scope, target.id)
        if target.owner_prefix is None:
            # Created without a key: what it follows decides.
            is_owner = not grant.prefix or self._subscriptions.is_inside(target, grant.prefix)
        else:
            is_owner = target.owner_prefix.startswith(grant.prefix)
        if not is_owner or not grant.allows(scope, grant.prefix):
            raise _forbidden(key, scope, target.id)
        if target.wake_stream is not None and scope != "read":
            self._require(request, "write", [target.wake_stream])

    def _key(self, request: Request) -> Key | None:
        """Return the key of a request, or None if no key is required."""
        return None if self._access is None else self._access.identify(request)

    def _owner(self, request: Request) -> Owner | None:
        key = self._key(request)
        if key is None:
            return None
        grant = key.grant("streams")
        if grant is None:
            raise Forbidden(f"key {key.id}: not allowed to write streams")
        return Owner(key.id, grant.prefix)

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
                self._access.require(request, scope, name, "streams")

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

    def _details(
        self, request: Request, subscription: Subscription, *, after: str = ""
    ) -> SubscriptionDetails:
        """Return a subscription and the page of its streams after a name."""
        links = self._subscriptions.links(subscription.id, after=after)
        full = len(links) == limits.SUBSCRIPTION_STREAMS_MAX
        created_at = datetime.fromtimestamp(subscription.created_at_ms / 1000, UTC)
        return SubscriptionDetails(
            id=subscription.id,
            subscription_id=subscription.id,
            type=subscription.kind,
            pattern=subscription.pattern,
            streams=[
                FollowedStream(
                    path=link.stream,
                    link_type="explicit" if link.explicit else "glob",
                    acked_offset=format_offset(link.acked, link.incarnation_number),
                )
                for link in links
            ],
            next_after=links[-1].stream if full else None,
            wake_stream=subscription.wake_stream,
            lease_ttl_ms=subscription.lease_ttl_ms,
            created_at=created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            status="failed" if subscription.failures else "active",
            description=subscription.description,
            generation=subscription.generation,
            holder=subscription.holder,
            webhook=UNSET
            if subscription.webhook_url is None
            else Webhook(
                url=subscription.webhook_url,
                signing=WebhookSigning(
                    alg="ed25519",
                    kid=self._keys.kid,
                    jwks_url=f"{self._address(request)}{CONTROL}/jwks.json",
                ),
            ),
        )


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
    return document


_PATH: Final = f"{PREFIX}{{subscription}}"
_ROUTES: Final = (
    Route(
        *("GET", f"{CONTROL}/jwks.json", Control.jwks),
        operation="jwks",
        summary="Get the public keys for webhook signatures.",
        scope="public",
        ok={200: Ok("A JWK set.", WebhookKeys, content_type="application/jwk-set+json")},
        errors=(MissingDependency,),
    ),
    Route(
        *("PUT", _PATH, Control.create),
        operation="subscribe",
        summary="Create a subscription; idempotent.",
        scope="owner",
        body=NewSubscription,
        ok={
            200: Ok("It exists with the same settings.", SubscriptionDetails),
            201: Ok("It was created.", SubscriptionDetails),
        },
        errors=(AlreadyExists, LimitExceeded, MissingDependency),
    ),
    Route(
        *("GET", _PATH, Control.read),
        operation="subscription",
        summary="Get a subscription and a page of its streams.",
        scope="owner",
        query=SubscriptionQuery,
        ok={200: Ok("The subscription.", SubscriptionDetails)},
        errors=(NotFound,),
    ),
    Route(
        *("DELETE", _PATH, Control.delete),
        operation="unsubscribe",
        summary="Delete a subscription.",
        scope="owner",
        ok={204: Ok("It does not exist any more.")},
    ),
    Route(
        *("POST", f"{_PATH}/streams", Control.add),
        operation="follow",
        summary="Follow more streams by name.",
        scope="owner",
        body=StreamNames,
        ok={204: Ok("They are followed from their current end.")},
        errors=(NotFound, LimitExceeded),
    ),
    Route(
        *("DELETE", f"{_PATH}/streams/{{name:name}}", Control.remove),
        operation="unfollow",
        summary="Stop following a stream by name.",
        scope="owner",
        ok={204: Ok("It is not followed by name any more.")},
        errors=(NotFound,),
    ),
    Route(
        *("POST", f"{_PATH}/claim", Control.claim),
        operation="claim",
        summary="Claim the lease of a pull-wake subscription.",
        scope="owner",
        body=WakeClaim,
        ok={200: Ok("The wake.", ClaimedWake)},
        errors=(NotFound, AlreadyClaimed, NothingPending),
    ),
    Route(
        *("POST", f"{_PATH}/callback", Control.callback),
        operation="callback",
        summary="Acknowledge offsets from a webhook.",
        scope="token",
        body=WakeProgress,
        ok={200: Ok("Acknowledged.", AckResult)},
        errors=(NotFound, WakeFenced, AckRefused),
    ),
    Route(
        *("POST", f"{_PATH}/ack", Control.ack),
        operation="ack",
        summary="Acknowledge offsets from a worker.",
        scope="token",
        body=WakeProgress,
        ok={200: Ok("Acknowledged.", AckResult)},
        errors=(NotFound, WakeFenced, AckRefused),
    ),
    Route(
        *("POST", f"{_PATH}/release", Control.release),
        operation="release",
        summary="Release a lease without finishing the work.",
        scope="token",
        body=WakeProgress,
        ok={204: Ok("Released.")},
        errors=(NotFound, WakeFenced),
    ),
)
