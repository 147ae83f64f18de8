"""Server-sent events of a stream: readers resume by Last-Event-ID, with gaps and ends."""

from __future__ import annotations

import json
import re

import pytest
from both_fronts import JSON, Front, request

from fourfold.models.streams import Append
from fourfold.models.streams.validation import format_offset


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    made = Front(tmp_path_factory.mktemp("events") / "store", fast=True)
    yield made
    made.stop()


def read_events(front, name, until, offset="-1", **headers):
    """Return (id, event, data) of all events until a text arrives."""
    with front.connect() as connection:
        connection.send(request("GET", f"{name}?offset={offset}&live=sse", **headers))
        text = b""
        while until not in text:
            data = connection.socket.recv(1 << 16)
            assert data, text
            text += data
    found = re.findall(rb"(?:id: (\S*)\n)?event: (\w+)\ndata:(.*)\n", text)
    return [(place.decode(), event.decode(), json.loads(data)) for place, event, data in found]


def append(front, name, *numbers):
    front.streams.append(name, Append([b"%d" % number for number in numbers], JSON))


def test_a_reader_continues_after_the_id_of_its_last_event(front):
    front.streams.create("resumed", JSON)
    append(front, "resumed", 1, 2)
    data, control = read_events(front, "resumed", b"upToDate")
    assert data == (format_offset(2), "data", [1, 2])
    assert control[:2] == (control[2]["streamNextOffset"], "control")

    append(front, "resumed", 3)
    # A browser sends the same URL again, with the offset of its first connection.
    again = read_events(front, "resumed", b"upToDate", Last_Event_ID=data[0])
    assert [event[1:] for event in again if event[1] == "data"] == [("data", [3])]


def test_a_reader_of_a_closed_stream_receives_the_end(front):
    front.streams.create("closed", JSON)
    append(front, "closed", 1)
    front.streams["closed"].append([], close=True)
    events = read_events(front, "closed", b"event: end")
    assert [event for _, event, _ in events] == ["data", "control", "end"]
    assert events[-1] == ("", "end", {"reason": "closed"})


def test_a_reader_of_a_deleted_stream_receives_the_end(front):
    front.streams.create("deleted", JSON)
    with front.connect() as connection:
        connection.send(request("GET", "deleted?offset=now&live=sse"))
        text = b""
        while b"upToDate" not in text:
            text += connection.socket.recv(1 << 16)
        front.streams.delete("deleted")
        while b"event: end" not in text:
            data = connection.socket.recv(1 << 16)
            assert data, text
            text += data
    assert b'event: end\ndata:{"reason": "deleted"}\n\n' in text


def test_a_reader_whose_next_records_are_gone_receives_a_gap(front):
    front.streams.create("trimmed", JSON, retention_bytes=3)
    append(front, "trimmed", 1, 2, 3, 4, 5, 6)
    while front.streams.info("trimmed").first_offset != 3:
        front.streams.sweep()
    events = read_events(front, "trimmed", b"upToDate", Last_Event_ID=format_offset(1))
    first = format_offset(3)
    assert events[:2] == [
        (first, "gap", {"streamNextOffset": first}),
        (format_offset(6), "data", [4, 5, 6]),
    ]
    # An explicit offset is the choice of the client: it gets the error.
    (answer,) = front.ask(request("GET", f"trimmed?offset={format_offset(1)}&live=sse"))
    assert answer[0] == 410
