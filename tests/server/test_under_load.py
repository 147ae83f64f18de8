"""An overloaded server, or one whose disk fails, responds with Retry-After and loses nothing."""

from __future__ import annotations

import contextlib
import select
import time

import pytest
from both_fronts import JSON, Front, append, request

from fourfold.kernel import failpoints

WAITING = 3
"""Requests that may wait for a commit."""


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def front(request, tmp_path, monkeypatch):
    monkeypatch.setenv("FOURFOLD_KERNEL_QUEUE_REQUESTS_MAX", str(WAITING))
    monkeypatch.setenv("FOURFOLD_KERNEL_GROUP_REQUESTS_MAX", "1")
    made = Front(tmp_path / "store", fast=request.param)
    made.streams.create("s", JSON)
    yield made
    failpoints.disarm()
    made.stop()


def stored(front):
    return [record.payload for record in front.streams.open("s").read().records]


def until(found):
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def is_answered(connection):
    return bool(select.select([connection.socket], [], [], 0)[0])


def waiting(front):
    return front.streams.database.metrics().queued_requests


def test_pending_appends_are_limited_and_refusals_have_retry_after(front):
    with contextlib.ExitStack() as stack:
        sent = []
        # While another writer holds the database, no append is committed.
        with front.streams.database.write():
            for n in range(WAITING + 5):
                connection = stack.enter_context(front.connect())
                before = waiting(front)
                connection.send(append("s", b"%d" % n))
                # Sent one after the other, so that the order of the records is known.
                until(lambda c=connection, b=before: is_answered(c) or waiting(front) > b)
                sent.append(connection)
            turned_away = [item.answer() for item in sent[WAITING:]]
            made = front.ask(request("PUT", "t", content_type=JSON))[0]
        taken = [item.answer() for item in sent[:WAITING]]
        assert [item[0] for item in taken] == [204] * WAITING
        for status, headers, body in (*turned_away, made):
            assert status == 429
            assert int(dict(headers)["retry-after"]) >= 1
            assert b'"kind": "overloaded"' in body
        assert stored(front) == [b"%d" % n for n in range(WAITING)]
        # A connection that was turned away goes on, and what it asks again is done.
        sent[-1].send(append("s", b'"again"'))
        assert sent[-1].answer()[0] == 204
    assert stored(front)[WAITING:] == [b'"again"']
    assert front.ask(request("GET", "t"))[0][0] == 404


@pytest.mark.parametrize(("action", "kind"), [("raise", b"storage"), ("full", b"disk_full")])
def test_append_that_fails_on_disk_is_not_acknowledged(front, action, kind):
    # Room is made where there is none, and the commit tried again: it fails then too.
    failpoints.arm("kernel.commit.before", action, repeat=True)
    status, headers, body = front.ask(append("s", b"1"))[0]
    assert status == 503
    assert int(dict(headers)["retry-after"]) >= 1
    assert b'"kind": "%s"' % kind in body
    failpoints.disarm()
    assert stored(front) == []
    assert front.ask(append("s", b"2"))[0][0] == 204
    assert stored(front) == [b"2"]


def test_closed_store_responds_with_503(front):
    front.store.close()
    for sent in (append("s"), request("GET", "s"), request("PUT", "t", content_type=JSON)):
        status, headers, body = front.ask(sent)[0]
        assert status == 503, body
        assert int(dict(headers)["retry-after"]) >= 1
