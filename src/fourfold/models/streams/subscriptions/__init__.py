"""Subscriptions: durable cursors over streams that wake a worker for new records."""

from __future__ import annotations

from fourfold.models.streams.subscriptions.records import (
    Ack,
    Link,
    Owner,
    Subscribe,
    Subscription,
    Wake,
)
from fourfold.models.streams.subscriptions.subscriptions import Subscriptions

__all__ = ["Ack", "Link", "Owner", "Subscribe", "Subscription", "Subscriptions", "Wake"]
