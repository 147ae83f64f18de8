"""The object server of the rounds fails as it says, and never leaves a part of an object."""

from __future__ import annotations

import pytest
from bench.reliability.object_server import ENVIRONMENT, OBJECT_FAULTS, ObjectServer

from fourfold.errors import ObjectStoreError
from fourfold.objects import open_objects

SIZE = 200_000


@pytest.fixture(scope="module")
def server():
    server = ObjectServer(1)
    yield server
    server.close()


@pytest.fixture
def store(server, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    yield open_objects(server.url, retries_max=0)
    server.stop()


def test_objects_are_stored_through_the_proxy(store):
    store.put("a/key", b"x" * SIZE)
    assert store.get("a/key").data == b"x" * SIZE
    assert [entry.key for entry in store.list("a/")] == ["a/key"]


@pytest.mark.parametrize("fault", [fault for fault in OBJECT_FAULTS if fault != "object_delays"])
def test_requests_fail_and_objects_are_whole(server, store, fault):
    before = server.hits
    values = [bytes([number]) * SIZE for number in range(20)]
    store.put("key", b"first" * 10)
    failed, possible = 0, {b"first" * 10}
    server.start(fault)
    for value in values:
        try:
            store.put("key", value)
            possible = {value}
        except ObjectStoreError:
            failed += 1
            possible.add(value)
    server.stop()
    assert 0 < failed == server.hits - before < len(values)
    assert store.get("key").data in possible


def test_torn_puts_have_both_outcomes(server, store):
    outcomes = set()
    for number in range(30):
        server.start("torn_puts")
        try:
            store.put(f"torn-{number}", b"data")
        except ObjectStoreError:
            server.stop()
            outcomes.add(any(True for _ in store.list(f"torn-{number}")))
    assert outcomes == {True, False}
