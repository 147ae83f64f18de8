"""A shared server in a thread of this process, with one prefix per test, and JSON requests."""

from __future__ import annotations

import json

from both_fronts import JSON, request

from fourfold.models.streams.writer import SQL

TOUCHABLE = {"kind": "state-protocol", "touch": {"enabled": True}}


class Area:
    """The part of a server that belongs to one test: its names have a common prefix."""

    def __init__(self, server, prefix):
        self.server = server
        self.streams = server.streams
        self.prefix = prefix

    def connect(self):
        return self.server.connect()

    def create(self, name, kind=JSON, **given):
        return self.streams.create(self.prefix + name, kind, **given)

    def stored(self, name):
        """Return the stored bytes, whatever readers receive."""
        sid = self.streams.info(self.prefix + name).sid
        with self.streams.database.read() as snapshot:
            return [bytes(row[1]) for row in snapshot.all(SQL.records, (sid, 0, 1_000))]


def call(front, method, path, document=None, **headers):
    """Send one request and return (status, headers, JSON); a body of bytes is sent unchanged."""
    body = document if isinstance(document, bytes) else b""
    if document is not None and not isinstance(document, bytes):
        body = json.dumps(document).encode()
    if "stream_forked_from" in headers:
        headers["stream_forked_from"] = front.prefix + headers["stream_forked_from"]
    sent = request(method, front.prefix + path, body, content_type=JSON, **headers)
    ((status, response, text),) = front.server.ask(sent)
    named = dict(response)
    is_json = named.get("content-type") == JSON and text
    return status, named, json.loads(text) if is_json else text


def done(front, method, path, document=None, **headers):
    status, _, response = call(front, method, path, document, **headers)
    assert status in {200, 201, 204}, response
    return response


class Events:
    """Received server-sent events."""

    def __init__(self, front, name, query=""):
        self.connection = front.connect()
        self.connection.send(request("GET", f"{front.prefix}{name}?offset=-1&live=sse{query}"))
        self.text = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.socket.close()

    def until(self, mark):
        while mark not in self.text:
            data = self.connection.socket.recv(1 << 16)
            assert data, "the events ended"
            self.text += data

    def messages(self):
        lines = [line for line in self.text.split(b"\n") if line.startswith(b"data:[")]
        return [message for line in lines for message in json.loads(line[5:])]
