"""Subscriptions of a server, from the client: create, claim, acknowledge, release."""

from __future__ import annotations

import pytest
from served_streams import Served

import fourfold
from fourfold import Ack, Subscribe, errors


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("subscriptions") / "store")
    yield server
    server.kill()


@pytest.fixture
def streams(served):
    with fourfold.connect(f"http://127.0.0.1:{served.port}") as store:
        yield store.streams


def test_a_worker_claims_and_acknowledges_over_http(streams):
    streams.create("wakes", "application/json")
    mail = Subscribe("mail", "pull-wake", pattern="mail/*", wake_stream="wakes")
    created, is_new = streams.subscriptions.create(mail)
    assert (created.id, created.pattern, is_new) == ("mail", "mail/*", True)
    assert streams.subscriptions.create(mail)[1] is False
    with pytest.raises(errors.AlreadyExists):
        streams.subscriptions.create(mail._replace(pattern="other/*"))
    with pytest.raises(errors.FourfoldError) as nothing:
        streams.subscriptions.claim("mail", "worker-1")
    assert nothing.value.kind == "nothing_pending"

    streams.create("mail/anna", "application/json").append({"subject": "hello"})
    wake = streams.subscriptions.claim("mail", "worker-1")
    (link,) = wake.streams
    assert (link.path, link.has_pending) == ("mail/anna", True)
    with pytest.raises(errors.FourfoldError) as claimed:
        streams.subscriptions.claim("mail", "worker-2")
    assert claimed.value.kind == "already_claimed"

    acks = [Ack(link.path, link.tail_offset)]
    assert streams.subscriptions.acknowledge("mail", wake, acks, done=True) is False
    assert [row.acked_offset for row in streams.subscriptions.links("mail")] == [link.tail_offset]
    with pytest.raises(errors.FourfoldError):
        streams.subscriptions.acknowledge("mail", wake, acks)


def test_streams_are_followed_by_name_and_a_lease_is_released(streams):
    for name in ("wakes-2", "a", "b"):
        streams.create(name, "application/json")
    pull = Subscribe("named", "pull-wake", streams=["a"], wake_stream="wakes-2")
    streams.subscriptions.create(pull)
    streams.subscriptions.add_streams("named", ["b"])
    assert [row.path for row in streams.subscriptions.links("named")] == ["a", "b"]
    streams["b"].append({"n": 1})
    wake = streams.subscriptions.claim("named", "worker-1")
    streams.subscriptions.release("named", wake)
    again = streams.subscriptions.claim("named", "worker-2")
    assert again.generation > wake.generation
    streams.subscriptions.remove_stream("named", "b")
    assert [row.path for row in streams.subscriptions.get("named").streams] == ["a"]
    for _ in range(2):
        streams.subscriptions.delete("named")
    with pytest.raises(errors.NotFound):
        streams.subscriptions.get("named")
