"""Requests about subscriptions of streams, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from fourfold.client.requests import STREAMS, Address, Call, stringify
from fourfold.errors import InvalidInput
from fourfold.wire.subscriptions import (
    ClaimedWake,
    NewSubscription,
    StreamAck,
    StreamNames,
    WakeClaim,
    WakeNotification,
    WakeProgress,
    WebhookTarget,
)

if TYPE_CHECKING:
    from fourfold.models.streams.subscriptions import Ack, Subscribe

_JSON: Final = {"content-type": "application/json"}


class SubscriptionCalls:
    """The requests about the subscriptions of a server."""

    def __init__(self, address: Address) -> None:
        self._root = f"{address.root}{STREAMS}/__ds/subscriptions"

    def create(self, options: Subscribe) -> Call:
        """Build the request that creates a subscription. Repeated, it changes nothing."""
        url = options.webhook_url
        body = NewSubscription(
            type=options.kind,
            pattern=options.pattern,
            streams=list(options.streams),
            webhook=None if url is None else WebhookTarget(url),
            wake_stream=options.wake_stream,
            lease_ttl_ms=options.lease_ttl_ms,
            description=options.description,
        )
        return self._send("PUT", options.id, "", "create the subscription", body)

    def get(self, subscription_id: str, after: str = "") -> Call:
        """Build the request for a subscription and the streams after a name."""
        params = stringify(("after", after or None))
        operation = f"get the subscription {subscription_id!r}"
        return Call("GET", self._url(subscription_id), operation, {}, params)

    def delete(self, subscription_id: str) -> Call:
        """Build the request that deletes a subscription."""
        operation = f"delete the subscription {subscription_id!r}"
        return Call("DELETE", self._url(subscription_id), operation, {}, {})

    def add_streams(self, subscription_id: str, streams: Sequence[str]) -> Call:
        """Build the request that follows more streams."""
        body = StreamNames(list(streams))
        return self._send("POST", subscription_id, "/streams", "follow streams of", body)

    def remove_stream(self, subscription_id: str, stream: str) -> Call:
        """Build the request that stops following a stream."""
        url = f"{self._url(subscription_id)}/streams/{quote(stream.strip('/'))}"
        operation = f"unfollow a stream of the subscription {subscription_id!r}"
        return Call("DELETE", url, operation, {}, {}, repeatable=False)

    def claim(self, subscription_id: str, worker: str) -> Call:
        """Build the request that claims a wake."""
        call = self._send("POST", subscription_id, "/claim", "claim", WakeClaim(worker))
        return call._replace(repeatable=False)

    def acknowledge(
        self, subscription_id: str, wake: ClaimedWake, acks: Sequence[Ack], *, done: bool
    ) -> Call:
        """Build the request that moves cursors, with the token of the wake."""
        body = WakeProgress(
            wake_id=wake.wake_id,
            generation=wake.generation,
            acks=[StreamAck(stream=ack.stream, offset=ack.offset) for ack in acks],
            done=done,
        )
        call = self._send("POST", subscription_id, "/ack", "acknowledge", body)
        return _with_token(call, wake.token)

    def acknowledge_webhook(
        self, notification: WakeNotification, acks: Sequence[Ack], *, done: bool
    ) -> Call:
        """Build the request that moves cursors, with the token of a webhook call."""
        body = WakeProgress(
            wake_id=notification.wake_id,
            generation=notification.generation,
            acks=[StreamAck(stream=ack.stream, offset=ack.offset) for ack in acks],
            done=done,
        )
        call = self._send(
            "POST", notification.subscription_id, "/callback", "acknowledge the webhook of", body
        )
        return _with_token(call, notification.callback_token)

    def release(self, subscription_id: str, wake: ClaimedWake) -> Call:
        """Build the request that releases a lease, with the token of the wake."""
        body = WakeProgress(wake_id=wake.wake_id, generation=wake.generation)
        call = self._send("POST", subscription_id, "/release", "release", body)
        return _with_token(call, wake.token)

    def _send(
        self, method: str, subscription_id: str, verb: str, operation: str, body: Any
    ) -> Call:
        url = f"{self._url(subscription_id)}{verb}"
        data = msgspec.json.encode(body)
        return Call(method, url, f"{operation} {subscription_id!r}", _JSON, {}, data)

    def _url(self, subscription_id: str) -> str:
        return f"{self._root}/{quote(subscription_id, safe='')}"


def parse_notification(body: bytes) -> WakeNotification:
    """Return the wake of a webhook call; raise InvalidInput for another body."""
    try:
        return msgspec.json.decode(body, type=WakeNotification)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"webhook call: the body is not a wake: {error}") from None


def _with_token(call: Call, token: str) -> Call:
    # Sent once: the lease that a first request released may belong to another worker.
    headers = {**call.headers, "authorization": f"Bearer {token}"}
    return call._replace(headers=headers, repeatable=False)
