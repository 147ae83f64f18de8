"""Catch-up reads: pages in pieces, exact to the byte, without reading far ahead."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest
from both_fronts import JSON, Front, request

from fourfold import limits
from fourfold.models.streams import Append

BINARY = "application/octet-stream"


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    made = Front(tmp_path_factory.mktemp("catch-up") / "store", fast=True)
    yield made
    made.stop()


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.STREAM_PAGE_BYTES", 200_000)
    monkeypatch.setattr(limits, "STREAM_PIECE_BYTES", 30_000)
    monkeypatch.setattr("fourfold.models.streams.reader.STREAM_PIECE_BYTES_MAX", 60_000)


def pages(front, name):
    """Return the responses from the beginning to the end of a stream."""
    offset, result = "-1", []
    with front.connect() as connection:
        while True:
            connection.send(request("GET", f"{name}?offset={offset}"))
            status, headers, body = connection.answer()
            assert status == 200
            response = dict(headers)
            result.append((response, body))
            offset = response["stream-next-offset"]
            if "stream-up-to-date" in response:
                return result


@pytest.mark.usefixtures("small_pages")
def test_json_is_read_completely_over_several_pages(front):
    front.streams.create("json", JSON)
    sent = [json.dumps({"n": n, "t": "x" * (n * 7919 % 900)}).encode() for n in range(2_000)]
    front.streams.append("json", Append(sent, JSON))
    result = pages(front, "json")
    assert len(result) > 3
    assert {response.get("transfer-encoding") for response, _ in result[:-1]} == {"chunked"}
    assert b",".join(body[1:-1] for _, body in result) == b",".join(sent)
    for _, body in result:
        json.loads(body)


@pytest.mark.usefixtures("small_pages")
def test_bytes_of_any_size_are_read_completely(front):
    front.streams.create("bytes", BINARY)
    # Most are tiny and some are larger than a piece may be, so no average fits them.
    sent = [bytes([n % 256]) * (150_000 if n % 300 == 299 else 1) for n in range(1_000)]
    front.streams.append("bytes", Append(sent, BINARY))
    assert b"".join(body for _, body in pages(front, "bytes")) == b"".join(sent)


@pytest.mark.usefixtures("small_pages")
def test_known_page_is_not_sent_again(front):
    front.streams.create("known", BINARY)
    front.streams.append("known", Append([b"x" * 100_000] * 5, BINARY))
    mark = pages(front, "known")[0][0]["etag"]
    sent = request("GET", "known?offset=-1", if_none_match=mark)
    assert [answer[0] for answer in front.ask(sent)] == [304]


@pytest.mark.usefixtures("small_pages")
def test_nothing_is_read_ahead_of_a_slow_client(front, monkeypatch):
    monkeypatch.setattr("fourfold.models.streams.reader.STREAM_PAGE_BYTES", 64 << 20)
    front.streams.create("slow", BINARY)
    for _ in range(20):
        front.streams.append("slow", Append([b"x" * 30_000] * 30, BINARY))
    read, pieces = [], front.streams.read_joined

    def counted(info, start, end):
        read.append(threading.get_ident())
        return pieces(info, start, end)

    monkeypatch.setattr(front.streams, "read_joined", counted)
    with front.connect() as connection:
        connection.send(request("GET", "slow?offset=-1"))
        seen = -1
        while seen != len(read):
            seen = len(read)
            time.sleep(0.3)
        # The contents of both socket buffers, and a piece or two.
        assert seen < 450
        assert len(connection.answer()[2]) == 20 * 30 * 30_000
    assert len(read) == 600
    assert front.thread.ident not in read


@pytest.mark.usefixtures("small_pages")
def test_response_is_aborted_when_its_records_are_deleted(front, monkeypatch):
    front.streams.create("gone", BINARY)
    front.streams.append("gone", Append([b"x" * 10_000] * 19, BINARY))
    pieces = front.streams.read_joined

    def then_deleted(info, start, end):
        result = pieces(info, start, end)
        if start == 0:
            front.streams.delete("gone")
        return result

    monkeypatch.setattr(front.streams, "read_joined", then_deleted)
    with front.connect() as connection:
        connection.send(request("GET", "gone?offset=-1"))
        head = connection._until(b"\r\n\r\n").decode()
        assert re.search("(?i)transfer-encoding: chunked", head)
        while not connection.is_ended():
            pass
        assert not connection.kept.endswith(b"0\r\n\r\n")
    assert front.ask(request("GET", "gone?offset=-1"))[0][0] == 404


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("writes", [True, False])
def test_pauses_between_pieces_only_follow_writes(front, monkeypatch, writes):
    monkeypatch.setattr("fourfold.models.streams.reader.STREAM_PAGE_BYTES", 64 << 20)
    name, other = f"paced-{writes}", f"other-{writes}"
    front.streams.create(name, BINARY)
    front.streams.create(other, BINARY)
    front.streams.append(name, Append([b"x" * 30_000] * 10, BINARY))
    read, paused, pieces = [], [], front.streams.read_joined

    def counted(info, start, end):
        result = pieces(info, start, end)
        read.append(result[1] - start)
        if writes:
            front.streams.append(other, Append([b"x"], BINARY))
        return result

    async def pause_after_async(took):
        paused.append(len(read) if took > 0 else 0)
        return True

    monkeypatch.setattr(front.streams, "read_joined", counted)
    monkeypatch.setattr(front.streams.database.pauses, "pause_after_async", pause_after_async)
    assert front.ask(request("GET", f"{name}?offset=-1"))[0][2] == b"x" * 300_000
    assert read == [1] * 10
    # One between two pieces, before the next one is read.
    assert paused == (list(range(1, 10)) if writes else [0] * 9)


def test_lists_and_metrics_are_not_made_on_the_event_loop(front, monkeypatch):
    threads = set()

    def noted(function):
        def call(*arguments, **options):
            threads.add(threading.get_ident())
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(front.streams, "list", noted(front.streams.list))
    monkeypatch.setattr(front.streams.database, "metrics", noted(front.streams.database.metrics))
    for path in ("/v1/streams?limit=1000", "/metrics"):
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        assert front.ask(head.encode())[0][0] == 200
    assert threads
    assert front.thread.ident not in threads
