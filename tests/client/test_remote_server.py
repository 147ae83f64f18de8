"""Calls about the server itself: probes, error kinds, tables, and keys of signatures."""

from __future__ import annotations

import asyncio

import pytest
from both_fronts import Front
from webhook_receiver import Receiver

import fourfold
from fourfold import Ack, Subscribe, errors
from fourfold.client import AsyncRemoteStore
from fourfold.kernel import Health


@pytest.fixture
def remote(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        yield store


def test_probes_of_a_server_that_is_well(remote):
    assert remote.server.live().ok
    assert remote.server.ready().ok
    health = remote.server.health()
    assert (health.ok, health.error) == (True, None)


def test_a_failed_probe_is_a_result(tmp_path, monkeypatch):
    front = Front(tmp_path / "store", fast=False)
    try:
        monkeypatch.setattr(front.store, "health", lambda: {"spaces": Health("failed", ())})
        with fourfold.connect(f"http://127.0.0.1:{front.port}") as store:
            probe = store.server.ready()
            assert (probe.ok, probe.failing) == (False, 1)
            assert store.server.live().ok
    finally:
        front.stop()


def test_a_probe_is_asked_once():
    with fourfold.connect("http://127.0.0.1:9", retry_for=None) as store:
        for probe in (store.server.live, store.server.ready, store.server.health):
            with pytest.raises(errors.ServerUnreachable):
                probe()


def test_the_server_explains_errors_and_routes(remote):
    kind = remote.server.error_kind("not_found")
    assert (kind.kind, kind.status, kind.retryable) == ("not_found", 404, False)
    with pytest.raises(errors.NotFound):
        remote.server.error_kind("unheard_of")
    assert "/v1/spaces" in remote.server.openapi()["paths"]
    assert repr(remote.server).startswith("<Server at http://")


def test_tables_of_sql_are_listed_as_by_a_local_store(remote):
    with fourfold.open(":memory:") as local:
        tables = local.sql_tables()
    assert remote.sql_tables() == tables
    [state] = [table for table in tables if table.name == "documents_state"]
    assert {"id", "document"} <= {column.name for column in state.columns}

    async def names():
        async with AsyncRemoteStore(remote.streams._address.root) as store:
            return [table.name for table in await store.sql_tables()]

    assert asyncio.run(names()) == [table.name for table in tables]


def test_the_receiver_of_a_webhook_acknowledges(remote, name):
    streams = remote.streams
    receiver = Receiver()
    try:
        hook = Subscribe(name, "webhook", pattern=f"{name}/*", webhook_url=receiver.url)
        created, _ = streams.subscriptions.create(hook)
        assert created.webhook.signing.kid == remote.server.webhook_keys()[0].kid
        end = streams.create(f"{name}/a", "application/json").append({"n": 1}).offset
        _, body, _ = receiver.wait()[0]
        acks = [Ack(f"{name}/a", str(end))]
        assert streams.subscriptions.acknowledge_webhook(body, acks, done=True) is False
        [link] = streams.subscriptions.links(name)
        assert link.acked_offset == str(end)
        with pytest.raises(errors.FourfoldError):
            streams.subscriptions.acknowledge_webhook(body, acks, done=True)
        with pytest.raises(errors.InvalidInput):
            streams.subscriptions.acknowledge_webhook(b"[]")
    finally:
        streams.subscriptions.delete(name)
        receiver.close()
