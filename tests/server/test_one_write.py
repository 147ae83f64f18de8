"""The head of a response is sent with its body, and never waits for a missing one."""

from __future__ import annotations

import asyncio

from both_fronts import JSON, Front, request

from fourfold.server.fast_append import CoalescedWrite


class Transport:
    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.written.append(data)

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def run(work):
    async def main():
        transport = Transport()
        await work(CoalescedWrite(transport, asyncio.get_running_loop()), transport)
        return transport.written

    return asyncio.run(main())


def test_head_and_body_are_one_write():
    async def work(one, transport):
        one.write(b"head ")
        assert transport.written == []
        one.write(b"body")
        one.write(b"more")
        await asyncio.sleep(0)

    assert run(work) == [b"head body", b"more"]


def test_head_without_a_body_is_sent_in_the_next_iteration():
    async def work(one, transport):
        one.write(b"head")
        await asyncio.sleep(0)
        assert transport.written == [b"head"]
        one.write(b"late")

    assert run(work) == [b"head", b"late"]


def test_empty_body_sends_the_head():
    async def work(one, transport):
        one.write(b"head")
        one.write(b"")
        assert transport.written == [b"head"]

    assert run(work) == [b"head"]


def test_closing_connection_sends_the_held_head_first():
    async def work(one, transport):
        one.write(b"head")
        one.close()
        assert one.is_closing()
        assert transport.written == [b"head"]
        await asyncio.sleep(0)

    assert run(work) == [b"head"]


def test_read_and_event_stream_are_complete(tmp_path):
    """The first system call receives more than a head."""
    front = Front(tmp_path / "store", fast=True)
    try:
        front.streams.create("s", JSON, body=b"[1, 2]")
        for sent, has in (("s", b"[1,2]"), ("s?offset=-1&live=sse", b"event: control")):
            with front.connect() as connection:
                connection.send(request("GET", sent))
                data = connection.socket.recv(1 << 16)
                assert has in data.partition(b"\r\n\r\n")[2]
    finally:
        front.stop()
