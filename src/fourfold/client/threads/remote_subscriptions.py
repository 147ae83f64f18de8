# Generated from ../coroutines/remote_subscriptions.py by `make generate`: change that file.
"""Subscriptions of the streams of a server, for threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fourfold.client import responses, subscriptions
from fourfold.client.subscriptions import SubscriptionCalls
from fourfold.client.threads.streams import StreamClient
from fourfold.wire.subscriptions import (
    AckResult,
    ClaimedWake,
    FollowedStream,
    SubscriptionDetails,
    WakeNotification,
)

if TYPE_CHECKING:
    from fourfold.models.streams.subscriptions import Ack, Subscribe


class RemoteSubscriptions:
    """Durable cursors of a server over its streams, which wake workers for new records."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._calls = SubscriptionCalls(client.settings.address)

    def create(self, wanted: Subscribe) -> tuple[SubscriptionDetails, bool]:
        """Create a subscription; return it, and True if it is new.

        The server sets its address and its owner.

        Raises:
            AlreadyExists: A subscription of that id has other settings.
        """
        response = self._client.send(self._calls.create(wanted))
        return responses.decode(response, SubscriptionDetails, "a new subscription"), (
            response.status == 201
        )

    def get(self, subscription_id: str) -> SubscriptionDetails:
        """Return a subscription with the first page of its streams.

        Raises:
            NotFound: There is no such subscription, or the key is not for it.
        """
        response = self._client.send(self._calls.get(subscription_id))
        return responses.decode(response, SubscriptionDetails, "a subscription")

    def links(self, subscription_id: str, *, after: str = "") -> tuple[FollowedStream, ...]:
        """Return the streams of a subscription after a name, with the cursor in each."""
        links: list[FollowedStream] = []
        start: str | None = after
        while start is not None:
            response = self._client.send(self._calls.get(subscription_id, start))
            page = responses.decode(response, SubscriptionDetails, "a subscription")
            links += page.streams
            start = page.next_after
        return tuple(links)

    def delete(self, subscription_id: str) -> None:
        """Delete a subscription; one that does not exist is no error."""
        self._client.send(self._calls.delete(subscription_id))

    def add_streams(self, subscription_id: str, streams: Sequence[str]) -> None:
        """Follow more streams by name, from their current end."""
        self._client.send(self._calls.add_streams(subscription_id, streams))

    def remove_stream(self, subscription_id: str, stream: str) -> None:
        """Stop following a stream by name."""
        self._client.send(self._calls.remove_stream(subscription_id, stream))

    def claim(self, subscription_id: str, worker: str) -> ClaimedWake:
        """Claim the lease of a pull-wake subscription that has pending records.

        Raises:
            AlreadyClaimed: Another worker holds the lease.
            NothingPending: There is no work.
        """
        response = self._client.send(self._calls.claim(subscription_id, worker))
        return responses.decode(response, ClaimedWake, "a claim")

    def acknowledge(
        self,
        subscription_id: str,
        wake: ClaimedWake,
        acks: Sequence[Ack] = (),
        *,
        done: bool = False,
    ) -> bool:
        """Move cursors, and extend the lease or, with `done`, release it.

        Returns True if more is pending, so that a new wake was issued.
        """
        call = self._calls.acknowledge(subscription_id, wake, acks, done=done)
        response = self._client.send(call)
        return responses.decode(response, AckResult, "an acknowledgement").next_wake

    def acknowledge_webhook(
        self,
        notification: WakeNotification | bytes,
        acks: Sequence[Ack] = (),
        *,
        done: bool = False,
    ) -> bool:
        """Move cursors from the receiver of a webhook call, and with `done` end its wake.

        Verify the signature of the call first: `store.server.webhook_keys()` has the keys.

        Args:
            notification: The wake, or the body of the call.
            acks: Offsets up to which streams are processed.
            done: True if the work of this wake is finished.

        Returns True if more is pending, so that a new wake was issued.
        """
        if isinstance(notification, bytes):
            notification = subscriptions.parse_notification(notification)
        call = self._calls.acknowledge_webhook(notification, acks, done=done)
        response = self._client.send(call)
        return responses.decode(response, AckResult, "an acknowledgement").next_wake

    def release(self, subscription_id: str, wake: ClaimedWake) -> None:
        """Release the lease; pending records issue a new wake."""
        self._client.send(self._calls.release(subscription_id, wake))
