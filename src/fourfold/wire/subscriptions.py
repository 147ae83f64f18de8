"""Structs of the routes of subscriptions. Unknown fields are ignored, as the protocol requires."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from fourfold.wire.fields import Count, Offset

# Requests


class WebhookTarget(Struct, frozen=True):
    """The webhook of a subscription."""

    url: str


class NewSubscription(Struct, kw_only=True, frozen=True):
    """A subscription to create: streams by a pattern, by name, or both."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: list[str] = []
    webhook: WebhookTarget | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None


class StreamNames(Struct, frozen=True):
    """Streams to follow by name."""

    streams: list[str]


class WakeClaim(Struct, frozen=True):
    """The worker that claims a wake."""

    worker: str


class StreamAck(Struct, kw_only=True, frozen=True):
    """The offset up to which a stream is processed."""

    offset: str
    stream: str | None = None
    path: str | None = None


class WakeProgress(Struct, kw_only=True, frozen=True):
    """Progress of a worker on a wake; `done` ends the wake."""

    wake_id: str
    generation: int
    acks: list[StreamAck] = []
    done: bool = False


class SubscriptionQuery(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Parameters of a request for a subscription."""

    after: Annotated[str, Meta(description="Only streams after this name.")] = ""


# Responses


class FollowedStream(Struct, kw_only=True, frozen=True):
    """A stream that a subscription follows, and the offset up to which it is processed."""

    path: str
    link_type: Literal["explicit", "glob"]
    acked_offset: Offset


class PendingStream(FollowedStream, kw_only=True, frozen=True):
    """A followed stream in a wake."""

    tail_offset: Offset
    has_pending: bool


class WebhookSigning(Struct, kw_only=True, frozen=True):
    """Signature algorithm and key of the calls of a webhook."""

    alg: str
    kid: str
    jwks_url: str


class Webhook(Struct, kw_only=True, frozen=True):
    """The webhook of a subscription."""

    url: str
    signing: WebhookSigning


class SubscriptionDetails(Struct, kw_only=True, frozen=True):
    """A subscription and a page of its streams."""

    id: str
    subscription_id: str
    type: Literal["webhook", "pull-wake"]
    pattern: str | None
    streams: list[FollowedStream]
    next_after: str | None
    wake_stream: str | None
    lease_ttl_ms: Count
    created_at: str
    status: Literal["active", "failed"]
    description: str | None
    generation: Count
    holder: str | None
    webhook: Webhook | UnsetType = UNSET


class WebhookKey(Struct, kw_only=True, frozen=True):
    """A public key that verifies signatures of webhook calls, as a JWK (RFC 8037)."""

    kty: str
    crv: str
    alg: str
    use: str
    kid: str
    """Id of the key, which a signature names."""
    x: str
    """The key in base64url without padding."""


class WebhookKeys(Struct, kw_only=True, frozen=True):
    """A JWK set."""

    keys: list[WebhookKey]


class ClaimedWake(Struct, kw_only=True, frozen=True):
    """A claimed wake: the token to acknowledge with, and the streams with their state."""

    wake_id: str
    generation: Count
    token: str
    streams: list[PendingStream]
    lease_ttl_ms: Count


class AckResult(Struct, kw_only=True, frozen=True):
    """Result of an acknowledgement; `next_wake` if more is pending."""

    ok: bool
    next_wake: bool


class WakeNotification(Struct, kw_only=True, frozen=True):
    """Body of a webhook call: the wake, and where to acknowledge it."""

    subscription_id: str
    wake_id: str
    generation: Count
    streams: list[PendingStream]
    callback_url: str
    callback_token: str
