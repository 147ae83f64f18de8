"""Webhooks that do not respond delay only those of their owner."""

from __future__ import annotations

import asyncio
import threading

import pytest

import fourfold
from fourfold.models.streams.subscriptions import Owner, Subscribe
from fourfold.server import webhooks
from fourfold.server.signing_keys import Keys
from fourfold.server.webhooks import Deliverer, WebhookResponse

JSON = "application/json"
SLOTS = 8


class Hooks:
    """Webhooks of a test: those with `dead` in their URL never respond."""

    def __init__(self):
        self.dead = self.dead_max = 0
        self.good = threading.Event()
        self.all_dead = threading.Event()

    async def post(self, url, _body, _headers, _targets, _timeout_s):
        if "dead" not in url:
            self.good.set()
            return WebhookResponse(200, b'{"done": true}')
        self.dead += 1
        self.dead_max = max(self.dead_max, self.dead)
        if self.dead == SLOTS:
            self.all_dead.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.dead -= 1


@pytest.fixture
def hooks(monkeypatch):
    result = Hooks()
    monkeypatch.setattr(webhooks, "post", result.post)
    return result


@pytest.fixture
def streams(tmp_path):
    with fourfold.open(tmp_path / "store") as store:
        yield store.streams


def subscribe(streams, name, owner):
    url = f"https://{name}.example/"
    streams.create(f"{owner}/{name}", JSON)
    streams.subscriptions.create(
        Subscribe(
            name,
            "webhook",
            streams=[f"{owner}/{name}"],
            webhook_url=url,
            owner=Owner(f"key of {owner}", f"{owner}/"),
        )
    )
    streams.open(f"{owner}/{name}").append(b"1")


def deliverer(streams, tmp_path):
    keys = Keys(tmp_path / "keys.json")
    return Deliverer(streams.subscriptions, keys, lambda: "public", concurrency=SLOTS)


def test_owner_of_dead_webhooks_leaves_slots_to_others(streams, hooks, tmp_path):
    for number in range(3 * SLOTS):
        subscribe(streams, f"dead-{number}", "a")
    subscribe(streams, "good", "b")
    with deliverer(streams, tmp_path):
        assert hooks.good.wait(30)
    assert hooks.dead_max == SLOTS // 4


def test_only_owner_of_webhooks_has_all_slots(streams, hooks, tmp_path):
    for number in range(3 * SLOTS):
        subscribe(streams, f"dead-{number}", "a")
    with deliverer(streams, tmp_path):
        assert hooks.all_dead.wait(30)
    assert hooks.dead_max == SLOTS


def test_owner_may_create_a_bounded_number_of_subscriptions(streams, monkeypatch):
    monkeypatch.setattr(
        "fourfold.models.streams.subscriptions.members.SUBSCRIPTIONS_PER_OWNER_MAX", 2
    )
    for number in range(2):
        subscribe(streams, f"good-{number}", "a")
    with pytest.raises(
        fourfold.errors.LimitExceeded, match="keys for 'a/' cannot create more than 2"
    ):
        subscribe(streams, "good-2", "a")
    subscribe(streams, "good-3", "b")
