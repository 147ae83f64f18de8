"""Conventions of the API: workers, cursors, conditions, pages and server-sent events."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest
from msgspec import UNSET, Struct

from fourfold.errors import DeadlineExceeded, InvalidInput, Overloaded
from fourfold.server import conditions, cursors
from fourfold.server.event_stream import Feed, FeedEvent, event_response, last_event_id
from fourfold.server.replies import encode_reply
from fourfold.server.request import Reply, Request
from fourfold.server.workers import CHEAP_S, Workers
from fourfold.wire.pages import Page

# Workers


def test_worker_returns_the_result_or_raises_the_error():
    async def main():
        workers = Workers()
        assert await workers.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 7, 0)

    asyncio.run(main())


def test_write_has_no_deadline_of_its_own():
    async def main():
        workers = Workers(1, deadline_s=0.01)
        gate = threading.Event()
        writing = asyncio.ensure_future(workers.write(gate.wait, 30))
        await asyncio.sleep(0)
        with pytest.raises(DeadlineExceeded):
            await workers.run(gate.is_set)
        assert not writing.done()
        gate.set()
        assert await writing

    asyncio.run(main())


def test_full_queue_refuses_at_once_and_recovers():
    async def main():
        workers = Workers(1, waiting_max=1)
        gate = threading.Event()
        started = [asyncio.ensure_future(workers.run(gate.wait, 30)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await workers.run(gate.wait, 30)
        gate.set()
        assert await asyncio.gather(*started) == [True, True]
        assert await workers.run(gate.wait, 30)

    asyncio.run(main())


def test_late_result_is_an_error_and_its_thread_still_counts():
    async def main():
        workers = Workers(1, waiting_max=0, deadline_s=0.05)
        gate = threading.Event()
        with pytest.raises(DeadlineExceeded, match=r"took longer than 0\.05 seconds"):
            await workers.run(gate.wait, 30)
        with pytest.raises(Overloaded):
            await workers.run(gate.wait, 30)
        gate.set()
        for _ in range(1000):
            await asyncio.sleep(0.01)
            with suppress(Overloaded):
                assert await workers.run(gate.is_set)
                break
        else:
            raise AssertionError("the thread was never counted as free")

    asyncio.run(main())


class Rests:
    """Pauses of workers, recorded instead of waited for."""

    def __init__(self):
        self.steps = []

    async def pause_after_async(self, took, *, passed_s, since):
        assert since == 0
        self.steps.append((took, passed_s))


def compute():
    """Use processor time, more than a call whose response is never held back."""
    used = time.thread_time()
    while time.thread_time() - used < 3 * CHEAP_S:
        pass


@pytest.mark.parametrize("name", ["run", "write"])
def test_expensive_call_rests_while_the_process_writes(name):
    async def main():
        rests = Rests()
        workers = Workers(1, written=itertools.count().__next__, pauses=rests)
        await getattr(workers, name)(compute)
        await getattr(workers, name)(threading.Event().wait, 3 * CHEAP_S)  # waits, computes nothing
        ((took, passed),) = rests.steps
        assert took >= 3 * CHEAP_S
        assert passed >= 0

    asyncio.run(main())


def test_expensive_call_returns_at_once_while_nothing_is_written():
    async def main():
        rests = Rests()
        await Workers(1, written=lambda: 7, pauses=rests).run(compute)
        assert not rests.steps

    asyncio.run(main())


# Cursors


def test_cursor_is_read_back_and_bound_to_its_list():
    listed = cursors.digest_of("ids", "did:key:a", "", "note:")
    text = cursors.format_cursor(listed, 7, "note:é/1")
    cursor = cursors.parse(text, listed, str)
    assert (cursor.at, cursor.after) == (7, "note:é/1")
    assert cursors.parse(UNSET, listed, str) is None
    numbered = cursors.parse(cursors.format_cursor(listed, 7, 3), listed, int)
    assert numbered.after == 3


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "!!!!", "bnVsbA", "W10", "é", "A" * 4000),
        cursors.format_cursor(cursors.digest_of("ids", "b"), 7, "a"),
        cursors.format_cursor(cursors.digest_of("ids", "a"), -7, "a"),
        cursors.format_cursor(cursors.digest_of("ids", "a"), 7, 3),
    ],
)
def test_cursor_of_another_list_is_refused(text):
    with pytest.raises(InvalidInput, match="cursor: must be the next_cursor"):
        cursors.parse(text, cursors.digest_of("ids", "a"), str)


# Conditions


def request(**headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("PUT", "/x", headers=named)


def test_if_match_is_one_version_or_any():
    assert conditions.parse_if_match(request()) is None
    assert conditions.parse_if_match(request(if_match=' "7" ')) == "7"
    assert conditions.parse_if_match(request(if_match="*")) == "*"
    # A weak ETag is never equal to a strong one.
    assert conditions.parse_if_match(request(if_match='W/"7"')) == 'W/"7"'
    for text in ("7", '"7", "8"', '"', "", '"a\x7f"'):
        with pytest.raises(InvalidInput, match="If-Match: must be one ETag"):
            conditions.parse_if_match(request(if_match=text))


def test_if_none_match_of_a_write_is_any():
    assert not conditions.must_not_exist(request())
    assert conditions.must_not_exist(request(if_none_match="*"))
    with pytest.raises(InvalidInput, match=r"must be \* for a write"):
        conditions.must_not_exist(request(if_none_match='"7"'))


def test_idempotency_key_belongs_to_the_api_key():
    assert conditions.idempotent_session(request()) is None
    sent = Request("POST", "/x", headers={"idempotency-key": "k"}, key_id="ab12")
    assert conditions.idempotent_session(sent) == "idem:ab12:k"
    for text in ("", "a b", "é", "k" * 256):
        with pytest.raises(InvalidInput, match="Idempotency-Key: must be"):
            conditions.parse_idempotency_key(request(idempotency_key=text))


# Replies


class Item(Struct):
    n: int


class Items(Page, kw_only=True, frozen=True):
    items: list[Item]


def test_page_is_json_or_lines_and_links_the_next_page():
    page = Items(items=[Item(1), Item(2)], next_cursor="c-2")
    sent = Request("GET", "/v1/a b", "prefix=x%26y&cursor=c-1&limit=2", root="/mnt")
    response = encode_reply(Reply(page), sent)
    assert response.body == b'{"items":[{"n":1},{"n":2}],"next_cursor":"c-2"}'
    assert response.headers["link"] == (
        '</mnt/v1/a%20b?prefix=x%26y&limit=2&cursor=c-2>; rel="next"'
    )
    accepting = Request("GET", "/v1/a", headers={"accept": "application/x-ndjson"})
    response = encode_reply(Reply(page), accepting)
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.body == b'{"n":1}\n{"n":2}\n'
    assert "rel" not in encode_reply(Reply(Items(items=[])), sent).headers.get("link", "")


def test_known_version_is_not_sent_again():
    reply = Reply(Item(1), etag="7")
    for text in ('"7"', 'W/"7"', '"1", "7"', "*"):
        response = encode_reply(reply, Request("GET", "/", headers={"if-none-match": text}))
        assert (response.status, response.body) == (304, b"")
    for method, text in (("GET", '"8"'), ("PUT", '"7"')):
        response = encode_reply(reply, Request(method, "/", headers={"if-none-match": text}))
        assert (response.status, response.headers["etag"]) == (200, '"7"')


# Server-sent events


class Events:
    """A feed of events, which counts how often it is open."""

    def __init__(self, events, *, stopping=False):
        self._events, self._stopping = list(events), stopping
        self.opened = self.closed = 0

    @asynccontextmanager
    async def open(self):
        self.opened += 1
        yield Feed(self._next, lambda: "4", lambda: self._stopping)
        self.closed += 1

    async def _next(self, _timeout):
        assert self._events, "read after its end"
        return self._events.pop(0)

    def collect(self, **times):
        async def main():
            return [piece async for piece in event_response(self.open, **times).pieces]

        return asyncio.run(main())


def test_feed_sends_its_position_first_and_ends_after_end():
    events = Events([FeedEvent("commit", Item(1), "5"), None, FeedEvent("end", Item(0))])
    assert events.collect() == [
        b"retry: 100\nid: 4\n\n",
        b'id: 5\nevent: commit\ndata: {"n":1}\n\n',
        b": keep-alive\nid: 4\n\n",
        b'event: end\ndata: {"n":0}\n\n',
    ]
    assert (events.opened, events.closed) == (1, 1)


def test_feed_ends_when_its_time_is_over_or_server_stops():
    for events, times in ((Events([]), {"lifetime_s": 0}), (Events([], stopping=True), {})):
        assert len(events.collect(**times)) == 1
        assert (events.opened, events.closed) == (1, 1)


def test_feed_that_is_not_read_is_not_opened():
    """A response to HEAD has no events."""
    events = Events([])
    event_response(events.open)
    assert events.opened == 0


def test_last_event_id_wins_over_after():
    assert last_event_id(request(last_event_id="9"), 3) == "9"
    assert last_event_id(request(), 3) == 3
