"""Compaction by key over HTTP and by the clients, in requests of limited time."""

from __future__ import annotations

import asyncio
import json

import pytest
from both_fronts import Front

from fourfold import errors
from fourfold.client import AsyncRemoteStore, connect
from fourfold.models.streams import Offset, key_compaction


def change(key, value):
    return {"type": "user", "key": key, "value": value, "headers": {"operation": "upsert"}}


@pytest.fixture
def front(tmp_path):
    front = Front(tmp_path / "store", fast=True, access=True)
    stream = front.streams.create("users", "application/json")
    stream.set_profile("state-protocol")
    stream.append([change(f"k{number % 10}", number) for number in range(30)])
    front.secrets = {scope: front.access.add((scope,), "")[1] for scope in ("write", "admin")}
    front.secrets["all"] = front.access.add(("admin", "read", "write"), "")[1]
    yield front
    front.stop()


def ask(front, body, scope="admin"):
    data = json.dumps(body).encode()
    head = (
        "POST /v1/stream/users/_compact HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {front.secrets[scope]}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    [(status, _, answer)] = front.ask(head.encode() + data)
    return status, json.loads(answer)


def test_request_is_repeated_until_the_compaction_is_complete(front, monkeypatch):
    monkeypatch.setattr(key_compaction, "SCAN_RECORDS", 1)
    before, answers = front.streams.state("users"), []
    horizon = "now"
    while not answers or not answers[-1]["complete"]:
        status, answer = ask(front, {"horizon": horizon, "timeout_ms": 1})
        assert status == 200
        horizon = answer["horizon"]
        answers.append(answer)
        assert front.streams.state("users") == before
    assert len(answers) > 1
    assert answers[-1]["first_offset"] == horizon == "0000000000000000_0000000000000030"
    assert (answers[-1]["copied"], answers[-1]["removed"]) == (10, 30)
    assert front.streams.state("users") == before


def test_compaction_requires_a_horizon_and_the_scope_admin(front):
    assert ask(front, {}, "write")[0] == 403
    status, answer = ask(front, {})
    assert (status, "pass the horizon" in str(answer)) == (400, True)
    status, answer = ask(front, {"horizon": "now", "more": 1})
    assert status == 400
    front.streams.open("users").fork("what-if")
    status, answer = ask(front, {"horizon": "now"})
    assert (status, "forks" in str(answer)) == (409, True)
    assert front.streams.info("users").first_offset == 0


def test_clients_compact_like_a_local_stream(front):
    before = front.streams.state("users")
    with connect(f"http://127.0.0.1:{front.port}", front.secrets["all"]) as store:
        stream = store.streams.open("users")
        result = stream.compact(25)
        assert (result.complete, result.copied, result.removed) == (True, 5, 25)
        assert result.first_offset == Offset(25, 0)
        with pytest.raises(errors.OffsetGone):
            stream.read(24)
        with pytest.raises(errors.InvalidInput):
            stream.compact()
        assert stream.compact(since=0).removed == 0

    async def compact():
        async with AsyncRemoteStore(
            f"http://127.0.0.1:{front.port}", front.secrets["all"]
        ) as store:
            stream = await store.streams.open("users")
            return await stream.compact("now")

    result = asyncio.run(compact())
    assert (result.copied, result.removed) == (10, 10)
    assert front.streams.state("users") == before
